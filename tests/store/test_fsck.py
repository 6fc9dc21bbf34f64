"""fsck in a store: by a tenant who sees views only, and over forks that share files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.interop.operations import Operations
from tests.support.lakes import LakeUnderTest, stock_client
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.interop


class Tenants:
    """Catalogs of a store, each with a role of its own, filled by stock clients."""

    def __init__(self, conninfo: str, directory: Path) -> None:
        self.conninfo = conninfo
        self.directory = directory
        self.store = CatalogStore(conninfo)
        self.mark = uuid4().hex[:8]
        self.names: list[str] = []

    def add(self, name: str, *, fork_of: str | None = None) -> None:
        """Create or fork a catalog and a role that may write it."""
        root, catalog = f"{self.directory}/{name}", self.named(name)
        if fork_of is None:
            self.store.create_catalog(catalog, root=root)
        else:
            self.store.fork_catalog(self.named(fork_of), catalog, root=root)
        self.names.append(name)
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(
                sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(self.named(name)))
            )
        self.store.grant(catalog, self.named(name))

    def named(self, name: str) -> str:
        """Return the name of a catalog, and of its role."""
        return f"{name}_{self.mark}"

    def as_tenant(self, name: str) -> str:
        """Return how a tenant connects."""
        return make_conninfo(self.conninfo, user=self.named(name))

    def write(self, name: str, *statements: str) -> None:
        """Run statements in a catalog by a stock client of its tenant."""
        client = stock_client(self.as_tenant(name), self.named(name))
        for statement in statements:
            client.sql(statement)
        client.close()

    def fsck(self, name: str, *, repair: bool = False) -> OperationResult:
        """Run fsck as the tenant."""
        return self.operations(name).run("fsck", may_fail=True, deep=True, repair=repair)

    def operations(self, name: str) -> Operations:
        """Return our operations as the tenant runs them."""
        location = CatalogLocation.parse(
            f"ducklake:postgres:{self.as_tenant(name)}", catalog=self.named(name)
        )
        root = f"{self.directory}/{name}/"
        lake = LakeUnderTest("store", location.attach_string, root, location, self.directory)
        return Operations(lake, lambda: None)

    def close(self) -> None:
        """Drop catalogs and roles."""
        for name in reversed(self.names):
            self.store.drop_catalog(self.named(name))
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            for name in self.names:
                role = sql.Identifier(self.named(name))
                connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
                connection.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.fixture
def tenants(
    postgres_server: PostgresServer, shared_store: str, tmp_path: Path
) -> Iterator[Tenants]:
    """Tenants of the shared store, which a superuser sets up."""
    tenants = Tenants(postgres_server.conninfo("shared_store"), tmp_path)
    yield tenants
    tenants.close()


def test_tenants_and_forks_are_sound(tenants: Tenants) -> None:
    """Files kept for forks and rows of others alarm nobody; a shared object that goes does."""
    tenants.add("parent")
    tenants.write(
        "parent",
        "CREATE TABLE t AS SELECT i AS a, 'k' || i % 2 AS s FROM range(100) r(i)",
        "DELETE FROM t WHERE a % 3 = 0",
        "CREATE TABLE u AS SELECT i AS a FROM range(50) r(i)",
    )
    assert not tenants.fsck("parent").findings
    tenants.add("fork", fork_of="parent")
    assert not tenants.fsck("fork").findings
    tenants.write(
        "parent",
        "DROP TABLE u",
        "DELETE FROM t WHERE a < 90",
        "INSERT INTO t VALUES (1000, 'more')",
        "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
        "CALL ducklake_expire_snapshots('lake', older_than => now())",
    )
    tenants.write("fork", "INSERT INTO t SELECT i, 'k0' FROM range(40) r(i)")
    for name in ("parent", "fork"):
        result = tenants.fsck(name, repair=True)
        assert not result.findings
        assert result.counts["objects_checked"] > 0
    for shared in (tenants.directory / "parent" / "main" / "u").glob("*.parquet"):
        shared.unlink()
    assert [report.damage for report in tenants.fsck("fork").findings] == ["missing_object"]
    assert not tenants.fsck("parent").findings, "the parent reads the file no more"


def test_a_tenant_repairs_its_own_catalog(tenants: Tenants) -> None:
    """The rights a tenant has are enough, and the neighbour's damage is not its own."""
    for name in ("one", "two"):
        tenants.add(name)
        tenants.write(
            name,
            "CREATE TABLE t AS SELECT i AS a FROM range(100) r(i)",
            "INSERT INTO t VALUES (1000)",
            "DELETE FROM t WHERE a = 5",
        )
    for name in ("one", "two"):
        with psycopg.connect(tenants.as_tenant(name)) as connection:
            connection.execute(
                sql.SQL("SET ducklake.catalog = {}").format(sql.Literal(tenants.named(name)))
            )
            connection.execute("SET search_path = lake")
            connection.execute("UPDATE ducklake_table_stats SET next_row_id = 3")
            connection.execute(
                "INSERT INTO ducklake_files_scheduled_for_deletion (data_file_id, path, "
                "path_is_relative, schedule_start) SELECT data_file_id, 'main/t/' || path, true, "
                "'2020-01-01' FROM ducklake_data_file"
            )
    damage = {"live_and_scheduled", "next_row_id"}
    assert {report.damage for report in tenants.fsck("one").findings} == damage
    assert not tenants.fsck("one", repair=True).is_failed
    assert not tenants.fsck("one").findings
    assert {report.damage for report in tenants.fsck("two").findings} == damage
    tenants.write("one", "INSERT INTO t SELECT i FROM range(100, 120) r(i)")
    client = stock_client(tenants.as_tenant("one"), tenants.named("one"))
    assert client.sql("SELECT count(*), count(DISTINCT rowid) FROM t") == [(120, 120)]
    client.close()
    assert (
        tenants.operations("one").run("expire_snapshots", retain_last=1).counts["snapshots_expired"]
    )
    assert not tenants.fsck("one").findings
