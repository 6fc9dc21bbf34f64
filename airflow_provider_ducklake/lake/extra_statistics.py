"""What a table says of VARIANT and GEOMETRY columns: JSON made of what its files say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from math import inf
from typing import Final

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.shredded import ShreddedField, from_json, to_json
from airflow_provider_ducklake.lake.statistics import (
    ColumnStatistics,
    TableColumnStatistics,
    bound_of,
    contains_null_of,
)

EXTRA_TYPES: Final = frozenset({"geometry", "variant"})
_STEP: Final = Decimal("0.000001")
_LONGEST: Final = 320  # digits of the largest number there is, and six more
EDGES: Final = tuple(axis + end for axis in "xyzm" for end in ("min", "max"))


@dataclass(frozen=True, slots=True)
class Extent:
    """The box around geometries and their types; an edge is None where nothing has that axis."""

    edges: tuple[float | None, ...] = (None,) * len(EDGES)
    types: frozenset[str] = frozenset()

    @property
    def is_known(self) -> bool:
        """Whether it bounds its geometries.

        DuckDB writes no edge at all where one would be infinite, as it does for empty geometries.
        One that crosses the 180th meridian begins in the east, which clients do not know.
        """
        known = not self.types
        for low, high in zip(self.edges[::2], self.edges[1::2], strict=True):
            if low is None and high is None:
                continue
            if low is None or high is None or not -inf < low <= high < inf:
                return False
            known = True
        return known

    def to_json(self) -> str:
        """Return it as the reference spells it, with six digits, but never a smaller box.

        The reference rounds to the nearest; what it writes again of this stays as large.

        Source: storage/statistics/ducklake_geo_stats.cpp.
        """
        box = zip(EDGES, self.edges, strict=True)
        edges = ", ".join(f'"{name}": {_digits(edge, name)}' for name, edge in box)
        return f'{{"bbox": {{{edges}}}, "types": {json.dumps(sorted(self.types))}}}'


def _digits(edge: float | None, name: str) -> str:
    if edge is None:
        return "null"
    text = f"{edge:.6f}"
    if float(text) == edge:
        return text
    outwards = ROUND_FLOOR if name.endswith("min") else ROUND_CEILING
    with localcontext(Context(_LONGEST)):
        return f"{Decimal(edge).quantize(_STEP, outwards):f}"


def extent_from_json(text: str | None) -> Extent | None:
    """Return the box that some JSON tells of; None when it tells of none that bounds anything."""
    try:
        found = json.loads(text or "")
        box = found["bbox"]
        edges = tuple(None if box[name] is None else float(box[name]) for name in EDGES)
        extent = Extent(edges, frozenset(map(str, found["types"])))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return extent if extent.is_known else None


def common_extent(extents: Iterable[Extent]) -> Extent:
    """Return the box around some boxes."""
    some = list(extents)
    edges = []
    for at, name in enumerate(EDGES):
        known = [edge for extent in some if (edge := extent.edges[at]) is not None]
        widest = min if name.endswith("min") else max
        edges.append(widest(known) if known else None)
    return Extent(tuple(edges), frozenset().union(*(extent.types for extent in some)))


def common_fields(parts: Sequence[Sequence[ShreddedField]]) -> tuple[ShreddedField, ...]:
    """Return the fields that have one type in all of some files, widened to hold for them all."""
    if not parts:
        return ()
    by_path = [{field.path: field for field in part} for part in parts]
    found = []
    for path in by_path[0]:
        fields = [part.get(path) for part in by_path]
        known = [field for field in fields if field is not None]
        if len(known) == len(fields) and len({field.shredded_type for field in known}) == 1:
            found.append(_common(known))
    return tuple(found)


def merge_extra_into_table(
    column: Column,
    current: TableColumnStatistics | None,
    files: Sequence[ColumnStatistics | None],
) -> TableColumnStatistics | None:
    """Widen what a table says of a VARIANT or GEOMETRY column to the rows of more files.

    Args:
        column: The leaf column.
        current: What the table says now; None when it has said nothing yet (no rows so far).
        files: One entry a new file with rows; None where a file has no statistics for it.

    Returns:
        The statistics; None when nothing can be said of a GEOMETRY, for the reference takes a row
        without a box for one of an empty box.
    """
    nulls = contains_null_of(current, files)
    if column.type == "variant":
        parts = [from_json(file.extra_stats) if file else () for file in files]
        if current is not None:
            parts.insert(0, from_json(current.extra_stats))
        # The reference's reader finds a field for another one whose name differs in case, and for
        # places behind the end of a list: where it hears of no NULL it loses those rows.
        fields = (replace(f, null_count=f.null_count or None) for f in common_fields(parts))
        return TableColumnStatistics(column.column_id, nulls, extra_stats=to_json(fields))
    extents = [_extent(file) if file else None for file in files]
    if current is not None:
        extents.insert(0, extent_from_json(current.extra_stats))
    known = [extent for extent in extents if extent is not None]
    if not known or len(known) < len(extents):
        return None
    extra = common_extent(known).to_json()
    return TableColumnStatistics(column.column_id, nulls, extra_stats=extra)


def exceeds(column: Column, said: str | None, file: str | None) -> str | None:
    """Return what a file holds of a column and its table does not tell of; None for nothing.

    Args:
        column: A VARIANT or GEOMETRY column.
        said: `extra_stats` of the table; None is unknown.
        file: Those of the file; None is unknown.
    """
    if said is None or file is None:
        return None
    if column.type == "variant":
        return _field_beyond(from_json(said), {f.path: f for f in from_json(file)})
    box, inner = extent_from_json(said), extent_from_json(file)
    if inner is None or not inner.types:
        return None
    if box is None:
        return "no geometry at all, but a file holds some"
    outer = common_extent((box, inner))
    for name, edge, widest in zip(EDGES, box.edges, outer.edges, strict=True):
        # The reference rounds to six digits.
        if widest is not None and (edge is None or abs(edge - widest) > 2 * float(_STEP)):
            return f"{name} {edge}, but a file's geometries reach to {widest}"
    missing = inner.types - box.types
    return f"no {min(missing)}, but a file holds one" if missing else None


def _extent(file: ColumnStatistics) -> Extent | None:
    return Extent() if file.is_only_null else extent_from_json(file.extra_stats)


def _common(fields: Sequence[ShreddedField]) -> ShreddedField:
    filled = [field for field in fields if not field.is_only_null]
    kind = fields[0].shredded_type
    nan = [field.contains_nan for field in fields]
    return replace(
        fields[0],
        size_bytes=sum(field.size_bytes for field in fields),
        num_values=_sum([field.num_values for field in fields]),
        null_count=_sum([field.null_count for field in fields]),
        min_value=bound_of(kind, [field.min_value for field in filled], smallest=True),
        max_value=bound_of(kind, [field.max_value for field in filled], smallest=False),
        contains_nan=True if True in nan else None if None in nan else False,
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _field_beyond(
    said: Sequence[ShreddedField], in_file: Mapping[str, ShreddedField]
) -> str | None:
    for field in said:
        inner = in_file.get(field.path)
        if inner is None or inner.shredded_type != field.shredded_type:
            kind = "no such column" if inner is None else inner.shredded_type
            return f"field {field.path} is {field.shredded_type}, but a file has {kind}"
        if inner.is_only_null:
            continue
        for bound, given, smallest in (
            (field.min_value, inner.min_value, True),
            (field.max_value, inner.max_value, False),
        ):
            widest = bound_of(field.shredded_type, [bound, given], smallest=smallest)
            if widest is not None and widest != bound:
                side = "at least" if smallest else "at most"
                return f"field {field.path} is {side} {bound}, but a file's reaches to {widest}"
    return None
