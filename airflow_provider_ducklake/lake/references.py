"""Every object a catalog refers to: what may never be deleted while it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.errors import DamagedLake
from airflow_provider_ducklake.lake.paths import Location, join


@dataclass(frozen=True, slots=True)
class References:
    """Canonical locations of all files in a catalog's tables, and of those scheduled to go."""

    files: frozenset[Location]
    scheduled: frozenset[Location]


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


def read_references(session: Session, data_path: str) -> References:
    """Return every object the catalog refers to, of any table and any snapshot it still knows.

    Raises:
        DamagedLake: A file's table is not there, or a row names no file.
        BadInput, ConfigurationError: A stored path cannot be understood. Nothing may be deleted
            then, so nothing is left out.
    """
    directories = table_directories(session, data_path)
    files = set()
    for table in ("ducklake_data_file", "ducklake_delete_file"):
        rows = session.rows(f"SELECT table_id, path, path_is_relative FROM {{{table}}}")
        for table_id, path, relative in rows:
            if table_id is None or path is None:
                raise _senseless(table, f"table_id {table_id}, path {path!r}")
            full = full_path(directories, int(table_id), path, relative)
            files.add(Location.parse(full).real())
    rows = session.rows(
        "SELECT path, path_is_relative FROM {ducklake_files_scheduled_for_deletion}"
    )
    scheduled = set()
    for path, relative in rows:
        if path is None:
            raise _senseless("ducklake_files_scheduled_for_deletion", "path None")
        scheduled.add(Location.parse(join(data_path, path) if relative else path).real())
    return References(frozenset(files), frozenset(scheduled))


def _senseless(table: str, row: str) -> DamagedLake:
    return DamagedLake(
        f"a row of {table} names no file, so nothing was deleted: {row}. Correct or delete that row"
    )
