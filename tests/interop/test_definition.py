"""create_lake and create_table: what we create is what the reference would have created."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest

from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.errors import ConfigurationError, LakeError, NotFound
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.schemas import create_schema, drop_schema
from airflow_provider_ducklake.spark.operations import run_operation
from airflow_provider_ducklake.spark.report import render
from airflow_provider_ducklake.spark.runner import LocalRunner
from tests.interop.aftermath import life_goes_on
from tests.interop.judge import Judge
from tests.support.lakes import LakeFactory, LakeUnderTest, catalog_rows
from tests.support.model import ModelTable

COLUMNS = (
    "id int64 NOT NULL, name varchar, price decimal(10,2), tags varchar[], "
    "at timestamptz, place STRUCT(x float64, y float64), notes MAP(varchar, int32)"
)
TYPES = {
    "id": "BIGINT",
    "name": "VARCHAR",
    "price": "DECIMAL(10,2)",
    "tags": "VARCHAR[]",
    "at": "TIMESTAMP WITH TIME ZONE",
    "place": "STRUCT(x DOUBLE, y DOUBLE)",
    "notes": "MAP(VARCHAR, INTEGER)",
}


def _create(lake: LakeUnderTest, *, dry_run: bool = False, **options: str) -> str:
    location = replace(lake.location, data_path=lake.data_path)
    made = run_operation(
        "create_lake", Lake.open(location), options, runner=LocalRunner(), dry_run=dry_run
    )
    return " ".join(made.messages)


def test_lake_made_by_us(lake_under_test: LakeUnderTest) -> None:
    """The reference attaches a lake we created, at snapshot 0, and works in it."""
    assert "would create" in _create(lake_under_test, dry_run=True)
    if lake_under_test.kind != "store":
        with pytest.raises(ConfigurationError, match="--data-path"):
            Lake.plan_creation(lake_under_test.location)
    assert lake_under_test.data_path in _create(lake_under_test)
    for dry_run in (True, False):
        with pytest.raises(ConfigurationError, match="already"):
            _create(lake_under_test, dry_run=dry_run)
        said = _create(lake_under_test, dry_run=dry_run, if_not_exists="true")
        assert "exists already" in said
    judge = Judge(lake_under_test)
    assert judge.model.kept == (0,)
    judge.create_table("main.t", {"id": "INTEGER"})
    life_goes_on(judge, "main.t")
    judge.close()


@pytest.mark.parametrize("lake_factory", ["sqlite", "duckdb", "postgres"], indirect=True)
def test_relative_data_path(
    lake_under_test: LakeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored as absolute: whoever works elsewhere finds the same files."""
    monkeypatch.chdir(lake_under_test.directory)
    _create(replace(lake_under_test, data_path="data/"))
    (lake_under_test.directory / "elsewhere").mkdir()
    monkeypatch.chdir(lake_under_test.directory / "elsewhere")
    assert Lake.open(lake_under_test.location).data_path == lake_under_test.data_path
    judge = Judge(lake_under_test)
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.create_table("main.t", {"id": "INTEGER"})
    judge.insert_values("main.t", (1,), (2,))
    judge.close()
    assert lake_under_test.stored_files()


def test_same_catalog_as_the_references(lake_factory: LakeFactory) -> None:
    """The metadata tables have the columns, and the first rows, of a lake the reference makes."""
    ours, theirs = lake_factory.create(), lake_factory.create()
    _create(ours)
    client = theirs.client()
    client.sql("SELECT 1")
    client.close()
    found, expected = catalog_rows(ours), catalog_rows(theirs)
    if lake_factory.kind == "store":
        # Created by the store, whoever asks; we ask for no inlining.
        found["ducklake_metadata"] = [
            row for row in found["ducklake_metadata"] if row["key"] != "data_inlining_row_limit"
        ]
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        assert len(found[name]) == len(rows), name
        for mine, other in zip(found[name], rows, strict=True):
            assert list(mine) == list(other), name
    keys = {row["key"]: row["value"] for row in found["ducklake_metadata"]}
    other_keys = {row["key"]: row["value"] for row in expected["ducklake_metadata"]}
    assert keys["version"] == other_keys["version"]
    assert keys["encrypted"] == other_keys["encrypted"]
    for lake in (ours, theirs):
        lake_factory.remove(lake)


def test_schema_made_and_dropped_by_us(judge: Judge) -> None:
    """A schema of ours holds what the reference makes in it, and goes only when it is empty."""
    lake = judge.operations.open()
    judge.client.make_way()
    create_schema(lake, "Neu")
    judge.accept({})
    run = judge.client.sql
    contents = {
        "TABLE": "CREATE TABLE neu.t (i INTEGER)",
        "VIEW": "CREATE VIEW neu.t AS SELECT 1 AS i",
        "MACRO": "CREATE MACRO neu.t() AS 1",
    }
    for kind, create in contents.items():
        run(create)
        judge.accept({"Neu.t": ModelTable(("i",))} if kind == "TABLE" else {})
        judge.client.make_way()
        with pytest.raises(ConfigurationError, match="'NEU' is not empty"):
            drop_schema(lake, "NEU")
        run(f"DROP {kind} neu.t")
        judge.accept({"Neu.t": None} if kind == "TABLE" else {})
    judge.client.make_way()
    drop_schema(lake, "neu")
    judge.accept({})
    with pytest.raises(duckdb.Error, match="not found"):
        run("CREATE TABLE neu.t (i INTEGER)")
    judge.client.make_way()
    with pytest.raises(NotFound, match="there is no schema 'neu'"):
        drop_schema(lake, "neu")


def test_table_made_by_us(judge: Judge) -> None:
    """Types, nesting, NOT NULL, partition and sort keys reach the reference."""
    result = judge.operations.run(
        "create_table", "main.t", columns=COLUMNS, partition_by="year(at)", sorted_by="name DESC"
    )
    judge.accept({"main.t": ModelTable(tuple(TYPES))})
    assert result.snapshot_after == judge.model.head
    described = {row[0]: row[1] for row in judge.client.sql("DESCRIBE main.t")}
    assert {name: _bare(kind) for name, kind in described.items()} == {
        name: _bare(kind) for name, kind in TYPES.items()
    }
    with pytest.raises(Exception, match="NOT NULL"):
        judge.client.sql("INSERT INTO main.t (id) VALUES (NULL)")
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.insert_values("main.t", (1, "a", None, None, None, None, None))
    assert any("at_year=" in name or "year=" in name for name in judge.lake.stored_files())
    head = judge.model.head
    for dry_run in (True, False):
        with pytest.raises(ConfigurationError, match="exists"):
            judge.operations.run("create_table", "main.t", columns="id int64", dry_run=dry_run)
    judge.operations.run("create_table", "main.t", columns="id int64", if_not_exists=True)
    judge.accept({})
    assert judge.model.head == head
    life_goes_on(judge, "main.t")


def test_info_describes(judge: Judge) -> None:
    """Rows, files and the share of deleted rows as they are, and which snapshots are kept."""
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.create_table("main.t", {"id": "INTEGER"})
    judge.insert_values("main.t", *((i,) for i in range(20)))
    judge.delete("main.t", "id < 5", lambda row: row["id"] < 5)
    told = judge.dry_run("info")
    (table,) = told.tables
    assert (table.rows, table.deleted_rows, table.delete_ratio) == (15, 5, 0.25)
    first, last = judge.client.snapshots()[0], judge.client.snapshots()[-1]
    for snapshot in (first, last):
        assert f"{snapshot.snapshot_id} of {snapshot.time:%Y-%m-%d %H:%M:%S}" in told.messages[1]
    shown = render(told)
    assert "main.t: 15 rows, 1 files of" in shown
    assert "5 deleted rows (25.0% of those in files)" in shown
    assert "->" not in shown


def test_retry_returns_the_first_table(judge: Judge) -> None:
    """A job that is run again under its key finds the table it made; another job is refused."""
    first, other = CommitInfo(key="run-1"), CommitInfo(key="run-2")
    made = judge.operations.run("create_table", "main.t", columns="id int64", commit=first)
    judge.accept({"main.t": ModelTable(("id",))})
    again = judge.operations.run("create_table", "main.t", columns="id int64", commit=first)
    assert (made.already_done, again.already_done) == (False, True)
    assert again.snapshot_after == made.snapshot_after
    with pytest.raises(ConfigurationError, match="exists"):
        judge.operations.run("create_table", "main.t", columns="id int64", commit=other)
    judge.check()


def test_specs_that_do_not_fit(judge: Judge) -> None:
    """Refused before anything is written, in a dry run alike: stock clients could not insert."""
    for partition, sort in (("", "nocol"), ("", "sum(id)"), ("nocol", "")):
        for dry_run in (True, False):
            with pytest.raises(LakeError, match="key"):
                judge.operations.run(
                    "create_table",
                    "main.t",
                    columns="id int64",
                    partition_by=partition,
                    sorted_by=sort,
                    dry_run=dry_run,
                )
    assert judge.client.tables() == frozenset()


def test_schema_made_with_its_table(judge: Judge) -> None:
    """One snapshot that says so; the next table finds the schema, and stock clients use both."""
    planned = judge.dry_run("create_table", "Neu.t", columns="id int64")
    assert planned.messages == ("would create schema Neu", "would create Neu.t (id BIGINT)")
    made = judge.operations.run("create_table", "Neu.t", columns="id int64")
    assert made.messages == ("created schema Neu", "created Neu.t (id BIGINT)")
    judge.accept({"Neu.t": ModelTable(("id",))})
    changes = judge.client.snapshots()[-1].changes
    assert changes == {("schemas_created", ("Neu",)), ("tables_created", ("Neu.t",))}
    judge.operations.run("create_table", "neu.u", columns="id int64", sorted_by="id")
    judge.accept({"Neu.u": ModelTable(("id",))})
    judge.insert_values("Neu.u", (1,))


def _bare(kind: str) -> str:
    return kind.replace('"', "").upper()


def test_dry_run_creates_nothing(judge: Judge) -> None:
    """A dry run of create_table leaves no trace."""
    result = judge.dry_run("create_table", "main.t", columns=COLUMNS)
    assert "main.t" in " ".join(result.messages)
