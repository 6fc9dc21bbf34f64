"""Forks: rows are copied, files are shared, and a file lives as long as anybody reads it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from airflow_provider_ducklake.lake.errors import ConfigurationError, NotFound
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.interop.operations import Operations
from tests.support.lakes import LakeUnderTest, stock_client
from tests.support.reference import ReferenceClient, Rows

_NUMBER: Final = count()
NOW: Final[dict[str, Any]] = {"older_than": "0 seconds", "force": True}


class Family:
    """A catalog and its forks, each with a stock client and our operations."""

    def __init__(self, conninfo: str, directory: Path) -> None:
        self.conninfo = conninfo
        self.directory = directory
        self.store = CatalogStore(conninfo)
        self.prefix = f"family{next(_NUMBER)}"
        self.clients: dict[str, ReferenceClient] = {}

    def create(self, name: str) -> ReferenceClient:
        """Create a catalog and return a client of it."""
        self.store.create_catalog(f"{self.prefix}.{name}", root=f"{self.directory}/{name}")
        return self.client(name)

    def fork(self, source: str, name: str, snapshot_id: int | None = None) -> ReferenceClient:
        """Fork a catalog and return a client of the fork."""
        self.store.fork_catalog(
            f"{self.prefix}.{source}",
            f"{self.prefix}.{name}",
            snapshot_id=snapshot_id,
            root=f"{self.directory}/{name}",
        )
        return self.client(name)

    def client(self, name: str) -> ReferenceClient:
        """Return the client of a catalog."""
        if name not in self.clients:
            self.clients[name] = stock_client(self.conninfo, f"{self.prefix}.{name}")
        return self.clients[name]

    def lake(self, name: str) -> LakeUnderTest:
        """Return a catalog as the tests of all lakes know one."""
        location = CatalogLocation.parse(
            f"ducklake:postgres:{self.conninfo}", catalog=f"{self.prefix}.{name}"
        )
        root = f"{self.directory}/{name}/"
        return LakeUnderTest("store", location.attach_string, root, location, self.directory)

    def operations(self, name: str) -> Operations:
        """Return our operations on a catalog."""
        return Operations(self.lake(name), lambda: None)

    def drop(self, name: str) -> None:
        """Drop a catalog."""
        self.clients.pop(name).forget()
        self.store.drop_catalog(f"{self.prefix}.{name}")

    def files(self, name: str) -> set[str]:
        """Return the names of the Parquet files under a catalog's root."""
        return {path.name for path in (self.directory / name).rglob("*.parquet")}

    def close(self) -> None:
        """Drop everything."""
        for name in list(self.clients):
            self.drop(name)


@pytest.fixture
def family(shared_store: str, tmp_path: Path) -> Iterator[Family]:
    """A family in the shared store."""
    family = Family(shared_store, tmp_path)
    yield family
    family.close()


def filled(family: Family) -> ReferenceClient:
    """Create a catalog with files, deletes, an evolved table and options."""
    parent = family.create("parent")
    parent.sql("CREATE SCHEMA other")
    parent.sql("CREATE TABLE other.u AS SELECT i AS a FROM range(50) r(i)")
    parent.sql("CREATE TABLE t (i INTEGER, s VARCHAR)")
    parent.sql("ALTER TABLE t SET PARTITIONED BY (s)")
    parent.set_option("target_file_size", "10MB", table="main.t")
    for start in (0, 100):
        parent.sql(f"INSERT INTO t SELECT i, 'k' || i % 2 FROM range({start}, {start + 100}) r(i)")
    parent.sql("DELETE FROM t WHERE i % 10 = 3")
    parent.sql("ALTER TABLE t ADD COLUMN extra INTEGER DEFAULT 7")
    parent.sql("CREATE TABLE dropped AS SELECT 1 AS x FROM range(20)")
    parent.sql("DROP TABLE dropped")
    return parent


def rows(client: ReferenceClient, table: str = "main.t") -> Rows:
    """Return a table's rows, with row ids, at the newest snapshot."""
    return client.rows_at(table, client.snapshot_ids()[-1])


def test_a_fork_begins_where_its_parent_stands(family: Family) -> None:
    parent = filled(family)
    # Not in `filled`: in PostgreSQL, the reference crashes when it sets an option beside a view.
    parent.sql("CREATE VIEW v AS SELECT max(i) AS m FROM lake.main.t")
    fork = family.fork("parent", "fork")
    assert fork.snapshot_ids() == parent.snapshot_ids()[-1:]
    assert fork.tables() == parent.tables() == {"main.t", "other.u"}
    for table in ("main.t", "other.u"):
        assert rows(fork, table) == rows(parent, table)
    assert fork.sql("FROM v") == [(199,)]
    assert family.files("fork") == set()
    (entry,) = family.store.list_catalogs(f"{family.prefix}.fork")
    assert entry.parent == entry.lineage == f"{family.prefix}.parent"
    assert entry.parent_snapshot == parent.snapshot_ids()[-1]


def test_what_one_does_the_other_does_not_see(family: Family) -> None:
    parent = filled(family)
    fork = family.fork("parent", "fork")
    before = rows(parent)
    fork.sql("UPDATE t SET extra = 8 WHERE i < 50")
    fork.sql("INSERT INTO t SELECT i, 'k0', 1 FROM range(1000, 1100) r(i)")
    fork.sql("ALTER TABLE other.u ADD COLUMN b INTEGER")
    fork.sql("CREATE TABLE fresh AS SELECT * FROM range(30)")
    assert rows(parent) == before
    assert parent.tables() == {"main.t", "other.u"}
    of_fork = rows(fork)
    parent.sql("DELETE FROM t")
    parent.sql("DROP TABLE other.u")
    assert rows(fork) == of_fork
    assert len(rows(fork, "other.u")) == 50


@pytest.mark.parametrize("who", ["stock", "ours"])
def test_files_live_as_long_as_anybody_reads_them(family: Family, who: str) -> None:
    """MT-02: whoever compacts, expires, cleans up and sweeps, wherever: nothing is lost."""
    parent = filled(family)
    fork = family.fork("parent", "fork")
    grandchild = family.fork("fork", "grandchild")
    shared = family.files("parent")
    expected = rows(parent)

    def let_go(name: str) -> None:
        if who == "ours":
            run = family.operations(name).run
            run("rewrite_data_files", delete_threshold=0)
            run("merge_adjacent_files")
            run("expire_snapshots", retain_last=1)
            run("cleanup_old_files", **NOW)
            run("delete_orphaned_files", **NOW)
            return
        client = family.client(name)
        client.sql("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
        client.sql("CALL ducklake_merge_adjacent_files('lake')")
        client.sql("CALL ducklake_expire_snapshots('lake', older_than => now())")
        client.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
        client.sql("CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)")

    for name, others in (
        ("parent", (fork, grandchild)),
        ("grandchild", (parent, fork)),
    ):
        let_go(name)
        for client in (*others, family.client(name)):
            assert rows(client) == expected
    # The fork is the last that reads the old files of `t`: now its parent may delete them.
    let_go("fork")
    assert rows(fork) == expected
    let_go("parent")
    remaining = shared & family.files("parent")
    live_of_u = {
        str(path).rsplit("/", 1)[1]
        for (path,) in parent.sql(
            "SELECT data_file FROM ducklake_list_files('lake', 'u', schema => 'other')"
        )
    }
    assert remaining == live_of_u
    for client in (parent, fork, grandchild):
        assert rows(client) == expected
        assert len(rows(client, "other.u")) == 50


def test_a_dropped_parent_leaves_what_its_forks_read(family: Family) -> None:
    parent = filled(family)
    fork = family.fork("parent", "fork")
    expected = rows(parent)
    family.drop("parent")
    assert rows(fork) == expected
    with psycopg.connect(family.conninfo) as connection:
        query = (
            "SELECT count(*) FROM ducklake.ducklake_files_scheduled_for_deletion f "
            "JOIN ducklake.ducklake_catalog c USING (catalog_id) WHERE c.root = %s"
        )
        root = f"{family.directory}/parent/"
        (before,) = connection.execute(query, (root,)).fetchone() or (0,)
        # Only the table that was dropped before the fork was made.
        assert before == 1
    family.drop("fork")
    with psycopg.connect(family.conninfo) as connection:
        (after,) = connection.execute(query, (root,)).fetchone() or (0,)
    assert after == len(family.files("parent"))


def test_a_fork_of_the_past_is_restored(family: Family) -> None:
    """A restore in it leaves its parent alone, and files of the parent's past stay readable."""
    parent = filled(family)
    past, *_, head = parent.snapshot_ids()[6:]
    then, now = parent.rows_at("main.t", past), parent.rows_at("main.t", head)
    assert then != now
    fork = family.fork("parent", "fork", past)
    run = family.operations("fork").run
    with pytest.raises(NotFound, match=f"was expired.*kept are {past} to {past}, 1 of them"):
        run("restore", snapshot=past - 1)
    fork.sql("DELETE FROM t WHERE i < 150")
    fork.sql("INSERT INTO t SELECT i, 'k0' FROM range(500, 550) r(i)")
    fork.sql("ALTER TABLE t RESET PARTITIONED BY")
    fork.sql("DROP TABLE other.u")
    changed = fork.snapshot_ids()[-1]
    of_fork = rows(fork)
    fork.release()
    run("restore", snapshot=past)
    assert rows(fork) == then
    assert len(rows(fork, "other.u")) == 50
    fork.release()
    run("restore", snapshot=changed)
    assert rows(fork) == of_fork
    fork.release()
    run("restore", "main.t", snapshot=past)
    run("expire_snapshots", retain_last=1)
    run("cleanup_old_files", **NOW)
    run("delete_orphaned_files", **NOW)
    assert rows(fork) == then
    assert rows(parent) == now
    for snapshot in parent.snapshot_ids()[6:]:
        assert parent.rows_at("main.t", snapshot)


def test_an_older_snapshot(family: Family) -> None:
    parent = filled(family)
    for snapshot in parent.snapshot_ids()[3:]:
        fork = family.fork("parent", f"at{snapshot}", snapshot)
        for table in ("main.t", "other.u"):
            assert rows(fork, table) == parent.rows_at(table, snapshot), snapshot
        life = Counter(rows(fork))
        fork.sql("DELETE FROM t WHERE i = 0")
        assert sum(rows(fork).values()) == sum(life.values()) - life_of_zero(life)
    with pytest.raises(NotFound, match="keeps no snapshot 999"):
        family.fork("parent", "never", 999)


def life_of_zero(found: Rows) -> int:
    """Return how many rows have i = 0."""
    return sum(times for row, times in found.items() if row[1] == 0)


def test_an_older_snapshot_of_merged_files(family: Family) -> None:
    """A merged file hides later rows by their snapshot id, which the fork would give again."""
    parent = filled(family)
    before = parent.snapshot_ids()[-1]
    parent.sql("INSERT INTO other.u SELECT i FROM range(50, 100) r(i)")
    after = parent.snapshot_ids()[-1]
    parent.sql("CALL ducklake_merge_adjacent_files('lake')")
    with pytest.raises(ConfigurationError, match=f"rows up to snapshot {after}: fork at that one"):
        family.fork("parent", "early", before)
    assert len(rows(family.fork("parent", "late", after), "other.u")) == 100


def test_inlined_rows_stand_in_the_way(family: Family) -> None:
    parent = filled(family)
    parent.set_option("data_inlining_row_limit", 10)
    parent.sql("INSERT INTO other.u VALUES (1000)")
    with pytest.raises(ConfigurationError, match=r'"u" are inlined.*flush_inlined_data first'):
        family.fork("parent", "fork")
    family.operations("parent").run("flush_inlined_data")
    fork = family.fork("parent", "fork")
    assert rows(fork, "other.u") == rows(parent, "other.u")
    # Both inline again, each into tables of its own.
    for client, value in ((parent, 1), (fork, 2)):
        client.sql(f"INSERT INTO other.u VALUES ({value + 5000})")
        client.sql(f"DELETE FROM other.u WHERE a = {value}")
    assert {(r[1]) for r in rows(parent, "other.u") if r[1] > 5000} == {5001}
    assert {(r[1]) for r in rows(fork, "other.u") if r[1] > 5000} == {5002}
    assert 2 in {r[1] for r in rows(parent, "other.u")}
    assert 1 in {r[1] for r in rows(fork, "other.u")}


def test_a_fork_that_exists(family: Family) -> None:
    filled(family)
    family.create("stranger")
    name, source = f"{family.prefix}.fork", f"{family.prefix}.parent"
    family.fork("parent", "fork")
    again = family.store.fork_catalog(source, name, if_not_exists=True)
    assert again.name == name
    with pytest.raises(ConfigurationError, match="exists already"):
        family.store.fork_catalog(source, name)
    with pytest.raises(ConfigurationError, match=r"is a fork of .*, not one of"):
        family.store.fork_catalog(f"{family.prefix}.stranger", name, if_not_exists=True)
    with pytest.raises(ConfigurationError, match="is no fork"):
        family.store.fork_catalog(source, f"{family.prefix}.stranger", if_not_exists=True)


def test_forking_and_expiring_at_once(family: Family) -> None:
    """A fork waits for what is being scheduled, or what is scheduled waits for the fork."""
    parent = filled(family)
    expected = rows(parent)
    parent.sql("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
    newest = parent.snapshot_ids()[-1]
    old = parent.snapshot_ids()[-2]
    with psycopg.connect(family.conninfo) as expiring:
        expiring.execute(
            "SELECT set_config('ducklake.catalog', %s, false)", (f"{family.prefix}.parent",)
        )
        expiring.execute("DELETE FROM lake.ducklake_snapshot WHERE snapshot_id < %s", (newest,))
        failures: list[BaseException] = []

        def fork() -> None:
            try:
                family.store.fork_catalog(
                    f"{family.prefix}.parent", f"{family.prefix}.late", snapshot_id=old
                )
            except NotFound as error:
                failures.append(error)

        thread = threading.Thread(target=fork)
        thread.start()
        thread.join(1)
        assert thread.is_alive(), "the fork does not wait for the expiry"
        expiring.commit()
        thread.join()
    assert len(failures) == 1, "the snapshot is gone, so there is nothing to fork"
    assert rows(parent) == expected


@pytest.mark.parametrize("who", ["ours", "stock"])
def test_columns_of_the_past(family: Family, who: str) -> None:
    """Files from before a column was renamed or widened are merged in a fork with all they hold."""
    parent = family.create("parent")
    parent.sql("CREATE TABLE t (i INTEGER, s VARCHAR)")
    for start in (0, 100):
        parent.sql(f"INSERT INTO t SELECT i, 'k' || i FROM range({start}, {start + 100}) r(i)")
    parent.sql("ALTER TABLE t ALTER COLUMN i TYPE BIGINT")
    parent.sql("ALTER TABLE t RENAME COLUMN s TO name")
    fork = family.fork("parent", "fork")
    before = rows(fork)
    if who == "ours":
        result = family.operations("fork").run("merge_adjacent_files", "main.t")
        assert result.tables[0].files_in == 2
    else:
        fork.sql("CALL ducklake_merge_adjacent_files('lake', 't')")
    assert rows(fork) == before == rows(parent)
