"""The files a catalog names, read in parts: who is scheduled though in use, and what to look for.

Nothing here holds all files of a lake at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.expiry import unreached
from airflow_provider_ducklake.lake.fsck.findings import Finding
from airflow_provider_ducklake.lake.fsck.rows import FILES
from airflow_provider_ducklake.lake.paths import Location, join
from airflow_provider_ducklake.lake.references import table_directories

PAGE: Final = 10_000  # file rows read at a time
_SMALLEST_ID: Final = -(2**62)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data or delete file as the catalog tells of it; `size` is in bytes."""

    kind: str
    file_id: int
    table_id: int
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class ScheduledRow:
    """A row of `ducklake_files_scheduled_for_deletion`, as stored."""

    file_id: int
    path: str
    relative: bool


def scheduled_in_use(session: Session, data_path: str) -> list[ScheduledRow]:
    """Return the rows of the schedule whose object some file row names.

    Locations are compared, not texts; the schedule is held in memory, the files are not.
    """
    scheduled: dict[str, list[tuple[Location, ScheduledRow]]] = {}
    for file_id, path, relative in session.rows(
        "SELECT data_file_id, path, path_is_relative FROM {ducklake_files_scheduled_for_deletion}"
    ):
        location = Location.parse(join(data_path, path) if relative else path)
        row = ScheduledRow(int(file_id), path, bool(relative))
        scheduled.setdefault(location.name, []).append((location.real(), row))
    found: dict[ScheduledRow, None] = {}
    if scheduled:
        directories = table_directories(session, data_path)
        for kind in FILES:
            for path in _paths(session, kind, directories):
                location = Location.parse(path)
                for other, row in scheduled.get(location.name, ()):
                    if location.real() == other:
                        found[row] = None
    return list(found)


def _paths(session: Session, kind: str, directories: dict[int, str]) -> Iterator[str]:
    query = (
        f"SELECT {kind}_id, table_id, path, path_is_relative FROM {{ducklake_{kind}}} "
        f"WHERE {kind}_id > ? ORDER BY {kind}_id LIMIT ?"
    )
    last = _SMALLEST_ID
    while rows := session.rows(query, (last, PAGE)):
        for _, table_id, path, relative in rows:
            if not relative:
                yield path
            elif int(table_id) in directories:
                yield join(directories[int(table_id)], path)
        last = int(rows[-1][0])


def check_schedule(session: Session, data_path: str) -> Iterator[Finding]:
    """Yield the scheduled files that are in use."""
    for row in scheduled_in_use(session, data_path):
        message = f"{row.path} is scheduled for deletion (as file {row.file_id}), but in use"
        yield Finding("live_and_scheduled", message, None, (row.file_id,))


def tables_with_files(session: Session) -> list[tuple[int, int]]:
    """Return (table id, number of files) of every table that has any."""
    rows = session.rows(
        "SELECT table_id, sum(files) FROM ("
        "SELECT table_id, count(*) AS files FROM {ducklake_data_file} GROUP BY table_id UNION ALL "
        "SELECT table_id, count(*) AS files FROM {ducklake_delete_file} GROUP BY table_id"
        ") AS counted WHERE table_id >= 0 GROUP BY table_id ORDER BY table_id"
    )
    return [(int(table_id), int(files)) for table_id, files in rows]


def read_stored_files(
    session: Session, data_path: str, table_ids: Iterable[int]
) -> dict[int, tuple[str, list[StoredFile]]]:
    """Return, by table id, the directory of a table and its files that a kept snapshot reads."""
    directories = table_directories(session, data_path)
    found: dict[int, tuple[str, list[StoredFile]]] = {}
    ids = [table_id for table_id in table_ids if table_id in directories]
    for kind in FILES:
        for file_id, table_id, path, relative, size in session.rows_in(
            f"SELECT f.{kind}_id, f.table_id, f.path, f.path_is_relative, f.file_size_bytes "
            f"FROM {{ducklake_{kind}}} f WHERE NOT ({unreached('f')}) AND f.table_id IN (??)",
            ids,
        ):
            directory = directories[int(table_id)]
            full = join(directory, path) if relative else path
            file = StoredFile(kind, int(file_id), int(table_id), full, int(size or 0))
            found.setdefault(int(table_id), (directory, []))[1].append(file)
    return found


def still_read(session: Session, files: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
    """Return those of some files (kind, id) that a kept snapshot still reads."""
    wanted = list(files)
    return {
        (kind, int(file_id))
        for kind in FILES
        for (file_id,) in session.rows_in(
            f"SELECT f.{kind}_id FROM {{ducklake_{kind}}} f "
            f"WHERE NOT ({unreached('f')}) AND f.{kind}_id IN (??)",
            (file_id for of_kind, file_id in wanted if of_kind == kind),
        )
    }
