"""Write a file of a table, and read it through a projection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.parquet import write_parquet
from airflow_provider_ducklake.kernels.projection import Projection
from airflow_provider_ducklake.kernels.tasks import ParquetOptions
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.model import DataFile
from airflow_provider_ducklake.storage import StorageOptions

SETTINGS = KernelSettings(StorageOptions({}))


def data_file(path: str | Path, **more: Any) -> DataFile:
    known: dict[str, Any] = {"record_count": 0, "file_size_bytes": 0, "footer_size": 0}
    return DataFile(1, 1, str(path), **{**known, "begin_snapshot": 5, "row_id_start": 100, **more})


def read_columns(
    connection: duckdb.DuckDBPyConnection, projection: Projection, extra: str = ""
) -> Any:
    select = ", ".join((*projection.columns, *([extra] if extra else [])))
    return connection.execute(f"SELECT {select} FROM {projection.source}").fetchall()


def write_file(connection: duckdb.DuckDBPyConnection, path: Path, columns: str, query: str) -> None:
    write_parquet(
        connection, query, (), str(path), parse_columns(columns), ParquetOptions(), SETTINGS
    )
