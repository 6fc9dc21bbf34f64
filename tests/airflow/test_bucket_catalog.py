"""A SQLite catalog in a bucket through the connection: hook, sessions, operators and sensor."""

from __future__ import annotations

import gc
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowFailException

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.operators.add_data_files import DuckLakeAddDataFilesOperator
from airflow_provider_ducklake.operators.compaction import DuckLakeMergeAdjacentFilesOperator
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from airflow_provider_ducklake.spark.cli import parser
from airflow_provider_ducklake.spark.operations import run_operation
from airflow_provider_ducklake.spark.runner import LocalRunner
from tests.airflow.conftest import Connect, StandIn, TaskLog, task_context
from tests.support import places
from tests.support.places import Place, add

pytestmark = pytest.mark.airflow
local, place = places.local, places.place
Merge = DuckLakeMergeAdjacentFilesOperator


@pytest.fixture
def copies(local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which copies of the catalog are made; pytest has made its own before."""
    directory = local / "tmp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


@pytest.fixture
def lake(place: Place, connect: Connect, copies: Path) -> Place:
    """A lake with a table `first(id)` of two rows, and its connection `ducklake_default`."""
    place.begin()
    insert(place, 1, 2)
    extra = {"catalog_url": place.url, "storage_options": dict(place.options)}
    connect("ducklake_default", conn_type="ducklake", extra=extra)
    return place


def insert(place: Place, *ids: int) -> None:
    """Let another job insert rows into `first`, one snapshot."""
    with place.out() as checkout, closing(place.client(Path(checkout.location.target))) as client:
        client.sql("INSERT INTO first SELECT unnest(?)", [list(ids)])


def test_every_look_sees_what_is_in_the_bucket_then(lake: Place, copies: Path) -> None:
    before = lake.store.head(lake.url)
    opened = DuckLakeHook().lake()
    assert str(opened) == f"sqlite catalog {lake.url}"
    assert opened.head().snapshot_id == 2
    with lake.out(lease_seconds=600):
        assert [table.full_name for table in opened.tables()] == ["main.first"]
    assert lake.store.head(lake.url) == before
    insert(lake, 3)
    assert opened.head().snapshot_id == 3
    assert list(copies.iterdir()) == []


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_the_storage_connection_opens_the_bucket_of_the_catalog(
    lake: Place, connect: Connect
) -> None:
    """What the connection of the data's cloud says counts for the catalog, too."""
    given = dict(lake.options)
    cloud = {"region_name": given["aws_region"], "endpoint_url": given["aws_endpoint"]}
    key, secret = given["aws_access_key_id"], given["aws_secret_access_key"]
    connect("cloud", conn_type="aws", login=key, password=secret, extra=cloud)
    extra = {"catalog_url": lake.url, "storage_conn_id": "cloud"}
    connect("ducklake_default", conn_type="ducklake", extra=extra)
    assert DuckLakeHook().lake().head().snapshot_id == 2
    assert DuckLakeHook().get_records("SELECT id FROM first ORDER BY id") == [(1,), (2,)]


def test_such_a_lake_is_only_read_through_the_hook(lake: Place) -> None:
    opened = DuckLakeHook().lake()
    with pytest.raises(ConfigurationError, match="change it with an operator"):
        opened.commit(base=2, changes=(), write=lambda writer: None)
    with pytest.raises(ConfigurationError, match="change it with an operator"):
        Lake.create(replace(DuckLakeHook().location(), data_path=lake.data_path))


def test_a_session_reads_a_copy_and_cannot_write_into_it(lake: Place, copies: Path) -> None:
    before = lake.store.head(lake.url)
    with DuckLakeHook().get_conn() as connection:
        assert len(list(copies.iterdir())) == 1
        assert connection.execute("FROM first ORDER BY id").fetchall() == [(1,), (2,)]
        with pytest.raises(duckdb.Error, match=r"read-only.*change it with an operator"):
            connection.execute("INSERT INTO first VALUES (3)")
        insert(lake, 4)
        assert connection.execute("SELECT count(*) FROM first").fetchone() == (2,)
    assert list(copies.iterdir()) == []
    assert lake.store.head(lake.url) != before
    assert DuckLakeHook().get_records("SELECT id FROM first AT (VERSION => 3) ORDER BY id") == [
        (1,),
        (2,),
        (4,),
    ]


def use_a_session_of_ones_own(copies: Path) -> Any:
    """Attach the lake to a session, read, fail to write, and let go of the session."""
    session = duckdb.connect()
    hook = DuckLakeHook()
    with pytest.raises(AirflowFailException, match="for reading only"):
        hook.configure(session, "l", read_only=False)
    assert list(copies.iterdir()) == []
    hook.configure(session, "l")
    with pytest.raises(duckdb.Error, match="read-only"):
        session.execute("DELETE FROM l.first")
    assert len(list(copies.iterdir())) == 1
    return session.execute("SELECT sum(id) FROM l.first").fetchone()


def test_a_session_of_ones_own_keeps_its_copy_as_long_as_it_lasts(
    lake: Place, copies: Path
) -> None:
    assert use_a_session_of_ones_own(copies) == (3,)
    gc.collect()  # its errors hold frames
    assert list(copies.iterdir()) == []


def test_a_session_that_fails_leaves_no_copy(lake: Place, copies: Path) -> None:
    with pytest.raises(duckdb.Error, match="nowhere"):
        DuckLakeHook(schema="nowhere").get_conn()
    assert list(copies.iterdir()) == []


def test_the_connection_is_tested(lake: Place, connect: Connect, copies: Path) -> None:
    works, message = DuckLakeHook().test_connection()
    assert works, message
    assert f"catalog {lake.url}: snapshot 2, data path {lake.data_path} readable" in message
    assert lake.objects() == ["catalog.sqlite"]
    absent = f"{lake.url}.none"
    works, message = DuckLakeHook(catalog_url=absent).test_connection()
    assert not works
    assert f"there is no sqlite catalog {absent}" in message
    lake.store.write(absent, b"no database")
    works, message = DuckLakeHook(catalog_url=absent).test_connection()
    assert not works
    assert f"{absent} holds no SQLite database" in message
    assert list(copies.iterdir()) == []


def test_the_job_is_told_the_url(lake: Place, spark: StandIn, task_log: TaskLog) -> None:
    operator = Merge(task_id="x", lease_wait=90)
    operator.execute(task_context())
    assert spark.value("catalog-url") == lake.url
    assert spark.value("lease-wait") == "90"
    assert spark.values("attach") == []
    for secret in lake.options.values():
        if "secret" in secret:
            assert secret not in f"{spark.call['argv']} {task_log}"
    key = spark.value("commit-key")
    Merge(task_id="x", catalog_url=f"{lake.url}.other").execute(task_context(try_number=2))
    assert spark.value("commit-key") != key
    assert spark.values("lease-wait") == []
    Merge(task_id="x").execute(task_context(try_number=2))
    assert spark.value("commit-key") == key


def test_one_connection_serves_all_catalogs_of_a_bucket(
    lake: Place, spark: StandIn, connect: Connect
) -> None:
    """It says how the bucket is reached; which catalog it is comes from a template."""
    options = {"storage_options": dict(lake.options)}
    connect("ducklake_default", conn_type="ducklake", extra=options)
    with DAG("nightly"):
        operator = Merge(task_id="x", catalog_url="{{ url }}", lease_wait="{{ wait }}")
        sensor = DuckLakeSnapshotSensor(task_id="w", catalog_url="{{ url }}", baseline=1)
    for task in (operator, sensor):
        task.render_template_fields(task_context({"url": lake.url, "wait": None}))
    operator.execute(task_context())
    assert spark.value("catalog-url") == lake.url
    assert sensor.poke(task_context()).xcom_value == 2
    with pytest.raises(AirflowFailException, match="catalog_url is given and comes to 'None'"):
        Merge(task_id="x", catalog_url="None").execute(task_context())
    with pytest.raises(AirflowFailException, match="lease_wait must not be negative"):
        Merge(task_id="x", catalog_url=lake.url, lease_wait=-1).execute(task_context())


def test_the_sensor_sees_what_another_job_put_back(lake: Place, copies: Path) -> None:
    sensor = DuckLakeSnapshotSensor(task_id="wait", tables="first")
    assert not sensor.poke(task_context()).is_done
    with lake.out() as checkout:
        add(checkout, "second")
        with closing(lake.client(Path(checkout.location.target))) as client:
            client.sql("INSERT INTO first VALUES (3)")
        assert not sensor.poke(task_context()).is_done, "a commit counts when it is back"
    assert sensor.poke(task_context()).xcom_value == 4
    assert list(copies.iterdir()) == []


def run_as_submitted(lake: Place, spark: StandIn) -> OperationResult:
    """Do what the job submitted last was to do, here and without Spark."""
    given = parser().parse_args(spark.job)
    assert given.catalog_url == lake.url
    with lake.out() as checkout:
        return run_operation(
            given.operation,
            Lake.open(checkout.location),
            spark.options(),
            runner=LocalRunner(),
            tables=given.table,
            sources=given.source,
            commit=CommitInfo(key=given.commit_key),
        )


def test_a_retry_finds_what_is_committed_in_the_bucket(
    lake: Place, spark: StandIn, copies: Path
) -> None:
    source = f"{lake.data_path}main/first/in.parquet"
    with closing(duckdb.connect()) as session:
        session.execute(f"COPY (SELECT 7::BIGINT AS id) TO '{source}' (FORMAT parquet)")
    arguments: dict[str, Any] = {"task_id": "x", "table": "first", "source": source}
    operator = DuckLakeAddDataFilesOperator(**arguments)
    operator.execute(task_context())
    assert run_as_submitted(lake, spark).snapshot_after == 3
    insert(lake, 8)
    # As after a driver on a cluster, whose result file is out of reach.
    found = operator.get_job_result(None, task_context())
    assert (found["lake"], found["snapshot_after"]) == (f"sqlite catalog {lake.url}", 3)
    DuckLakeAddDataFilesOperator(**arguments).execute(task_context(try_number=2))
    again = run_as_submitted(lake, spark)
    assert (again.already_done, again.snapshot_after) == (True, 3)
    assert DuckLakeHook().get_records("SELECT id FROM first WHERE id > 2 ORDER BY id") == [
        (7,),
        (8,),
    ]
    assert list(copies.iterdir()) == []
