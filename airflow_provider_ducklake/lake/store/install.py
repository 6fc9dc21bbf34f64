"""Making a store in a database and bringing it to the newest version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import psycopg
from psycopg import sql

from airflow_provider_ducklake.lake.errors import ConfigurationError, UnsupportedCatalog
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


def has_root(connection: Connection, root: str) -> bool:
    """Tell whether the store there is has a root, however that is spelled."""
    found = connection.execute(
        "SELECT ducklake.place(s.root) = ducklake.place(%s) FROM ducklake.store s", (root,)
    )
    return found.fetchone() == (True,)


def create_store(connection: Connection, root: str) -> None:
    """Make roles, schemas, tables, views and functions; raises what the database refuses.

    Raises:
        ConfigurationError: The root is no full path or URL; or the store's roles are there, and
            belong to somebody else.
    """
    for role in ROLES:
        connection.execute(
            sql.SQL(
                "DO $$ BEGIN CREATE ROLE {} NOLOGIN; "
                "EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$"
            ).format(sql.Identifier(role))
        )
    try:
        _run(connection, f"GRANT {OWNER} TO CURRENT_USER")
        # So that its function `admit` can make roles tenants.
        _run(connection, f"GRANT {TENANT} TO {OWNER} WITH ADMIN OPTION")
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"the roles {', '.join(ROLES)} are there already, from another store of this server, "
            f"and role {connection.info.user!r} does not administer them: run `store init` as a "
            "superuser, or as the role that made them, or let one of these run "
            f'GRANT {", ".join(ROLES)} TO "{connection.info.user}" WITH ADMIN OPTION'
        ) from error
    for schema in SCHEMAS:
        _run(connection, f"CREATE SCHEMA {schema} AUTHORIZATION {OWNER}")
    _run(connection, f"SET LOCAL ROLE {OWNER}")
    for statement in statements():
        _run(connection, statement)
    stored = connection.execute(
        "INSERT INTO ducklake.store (version, root) "
        "SELECT %s, root FROM ducklake.canonical(%s) root WHERE ducklake.is_root(root)",
        (STORE_VERSION, root),
    )
    if not stored.rowcount:
        raise ConfigurationError(
            f"the root {root!r} of a store must be a full path or a URL, without . or .. in it"
        )
    for statement in _grants():
        _run(connection, statement)
    connection.execute("RESET ROLE")
    _run(connection, f"GRANT {SERVICE} TO CURRENT_USER")


def _grants() -> Iterator[str]:
    """Yield who may do what: tenants see the views and nothing below them."""
    yield "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA ducklake FROM PUBLIC"
    # What views call and indexes are made of runs as whoever uses them; by name tenants reach none.
    for function in ("current_catalog_id()", "is_service()", "may_read(bigint)", "place(text)"):
        yield f"GRANT EXECUTE ON FUNCTION ducklake.{function} TO {TENANT}"
    yield f"GRANT USAGE ON SCHEMA lake, ducklake_api TO {TENANT}, {SERVICE}"
    rights = "SELECT, INSERT, UPDATE, DELETE"
    yield f"GRANT {rights} ON ALL TABLES IN SCHEMA lake TO {TENANT}, {SERVICE}"
    yield f"GRANT SELECT ON ALL TABLES IN SCHEMA ducklake_api TO {TENANT}, {SERVICE}"
    # Tables for inlined rows are made beside the views, by clients of the service role alone.
    yield f"GRANT CREATE ON SCHEMA lake TO {SERVICE}"
    yield f"GRANT USAGE ON SCHEMA ducklake TO {SERVICE}"
    # No TRIGGER, which would make others run a function of whoever has it; none of the rest either.
    yield f"GRANT {rights} ON ALL TABLES IN SCHEMA ducklake TO {SERVICE}"
    yield f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA ducklake TO {SERVICE}"
    yield f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ducklake TO {SERVICE}"
    # Nor a trigger function on a table of its own: it would run there as the owner of the store,
    # on values whose types, and so their operators and casts, are somebody else's.
    yield (
        "DO $$ DECLARE of_trigger regprocedure; BEGIN "
        "FOR of_trigger IN SELECT p.oid FROM pg_proc p "
        "WHERE p.pronamespace = 'ducklake'::regnamespace AND p.prorettype = 'trigger'::regtype "
        f"LOOP EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM {SERVICE}', of_trigger); "
        "END LOOP; END $$"
    )


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
