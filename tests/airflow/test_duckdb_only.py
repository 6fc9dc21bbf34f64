"""What only DuckDB reaches: MotherDuck's metadata, and a lake that a DuckLake secret names."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from psycopg.conninfo import conninfo_to_dict

from airflow_provider_ducklake.hooks import _attach
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.errors import ConfigurationError, UnsupportedCatalog
from airflow_provider_ducklake.operators.compaction import DuckLakeMergeAdjacentFilesOperator
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from tests.airflow.conftest import ODD_PASSWORD, Connect, StandIn, TaskLog, task_context
from tests.support.lakes import LakeUnderTest
from tests.support.reference import extension_file

pytestmark = pytest.mark.airflow
Merge = DuckLakeMergeAdjacentFilesOperator
TOKEN = "eyJhbGciOi.s3cr3t"


@pytest.fixture
def motherduck(connect: Connect) -> None:
    """A connection `ducklake_default` to a lake whose metadata MotherDuck keeps."""
    connect(
        "ducklake_default",
        conn_type="ducklake",
        schema="__ducklake_metadata_flights",
        password=TOKEN,
        extra={"catalog_type": "motherduck", "data_path": "s3://b/flights/", "read_only": True},
    )


class RecordingSession:
    """Takes what a DuckDB session is told; the MotherDuck extension needs a network."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.run: list[tuple[str, list[Any]]] = []

    def load_extension(self, name: str) -> None:
        """Note an extension."""
        self.loaded.append(Path(name).name.partition(".")[0])

    def execute(self, statement: str, parameters: Any = ()) -> None:
        """Note a statement."""
        self.run.append((statement, list(parameters)))


@pytest.mark.usefixtures("motherduck")
def test_how_a_session_comes_to_a_lake_of_motherduck() -> None:
    session: Any = RecordingSession()
    DuckLakeHook().configure(session, "lake", use=True)
    assert session.loaded == ["motherduck", "httpfs", "ducklake"]
    assert ('SET "motherduck_token" = $1', [TOKEN]) in session.run
    *_, attach, use = session.run
    assert attach == (
        "ATTACH 'ducklake:md:__ducklake_metadata_flights' AS \"lake\" (CREATE_IF_NOT_EXISTS false, "
        "READ_ONLY, DATA_PATH 's3://b/flights/')",
        [],
    )
    assert use == ('USE "lake"', [])
    assert not any(TOKEN in statement for statement, _ in session.run)


@pytest.mark.parametrize(
    ("attach", "string"),
    [
        ("ducklake:md:flights", "ducklake:md:flights"),
        ("ducklake:motherduck:flights", "ducklake:md:flights"),
        (f"ducklake:md:flights?motherduck_token={TOKEN}", "ducklake:md:flights"),
        (f"ducklake:md:f?motherduck_token={TOKEN}&saas_mode=true", "ducklake:md:f?saas_mode=true"),
    ],
)
def test_an_attach_string_for_motherduck(connect: Connect, attach: str, string: str) -> None:
    connect("ducklake_default", conn_type="ducklake", extra={"attach": attach})
    hook = DuckLakeHook()
    assert hook.location().attach_string == string
    assert hook.location().password == (TOKEN if TOKEN in attach else None)
    assert _attach.attach_statement(hook.fields, "l").startswith(f"ATTACH '{string}' AS \"l\"")
    assert TOKEN not in f"{hook.location()} {hook.location()!r} {hook.fields!r} {hook.get_uri()}"


@pytest.mark.usefixtures("motherduck")
def test_jobs_and_sensors_refuse_motherduck_and_say_what_can_be_done(
    spark: StandIn, task_log: TaskLog
) -> None:
    said = r"only DuckDB reaches its metadata.*upkeep to MotherDuck.*DuckLakeHook.get_conn"
    with pytest.raises(UnsupportedCatalog, match=said) as of_lake:
        DuckLakeHook().lake()
    with pytest.raises(AirflowFailException, match=said) as of_operator:
        Merge(task_id="x", dry_run=True).execute(task_context())
    with pytest.raises(AirflowFailException, match=said) as of_sensor:
        DuckLakeSnapshotSensor(task_id="x").poke(task_context())
    assert not spark.started
    for error in (of_lake, of_operator, of_sensor):
        assert "\n" not in str(error.value)
        assert TOKEN not in "".join(traceback.format_exception(error.value))
    assert TOKEN not in str(task_log)


@pytest.mark.usefixtures("motherduck")
def test_a_token_from_the_environment_is_masked_too(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert DuckLakeHook().redact(f"token is {TOKEN}") == "token is ***"
    assert DuckLakeHook().get_uri() == (
        "ducklake://:***@/__ducklake_metadata_flights?catalog_type=motherduck"
    )
    connect("ducklake_default", conn_type="ducklake", extra={"attach": "ducklake:md:flights"})
    monkeypatch.setenv("motherduck_token", "from-env1ronment")
    assert DuckLakeHook().redact("found from-env1ronment") == "found ***"


@pytest.mark.usefixtures("motherduck")
def test_without_the_extension_one_line_says_so() -> None:
    works, message = DuckLakeHook().test_connection()
    assert not works
    assert "extension motherduck does not load" in message
    assert TOKEN not in message


@pytest.fixture
def lake(lake_under_test: LakeUnderTest) -> LakeUnderTest:
    """A lake of each kind with a table `t(a)` of one row."""
    with closing(lake_under_test.client()) as client:
        client.sql("CREATE TABLE t AS SELECT 1 AS a")
    return lake_under_test


def create_secret(session: duckdb.DuckDBPyConnection, lake: LakeUnderTest, what: str) -> None:
    """Make a DuckLake secret by hand, as a user would."""
    path = lake.attach_string.removeprefix("ducklake:")
    schema = lake.location.metadata_schema
    session.load_extension(str(extension_file("ducklake")))
    session.execute(
        f"CREATE {what} (TYPE ducklake, METADATA_PATH $1, METADATA_SCHEMA $2)", [path, schema or ""]
    )


def test_a_connection_names_a_secret_of_the_session(lake: LakeUnderTest, connect: Connect) -> None:
    connect("ducklake_default", conn_type="ducklake", extra={"attach": "ducklake:My_Lake"})
    with closing(duckdb.connect()) as session:
        with pytest.raises(AirflowException, match='Secret "My_Lake" was not found'):
            DuckLakeHook().configure(session, "l")
        create_secret(session, lake, "SECRET my_lake")
        DuckLakeHook().configure(session, "l")
        assert session.execute("FROM l.t").fetchall() == [(1,)]
        session.execute("INSERT INTO l.t VALUES (2)")
        session.execute("DETACH l")
        DuckLakeHook().configure(session, "l", read_only=True)
        with pytest.raises(duckdb.Error, match="read-only"):
            session.execute("INSERT INTO l.t VALUES (3)")
        session.execute("DETACH l")
        create_secret(session, lake, "SECRET")
        default = {"attach": "ducklake:__default_ducklake"}
        connect("default", conn_type="ducklake", extra=default)
        DuckLakeHook("default").configure(session, "l", use=True)
        assert session.execute("SELECT sum(a) FROM t").fetchone() == (3,)


def test_a_connection_names_a_stored_secret(
    lake: LakeUnderTest, connect: Connect, tmp_path: Path
) -> None:
    place: dict[str, Any] = {"secret_directory": str(tmp_path / "secrets")}
    with closing(duckdb.connect(config=place)) as session:
        create_secret(session, lake, "PERSISTENT SECRET stored")
    extra = {"attach": "ducklake:stored", "duckdb_settings": place}
    connect("ducklake_default", conn_type="ducklake", extra=extra)
    hook = DuckLakeHook()
    assert hook.get_records("FROM t") == [(1,)]
    works, message = hook.test_connection()
    assert works, message
    assert message == "catalog of the DuckLake secret stored: snapshot 1, seen by DuckDB"
    assert hook.get_uri() == "ducklake://?attach=ducklake%3Astored"


def test_a_connection_makes_a_secret(
    lake: LakeUnderTest, connect_lake: Callable[..., None]
) -> None:
    connect_lake(lake, secret="made_here")
    with DuckLakeHook().get_conn() as connection:
        assert connection.execute("FROM t").fetchall() == [(1,)]
        connection.execute("INSERT INTO t VALUES (2)")
        connection.execute("USE memory; DETACH lake; ATTACH 'ducklake:made_here' AS again")
        assert connection.execute("SELECT sum(a) FROM again.t").fetchone() == (3,)
    assert DuckLakeHook().lake().head().snapshot_id == 2, "jobs know where the lake is all the same"


def test_no_password_is_part_of_a_secret_that_is_made(
    guarded_lake: str, connect: Connect, task_log: TaskLog
) -> None:
    parts = conninfo_to_dict(guarded_lake)
    connect(
        "ducklake_default",
        conn_type="ducklake",
        host=parts["host"],
        login="guarded",
        password=ODD_PASSWORD,
        schema=parts["dbname"],
        extra={"catalog_type": "postgres", "secret": "guarded_lake"},
    )
    with DuckLakeHook().get_conn() as connection:
        assert connection.execute("FROM t").fetchall() == [(1,)]
        connection.execute("ATTACH 'ducklake:guarded_lake' AS again (READ_ONLY)")
        assert connection.execute("FROM again.t").fetchall() == [(1,)]
        secrets = str(connection.execute("FROM duckdb_secrets()").fetchall())
        databases = str(connection.execute("FROM duckdb_databases()").fetchall())
    assert "SECRET=ducklake_catalog_lake" in secrets
    for piece in ("p@ss", "p%40ss", "or\\d", "x&%"):
        assert piece not in f"{secrets} {databases} {task_log}"


def test_a_secret_creates_no_lake_unless_asked(connect: Connect, tmp_path: Path) -> None:
    extra = {
        "catalog_type": "duckdb",
        "path": f"{tmp_path}/new.duckdb",
        "data_path": f"{tmp_path}/data/",
        "secret": "fresh",
    }
    connect("lake", conn_type="ducklake", extra=extra)
    with pytest.raises(AirflowException):
        DuckLakeHook("lake").get_conn()
    assert not (tmp_path / "new.duckdb").exists()
    asked = {"attach_options": {"create_if_not_exists": True}}
    connect("lake", conn_type="ducklake", extra={**extra, **asked})
    DuckLakeHook("lake").run("CREATE TABLE t AS SELECT 1 AS a", autocommit=True)
    assert DuckLakeHook("lake").lake().data_path == f"{tmp_path}/data/"


def test_jobs_and_sensors_refuse_a_name_they_cannot_resolve(
    connect: Connect, spark: StandIn
) -> None:
    connect("ducklake_default", conn_type="ducklake", extra={"attach": "ducklake:mine"})
    said = r"only DuckDB can read its secrets.*secret=mine.*write ducklake:duckdb:mine"
    with pytest.raises(UnsupportedCatalog, match=said):
        DuckLakeHook().lake()
    with pytest.raises(AirflowFailException, match=said):
        Merge(task_id="x").execute(task_context())
    with pytest.raises(AirflowFailException, match=said):
        DuckLakeSnapshotSensor(task_id="x").poke(task_context())
    assert not spark.started


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"attach": "ducklake:mine", "secret": "other"}, "'mine': give one of them"),
        ({"attach": "ducklake:c.db", "secret": "my-lake"}, "letters, digits and '_' only"),
        ({"attach": "ducklake:mine", "catalog": "acme"}, "only a store in PostgreSQL"),
        ({"catalog_type": "motherduck"}, "metadata database as schema"),
        ({"catalog_type": "motherduck", "path": "x"}, "leave out path"),
    ],
)
def test_wrong_connections(connect: Connect, extra: dict[str, Any], message: str) -> None:
    connect("ducklake_default", conn_type="ducklake", extra=extra)
    with pytest.raises(ConfigurationError, match=message):
        DuckLakeHook().location()
