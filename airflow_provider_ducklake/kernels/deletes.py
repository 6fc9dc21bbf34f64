"""Delete files: which positions of a data file are deleted, and how more are written down."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    duckdb_errors,
    encryption_sql,
    local_copy,
)
from airflow_provider_ducklake.kernels.parquet import uuid7, write_parquet
from airflow_provider_ducklake.kernels.puffin import read_deletion_vector
from airflow_provider_ducklake.kernels.tasks import ParquetOptions
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import LakeError, StorageError
from airflow_provider_ducklake.lake.identifiers import quote_literal
from airflow_provider_ducklake.lake.model import DataFile, DeleteFile, WrittenDeleteFile

_SNAPSHOT_ID: Final = "_ducklake_internal_snapshot_id"
# The field ids are those the reference writes: DuckDB's own for a file name and a row number.
_COLUMNS: Final = (
    Column(2147483646, "file_path", "varchar"),
    Column(2147483645, "pos", "int64"),
    Column(2147483539, _SNAPSHOT_ID, "int64"),
)


def read_delete_file(
    connection: duckdb.DuckDBPyConnection, delete_file: DeleteFile, settings: KernelSettings
) -> tuple[pa.Int64Array, pa.Int64Array | None]:
    """Return the positions a delete file names, and since which snapshots when it says so.

    A file may name a position twice or out of order, as some engines have written: each comes
    once here, with its earliest snapshot.

    Args:
        connection: Any of `open_connection`.
        delete_file: Parquet with the columns file_path, pos and perhaps
            `_ducklake_internal_snapshot_id` (or Iceberg's `row`, which is ignored); or puffin.

    Returns:
        Sorted unique positions, and as many snapshot ids or None.

    Raises:
        StorageError: The file cannot be read.
        LakeError: It is no delete file, or names no or a negative position.

    Source: the reference's storage/ducklake_delete_filter.cpp.
    """
    path = delete_file.path
    with local_copy(path, settings) as local:
        if delete_file.format == "puffin":
            return _read_puffin(local, path), None
        if delete_file.format != "parquet":
            raise LakeError(
                f"delete file {path} has the format {delete_file.format!r}, "
                "which is neither parquet nor puffin"
            )
        return _read_parquet(connection, local, delete_file)


def deleted_positions(
    connection: duckdb.DuckDBPyConnection,
    data_file: DataFile,
    settings: KernelSettings,
    at_snapshot: int | None = None,
) -> pa.Int64Array:
    """Return the positions of a data file that are deleted: delete files and inlined ones.

    Args:
        connection: Any of `open_connection`.
        data_file: Its `delete_files` and `inlined_deletes` are those visible at the snapshot.
        at_snapshot: Leave out what a partial delete file deletes only later; None takes all.

    Returns:
        Sorted unique positions, counted from 0; one column DuckDB can scan in an Arrow table.

    Raises:
        StorageError: A delete file cannot be read.
        LakeError: A delete names a position the data file does not have.
    """
    arrays = []
    for delete_file in data_file.delete_files:
        positions, snapshots = read_delete_file(connection, delete_file, settings)
        _check_range(positions, data_file, f"delete file {delete_file.path}")
        if snapshots is not None and at_snapshot is not None:
            positions = positions.filter(pc.less_equal(snapshots, at_snapshot))
        arrays.append(positions)
    inlined = pa.array(data_file.inlined_deletes, pa.int64())
    _check_range(inlined, data_file, "an inlined delete")
    merged = pc.unique(pa.concat_arrays([*arrays, inlined]))
    return merged.take(pc.sort_indices(merged))


def merged_deletes(
    connection: duckdb.DuckDBPyConnection,
    data_file: DataFile,
    deletes: Sequence[tuple[int, int]],
    settings: KernelSettings,
) -> list[tuple[int, int]]:
    """Return the deletes of a data file's delete files and some more, each since when.

    A delete file without snapshot column applies since its own begin; a position that is deleted
    twice is deleted since the earlier of the two.

    Args:
        connection: Any of `open_connection`.
        data_file: The file, with the delete files to merge.
        deletes: (position, snapshot id) of further deletes.

    Returns:
        (position, snapshot id), sorted, each position once.

    Raises:
        StorageError: A delete file cannot be read.
        LakeError: A delete names a position the data file does not have.
    """
    since: dict[int, int] = {}
    for delete_file in data_file.delete_files:
        positions, snapshots = read_delete_file(connection, delete_file, settings)
        _check_range(positions, data_file, f"delete file {delete_file.path}")
        begins = [delete_file.begin_snapshot] * len(positions)
        if snapshots is not None:
            begins = snapshots.to_pylist()
        _keep_earliest(since, zip(positions.to_pylist(), begins, strict=True))
    _check_range(pa.array([p for p, _ in deletes], pa.int64()), data_file, "an inlined delete")
    _keep_earliest(since, deletes)
    return sorted(since.items())


def write_delete_file(
    connection: duckdb.DuckDBPyConnection,
    data_file_path: str,
    deletes: Sequence[tuple[int, int]],
    directory: str,
    settings: KernelSettings,
    encrypted: bool,
) -> WrittenDeleteFile:
    """Write a partial delete file: positions of one data file and since when each is deleted.

    Args:
        connection: From `open_connection`.
        data_file_path: Full path of the data file, written into every row.
        deletes: (position, snapshot id of the delete), at least one, each position once.
        directory: Full path of the directory, with or without a slash at its end.
        encrypted: Encrypt the file with a fresh key.

    Raises:
        ConfigurationError: Encryption is not possible here.
        StorageError: The file cannot be written.

    Source: the reference's WriteDeleteFileWithSnapshots.
    """
    if not deletes:
        raise ValueError("a delete file without deletes")
    ordered = sorted(deletes)
    snapshots = [snapshot for _, snapshot in ordered]
    rows = pa.table({"pos": [position for position, _ in ordered], "since": snapshots})
    file = _write(
        connection,
        "SELECT pos, since FROM deletes",
        rows,
        data_file_path,
        directory,
        settings,
        encrypted,
    )
    return replace(file, first_snapshot=min(snapshots), last_snapshot=max(snapshots))


def write_positions(
    connection: duckdb.DuckDBPyConnection,
    data_file_path: str,
    positions: pa.Int64Array,
    directory: str,
    settings: KernelSettings,
    encrypted: bool,
) -> WrittenDeleteFile:
    """Write a delete file of positions only: all are deleted as long as it applies.

    Args:
        connection: From `open_connection`.
        data_file_path: Full path of the data file, written into every row.
        positions: At least one, sorted, each once.
        directory: Full path of the directory, with or without a slash at its end.
        encrypted: Encrypt the file with a fresh key.

    Raises:
        ConfigurationError, StorageError: As for `write_delete_file`.
    """
    rows = pa.table({"pos": positions})
    return _write(
        connection, "SELECT pos FROM deletes", rows, data_file_path, directory, settings, encrypted
    )


def write_whole_file_deleted(
    connection: duckdb.DuckDBPyConnection,
    data_file: DataFile,
    deletes: Sequence[tuple[int, int]],
    since: int,
    directory: str,
    settings: KernelSettings,
    encrypted: bool,
) -> WrittenDeleteFile:
    """Write a partial delete file of every row of a data file.

    Args:
        connection: From `open_connection`.
        data_file: The file, for its path and number of rows.
        deletes: (position, snapshot id) of rows that were deleted earlier.
        since: Snapshot at which all other rows went; none of `deletes` is later.
        directory: Full path of the directory, with or without a slash at its end.
        encrypted: Encrypt the file with a fresh key.

    Raises:
        ConfigurationError, StorageError: As for `write_delete_file`.
    """
    earlier = pa.table(
        {
            "pos": pa.array([position for position, _ in deletes], pa.int64()),
            "since": pa.array([snapshot for _, snapshot in deletes], pa.int64()),
        }
    )
    query = (
        f"SELECT r.range AS pos, coalesce(d.since, {since}) AS since "
        f"FROM range({data_file.record_count}) r LEFT JOIN deletes d ON d.pos = r.range"
    )
    file = _write(connection, query, earlier, data_file.path, directory, settings, encrypted)
    first = min([since, *(snapshot for _, snapshot in deletes)])
    return replace(file, first_snapshot=first, last_snapshot=since)


def _write(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    rows: pa.Table,
    data_file_path: str,
    directory: str,
    settings: KernelSettings,
    encrypted: bool,
) -> WrittenDeleteFile:
    """Write what a query on `deletes` yields: `pos`, and `since` where the rows have it."""
    columns = _COLUMNS if "since" in rows.column_names else _COLUMNS[:2]
    snapshots = f", CAST(since AS BIGINT) AS {_SNAPSHOT_ID}" if len(columns) == 3 else ""
    view = f"deletes_{uuid.uuid4().hex}"
    connection.register(view, rows)
    try:
        file = write_parquet(
            connection,
            f"WITH deletes AS (FROM {view}) SELECT CAST(? AS VARCHAR) AS file_path, "
            f"CAST(pos AS BIGINT) AS pos{snapshots} FROM ({query}) ORDER BY pos",
            [data_file_path],
            f"{directory.rstrip('/')}/ducklake-{uuid7()}-delete.parquet",
            columns,
            ParquetOptions(encrypted=encrypted),
            settings,
        )
    finally:
        connection.unregister(view)
    if file.footer_size is None:
        raise LakeError(f"DuckDB did not say how large the footer of {file.path} is")
    return WrittenDeleteFile(
        path=file.path,
        data_file_path=data_file_path,
        delete_count=file.record_count,
        file_size_bytes=file.file_size_bytes,
        footer_size=file.footer_size,
        first_snapshot=None,
        last_snapshot=None,
        encryption_key=file.encryption_key,
    )


def _read_puffin(local: str, path: str) -> pa.Int64Array:
    try:
        with open(local, "rb") as file:
            return read_deletion_vector(file.read())
    except OSError as error:
        raise StorageError(
            f"cannot read delete file {path}: {os.strerror(error.errno or 0)}"
        ) from None
    except LakeError as error:
        raise LakeError(f"delete file {path}: {error}") from None


def _read_parquet(
    connection: duckdb.DuckDBPyConnection, local: str, delete_file: DeleteFile
) -> tuple[pa.Int64Array, pa.Int64Array | None]:
    source = quote_literal(local)
    if delete_file.encryption_key is not None:
        source += f", encryption_config = {encryption_sql(delete_file.encryption_key)}"
    with duckdb_errors("read the delete file", delete_file.path):
        described = connection.execute(f"DESCRIBE FROM read_parquet({source})").fetchall()
        kinds = [(str(name), str(kind)) for name, kind, *_ in described]
        if len(kinds) not in (2, 3) or [kind for _, kind in kinds[:2]] != ["VARCHAR", "BIGINT"]:
            raise LakeError(
                f"{delete_file.path} is no delete file: expected file_path, pos and perhaps "
                f"{_SNAPSHOT_ID} or row, found {', '.join(' '.join(kind) for kind in kinds)}"
            )
        partial = kinds[2:] == [(_SNAPSHOT_ID, "BIGINT")]
        # Columns by position: the reference does not look at the names of the first two either.
        alias = "d(file_path, pos, since)" if len(kinds) == 3 else "d(file_path, pos)"
        since = "CASE WHEN count(*) = count(since) THEN min(since) END" if partial else "0::BIGINT"
        table = connection.execute(
            f"SELECT pos, {since} AS since "
            f"FROM read_parquet({source}) {alias} GROUP BY pos ORDER BY pos NULLS FIRST"
        ).to_arrow_table()
    positions, snapshots = (table[name].combine_chunks() for name in ("pos", "since"))
    if positions.null_count or snapshots.null_count:
        raise LakeError(f"delete file {delete_file.path} holds a NULL position or snapshot id")
    if len(positions) and positions[0].as_py() < 0:
        raise LakeError(
            f"delete file {delete_file.path} names the position {positions[0].as_py()}, below zero"
        )
    return positions, snapshots if partial else None


def _check_range(positions: pa.Int64Array, data_file: DataFile, origin: str) -> None:
    if not len(positions):
        return
    lowest, highest = pc.min_max(positions).as_py().values()
    wrong = lowest if lowest < 0 else highest
    if not 0 <= wrong < data_file.record_count:
        raise LakeError(
            f"{origin} names the position {wrong}, but data file {data_file.path} has "
            f"{data_file.record_count} rows"
        )


def _keep_earliest(since: dict[int, int], deletes: Iterable[tuple[int, int]]) -> None:
    for position, snapshot in deletes:
        since[position] = min(snapshot, since.get(position, snapshot))
