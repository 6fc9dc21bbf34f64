"""Connections that stay open while one catalog of a store after the other is worked on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import psycopg
import pytest

from airflow_provider_ducklake.lake.database.kept_connections import KeptConnections
from airflow_provider_ducklake.lake.database.postgres import PostgresDatabase
from airflow_provider_ducklake.lake.errors import CatalogUnavailable
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.store.store import CatalogStore

NAMES = ("kept.one", "kept.two")
ROOT = "SELECT value FROM {ducklake_metadata} WHERE key = 'data_path'"
BACKEND = "SELECT pg_backend_pid()"


@pytest.fixture(scope="module")
def roots(shared_store: str) -> Iterator[dict[str, str]]:
    """Two catalogs of the store, and the root of each."""
    store = CatalogStore(shared_store)
    yield {name: store.create_catalog(name).root for name in NAMES}
    for name in NAMES:
        store.drop_catalog(name)


@pytest.fixture
def kept(shared_store: str) -> Iterator[KeptConnections]:
    """Connections that are closed after the test."""
    with closing(KeptConnections(shared_store)) as connections:
        yield connections


def database(shared_store: str, name: str, kept: KeptConnections) -> PostgresDatabase:
    """Return a catalog that is reached by kept connections."""
    location = CatalogLocation.parse(f"ducklake:postgres:{shared_store}", catalog=name)
    return PostgresDatabase(location, 5.0, kept)


def test_each_transaction_sees_its_own_catalog(
    shared_store: str, roots: dict[str, str], kept: KeptConnections
) -> None:
    backends = set()
    for name in NAMES * 4:  # often enough that statements are prepared
        with database(shared_store, name, kept).read() as session:
            assert session.value(ROOT) == roots[name]
            backends.add(session.value(BACKEND))
        with database(shared_store, name, kept).write() as session:
            assert session.value(ROOT) == roots[name]
            assert session.value("SELECT current_setting('transaction_read_only')") == "off"
            backends.add(session.value(BACKEND))
    assert len(backends) == 1
    with kept.borrow() as connection, pytest.raises(psycopg.Error, match="no catalog is chosen"):
        connection.execute("SELECT count(*) FROM lake.ducklake_snapshot")


def test_threads_have_their_own(
    shared_store: str, roots: dict[str, str], kept: KeptConnections
) -> None:
    def look(name: str) -> tuple[str, int]:
        with database(shared_store, name, kept).read() as session:
            session.value("SELECT pg_sleep(0.2)")
            return str(session.value(ROOT)), int(session.value(BACKEND))

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(look, NAMES))
    assert [root for root, _ in found] == list(roots.values())
    assert len({backend for _, backend in found}) == 2


def test_what_fails_is_rolled_back_and_a_broken_connection_is_replaced(
    shared_store: str, roots: dict[str, str], kept: KeptConnections
) -> None:
    place = database(shared_store, NAMES[0], kept)
    option = ("target_file_size", "1MB", None, None)
    with suppress(ZeroDivisionError), place.write() as session:
        session.insert("ducklake_metadata", [option])
        raise ZeroDivisionError
    with place.read() as session:
        assert option not in session.rows("SELECT * FROM {ducklake_metadata}")
        first = session.value(BACKEND)
    with pytest.raises(CatalogUnavailable), place.write() as session:
        session.value("SELECT pg_terminate_backend(pg_backend_pid())")
    with place.read() as session:
        assert session.value(ROOT) == roots[NAMES[0]]
        assert session.value(BACKEND) != first
