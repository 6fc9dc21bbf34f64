"""Rewrite data files as one: deletes applied, columns by id, row ids and snapshots kept."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.kernels.broken_source import blamed_on_sources
from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    discard,
    duckdb_errors,
    local_copy,
    open_connection,
)
from airflow_provider_ducklake.kernels.deletes import deleted_positions
from airflow_provider_ducklake.kernels.parquet import (
    ROW_ID,
    ROW_ID_FIELD,
    SNAPSHOT_ID,
    new_file_name,
    write_parquet,
)
from airflow_provider_ducklake.kernels.projection import (
    FILE_STEP,
    Projection,
    SourceFile,
    open_source,
    project_source,
    project_together,
)
from airflow_provider_ducklake.kernels.sorting import order_by
from airflow_provider_ducklake.kernels.tasks import RewriteTask
from airflow_provider_ducklake.lake.errors import BadInput, LakeError
from airflow_provider_ducklake.lake.model import DataFile, WrittenFile


def rewrite(task: RewriteTask, settings: KernelSettings) -> tuple[WrittenFile, ...]:
    """Write the surviving rows of some data files as one file, in order.

    Row ids are written also where the task does not ask for them but positions could no longer
    give them (deletes, gaps, sorting, ids inside a source); `first_row_id` of the result tells.

    Args:
        task: What to read and how to write it.
        settings: Memory, scratch and storage. Rows stream; only a sort spills to scratch.

    Returns:
        The file, or nothing when no row survives.

    Raises:
        BadInput: A source is broken or cannot be carried over exactly.
        ConfigurationError: A sort key or option is wrong.
        StorageError: A source or the output cannot be reached.
        LakeError: Rows in minus deletes is not rows out; the output is removed.
    """
    opened: list[SourceFile] = []
    with (
        ExitStack() as staged,
        blamed_on_sources(opened, task.columns, settings),
        open_connection(settings) as connection,
    ):
        # With joins free to swap sides, the order of a file with many deletes would be lost.
        connection.execute("SET disabled_optimizers = 'build_side_probe_side'")
        sources = []
        for data_file in task.sources:
            local = staged.enter_context(local_copy(data_file.path, settings))
            sources.append(_open(connection, data_file, local, settings))
        opened += [source.file for source in sources]
        return _write(connection, sources, task, settings) if sources else ()


@dataclass(frozen=True, slots=True)
class _Source:
    """An opened file with the positions deleted from it."""

    file: SourceFile
    deleted: pa.Array

    @property
    def survivors(self) -> int:
        return self.file.data_file.record_count - len(self.deleted)


def _open(
    connection: duckdb.DuckDBPyConnection,
    data_file: DataFile,
    local: str,
    settings: KernelSettings,
) -> _Source:
    file = open_source(connection, data_file, local)
    if not data_file.delete_files and not data_file.inlined_deletes:
        return _Source(file, pa.array([], pa.int64()))
    return _Source(file, deleted_positions(connection, data_file, settings))


def _write(
    connection: duckdb.DuckDBPyConnection,
    sources: Sequence[_Source],
    task: RewriteTask,
    settings: KernelSettings,
) -> tuple[WrittenFile, ...]:
    expected = sum(source.survivors for source in sources)
    row_ids = task.write_row_ids or bool(task.sort_keys) or not _row_ids_follow(sources)
    names = ", ".join(source.file.data_file.path for source in sources[:3])
    with duckdb_errors("read data files", names):
        rows = _rows(connection, sources, task, row_ids=row_ids)
        if expected == 0:
            found = connection.execute(f"SELECT count(*) FROM ({rows})").fetchone()
            _require_count(found[0] if found else 0, 0, names)
            return ()
    if task.sort_keys:
        order = order_by(connection, task.sort_keys, task.columns, ROW_ID)
        rows = f"SELECT * FROM ({rows}) ORDER BY {order}"
    path = task.directory + new_file_name()
    written = write_parquet(
        connection,
        rows,
        (),
        path,
        task.columns,
        task.options,
        settings,
        write_row_ids=row_ids,
        write_snapshot_ids=task.write_snapshot_ids,
    )
    try:
        _require_count(written.record_count, expected, names)
    except LakeError:
        discard(path, settings)
        raise
    return (written,)


def _rows(
    connection: duckdb.DuckDBPyConnection,
    sources: Sequence[_Source],
    task: RewriteTask,
    *,
    row_ids: bool,
) -> str:
    """Return a query for the surviving rows in the order of the sources.

    Files that fit together are read in one scan. Others go through a table one after the other:
    a UNION ALL of them would be written out of order (tried on DuckDB 1.5.5).
    """
    files = [source.file for source in sources]
    select = partial(_select, connection, row_ids=row_ids, snapshot_ids=task.write_snapshot_ids)
    if len(sources) == 1:
        return select(project_source(files[0], task.columns), sources)
    together = project_together(files, task.columns)
    if together is not None:
        return select(together, sources)
    for source in sources:
        query = select(project_source(source.file, task.columns), [source])
        verb = "CREATE TEMP TABLE survivors AS" if source is sources[0] else "INSERT INTO survivors"
        connection.execute(f"{verb} {query}")
    return "SELECT * FROM survivors"


def _select(
    connection: duckdb.DuckDBPyConnection,
    projection: Projection,
    sources: Sequence[_Source],
    *,
    row_ids: bool,
    snapshot_ids: bool,
) -> str:
    parts = list(projection.columns)
    if row_ids:
        if projection.row_id is None:
            raise BadInput(
                f"{sources[0].file.data_file.path}: neither the files nor the catalog says which "
                "row ids the rows have"
            )
        parts.append(f"{projection.row_id} AS {ROW_ID}")
    if snapshot_ids:
        parts.append(f"{projection.snapshot_id} AS {SNAPSHOT_ID}")
    where = ""
    if any(len(source.deleted) for source in sources):
        table = f"deleted_{uuid.uuid4().hex}"
        keys = [pc.add(source.deleted, index * FILE_STEP) for index, source in enumerate(sources)]
        connection.register(table, pa.table({"position": pa.chunked_array(keys, pa.int64())}))
        where = f" WHERE {projection.position} NOT IN (FROM {table})"
    return f"SELECT {', '.join(parts)} FROM {projection.source}{where}"


def _row_ids_follow(sources: Sequence[_Source]) -> bool:
    """Tell whether row ids are still the first one plus the position in the new file."""
    following: int | None = None
    for source in sources:
        start = source.file.data_file.row_id_start
        if start is None or len(source.deleted) or source.file.holds(ROW_ID_FIELD):
            return False
        if following is not None and start != following:
            return False
        following = start + source.file.data_file.record_count
    return True


def _require_count(found: int, expected: int, names: str) -> None:
    if found != expected:
        raise LakeError(
            f"rewriting {names}: by the catalog {expected} rows survive, the files hold {found}; "
            "nothing was kept. Check record_count and the delete files of these files"
        )
