"""DuckLakeHook on catalogs of all three kinds: attached, never created, never changed."""

from __future__ import annotations

import json
import os
import sqlite3
import traceback
from collections.abc import Callable
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.providers.common.sql.operators.sql import (
    SQLColumnCheckOperator,
    SQLExecuteQueryOperator,
    SQLTableCheckOperator,
)
from psycopg import sql

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.errors import ConfigurationError
from tests.airflow.conftest import ODD_PASSWORD, Connect, TaskLog, task_context
from tests.support.lakes import LakeFactory, LakeUnderTest, catalog_fingerprint
from tests.support.reference import ReferenceClient
from tests.support.s3 import S3Server

pytestmark = pytest.mark.airflow


def execute(operator: Any) -> Any:
    """Execute an operator; common-sql's carry no types."""
    return operator.execute(task_context())


def filled(lake: LakeUnderTest) -> LakeUnderTest:
    """Create a lake with a table `t(a, b)` of two rows."""
    client = lake.client()
    client.sql("CREATE TABLE t (a INTEGER, b VARCHAR)")
    client.sql("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    client.close()
    return lake


@pytest.fixture
def lake(lake_under_test: LakeUnderTest, connect_lake: Callable[..., None]) -> LakeUnderTest:
    """A filled lake of each kind and its connection `ducklake_default`."""
    connect_lake(lake_under_test)
    return filled(lake_under_test)


@pytest.fixture
def some_lake(tmp_path: Path, connect_lake: Callable[..., None]) -> LakeUnderTest:
    """A filled lake for what does not depend on the catalog's kind."""
    made = filled(LakeFactory("sqlite", tmp_path).create())
    connect_lake(made)
    return made


def test_a_session_has_the_lake_as_its_default(lake: LakeUnderTest) -> None:
    with DuckLakeHook().get_conn() as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("lake",)
        assert sorted(connection.execute("FROM t").fetchall()) == [(1, "one"), (2, "two")]
        assert connection.cursor().execute("SELECT count(*) FROM t").fetchall() == [(2,)]
        assert connection.sql("FROM t").df().shape == (2, 2)


def test_looking_changes_nothing(lake: LakeUnderTest) -> None:
    before = catalog_fingerprint(lake)
    hook = DuckLakeHook()
    assert hook.test_connection()[0]
    hook.get_records("FROM t")
    hook.lake().head()
    assert catalog_fingerprint(lake) == before
    assert [name for name in lake.stored_files() if not name.endswith(".parquet")] == []


def test_connection_test_says_what_it_found(lake: LakeUnderTest) -> None:
    works, message = DuckLakeHook().test_connection()
    assert works
    assert "snapshot 2" in message
    assert f"data path {lake.data_path} readable and writable" in message


def test_the_schema_of_an_operator_is_used(some_lake: LakeUnderTest) -> None:
    hook = DuckLakeHook()
    hook.run(["CREATE SCHEMA s", "CREATE TABLE s.u AS SELECT 7 AS x"], autocommit=True)
    assert DuckLakeHook(schema="s").get_first("FROM u") == (7,)
    operator = SQLExecuteQueryOperator(
        task_id="x", conn_id="ducklake_default", sql="FROM u", database="s"
    )
    assert execute(operator) == [(7,)]


def test_common_sql_reads_and_writes(lake: LakeUnderTest) -> None:
    hook = DuckLakeHook()
    assert hook.get_records("SELECT b FROM t WHERE a = ?", [2]) == [("two",)]
    assert hook.get_records("SELECT b FROM t WHERE a = $a", {"a": 1}) == [("one",)]
    assert hook.get_first("SELECT count(*) FROM t") == (2,)
    assert hook.get_df("FROM t ORDER BY a")["b"].tolist() == ["one", "two"]
    assert hook.run("DELETE FROM t WHERE a = 1", handler=lambda cursor: cursor.fetchall()) == [(1,)]
    hook.insert_rows("t", [(3, "three"), (4, None)], target_fields=["a", "b"])
    assert hook.get_records("FROM t ORDER BY a") == [(2, "two"), (3, "three"), (4, None)]


def test_rows_keep_their_types(some_lake: LakeUnderTest) -> None:
    hook = DuckLakeHook()
    hook.run("CREATE TABLE v (d DATE, z TIMESTAMPTZ, l INTEGER[], x BLOB)", autocommit=True)
    row = (date(2024, 2, 29), datetime(2024, 1, 1, tzinfo=timezone.utc), [1, 2], b"\0\xff")
    hook.insert_rows("v", [row])
    assert [tuple(found) for found in hook.get_records("FROM v")] == [row]


def test_a_failing_statement_undoes_those_before_it(some_lake: LakeUnderTest) -> None:
    statements = ["INSERT INTO t VALUES (9, 'nine')", "INSERT INTO t VALUES ('x', 'y')"]
    with pytest.raises(duckdb.ConversionException):
        DuckLakeHook().run(statements)
    assert DuckLakeHook().get_first("SELECT count(*) FROM t") == (2,)


def test_statements_are_one_snapshot_unless_autocommit_is_asked_for(
    some_lake: LakeUnderTest,
) -> None:
    hook = DuckLakeHook()
    statements = [f"INSERT INTO t VALUES ({n}, 'x')" for n in range(3)]
    hook.run(statements)
    assert hook.lake().head().snapshot_id == 3
    hook.run(statements, autocommit=True)
    assert hook.lake().head().snapshot_id == 6
    hook.run(["BEGIN", *statements, "COMMIT"])
    assert hook.lake().head().snapshot_id == 7
    hook.run(["BEGIN", *statements, "ROLLBACK"])
    assert hook.lake().head().snapshot_id == 7


def test_the_operators_of_common_sql_run_on_it(lake: LakeUnderTest) -> None:
    given: dict[str, Any] = {"conn_id": "ducklake_default"}
    several = SQLExecuteQueryOperator(
        task_id="x",
        sql="INSERT INTO t VALUES (3, 'three'); SELECT count(*) FROM t;",
        split_statements=True,
        **given,
    )
    assert execute(several) == [(3,)]
    columns = SQLColumnCheckOperator(
        task_id="c",
        table="t",
        column_mapping={"a": {"min": {"equal_to": 1}, "null_check": {"equal_to": 0}}},
        **given,
    )
    execute(columns)
    table = SQLTableCheckOperator(
        task_id="d", table="t", checks={"rows": {"check_statement": "COUNT(*) = 99"}}, **given
    )
    with pytest.raises(AirflowException, match="rows"):
        execute(table)


def test_read_only_refuses_to_write(lake: LakeUnderTest, connect_lake: Callable[..., None]) -> None:
    connect_lake(lake, read_only=True)
    hook = DuckLakeHook()
    assert hook.get_first("SELECT count(*) FROM t") == (2,)
    with pytest.raises(duckdb.InvalidInputException, match="read-only"):
        hook.run("DELETE FROM t")
    works, message = hook.test_connection()
    assert works
    assert message.endswith("readable")


def test_settings_of_the_session(
    some_lake: LakeUnderTest, connect_lake: Callable[..., None]
) -> None:
    connect_lake(some_lake, duckdb_settings={"threads": 1, "TimeZone": "Asia/Kolkata"})
    shown = DuckLakeHook().get_first(
        "SELECT current_setting('threads'), current_setting('TimeZone')"
    )
    assert shown == (1, "Asia/Kolkata")
    connect_lake(some_lake, duckdb_settings={"treads": 1})
    with pytest.raises(AirflowFailException, match="DuckDB refuses treads"):
        DuckLakeHook().get_conn()


def test_the_session_is_in_utc(some_lake: LakeUnderTest) -> None:
    assert DuckLakeHook().get_first("SELECT current_setting('TimeZone')") == ("UTC",)


def test_another_data_path_is_refused(
    some_lake: LakeUnderTest, connect_lake: Callable[..., None], tmp_path: Path
) -> None:
    """Cases CT-02: given and stored data path differ."""
    connect_lake(some_lake, data_path=some_lake.data_path.rstrip("/"))
    assert DuckLakeHook().get_first("SELECT count(*) FROM t") == (2,)
    connect_lake(some_lake, data_path=f"{tmp_path}/elsewhere")
    with pytest.raises(AirflowFailException, match=r"data path given .*elsewhere"):
        DuckLakeHook().get_conn()
    works, message = DuckLakeHook().test_connection()
    assert not works
    assert "elsewhere" in message


def test_no_lake_is_created(
    lake_under_test: LakeUnderTest, connect_lake: Callable[..., None]
) -> None:
    connect_lake(lake_under_test)
    with pytest.raises(AirflowException, match=r"there is no|holds no|has no|does not exist"):
        DuckLakeHook().get_conn()
    works, message = DuckLakeHook().test_connection()
    assert not works
    assert message
    assert sorted(os.listdir(lake_under_test.directory)) == []


def test_a_database_without_a_lake_stays_as_it_is(tmp_path: Path, connect: Connect) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    before = path.read_bytes()
    connect("ducklake_default", conn_type="ducklake", extra={"attach": f"ducklake:sqlite:{path}"})
    with pytest.raises(AirflowFailException, match="UnsupportedCatalog"):
        DuckLakeHook().get_conn()
    assert not DuckLakeHook().test_connection()[0]
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["other.sqlite"]


def set_version(lake: LakeUnderTest, version: str) -> None:
    """Write another format version into a catalog, past every DuckLake client."""
    statement = f"UPDATE ducklake_metadata SET value = '{version}' WHERE key = 'version'"
    if lake.kind == "sqlite":
        database = sqlite3.connect(lake.location.target)
        database.execute(statement)
        database.commit()
        database.close()
    elif lake.kind == "duckdb":
        with duckdb.connect(lake.location.target) as session:
            session.execute(statement)
    else:
        with psycopg.connect(lake.location.conninfo) as postgres:
            name = sql.Identifier(lake.location.metadata_schema or "public")
            postgres.execute(sql.SQL("SET search_path TO {}").format(name))
            postgres.execute(statement.encode())


@pytest.mark.parametrize("version", ["0.3", "1.1", "2.0"])
def test_another_format_version_is_refused_for_good(lake: LakeUnderTest, version: str) -> None:
    """Cases CT-01: a clear error that no retry follows, and nothing is migrated."""
    set_version(lake, version)
    before = catalog_fingerprint(lake)
    with pytest.raises(AirflowFailException, match="UnsupportedCatalog"):
        DuckLakeHook().get_conn()
    works, message = DuckLakeHook().test_connection()
    assert not works
    assert version in message
    assert catalog_fingerprint(lake) == before


def test_a_wrong_connection_is_a_failure_for_good(connect: Connect) -> None:
    connect("ducklake_default", conn_type="ducklake", extra={"catalog_typ": "sqlite"})
    with pytest.raises(AirflowFailException, match="did you mean 'catalog_type'"):
        DuckLakeHook().get_conn()
    assert DuckLakeHook().test_connection() == (
        False,
        "connection 'ducklake_default': unknown extra field 'catalog_typ': did you mean "
        "'catalog_type'?",
    )
    with pytest.raises(ConfigurationError):
        DuckLakeHook().location()


def test_unknown_storage_options_are_named(some_lake: LakeUnderTest, connect_lake: Any) -> None:
    connect_lake(some_lake, storage_options={"aws_acces_key_id": "geheim"})
    with pytest.raises(ConfigurationError, match="aws_access_key_id") as raised:
        DuckLakeHook().storage_options()
    assert "geheim" not in str(raised.value)


def test_extra_fields_do_not_reach_the_base_class(
    some_lake: LakeUnderTest, connect_lake: Any
) -> None:
    """Common-sql passes a connection's extra to the hook; `connection` there would hijack it."""
    hook = DuckLakeHook(
        ducklake_conn_id="ducklake_default", path="x", attach="y", connection="z", log_sql=False
    )
    assert hook.log_sql is False
    assert hook.get_first("SELECT count(*) FROM t") == (2,)


@pytest.mark.parametrize(
    ("fields", "uri"),
    [
        (
            {"host": "db", "port": 5433, "login": "u@x", "password": "geheim", "schema": "l"},
            "ducklake://u%40x:***@db:5433/l?catalog_type=postgres",
        ),
        ({"host": "db", "schema": "l"}, "ducklake://db/l?catalog_type=postgres"),
        (
            {"extra": {"catalog_type": "sqlite", "path": "/l/c.db"}},
            "ducklake://%2Fl%2Fc.db?catalog_type=sqlite",
        ),
    ],
)
def test_the_uri_shows_no_secret(connect: Connect, fields: dict[str, Any], uri: str) -> None:
    connect("ducklake_default", conn_type="ducklake", **fields)
    assert DuckLakeHook().get_uri() == uri


def shown(*texts: object) -> bool:
    """Tell whether a piece of the odd password stands in some texts."""
    return any(piece in str(text) for text in texts for piece in ("p@ss", "p%40ss", "or\\d", "x&%"))


def test_the_odd_password_opens_the_catalog_and_is_never_seen(
    guarded_lake: str, task_log: TaskLog, capfd: pytest.CaptureFixture[str]
) -> None:
    """Cases CT-03: special characters work, and stand in no log, message or DuckDB catalog."""
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(guarded_lake)  # the server really asks
    hook = DuckLakeHook()
    assert hook.test_connection()[0]
    assert hook.get_records("FROM t") == [(1,)]
    with hook.get_conn() as connection:
        databases = connection.execute("FROM duckdb_databases()").fetchall()
        secrets = connection.execute("FROM duckdb_secrets()").fetchall()
    assert len(secrets) == 1
    assert not shown(databases, secrets, hook.get_uri(), hook.fields, hook.location(), hook.lake())
    assert not shown(task_log, *capfd.readouterr())


def test_a_refused_password_is_never_seen(
    guarded_lake: str, connect: Connect, task_log: TaskLog
) -> None:
    parts = psycopg.conninfo.conninfo_to_dict(guarded_lake)
    wrong = "wr0ng" + ODD_PASSWORD
    connect(
        "ducklake_default",
        conn_type="ducklake",
        host=parts["host"],
        login="guarded",
        password=wrong,
        schema=parts["dbname"],
    )
    with pytest.raises(AirflowException, match="authentication failed") as raised:
        DuckLakeHook().get_conn()
    assert not isinstance(raised.value, AirflowFailException)
    works, message = DuckLakeHook().test_connection()
    assert not works
    assert "authentication failed" in message
    trace = "".join(traceback.format_exception(raised.value))
    assert not shown(trace, message, task_log)
    assert "wr0ng" not in f"{trace} {message} {task_log}"


def test_an_unreachable_catalog_may_be_tried_again(connect: Connect) -> None:
    connect(
        "ducklake_default",
        conn_type="ducklake",
        host="127.0.0.1",
        port=1,
        password=ODD_PASSWORD,
        schema="x",
    )
    with pytest.raises(AirflowException, match="CatalogUnavailable") as raised:
        DuckLakeHook().get_conn()
    assert not isinstance(raised.value, AirflowFailException)
    assert not shown("".join(traceback.format_exception(raised.value)))


def test_data_on_s3(
    s3_server: S3Server, tmp_path: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "aws_access_key_id": s3_server.access_key_id,
        "aws_secret_access_key": s3_server.secret_access_key,
        "aws_region": s3_server.region,
        "aws_endpoint": s3_server.endpoint,
        "allow_http": True,
    }
    attach = f"ducklake:sqlite:{tmp_path}/c.sqlite"
    create = {
        "attach_options": {"create_if_not_exists": True},
        "data_path": f"{s3_server.url}/lake/",
    }
    extra = {"attach": attach, "storage_options": options}
    connect("new", conn_type="ducklake", extra={**extra, **create})
    session = duckdb.connect()
    DuckLakeHook("new").configure(session, "l")
    session.execute("CREATE TABLE l.t AS SELECT range AS n FROM range(1000)")
    connect("ducklake_default", conn_type="ducklake", extra=extra)
    hook = DuckLakeHook()
    secrets = session.execute("FROM duckdb_secrets()").fetchall()
    session.close()
    assert s3_server.secret_access_key not in json.dumps(secrets, default=str)
    assert hook.get_first("SELECT count(*), sum(n) FROM t") == (1000, 499500)
    works, message = hook.test_connection()
    assert works, message
    assert f"{s3_server.url}/lake/ readable and writable" in message
    for name, value in options.items():
        monkeypatch.setenv(name.upper(), str(value))
    connect("ducklake_default", conn_type="ducklake", extra={"attach": attach})
    assert DuckLakeHook().get_first("SELECT sum(n) FROM t") == (499500,)


def test_an_encrypted_lake_can_be_written(tmp_path: Path, connect: Connect) -> None:
    attach = f"ducklake:sqlite:{tmp_path}/c.sqlite"
    client = ReferenceClient(attach, data_path=f"{tmp_path}/d/", options={"ENCRYPTED": "true"})
    client.sql("CREATE TABLE t (a INTEGER)")
    client.close()
    connect("ducklake_default", conn_type="ducklake", extra={"attach": attach})
    hook = DuckLakeHook()
    hook.run("INSERT INTO t SELECT range FROM range(1000)", autocommit=True)
    assert hook.get_first("SELECT count(*) FROM t") == (1000,)
