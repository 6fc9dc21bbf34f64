"""Fields of a VARIANT that a file keeps in columns of their own, and the JSON that tells of them.

Source: docs/stable/specification/data_types.md (Extra Statistics) and the reference's
storage/statistics/ducklake_variant_stats.cpp.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from airflow_provider_ducklake.lake.types import duckdb_type

# Stand in a path for a VARIANT that is no object, and for what is inside of a list.
ROOT: Final = "root"
ELEMENT: Final = "element"


@dataclass(frozen=True, slots=True)
class ShreddedField:
    """A field that has one type wherever it has a value; None is unknown.

    Attributes:
        path: `"a"."b"` of quoted names, `element` for what a list holds, or `root`.
        shredded_type: DuckLake type name.
        size_bytes: Compressed bytes of its column.
        num_values: Places for a value, NULL ones too; of a list as many as it has elements.
        null_count: Places where it is NULL or absent.
        min_value: A lower bound in the text form of its type; None also when all is NULL.
        max_value: An upper bound, likewise.
        contains_nan: Whether any value is NaN; only for floating-point types.
    """

    path: str
    shredded_type: str
    size_bytes: int = 0
    num_values: int | None = None
    null_count: int | None = None
    min_value: str | None = None
    max_value: str | None = None
    contains_nan: bool | None = None

    @property
    def value_count(self) -> int | None:
        """Values that are not NULL."""
        if self.num_values is None or self.null_count is None:
            return None
        return self.num_values - self.null_count

    @property
    def is_only_null(self) -> bool:
        """Whether the field is NULL or absent everywhere."""
        return self.value_count == 0


def in_list(path: str) -> bool:
    """Tell whether a path leads into a list, so that a row has any number of its values."""
    return any(ELEMENT in between for between in path.split('"')[::2])


def to_json(fields: Iterable[ShreddedField]) -> str | None:
    """Return fields as the reference writes them; None when there are none."""
    listed = [_entry(field) for field in fields]
    return json.dumps(listed, ensure_ascii=False, separators=(",", ":")) if listed else None


def from_json(text: str | None) -> tuple[ShreddedField, ...]:
    """Return the fields that some JSON tells of; none when it tells of something else.

    Counts inside of lists are believed only when they tell of no NULL: DuckDB counts an absent
    value more than once, and may take a column for one of nothing but NULL.
    """
    try:
        listed = json.loads(text or "[]")
        return tuple(map(_field, listed)) if isinstance(listed, list) else ()
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()


def _entry(field: ShreddedField) -> dict[str, object]:
    known = {
        "null_count": field.null_count,
        "min": field.min_value,
        "max": field.max_value,
        "num_values": field.num_values,
        "contains_nan": field.contains_nan,
    }
    return {
        "field_name": field.path,
        "shredded_type": field.shredded_type,
        **{name: value for name, value in known.items() if value is not None},
        "column_size_bytes": field.size_bytes,
        "any_valid": True,
    }


def _field(entry: Mapping[str, object]) -> ShreddedField:
    path, kind = _text(entry["field_name"]), _text(entry["shredded_type"])
    if path is None or kind is None:
        raise ValueError("a field without path or type")
    duckdb_type(kind)  # of a type that is none nothing can be compared
    nan, nulls = entry.get("contains_nan"), _count(entry.get("null_count"))
    counted = nulls == 0 or not in_list(path)
    return ShreddedField(
        path=path,
        shredded_type=kind,
        size_bytes=_count(entry.get("column_size_bytes")) or 0,
        num_values=_count(entry.get("num_values")) if counted else None,
        null_count=nulls if counted else None,
        min_value=_text(entry.get("min")),
        max_value=_text(entry.get("max")),
        contains_nan=nan if isinstance(nan, bool) else None,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else None
