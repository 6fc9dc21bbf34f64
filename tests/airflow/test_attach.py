"""What ATTACH offers, offered by the connection; several lakes in one DuckDB session."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_ducklake.hooks._attach_options import attach_literals
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.errors import ConfigurationError
from tests.airflow.conftest import Connect
from tests.support.lakes import LakeFactory, LakeUnderTest

pytestmark = pytest.mark.airflow


def test_options_become_literals() -> None:
    given = {
        "SNAPSHOT_VERSION": "7",
        "data_inlining_row_limit": 0,
        "encrypted": "yes",
        "metadata_catalog": "it's",
        "create_if_not_exists": False,
        "automatic_migration": "on",
        "busy_timeout": 500,
        "override_data_path": True,
        "write_deletion_vectors": False,
        "META_SECRET": "it's",
        "meta_hidden": True,
        "meta_limit": 7,
        "metadata_parameters": '{"connect_timeout": 5, "it\'s": true}',
    }
    assert attach_literals(given) == {
        "snapshot_version": "7",
        "data_inlining_row_limit": "0",
        "encrypted": "true",
        "metadata_catalog": "'it''s'",
        "create_if_not_exists": "false",
        "automatic_migration": "true",
        "busy_timeout": "500",
        "override_data_path": "true",
        "write_deletion_vectors": "false",
        "meta_secret": "'it''s'",
        "meta_hidden": "true",
        "meta_limit": "7",
        "metadata_parameters": "MAP {'connect_timeout': '5', 'it''s': 'true'}",
    }
    noon = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
    for value in (noon, "2026-01-31 12:00:00+00:00"):
        assert attach_literals({"snapshot_time": value}) == {
            "snapshot_time": "'2026-01-31 12:00:00+00:00'"
        }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"snapshot_versoin": 1}, "snapshot_version"),
        ({"snapshot_version": -1}, "must not be negative"),
        ({"snapshot_version": "x"}, "whole number"),
        ({"snapshot_time": "2026-01-31 12:00:00"}, "with its offset"),
        ({"snapshot_time": "yesterday"}, "with its offset"),
        ({"encrypted": "perhaps"}, "true or false"),
        ({"metadata_catalog": ""}, "must be text"),
        ({"snapshot_time": "2026-01-31T12:00:00Z", "snapshot_version": 1}, "not both"),
        ({"meta_x) --": 1}, "did you mean|there is"),
        ({"meta_x": ["a"]}, "must be text"),
        ({"metadata_parameters": 7}, "must be a JSON object"),
        ({"data_path": "/x"}, "did you mean|there is"),
    ],
)
def test_options_that_are_wrong(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        attach_literals(given)


def test_one_snapshot_is_read_only(
    lake_under_test: LakeUnderTest, connect_lake: Callable[..., None]
) -> None:
    client = lake_under_test.client()
    client.sql("CREATE TABLE t AS SELECT 1 AS a")
    client.sql("INSERT INTO t VALUES (2)")
    client.close()
    connect_lake(lake_under_test, attach_options={"snapshot_version": 1})
    with DuckLakeHook().get_conn() as connection:
        assert connection.execute("FROM t").fetchall() == [(1,)]
        with pytest.raises(duckdb.Error, match="read-only"):
            connection.execute("INSERT INTO t VALUES (3)")
    connect_lake(lake_under_test, conn_id="now")
    assert DuckLakeHook("now").get_records("FROM t ORDER BY a") == [(1,), (2,)]


@pytest.fixture
def some_lake(tmp_path: Path) -> LakeUnderTest:
    """A lake in SQLite with a table `t(a)` that holds 1 (snapshot 1) and 2 (snapshot 2)."""
    made = LakeFactory("sqlite", tmp_path).create()
    client = made.client()
    client.sql("CREATE TABLE t AS SELECT 1 AS a")
    client.sql("INSERT INTO t VALUES (2)")
    client.close()
    return made


def test_the_snapshot_of_an_instant(
    some_lake: LakeUnderTest, connect_lake: Callable[..., None]
) -> None:
    connect_lake(some_lake, conn_id="now")
    first = DuckLakeHook("now").lake().snapshots()[1]
    connect_lake(some_lake, attach_options={"snapshot_time": first.time.isoformat()})
    assert DuckLakeHook().get_records("FROM t") == [(1,)]


def test_options_of_writing(some_lake: LakeUnderTest, connect_lake: Callable[..., None]) -> None:
    before = set(some_lake.stored_files())
    connect_lake(some_lake, attach_options={"data_inlining_row_limit": 5})
    DuckLakeHook().run("INSERT INTO t VALUES (3)", autocommit=True)
    assert set(some_lake.stored_files()) == before
    options = {"data_inlining_row_limit": 0, "write_deletion_vectors": True}
    connect_lake(some_lake, attach_options=options)
    DuckLakeHook().run("INSERT INTO t SELECT range FROM range(4, 9)", autocommit=True)
    DuckLakeHook().run("DELETE FROM t WHERE a = 8", autocommit=True)
    more = set(some_lake.stored_files()) - before
    assert sorted(Path(name).suffix for name in more) == [".parquet", ".puffin"]


def test_another_data_path_for_one_session(
    some_lake: LakeUnderTest, connect_lake: Callable[..., None], tmp_path: Path
) -> None:
    extra = {"data_path": f"{tmp_path}/elsewhere/", "attach_options": {"override_data_path": True}}
    connect_lake(some_lake, **extra)
    statement = "CREATE TABLE u AS SELECT range AS a FROM range(100)"
    DuckLakeHook().run(statement, autocommit=True)
    assert list((tmp_path / "elsewhere").rglob("*.parquet"))
    connect_lake(some_lake, conn_id="now")
    assert DuckLakeHook("now").lake().data_path == some_lake.data_path


def test_parameters_reach_the_database_of_the_catalog(
    some_lake: LakeUnderTest, connect_lake: Callable[..., None]
) -> None:
    options: dict[str, Any] = {"metadata_catalog": "meta", "busy_timeout": 9}
    connect_lake(some_lake, attach_options={**options, "meta_busy_timeout": 9})
    assert DuckLakeHook().get_first("SELECT count(*) FROM meta.ducklake_snapshot") == (3,)
    for given in ({"meta_bogus": 1}, {"metadata_parameters": {"bogus": "s3cret"}}):
        connect_lake(some_lake, attach_options=given)
        with pytest.raises(AirflowException, match=r"(?i)bogus"):
            DuckLakeHook().get_conn()


def test_parameters_may_be_secret(connect: Connect) -> None:
    options = {"meta_password": "pw-one", "metadata_parameters": {"api_token": "pw-two", "a": "b"}}
    extra = {"attach": "ducklake:sqlite:c.sqlite", "attach_options": options}
    connect("ducklake_default", conn_type="ducklake", extra=extra)
    hook = DuckLakeHook()
    assert set(hook.fields.secrets) == {"pw-one", "pw-two"}
    assert "pw-" not in repr(hook.fields)


def test_an_older_catalog_is_migrated_only_when_asked(
    some_lake: LakeUnderTest, connect_lake: Callable[..., None]
) -> None:
    statement = "UPDATE ducklake_metadata SET value = '0.4' WHERE key = 'version'"
    with closing(sqlite3.connect(some_lake.location.target)) as database, database:
        database.execute(statement)
    connect_lake(some_lake)
    with pytest.raises(AirflowFailException, match="UnsupportedCatalog"):
        DuckLakeHook().get_conn()
    connect_lake(some_lake, attach_options={"automatic_migration": True})
    assert DuckLakeHook().get_records("FROM t ORDER BY a") == [(1,), (2,)]
    connect_lake(some_lake)
    assert DuckLakeHook().lake().head().snapshot_id == 2


def test_a_lake_is_created_only_when_asked(connect: Connect, tmp_path: Path) -> None:
    extra = {
        "catalog_type": "sqlite",
        "path": f"{tmp_path}/new.sqlite",
        "data_path": f"{tmp_path}/data/",
    }
    connect("lake", conn_type="ducklake", extra=extra)
    with pytest.raises(AirflowException):
        DuckLakeHook("lake").get_conn()
    assert not (tmp_path / "new.sqlite").exists()
    asked = {"attach_options": {"create_if_not_exists": True, "encrypted": True}}
    connect("lake", conn_type="ducklake", extra={**extra, **asked})
    DuckLakeHook("lake").run("CREATE TABLE t AS SELECT 1 AS a", autocommit=True)
    with DuckLakeHook("lake").lake().view() as view:
        assert view.option("encrypted") == "true"
        assert view.data_path == f"{tmp_path}/data/"


def test_several_lakes_in_one_session(shared_store: str, connect: Connect, tmp_path: Path) -> None:
    """A workbook read-write beside a workspace read-only, and a lake of another kind."""
    extra = {"attach": f"ducklake:postgres:{shared_store}"}
    connect("store", conn_type="ducklake", extra=extra)
    store = DuckLakeHook("store").store()
    for name in ("at.workspace", "at.workbook"):
        store.create_catalog(name, root=f"{tmp_path}/{name}")
    file = {"catalog_type": "sqlite", "path": f"{tmp_path}/c.sqlite", "data_path": f"{tmp_path}/d/"}
    create = {"attach_options": {"create_if_not_exists": True}}
    connect("file", conn_type="ducklake", extra={**file, **create})
    workspace = DuckLakeHook("store", catalog="at.workspace")
    with workspace.get_conn() as connection:
        connection.execute(
            "CREATE TABLE airports AS SELECT i AS id, 'A' || i AS name FROM range(9) r(i)"
        )
    mine = duckdb.connect()
    mine.execute("CREATE TABLE local AS SELECT 3 AS id")
    DuckLakeHook("store", catalog="at.workbook").configure(mine, "workbook")
    workspace.configure(mine, "workspace", read_only=True)
    DuckLakeHook("file").configure(mine, "own lake")
    mine.execute("CREATE TABLE workbook.visits AS SELECT i % 3 AS airport FROM range(30) r(i)")
    mine.execute("CREATE TABLE \"own lake\".notes AS SELECT 1 AS airport, 'closed' AS note")
    found = mine.execute(
        "SELECT name, count(*), any_value(note) FROM workbook.visits v "
        "JOIN workspace.airports a ON a.id = v.airport "
        'LEFT JOIN "own lake".notes n USING (airport) GROUP BY ALL ORDER BY ALL'
    ).fetchall()
    assert found == [("A0", 10, None), ("A1", 10, "closed"), ("A2", 10, None)]
    assert mine.execute("FROM local").fetchall() == [(3,)], "the default database is left alone"
    with pytest.raises(duckdb.Error, match="read-only"):
        mine.execute("DELETE FROM workspace.airports")
    with pytest.raises(AirflowFailException, match="does not exist, or role"):
        DuckLakeHook("store", catalog="at.other").configure(mine, "other")
    mine.close()
    for name in ("at.workspace", "at.workbook"):
        store.drop_catalog(name)
