"""Which external files may be registered: those no table has, and none that was retired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.model import Table
from airflow_provider_ducklake.lake.paths import Location, join
from airflow_provider_ducklake.lake.references import full_path, table_directories


@dataclass(frozen=True, slots=True)
class Registration:
    """Files to register, and those the table has already."""

    new: tuple[str, ...]
    already: tuple[str, ...]


def plan_registration(
    session: Session, table: Table, paths: Sequence[str], data_path: str
) -> Registration:
    """Split files into new ones and ones that are live in the table, however they are spelled.

    Args:
        session: A transaction on the catalog.
        table: The table to register into.
        paths: Full paths; the same file twice counts once.
        data_path: The lake's data path.

    Raises:
        BadInput: A file belongs to another table, or was retired from this lake and would be
            deleted some day although it is live again.
    """
    known = _known(session, data_path)
    new: dict[Location, str] = {}
    already = []
    for path in paths:
        location = Location.parse(path).real()
        owner = known.get(location)
        if owner is None:
            new.setdefault(location, path)
        elif owner == table.table_id:
            already.append(path)
        else:
            raise BadInput(f"{path} {_what(owner)}; copy the file and register the copy")
    return Registration(tuple(new.values()), tuple(already))


_RETIRED = -1
_SCHEDULED = -2


def _what(owner: int) -> str:
    if owner == _RETIRED:
        return "was registered in this lake and replaced or dropped since"
    if owner == _SCHEDULED:
        return "is scheduled for deletion in this lake"
    return "belongs to another table of this lake, and a file can have only one owner"


def _known(session: Session, data_path: str) -> dict[Location, int]:
    """Return the owner of every object of the catalog: a table id, or one of the marks above."""
    directories = table_directories(session, data_path)
    known = {}
    for path, relative in session.rows(
        "SELECT path, path_is_relative FROM {ducklake_files_scheduled_for_deletion}"
    ):
        full = join(data_path, path) if relative else path
        known[Location.parse(full).real()] = _SCHEDULED
    query = "SELECT table_id, path, path_is_relative, end_snapshot FROM {ducklake_data_file}"
    for table_id, path, relative, end in session.rows(query):
        full = full_path(directories, int(table_id), path, relative)
        known[Location.parse(full).real()] = int(table_id) if end is None else _RETIRED
    return known
