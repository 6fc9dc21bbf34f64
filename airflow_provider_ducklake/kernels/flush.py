"""Write what a catalog keeps inline to Parquet: row versions, and deletes of data files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa

from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    discard,
    duckdb_errors,
    open_connection,
    translated,
)
from airflow_provider_ducklake.kernels.deletes import merged_deletes, write_delete_file
from airflow_provider_ducklake.kernels.inlined_text import struct_from_sql
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
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import BadInput, LakeError
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.inlined import InlinedRow
from airflow_provider_ducklake.lake.model import WrittenDeleteFile, WrittenFile

_END = "__ducklake_end"
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
    values = [_Stored(column, index, task.rows) for index, column in enumerate(task.columns)]
    arrays = {
        ROW_ID: pa.array([row.row_id for row in task.rows], pa.int64()),
        SNAPSHOT_ID: pa.array([row.begin_snapshot for row in task.rows], pa.int64()),
        _END: pa.array([row.end_snapshot for row in task.rows], pa.int64()),
    }
    for value in values:
        arrays |= value.arrays()
    connection.register("stored", pa.table(arrays))
    typed = [f"{v.sql} AS {quote_identifier(v.column.name)}" for v in values]
    listed = ", ".join((*typed, ROW_ID, SNAPSHOT_ID, _END))
    try:
        connection.execute(f"CREATE TEMP TABLE typed AS SELECT {listed} FROM stored")
    except duckdb.Error as error:
        _refuse(connection, values, task.rows)
        raise translated(error, "read the inlined rows") from None
    order = order_by(connection, task.sort_keys, task.columns, f"{ROW_ID}, {SNAPSHOT_ID}")
    texts = "".join(f", {key.text} AS {_KEY}{index}" for index, key in enumerate(keys))
    with duckdb_errors("order the inlined rows"):
        connection.execute(
            f"CREATE TEMP TABLE ordered AS "
            f"SELECT *, row_number() OVER (ORDER BY {order}) AS {_PLACE}{texts} FROM typed"
        )


def _refuse(
    connection: duckdb.DuckDBPyConnection, values: Iterable[_Stored], rows: Sequence[InlinedRow]
) -> None:
    """Name the first value that is none of its column's type."""
    for value in values:
        if _casts(connection, value, 0, len(rows)):
            continue
        start, end = 0, len(rows)
        while end - start > 1:
            middle = (start + end) // 2
            if _casts(connection, value, start, middle):
                start = middle
            else:
                end = middle
        raise _undecodable(value.column, rows[start].row_id)


def _casts(connection: duckdb.DuckDBPyConnection, value: _Stored, start: int, end: int) -> bool:
    # TRY_CAST would not do: inside a nested value it makes NULL of what it cannot read.
    try:
        connection.execute(
            f"SELECT count({value.sql}) FROM (FROM stored LIMIT {end - start} OFFSET {start})"
        )
    except duckdb.Error:
        return False
    return True


def _undecodable(column: Column, row_id: int) -> BadInput:
    return BadInput(
        f"inlined row {row_id}: what the catalog stores for column {column.name} is no value of "
        f"type {column.sql_type}; update or delete the row, then flush again"
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
        f"SELECT {_END}, row_number() OVER (ORDER BY {_PLACE}) - 1 AS position "
        f"FROM ordered WHERE {partition.condition}"
    )
    with duckdb_errors("find the deleted rows"):
        return connection.execute(
            f"SELECT position, {_END} FROM ({numbered}) WHERE {_END} IS NOT NULL ORDER BY position",
            list(partition.values),
        ).fetchall()


def _require_all(files: Sequence[WrittenFile], rows: Sequence[InlinedRow]) -> None:
    written = sum(file.record_count for file in files)
    if written != len(rows):
        raise LakeError(f"flush wrote {written} of {len(rows)} inlined rows; nothing was kept")


class _Stored:
    """The stored values of one column and the SQL that reads them as the column's type."""

    def __init__(self, column: Column, index: int, rows: Sequence[InlinedRow]) -> None:
        self.column = column
        self._name = f"__ducklake_v{index}"
        self._values = [_checked(column, row, index) for row in rows]

    def arrays(self) -> dict[str, pa.Array]:
        """Return the values as text, and where there are two ways to store them, both."""
        texts = [value if isinstance(value, str) else None for value in self._values]
        found = {self._name: pa.array(texts, pa.string())}
        if self.column.type == "blob":
            raw = [value if isinstance(value, bytes) else None for value in self._values]
            found[f"{self._name}_raw"] = pa.array(raw, pa.binary())
        elif self.column.type == "struct":
            literals = [None if t is None else struct_from_sql(t, self.column) for t in texts]
            found[f"{self._name}_sql"] = pa.array(literals, pa.string())
        return found

    @property
    def sql(self) -> str:
        """Expression of the value; it fails for a text that is none of the type."""
        name, kind = self._name, self.column.sql_type
        if self.column.type == "blob":
            return f"coalesce({name}_raw, CAST({name} AS BLOB))"
        if not self.column.is_nested:
            return f"CAST({name} AS {kind})"
        # DuckDB parses text on its way to JSON as JSON, and the nested value is none.
        plain = _without_json(self.column).sql_type
        text = name
        if self.column.type == "struct":
            # A text that comes back as it was is in DuckDB's own form, whatever else it may be.
            own = f"CAST(TRY_CAST({name} AS {plain}) AS VARCHAR) IS NOT DISTINCT FROM {name}"
            text = f"CASE WHEN {name}_sql IS NULL OR {own} THEN {name} ELSE {name}_sql END"
        value = f"CAST({text} AS {plain})"
        return value if plain == kind else f"CAST({value} AS {kind})"


def _checked(column: Column, row: InlinedRow, index: int) -> str | bytes | None:
    value = row.values[index]
    if value is None:
        return None
    if column.type == "variant" or any(leaf.type == "variant" for leaf in column.leaves()):
        raise BadInput(
            f"inlined row {row.row_id}: column {column.name} holds a VARIANT, whose types its "
            "text does not keep; flush it with DuckDB's ducklake_flush_inlined_data"
        )
    if isinstance(value, bytes) and column.type != "blob":
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise _undecodable(column, row.row_id) from None
    return value


def _without_json(column: Column) -> Column:
    if column.type == "json":
        return replace(column, type="varchar")
    return replace(column, children=tuple(_without_json(child) for child in column.children))
