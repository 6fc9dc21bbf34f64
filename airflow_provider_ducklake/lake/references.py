"""Every object a catalog refers to: what may never be deleted while it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.errors import DamagedLake
from airflow_provider_ducklake.lake.model import Snapshot
from airflow_provider_ducklake.lake.paths import Location, join

_FILES: Final = (("ducklake_data_file", "data_file_id"), ("ducklake_delete_file", "delete_file_id"))


def table_directories(session: Session, data_path: str) -> dict[int, str]:
    """Return the full directory of every table the catalog has rows of, dropped ones too."""
    rows = session.rows(
        "SELECT DISTINCT t.table_id, t.path, t.path_is_relative, s.path, s.path_is_relative "
        "FROM {ducklake_table} t JOIN {ducklake_schema} s ON s.schema_id = t.schema_id"
    )
    directories = {}
    for table_id, path, relative, schema_path, schema_relative in rows:
        schema = join(data_path, schema_path) if schema_relative else schema_path
        directories[int(table_id)] = join(schema, path) if relative else path
    return directories


def full_path(directories: Mapping[int, str], table_id: int, path: str, relative: object) -> str:
    """Return where a file of a table lies.

    Args:
        directories: From `table_directories`.
        table_id: The table.
        path: As stored.
        relative: As stored.

    Raises:
        DamagedLake: The table is not there.
    """
    if not relative:
        return path
    if table_id not in directories:
        raise DamagedLake(
            f"{path} is a file of table {table_id}, which the catalog does not have, so that "
            "nobody knows where it lies; nothing was deleted. Run fsck with repair"
        )
    return join(directories[table_id], path)


def used_locations(
    session: Session, data_path: str, *, since: Snapshot | None = None
) -> Iterator[Location]:
    """Yield every object in a catalog's tables, of any snapshot it still knows.

    Canonical locations, one after the other: a lake may have millions of files.

    Args:
        session: A transaction on the catalog.
        data_path: The lake's data path.
        since: Only files that came after this snapshot: with an id given out since, which a merge
            does too, or in a later snapshot, where another writer may not count ids as we do. Rows
            that a store keeps for forks have ids below 0: those are yielded too.

    Raises:
        DamagedLake: A file's table is not there, or a row names no file.
        BadInput, ConfigurationError: A stored path cannot be understood. Nothing may be deleted
            then, so nothing is left out.
    """
    directories = table_directories(session, data_path)
    for table, key in _FILES:
        query = f"SELECT table_id, path, path_is_relative FROM {{{table}}}"
        if since is None:
            rows = session.stream(query)
        else:
            newer = f"{query} WHERE {key} >= ? OR {key} < 0 OR begin_snapshot > ?"
            rows = session.stream(newer, (since.next_file_id, since.snapshot_id))
        for table_id, path, relative in rows:
            if table_id is None or path is None:
                raise _senseless(table, f"table_id {table_id}, path {path!r}")
            yield Location.parse(full_path(directories, int(table_id), path, relative)).real()


def scheduled_locations(session: Session, data_path: str) -> Iterator[Location]:
    """Yield every object that is scheduled for deletion, like `used_locations`."""
    rows = session.stream(
        "SELECT path, path_is_relative FROM {ducklake_files_scheduled_for_deletion}"
    )
    for path, relative in rows:
        if path is None:
            raise _senseless("ducklake_files_scheduled_for_deletion", "path None")
        yield Location.parse(join(data_path, path) if relative else path).real()


def _senseless(table: str, row: str) -> DamagedLake:
    return DamagedLake(
        f"a row of {table} names no file, so nothing was deleted: {row}. Correct or delete that row"
    )
