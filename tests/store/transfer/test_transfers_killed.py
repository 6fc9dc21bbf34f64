"""Imports and exports are killed at every step and tried again: nothing is there half, or twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ducklake.lake.database.duckdb_file import DuckDBFileDatabase
from airflow_provider_ducklake.lake.errors import CatalogUnavailable
from airflow_provider_ducklake.lake.fault_points import FaultPoint
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.store.store import CatalogStore
from airflow_provider_ducklake.lake.transfer.export import export_catalog
from airflow_provider_ducklake.lake.transfer.into_store import import_catalog
from tests.interop.catalog import catalog_faults
from tests.store.transfer.histories import see
from tests.support.killed import counted, kill_in
from tests.support.lakes import LakeFactory, LakeUnderTest, catalog_fingerprint
from tests.support.reference import ReferenceClient

UNCOMMITTED, COMMITTED = FaultPoint.UNCOMMITTED, FaultPoint.COMMITTED
_TABLES = ("main.plain",)


def _write(client: ReferenceClient) -> None:
    """Make a table with a data file, a delete file, inlined rows and an inlined delete."""
    client.set_option("data_inlining_row_limit", 3)
    client.sql("CREATE TABLE plain AS SELECT i, 'n' || i AS name FROM range(20) r(i)")
    client.sql("DELETE FROM plain WHERE i > 12")
    client.sql("DELETE FROM plain WHERE i = 1")
    client.sql("INSERT INTO plain VALUES (100, 'inlined')")


def _steps(call: Callable[[], object], expected: set[FaultPoint]) -> list[tuple[FaultPoint, int]]:
    """Call a function; return every point it passes, with how often it has passed it then."""
    with counted() as passed:
        call()
    assert passed.keys() == expected
    return [(point, time) for point in passed for time in range(1, passed[point] + 1)]


def _import(store: str, source: CatalogLocation, name: str) -> None:
    import_catalog(CatalogStore(store), source, name, if_not_exists=True)


def _export(location: CatalogLocation, target: CatalogLocation) -> None:
    export_catalog(Lake.open(location), target, replace_older=True)


@pytest.mark.parametrize("lake_factory", ["duckdb", "sqlite", "postgres"], indirect=True)
def test_import_killed_and_run_again(lake_under_test: LakeUnderTest, shared_store: str) -> None:
    source, store, name = lake_under_test, CatalogStore(shared_store), "killed-import"
    client = source.client()
    _write(client)
    before = see(client, _TABLES)
    client.close()
    files, fingerprint = source.stored_files(), catalog_fingerprint(source)
    call = partial(_import, shared_store, source.location, name)
    kill_in(call, UNCOMMITTED)
    assert not store.list_catalogs(name)
    kill_in(call, COMMITTED)
    entry = store.catalog(name)
    assert _steps(call, {UNCOMMITTED, COMMITTED}) == [(UNCOMMITTED, 1), (COMMITTED, 1)]
    assert store.catalog(name) == entry
    _check_imported(shared_store, source, name, before)
    assert source.stored_files() == files
    assert catalog_fingerprint(source) == fingerprint
    store.drop_catalog(name)


def _check_imported(store: str, source: LakeUnderTest, name: str, before: object) -> None:
    location = CatalogLocation.parse(f"ducklake:postgres:{store}", catalog=name)
    made = LakeUnderTest(
        "store", location.attach_string, source.data_path, location, source.directory
    )
    client = made.client()
    assert see(client, _TABLES) == before
    client.close()
    assert not catalog_faults(made)


@pytest.mark.parametrize(
    ("lake_factory", "kind"), [("sqlite", "duckdb"), ("store", "sqlite")], indirect=["lake_factory"]
)
def test_export_killed_and_run_again(
    lake_under_test: LakeUnderTest, kind: str, tmp_path: Path
) -> None:
    source = lake_under_test
    client = source.client()
    _write(client)
    older = see(client, _TABLES)
    client.close()
    target = CatalogLocation.parse(f"ducklake:{kind}:{tmp_path}/c.{kind}")
    export_to = partial(_export, source.location, target)
    steps = _steps(export_to, {UNCOMMITTED, COMMITTED, FaultPoint.WORK_DONE})
    assert _seen(target) == older
    kept = Path(target.target).read_bytes()
    client = source.client()
    client.sql("INSERT INTO plain VALUES (500, 'newer')")
    newer = see(client, _TABLES)
    client.close()
    fingerprint = catalog_fingerprint(source)
    for there in (b"", kept):
        for point, time in steps:
            _put(target, there)
            kill_in(export_to, point, time)
            _is_as_it_was(target, there)
            export_to()
            assert _seen(target) == newer
            assert sorted(path.name for path in tmp_path.iterdir()) == [f"c.{kind}"]
            export_to()
            assert _seen(target) == newer
    assert catalog_fingerprint(source) == fingerprint


def _put(target: CatalogLocation, content: bytes) -> None:
    """Put an older export in a target's place, or nothing."""
    Path(target.target).unlink()
    if content:
        Path(target.target).write_bytes(content)


def _is_as_it_was(target: CatalogLocation, content: bytes) -> None:
    path = Path(target.target)
    assert (path.read_bytes() if path.exists() else b"") == content


def _seen(target: CatalogLocation) -> object:
    client = ReferenceClient(target.attach_string, options={"READ_ONLY": "true"})
    seen = see(client, _TABLES)
    client.close()
    return seen


def test_an_export_that_the_disk_does_not_take(
    scratch_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB keeps what it could not write into its file in a log, and says nothing."""
    factory = LakeFactory("sqlite", scratch_directory)
    lake = factory.create()
    client = lake.client()
    client.sql("SELECT 1")
    client.close()
    target = CatalogLocation.parse(f"ducklake:duckdb:{tmp_path}/c.duckdb")
    detach = DuckDBFileDatabase._detach

    def leave_a_log(database: DuckDBFileDatabase, *given: Any) -> None:
        detach(database, *given)
        Path(f"{target.target}.part.wal").write_bytes(b"rows")

    monkeypatch.setattr(DuckDBFileDatabase, "_detach", leave_a_log)
    with pytest.raises(CatalogUnavailable, match="not all of the export"):
        export_catalog(Lake.open(lake.location), target)
    assert list(tmp_path.iterdir()) == []
    factory.remove(lake)
