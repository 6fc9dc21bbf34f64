"""The lakes of the client matrix: made by this package, one of each kind and two in a store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.conninfo import make_conninfo

from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.store.store import CatalogStore
from airflow_provider_ducklake.lake.transfer.read_source import read_catalog
from airflow_provider_ducklake.spark.operations import ingest_batches, run_operation
from airflow_provider_ducklake.spark.runner import LocalRunner

# Those of a store twice: as the service, and as a tenant with rights on the views alone.
KINDS: Final = ("store, tenant", "store, service", "postgres", "sqlite", "duckdb")
History = dict[str, dict[int, list[list[Any]]]]


@dataclass(frozen=True, slots=True)
class MatrixLake:
    """One lake that a client goes through.

    Attributes:
        location: The lake as the client opens it.
        data_path: Directory of its files.
        store: libpq string of the superuser of its store's database; None for a lake of its own.
        name: Its catalog there.
        history: Table to snapshot to rows, of what we wrote.
    """

    location: CatalogLocation
    data_path: str
    store: str | None
    name: str
    history: History

    def place(self, history: History, *, writes: bool) -> dict[str, Any]:
        """Return what a client needs to know to go through it."""
        schema = self.location.metadata_schema
        return {
            "attach": self.location.attach_string,
            "options": {"METADATA_SCHEMA": f"'{schema}'"} if schema else {},
            "data_path": self.data_path,
            "history": history,
            "writes": writes,
        }

    def maintain(self) -> str | None:
        """Run our own upkeep on what the client left behind; return what went wrong."""
        for operation, options in (
            ("flush_inlined_data", {}),
            ("merge_adjacent_files", {}),
            ("rewrite_data_files", {"delete_threshold": "0.01"}),
            ("cleanup_old_files", {}),
            ("delete_orphaned_files", {}),
        ):
            result = run_operation(operation, self._ours(), options, runner=LocalRunner())
            if result.is_failed:
                told = [*result.failures, *(t.error for t in result.failed_tables)]
                return f"{operation}: {told[0]}"
        return None

    def fingerprint(self) -> str:
        """Return a digest of the whole catalog: equal means that nothing was changed."""
        return _digest(read_catalog(self._ours().location))

    def neighbours(self) -> str:
        """Return a digest of every row and file of the other catalogs of its store."""
        if self.store is None:
            return ""
        found: list[Any] = []
        with psycopg.connect(self.store) as connection:
            for (table,) in connection.execute(
                "SELECT table_name FROM information_schema.columns WHERE table_schema = 'ducklake' "
                "AND column_name = 'catalog_id' ORDER BY 1"
            ).fetchall():
                query = sql.SQL(
                    "SELECT t::text FROM {} t WHERE catalog_id <> (SELECT catalog_id FROM "
                    "ducklake.ducklake_catalog WHERE catalog_name = %s) ORDER BY 1"
                ).format(sql.Identifier("ducklake", table))
                found.append((table, connection.execute(query, (self.name,)).fetchall()))
            roots = connection.execute(
                "SELECT root FROM ducklake.ducklake_catalog WHERE catalog_name <> %s", (self.name,)
            ).fetchall()
        for (root,) in roots:
            files = (path for path in Path(root).rglob("*") if path.is_file())
            found += sorted((str(path), path.stat().st_size) for path in files)
        return _digest(found)

    def _ours(self) -> Lake:
        if self.store is None:
            return Lake.open(self.location)
        return Lake.open(
            CatalogLocation.parse(f"ducklake:postgres:{self.store}", catalog=self.name)
        )


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


@contextmanager
def matrix_lake(kind: str, directory: Path, server: str, name: str) -> Iterator[MatrixLake]:
    """Make a lake and write three snapshots and a merge into it.

    Args:
        kind: One of `KINDS`.
        directory: Where its files go.
        server: libpq string of a superuser of a PostgreSQL server, without a database.
        name: For its schema, its database or its catalog; not used before.
    """
    directory.mkdir(parents=True)
    if kind.startswith("store"):
        yield _in_store(directory, server, name, tenant=kind.endswith("tenant"))
        return
    attach = f"ducklake:{kind}:{directory}/catalog.{kind}"
    if kind == "postgres":
        attach = f"ducklake:postgres:{make_conninfo(server, dbname='postgres')}"
    location = CatalogLocation.parse(
        attach,
        data_path=f"{directory}/data/",
        metadata_schema=name if kind == "postgres" else None,
    )
    Lake.create(location)
    history = _written(Lake.open(location), "ours")
    yield MatrixLake(location, f"{directory}/data/", None, name, history)


def _in_store(directory: Path, server: str, name: str, *, tenant: bool) -> MatrixLake:
    administrator = make_conninfo(server, dbname="postgres")
    with psycopg.connect(administrator, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    superuser = make_conninfo(server, dbname=name)
    store = CatalogStore(superuser)
    store.init(f"{directory}/")
    with psycopg.connect(superuser, autocommit=True) as connection:
        role = sql.Identifier(f"role_{name}")
        member = sql.SQL("" if tenant else "IN ROLE ducklake_service")
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN {}").format(role, member))
    # Two neighbours: one on each side in the range of ids, one of them with a fork of its files.
    for neighbour in ("before", name, "after"):
        # Only the service may create the tables for inlined rows.
        store.create_catalog(neighbour, inlining_row_limit=0 if tenant else None)
        _written(_ours(superuser, neighbour), "ours" if neighbour == name else "theirs")
    store.fork_catalog("before", "fork")
    if tenant:
        store.grant(name, f"role_{name}")
    location = CatalogLocation.parse(
        f"ducklake:postgres:{make_conninfo(superuser, user=f'role_{name}')}", catalog=name
    )
    history = _history_of(_ours(superuser, name), "ours")
    return MatrixLake(location, f"{directory}/{name}/", superuser, name, history)


def _ours(superuser: str, catalog: str) -> Lake:
    return Lake.open(CatalogLocation.parse(f"ducklake:postgres:{superuser}", catalog=catalog))


def _written(lake: Lake, table: str) -> History:
    run_operation(
        "create_table",
        lake,
        {"columns": "id int64, v varchar"},
        runner=LocalRunner(),
        tables=(table,),
    )
    for start in (0, 100, 200):
        ids = list(range(start, start + 100))
        batch = pa.record_batch({"id": ids, "v": [f"v{i}" if i % 5 else None for i in ids]})
        ingest_batches(lake, table, [batch])
    run_operation("merge_adjacent_files", lake, {}, runner=LocalRunner())
    return _history_of(lake, table)


def _history_of(lake: Lake, table: str) -> History:
    """Return what each snapshot of a table of ours shows: by its creation, three times more."""
    newest = lake.head().snapshot_id
    rows = [[i, f"v{i}" if i % 5 else None] for i in range(300)]
    counts = {newest - 4: 0, newest - 3: 100, newest - 2: 200, newest - 1: 300, newest: 300}
    return {table: {at: rows[:count] for at, count in counts.items()}}
