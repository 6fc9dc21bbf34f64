"""What a tenant writes into its own catalog reaches nobody else: no job, no plan, no other name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from airflow_provider_ducklake.lake.errors import ConfigurationError, LakeError, SafetyRefusal
from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.support.lakes import stock_client

Connection = psycopg.Connection[tuple[Any, ...]]
_SCHEDULE = (
    "INSERT INTO lake.ducklake_files_scheduled_for_deletion "
    "SELECT next_file_id + 1, %s, false, now() FROM lake.ducklake_snapshot LIMIT 1"
)


@pytest.fixture
def store(superuser: str) -> CatalogStore:
    """A store with a tenant's catalog and somebody else's."""
    store = CatalogStore(superuser)
    for name in ("mine", "theirs"):
        store.create_catalog(name)
    store.grant("mine", "a_tenant")
    return store


@pytest.fixture
def tenant(superuser: str, store: CatalogStore) -> Iterator[Connection]:
    """A session of the tenant in its catalog."""
    conninfo = make_conninfo(superuser, user="a_tenant", options="-c ducklake.catalog=mine")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        yield connection


def outcome(connection: Connection, path: str) -> str | None:
    """Schedule a path, in a transaction that is rolled back; return the refusal without it."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(_SCHEDULE, (path,))
    except psycopg.Error as error:
        return f"{error.sqlstate}: {error}".replace(path, "PATH")
    return None


def test_names_of_others_cannot_be_told(tenant: Connection, tmp_path: Path) -> None:
    """The refusal of a path is the same whether somebody has that name or nobody has."""
    found = {outcome(tenant, f"{tmp_path}/lakes/{name}/x") for name in ("theirs", "nobodys")}
    assert len(found) == 1
    assert str(found.pop()).startswith("DL003")
    assert outcome(tenant, f"{tmp_path}/lakes/mine/x") is None


def test_a_grant_is_asked_for_whatever_name(
    superuser: str, store: CatalogStore, tenant: Connection
) -> None:
    """So that a name of another and one of nobody cost the same steps."""
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute("ALTER ROLE a_tenant SET track_functions = 'all'")
    conninfo = make_conninfo(superuser, user="a_tenant")
    steps = []
    for name in ("theirs", "nobodys"):
        with psycopg.connect(conninfo) as connection:
            connection.execute("SELECT set_config('ducklake.catalog', %s, false)", (name,))
            connection.execute("SAVEPOINT s")
            with pytest.raises(psycopg.Error, match="was not granted it"):
                connection.execute("TABLE lake.ducklake_snapshot")
            connection.execute("ROLLBACK TO s")
            calls = connection.execute(
                "SELECT funcname, calls FROM pg_stat_xact_user_functions ORDER BY 1"
            ).fetchall()
        steps.append(calls)
    assert steps[0] == steps[1]
    assert ("may_read", 1) in steps[0]


@pytest.mark.parametrize(
    "path",
    [
        "/proc/self/root{0}/theirs/x.parquet",
        "/proc/thread-self/root{0}/theirs/x.parquet",
        "file:///proc/1/root{0}/x.parquet",
        "//proc/self/cwd/x.parquet",
        "/sys/x",
        "/dev/fd/3",
        "/finance/salaries.parquet",
        "s3://finance/salaries.parquet",
        "https://example.org/x.parquet",
    ],
)
def test_places_nobody_allowed(tenant: Connection, tmp_path: Path, path: str) -> None:
    assert str(outcome(tenant, path.format(f"{tmp_path}/lakes"))).startswith("DL003")


def test_the_service_names_no_file_of_the_kernel(superuser: str, store: CatalogStore) -> None:
    conninfo = make_conninfo(superuser, user="a_service", options="-c ducklake.catalog=mine")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for path in ("/proc/self/root/x", "/sys/x", "/dev/stdin"):
            assert str(outcome(connection, path)).startswith("DL003")
        assert outcome(connection, "s3://finance/salaries.parquet") is None
        assert outcome(connection, "/dev/shm/x") is None


def test_what_was_allowed(
    superuser: str, store: CatalogStore, tenant: Connection, tmp_path: Path
) -> None:
    """A place by `allow`; and each file the service registered, with which tenants go on."""
    assert store.allow("mine", f"{tmp_path}/landing")
    assert not store.allow("mine", f"file://{tmp_path}//landing/")
    assert outcome(tenant, f"{tmp_path}/landing/a/b.parquet") is None
    assert outcome(tenant, f"{tmp_path}/landing2/b.parquet") is not None
    assert store.allow("mine", f"{tmp_path}/landing/", allowed=False)
    assert outcome(tenant, f"{tmp_path}/landing/a/b.parquet") is not None
    for place in ("{0}/lakes", "{0}/lakes/theirs", "{0}/lakes/new", "{0}", "/"):
        with pytest.raises(SafetyRefusal, match="or around it"):
            store.allow("mine", place.format(tmp_path))
    with pytest.raises(ConfigurationError, match="no full path"):
        store.allow("mine", "landing/")

    file = f"{tmp_path}/one.parquet"
    client = stock_client(make_conninfo(superuser, user="a_service"), "mine")
    client.sql("CREATE TABLE t (i INTEGER)")
    client.sql(f"COPY (SELECT 1::INTEGER AS i FROM range(9)) TO '{file}'")
    client.sql("CALL ducklake_add_data_files('lake', 't', ?)", [file])
    client.close()
    assert outcome(tenant, file) is None
    assert outcome(tenant, f"{tmp_path}/two.parquet") is not None
    client = stock_client(make_conninfo(superuser, user="a_tenant"), "mine")
    client.sql("DELETE FROM t")
    client.sql("CALL ducklake_expire_snapshots('lake', older_than => now())")
    client.close()
    rows = tenant.execute("SELECT path FROM lake.ducklake_files_scheduled_for_deletion").fetchall()
    assert (file,) in rows
    store.drop_catalog("mine")


@pytest.mark.parametrize("relative", [True, False])
def test_a_path_without_end(tenant: Connection, tmp_path: Path, relative: bool) -> None:
    path = "x/" * 20_000 if relative else f"{tmp_path}/lakes/mine/" + "x/" * 20_000
    statement = _SCHEDULE.replace("false", str(relative))
    with pytest.raises(psycopg.Error, match="the path") as refused:
        tenant.execute(statement.encode(), (path,))
    assert refused.value.sqlstate == "DL003"
    assert len(str(refused.value)) < 9_000


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO lake.ducklake_files_scheduled_for_deletion VALUES (NULL, 'x', true, now())",
        "INSERT INTO lake.ducklake_files_scheduled_for_deletion VALUES (1, NULL, true, now())",
        "INSERT INTO lake.ducklake_files_scheduled_for_deletion VALUES (1, 'x', NULL, now())",
        "INSERT INTO lake.ducklake_files_scheduled_for_deletion VALUES (1, 'x', true, NULL)",
        "UPDATE lake.ducklake_schema SET path = NULL",
        "UPDATE lake.ducklake_schema SET begin_snapshot = NULL",
        "UPDATE lake.ducklake_table SET schema_id = NULL",
        "UPDATE lake.ducklake_data_file SET table_id = NULL",
        "UPDATE lake.ducklake_data_file SET begin_snapshot = NULL",
        "UPDATE lake.ducklake_data_file SET path_is_relative = NULL",
        "UPDATE lake.ducklake_data_file SET file_size_bytes = -4194304",
        "UPDATE lake.ducklake_data_file SET file_size_bytes = 9000000000000000000",
        "UPDATE lake.ducklake_data_file SET record_count = -1",
        "UPDATE lake.ducklake_data_file SET footer_size = 1125899906842624",
        "UPDATE lake.ducklake_table_stats SET file_size_bytes = 9000000000000000000",
        "UPDATE lake.ducklake_table_stats SET record_count = -1",
        "UPDATE lake.ducklake_file_column_stats SET value_count = -1",
        "UPDATE lake.ducklake_snapshot SET snapshot_id = -1 - snapshot_id",
        "UPDATE lake.ducklake_snapshot SET snapshot_id = snapshot_id + 1125899906842624",
        "UPDATE lake.ducklake_delete_file SET delete_count = -1",
    ],
)
def test_rows_that_mean_nothing(superuser: str, tenant: Connection, statement: str) -> None:
    client = stock_client(make_conninfo(superuser, user="a_tenant"), "mine")
    client.sql("CREATE TABLE t AS SELECT * FROM range(9) r(i)")
    client.sql("DELETE FROM t WHERE i = 3")
    client.close()
    with pytest.raises((psycopg.errors.NotNullViolation, psycopg.errors.CheckViolation)):
        tenant.execute(statement.encode())


def test_a_commit_to_a_catalog_that_was_dropped(superuser: str, store: CatalogStore) -> None:
    """A client that began before the drop is refused, and leaves no row behind."""
    client = stock_client(make_conninfo(superuser, user="a_tenant"), "mine")
    client.sql("CREATE TABLE t (i INTEGER)")
    client.sql("BEGIN")
    client.sql("INSERT INTO t SELECT * FROM range(100)")
    store.drop_catalog("mine")
    with pytest.raises(duckdb.Error):
        client.sql("COMMIT")
    with suppress(duckdb.Error):  # it asks the catalog once more
        client.close()
    store.purge(older_than="0 seconds", force=True)
    with psycopg.connect(superuser) as connection:
        left = connection.execute(
            "SELECT count(*) FROM ducklake.ducklake_data_file UNION ALL SELECT count(*) "
            "FROM ducklake.ducklake_snapshot WHERE catalog_id = 1 UNION ALL SELECT count(*) "
            "FROM ducklake.ducklake_catalog WHERE catalog_name = 'mine'"
        ).fetchall()
    assert left == [(0,), (0,), (0,)]


def test_a_drop_waits_for_a_commit(superuser: str, store: CatalogStore, tenant: Connection) -> None:
    """What was committed in front of it goes with the catalog; a fork meanwhile is in no way."""
    with tenant.transaction():
        tenant.execute(
            "INSERT INTO lake.ducklake_snapshot SELECT 1, now(), 0, next_catalog_id, next_file_id "
            "FROM lake.ducklake_snapshot"
        )
        with psycopg.connect(superuser, autocommit=True) as other:
            other.execute("SET lock_timeout = '200ms'")
            other.execute("SELECT ducklake.fork_catalog('mine', 'fork', NULL, NULL)")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute("SELECT ducklake.drop_catalog('mine')")
    store.drop_catalog("mine")


@pytest.mark.parametrize(
    "root", ["ftp://host/x", "https://host/x", "/x\ny", "/x*", "s3://bucket/a?b", "r2://b/x"]
)
def test_roots_nobody_can_write_to(store: CatalogStore, root: str) -> None:
    with pytest.raises(ConfigurationError, match="can be written to"):
        store.create_catalog("odd", root=root)


def test_dropped_parents_have_no_name(superuser: str, store: CatalogStore) -> None:
    store.fork_catalog("theirs", "fork")
    store.drop_catalog("theirs")
    with psycopg.connect(superuser) as connection:
        (found,) = connection.execute(
            "SELECT parent_name, lineage_name FROM ducklake_api.catalogs "
            "WHERE catalog_name = 'fork'"
        )
    assert found == (None, None)


def test_a_second_store_by_another_administrator(superuser: str, tmp_path: Path) -> None:
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute("ALTER ROLE a_bystander CREATEROLE")
        connection.execute(
            "DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO a_bystander', "
            "current_database()); END $$"
        )
        for schema in ("ducklake_api", "lake", "ducklake"):
            connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())
    store = CatalogStore(make_conninfo(superuser, user="a_bystander"))
    with pytest.raises(LakeError, match="run `store init` as a superuser") as refused:
        store.init(f"{tmp_path}/lakes")
    assert isinstance(refused.value, ConfigurationError)
