"""What a store says of itself and of its catalogs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg

from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.errors import NotFound

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """What a store is.

    Attributes:
        version: Its layout's version.
        root: Directory or URL under which catalogs have their own, ending in `/`.
        catalogs: How many there are.
        dropped: How many were dropped and have files that wait for deletion.
        size: Bytes of its tables and indexes in the database.
    """

    version: int
    root: str
    catalogs: int
    dropped: int
    size: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One catalog of a store.

    Attributes:
        name: Its name, unique in the store whatever the case of its letters.
        catalog_id: Its id.
        uuid: Its uuid.
        parent: Name of the catalog it is a fork of, if that one is still there.
        parent_snapshot: Snapshot at which it was forked.
        lineage: Name of the catalog at the root of its forks, if that one is still there.
        root: Where its files go, ending in `/`.
        size: Bytes of the live data files of its tables.
        created_at: When it was created.
    """

    name: str
    catalog_id: int
    uuid: UUID
    parent: str | None
    parent_snapshot: int | None
    lineage: str | None
    root: str
    size: int
    created_at: datetime

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values JSON knows."""
        return asdict(self) | {"uuid": str(self.uuid), "created_at": self.created_at.isoformat()}


def read_status(connection: Connection) -> StoreStatus:
    """Return what the store is."""
    found = connection.execute(
        """
        SELECT s.version, s.root,
            (SELECT count(*) FROM ducklake.ducklake_catalog WHERE state = 'live'),
            (SELECT count(*) FROM ducklake.ducklake_catalog WHERE state = 'dropped'),
            (SELECT sum(pg_total_relation_size(r.oid)) FROM pg_class r
             WHERE r.relnamespace = 'ducklake'::regnamespace AND r.relkind = 'r')
        FROM ducklake.store s
        """
    ).fetchone()
    assert found is not None
    version, root, catalogs, dropped, size = found
    return StoreStatus(int(version), str(root), int(catalogs), int(dropped), int(size))


def find_catalog(connection: Connection, name: str) -> CatalogEntry | None:
    """Return the live catalog of a name, letters of any case; None if there is none."""
    found = _entries(connection, "lower(c.catalog_name) = lower(%s)", name, None)
    return found[0] if found else None


def get_catalog(connection: Connection, name: str) -> CatalogEntry:
    """Return the live catalog of a name; raises NotFound."""
    found = find_catalog(connection, name)
    if found is None:
        raise NotFound(f"there is no catalog {name!r} in the store")
    return found


def list_catalogs(
    connection: Connection, pattern: str, limit: int | None = None
) -> list[CatalogEntry]:
    """Return the live catalogs whose names match a LIKE pattern, by name; letters of any case."""
    return _entries(connection, "lower(c.catalog_name) LIKE lower(%s)", pattern, limit)


def _entries(
    connection: Connection, condition: str, value: str, limit: int | None
) -> list[CatalogEntry]:
    query = f"""
        SELECT c.catalog_name, c.catalog_id, c.catalog_uuid, p.catalog_name, c.parent_snapshot,
            l.catalog_name, c.root, coalesce(n.size, 0), c.created_at
        FROM (
            SELECT * FROM ducklake.ducklake_catalog c WHERE c.state = 'live' AND {condition}
            ORDER BY c.catalog_name LIMIT %s
        ) c
        LEFT JOIN ducklake.ducklake_catalog p ON p.catalog_id = c.parent_id AND p.state = 'live'
        LEFT JOIN ducklake.ducklake_catalog l ON l.catalog_id = c.lineage_id AND l.state = 'live'
        CROSS JOIN LATERAL (
            SELECT sum(greatest(f.file_size_bytes, 0)) AS size FROM ducklake.ducklake_data_file f
            WHERE f.catalog_id = c.catalog_id AND f.end_snapshot IS NULL AND f.table_id >= 0
        ) n
        ORDER BY c.catalog_name
    """
    rows = connection.execute(query.encode(), (value, limit)).fetchall()
    entries = (CatalogEntry(*row) for row in rows)
    return [replace(entry, size=int(entry.size)) for entry in entries]


def sign_catalog(connection: Connection, entry: CatalogEntry, info: CommitInfo) -> None:
    """Note beside the first snapshot of a new catalog who made it, and as which job."""
    told = info.text(info.key, uuid4().hex, None) if info.key else None
    connection.execute(
        "UPDATE ducklake.ducklake_snapshot_changes "
        "SET author = %s, commit_message = %s, commit_extra_info = %s WHERE catalog_id = %s",
        (info.author, info.message, told, entry.catalog_id),
    )
