"""What the tests of registration share: files to look at, and how to look at one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.register import inspect
from airflow_provider_ducklake.kernels.tasks import RegisterTask
from airflow_provider_ducklake.lake.columns import Column, parse_columns
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.model import PartitionField, PartitionSpec, WrittenFile
from airflow_provider_ducklake.lake.statistics import ColumnStatistics
from airflow_provider_ducklake.storage import StorageOptions

SETTINGS = KernelSettings(StorageOptions({}))


def plain_connection() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB without anything of ours."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@dataclass(frozen=True, slots=True)
class Files:
    """Writes Parquet files below a directory."""

    directory: Path
    connection: duckdb.DuckDBPyConnection = field(default_factory=plain_connection)

    def sql(self, select: str, name: str = "f.parquet", options: str = "") -> str:
        """Write a query's rows with DuckDB; return the path."""
        path = self._path(name)
        self.connection.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet{options})")
        return path

    def arrow(self, table: pa.Table, name: str = "f.parquet", **options: Any) -> str:
        """Write a table with pyarrow; return the path."""
        path = self._path(name)
        pq.write_table(table, path, **options)
        return path

    def _path(self, name: str) -> str:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path)


def inspect_file(path: str, columns: str, keys: str = "", **options: Any) -> WrittenFile:
    """Inspect a file for a table.

    Args:
        path: The file.
        columns: As `parse_columns` takes them.
        keys: Partition keys, `transform column` separated by `|`; identity may be left out.
        **options: Further attributes of the task.
    """
    table = parse_columns(columns)
    task = RegisterTask(path, "main.t", table, partition_spec(table, keys), **options)
    return inspect(task, SETTINGS)


def partition_spec(columns: tuple[Column, ...], keys: str) -> PartitionSpec | None:
    """Return the partition spec that `inspect_file` describes."""
    ids = {column.name: column.column_id for column in columns}
    fields = []
    for index, key in enumerate(key.strip() for key in keys.split("|") if key):
        transform, _, column = key.rpartition(" ")
        fields.append(PartitionField(index, ids[column], transform or "identity"))
    return PartitionSpec(7, tuple(fields)) if fields else None


def refused(path: str, columns: str, keys: str = "", **options: Any) -> str:
    """Return the one line a file is refused with; it names the file."""
    with pytest.raises(BadInput) as failure:
        inspect_file(path, columns, keys, **options)
    message = str(failure.value)
    assert path in message
    assert "\n" not in message
    return message


def statistics(file: WrittenFile) -> dict[int, ColumnStatistics]:
    """Return a file's statistics by column id."""
    return {entry.column_id: entry for entry in file.statistics}
