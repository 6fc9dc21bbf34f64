"""A directory of data files as a planner would describe them, and how they are rewritten."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ducklake.kernels.connection import KernelSettings, open_connection
from airflow_provider_ducklake.kernels.file_schema import scan_sql
from airflow_provider_ducklake.kernels.parquet import new_file_name, write_parquet
from airflow_provider_ducklake.kernels.rewrite import rewrite
from airflow_provider_ducklake.kernels.tasks import ParquetOptions, RewriteTask
from airflow_provider_ducklake.lake.columns import Column, parse_columns
from airflow_provider_ducklake.lake.model import DataFile, DeleteFile, WrittenFile
from airflow_provider_ducklake.storage import StorageOptions

COLUMNS = parse_columns("a int64, b varchar")
DEFAULTS = ParquetOptions()
IDS = ("_ducklake_internal_row_id", "_ducklake_internal_snapshot_id")


class Directory:
    """A directory of data files, as a planner would describe them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.out = f"{root}/out/"
        (root / "scratch").mkdir()
        self.settings = KernelSettings(StorageOptions({}), "500MB", str(root / "scratch"))
        self.row_id = self.snapshot = 0

    def file(
        self,
        query: str,
        columns: Sequence[Column] = COLUMNS,
        options: ParquetOptions = DEFAULTS,
        **more: Any,
    ) -> DataFile:
        """Write a file; row ids and snapshots follow on those of the file before."""
        path = f"{self.root}/in/{new_file_name()}"
        internal = {f"write_{n}": True for n in ("row_ids", "snapshot_ids") if more.pop(n, False)}
        with open_connection(self.settings) as connection:
            written = write_parquet(
                connection, query, (), path, columns, options, self.settings, **internal
            )
        self.snapshot += 1
        start, self.row_id = self.row_id, self.row_id + written.record_count
        given: dict[str, Any] = {"begin_snapshot": self.snapshot, "row_id_start": start, **more}
        return DataFile(
            self.snapshot,
            1,
            path,
            written.record_count,
            written.file_size_bytes,
            written.footer_size,
            encryption_key=written.encryption_key,
            **given,
        )

    def delete_file(self, data_file: DataFile, positions: Sequence[int]) -> DeleteFile:
        path = f"{self.root}/in/{new_file_name()}"
        table = pa.table({"file_path": [data_file.path] * len(positions), "pos": positions})
        pq.write_table(table, path)
        return DeleteFile(
            1, data_file.data_file_id, path, "parquet", len(positions), begin_snapshot=9
        )

    def rewrite(self, *sources: DataFile, **more: Any) -> WrittenFile:
        [written] = self.run(*sources, **more)
        return written

    def run(self, *sources: DataFile, **more: Any) -> tuple[WrittenFile, ...]:
        columns = more.pop("columns", COLUMNS)
        options = more.pop("options", ParquetOptions())
        task = RewriteTask(columns, sources, self.out, options, **more)
        written = rewrite(task, self.settings)
        assert os.listdir(self.root / "scratch") == []
        return written

    def outputs(self) -> list[str]:
        return os.listdir(self.out) if os.path.isdir(self.out) else []


def rows_of(connection: duckdb.DuckDBPyConnection, written: WrittenFile) -> list[Any]:
    scan = scan_sql(written.path, written.encryption_key)
    return connection.execute(f"FROM {scan}").fetchall()


def numbers(start: int, count: int) -> str:
    return f"SELECT i AS a, 'v' || i AS b FROM range({start}, {start + count}) t(i)"
