"""Spark's pushed filters in DuckDB's SQL: only those that mean the same in both."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_OPERATORS: Final = {
    "EqualTo": "=",
    "EqualNullSafe": "IS NOT DISTINCT FROM",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_FUNCTIONS: Final = {
    "StringStartsWith": "starts_with",
    "StringEndsWith": "suffix",
    "StringContains": "contains",
}


def filter_sql(pushed: Filter, types: Mapping[str, str]) -> str | None:
    """Return a filter as SQL; None where Spark has to evaluate it.

    Args:
        pushed: A filter on a top-level column; those on fields of a struct are Spark's.
        types: DuckDB type of each column, by its name in Spark.
    """
    kind = type(pushed).__name__
    given: Any = pushed
    if kind == "Not":
        inner = filter_sql(given.child, types)
        return None if inner is None else f"NOT ({inner})"
    if len(given.attribute) != 1 or given.attribute[0] not in types:
        return None
    name = quote_identifier(given.attribute[0])
    if kind in ("IsNull", "IsNotNull"):
        return f"{name} IS {'NOT ' if kind == 'IsNotNull' else ''}NULL"
    sql_type = types[given.attribute[0]]
    values = given.value if kind == "In" else (given.value,)
    literals = [_literal(value, sql_type) for value in values]
    known = [literal for literal in literals if literal is not None]
    if len(known) < len(literals) or not known:
        return None
    if kind == "In":
        return f"{name} IN ({', '.join(known)})"
    if kind in _FUNCTIONS:
        return f"{_FUNCTIONS[kind]}({name}, {known[0]})"
    return f"{name} {_OPERATORS[kind]} {known[0]}" if kind in _OPERATORS else None


def _literal(value: Any, sql_type: str) -> str | None:
    """Return a value as a constant of a column's type; None for one that has no such form."""
    if isinstance(value, datetime):
        is_zoned = value.tzinfo is not None
        moment = value.astimezone(timezone.utc).replace(tzinfo=None) if is_zoned else value
        text = moment.isoformat(" ") + ("+00" if is_zoned else "")
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, int | float | Decimal | date):
        text = str(value)
    elif isinstance(value, str) and "\0" not in value:
        text = value
    else:
        return None
    return f"CAST({quote_literal(text)} AS {sql_type})"
