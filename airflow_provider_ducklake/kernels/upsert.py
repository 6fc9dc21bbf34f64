"""Match the rows of a table with the source of an upsert, and write what comes of it.

The source's rows are in files already. Their keys alone go to every task that looks through data
files; these answer with files that say which row matched which row id, so no list of rows passes
through the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import duckdb
import pyarrow as pa

from airflow_provider_ducklake.kernels.append import write_rows
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
    read_delete_file,
    write_delete_file,
    write_positions,
)
from airflow_provider_ducklake.kernels.inlined_rows import load_inlined_rows
from airflow_provider_ducklake.kernels.parquet import (
    ROW_ID,
    new_file_name,
    write_parquet,
)
from airflow_provider_ducklake.kernels.projection import POSITION, project
from airflow_provider_ducklake.kernels.scan import inlined_rows
from airflow_provider_ducklake.kernels.tasks import (
    MatchTask,
    RowShape,
    StampTask,
    UpsertTask,
)
from airflow_provider_ducklake.kernels.upsert_source import GOES, PLACE, SOURCE_POSITION
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import BadInput, LakeError
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.model import (
    DataFile,
    DeleteFile,
    WrittenDeleteFile,
    WrittenFile,
)
from airflow_provider_ducklake.lake.upsert import FileDeletes

_MATCHED: Final = Column(2147480004, "_ducklake_internal_matched", "int64")


@dataclass(frozen=True, slots=True)
class Matches:
    """What the rows of some data files, and of the catalog, have to do with the source.

    Attributes:
        deletes: What goes from each data file that loses rows.
        inlined: Row ids of the catalog's rows that go.
        updated: Rows that are replaced.
        deleted: Rows that are not.
        found: File of the matches that `write_upserted` reads; None without any.
    """

    deletes: tuple[FileDeletes, ...]
    inlined: tuple[int, ...]
    updated: int
    deleted: int
    found: WrittenFile | None

    @property
    def paths(self) -> Iterator[str]:
        """Full paths of the delete files."""
        return (d.delete_file.path for d in self.deletes if d.delete_file is not None)


@dataclass(frozen=True, slots=True)
class UpsertedFiles:
    """Data files with the rows of one staged file."""

    updated: tuple[WrittenFile, ...]
    inserted: tuple[WrittenFile, ...]


def match_rows(task: MatchTask, settings: KernelSettings) -> Matches:
    """Find the rows that have a key of the source, and write delete files for them.

    Args:
        task: Data files, rows of the catalog, and the keys.
        settings: Memory, scratch and storage. The keys may spill to scratch.

    Raises:
        BadInput: A file is broken, or nothing tells which row ids its rows have.
        StorageError: A file cannot be read or written. Files of a failed call are removed.
    """
    with open_connection(settings) as connection:
        _load_keys(connection, task, settings)
        kinds = f"{PLACE.name} BIGINT, {SOURCE_POSITION.name} BIGINT, {GOES.name} BOOLEAN"
        connection.execute(
            f"CREATE TEMP TABLE matches ({kinds}, {ROW_ID} BIGINT, position BIGINT, file BIGINT)"
        )
        deletes: list[FileDeletes] = []
        try:
            for file in task.files:
                deletes += _match_file(connection, task, file, settings)
            for part in task.inlined:
                load_inlined_rows(connection, part.columns, part.rows)
                shape = RowShape(task.keys, (), (), row_id=ROW_ID)
                _keep_matches(connection, task.keys, inlined_rows(part, shape, f"{ROW_ID}, 0"), -1)
            return _answer(connection, task, deletes, settings)
        except LakeError:
            for delete in deletes:
                if delete.delete_file is not None:
                    discard(delete.delete_file.path, settings)
            raise


def write_upserted(task: UpsertTask, settings: KernelSettings) -> UpsertedFiles:
    """Write the staged rows that do not delete: those that matched under the old row ids, apart.

    Args:
        task: A staged file and all matches.
        settings: Memory, scratch and storage.

    Raises:
        BadInput, ConfigurationError, StorageError: As for `append`; files of a failed call are
            removed.
    """
    with open_connection(settings) as connection, local_copy(task.source.path, settings) as local:
        connection.execute("CREATE TEMP TABLE found (position BIGINT, row_id BIGINT)")
        for matches in task.matches:
            with local_copy(matches.path, settings) as answers:
                of_file = project(connection, matches, answers, (PLACE, SOURCE_POSITION, _MATCHED))
                with duckdb_errors("read the matches", matches.path):
                    connection.execute(
                        f"INSERT INTO found SELECT {SOURCE_POSITION.name}, {_MATCHED.name} "
                        f"FROM (SELECT {', '.join(of_file.columns)} FROM {of_file.source}) "
                        f"WHERE {PLACE.name} = {task.source.data_file_id}"
                    )
        columns = task.rows.columns
        staged = project(connection, task.source, local, (*columns, GOES))
        rows = (
            f"(SELECT {', '.join(staged.columns)}, {POSITION} AS {SOURCE_POSITION.name} "
            f"FROM {staged.source})"
        )
        names = ", ".join(f"s.{quote_identifier(column.name)}" for column in columns)
        old = (
            f"SELECT {names}, f.row_id AS {ROW_ID} FROM {rows} s "
            f"JOIN found f ON f.position = s.{SOURCE_POSITION.name} WHERE NOT s.{GOES.name}"
        )
        new = (
            f"SELECT {names} FROM {rows} s WHERE NOT s.{GOES.name} "
            f"AND s.{SOURCE_POSITION.name} NOT IN (SELECT position FROM found)"
        )
        updated = write_rows(connection, old, task.rows, settings, row_ids=True)
        try:
            inserted = write_rows(connection, new, task.rows, settings)
        except LakeError:
            for file in updated:
                discard(file.path, settings)
            raise
        return UpsertedFiles(updated, inserted)


def stamp_deletes(task: StampTask, settings: KernelSettings) -> WrittenDeleteFile:
    """Write a delete file anew, its newest deletes as of another snapshot.

    Args:
        task: The file, and the snapshot.
        settings: Memory, scratch and storage.

    Raises:
        StorageError: A file cannot be read or written.
    """
    old = task.written
    source = DeleteFile(
        0, 0, old.path, "parquet", old.delete_count, 0, encryption_key=old.encryption_key
    )
    with open_connection(settings) as connection:
        positions, snapshots = read_delete_file(connection, source, settings)
        if snapshots is None:
            raise ValueError("this delete file names no snapshots")
        deletes = [
            (position, task.snapshot_id if snapshot == old.last_snapshot else snapshot)
            for position, snapshot in zip(positions.to_pylist(), snapshots.to_pylist(), strict=True)
        ]
        return write_delete_file(
            connection, old.data_file_path, deletes, task.directory, settings, task.encrypted
        )


def _load_keys(
    connection: duckdb.DuckDBPyConnection, task: MatchTask, settings: KernelSettings
) -> None:
    wanted = (*task.keys, PLACE, SOURCE_POSITION, GOES)
    with local_copy(task.source_keys.path, settings) as local:
        keys = project(connection, task.source_keys, local, wanted)
        with duckdb_errors("read the keys of the source", task.source_keys.path):
            connection.execute(
                f"CREATE TEMP TABLE keys AS SELECT {', '.join(keys.columns)} FROM {keys.source}"
            )


def _keep_matches(
    connection: duckdb.DuckDBPyConnection, keys: Sequence[Column], rows: str, file: int
) -> None:
    """Keep which source row each of some rows matches: (keys, row id, position)."""
    names = [quote_identifier(key.name) for key in keys]
    places = [f"k{index}" for index in range(len(keys))]
    same = " AND ".join(f"s.{n} = t.{p}" for n, p in zip(names, places, strict=True))
    connection.execute(
        f"INSERT INTO matches SELECT s.{PLACE.name}, s.{SOURCE_POSITION.name}, s.{GOES.name}, "
        f"t.row_id, t.position, {file} FROM keys s "
        f"JOIN ({rows}) AS t({', '.join(places)}, row_id, position) ON {same}"
    )


def _match_file(
    connection: duckdb.DuckDBPyConnection, task: MatchTask, file: DataFile, settings: KernelSettings
) -> Iterator[FileDeletes]:
    deleted = deleted_positions(connection, file, settings)
    with local_copy(file.path, settings) as local:
        found = project(connection, file, local, task.keys)
        if found.row_id is None:
            raise BadInput(
                f"{file.path}: neither the file nor the catalog says which row ids the rows have"
            )
        connection.register("deleted", pa.table({"position": deleted}))
        rows = (
            f"SELECT {', '.join((*found.columns, found.row_id, POSITION))} FROM {found.source} "
            f"WHERE {POSITION} NOT IN (FROM deleted)"
        )
        with duckdb_errors("match rows", file.path):
            _keep_matches(connection, task.keys, rows, file.data_file_id)
    matched = connection.execute(
        "SELECT position FROM matches WHERE file = ? ORDER BY 1", [file.data_file_id]
    ).to_arrow_table()
    positions = matched["position"].combine_chunks()
    if not len(positions):
        return
    # A file that ends tells the reference's change feed again of rows deleted in the catalog.
    ends = len(positions) + len(deleted) == file.record_count and not file.inlined_deletes
    if ends or task.directory is None:
        yield FileDeletes(file.data_file_id, ends)
        return
    place = (task.directory, settings, task.options.encrypted)
    if not file.delete_files:
        written = write_positions(connection, file.path, positions, *place)
    else:
        new = [(position, task.snapshot_id) for position in positions.to_pylist()]
        everything = merged_deletes(connection, file, new, settings)
        written = write_delete_file(connection, file.path, everything, *place)
    yield FileDeletes(file.data_file_id, delete_file=written)


def _answer(
    connection: duckdb.DuckDBPyConnection,
    task: MatchTask,
    deletes: Sequence[FileDeletes],
    settings: KernelSettings,
) -> Matches:
    counted = connection.execute(
        f"SELECT count(*) FILTER (NOT {GOES.name}), count(*) FILTER ({GOES.name}) FROM matches"
    ).fetchone()
    updated, deleted = counted if counted is not None else (0, 0)
    inlined = connection.execute(f"SELECT {ROW_ID} FROM matches WHERE file < 0").fetchall()
    found = None
    if updated and task.directory is not None:
        found = write_parquet(
            connection,
            f"SELECT {PLACE.name}, {SOURCE_POSITION.name}, {ROW_ID} AS {_MATCHED.name} "
            f"FROM matches WHERE NOT {GOES.name}",
            (),
            task.directory + new_file_name(),
            (PLACE, SOURCE_POSITION, _MATCHED),
            task.options,
            settings,
        )
    return Matches(tuple(deletes), tuple(row[0] for row in inlined), updated, deleted, found)
