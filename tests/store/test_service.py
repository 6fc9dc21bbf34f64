"""What a login of the service may do, which is no superuser, and what stays with administrators."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import duckdb
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from airflow_provider_ducklake.lake.errors import LakeError, NotFound
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.support.lakes import stock_client


@pytest.fixture
def service(superuser: str) -> Iterator[CatalogStore]:
    """The store as the login of the service has it, with one catalog."""
    with CatalogStore(make_conninfo(superuser, user="a_service")) as store:
        store.create_catalog("mine")
        yield store


def _opened(superuser: str, role: str) -> int:
    conninfo = make_conninfo(superuser, user=role)
    location = CatalogLocation.parse(f"ducklake:postgres:{conninfo}", catalog="mine")
    return Lake.open(location).head().snapshot_id


def test_where_no_catalog_is_any_name_is_unknown(superuser: str) -> None:
    location = CatalogLocation.parse(f"ducklake:postgres:{superuser}", catalog="nobody")
    with pytest.raises(NotFound, match='catalog "nobody" does not exist'):
        Lake.open(location).head()
    with pytest.raises(duckdb.Error, match='catalog "nobody" does not exist'):
        stock_client(superuser, "nobody").sql("SELECT 1")


def test_it_grants_catalogs(superuser: str, service: CatalogStore) -> None:
    for role in ("a_tenant", 'an "odd" one'):
        with pytest.raises(LakeError, match="permission denied"):
            _opened(superuser, role)
        service.grant("mine", role, writable=False)
        service.grant("mine", role)
        assert _opened(superuser, role) == 0
    client = stock_client(make_conninfo(superuser, user="a_tenant"), "mine")
    client.sql("CREATE TABLE t AS SELECT 1 AS i")
    client.close()
    assert service.revoke("mine", "a_tenant")
    with pytest.raises(NotFound, match="was not granted it"):
        _opened(superuser, "a_tenant")
    with pytest.raises(NotFound, match='no role "nobody"'):
        service.grant("mine", "nobody")
    service.grant("mine", "a_service")  # one that has more already


@pytest.mark.parametrize("login", ["a_service", "a_tenant"])
def test_it_administers_no_role(superuser: str, service: CatalogStore, login: str) -> None:
    """Neither can a tenant, who cannot grant a catalog, nor make another a tenant, either."""
    service.grant("mine", "a_tenant")
    statements = [
        "GRANT ducklake_tenant TO a_bystander",
        "GRANT ducklake_tenant TO a_tenant WITH ADMIN OPTION",
        "REVOKE ducklake_tenant FROM a_tenant",
        "GRANT ducklake_owner TO a_bystander",
        "GRANT ducklake_service TO a_bystander",
        "SET ROLE ducklake_owner",
        "SET ROLE a_bystander",
        "CREATE ROLE intruder",
        "ALTER ROLE a_bystander SUPERUSER",
        "DROP ROLE ducklake_tenant",
    ]
    if login == "a_tenant":
        statements += [
            "SELECT ducklake.admit('a_bystander')",
            "SELECT ducklake.grant_catalog('mine', 'a_bystander', true)",
            "INSERT INTO ducklake.catalog_grant VALUES (1, 'a_bystander', true)",
            "SET ROLE ducklake_tenant",
            "SET ROLE ducklake_service",
        ]
    with psycopg.connect(make_conninfo(superuser, user=login), autocommit=True) as connection:
        for statement in statements:
            with pytest.raises(psycopg.Error):
                connection.execute(statement.encode())
    with psycopg.connect(superuser) as connection:
        members = connection.execute(
            "SELECT r.rolname, m.member::regrole::text, m.admin_option FROM pg_auth_members m "
            "JOIN pg_roles r ON r.oid = m.roleid WHERE m.member::regrole::text LIKE 'a\\_%' "
            "ORDER BY 1, 2"
        ).fetchall()
    assert members == [
        ("ducklake_service", "a_service", False),
        ("ducklake_tenant", "a_tenant", False),
    ]
    with pytest.raises(LakeError, match="permission denied"):
        _opened(superuser, "a_bystander")


def test_one_connection_for_many_calls(superuser: str) -> None:
    store = CatalogStore(make_conninfo(superuser, user="a_service"))
    backend = "SELECT pg_backend_pid()"

    def used() -> int:
        with store.transaction() as connection:
            found = connection.execute(backend).fetchone()
        assert found is not None
        return int(found[0])

    assert used() != used()
    with store:
        own = used()
        store.create_catalog("kept")
        with pytest.raises(LakeError, match="exists already"):
            store.create_catalog("kept")
        with suppress(ZeroDivisionError), store.transaction() as connection:
            connection.execute("SELECT ducklake.drop_catalog('kept')")
            raise ZeroDivisionError
        assert store.catalog("kept").name == "kept"
        assert store.plan_fleet().catalogs == 0  # reads only; what follows may write
        assert store.fork_catalog("kept", "copy").parent == "kept"
        assert used() == own
        with psycopg.connect(superuser, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", (own,))
        with suppress(LakeError):
            store.status()
        assert store.status().catalogs == 2
        again = used()
    assert again != own
    assert used() != again
    with psycopg.connect(superuser, autocommit=True) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (%s)"
        for _ in range(100):
            left = connection.execute(query, ([own, again],)).fetchone()
            if left == (0,):
                break
            time.sleep(0.05)
    assert left == (0,)
