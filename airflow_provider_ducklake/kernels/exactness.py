"""Predicates for the values DuckDB's Parquet writer would store inexactly without a word."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

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

# Returns a predicate over a value of a type without children; None: never true.
_Leaf = Callable[[str, Column], str | None]


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
    return _guards(columns, _negative_zero, lambda _: quote_literal(NEGATIVE_ZERO))


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


def _guards(columns: Iterable[Column], leaf: _Leaf, message: Callable[[Column], str]) -> str | None:
    parts = []
    has_guard = False
    for column in columns:
        name = quote_identifier(column.name)
        predicate = _any(name, column, leaf)
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


def _any(value: str, column: Column, leaf: _Leaf) -> str | None:
    """Return a predicate, true for the value or something inside it; None: never."""
    if column.type == "struct":
        return _any_of(
            _any(f"struct_extract({value}, {quote_literal(child.name)})", child, leaf)
            for child in column.children
        )
    if column.type == "list":
        return _any_inside(value, column.children[0], leaf)
    if column.type == "map":
        key, item = column.children
        return _any_of(
            (
                _any_inside(f"map_keys({value})", key, leaf),
                _any_inside(f"map_values({value})", item, leaf),
            )
        )
    return leaf(value, column)


def _any_inside(values: str, element: Column, leaf: _Leaf) -> str | None:
    # One variable name for every depth: an inner lambda shadows the outer one, as it should.
    predicate = _any("v", element, leaf)
    if predicate is None:
        return None
    found = f"list_bool_or(list_transform({values}, lambda v: {predicate}))"
    if leaf is _negative_zero and element.type in FLOATING:
        # Long lists of numbers, as of embeddings, are searched for any zero far faster.
        found = f"CASE WHEN list_contains({values}, 0) THEN {found} END"
    return f"coalesce({found}, false)"


def _any_of(predicates: Iterable[str | None]) -> str | None:
    known = [predicate for predicate in predicates if predicate is not None]
    return f"({' OR '.join(known)})" if known else None
