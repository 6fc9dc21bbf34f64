"""Predicates for the values DuckDB's Parquet writer would store inexactly without a word."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from airflow_provider_ducklake.kernels.any_value import LeafPredicate, any_value
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal
from airflow_provider_ducklake.lake.types import FLOATING

_ROUNDED: Final = (
    "128-bit integers are stored as float64 there: this value would be rounded, keep it in a "
    "varchar column"
)
_ADVICE = {
    "int128": _ROUNDED,
    "uint128": _ROUNDED,
    "interval": "intervals there are unsigned, in whole milliseconds, with hours below 1193",
    "timetz": "times there are stored in UTC: the offset would be lost",
}
# What the error says that `guard_zeros` raises.
NEGATIVE_ZERO: Final = "ducklake: a negative zero"


def guard_exactness(columns: Iterable[Column]) -> str | None:
    """Return a select list that passes columns through and fails on a value Parquet cannot hold.

    DuckDB 1.5 writes HUGEINT as DOUBLE, INTERVAL without microseconds and TIMETZ without its
    offset; tried, and the reference extension does the same.

    Args:
        columns: Top-level columns in the order of the query around which the list is put.

    Returns:
        The select list, or None when no column needs a guard.
    """
    return _guards(columns, _inexact, _inexactness)


def guard_zeros(columns: Iterable[Column]) -> str | None:
    """Return a select list that passes columns through and fails on a negative zero.

    DuckDB 1.5 takes 0.0 and -0.0 for one entry of a dictionary, so that one becomes the other,
    and asks Bloom filters, which it writes beside dictionaries, for the bits of 0.0 alone, so that
    `x = 0` finds no -0.0 (both tried on 1.5.5).

    Args:
        columns: As for `guard_exactness`.

    Returns:
        The select list, or None when no column has floating-point numbers.
    """
    return _guards(columns, _negative_zero, lambda _: quote_literal(NEGATIVE_ZERO), _has_zero)


def is_rounded(kind: str, column: Column) -> bool:
    """Tell whether a file holds a column of integers as DOUBLE, DuckDB's type `kind`."""
    return kind == "DOUBLE" and column.type in ("int128", "uint128")


def integer_sql(value: str, column: Column) -> str:
    """Return SQL of an integer that a file holds as DOUBLE.

    The least 128-bit integer goes into a file but not out of it: the reference writes it, and no
    client reads it again (tried on 1.5.5).
    """
    message = quote_literal(
        f"column {column.name} ({column.type}) holds a value that is read as none, by any "
        "client: delete the row, finding it by another column; value "
    )
    integer = f"TRY_CAST({value} AS {column.sql_type})"
    failure = f"error(concat({message}, CAST({value} AS VARCHAR)))"
    return f"CASE WHEN {value} IS NULL OR {integer} IS NOT NULL THEN {integer} ELSE {failure} END"


def _guards(
    columns: Iterable[Column],
    leaf: LeafPredicate,
    message: Callable[[Column], str],
    sieve: LeafPredicate | None = None,
) -> str | None:
    parts = []
    has_guard = False
    for column in columns:
        name = quote_identifier(column.name)
        predicate = any_value(name, column, leaf, sieve)
        if predicate is None:
            parts.append(name)
        else:
            has_guard = True
            guarded = f"CASE WHEN {predicate} THEN error({message(column)}) ELSE {name} END"
            parts.append(f"{guarded} AS {name}")
    return ", ".join(parts) if has_guard else None


def _inexactness(column: Column) -> str:
    name = quote_identifier(column.name)
    leaf = next(leaf for leaf in column.leaves() if leaf.type in _ADVICE)
    message = quote_literal(
        f"column {column.name} ({leaf.type}) holds a value Parquet cannot: {_ADVICE[leaf.type]}; "
    )
    return f"concat({message}, 'value ', left(CAST({name} AS VARCHAR), 100))"


def _negative_zero(value: str, column: Column) -> str | None:
    if column.type not in FLOATING:
        return None
    return f"({value} = 0 AND signbit({value}))"


def _has_zero(values: str, column: Column) -> str | None:
    return f"list_contains({values}, 0)" if column.type in FLOATING else None


def _inexact(value: str, column: Column) -> str | None:
    """Return a predicate, true when the value would change."""
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
    return None
