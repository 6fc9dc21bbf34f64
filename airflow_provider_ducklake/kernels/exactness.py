"""Predicates for the types DuckDB's Parquet writer would store inexactly without a word."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal

_ADVICE = {
    "int128": "128-bit integers are stored as float64 there: this value would be rounded",
    "uint128": "128-bit integers are stored as float64 there: this value would be rounded",
    "interval": "intervals there are unsigned, in whole milliseconds, with hours below 1193",
    "timetz": "times there are stored in UTC: the offset would be lost",
}


def guard_exactness(columns: Iterable[Column]) -> str | None:
    """Return a select list that passes columns through and fails on a value Parquet cannot hold.

    DuckDB 1.5 writes HUGEINT as DOUBLE, INTERVAL without microseconds and TIMETZ without its
    offset; tried, and the reference extension does the same.

    Args:
        columns: Top-level columns in the order of the query around which the list is put.

    Returns:
        The select list, or None when no column needs a guard.
    """
    columns = tuple(columns)
    guards = {
        column.column_id: _inexact(quote_identifier(column.name), column) for column in columns
    }
    if not any(guards.values()):
        return None
    return ", ".join(_guarded(column, guards[column.column_id]) for column in columns)


def _guarded(column: Column, predicate: str | None) -> str:
    name = quote_identifier(column.name)
    if predicate is None:
        return name
    leaf = next(leaf for leaf in column.leaves() if leaf.type in _ADVICE)
    message = quote_literal(
        f"column {column.name} ({leaf.type}) holds a value Parquet cannot: {_ADVICE[leaf.type]}; "
    )
    shown = f"concat({message}, 'value ', left(CAST({name} AS VARCHAR), 100))"
    return f"CASE WHEN {predicate} THEN error({shown}) ELSE {name} END AS {name}"


def _inexact(value: str, column: Column) -> str | None:
    """Return a predicate, true when the value or something inside it would change; None: never."""
    if column.type in ("int128", "uint128"):
        kind = column.sql_type
        return f"(TRY_CAST(CAST({value} AS DOUBLE) AS {kind}) IS DISTINCT FROM {value})"
    if column.type == "interval":
        parts = [f"date_part('{part}', {value})" for part in ("year", "month", "day", "hour")]
        micros = f"date_part('microsecond', {value})"
        negative = " OR ".join(f"{part} < 0" for part in (*parts, f"date_part('minute', {value})"))
        too_long = f"date_part('hour', {value}) >= 1193"  # 2^32 milliseconds
        return f"coalesce({negative} OR {micros} < 0 OR {micros} % 1000 <> 0 OR {too_long}, false)"
    if column.type == "timetz":
        return f"coalesce(date_part('timezone', {value}) <> 0, false)"
    if column.type == "struct":
        return _any_of(
            _inexact(f"struct_extract({value}, {quote_literal(child.name)})", child)
            for child in column.children
        )
    if column.type == "list":
        return _any_inside(value, column.children[0])
    if column.type == "map":
        key, item = column.children
        return _any_of(
            (_any_inside(f"map_keys({value})", key), _any_inside(f"map_values({value})", item))
        )
    return None


def _any_inside(values: str, element: Column) -> str | None:
    # One variable name for every depth: an inner lambda shadows the outer one, as it should.
    predicate = _inexact("v", element)
    if predicate is None:
        return None
    return f"coalesce(list_bool_or(list_transform({values}, lambda v: {predicate})), false)"


def _any_of(predicates: Iterable[str | None]) -> str | None:
    known = [predicate for predicate in predicates if predicate is not None]
    return f"({' OR '.join(known)})" if known else None
