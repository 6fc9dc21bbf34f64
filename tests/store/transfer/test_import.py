"""Lakes on a DuckDB file, a SQLite file and in PostgreSQL become catalogs of a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from airflow_provider_ducklake.lake.errors import (
    ConfigurationError,
    LakeError,
    SafetyRefusal,
    UnsupportedCatalog,
)
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.store.registry import CatalogEntry
from airflow_provider_ducklake.lake.store.store import CatalogStore
from airflow_provider_ducklake.lake.transfer.into_store import import_catalog
from tests.interop.operations import Operations
from tests.store.transfer.histories import UPKEPT, see, write_history, write_upkept_tables
from tests.support.lakes import LakeFactory, LakeKind, LakeUnderTest, catalog_fingerprint


@pytest.fixture(params=["duckdb", "sqlite", "postgres"])
def source(request: pytest.FixtureRequest, scratch_directory: Path) -> Iterator[LakeUnderTest]:
    """A lake that is not in a store yet, for each kind of catalog."""
    kind: LakeKind = request.param
    conninfo = request.getfixturevalue("postgres_database") if kind == "postgres" else None
    factory = LakeFactory(kind, scratch_directory, conninfo)
    lake = factory.create()
    yield lake
    factory.remove(lake)


@pytest.fixture
def duckdb_source(scratch_directory: Path) -> Iterator[LakeUnderTest]:
    """A lake on a DuckDB file."""
    factory = LakeFactory("duckdb", scratch_directory)
    lake = factory.create()
    yield lake
    factory.remove(lake)


@pytest.fixture
def store(shared_store: str) -> CatalogStore:
    """The store of the process."""
    return CatalogStore(shared_store)


def imported(lake: LakeUnderTest, shared_store: str, entry: CatalogEntry) -> LakeUnderTest:
    """Return the catalog that a lake has become."""
    location = CatalogLocation.parse(f"ducklake:postgres:{shared_store}", catalog=entry.name)
    return LakeUnderTest("store", location.attach_string, entry.root, location, lake.directory)


def test_every_snapshot_reads_the_same_and_the_source_is_not_changed(
    source: LakeUnderTest, store: CatalogStore, shared_store: str
) -> None:
    client = source.client()
    write_history(client, source.directory)
    before = see(client)
    client.close()
    files, fingerprint = source.stored_files(), catalog_fingerprint(source)

    entry = import_catalog(store, source.location, f"from-{source.directory.name}")
    assert entry.root == source.data_path
    assert entry.parent is None
    assert entry == store.catalog(entry.name)

    client = imported(source, shared_store, entry).client()
    after = see(client)
    client.close()
    assert after == before
    assert any(rows for rows in before.rows.values())
    assert source.stored_files() == files
    assert catalog_fingerprint(source) == fingerprint
    check_ids(shared_store, entry)
    again = import_catalog(store, source.location, entry.name, if_not_exists=True)
    assert again == store.catalog(entry.name)
    with pytest.raises(ConfigurationError, match="exists already"):
        import_catalog(store, source.location, entry.name)
    other = f"{source.directory}/elsewhere"
    with pytest.raises(ConfigurationError, match="exists already, with the root"):
        import_catalog(store, source.location, entry.name, root=other, if_not_exists=True)
    store.drop_catalog(entry.name)


def check_ids(shared_store: str, entry: CatalogEntry) -> None:
    """Check that every id in a catalog, and every one its snapshots name, is of its range."""
    objects = ["schema_id", "table_id", "view_id", "macro_id", "partition_id", "sort_id"]
    files = ["data_file_id", "delete_file_id", "mapping_id"]
    columns = [*objects, *files, "object_id", "scope_id", "next_catalog_id", "next_file_id"]
    with psycopg.connect(shared_store) as connection:
        tables = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = 'ducklake' AND table_name LIKE 'ducklake\\_%%' "
            "AND table_name <> 'ducklake_catalog' AND column_name = ANY (%s)",
            (columns,),
        ).fetchall()
        seen = 0
        for table, column in tables:
            found = connection.execute(
                f"SELECT count({column}), count(*) FILTER (WHERE {column} >> 32 <> %s) "
                f"FROM ducklake.{table} WHERE catalog_id = %s",
                (entry.catalog_id, entry.catalog_id),
            ).fetchone()
            assert found is not None
            assert found[1] == 0, f"{table}.{column}"
            seen += found[0] > 0
        assert seen > 30
        (changes,) = connection.execute(
            "SELECT string_agg(changes_made, ',') FROM ducklake.ducklake_snapshot_changes "
            "WHERE catalog_id = %s",
            (entry.catalog_id,),
        ).fetchone() or ("",)
    ids = [int(part.partition(":")[2]) for part in changes.split(",") if part[-1:].isdigit()]
    assert len(ids) > 15
    assert {number >> 32 for number in ids} == {entry.catalog_id}


def test_clients_and_our_operations_go_on_and_the_past_stays(
    duckdb_source: LakeUnderTest, store: CatalogStore, shared_store: str
) -> None:
    client = duckdb_source.client()
    write_upkept_tables(client)
    before = see(client, UPKEPT)
    client.close()
    entry = import_catalog(store, duckdb_source.location, f"on-{duckdb_source.directory.name}")
    lake = imported(duckdb_source, shared_store, entry)
    client = lake.client()
    client.sql("INSERT INTO plain SELECT i, 'later' FROM range(200, 210) r(i)")
    client.sql("UPDATE s.inline SET t = 'still' WHERE i IN (5, 60)")
    client.sql("DELETE FROM s.inline WHERE i = 51")
    client.sql("CREATE TABLE s.fresh AS SELECT 1 AS one")
    client.sql("ALTER TABLE reshaped ADD COLUMN last INTEGER DEFAULT 1")
    client.sql("INSERT INTO reshaped VALUES (5, NULL, 1, 2)")
    written = see(client, UPKEPT)
    operations = Operations(lake, client.make_way)
    operations.run("flush_inlined_data")
    merged = operations.run("merge_adjacent_files")
    operations.run("rewrite_data_files", delete_threshold=0)
    assert merged.snapshot_after != merged.snapshot_before
    client.release()
    kept = see(client, UPKEPT)
    newest = written.snapshots[-1][0]
    assert {key: rows for key, rows in kept.rows.items() if key[1] <= newest} == written.rows
    assert {key: written.rows[key] for key in before.rows} == before.rows
    stored = len(lake.stored_files())
    versions = ",".join(str(s[0]) for s in kept.snapshots[:-1])
    operations.run("expire_snapshots", versions=versions)
    operations.run("cleanup_old_files", cleanup_all=True, force=True)
    assert len(lake.stored_files()) < stored
    client.release()
    left = see(client, UPKEPT)
    assert left.rows == {key: kept.rows[key] for key in left.rows}
    assert len(left.snapshots) == 1
    client.close()
    store.drop_catalog(entry.name)


def test_a_dropped_import_leaves_no_table_behind(
    duckdb_source: LakeUnderTest, store: CatalogStore, shared_store: str
) -> None:
    client = duckdb_source.client()
    client.sql("CREATE TABLE t (i INTEGER)")
    client.sql("INSERT INTO t VALUES (1)")
    client.close()
    entry = import_catalog(store, duckdb_source.location, f"drop-{duckdb_source.directory.name}")

    def inlined() -> list[tuple[str, ...]]:
        with psycopg.connect(shared_store) as connection:
            return connection.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = 'lake'::regnamespace "
                "AND relkind = 'r' AND substring(relname FROM '_(\\d+)')::bigint >> 32 = %s",
                (entry.catalog_id,),
            ).fetchall()

    assert len(inlined()) == 1
    store.drop_catalog(entry.name)
    assert inlined() == []


def test_options_are_those_of_a_catalog_of_the_store(
    duckdb_source: LakeUnderTest, store: CatalogStore, shared_store: str
) -> None:
    client = duckdb_source.client()
    client.sql("CREATE TABLE t (i INTEGER)")
    client.close()
    entry = import_catalog(store, duckdb_source.location, f"options-{duckdb_source.directory.name}")
    client = imported(duckdb_source, shared_store, entry).client()
    client.sql("INSERT INTO t VALUES (1)")
    # Rows are not inlined unless the source says so.
    assert client.sql("SELECT count(*) FROM ducklake_list_files('lake', 't')") == [(1,)]
    client.close()
    store.drop_catalog(entry.name)


def test_nothing_is_left_of_an_import_that_fails(
    duckdb_source: LakeUnderTest, store: CatalogStore
) -> None:
    client = duckdb_source.client()
    client.sql("CREATE TABLE t (i INTEGER)")
    client.close()
    name = f"fails-{duckdb_source.directory.name}"
    before = [entry.name for entry in store.list_catalogs()]
    with pytest.raises(ConfigurationError, match="cannot be called"):
        import_catalog(store, duckdb_source.location, "no/name")
    first = import_catalog(store, duckdb_source.location, name)
    with pytest.raises(SafetyRefusal, match="lies in that of another"):
        import_catalog(store, duckdb_source.location, f"{name}-again")
    with pytest.raises(ConfigurationError, match="exists already"):
        import_catalog(store, duckdb_source.location, name)
    assert sorted(entry.name for entry in store.list_catalogs()) == sorted([*before, first.name])
    store.drop_catalog(name)


def test_a_name_in_capitals_and_a_missing_source_are_told(
    duckdb_source: LakeUnderTest, store: CatalogStore
) -> None:
    missing = CatalogLocation.parse(f"ducklake:{duckdb_source.directory}/none.duckdb")
    with pytest.raises(LakeError, match="there is no duckdb catalog"):
        import_catalog(store, missing, "missing")
    client = duckdb_source.client()
    client.sql("CREATE TABLE t (i INTEGER)")
    client.close()
    with pytest.raises(ConfigurationError, match="holds one lake only"):
        import_catalog(store, duckdb_source.location, "one", source_catalog="other")
    elsewhere = CatalogLocation.parse(duckdb_source.attach_string, data_path="/elsewhere")
    with pytest.raises(ConfigurationError, match="not the one in the catalog"):
        import_catalog(store, elsewhere, "two")


def test_an_unknown_version_is_refused(duckdb_source: LakeUnderTest, store: CatalogStore) -> None:
    import duckdb

    client = duckdb_source.client()
    client.sql("CREATE TABLE t (i INTEGER)")
    client.close()
    with duckdb.connect(duckdb_source.location.target) as connection:
        connection.execute("UPDATE ducklake_metadata SET value = '1.7' WHERE key = 'version'")
    with pytest.raises(UnsupportedCatalog, match=r"DuckLake format 1\.7"):
        import_catalog(store, duckdb_source.location, "unknown")
    with duckdb.connect(duckdb_source.location.target) as connection:
        connection.execute("DROP TABLE ducklake_metadata")
    with pytest.raises(UnsupportedCatalog, match="holds no DuckLake catalog"):
        import_catalog(store, duckdb_source.location, "unknown")
