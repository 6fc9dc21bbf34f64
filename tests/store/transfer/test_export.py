"""Catalogs of a store become files that stock clients read without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ducklake.lake.database.sqlite import SqliteSession
from airflow_provider_ducklake.lake.errors import ConfigurationError, NotFound
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.store.store import CatalogStore
from airflow_provider_ducklake.lake.transfer.export import export_catalog
from airflow_provider_ducklake.lake.transfer.into_store import import_catalog
from tests.store.transfer.histories import Seen, see, write_history
from tests.support.lakes import LakeFactory, LakeUnderTest, catalog_fingerprint, stock_client
from tests.support.postgres import PostgresServer
from tests.support.reference import ReferenceClient


@pytest.fixture(scope="module")
def told(scratch_directory: Path, shared_store: str) -> Iterator[tuple[LakeUnderTest, Seen]]:
    """A catalog of the store with a history, and what a stock client sees of it."""
    factory = LakeFactory("store", scratch_directory, shared_store)
    lake = factory.create()
    client = lake.client()
    write_history(client, lake.directory)
    seen = see(client)
    client.close()
    yield lake, seen
    factory.remove(lake)


def file_location(directory: Path, kind: str, name: str) -> CatalogLocation:
    """Return a place for an export."""
    return CatalogLocation.parse(f"ducklake:{kind}:{directory}/{name}.{kind}")


def reader(location: CatalogLocation) -> ReferenceClient:
    """Return a stock client that may only read."""
    return ReferenceClient(location.attach_string, options={"READ_ONLY": "true"})


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_whole_export_reads_the_same_at_every_snapshot(
    told: tuple[LakeUnderTest, Seen], kind: str, tmp_path: Path
) -> None:
    lake, before = told
    fingerprint, files = catalog_fingerprint(lake), lake.stored_files()
    target = file_location(tmp_path, kind, "whole")
    result = export_catalog(Lake.open(lake.location), target)
    client = reader(target)
    assert see(client) == before
    client.close()
    assert result.snapshots == len(before.snapshots)
    assert result.newest_snapshot == before.snapshots[-1][0]
    assert result.tables == 6
    assert result.inlined_rows >= 10
    assert result.to_dict()["target"] == str(target)
    assert catalog_fingerprint(lake) == fingerprint
    assert lake.stored_files() == files
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"whole.{kind}"]


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_frozen_export_is_one_snapshot(
    told: tuple[LakeUnderTest, Seen], kind: str, tmp_path: Path
) -> None:
    lake, before = told
    ids = [snapshot[0] for snapshot in before.snapshots]
    refused: dict[int, str] = {}
    # Half of them each, and the newest.
    for snapshot in {*ids[kind == "sqlite" :: 2], ids[-1]}:
        target = file_location(tmp_path, kind, f"at{snapshot}")
        try:
            result = export_catalog(Lake.open(lake.location), target, snapshot_id=snapshot)
        except ConfigurationError as error:
            refused[snapshot] = str(error)
            continue
        assert (result.snapshots, result.newest_snapshot) == (1, snapshot)
        client = reader(target)
        assert client.snapshot_ids() == [snapshot]
        expected = {table: rows for table, rows in before.at(snapshot).items() if rows is not None}
        assert client.tables() == set(expected), snapshot
        for table, rows in expected.items():
            # By its number, and as the newest, where clients take other ways.
            assert client.rows_at(table, snapshot) == rows, (table, snapshot)
            assert client.sql(f"SELECT count(*) FROM lake.{table}") == [(rows.total(),)]
            counted = client.sql(f"SELECT rowid, * FROM lake.{table}")
            assert sorted(map(repr, counted)) == sorted(map(repr, rows.elements()))
        client.close()
    # The history merges two files, and delete files, and goes on for long after that.
    assert 0 < len(refused) < len(ids) / 4
    assert all("were merged since with rows up to snapshot" in text for text in refused.values())
    assert ids[-1] not in refused


def test_a_frozen_export_of_the_newest_keeps_views_macros_comments_and_options(
    told: tuple[LakeUnderTest, Seen], tmp_path: Path
) -> None:
    lake, before = told
    newest = before.snapshots[-1][0]
    target = file_location(tmp_path, "duckdb", "newest")
    export_catalog(Lake.open(lake.location), target, snapshot_id=newest)
    client = reader(target)
    assert see(client).others == before.others
    client.close()


def test_round_trips_end_where_they_began(
    told: tuple[LakeUnderTest, Seen],
    postgres_server: PostgresServer,
    scratch_directory: Path,
    tmp_path: Path,
) -> None:
    lake, before = told
    target = file_location(tmp_path, "sqlite", "away")
    export_catalog(Lake.open(lake.location), target)
    conninfo = postgres_server.create_database("second_store")
    try:
        second = CatalogStore(conninfo)
        second.init(f"{scratch_directory}/second/")
        entry = import_catalog(second, target, "back")
        assert entry.root == lake.data_path
        location = CatalogLocation.parse(f"ducklake:postgres:{conninfo}", catalog="back")
        client = stock_client(conninfo, "back")
        assert see(client) == before
        client.sql("INSERT INTO plain VALUES (7, 'here only')")
        client.sql("CREATE TABLE s.fresh AS SELECT 1 AS one")
        assert client.sql("SELECT count(*) FROM plain WHERE name = 'here only'") == [(1,)]
        client.close()
        # And once more, from one store into a file and into another store's catalog.
        again = file_location(tmp_path, "duckdb", "again")
        export_catalog(Lake.open(location), again)
        client = reader(again)
        rows = see(client).rows
        client.close()
        assert {key: rows[key] for key in before.rows} == before.rows
    finally:
        postgres_server.drop_database("second_store")


def test_a_copy_in_the_same_store_shares_files_with_the_first(
    shared_store: str, scratch_directory: Path, tmp_path: Path
) -> None:
    factory = LakeFactory("store", scratch_directory, shared_store)
    lake, store = factory.create(), CatalogStore(shared_store)
    client = lake.client()
    client.sql("CALL lake.set_option('data_inlining_row_limit', 0)")
    client.sql("CREATE TABLE plain AS SELECT i FROM range(10) r(i)")
    client.sql("INSERT INTO plain VALUES (10)")
    client.sql("DELETE FROM plain WHERE i = 3")
    before = see(client, ["main.plain"])
    target = file_location(tmp_path, "duckdb", "copy")
    export_catalog(Lake.open(lake.location), target)
    name, root = f"{lake.directory.name}-copy", f"{lake.directory}/copy/"
    entry = import_catalog(store, target, name, root=root)
    assert entry.root == root
    reader_of_copy = stock_client(shared_store, name)
    assert see(reader_of_copy, ["main.plain"]) == before
    reader_of_copy.sql("INSERT INTO plain VALUES (11)")
    assert [path.suffix for path in (lake.directory / "copy").rglob("*.parquet")] == [".parquet"]

    # The first lets go of every file; the copy goes on reading them.
    client.sql("DROP TABLE plain")
    client.sql("CALL ducklake_expire_snapshots('lake', older_than => now())")
    client.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    client.sql("CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)")
    client.close()
    reader_of_copy.release()
    after = see(reader_of_copy, ["main.plain"])
    assert {key: after.rows[key] for key in before.rows} == before.rows

    # When it lets go too, its first owner gets them back for deletion.
    reader_of_copy.sql("DROP TABLE plain")
    reader_of_copy.sql("CALL ducklake_expire_snapshots('lake', older_than => now())")
    reader_of_copy.close()
    client = lake.client()
    client.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    client.close()
    assert lake.stored_files() == {}
    store.drop_catalog(name)
    factory.remove(lake)


def test_a_lake_that_is_in_no_store_is_exported_too(
    scratch_directory: Path, tmp_path: Path
) -> None:
    factory = LakeFactory("sqlite", scratch_directory)
    lake = factory.create()
    client = lake.client()
    client.sql("CREATE TABLE main.plain (i INTEGER, name VARCHAR)")
    client.sql("INSERT INTO plain VALUES (1, 'inlined'), (2, NULL)")
    before = see(client, ["main.plain"])
    client.close()
    target = file_location(tmp_path, "duckdb", "plain")
    assert export_catalog(Lake.open(lake.location), target).inlined_rows == 2
    client = reader(target)
    assert see(client, ["main.plain"]) == before
    client.close()
    factory.remove(lake)


def test_what_cannot_be_exported_is_told_and_leaves_nothing(
    told: tuple[LakeUnderTest, Seen], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, _ = told
    source = Lake.open(lake.location)
    with pytest.raises(ConfigurationError, match="goes to a DuckDB or SQLite file"):
        export_catalog(source, CatalogLocation.parse("ducklake:postgres:dbname=x"))
    with pytest.raises(ConfigurationError, match="goes to a DuckDB or SQLite file on a disk"):
        export_catalog(source, CatalogLocation.parse("ducklake:sqlite:s3://bucket/x.sqlite"))
    target = file_location(tmp_path, "sqlite", "none")
    with pytest.raises(NotFound, match="snapshot 4711 is not kept"):
        export_catalog(source, target, snapshot_id=4711)
    assert list(tmp_path.iterdir()) == []

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(SqliteSession, "insert", full)
    with pytest.raises(OSError, match="no space"):
        export_catalog(source, target)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    Path(target.target).write_text("no catalog")
    with pytest.raises(ConfigurationError, match="exists already and is no export"):
        export_catalog(source, target, replace_older=True)


def test_an_export_is_repeated_and_replaced_but_never_takes_the_place_of_another(
    scratch_directory: Path, tmp_path: Path
) -> None:
    lakes = []
    for name in ("one", "two"):
        lake = LakeFactory("sqlite", scratch_directory).create()
        with closing(lake.client()) as client:
            client.sql(f"CREATE TABLE t AS SELECT '{name}' AS name FROM range(20)")
        lakes.append(lake)
    one, two = (Lake.open(lake.location) for lake in lakes)
    target = file_location(tmp_path, "duckdb", "target")
    done = export_catalog(one, target)
    written = Path(target.target).stat().st_mtime_ns
    assert export_catalog(one, target) == done
    assert Path(target.target).stat().st_mtime_ns == written
    with pytest.raises(ConfigurationError, match="exists already and is something else"):
        export_catalog(two, target, replace_older=True)
    with closing(lakes[0].client()) as client:
        client.sql("INSERT INTO t SELECT 'new' FROM range(20)")
    with pytest.raises(ConfigurationError, match="exists already and is an older export of it"):
        export_catalog(one, target)
    assert export_catalog(one, target, replace_older=True).data_files == done.data_files + 1
    with closing(reader(target)) as client:
        assert client.sql("SELECT count(*) FROM t") == [(40,)]
    # What is there is newer than what was asked for.
    with pytest.raises(ConfigurationError, match="something else"):
        export_catalog(one, target, snapshot_id=1, replace_older=True)
