"""Read which rows came and went in some snapshots: what the reference's table_changes tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import duckdb
import pyarrow as pa

from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    duckdb_errors,
    local_copy,
)
from airflow_provider_ducklake.kernels.deletes import merged_deletes
from airflow_provider_ducklake.kernels.inlined_rows import END, load_inlined_rows
from airflow_provider_ducklake.kernels.parquet import ROW_ID, SNAPSHOT_ID
from airflow_provider_ducklake.kernels.scan import (
    batches,
    file_rows,
    inlined_rows,
    open_reader,
    shaped,
)
from airflow_provider_ducklake.kernels.tasks import ChangedFile, ChangesTask
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal

_VERSIONS: Final = "row_versions"
_DEATHS: Final = "deaths"


def scan_changes(task: ChangesTask, settings: KernelSettings) -> Iterator[pa.RecordBatch]:
    """Yield one row for each row version that came or went in the task's snapshots.

    A row that goes and comes back in one snapshot under one id is an update: its old version is
    `update_preimage`, its new one `update_postimage`. Versions are gathered in a table first, which
    may spill to scratch.

    Args:
        task: What to read; its shape names the row id and the snapshot.
        settings: Memory, scratch and storage.

    Raises:
        BadInput: A file is broken, or an inlined value is none of its column's type.
        StorageError: A file cannot be reached.
        LakeError: A delete names a position the file does not have.

    Source: functions/ducklake_table_changes.cpp.
    """
    with open_reader(task.shape, settings) as connection:
        versions = _Versions(connection, task)
        for changed in task.files:
            with local_copy(changed.data_file.path, settings) as local:
                versions.add_file(changed, local, settings)
        for part in task.inlined:
            load_inlined_rows(connection, part.columns, part.rows)
            further = f"{SNAPSHOT_ID}, {ROW_ID}, {END}"
            versions.add(inlined_rows(part, task.shape, further), "inlined rows")
        if versions.is_there:
            yield from batches(connection, versions.changes(), "row versions")


class _Versions:
    """The row versions that came or went, in a table."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, task: ChangesTask) -> None:
        self.is_there = False
        self._connection = connection
        self._task = task

    def add_file(self, changed: ChangedFile, local: str, settings: KernelSettings) -> None:
        """Add those of a data file."""
        file = changed.data_file
        projection, selected = file_rows(self._connection, file, local, self._task.shape)
        deaths = merged_deletes(self._connection, file, changed.deletes, settings)
        table = {
            "place": pa.array([position for position, _ in deaths], pa.int64()),
            "died": pa.array([snapshot for _, snapshot in deaths], pa.int64()),
        }
        self._connection.register(_DEATHS, pa.table(table))
        end = "NULL" if file.end_snapshot is None else str(file.end_snapshot)
        self.add(
            f"SELECT {selected}, CAST(coalesce(died, {end}) AS BIGINT) AS {END} "
            f"FROM {projection.source} LEFT JOIN {_DEATHS} ON place = {projection.position}",
            file.path,
        )

    def add(self, rows: str, path: str) -> None:
        """Add those of a query with the columns of the shape, ids and snapshots."""
        task = self._task
        span = f"BETWEEN {task.first} AND {task.last}"
        verb = f"INSERT INTO {_VERSIONS} BY NAME"
        if not self.is_there:
            verb = f"CREATE TEMP TABLE {_VERSIONS} AS"
        with duckdb_errors("read rows", path):
            self._connection.execute(
                f"{verb} SELECT * FROM ({rows}) WHERE {SNAPSHOT_ID} {span} OR {END} {span}"
            )
        self.is_there = True

    def changes(self) -> str:
        """Return the query for the changes."""
        came = self._one_side(SNAPSHOT_ID, END, "insert", "update_postimage")
        went = self._one_side(END, SNAPSHOT_ID, "delete", "update_preimage")
        change_type = quote_identifier(self._task.change_type)
        rows = f"{came} UNION ALL {went}"
        return shaped(rows, self._task.shape, [f"__change AS {change_type}"])

    def _one_side(self, snapshot: str, other: str, alone: str, paired: str) -> str:
        """Return the versions whose one end lies in the range, each with its kind of change."""
        names = [quote_identifier(column.name) for column in self._task.shape.columns]
        columns = "".join(f"v.{name}, " for name in names)
        pairs = (
            f"SELECT DISTINCT {ROW_ID} AS id, {other} AS at FROM {_VERSIONS} "
            f"WHERE {other} IS NOT NULL"
        )
        return (
            f"SELECT {columns}v.{snapshot} AS {SNAPSHOT_ID}, v.{ROW_ID} AS {ROW_ID}, "
            f"CASE WHEN p.id IS NULL THEN {quote_literal(alone)} ELSE {quote_literal(paired)} END "
            f"AS __change FROM {_VERSIONS} v LEFT JOIN ({pairs}) p "
            f"ON p.id = v.{ROW_ID} AND p.at = v.{snapshot} "
            f"WHERE v.{snapshot} BETWEEN {self._task.first} AND {self._task.last}"
        )
