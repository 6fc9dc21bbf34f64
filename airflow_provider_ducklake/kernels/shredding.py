"""What DuckDB says of the columns it makes of the fields of a VARIANT ("shredding")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import duckdb
from duckdb.sqltypes import DuckDBPyType

from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.shredded import ELEMENT, ROOT
from airflow_provider_ducklake.lake.types import normalise

# Statistics of the columns inside of one VARIANT column, by the names that lead there.
Inside: TypeAlias = Mapping[tuple[str, ...], Mapping[str, str]]

_METADATA: Final = "metadata"
_TYPED: Final = "typed_value"
_UNTYPED: Final = "value"
_NULL: Final = "00"  # in hex, how a VARIANT spells its null


def shredded_columns(inside: Inside) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Yield path, DuckLake type and statistics of each field that is in a typed column alone.

    Of a field with other values beside those of its column the column's statistics say too little.

    Source: the reference's storage/statistics/ducklake_variant_stats.cpp. It names fields with a
    quote in their name too, and reads them as others.
    """
    try:
        kind = duckdb.sqltype(inside[(_METADATA,)]["variant_type"])
    except (KeyError, duckdb.Error):  # it writes no type it can read of a field without a name
        return
    for place, entries in inside.items():
        names = place[1:-1:2]
        if not place or set(place[::2]) != {_TYPED} or len(place) % 2 == 0:
            continue
        if not _is_empty(inside.get((*place[:-1], _UNTYPED), {})):
            continue
        if any(not name or '"' in name or "\0" in name for name in names):
            continue
        found = _resolved(kind, names)
        if found is not None:
            yield (*found, entries)


def holds_null(inside: Inside) -> bool | None:
    """Tell whether a VARIANT column holds NULL, which DuckDB writes as a value; None is unknown."""
    untyped = inside.get((_UNTYPED,), {})
    least = untyped.get("min")
    if least is not None:
        return least == _NULL  # no value is smaller
    return False if untyped and untyped.get("null_count") == untyped.get("num_values") else None


def _is_empty(untyped: Mapping[str, str]) -> bool:
    """Tell whether the column of what did not fit into a typed one has nothing but NULL.

    Inside of lists DuckDB can count as many NULLs as there are values where there is a value too,
    which the reference believes; but it gives bounds wherever there is a value.
    """
    least, nulls = untyped.get("min"), untyped.get("null_count")
    if least is not None:
        return least == untyped.get("max") == _NULL
    return nulls is not None and nulls == untyped.get("num_values")


def _resolved(kind: DuckDBPyType, names: Sequence[str]) -> tuple[str, str] | None:
    """Return the path and the DuckLake type of a field; None where there is no such type."""
    path = []
    try:
        for name in names:
            kind = _child(kind, _TYPED)
            path.append(ELEMENT if kind.id == "list" else f'"{name}"')
            kind = _child(kind, "child" if kind.id == "list" else name)
        return ".".join(path) or ROOT, normalise(str(_child(kind, _TYPED)))
    except (KeyError, BadInput):
        return None


def _child(kind: DuckDBPyType, name: str) -> DuckDBPyType:
    child = dict(kind.children)[name]
    assert isinstance(child, DuckDBPyType)
    return child
