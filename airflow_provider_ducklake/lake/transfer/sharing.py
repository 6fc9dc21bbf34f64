"""Files of an imported catalog that other catalogs of the store have too.

A file must have one owner, who deletes it when the last reader has let go. So a file that lies
under the root of another catalog keeps the id it has there, and the import joins its readers, as a
fork does.
"""

from __future__ import annotations

from typing import Any

import psycopg

from airflow_provider_ducklake.lake.errors import SafetyRefusal, UnsupportedCatalog
from airflow_provider_ducklake.lake.transfer.rows import Tables

Connection = psycopg.Connection[tuple[Any, ...]]

_OWNERS = """
    SELECT DISTINCT c.catalog_id
    FROM unnest(%s::text[]) AS i (path)
    JOIN ducklake.ducklake_catalog c
        ON ducklake.place(c.root) = ANY (ducklake.directories(ducklake.place(i.path)))
    WHERE c.catalog_id <> %s
"""
_LOCK = "UPDATE ducklake.ducklake_catalog SET forks = forks + 1 WHERE catalog_id = ANY (%s)"
_MATCHES = """
    WITH known AS (
        SELECT s.file_id, s.owner_id, s.path, true AS is_shared
        FROM ducklake.shared_file s WHERE s.owner_id = ANY (%(owners)s)
        UNION ALL
        SELECT f.file_id, o.owner_id, f.full_path, false
        FROM unnest(%(owners)s::bigint[]) AS o (owner_id)
        CROSS JOIN LATERAL ducklake.files_of(o.owner_id, NULL) f
        WHERE NOT EXISTS (SELECT FROM ducklake.shared_file s WHERE s.file_id = f.file_id)
    )
    SELECT i.old_id, k.file_id, k.owner_id, k.path, k.is_shared
    FROM unnest(%(ids)s::bigint[], %(paths)s::text[]) AS i (old_id, path)
    JOIN known k ON ducklake.place(k.path) = ducklake.place(i.path)
"""
_UNKNOWN = """
    SELECT i.path, c.catalog_name
    FROM unnest(%s::bigint[], %s::text[]) AS i (old_id, path)
    JOIN ducklake.ducklake_catalog c
        ON ducklake.place(c.root) = ANY (ducklake.directories(ducklake.place(i.path)))
    WHERE c.catalog_id <> %s AND NOT i.old_id = ANY (%s::bigint[])
    LIMIT 1
"""


def join_readers(connection: Connection, catalog_id: int, tables: Tables) -> dict[int, int]:
    """Make a new catalog a reader of the files that other catalogs of the store own.

    Args:
        connection: A transaction of the service on the store.
        catalog_id: The new catalog.
        tables: Its metadata, with paths as they will be stored.

    Returns:
        Id of a file in the metadata -> its id in the store.

    Raises:
        SafetyRefusal: A file lies under the root of a catalog that does not know it any more.
        UnsupportedCatalog: The metadata name one file twice.
    """
    ids, paths = _absolute(tables)
    found = connection.execute(_OWNERS, (paths, catalog_id)).fetchall() if ids else []
    if not found:
        return {}
    owners = [owner for (owner,) in found]
    # From here on nobody schedules a file of theirs, see keep_shared_files in 4_sharing.sql.
    connection.execute(_LOCK, (owners,))
    matches = connection.execute(
        _MATCHES, {"owners": owners, "ids": ids, "paths": paths}
    ).fetchall()
    shared = {int(match[0]): int(match[1]) for match in matches}
    unknown = connection.execute(_UNKNOWN, (ids, paths, catalog_id, list(shared))).fetchone()
    if unknown is not None:
        raise SafetyRefusal(
            f"{unknown[0]} lies under the root of catalog {unknown[1]!r}, which does not read it "
            "(any more) and may delete it: copy the data, or import the catalog it is part of"
        )
    if len(set(shared.values())) < len(matches):
        raise UnsupportedCatalog(
            "the catalog names a file of another catalog twice, which cannot be shared"
        )
    _enter(connection, catalog_id, matches)
    return shared


def _absolute(tables: Tables) -> tuple[list[int], list[str]]:
    pairs = [
        (int(record[f"{kind}_id"]), str(record["path"]))
        for kind in ("data_file", "delete_file")
        for record in tables[f"ducklake_{kind}"].records()
        if not record["path_is_relative"]
    ]
    return [file_id for file_id, _ in pairs], [path for _, path in pairs]


def _enter(connection: Connection, catalog_id: int, matches: list[tuple[Any, ...]]) -> None:
    known = [file_id for _, file_id, _, _, is_shared in matches if is_shared]
    fresh = [
        (file_id, owner, path) for _, file_id, owner, path, is_shared in matches if not is_shared
    ]
    connection.execute(
        "UPDATE ducklake.shared_file SET readers = readers + 1 WHERE file_id = ANY (%s)", (known,)
    )
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO ducklake.shared_file (file_id, owner_id, path, readers) "
            "VALUES (%s, %s, %s, 2)",
            fresh,
        )
        cursor.executemany(
            "INSERT INTO ducklake.file_reader (file_id, catalog_id) VALUES (%s, %s)",
            [(file_id, owner) for file_id, owner, _ in fresh]
            + [(file_id, catalog_id) for _, file_id, *_ in matches],
        )
