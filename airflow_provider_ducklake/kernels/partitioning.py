"""Partition keys of new files: their SQL, their directories, and their text for the catalog."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

import duckdb

from airflow_provider_ducklake.kernels.murmur3 import murmur3_sql, register_murmur3
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import ConfigurationError, UnsupportedCatalog
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.model import PartitionSpec

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

_DATE_PARTS: Final = ("year", "month", "day", "hour")
_BUCKET: Final = re.compile(r"bucket\(\s*(\d+)\s*\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """One key of a spec, ready to be computed.

    Attributes:
        name: Name of its directories, as the reference chooses it.
        expression: SQL over the table's columns; NULL is a partition of its own.
        column: Column it is computed from.
        transform: `identity`, `year`, `month`, `day`, `hour` or `bucket`.
    """

    name: str
    expression: str
    column: Column
    transform: str

    @property
    def text(self) -> str:
        """SQL for the value as the catalog keeps it: text, or NULL."""
        return f"CAST({self.expression} AS VARCHAR)"


def partition_keys(
    connection: duckdb.DuckDBPyConnection, spec: PartitionSpec, columns: Sequence[Column]
) -> tuple[PartitionKey, ...]:
    """Return the keys of a spec in key order, for the columns a table has now.

    Args:
        connection: Gets the functions that bucket keys call.
        spec: The partition spec new files are written under.
        columns: Top-level columns of the table.

    Raises:
        ConfigurationError: The spec names a column that is not there or not top-level.
        UnsupportedCatalog: A transform, or a bucket over this type, is not known.

    Source: storage/ducklake_partition_data.cpp (names and transforms).
    """
    by_id = {column.column_id: column for column in columns}
    keys: list[PartitionKey] = []
    for field in sorted(spec.fields, key=lambda f: f.key_index):
        column = by_id.get(field.column_id)
        if column is None:
            raise ConfigurationError(
                f"partition spec {spec.partition_id} uses column id {field.column_id}, which is "
                "not a top-level column of the table: set the partitioning anew"
            )
        transform, expression = _transform(field.transform, column)
        if transform == "bucket":
            register_murmur3(connection)
        prefix = column.name if transform == "identity" else transform
        taken = {key.name.lower() for key in keys}
        name = f"{prefix}_{column.name}" if prefix.lower() in taken else prefix
        keys.append(PartitionKey(name, expression, column, transform))
    return tuple(keys)


def partition_directory(keys: Sequence[PartitionKey], values: Sequence[str | None]) -> str:
    """Return the directories of one partition, such as `year=2024/region=eu/`.

    Args:
        keys: From `partition_keys`.
        values: One text a key, in the same order.
    """
    segments = (
        f"{_escape(key.name)}={HIVE_NULL if value is None else _escape(value)}/"
        for key, value in zip(keys, values, strict=True)
    )
    return "".join(segments)


def directory_values(path: str) -> dict[str, str | None]:
    """Return what the `key=value` directories of a path say, as DuckDB understands them.

    The first of several directories for one key counts; `__HIVE_DEFAULT_PARTITION__` and NULL (in
    any case) mean NULL; values are percent-decoded, keys are taken as they stand.

    Source: DuckDB's hive_partitioning.cpp, tried on 1.5.5.
    """
    found: dict[str, str | None] = {}
    for segment in re.split(r"[/\\]", path)[:-1]:
        key, equals, value = segment.partition("=")
        if not key or not equals or re.search(r"[=?\n]", value) or re.search(r"[?\n]", key):
            continue
        is_null = value == HIVE_NULL or value.upper() == "NULL"
        found.setdefault(key, None if is_null else unquote(value))
    return found


def _transform(text: str, column: Column) -> tuple[str, str]:
    """Return the name of a transform and its SQL."""
    value = quote_identifier(column.name)
    name = text.strip().lower()
    if name == "identity":
        return name, value
    if name in _DATE_PARTS:
        return name, f"{name}({value})"
    if match := _BUCKET.fullmatch(name):
        count = int(match[1])
        if not 0 < count < 1 << 31:
            raise UnsupportedCatalog(f"partition transform {text!r}: a bucket count is at least 1")
        return "bucket", f"(({murmur3_sql(value, column)} & 2147483647) % {count})"
    raise UnsupportedCatalog(
        f"partition transform {text!r} of column {column.name} is not known: this package knows "
        "identity, year, month, day, hour and bucket(n)"
    )


def _escape(text: str) -> str:
    return quote(text, safe="")
