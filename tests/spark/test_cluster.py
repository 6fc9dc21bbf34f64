"""The same jobs on a real standalone cluster: a master and a worker as processes of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import airflow_provider_ducklake.spark.entry as entry
from airflow_provider_ducklake.lake.fault_points import VARIABLE, FaultPoint
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.results import OperationResult
from tests.interop.catalog import unreferenced_files
from tests.support.lakes import LakeUnderTest

pytestmark = [pytest.mark.spark, pytest.mark.slow]
Lakes = tuple[Lake, LakeUnderTest]
APPLICATION = Path(entry.__path__[0]) / "ducklake_job.py"
_MASTER = re.compile(r"spark://127\.0\.0\.1:\d+")


def spark_home() -> Path:
    """Return where Spark's jars and scripts are: in the pyspark package."""
    import pyspark

    return Path(pyspark.__file__).parent


def start(kind: str, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a daemon class of Spark in a process group of its own."""
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with log.open("wb") as out:
        return subprocess.Popen(
            [
                str(spark_home() / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{kind}",
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
                *arguments,
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
            cwd=log.parent,
        )


def wait_for(log: Path, pattern: re.Pattern[str], process: subprocess.Popen[bytes]) -> str:
    """Return what a pattern finds in a log once it is there."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if found := pattern.search(log.read_text(errors="replace")):
            return found[0]
        time.sleep(0.2)
    raise AssertionError(f"{pattern.pattern} never appeared:\n{log.read_text(errors='replace')}")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a running master with one worker of two cores."""
    home = tmp_path_factory.mktemp("cluster")
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(start("master.Master", home / "master.log", "--port", "0"))
        url = wait_for(home / "master.log", _MASTER, started[-1])
        work = ("--cores", "2", "--memory", "1g", "--work-dir", str(home / "work"), url)
        started.append(start("worker.Worker", home / "worker.log", *work))
        wait_for(home / "worker.log", re.compile("Successfully registered"), started[-1])
        yield url
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def submission(
    master: str, directory: Path, *arguments: str, killed_at: FaultPoint | None = None
) -> subprocess.Popen[str]:
    """Begin one job on the cluster by spark-submit.

    Args:
        master: Its URL.
        directory: Takes the result and the log.
        *arguments: Of the job.
        killed_at: Where the driver ends itself by SIGKILL.
    """
    command = [
        str(spark_home() / "bin" / "spark-submit"),
        "--master",
        master,
        "--conf",
        "spark.executor.memory=512m",
        "--conf",
        "spark.driver.host=127.0.0.1",
        str(APPLICATION),
        *arguments,
        "--result-file",
        str(directory / "result.json"),
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    if killed_at is not None:
        environment[VARIABLE] = killed_at.value
    with (directory / "submit.log").open("wb") as log:
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=log, text=True
        )


def result_of(process: subprocess.Popen[str], directory: Path) -> OperationResult:
    """Wait for a job and return its result."""
    assert process.wait(120) == 0, log_of(directory)[-3_000:]
    return OperationResult.from_dict(json.loads((directory / "result.json").read_text()))


def submit(master: str, directory: Path, *arguments: str) -> OperationResult:
    """Run one job on the cluster by spark-submit and return its result."""
    return result_of(submission(master, directory, *arguments), directory)


def kill_executors() -> int:
    """End every executor that some daemon of this process has started; return how many."""
    killed = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it ended by itself, or waits to be reaped
            if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                process.kill()
                killed += 1
    return killed


def log_of(directory: Path) -> str:
    """Return the driver's log of the last submission; `executor driver` means it ran locally."""
    return (directory / "submit.log").read_text()


def test_ingest_and_merge_on_a_cluster(master: str, sqlite_lake: Lakes) -> None:
    lake, judge = sqlite_lake
    attach = ("--attach", judge.attach_string, "--table", "main.t")
    query = "SELECT id, id % 3 part FROM range(0, 3000, 1, 4)"
    ingest = submit(
        master,
        judge.directory,
        "ingest",
        *attach,
        "--sql",
        query,
        "--option",
        "create_table=true",
    )
    assert (ingest.tables[0].rows, ingest.tables[0].files_out) == (3000, 4)
    assert "executor driver" not in log_of(judge.directory)
    merge = submit(master, judge.directory, "merge_adjacent_files", *attach)
    assert (merge.tables[0].files_before, merge.tables[0].files_after) == (4, 1)
    client = judge.client()
    expected = [(3000, 4498500)]
    assert client.sql("SELECT count(*), sum(id) FROM t") == expected
    version = ingest.snapshot_after
    assert client.sql(f"SELECT count(*), sum(id) FROM t AT (VERSION => {version})") == expected
    client.close()
    assert lake.head().snapshot_id == merge.snapshot_after


def test_a_driver_that_is_killed_and_run_again(master: str, sqlite_lake: Lakes) -> None:
    """Before its commit nothing is there; after it a retry finds what was done."""
    lake, judge = sqlite_lake
    job = (
        *("ingest", "--attach", judge.attach_string, "--table", "main.t"),
        *("--sql", "SELECT id FROM range(0, 100, 1, 2)"),
        *("--option", "create_table=true", "--commit-key", "run-1"),
    )
    first = submission(master, judge.directory, *job, killed_at=FaultPoint.TASK_DONE)
    assert first.wait(120) != 0
    assert lake.head().snapshot_id == 0
    left = set(Path(judge.data_path).rglob("*.parquet"))
    assert len(left) == 2
    second = submission(master, judge.directory, *job, killed_at=FaultPoint.COMMITTED)
    assert second.wait(120) != 0
    committed = lake.head().snapshot_id
    third = submit(master, judge.directory, *job)
    assert third.already_done
    assert lake.head().snapshot_id == committed
    assert unreferenced_files(judge) == {str(path) for path in left}
    client = judge.client()
    assert client.sql("SELECT count(*), sum(id) FROM t") == [(100, 4950)]
    client.close()


def test_an_executor_that_is_killed(master: str, sqlite_lake: Lakes) -> None:
    """Its tasks are done again elsewhere; what it wrote in vain is no part of the table."""
    _, judge = sqlite_lake
    running = submission(
        *(master, judge.directory, "ingest", "--attach", judge.attach_string),
        *("--table", "main.t", "--option", "create_table=true"),
        *("--sql", "SELECT id, md5(string(id)) AS text FROM range(0, 2000000, 1, 20)"),
    )
    data = Path(judge.data_path)
    while running.poll() is None and not any(data.rglob("*.parquet")):
        time.sleep(0.05)
    killed = kill_executors()
    result = result_of(running, judge.directory)
    assert killed
    assert (result.tables[0].rows, result.tables[0].files_out) == (2_000_000, 20)
    assert "Lost executor" in log_of(judge.directory)
    client = judge.client()
    assert client.sql("SELECT count(*), count(DISTINCT id) FROM t") == [(2_000_000, 2_000_000)]
    client.close()
