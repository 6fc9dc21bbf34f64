"""The store's ledger of maintenance: who did what to which catalog, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]

KEPT_DAYS: Final = 90


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One operation on one catalog.

    Attributes:
        catalog: Its name.
        operation: Name of the operation.
        started_at: When it began.
        seconds: How long it took.
        author: Who asked for it.
        changed: Whether it changed anything; what changed nothing is not planned again so soon.
        snapshot_id: The newest snapshot it made, or saw where it made none.
        files_in: Data files it read, or deleted.
        files_out: Data files it wrote.
        bytes_in: Bytes of those it read.
        bytes_out: Bytes of those it wrote.
        files_left: Data files that a limit left for the next run.
        error: One line, when it failed.
    """

    catalog: str
    operation: str
    started_at: datetime
    seconds: float
    author: str | None = None
    changed: bool = False
    snapshot_id: int | None = None
    files_in: int = 0
    files_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    files_left: int = 0
    error: str | None = None


def write_entries(connection: Connection, entries: Iterable[LedgerEntry]) -> None:
    """Add entries, and let go of those of the same catalogs that are older than `KEPT_DAYS`.

    An entry of a catalog that is gone by now is left out. Old ones that nothing newer follows stay.
    """
    entries = list(entries)
    with connection.cursor() as cursor:
        cursor.executemany(
            """
            INSERT INTO ducklake.maintenance_ledger (catalog_id, operation, started_at, seconds,
                author, changed, snapshot_id, files_in, files_out, bytes_in, bytes_out, files_left,
                error)
            SELECT c.catalog_id, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s
            FROM ducklake.ducklake_catalog c
            WHERE lower(c.catalog_name) = lower(%s) AND c.state = 'live'
            """,
            [
                (
                    entry.operation,
                    entry.started_at,
                    entry.seconds,
                    entry.author,
                    entry.changed,
                    entry.snapshot_id,
                    entry.files_in,
                    entry.files_out,
                    entry.bytes_in,
                    entry.bytes_out,
                    entry.files_left,
                    entry.error,
                    entry.catalog,
                )
                for entry in entries
            ],
        )
        cursor.execute(
            """
            DELETE FROM ducklake.maintenance_ledger l
            USING ducklake.ducklake_catalog c
            WHERE c.catalog_id = l.catalog_id AND c.state = 'live'
              AND lower(c.catalog_name) = ANY (%s)
              AND l.started_at < now() - make_interval(days => %s)
            """,
            ([entry.catalog.lower() for entry in entries], KEPT_DAYS),
        )
