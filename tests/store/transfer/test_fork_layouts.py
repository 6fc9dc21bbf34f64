"""Catalogs of the fork `thedatamates/ducklake`, in each of its layouts, come into a store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import duckdb
import pytest

from airflow_provider_ducklake.lake.errors import (
    ConfigurationError,
    SafetyRefusal,
    UnsupportedCatalog,
)
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.store.store import CatalogStore
from airflow_provider_ducklake.lake.transfer.into_store import import_catalog
from tests.store.transfer.fork_databases import LAYOUTS, Layout, fork, make
from tests.store.transfer.histories import Seen, see
from tests.store.transfer.old_catalogs import location, run
from tests.support.lakes import stock_client
from tests.support.reference import ReferenceClient

_TABLES: Final = ("main.t", "main.inline", "s.parts")
_NUMBER: Final = count()


@dataclass(frozen=True, slots=True)
class Written:
    """A lake of 1.0 in a DuckDB file, its data path, and what a stock client sees of it."""

    catalog: Path
    data_path: str
    seen: Seen


@pytest.fixture(scope="module")
def written(scratch_directory: Path) -> dict[str, Written]:
    """Lakes whose rows tell each from the others; `plain` has no inlined rows."""
    return {
        "one": _write(scratch_directory, "one", 100),
        "two": _write(scratch_directory, "two", 200),
        "plain": _write(scratch_directory, "plain", 300, inlined=False),
    }


def _write(scratch: Path, name: str, number: int, *, inlined: bool = True) -> Written:
    catalog, data_path = scratch / f"fork-{name}.duckdb", f"{scratch}/fork-{name}/"
    client = ReferenceClient(f"ducklake:{catalog}", data_path=data_path)
    client.set_option("data_inlining_row_limit", 0)
    client.sql(f"CREATE TABLE t AS SELECT i + {number} AS i, 'n' || i AS n FROM range(5) r(i)")
    client.sql(f"DELETE FROM t WHERE i = {number} + 2")
    client.sql("ALTER TABLE t ADD COLUMN more INTEGER DEFAULT 7")
    client.sql("INSERT INTO t VALUES (9, NULL, 8)")
    with client.transaction():
        client.sql("CREATE VIEW v AS SELECT i FROM main.t")
        client.sql("CREATE MACRO twice(x) AS x * 2")
        client.sql("CREATE SCHEMA s")
    client.sql("CREATE TABLE s.parts (k VARCHAR, i INTEGER)")
    client.sql("ALTER TABLE s.parts SET PARTITIONED BY (k)")
    client.sql(f"INSERT INTO s.parts VALUES ('a', {number}), ('b', 2)")
    client.sql("COMMENT ON TABLE t IS 'a comment'")
    client.set_option("target_file_size", "10MB", table="main.t")
    client.sql("CREATE TABLE inline (i INTEGER, t VARCHAR)")
    if inlined:
        client.set_option("data_inlining_row_limit", 10, table="main.inline")
        client.release()
    client.sql(f"INSERT INTO inline VALUES ({number}, 'in'), (51, NULL), (52, 'x')")
    client.sql("DELETE FROM inline WHERE i = 52")
    seen = see(client, _TABLES)
    client.close()
    return Written(catalog, data_path, seen)


class Lakes:
    """Copies of lakes below one data path, to be put into a database of the fork."""

    def __init__(self, directory: Path, written: dict[str, Written], conninfo: str) -> None:
        self.directory = directory / f"fork{next(_NUMBER)}"
        self.directory.mkdir()
        self.data_path = f"{self.directory}/data/"
        self.catalogs: dict[str, Path] = {}
        self.seen: dict[str, Seen] = {}
        self.store, self._conninfo = CatalogStore(conninfo), conninfo
        self._written = written
        self._imported: list[str] = []

    def add(self, name: str, of: str | None = None) -> None:
        """Add a lake, under its own or another name."""
        lake = self._written[of or name]
        shutil.copytree(lake.data_path, f"{self.data_path}{name}")
        self.catalogs[name], self.seen[name] = lake.catalog, lake.seen

    def take(self, source: CatalogLocation, catalog: str | None, name: str) -> ReferenceClient:
        """Import a catalog and return a stock client of it."""
        import_catalog(self.store, source, name, source_catalog=catalog)
        self._imported.append(name)
        return stock_client(self._conninfo, name)

    def drop(self) -> None:
        """Drop what was imported."""
        for name in self._imported:
            self.store.drop_catalog(name)


@pytest.fixture
def lakes(
    scratch_directory: Path, written: dict[str, Written], shared_store: str
) -> Iterator[Lakes]:
    """Lakes to put into a database of the fork."""
    found = Lakes(scratch_directory, written, shared_store)
    yield found
    found.drop()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_catalog_comes_with_its_own_history(lakes: Lakes, layout: Layout) -> None:
    lakes.add("one")
    lakes.add("two")
    database = make(lakes.directory / "f.duckdb", layout, lakes.catalogs, lakes.data_path)
    unchanged = database.path.read_bytes()
    for name in database.names:
        client = lakes.take(location(database.path), name, f"{lakes.directory.name}-{name}")
        before, after = lakes.seen[name], see(client, _TABLES)
        assert after.rows == {
            (table, database.snapshot(name, snapshot)): rows
            for (table, snapshot), rows in before.rows.items()
        }
        # The first snapshot may be that of another.
        assert [s[1:] for s in after.snapshots[1:]] == [s[1:] for s in before.snapshots[1:]]
        assert client.sql("SELECT lake.main.twice(4)") == [(8,)]
        assert client.sql("SELECT count(*) FROM v") == [(5,)]
        entry = lakes.store.catalog(f"{lakes.directory.name}-{name}")
        assert entry.root == f"{lakes.data_path}{name}/"

        client.sql("INSERT INTO t VALUES (1000, 'later', 1)")
        client.sql("CREATE TABLE s.fresh AS SELECT 1 AS one")
        client.sql("DELETE FROM inline WHERE i = 51")
        client.sql("CALL ducklake_merge_adjacent_files('lake')")
        rows = see(client, _TABLES).rows
        assert {key: rows[key] for key in after.rows} == after.rows
        written = client.sql("SELECT data_file FROM ducklake_list_files('lake', 't')")
        assert all(str(path).startswith(entry.root) for (path,) in written)
        client.close()
    assert database.path.read_bytes() == unchanged


def test_the_catalog_has_to_be_named_unless_there_is_one(lakes: Lakes) -> None:
    lakes.add("one")
    alone = make(lakes.directory / "alone.duckdb", "varchar", lakes.catalogs, lakes.data_path)
    lakes.take(location(alone.path), None, f"{lakes.directory.name}-alone").close()
    lakes.add("two")
    both = make(
        lakes.directory / "both.duckdb", "bigint everywhere", lakes.catalogs, lakes.data_path
    )
    with pytest.raises(ConfigurationError, match="holds several catalogs, name one of: one, two"):
        lakes.take(location(both.path), None, "none")
    with pytest.raises(ConfigurationError, match="did you mean 'two'"):
        lakes.take(location(both.path), "tow", "none")


def test_a_database_that_does_not_say_where_its_files_are(lakes: Lakes) -> None:
    lakes.add("one")
    database = make(
        lakes.directory / "f.duckdb",
        "bigint everywhere",
        lakes.catalogs,
        lakes.data_path,
        stores_data_path=False,
    )
    with pytest.raises(ConfigurationError, match="does not say where its files are"):
        lakes.take(location(database.path), "one", "none")
    source = location(database.path, data_path=lakes.data_path)
    client = lakes.take(source, "one", f"{lakes.directory.name}-given")
    assert client.sql("SELECT count(*) FROM t") == [(5,)]
    client.close()


def test_a_fork_shares_the_files_of_its_parent(lakes: Lakes) -> None:
    lakes.add("one", of="plain")
    database = make(
        lakes.directory / "f.duckdb", "bigint everywhere", lakes.catalogs, lakes.data_path
    )
    first = fork(database, "one", "child")
    newest = lakes.seen["one"].snapshots[-1][0]
    parent = lakes.take(location(database.path), "one", f"{lakes.directory.name}-one")
    child = lakes.take(location(database.path), "child", f"{lakes.directory.name}-child")
    assert child.snapshot_ids() == [first]
    entry = lakes.store.catalog(f"{lakes.directory.name}-child")
    assert entry.parent == entry.lineage == f"{lakes.directory.name}-one"
    assert entry.parent_snapshot == parent.snapshot_ids()[-1]
    rows = see(child, _TABLES).at(first)
    assert rows == lakes.seen["one"].at(newest)
    child.sql("INSERT INTO t VALUES (1000, 'in the child', 1)")
    child.sql("DELETE FROM s.parts WHERE k = 'a'")

    # The parent lets its files go; the child keeps those it has.
    for table in ("t", "inline", "s.parts"):
        parent.sql(f"DROP TABLE {table}")
    parent.sql("CALL ducklake_expire_snapshots('lake', older_than => now())")
    parent.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    parent.sql("CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)")
    parent.close()
    child.release()
    assert see(child, _TABLES).at(first) == rows
    files = {
        Path(path).is_relative_to(f"{lakes.data_path}child")
        for (path,) in child.sql("SELECT data_file FROM ducklake_list_files('lake', 't')")
    }
    assert files == {True, False}
    child.close()


def test_a_fork_cannot_come_before_its_parent(lakes: Lakes) -> None:
    lakes.add("one", of="plain")
    database = make(
        lakes.directory / "f.duckdb", "bigint everywhere", lakes.catalogs, lakes.data_path
    )
    fork(database, "one", "child")
    lakes.take(location(database.path), "child", f"{lakes.directory.name}-child").close()
    assert lakes.store.catalog(f"{lakes.directory.name}-child").parent is None
    with pytest.raises(SafetyRefusal, match="import the catalog that owns the directory first"):
        lakes.take(location(database.path), "one", f"{lakes.directory.name}-one")


def test_files_that_the_parent_no_longer_has_are_refused(lakes: Lakes) -> None:
    lakes.add("one", of="plain")
    database = make(
        lakes.directory / "f.duckdb", "bigint everywhere", lakes.catalogs, lakes.data_path
    )
    fork(database, "one", "child")
    parent = lakes.take(location(database.path), "one", f"{lakes.directory.name}-one")
    parent.sql("DROP TABLE t")
    parent.sql("CALL ducklake_expire_snapshots('lake', older_than => now())")
    parent.close()
    with pytest.raises(SafetyRefusal, match="which does not read it"):
        lakes.take(location(database.path), "child", f"{lakes.directory.name}-child")


def test_rows_inlined_by_a_parent_and_its_fork_alike_are_refused(lakes: Lakes) -> None:
    lakes.add("one")
    database = make(
        lakes.directory / "f.duckdb", "bigint everywhere", lakes.catalogs, lakes.data_path
    )
    fork(database, "one", "child")
    for name in ("one", "child"):
        with pytest.raises(UnsupportedCatalog, match="nobody can tell whose they are"):
            lakes.take(location(database.path), name, "none")


def test_ids_that_two_catalogs_took_at_once_do_not_come_again(lakes: Lakes) -> None:
    lakes.add("one")
    database = make(
        lakes.directory / "f.duckdb", "bigint everywhere", lakes.catalogs, lakes.data_path
    )
    run(database.path, ["UPDATE ducklake_snapshot SET next_file_id = 1, next_catalog_id = 2"])
    client = lakes.take(location(database.path), "one", f"{lakes.directory.name}-one")
    client.sql("INSERT INTO t VALUES (1000, 'later', 1)")
    client.sql("CREATE TABLE s.fresh AS SELECT 1 AS one")
    assert client.sql("SELECT count(*) FROM t") == [(6,)]
    client.close()


def test_a_first_layout_is_one_by_its_columns_whatever_its_version(lakes: Lakes) -> None:
    lakes.add("one")
    database = make(lakes.directory / "f.duckdb", "varchar", lakes.catalogs, lakes.data_path)
    set_version = "UPDATE ducklake_metadata SET value = '{}' WHERE key = 'version'"
    run(database.path, [set_version.format("0.4-dev1")])
    client = lakes.take(location(database.path), "one", f"{lakes.directory.name}-one")
    assert client.sql("SELECT count(*) FROM t") == [(5,)]
    client.close()
    with duckdb.connect(str(database.path)) as connection:
        connection.execute(set_version.format("0.6"))
    with pytest.raises(UnsupportedCatalog, match=r"format 0\.6"):
        lakes.take(location(database.path), "one", "none")
