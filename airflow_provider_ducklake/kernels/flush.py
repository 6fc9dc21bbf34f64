"""Write what a catalog keeps inline to Parquet: row versions, and deletes of data files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import duckdb

from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    discard,
    duckdb_errors,
    open_connection,
)
from airflow_provider_ducklake.kernels.deletes import merged_deletes, write_delete_file
from airflow_provider_ducklake.kernels.inlined_rows import END, INLINED, load_inlined_rows
from airflow_provider_ducklake.kernels.parquet import (
    ROW_ID,
    SNAPSHOT_ID,
    new_file_name,
    write_parquet,
)
from airflow_provider_ducklake.kernels.partitioning import (
    PartitionKey,
    partition_directory,
    partition_keys,
)
from airflow_provider_ducklake.kernels.sorting import order_by
from airflow_provider_ducklake.kernels.tasks import FlushDeletesTask, FlushTask
from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.inlined import InlinedRow
from airflow_provider_ducklake.lake.model import WrittenDeleteFile, WrittenFile

_PLACE = "__ducklake_place"
_KEY = "__ducklake_key"


@dataclass(frozen=True, slots=True)
class FlushedFiles:
    """The files of one flush; each delete file names the data file it belongs to."""

    files: tuple[WrittenFile, ...] = ()
    delete_files: tuple[WrittenDeleteFile, ...] = ()


def flush(task: FlushTask, settings: KernelSettings) -> FlushedFiles:
    """Write all row versions of an inlined table, deleted ones too, with their ids and snapshots.

    Rows are in the order of the sort keys, then row id, then begin snapshot; one file a partition.
    A version that ended goes into its file and into a delete file that says since when.

    Args:
        task: The rows, which fit into memory: they came out of a database.
        settings: Memory, scratch and storage.

    Returns:
        The files; none for no rows.

    Raises:
        BadInput: A stored value cannot be read as its column's type, or not stored exactly in
            Parquet; the message names column and row id.
        ConfigurationError: The partition spec, a sort key or an option is wrong.
        StorageError: A file cannot be written. Files of a failed call are removed.

    Source: the reference's functions/ducklake_flush_inlined_data.cpp.
    """
    if not task.rows:
        return FlushedFiles()
    with open_connection(settings) as connection:
        keys = partition_keys(connection, task.partition, task.columns) if task.partition else ()
        _load(connection, task, keys)
        files: list[WrittenFile] = []
        delete_files: list[WrittenDeleteFile] = []
        try:
            for partition in _partitions(connection, task, keys):
                file = _write(connection, task, partition, settings)
                files.append(file)
                deletes = _ended(connection, partition)
                if deletes:
                    # Beside the table's files, not in a partition: as the reference does.
                    place, encrypted = task.directory, task.options.encrypted
                    delete_files.append(
                        write_delete_file(
                            connection, file.path, deletes, place, settings, encrypted
                        )
                    )
            _require_all(files, task.rows)
        except BaseException:
            for path in (*(f.path for f in files), *(d.path for d in delete_files)):
                discard(path, settings)
            raise
        return FlushedFiles(tuple(files), tuple(delete_files))


def flush_deletes(task: FlushDeletesTask, settings: KernelSettings) -> WrittenDeleteFile:
    """Write one delete file with the deletes a catalog holds inline and those of older files.

    Args:
        task: The data file with the delete files to replace, and the inlined deletes.
        settings: Memory, scratch and storage.

    Raises:
        StorageError: A delete file cannot be read or written.
        LakeError: A delete names a position the data file does not have; nothing is written.
    """
    with open_connection(settings) as connection:
        deletes = merged_deletes(connection, task.data_file, task.deletes, settings)
        return write_delete_file(
            connection, task.data_file.path, deletes, task.directory, settings, task.encrypted
        )


@dataclass(frozen=True, slots=True)
class _Partition:
    """One partition: the values of its keys, its directory, what selects its rows."""

    values: tuple[str | None, ...]
    directory: str
    condition: str


def _load(
    connection: duckdb.DuckDBPyConnection, task: FlushTask, keys: Sequence[PartitionKey]
) -> None:
    """Fill the table `ordered` with the typed rows, their place in the order, and their keys."""
    load_inlined_rows(connection, task.columns, task.rows)
    order = order_by(connection, task.sort_keys, task.columns, f"{ROW_ID}, {SNAPSHOT_ID}")
    texts = "".join(f", {key.text} AS {_KEY}{index}" for index, key in enumerate(keys))
    with duckdb_errors("order the inlined rows"):
        connection.execute(
            f"CREATE TEMP TABLE ordered AS "
            f"SELECT *, row_number() OVER (ORDER BY {order}) AS {_PLACE}{texts} FROM {INLINED}"
        )


def _partitions(
    connection: duckdb.DuckDBPyConnection, task: FlushTask, keys: Sequence[PartitionKey]
) -> Iterator[_Partition]:
    if not keys:
        yield _Partition((), task.directory, "true")
        return
    names = [f"{_KEY}{index}" for index in range(len(keys))]
    condition = " AND ".join(f"{name} IS NOT DISTINCT FROM ?" for name in names)
    found = connection.execute(
        f"SELECT {', '.join(names)} FROM ordered GROUP BY ALL ORDER BY min({_PLACE})"
    ).fetchall()
    for values in found:
        directory = task.directory
        if task.options.hive_file_pattern:
            directory += partition_directory(keys, values)
        yield _Partition(tuple(values), directory, condition)


def _write(
    connection: duckdb.DuckDBPyConnection,
    task: FlushTask,
    partition: _Partition,
    settings: KernelSettings,
) -> WrittenFile:
    columns = ", ".join(quote_identifier(column.name) for column in task.columns)
    file = write_parquet(
        connection,
        f"SELECT {columns}, {ROW_ID}, {SNAPSHOT_ID} FROM ordered WHERE {partition.condition} "
        f"ORDER BY {_PLACE}",
        partition.values,
        partition.directory + new_file_name(),
        task.columns,
        task.options,
        settings,
        write_row_ids=True,
        write_snapshot_ids=True,
    )
    return replace(file, partition_values=partition.values)


def _ended(connection: duckdb.DuckDBPyConnection, partition: _Partition) -> list[tuple[int, int]]:
    """Return (position in the file, snapshot it ended) of a partition's ended row versions."""
    numbered = (
        f"SELECT {END}, row_number() OVER (ORDER BY {_PLACE}) - 1 AS position "
        f"FROM ordered WHERE {partition.condition}"
    )
    with duckdb_errors("find the deleted rows"):
        return connection.execute(
            f"SELECT position, {END} FROM ({numbered}) WHERE {END} IS NOT NULL ORDER BY position",
            list(partition.values),
        ).fetchall()


def _require_all(files: Sequence[WrittenFile], rows: Sequence[InlinedRow]) -> None:
    written = sum(file.record_count for file in files)
    if written != len(rows):
        raise LakeError(f"flush wrote {written} of {len(rows)} inlined rows; nothing was kept")
