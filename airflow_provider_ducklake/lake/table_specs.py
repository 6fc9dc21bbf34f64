"""Partition and sort specs of a table, as a person writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import duckdb

from airflow_provider_ducklake.lake.columns import Column, find_column
from airflow_provider_ducklake.lake.errors import BadInput, NotFound
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.model import PartitionField, SortKey

_TRANSFORM: Final = re.compile(r"^(year|month|day|hour|identity)\s*\(\s*(.+?)\s*\)$", re.I)
_BUCKET: Final = re.compile(r"^bucket\s*\(\s*(\d+)\s*,\s*(.+?)\s*\)$", re.I)
_SORT: Final = re.compile(r"^(.+?)(?:\s+(ASC|DESC))?(?:\s+NULLS\s+(FIRST|LAST))?$", re.I)


def parse_partition_spec(text: str, columns: Sequence[Column]) -> tuple[PartitionField, ...]:
    """Parse `year(ts), bucket(8, user_id), region` over a table's columns.

    Raises:
        NotFound: A column does not exist.
        BadInput: A transform cannot be applied to the column's type.
    """
    fields = []
    for index, part in enumerate(_split(text)):
        if match := _BUCKET.match(part):
            transform, name = f"bucket({int(match[1])})", match[2]
        elif match := _TRANSFORM.match(part):
            transform, name = match[1].lower(), match[2]
        else:
            transform, name = "identity", part
        column = find_column(columns, _bare(name))
        if column is None:
            raise NotFound(f"partition key {part!r}: there is no column {name!r}")
        _check_transform(transform, column)
        fields.append(PartitionField(index, column.column_id, transform))
    return tuple(fields)


def parse_sort_spec(text: str, columns: Sequence[Column]) -> tuple[SortKey, ...]:
    """Parse `a DESC, lower(b) NULLS FIRST` to sort keys; expressions are DuckDB's.

    Raises:
        BadInput: An expression names a column there is not, or cannot be computed row by row.
            Clients could not insert into a table with such a key.
    """
    keys = []
    for part in _split(text):
        match = _SORT.match(part)
        if match is None:
            raise BadInput(f"sort key {part!r}: write an expression and ASC or DESC")
        direction = (match[2] or "ASC").upper()
        nulls = (match[3] or "LAST").upper()
        key = SortKey(match[1].strip(), direction, f"NULLS_{nulls}")
        if error := _sort_error(columns, key):
            raise BadInput(f"sort key {part!r}: {error}")
        keys.append(key)
    return tuple(keys)


def _sort_error(columns: Sequence[Column], key: SortKey) -> str | None:
    """Return why a sort expression cannot be computed from some columns; None if it can."""
    fields = (f"CAST(NULL AS {c.sql_type}) AS {quote_identifier(c.name)}" for c in columns)
    # A condition, because DuckDB lets nothing into one that needs more than the row itself.
    condition = f"({key.expression}) IS NULL"
    query = f"SELECT 1 FROM (SELECT {', '.join(fields)}) WHERE {condition} LIMIT 0"
    with duckdb.connect(":memory:") as connection:
        try:
            connection.execute(query)
        except duckdb.Error as error:
            return str(error).splitlines()[0]
    return None


def _check_transform(transform: str, column: Column) -> None:
    if column.is_nested:
        raise BadInput(f"column {column.name!r} is a {column.type}: it cannot be a partition key")
    if transform in ("year", "month", "day", "hour"):
        allowed = column.type.startswith("timestamp") or (
            column.type == "date" and transform != "hour"
        )
        if not allowed:
            raise BadInput(f"column {column.name!r} is {column.type}: {transform}() needs a time")
    if transform == "bucket(0)":
        raise BadInput(f"bucket(0, {column.name}): a table needs at least one bucket")


def _bare(name: str) -> str:
    quoted = len(name) > 1 and name[0] == name[-1] == '"'
    return name[1:-1].replace('""', '"') if quoted else name


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for position, character in enumerate(text):
        if quote or character in "\"'":
            quote = "" if character == quote else quote or character
            continue
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]
