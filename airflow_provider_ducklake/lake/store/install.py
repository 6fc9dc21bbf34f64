"""Making a store in a database and bringing it to the newest version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import psycopg
from psycopg import sql

from airflow_provider_ducklake.lake.errors import UnsupportedCatalog
from airflow_provider_ducklake.lake.store.layout import (
    OWNER,
    ROLES,
    SCHEMAS,
    SERVICE,
    STORE_VERSION,
    TENANT,
    statements,
)

Connection = psycopg.Connection[tuple[Any, ...]]
_LOCK: Final = 0x0D0C_1A4E  # advisory lock of whoever makes or upgrades the store
_OLDEST_SERVER: Final = 15


def lock(connection: Connection) -> None:
    """Let one at a time make or upgrade the store; held until the transaction ends."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))


def check_server(connection: Connection) -> None:
    """Raise UnsupportedCatalog where the server is too old."""
    version = connection.info.server_version // 10000
    if version < _OLDEST_SERVER:
        raise UnsupportedCatalog(
            f"a store needs PostgreSQL {_OLDEST_SERVER} or newer, this is {version}"
        )


def has_store(connection: Connection) -> bool:
    """Tell whether the database holds a store."""
    return connection.execute("SELECT to_regclass('ducklake.store')").fetchone() != (None,)


def create_store(connection: Connection, root: str) -> None:
    """Make roles, schemas, tables, views and functions; raises what the database refuses."""
    for role in ROLES:
        connection.execute(
            sql.SQL(
                "DO $$ BEGIN CREATE ROLE {} NOLOGIN; "
                "EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$"
            ).format(sql.Identifier(role))
        )
    _run(connection, f"GRANT {OWNER} TO CURRENT_USER")
    for schema in SCHEMAS:
        _run(connection, f"CREATE SCHEMA {schema} AUTHORIZATION {OWNER}")
    _run(connection, f"SET LOCAL ROLE {OWNER}")
    for statement in statements():
        _run(connection, statement)
    connection.execute(
        "INSERT INTO ducklake.store (version, root) VALUES (%s, %s)", (STORE_VERSION, root)
    )
    for statement in _grants():
        _run(connection, statement)
    connection.execute("RESET ROLE")
    _run(connection, f"GRANT {SERVICE} TO CURRENT_USER")


def _grants() -> Iterator[str]:
    """Yield who may do what: tenants see the views and nothing below them."""
    yield "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA ducklake FROM PUBLIC"
    for function in ("current_catalog_id()", "may_read(bigint)"):
        yield f"GRANT EXECUTE ON FUNCTION ducklake.{function} TO {TENANT}"
    yield f"GRANT USAGE ON SCHEMA lake, ducklake_api TO {TENANT}, {SERVICE}"
    rights = "SELECT, INSERT, UPDATE, DELETE"
    yield f"GRANT {rights} ON ALL TABLES IN SCHEMA lake TO {TENANT}, {SERVICE}"
    yield f"GRANT SELECT ON ALL TABLES IN SCHEMA ducklake_api TO {TENANT}, {SERVICE}"
    # Tables for inlined rows are made beside the views, by clients of the service role alone.
    yield f"GRANT CREATE ON SCHEMA lake TO {SERVICE}"
    yield f"GRANT USAGE ON SCHEMA ducklake TO {SERVICE}"
    yield f"GRANT ALL ON ALL TABLES IN SCHEMA ducklake TO {SERVICE}"
    yield f"GRANT ALL ON ALL SEQUENCES IN SCHEMA ducklake TO {SERVICE}"
    yield f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ducklake TO {SERVICE}"


def upgrade_store(connection: Connection, version: int) -> None:
    """Bring a store of a version to the newest; raises UnsupportedCatalog for a newer one."""
    if version > STORE_VERSION:
        raise UnsupportedCatalog(
            f"the store is of version {version}, this package knows up to {STORE_VERSION}: "
            "upgrade the package"
        )


def _run(connection: Connection, statement: str) -> None:
    # The texts are this package's own: nothing a caller gives is part of them.
    connection.execute(statement.encode())
