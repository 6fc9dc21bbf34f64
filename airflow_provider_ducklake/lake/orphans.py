"""Orphaned files: objects under a lake's data path that its catalog does not refer to.

The listing is kept in a private database on the local disk, a row for each data file, and what the
catalog refers to is struck out of it one by one: neither has to fit into memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from airflow_provider_ducklake.lake.errors import SafetyRefusal, StorageError
from airflow_provider_ducklake.lake.lake import LakeView
from airflow_provider_ducklake.lake.paths import Location
from airflow_provider_ducklake.lake.references import scheduled_locations, used_locations
from airflow_provider_ducklake.lake.results import Skipped
from airflow_provider_ducklake.storage import ObjectInfo

_DATA_LIKE: Final = (".parquet", ".puffin")
MAX_FRACTION: Final = 0.5
_FEW: Final = 20  # so few files are no sign of a mistaken root
_ORPHAN, _YOUNG, _SCHEDULED, _USED = range(4)  # what a listed data file is; the last one counts
_REASONS: Final = {
    _YOUNG: "too young",
    _SCHEDULED: "scheduled (cleanup_old_files deletes it)",
    _USED: "in use",
}


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object nobody refers to, old enough to be of no running job."""

    path: str
    size: int
    last_modified: datetime


class Listing:
    """The data files under a lake's data path, and which of them are orphans."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; "
            "CREATE TABLE listed (location TEXT PRIMARY KEY, path TEXT, size INTEGER, "
            "modified TEXT, kind INTEGER) WITHOUT ROWID; BEGIN"
        )
        self._others = 0

    def add(self, objects: Iterable[ObjectInfo], root: Location, cutoff: datetime) -> None:
        """Take in all objects under the data path, before the references are read.

        Args:
            objects: As listed.
            root: The data path, without symbolic links.
            cutoff: Only objects last modified before this instant are orphans.

        Raises:
            SafetyRefusal: An object lies outside the root.
        """
        self._connection.executemany(
            # Links may lead to one object by several names; of those the youngest counts.
            "INSERT INTO listed VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (location) DO UPDATE SET kind = max(kind, excluded.kind)",
            self._rows(objects, root, cutoff),
        )

    def _rows(
        self, objects: Iterable[ObjectInfo], root: Location, cutoff: datetime
    ) -> Iterator[tuple[object, ...]]:
        for item in objects:
            location = item.location.real()
            if not location.is_under(root):
                raise SafetyRefusal(
                    f"the listing of {root.url} holds {location.url}, which does not lie under "
                    "it; nothing was deleted"
                )
            if not location.name.endswith(_DATA_LIKE):
                self._others += 1
                continue
            key, path = location.path, item.path
            kind = _YOUNG if item.last_modified >= cutoff else _ORPHAN
            other = None if path == key else path
            yield key, other, item.size, item.last_modified.isoformat(), kind

    def strike(self, view: LakeView) -> None:
        """Strike out what the catalog refers to.

        Raises:
            DamagedLake, BadInput, ConfigurationError: As `used_locations`.
        """
        self.strike_out(
            used_locations(view.session, view.data_path),
            scheduled_locations(view.session, view.data_path),
        )

    def strike_out(self, used: Iterable[Location], scheduled: Iterable[Location]) -> None:
        """Strike out some locations that tables use, and some that are scheduled for deletion."""
        for kind, locations in ((_USED, used), (_SCHEDULED, scheduled)):
            self._connection.executemany(
                "UPDATE listed SET kind = ? WHERE location = ? AND kind < ?",
                ((kind, location.path, kind) for location in locations),
            )

    def orphans(self) -> tuple[int, int]:
        """Return how many orphans there are, and their bytes."""
        (found,) = self._connection.execute(
            "SELECT count(*), coalesce(sum(size), 0) FROM listed WHERE kind = ?", (_ORPHAN,)
        )
        return int(found[0]), int(found[1])

    def require_share(self, root: Location, max_fraction: float) -> None:
        """Refuse when too large a share of the data files would go.

        Raises:
            SafetyRefusal: It would.
        """
        orphans, _ = self.orphans()
        (found,) = self._connection.execute("SELECT count(*) FROM listed")
        if orphans > max(_FEW, found[0] * max_fraction):
            raise SafetyRefusal(
                f"{orphans} of {found[0]} data files under {root.url} would go, more than "
                f"max_fraction {max_fraction:g} allows. If this is the right lake and the right "
                "catalog, run it again with a larger max_fraction"
            )

    def skipped(self) -> list[Skipped]:
        """Return how many other objects there are, by reason."""
        found = self._connection.execute(
            "SELECT kind, count(*) FROM listed WHERE kind <> ? GROUP BY kind", (_ORPHAN,)
        )
        reasons = {_REASONS[kind]: int(count) for kind, count in found}
        if self._others:
            reasons["not a data file"] = self._others
        return [Skipped(reason, count) for reason, count in sorted(reasons.items())]

    def batches(self, size: int) -> Iterator[list[Orphan]]:
        """Yield the orphans, so many at a time, in the order of their locations."""
        after = ""
        while True:
            rows = self._connection.execute(
                "SELECT location, coalesce(path, location), size, modified FROM listed "
                "WHERE kind = ? AND location > ? ORDER BY location LIMIT ?",
                (_ORPHAN, after, size),
            ).fetchall()
            if not rows:
                return
            after = rows[-1][0]
            yield [
                Orphan(path, bytes_, datetime.fromisoformat(modified))
                for _, path, bytes_, modified in rows
            ]


@contextmanager
def open_listing(directory: str) -> Iterator[Listing]:
    """Yield an empty listing that lies in a local directory.

    Raises:
        StorageError: The disk does not take it.
    """
    try:
        path = Path(directory, "listing")
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            yield Listing(connection)
    except sqlite3.Error as error:
        raise StorageError(
            f"the listing cannot be kept in {directory} ({error}): what is not deleted yet stays. "
            "It takes some 200 bytes of that disk for each data file"
        ) from error


def refuse_shared_root(view: LakeView) -> None:
    """Refuse when another lake of the same database keeps files under or above this data path.

    Raises:
        SafetyRefusal: Such a lake exists; its files would look like orphans of this one.
    """
    root = Location.parse(view.data_path).real()
    for schema, path in view.session.sibling_data_paths():
        other = Location.parse(path).real()
        if other == root or other.is_under(root) or root.is_under(other):
            raise SafetyRefusal(
                f"the lake in schema {schema!r} of the same database keeps its files at {path}, "
                f"which shares a root with {view.data_path}: its files would look like orphans. "
                "Give each lake its own data path"
            )
