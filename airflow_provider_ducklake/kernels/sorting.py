"""The order of rows inside a file, from a table's sort keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import duckdb

from airflow_provider_ducklake.kernels.connection import detail
from airflow_provider_ducklake.kernels.expressions import parse_plain, with_macros
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.model import SortKey

_DIRECTIONS = ("ASC", "DESC")
_NULL_ORDERS = {"NULLS_FIRST": "NULLS FIRST", "NULLS_LAST": "NULLS LAST"}


def order_by(
    connection: duckdb.DuckDBPyConnection,
    sort_keys: Iterable[SortKey],
    columns: Sequence[Column],
    tie_breaker: str,
) -> str:
    """Return an ORDER BY list, each key tried out against the columns first.

    Args:
        sort_keys: Expressions in DuckDB's SQL over column names; they come from the catalog, so
            only a single scalar expression without subquery is taken. Macros of the lake that they
            call are defined in the connection.
        columns: Top-level columns of the rows to sort.
        tie_breaker: Expression that decides between equal rows, so that the order is stable.

    Raises:
        ConfigurationError: A key is no such expression, or names a column or a macro that is gone.
    """
    return ", ".join((*(_key(connection, key, columns) for key in sort_keys), tie_breaker))


def order_error(
    connection: duckdb.DuckDBPyConnection, sort_keys: Iterable[SortKey], columns: Sequence[Column]
) -> str | None:
    """Return why rows of some columns cannot be brought into an order; None if they can."""
    try:
        order_by(connection, sort_keys, columns, "1")
    except ConfigurationError as error:
        return str(error)
    return None


def _key(connection: duckdb.DuckDBPyConnection, key: SortKey, columns: Sequence[Column]) -> str:
    direction, nulls = key.direction.upper(), _NULL_ORDERS.get(key.null_order.upper())
    if direction not in _DIRECTIONS or nulls is None:
        raise _bad(key, f"direction {key.direction!r} with {key.null_order!r} is not known")
    parsed = parse_plain(connection, key.expression)
    if parsed is None:
        raise _bad(key, "it is not one SQL expression over columns")
    row = ", ".join(
        f"CAST(NULL AS {column.sql_type}) AS {quote_identifier(column.name)}" for column in columns
    )
    try:
        expression = with_macros(connection, parsed, key.expression, key.macros)
        # A condition, because DuckDB lets nothing into one that needs more than the row itself.
        connection.execute(f"SELECT 1 FROM (SELECT {row}) WHERE ({expression}) IS NULL LIMIT 0")
    except ConfigurationError as error:
        raise _bad(key, str(error)) from None
    except duckdb.Error as error:
        raise _bad(key, detail(error)) from None
    return f"({expression}) {direction} {nulls}"


def _bad(key: SortKey, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"sort key {key.expression!r} cannot be used ({why}): set the table's sort order anew, or "
        "its option sort_on_insert to false to load rows as they come"
    )
