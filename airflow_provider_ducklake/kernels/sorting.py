"""The order of rows inside a file, from a table's sort keys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import duckdb

from airflow_provider_ducklake.kernels.connection import detail
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
            only a single scalar expression without subquery is taken.
        columns: Top-level columns of the rows to sort.
        tie_breaker: Expression that decides between equal rows, so that the order is stable.

    Raises:
        ConfigurationError: A key is no such expression, or names a column that is gone.
    """
    return ", ".join((*(_key(connection, key, columns) for key in sort_keys), tie_breaker))


def _key(connection: duckdb.DuckDBPyConnection, key: SortKey, columns: Sequence[Column]) -> str:
    direction, nulls = key.direction.upper(), _NULL_ORDERS.get(key.null_order.upper())
    if direction not in _DIRECTIONS or nulls is None:
        raise _bad(key, f"direction {key.direction!r} with {key.null_order!r} is not known")
    if not _is_plain_expression(connection, key.expression):
        raise _bad(key, "it is not one SQL expression over columns")
    row = ", ".join(
        f"CAST(NULL AS {column.sql_type}) AS {quote_identifier(column.name)}" for column in columns
    )
    try:
        connection.execute(f"SELECT ({key.expression}) FROM (SELECT {row}) LIMIT 0")
    except duckdb.Error as error:
        raise _bad(key, detail(error)) from None
    return f"({key.expression}) {direction} {nulls}"


def _is_plain_expression(connection: duckdb.DuckDBPyConnection, text: str) -> bool:
    row = connection.execute("SELECT json_serialize_sql('SELECT ' || ?)", [text]).fetchone()
    parsed: dict[str, Any] = json.loads(row[0]) if row else {"error": True}
    if parsed["error"] or len(parsed["statements"]) != 1:
        return False
    node = parsed["statements"][0]["node"]
    if node.get("type") != "SELECT_NODE" or len(node["select_list"]) != 1:
        return False
    if node["from_table"]["type"] != "EMPTY" or node["where_clause"] or node["modifiers"]:
        return False
    if node["group_expressions"] or node["select_list"][0]["alias"]:
        return False
    classes = set(_classes(node["select_list"]))
    return not classes & {"SUBQUERY", "STAR", "WINDOW"}


def _classes(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("class"), str):
            yield node["class"]
        for child in node.values():
            yield from _classes(child)
    elif isinstance(node, list):
        for child in node:
            yield from _classes(child)


def _bad(key: SortKey, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"sort key {key.expression!r} cannot be used ({why}): set the table's sort order anew"
    )
