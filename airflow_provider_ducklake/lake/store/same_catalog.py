"""Whether a catalog that is there already is the one somebody asks to be made."""

from __future__ import annotations

from typing import Any

import psycopg

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.store.registry import CatalogEntry

Connection = psycopg.Connection[tuple[Any, ...]]


def lock_name(connection: Connection, name: str) -> None:
    """Let one at a time make a catalog of a name; held until the transaction ends.

    Whoever waits looks after the other is done, and so finds what that one made.
    """
    connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended('ducklake.catalog:' || lower(%s), 0))",
        (name,),
    )


def require_same(
    connection: Connection,
    found: CatalogEntry,
    *,
    root: str | None,
    encrypted: bool | None = None,
    source: str | None = None,
    snapshot_id: int | None = None,
) -> None:
    """Refuse a catalog that is not the one that was asked for.

    Args:
        connection: A transaction on the store.
        found: The catalog that is there.
        root: The root asked for; None is any.
        encrypted: Whether it is to be encrypted; None is any.
        source: What it is to be a fork of; None is nothing.
        snapshot_id: Snapshot at which it is to be forked; None is any.

    Raises:
        ConfigurationError: It differs; the message names both.
    """
    if source is None and found.parent_snapshot is not None:
        raise _differs(found, _origin(found), "no fork")
    if source is not None and (found.parent is None or found.parent.lower() != source.lower()):
        raise _differs(found, _origin(found), f"one of {source!r}")
    if snapshot_id not in (None, found.parent_snapshot):
        raise _differs(
            found, f"a fork at snapshot {found.parent_snapshot}", f"one at snapshot {snapshot_id}"
        )
    if root is not None:
        same = "SELECT ducklake.place(%s) = ducklake.place(rtrim(%s, '/') || '/')"
        if connection.execute(same, (found.root, root)).fetchone() != (True,):
            raise _differs(found, f"at the root {found.root}", f"at {root}")
    if encrypted is not None:
        stored = connection.execute(
            "SELECT m.value FROM ducklake.ducklake_metadata m "
            "WHERE m.catalog_id = %s AND m.key = 'encrypted' AND m.scope IS NULL",
            (found.catalog_id,),
        ).fetchone()
        if encrypted != (stored == ("true",)):
            words = ("encrypted", "without encryption")
            raise _differs(found, words[encrypted], words[not encrypted])


def _origin(found: CatalogEntry) -> str:
    if found.parent_snapshot is None:
        return "no fork"
    return f"a fork of {found.parent!r}" if found.parent else "a fork of a catalog that is gone"


def _differs(found: CatalogEntry, is_: str, asked: str) -> ConfigurationError:
    return ConfigurationError(
        f"catalog {found.name!r} exists already and is {is_}, not {asked}: take another name, or "
        "ask for the one that is there"
    )
