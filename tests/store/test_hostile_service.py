"""A hostile login of the service gets nothing but the catalogs: no role, and nobody's session."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.store.hostile.service import INLINED, PREPARED, SERVICE
from tests.store.siege import _STRUCTURE
from tests.support.lakes import stock_client

_WATCHED = ("functions", "triggers", "roles", "members", "schemas", "views", "constraints")


def standing(superuser: str) -> dict[str, Any]:
    """Return what of the store and the server's roles a login of the service must not change."""
    with psycopg.connect(superuser) as connection:
        return {
            name: sorted(map(str, connection.execute(_STRUCTURE[name].encode())))
            for name in _WATCHED
        }


def test_a_hostile_login_of_the_service(superuser: str) -> None:
    store = CatalogStore(superuser)
    store.create_catalog("mine")
    store.grant("mine", "a_tenant")
    client = stock_client(superuser, "mine")
    client.sql("CREATE TABLE t AS SELECT 1 AS i")
    client.close()
    taken = []
    with psycopg.connect(make_conninfo(superuser, user="a_service"), autocommit=True) as hostile:
        for statement in PREPARED:
            hostile.execute(statement.encode())
        before = standing(superuser)
        for statement in SERVICE:
            try:
                hostile.execute(statement.encode())
                taken.append(statement)
            except psycopg.Error:
                hostile.execute("RESET ROLE")
        assert taken == []
        assert standing(superuser) == before
        ((table,),) = hostile.execute("SELECT max(table_id) FROM ducklake.ducklake_table")
        for statement in INLINED:
            hostile.execute(statement.format(table=table).encode())
    before = standing(superuser)
    # What an administrator runs meanwhile.
    store.create_catalog("other")
    store.fork_catalog("mine", "fork")
    store.rename_catalog("other", "another")
    store.grant("fork", "a_tenant")
    store.drop_catalog("fork")
    store.purge(older_than="0 seconds", force=True)
    store.list_catalogs()
    store.upgrade()
    assert standing(superuser) == before
    store.drop_catalog("mine")  # and the table beside it with all that hangs on it
    after = standing(superuser)
    assert (after["roles"], after["members"]) == (before["roles"], before["members"])


def test_inlined_rows_are_of_all_logins_of_the_service(superuser: str) -> None:
    """Whichever login's client made a table for them, the next reads, deletes, flushes, drops."""
    first, second = (make_conninfo(superuser, user=role) for role in ("a_service", "a_bystander"))
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute("GRANT ducklake_service TO a_bystander")
    CatalogStore(first).create_catalog("mine", inlining_row_limit=10)
    client = stock_client(first, "mine")
    client.sql("CREATE TABLE t (i INTEGER)")
    client.sql("INSERT INTO t VALUES (1), (2), (3)")
    client.close()
    other = stock_client(second, "mine")
    assert sorted(other.sql("FROM t")) == [(1,), (2,), (3,)]
    other.sql("ALTER TABLE t ADD COLUMN j INTEGER")
    other.sql("INSERT INTO t VALUES (4, 4)")
    other.close()
    client = stock_client(first, "mine")
    client.sql("DELETE FROM t WHERE i = 1")
    client.sql("CALL ducklake_flush_inlined_data('lake')")
    client.sql("DELETE FROM t WHERE i = 2")
    client.close()
    other = stock_client(second, "mine")
    assert sorted(other.sql("FROM t")) == [(3, None), (4, 4)]
    other.sql("CALL ducklake_flush_inlined_data('lake')")
    assert sorted(other.sql("FROM t")) == [(3, None), (4, 4)]
    other.close()
    assert CatalogStore(second).fork_catalog("mine", "fork").parent == "mine"
    CatalogStore(second).drop_catalog("mine")


@pytest.mark.parametrize("role", ["a_group", "ducklake_owner", "ducklake_tenant"])
def test_a_grant_to_no_login_is_refused(superuser: str, role: str) -> None:
    store = CatalogStore(make_conninfo(superuser, user="a_service"))
    store.create_catalog("mine")
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute("CREATE ROLE a_group NOLOGIN")
        try:
            with pytest.raises(Exception, match="does not log in"):
                store.grant("mine", role)
        finally:
            connection.execute("DROP ROLE a_group")
