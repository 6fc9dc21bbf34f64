"""Read the column statistics that DuckDB returns for a Parquet file it has just written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from airflow_provider_ducklake.kernels.shredding import Inside, holds_null, shredded_columns
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.extra_statistics import EDGES, Extent
from airflow_provider_ducklake.lake.shredded import ShreddedField, in_list, to_json
from airflow_provider_ducklake.lake.statistics import ColumnStatistics
from airflow_provider_ducklake.lake.types import (
    FLOATING,
    TEXT_ORDERED,
    UNCOUNTED,
    WITHOUT_BOUNDS,
)

# DuckDB cuts a longer text bound off here: it is no longer a value of the column.
_LONGEST_BOUND: Final = 256


def parse_statistics(
    columns: Iterable[Column], found: Mapping[str, Mapping[str, str]]
) -> tuple[ColumnStatistics, ...]:
    """Return the statistics of every leaf column that DuckDB says something about.

    Args:
        columns: Top-level columns of the file.
        found: `column_statistics` of COPY's RETURN_STATS: entries by quoted path (`"l"."element"`).
    """
    by_path = {_split_path(name): entries for name, entries in found.items()}
    return tuple(_leaves(columns, by_path))


def _split_path(text: str) -> tuple[str, ...]:
    """Split DuckDB's `"a"."b"` into its names."""
    names, position = [], 0
    while position < len(text):
        end = position + 1
        while text[end] != '"' or text[end + 1 : end + 2] == '"':
            end += 2 if text[end] == '"' else 1
        names.append(text[position + 1 : end].replace('""', '"'))
        position = end + 2
    return tuple(names)


def _leaves(
    columns: Iterable[Column], found: Mapping[tuple[str, ...], Mapping[str, str]]
) -> Iterator[ColumnStatistics]:
    for column in columns:
        for path, leaf in _leaf_paths(column, (column.name,)):
            if leaf.type == "variant":
                start = len(path)
                inside = {key[start:]: e for key, e in found.items() if key[:start] == path}
                yield _variant_statistics(leaf, inside)
            elif path in found:
                statistics = _leaf_statistics(leaf, found[path])
                yield _repeated(statistics) if _is_repeated(column, leaf) else statistics


def _is_repeated(column: Column, leaf: Column) -> bool:
    """Tell whether a leaf lies below a list or map, so that a row has any number of its values."""
    if column.column_id == leaf.column_id:
        return False
    inside = (child for child in column.children if leaf in child.walk())
    return column.type in ("list", "map") or any(_is_repeated(child, leaf) for child in inside)


def _repeated(statistics: ColumnStatistics) -> ColumnStatistics:
    """Return a repeated leaf's statistics without counts that DuckDB gets wrong.

    Below a list it counts an absent value more than once, up to more NULLs than values; only
    "no NULL at all" can be believed.
    """
    if statistics.null_count == 0:
        return statistics
    return replace(statistics, value_count=None, null_count=None)


def _leaf_paths(column: Column, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Column]]:
    if not column.is_nested:
        yield path, column
        return
    names = {"list": ("element",), "map": ("key", "value")}.get(
        column.type, tuple(child.name for child in column.children)
    )
    for name, child in zip(names, column.children, strict=True):
        yield from _leaf_paths(child, (*path, name))


def _leaf_statistics(leaf: Column, entries: Mapping[str, str]) -> ColumnStatistics:
    size = _integer(entries.get("column_size_bytes"))
    if leaf.type in UNCOUNTED:
        return ColumnStatistics(leaf.column_id, size_bytes=size)  # DuckDB counts none: unknown
    values, nulls = _integer(entries.get("num_values")), _integer(entries.get("null_count"))
    bounded = leaf.type not in WITHOUT_BOUNDS
    return ColumnStatistics(
        column_id=leaf.column_id,
        size_bytes=size,
        value_count=None if values is None or nulls is None else values - nulls,
        null_count=nulls,
        min_value=_bound(leaf, entries.get("min")) if bounded else None,
        max_value=_bound(leaf, entries.get("max")) if bounded else None,
        contains_nan=_flag(entries.get("has_nan")) if leaf.type in FLOATING else None,
        extra_stats=_geometry_json(entries) if leaf.type == "geometry" else None,
    )


def _variant_statistics(leaf: Column, inside: Inside) -> ColumnStatistics:
    sizes = [int(e["column_size_bytes"]) for e in inside.values() if "column_size_bytes" in e]
    metadata = inside.get(("metadata",), {})
    complete = metadata.get("null_count") == "0" and holds_null(inside) is False
    fields = (_field(*column) for column in shredded_columns(inside))
    return ColumnStatistics(
        leaf.column_id,
        size_bytes=sum(sizes) if sizes else None,
        value_count=_integer(metadata.get("num_values")) if complete else None,
        null_count=0 if complete else None,
        extra_stats=to_json(fields),
    )


def _field(path: str, kind: str, entries: Mapping[str, str]) -> ShreddedField:
    """Return a field's statistics by the rules for a column of its type."""
    leaf = Column(0, path, kind)
    statistics = _leaf_statistics(leaf, entries)
    if in_list(path):
        statistics = _repeated(statistics)
    values, nulls = statistics.value_count, statistics.null_count
    return ShreddedField(
        path,
        kind,
        size_bytes=statistics.size_bytes or 0,
        num_values=None if values is None or nulls is None else values + nulls,
        null_count=nulls,
        min_value=statistics.min_value,
        max_value=statistics.max_value,
        contains_nan=statistics.contains_nan,
    )


def _bound(leaf: Column, text: str | None) -> str | None:
    if text is None or leaf.type not in TEXT_ORDERED:
        return text
    if "\0" in text:  # a character PostgreSQL cannot hold
        return None
    return text if len(text.encode()) < _LONGEST_BOUND else None


def _geometry_json(entries: Mapping[str, str]) -> str | None:
    """Return bounding box and types; of nothing but NULL an empty box, which is right too."""
    types = entries.get("geo_types", "")
    names = (name.strip() for name in types.strip("[]").split(","))
    edges = (float(v) if (v := entries.get(f"bbox_{e}")) else None for e in EDGES)
    extent = Extent(tuple(edges), frozenset(name for name in names if name))
    if not types and entries.get("null_count") != entries.get("num_values"):
        return None
    return extent.to_json() if extent.is_known else None


def _integer(text: str | None) -> int | None:
    return None if text is None else int(text)


def _flag(text: str | None) -> bool | None:
    return None if text is None else text == "true"
