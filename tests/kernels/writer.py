"""Write a query to a file of its own, and ask a file for one value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.parquet import new_file_name, write_parquet
from airflow_provider_ducklake.kernels.tasks import ParquetOptions
from airflow_provider_ducklake.lake.columns import Column, parse_columns
from airflow_provider_ducklake.lake.model import WrittenFile

DEFAULTS = ParquetOptions()


class Writer:
    """Writes queries below one directory."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, settings: KernelSettings, root: Path
    ) -> None:
        self.connection, self.settings, self.root = connection, settings, root

    def __call__(
        self,
        sql: str,
        columns: str | Sequence[Column],
        options: ParquetOptions = DEFAULTS,
        parameters: Sequence[object] = (),
        **internal: bool,
    ) -> WrittenFile:
        if isinstance(columns, str):
            columns = parse_columns(columns)
        path = str(self.root / "data" / "main" / "t" / new_file_name())
        return write_parquet(
            self.connection, sql, parameters, path, columns, options, self.settings, **internal
        )


def one(connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return row[0]
