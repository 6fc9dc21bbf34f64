"""Operators and sensor with the real jobs on a real Spark, one of each way to reach them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_ducklake.hooks._processes import session_members
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.compaction import DuckLakeMergeAdjacentFilesOperator
from airflow_provider_ducklake.operators.ingest import DuckLakeIngestOperator
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from tests.airflow.conftest import Connect, TaskLog, task_context, wait_for
from tests.support.lakes import LakeFactory, LakeUnderTest, catalog_fingerprint
from tests.support.s3 import S3Server, options_for

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]


@pytest.fixture
def lake(tmp_path: Path, connect: Connect, connect_lake: Callable[..., None]) -> LakeUnderTest:
    """A lake in SQLite with a table `main.t(a, b)`, its connection, and a Spark of two cores."""
    connect("spark_default", conn_type="spark", host="local[2]")
    made = LakeFactory("sqlite", tmp_path).create()
    client = made.client()
    client.sql("CREATE TABLE t (a INTEGER, b VARCHAR)")
    client.close()
    connect_lake(made)
    return made


def source(directory: Path, first: int, count: int) -> str:
    """Write a Parquet file of numbered rows."""
    path = directory / f"source-{first}.parquet"
    numbers = range(first, first + count)
    pq.write_table(
        pa.table({"a": pa.array(numbers, pa.int32()), "b": [f"row {n}" for n in numbers]}), path
    )
    return str(path)


def ingest(path: str, **context: Any) -> Any:
    """Load a file into `main.t` as a task of the nightly DAG."""
    return DuckLakeIngestOperator(task_id="load", table="main.t", source=path).execute(
        task_context(**context)
    )


def test_load_retry_merge_and_wait(lake: LakeUnderTest, tmp_path: Path) -> None:
    first = ingest(source(tmp_path, 0, 10), task_id="load_1")
    assert (first["snapshot_after"], first["tables"][0]["rows"]) == (2, 10)

    # IN-02: the worker died after the commit; the retry returns the same result, rows stay once.
    again = ingest(source(tmp_path, 0, 10), task_id="load_1", try_number=2)
    assert again["already_done"] is True
    assert (again["snapshot_after"], again["tables"][0]["rows"]) == (2, 10)

    ingest(source(tmp_path, 10, 5), task_id="load_2")
    sensor = DuckLakeSnapshotSensor(task_id="wait", tables="main.t", baseline=2)
    assert sensor.execute(task_context()) == 3

    merged = DuckLakeMergeAdjacentFilesOperator(task_id="merge", table="main.t").execute(
        task_context(task_id="merge")
    )
    assert merged["snapshot_after"] == 4
    assert (merged["tables"][0]["files_in"], merged["tables"][0]["files_after"]) == (2, 1)
    after_load = DuckLakeSnapshotSensor(task_id="wait", tables="main.t", baseline=3)
    assert not after_load.poke(task_context())

    hook = DuckLakeHook()
    assert hook.get_first("SELECT count(*), sum(a) FROM t") == (15, 105)
    assert hook.get_first("SELECT count(*) FROM t AT (VERSION => 2)") == (10,)
    snapshot = hook.lake().snapshots(after=1)[0]
    assert snapshot.author == "airflow"
    assert snapshot.message == "ingest by task nightly.load_1, run manual__2026-01-02"
    assert '"task_id": "load_1"' in str(snapshot.extra_info)


def test_a_lake_in_a_bucket_from_its_first_run_on(
    s3_server: S3Server, tmp_path: Path, connect: Connect
) -> None:
    """Catalog and data on S3: the first load makes the lake, and all others see it."""
    connect("spark_default", conn_type="spark", host="local[2]")
    url = f"{s3_server.url}/lake/catalog.sqlite"
    options = dict(options_for(s3_server))
    extra = {"catalog_url": url, "data_path": f"{s3_server.url}/lake/data/"}
    connect("ducklake_default", conn_type="ducklake", extra={**extra, "storage_options": options})
    load = DuckLakeIngestOperator(
        task_id="load", table="t", source=source(tmp_path, 0, 10), create_table=True
    )
    done = load.execute(task_context())
    assert done["lake"] == f"sqlite catalog {url}"
    assert done["tables"][0]["rows"] == 10
    found = load.get_job_result(None, task_context())
    assert found["snapshot_after"] == done["snapshot_after"]
    sensor = DuckLakeSnapshotSensor(task_id="wait", tables="t", baseline=0)
    assert sensor.execute(task_context()) == done["snapshot_after"]
    assert DuckLakeHook().get_first("SELECT count(*), sum(a) FROM t") == (10, 45)
    works, message = DuckLakeHook().test_connection()
    assert works, message


def test_bad_input_is_one_line_and_no_retry(lake: LakeUnderTest, tmp_path: Path) -> None:
    before = catalog_fingerprint(lake)
    with pytest.raises(AirflowFailException, match="nothing-here") as raised:
        ingest(str(tmp_path / "nothing-here.parquet"))
    assert "\n" not in str(raised.value)
    assert catalog_fingerprint(lake) == before


def test_a_kill_leaves_nothing_running_and_the_catalog_as_it_was(
    lake: LakeUnderTest, tmp_path: Path
) -> None:
    """Cases SP-03, with the JVM and its Python driver."""
    before = catalog_fingerprint(lake)
    operator = DuckLakeIngestOperator(
        task_id="load", table="main.t", source=source(tmp_path, 0, 10)
    )
    failures: list[BaseException] = []

    def execute() -> None:
        try:
            operator.execute(task_context())
        except AirflowException as error:
            failures.append(error)

    task = threading.Thread(target=execute, daemon=True)
    task.start()
    wait_for(lambda: operator._hook is not None and operator._hook._submit_sp, "the submission")
    process: Any = operator._hook and operator._hook._submit_sp
    session = process.pid
    # The JVM, and the driver it starts: from then on both have to be ended.
    wait_for(lambda: len(session_members(session)) >= 2, "the start of the driver")
    started = time.monotonic()
    operator.on_kill()
    assert time.monotonic() - started < 20
    task.join(60)
    assert not task.is_alive()
    assert session_members(session) == []
    assert len(failures) == 1
    assert catalog_fingerprint(lake) == before


@pytest.mark.parametrize("secrets_mode", ["env", "properties"])
def test_the_odd_password_reaches_the_job(
    guarded_lake: str, connect: Connect, task_log: TaskLog, secrets_mode: str
) -> None:
    """Cases CT-03: by either way, and stands in no line of the log."""
    connect("spark_default", conn_type="spark", host="local[2]")
    operator = DuckLakeMergeAdjacentFilesOperator(
        task_id="merge", dry_run=True, secrets_mode=secrets_mode
    )
    found = operator.execute(task_context())
    assert found["dry_run"] is True
    assert "guarded" in found["lake"]
    log = str(task_log)
    assert "--master local[2]" in log
    assert not any(piece in log for piece in ("p@ss", "p%40ss", "or\\d", "x&%"))
