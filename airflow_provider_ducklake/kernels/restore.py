"""Restore a data file: which of its rows an older snapshot showed, and delete files that say so."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    discard,
    duckdb_errors,
    local_copy,
    open_connection,
)
from airflow_provider_ducklake.kernels.deletes import (
    deleted_positions,
    merged_deletes,
    write_delete_file,
    write_positions,
    write_whole_file_deleted,
)
from airflow_provider_ducklake.kernels.projection import POSITION, project
from airflow_provider_ducklake.kernels.tasks import RestoreTask
from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.lake.model import DataFile, WrittenDeleteFile


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """What a restore does to the rows of one data file.

    Attributes:
        back: Rows that are visible again.
        gone: Rows that are visible no more.
        now: Delete file that applies from the restore on; None when nothing is deleted.
        history: Delete file that applies until the restore; None when those there are stay.
    """

    back: int
    gone: int
    now: WrittenDeleteFile | None = None
    history: WrittenDeleteFile | None = None

    @property
    def paths(self) -> list[str]:
        """Full paths of what was written."""
        return [file.path for file in (self.now, self.history) if file is not None]


def restore_file(task: RestoreTask, settings: KernelSettings) -> RestoredFile:
    """Compare the rows an older snapshot showed with those of now; write what makes them equal.

    Args:
        task: The data file and its deletes then and now.
        settings: Memory, scratch and storage.

    Raises:
        StorageError: A file cannot be read or written.
        LakeError: A delete names a position the data file does not have; nothing is written.
    """
    with open_connection(settings) as connection:
        then = _hidden_then(connection, task, settings)
        now = deleted_positions(connection, task.last, settings)
        is_out = task.last.end_snapshot is not None
        back = task.then.record_count - len(then) if is_out else _without(now, then)
        gone = 0 if is_out else _without(then, now)
        if task.directory is None or not (is_out or back or gone):
            return RestoredFile(back, gone)
        path, place = task.then.path, (task.directory, settings, task.encrypted)
        written = write_positions(connection, path, then, *place) if len(then) else None
        try:
            history = _history(connection, task, task.directory, settings)
        except LakeError:
            if written is not None:
                discard(written.path, settings)
            raise
        return RestoredFile(back, gone, written, history)


def _history(
    connection: duckdb.DuckDBPyConnection,
    task: RestoreTask,
    directory: str,
    settings: KernelSettings,
) -> WrittenDeleteFile | None:
    if not task.rewrite_history:
        return None
    deletes = merged_deletes(connection, task.last, task.inlined, settings)
    place = (directory, settings, task.encrypted)
    if task.hidden_since is None:
        return write_delete_file(connection, task.last.path, deletes, *place)
    return write_whole_file_deleted(connection, task.last, deletes, task.hidden_since, *place)


def _hidden_then(
    connection: duckdb.DuckDBPyConnection, task: RestoreTask, settings: KernelSettings
) -> pa.Int64Array:
    """Return the positions the older snapshot did not show: deleted ones and later rows."""
    positions = deleted_positions(connection, task.then, settings, task.snapshot_id)
    newest = task.then.partial_max
    if newest is None or newest <= task.snapshot_id:
        return positions
    later = _later_rows(connection, task.then, task.snapshot_id, settings)
    merged = pc.unique(pa.concat_arrays([positions, later]))
    return merged.take(pc.sort_indices(merged))


def _later_rows(
    connection: duckdb.DuckDBPyConnection,
    data_file: DataFile,
    snapshot_id: int,
    settings: KernelSettings,
) -> pa.Int64Array:
    with local_copy(data_file.path, settings) as local:
        projection = project(connection, data_file, local, ())
        if not projection.has_snapshot_ids:
            raise LakeError(
                f"data file {data_file.path} has rows of several snapshots by the catalog, but "
                "does not say which"
            )
        with duckdb_errors("read the snapshots of the rows", data_file.path):
            table = connection.execute(
                f"SELECT CAST({POSITION} AS BIGINT) AS position FROM {projection.source} "
                f"WHERE {projection.snapshot_id} > {snapshot_id} ORDER BY 1"
            ).to_arrow_table()
    return table["position"].combine_chunks()


def _without(some: pa.Int64Array, others: pa.Int64Array) -> int:
    """Return how many of some positions are not among others."""
    return len(some) - int(pc.sum(pc.is_in(some, value_set=others)).as_py() or 0)
