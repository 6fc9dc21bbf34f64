"""Append Arrow batches to a table in one directory, and read what was written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from airflow_provider_ducklake.kernels.append import append
from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.file_schema import scan_sql
from airflow_provider_ducklake.kernels.tasks import AppendTask, ParquetOptions
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.model import PartitionField, PartitionSpec, WrittenFile
from airflow_provider_ducklake.storage import StorageOptions


class Appender:
    """Appends to a table in one directory."""

    def __init__(self, root: Path) -> None:
        self.directory = f"{root}/data/t/"
        (root / "scratch").mkdir()
        self.settings = KernelSettings(StorageOptions({}), "500MB", str(root / "scratch"))

    def __call__(
        self, columns: str, data: pa.Table | Iterable[pa.RecordBatch], **more: Any
    ) -> tuple[WrittenFile, ...]:
        batches = data.to_batches() if isinstance(data, pa.Table) else data
        options = more.pop("options", ParquetOptions())
        task = AppendTask(parse_columns(columns), self.directory, options, **more)
        try:
            return append(batches, task, self.settings)
        finally:
            assert os.listdir(self.settings.scratch_directory) == []

    def stored(self) -> list[str]:
        return sorted(
            str(p.relative_to(self.directory)) for p in Path(self.directory).rglob("*.parquet")
        )


def read_rows(
    connection: duckdb.DuckDBPyConnection, files: Sequence[WrittenFile], select: str = "*"
) -> list[Any]:
    return connection.execute(
        f"SELECT {select} FROM {scan_sql([file.path for file in files])}"
    ).fetchall()


def partition_spec(*fields: tuple[int, str]) -> PartitionSpec:
    return PartitionSpec(3, tuple(PartitionField(i, c, t) for i, (c, t) in enumerate(fields)))
