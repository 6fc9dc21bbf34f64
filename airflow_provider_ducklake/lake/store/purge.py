"""Deleting the files of dropped catalogs, once their grace has passed and no fork reads them.

Two phases as everywhere: the catalog's drop scheduled the files; here they are deleted and then
forgotten, a batch at a time. What cannot be deleted stays scheduled and is reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any, Final

import psycopg

from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.lake.paths import Location, join
from airflow_provider_ducklake.storage import DeleteOutcome, StorageOptions, open_store

Connection = psycopg.Connection[tuple[Any, ...]]
Transaction = Callable[[], AbstractContextManager[Connection]]
_BATCH: Final = 10_000  # files looked up, deleted and forgotten at a time


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """What a purge did.

    Attributes:
        catalogs: Dropped catalogs of which nothing is left; their roots are free again.
        files_deleted: Files that were deleted.
        files_missing: Files that were gone already.
        files_forgotten: Files outside their catalog's root, which somebody else wrote and keeps.
        failed: Files that could not be deleted, with the reason, at most 20 of them.
    """

    catalogs: int = 0
    files_deleted: int = 0
    files_missing: int = 0
    files_forgotten: int = 0
    failed: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _File:
    catalog_id: int
    file_id: int
    path: str
    root: str

    @property
    def is_ours(self) -> bool:
        try:
            return Location.parse(self.path).is_under(Location.parse(self.root))
        except LakeError:
            # A tenant may have scheduled any text: one that is no path is none of ours.
            return False


def purge(transaction: Transaction, storage: StorageOptions, older_than: str) -> PurgeResult:
    """Delete what dropped catalogs have scheduled.

    Args:
        transaction: Opens a short transaction of the service role.
        storage: How the files are reached.
        older_than: How long files must have been scheduled, as PostgreSQL writes intervals.
    """
    deleted = missing = forgotten = 0
    failed: dict[str, str] = {}
    seen = (0, 0)
    while True:
        with transaction() as connection:
            files = _scheduled(connection, older_than, seen)
        if not files:
            break
        seen = (files[-1].catalog_id, files[-1].file_id)
        by_root: dict[str, list[_File]] = defaultdict(list)
        for file in files:
            if file.is_ours:
                by_root[file.root].append(file)
        outcome = DeleteOutcome()
        for root, own in by_root.items():
            outcome += open_store(root, storage).delete([file.path for file in own])
        failed |= dict(outcome.failed)
        done = [file for file in files if not file.is_ours or file.path not in failed]
        with transaction() as connection:
            _forget(connection, done)
        deleted += len(outcome.deleted)
        missing += len(outcome.missing)
        forgotten += sum(not file.is_ours for file in files)
    with transaction() as connection:
        connection.execute(_FORGET_NAMELESS.encode())
        gone = connection.execute(_REMOVE_EMPTY.encode()).rowcount
    return PurgeResult(gone, deleted, missing, forgotten, tuple(failed.items())[:20])


def _scheduled(connection: Connection, older_than: str, after: tuple[int, int]) -> list[_File]:
    rows = connection.execute(
        """
        SELECT f.catalog_id, f.data_file_id, f.path, f.path_is_relative, c.root
        FROM ducklake.ducklake_catalog c
        JOIN ducklake.ducklake_files_scheduled_for_deletion f ON f.catalog_id = c.catalog_id
        WHERE c.state = 'dropped' AND f.schedule_start < now() - %s::interval
            AND f.data_file_id IS NOT NULL AND (f.catalog_id, f.data_file_id) > (%s, %s)
        ORDER BY f.catalog_id, f.data_file_id LIMIT %s
        """,
        (older_than, *after, _BATCH),
    )
    return [
        _File(catalog, file, join(root, path) if relative else path, root)
        for catalog, file, path, relative, root in rows
    ]


def _forget(connection: Connection, files: Sequence[_File]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            "DELETE FROM ducklake.ducklake_files_scheduled_for_deletion "
            "WHERE catalog_id = %s AND data_file_id = %s",
            [(file.catalog_id, file.file_id) for file in files],
        )


# The column admits NULL, so a tenant can have left such a row; no file has no id.
_FORGET_NAMELESS: Final = """
    DELETE FROM ducklake.ducklake_files_scheduled_for_deletion f
    USING ducklake.ducklake_catalog c
    WHERE c.catalog_id = f.catalog_id AND c.state = 'dropped' AND f.data_file_id IS NULL
"""
_REMOVE_EMPTY: Final = """
    DELETE FROM ducklake.ducklake_catalog c
    WHERE c.state = 'dropped'
        AND NOT EXISTS (SELECT FROM ducklake.ducklake_files_scheduled_for_deletion f
                        WHERE f.catalog_id = c.catalog_id)
        AND NOT EXISTS (SELECT FROM ducklake.shared_file s WHERE s.owner_id = c.catalog_id)
"""
