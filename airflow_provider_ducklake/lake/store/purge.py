"""Deleting the files of dropped catalogs, once their grace has passed and no fork reads them.

Two phases as everywhere: the catalog's drop scheduled the files; here they are deleted and then
forgotten, a batch at a time. What cannot be deleted stays scheduled and is reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg

from airflow_provider_ducklake.lake.errors import LakeError, SafetyRefusal, StorageError
from airflow_provider_ducklake.lake.instants import parse_cutoff
from airflow_provider_ducklake.lake.paths import Location, join
from airflow_provider_ducklake.storage import DeleteOutcome, StorageOptions, open_store

Connection = psycopg.Connection[tuple[Any, ...]]
Transaction = Callable[[], AbstractContextManager[Connection]]
# Readers of a snapshot that was there a moment ago, and commits under way, still need their files.
FLOOR: Final = timedelta(days=2)
_BATCH: Final = 10_000  # files looked up, deleted and forgotten at a time


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """What a purge did, or would do.

    Attributes:
        dry_run: Nothing was done; the counts say what would be.
        catalogs: Dropped catalogs of which nothing is left; their roots are free again.
        files_deleted: Files that were deleted.
        files_missing: Files that were gone already; a dry run does not look.
        files_forgotten: Files outside their catalog's root, which somebody else wrote and keeps.
        failed: Files that could not be deleted, with the reason, at most 20 of them.
    """

    dry_run: bool = False
    catalogs: int = 0
    files_deleted: int = 0
    files_missing: int = 0
    files_forgotten: int = 0
    failed: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)

    def require_all(self) -> None:
        """Raise StorageError when there are files that could not be deleted."""
        if self.failed:
            path, reason = self.failed[0]
            raise StorageError(
                f"{len(self.failed)} files or more of dropped catalogs cannot be deleted, first "
                f"{path}: {reason}; {self.files_deleted} others are"
            )


@dataclass(frozen=True, slots=True)
class _File:
    catalog_id: int
    file_id: int
    path: str
    root: str
    is_ours: bool


def purge(
    transaction: Transaction,
    storage: StorageOptions,
    older_than: str,
    *,
    force: bool = False,
    dry_run: bool = False,
) -> PurgeResult:
    """Delete what dropped catalogs have scheduled.

    Args:
        transaction: Opens a short transaction of the service role.
        storage: How the files are reached.
        older_than: How long files must have been scheduled, or before which instant.
        force: Allow less than two days.
        dry_run: Only count.

    Raises:
        ConfigurationError: `older_than` is neither an age nor an instant.
        SafetyRefusal: It is less than two days, without force.
    """
    with transaction() as connection:
        cutoff = _cutoff(connection, older_than, force)
        if dry_run:
            return _expected(connection, cutoff)
    deleted = missing = forgotten = 0
    failed: dict[str, str] = {}
    seen = (0, 0)
    while True:
        with transaction() as connection:
            files = _scheduled(connection, cutoff, seen)
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
        gone = connection.execute(_REMOVE_EMPTY.encode()).rowcount
    return PurgeResult(False, gone, deleted, missing, forgotten, tuple(failed.items())[:20])


def _cutoff(connection: Connection, older_than: str, force: bool) -> datetime:
    """Return the instant before which files go, by the clock that scheduled them."""
    found = connection.execute("SELECT now()").fetchone()
    assert found is not None
    (now,) = found
    cutoff = parse_cutoff(older_than, now)
    if cutoff > now - FLOOR and not force:
        raise SafetyRefusal(
            f"older_than {older_than!r} would delete files of catalogs dropped less than "
            f"{FLOOR.days} days ago, which a running reader may still need; wait, or give "
            "force=true (--force) if nobody reads them"
        )
    return cutoff


def _expected(connection: Connection, cutoff: datetime) -> PurgeResult:
    """Count what a purge would do."""
    deleted = forgotten = 0
    seen = (0, 0)
    while files := _scheduled(connection, cutoff, seen):
        seen = (files[-1].catalog_id, files[-1].file_id)
        ours = sum(file.is_ours for file in files)
        deleted, forgotten = deleted + ours, forgotten + len(files) - ours
    found = connection.execute(_WOULD_BE_EMPTY.encode(), (cutoff,)).fetchone()
    assert found is not None
    return PurgeResult(True, int(found[0]), deleted, 0, forgotten)


def _scheduled(connection: Connection, cutoff: datetime, after: tuple[int, int]) -> list[_File]:
    rows = connection.execute(
        """
        SELECT f.catalog_id, f.data_file_id, f.path, f.path_is_relative, c.root
        FROM ducklake.ducklake_catalog c
        JOIN ducklake.ducklake_files_scheduled_for_deletion f ON f.catalog_id = c.catalog_id
        WHERE c.state = 'dropped' AND f.schedule_start < %s
            AND (f.catalog_id, f.data_file_id) > (%s, %s)
        ORDER BY f.catalog_id, f.data_file_id LIMIT %s
        """,
        (cutoff, *after, _BATCH),
    )
    files = []
    for catalog, file, path, relative, root in rows:
        full = join(root, path) if relative else path
        files.append(_File(catalog, file, full, root, _is_under(full, root)))
    return files


def _is_under(path: str, root: str) -> bool:
    try:
        # A link below the root may lead into somebody else's.
        return Location.parse(path).real().is_under(Location.parse(root).real())
    except LakeError:
        # A tenant may have scheduled any text: one that is no path is none of ours.
        return False


def _forget(connection: Connection, files: Sequence[_File]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            "DELETE FROM ducklake.ducklake_files_scheduled_for_deletion "
            "WHERE catalog_id = %s AND data_file_id = %s",
            [(file.catalog_id, file.file_id) for file in files],
        )


_WOULD_BE_EMPTY: Final = """
    SELECT count(*) FROM ducklake.ducklake_catalog c
    WHERE c.state = 'dropped'
        AND NOT EXISTS (SELECT FROM ducklake.ducklake_files_scheduled_for_deletion f
                        WHERE f.catalog_id = c.catalog_id AND f.schedule_start >= %s)
        AND NOT EXISTS (SELECT FROM ducklake.shared_file s WHERE s.owner_id = c.catalog_id)
"""
_REMOVE_EMPTY: Final = """
    DELETE FROM ducklake.ducklake_catalog c
    WHERE c.state = 'dropped'
        AND NOT EXISTS (SELECT FROM ducklake.ducklake_files_scheduled_for_deletion f
                        WHERE f.catalog_id = c.catalog_id)
        AND NOT EXISTS (SELECT FROM ducklake.shared_file s WHERE s.owner_id = c.catalog_id)
"""
