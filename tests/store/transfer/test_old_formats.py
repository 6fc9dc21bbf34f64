"""Catalogs of DuckLake 0.1 to 0.4 come into a store with their history."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import duckdb
import pytest

from airflow_provider_ducklake.lake.errors import UnsupportedCatalog
from airflow_provider_ducklake.lake.store.store import CatalogStore
from airflow_provider_ducklake.lake.transfer.into_store import import_catalog
from tests.store.transfer.histories import Seen, see
from tests.store.transfer.old_catalogs import (
    V01,
    V02,
    V03,
    V04_DEV,
    copy_lake,
    location,
    rewrite,
    run,
)
from tests.support.lakes import LakeFactory, LakeUnderTest, stock_client
from tests.support.reference import ReferenceClient

_NUMBER: Final = count()
_TABLES: Final = ("main.t", "main.inline", "s.parts")
_VERSIONS: Final = {"0.1": V01, "0.2": V02, "0.3": V03, "0.4-dev1": V04_DEV}
# Until 0.2 a path was relative to the data path, and a partition key a place among the columns.
_AS_IN_01: Final = (
    "UPDATE ducklake_{kind}_file f SET path = (SELECT s.path || t.path FROM new.ducklake_table t "
    "JOIN new.ducklake_schema s USING (schema_id) WHERE t.table_id = f.table_id LIMIT 1) || path"
)


@dataclass(frozen=True, slots=True)
class Current:
    """A lake of 1.0 in a DuckDB file, in a directory of its own."""

    directory: Path
    catalog: Path


@pytest.fixture(scope="module")
def written(scratch_directory: Path) -> Iterator[tuple[LakeUnderTest, Seen]]:
    """A lake of 1.0 in which nothing is merged, and what a stock client sees of it."""
    factory = LakeFactory("duckdb", scratch_directory)
    lake = factory.create()
    client = lake.client()
    client.set_option("data_inlining_row_limit", 0)
    client.sql("CREATE TABLE t AS SELECT i, 'n' || i AS name FROM range(5) r(i)")
    client.sql("DELETE FROM t WHERE i = 2")
    client.sql("UPDATE t SET name = 'new' WHERE i > 3")
    client.sql("ALTER TABLE t ADD COLUMN more INTEGER DEFAULT 7")
    client.sql("INSERT INTO t VALUES (9, NULL, 8)")
    client.sql("CREATE VIEW v AS SELECT i FROM main.t")
    client.sql("CREATE SCHEMA s")
    client.sql("CREATE TABLE s.parts (s STRUCT(x INTEGER), k VARCHAR, i INTEGER)")
    client.sql("ALTER TABLE s.parts SET PARTITIONED BY (k)")
    client.sql("INSERT INTO s.parts VALUES ({'x': 1}, 'a', 1), (NULL, 'b', 2)")
    client.sql("CREATE TABLE inline AS SELECT i::INTEGER AS i, 'f' AS t FROM range(20) r(i)")
    client.set_option("data_inlining_row_limit", 10, table="main.inline")
    client.release()
    client.sql("INSERT INTO inline VALUES (50, 'in'), (51, NULL)")
    client.sql("DELETE FROM inline WHERE i = 50")
    seen = see(client, _TABLES)
    client.close()
    yield lake, seen
    factory.remove(lake)


@pytest.fixture
def current(
    written: tuple[LakeUnderTest, Seen], scratch_directory: Path
) -> Iterator[tuple[Current, Seen]]:
    """A copy of that lake."""
    lake, seen = written
    directory = scratch_directory / f"current{next(_NUMBER)}"
    catalog = copy_lake(Path(lake.location.target), lake.data_path, directory)
    yield Current(directory, catalog), seen
    shutil.rmtree(directory)


def as_of(lake: Current, version: str) -> Path:
    """Return a catalog of an older version beside the lake's own."""
    source = lake.catalog
    target = lake.directory / f"old-{version}.duckdb"
    rewrite(source, target, _VERSIONS[version], version)
    if version == "0.1":
        statements = [f"ATTACH '{source}' AS new (READ_ONLY)"]
        statements += [_AS_IN_01.format(kind=kind) for kind in ("data", "delete")]
        statements.append("DELETE FROM ducklake_metadata WHERE value = '10'")  # was of a table
        # The struct takes two column ids, but is one column.
        statements.append("UPDATE ducklake_partition_column SET column_id = 1")
        run(target, statements)
    return target


@pytest.mark.parametrize("version", _VERSIONS)
def test_every_snapshot_of_an_older_catalog_reads_the_same(
    current: tuple[Current, Seen], version: str, shared_store: str
) -> None:
    lake, before = current
    old = as_of(lake, version)
    unchanged = old.read_bytes()
    store, name = CatalogStore(shared_store), f"old-{lake.directory.name}"
    import_catalog(store, location(old), name)
    assert old.read_bytes() == unchanged
    client = stock_client(shared_store, name)
    after = see(client, _TABLES)
    assert after.rows == before.rows
    assert after.columns == before.columns
    assert after.changes == before.changes
    assert [s[:3] for s in after.snapshots] == [s[:3] for s in before.snapshots]
    assert client.sql("SELECT count(*) FROM v") == [(5,)]

    # And it is a catalog like any other.
    client.sql("INSERT INTO s.parts VALUES (NULL, 'c', 3)")
    client.sql("INSERT INTO t VALUES (10, 'x', 1)")
    client.sql("UPDATE inline SET t = 'later' WHERE i = 51")
    assert client.sql("SELECT count(*) FROM s.parts WHERE k = 'c'") == [(1,)]
    files = client.sql("SELECT data_file FROM ducklake_list_files('lake', 'parts', schema => 's')")
    assert sum("k=c/" in str(row[0]) for row in files) == 1
    rows = see(client, _TABLES).rows
    assert {key: rows[key] for key in before.rows} == before.rows
    client.close()
    store.drop_catalog(name)


def test_the_extensions_own_migration_of_a_copy_shows_the_same(
    current: tuple[Current, Seen],
) -> None:
    lake, before = current
    copy = shutil.copy(as_of(lake, "0.3"), lake.directory / "copy.duckdb")
    client = ReferenceClient(f"ducklake:{copy}", options={"AUTOMATIC_MIGRATION": "true"})
    assert see(client, _TABLES).rows == before.rows
    client.close()


def test_a_catalog_of_04_is_one_of_10(current: tuple[Current, Seen], shared_store: str) -> None:
    lake, before = current
    run(
        lake.catalog,
        ["UPDATE ducklake_metadata SET value = '0.4' WHERE key = 'version'"],
    )
    store, name = CatalogStore(shared_store), f"old-{lake.directory.name}"
    import_catalog(store, location(lake.catalog), name)
    client = stock_client(shared_store, name)
    assert see(client, _TABLES) == before
    client.close()
    store.drop_catalog(name)


def test_a_history_that_would_change_is_refused(
    current: tuple[Current, Seen], shared_store: str
) -> None:
    lake, _ = current
    old = as_of(lake, "0.3")
    store, name = CatalogStore(shared_store), f"old-{lake.directory.name}"
    first = "(SELECT min(data_file_id) FROM ducklake_data_file)"
    merged = "UPDATE ducklake_data_file SET partial_file_info = '1:2|3:5' WHERE data_file_id = "
    run(old, [merged + first])
    with pytest.raises(UnsupportedCatalog, match="snapshots 1 to 2 see part of a file merged"):
        import_catalog(store, location(old), name)
    # Once no snapshot needs it, nothing stands against it.
    run(old, ["DELETE FROM ducklake_snapshot WHERE snapshot_id < 3"])
    import_catalog(store, location(old), name)
    store.drop_catalog(name)


def test_what_a_merged_file_says_in_two_ways_is_understood(
    current: tuple[Current, Seen], shared_store: str
) -> None:
    lake, _ = current
    old = as_of(lake, "0.4-dev1")
    with duckdb.connect(str(old)) as connection:
        connection.execute("UPDATE ducklake_data_file SET partial_file_info = 'partial_max:3'")
    store, name = CatalogStore(shared_store), f"old-{lake.directory.name}"
    entry = import_catalog(store, location(old), name)
    with store.transaction() as session:
        found = session.execute(
            "SELECT DISTINCT partial_max FROM ducklake.ducklake_data_file WHERE catalog_id = %s",
            (entry.catalog_id,),
        ).fetchall()
    assert found == [(3,)]
    store.drop_catalog(name)
    with duckdb.connect(str(old)) as connection:
        connection.execute("UPDATE ducklake_data_file SET partial_file_info = 'something'")
    with pytest.raises(UnsupportedCatalog, match="which is not known"):
        import_catalog(store, location(old), f"{name}-x")
