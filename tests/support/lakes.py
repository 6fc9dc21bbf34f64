"""Fresh lakes of the three kinds, and their catalogs read without any DuckLake client."""

from __future__ import annotations

import functools
import hashlib
import itertools
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import duckdb
import psycopg
import pytest
from psycopg import sql

from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.metadata_tables import BY_NAME
from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.support.reference import ReferenceClient

# The fourth is a catalog of a shared store in PostgreSQL.
LakeKind = Literal["sqlite", "duckdb", "postgres", "store"]
KINDS: Final[tuple[LakeKind, ...]] = ("sqlite", "duckdb", "postgres", "store")

# For tests of what is decided above the database; the store has views and triggers in between.
on_two_kinds: Final = pytest.mark.parametrize("lake_factory", ["sqlite", "store"], indirect=True)


def on_every_kind(
    names: Sequence[str], cases: Sequence[tuple[object, ...]], everywhere: tuple[object, ...]
) -> pytest.MarkDecorator:
    """Return the parameters of a test whose cases have little to do with the kind of lake.

    Args:
        names: Arguments of the test, besides the lake.
        cases: Their values; all are tried on SQLite.
        everywhere: The one of them that is tried on the other kinds too.
    """
    first, *others = KINDS
    return pytest.mark.parametrize(
        ("lake_factory", *names),
        [*((first, *case) for case in cases), *((kind, *everywhere) for kind in others)],
        indirect=["lake_factory"],
    )


# Table name -> its rows, each a dictionary, in a stable order.
CatalogRows: TypeAlias = dict[str, list[dict[str, Any]]]
_NUMBER: Final = count()


@dataclass(frozen=True, slots=True)
class LakeUnderTest:
    """One lake of a test.

    Attributes:
        kind: Which database holds its catalog.
        attach_string: What goes between the quotes of ATTACH.
        data_path: Directory of the Parquet files, ending in `/`.
        location: The same lake in this package's words, as a caller would give it.
        directory: Scratch directory of the test; holds the data and file catalogs.
    """

    kind: LakeKind
    attach_string: str
    data_path: str
    location: CatalogLocation
    directory: Path

    def client(self, **options: str) -> ReferenceClient:
        """Return a new reference client of this lake; the first one creates the lake.

        Args:
            **options: Further ATTACH options, names to SQL literals.
        """
        if self.location.catalog is not None:
            # Nobody asks for inlining: clients do as they do in a lake of their own.
            CatalogStore.at(self.location).create_catalog(
                self.location.catalog,
                root=self.data_path,
                inlining_row_limit=None,
                if_not_exists=True,
            )
        return ReferenceClient(
            self.attach_string,
            data_path=self.data_path if self.kind != "store" else None,
            metadata_schema=self.location.metadata_schema,
            options=options,
        )

    def stored_files(self) -> dict[str, int]:
        """Return every file below the data path (relative path -> bytes)."""
        root = Path(self.data_path)
        return {
            str(path.relative_to(root)): path.stat().st_size
            for path in root.rglob("*")
            if path.is_file()
        }


def stock_client(conninfo: str, catalog: str) -> ReferenceClient:
    """Return an unmodified client of one catalog of a store."""
    location = CatalogLocation.parse(f"ducklake:postgres:{conninfo}", catalog=catalog)
    return ReferenceClient(location.attach_string, metadata_schema=location.metadata_schema)


@dataclass(frozen=True, slots=True)
class LakeFactory:
    """Makes fresh lakes of one kind; in PostgreSQL each has a schema of its own.

    Attributes:
        conninfo: libpq string of a database, for lakes in PostgreSQL.
    """

    kind: LakeKind
    directory: Path
    conninfo: str | None = None

    def create(self) -> LakeUnderTest:
        """Return a lake that does not exist yet: whoever attaches first creates it."""
        directory = self.directory / f"lake{next(_NUMBER)}"
        directory.mkdir(parents=True)
        data_path = f"{directory}/data/"
        if self.conninfo is not None:
            attach = f"ducklake:postgres:{self.conninfo}"
        else:
            attach = f"ducklake:{self.kind}:{directory}/catalog.{self.kind}"
        location = CatalogLocation.parse(
            attach,
            metadata_schema=directory.name if self.kind == "postgres" else None,
            catalog=directory.name if self.kind == "store" else None,
        )
        return LakeUnderTest(self.kind, location.attach_string, data_path, location, directory)

    def remove(self, lake: LakeUnderTest) -> None:
        """Remove a lake with all it stored."""
        shutil.rmtree(lake.directory)
        if lake.location.catalog is not None:
            CatalogStore.at(lake.location).drop_catalog(lake.location.catalog, if_exists=True)
            return
        if lake.kind == "postgres" and lake.location.metadata_schema is not None:
            with psycopg.connect(lake.location.conninfo, autocommit=True) as connection:
                name = sql.Identifier(lake.location.metadata_schema)
                connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(name))


@pytest.fixture(scope="session")
def scratch_directory() -> Iterator[Path]:
    """A directory in memory where there is one: thousands of small commits wait for no disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


@pytest.fixture(params=KINDS)
def lake_factory(request: pytest.FixtureRequest, scratch_directory: Path) -> LakeFactory:
    """A maker of fresh lakes, for each kind of catalog."""
    kind: LakeKind = request.param
    database = {"postgres": "postgres_database", "store": "shared_store"}.get(kind)
    conninfo = request.getfixturevalue(database) if database else None
    return LakeFactory(kind, scratch_directory, conninfo)


@pytest.fixture
def lake_under_test(lake_factory: LakeFactory) -> Iterator[LakeUnderTest]:
    """One fresh lake of each kind."""
    lake = lake_factory.create()
    yield lake
    lake_factory.remove(lake)


def catalog_rows(lake: LakeUnderTest) -> CatalogRows:
    """Return all rows of all metadata tables, read by the database's own driver."""
    readers = {
        "sqlite": _sqlite_rows,
        "duckdb": _duckdb_rows,
        "postgres": _postgres_rows,
        "store": _store_rows,
    }
    found = readers[lake.kind](lake)
    return {name: sorted(rows, key=_order) for name, rows in sorted(found.items())}


def catalog_fingerprint(lake: LakeUnderTest) -> str:
    """Return a digest of the whole catalog: equal before and after means nothing changed."""
    digest = hashlib.sha256()
    for name, rows in catalog_rows(lake).items():
        digest.update(repr((name, rows)).encode())
    return digest.hexdigest()


def _store_rows(lake: LakeUnderTest) -> CatalogRows:
    with psycopg.connect(lake.location.conninfo, row_factory=psycopg.rows.dict_row) as connection:
        inlined = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'lake'::regnamespace "
            "AND relkind = 'r' AND substring(relname FROM '_(\\d+)')::bigint >> 32 "
            "= ducklake.current_catalog_id()"
        ).fetchall()
        names = [*BY_NAME, *(row["relname"] for row in inlined)]
        rows = {
            name: connection.execute(
                sql.SQL("SELECT * FROM {}").format(sql.Identifier("lake", name))
            ).fetchall()
            for name in names
        }
    for row in itertools.chain.from_iterable(rows.values()):
        row.pop("ctid", None)
    return rows


def _order(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


def _sqlite_rows(lake: LakeUnderTest) -> CatalogRows:
    connection = sqlite3.connect(f"file:{lake.location.target}?mode=ro", uri=True)
    try:
        connection.row_factory = sqlite3.Row
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: [
                dict(row) for row in connection.execute(f"SELECT * FROM {quote_identifier(name)}")
            ]
            for (name,) in names
        }
    finally:
        connection.close()


@functools.cache
def _duckdb_reader() -> duckdb.DuckDBPyConnection:
    """Return an instance for all looks: making one takes longer than a look does."""
    return duckdb.connect(":memory:", config={"threads": 1})


def _duckdb_rows(lake: LakeUnderTest) -> CatalogRows:
    reader = _duckdb_reader()
    reader.execute(f"ATTACH {quote_literal(lake.location.target)} AS looked_at (READ_ONLY)")
    try:
        names = reader.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'looked_at'"
        ).fetchall()
        rows: CatalogRows = {}
        for (name,) in names:
            result = reader.execute(f"SELECT * FROM looked_at.{quote_identifier(name)}")
            columns = [column[0] for column in result.description or ()]
            rows[name] = [dict(zip(columns, row, strict=True)) for row in result.fetchall()]
        return rows
    finally:
        reader.execute("DETACH looked_at")


def _postgres_rows(lake: LakeUnderTest) -> CatalogRows:
    schema = lake.location.metadata_schema
    with psycopg.connect(lake.location.conninfo, row_factory=psycopg.rows.dict_row) as connection:
        names = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema]
        ).fetchall()
        return {
            row["tablename"]: connection.execute(
                sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema or "", row["tablename"]))
            ).fetchall()
            for row in names
        }
