"""Submitting: what stands on the command line, what does not, and how it ends (SP-01, 03, 04)."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_ducklake.hooks._processes import session_members
from airflow_provider_ducklake.hooks.spark_submit import DuckLakeSparkSubmitHook
from airflow_provider_ducklake.lake.errors import ConfigurationError
from tests.airflow.conftest import ODD_PASSWORD, Connect, StandIn, TaskLog, wait_for

pytestmark = pytest.mark.airflow
SLEEP = "import time; time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"


def test_a_missing_connection_is_an_error(spark: StandIn) -> None:
    with pytest.raises(ConfigurationError, match="'nowhere' is not defined"):
        DuckLakeSparkSubmitHook(conn_id="nowhere")


@pytest.mark.parametrize(
    ("given", "master"),
    [
        ({"uri": "spark://h:7077"}, "spark://h:7077"),
        ({"uri": "spark://local%5B2%5D"}, "local[2]"),
        ({"conn_type": "spark", "host": "spark://h", "port": 7077}, "spark://h:7077"),
        ({"conn_type": "spark", "host": "spark://a:1,b:2"}, "spark://a:1,b:2"),
        ({"conn_type": "spark", "host": "local[*]"}, "local[*]"),
        ({"conn_type": "spark", "host": "local-cluster[2,1,1024]"}, "local-cluster[2,1,1024]"),
        ({"conn_type": "spark", "host": "yarn"}, "yarn"),
    ],
)
def test_the_master_is_taken_exactly(
    spark: StandIn, connect: Connect, given: dict[str, Any], master: str
) -> None:
    connect("s", **given)
    assert DuckLakeSparkSubmitHook(conn_id="s").master == master


def test_a_kubernetes_master_needs_its_provider(spark: StandIn, connect: Connect) -> None:
    connect("s", conn_type="spark", host="k8s://https://h", port=443)
    with pytest.raises(ConfigurationError, match="cncf-kubernetes"):
        DuckLakeSparkSubmitHook(conn_id="s")


def test_a_host_that_is_no_master_is_an_error(spark: StandIn, connect: Connect) -> None:
    connect("s", conn_type="spark", host="somewhere")
    with pytest.raises(ConfigurationError, match=r"'somewhere': write spark://host:7077"):
        DuckLakeSparkSubmitHook(conn_id="s")


@pytest.mark.parametrize("binary", ["/bin/sh", "sh", "/tmp/spark-submit.sh"])
def test_only_spark_is_run(spark: StandIn, connect: Connect, binary: str) -> None:
    connect("s", conn_type="spark", host="local", extra={"spark-binary": binary})
    with pytest.raises(ConfigurationError, match="spark-submit"):
        DuckLakeSparkSubmitHook(conn_id="s")
    with pytest.raises(ConfigurationError, match="none of Spark's"):
        DuckLakeSparkSubmitHook(spark_binary=binary)


def test_what_the_operator_says_beats_the_connection(spark: StandIn, connect: Connect) -> None:
    extra = {"deploy-mode": "cluster", "queue": "a", "spark-binary": "spark3-submit"}
    connect("s", conn_type="spark", host="yarn", extra=extra)
    hook = DuckLakeSparkSubmitHook(
        conn_id="s", deploy_mode="client", yarn_queue="b", spark_binary="spark-submit"
    )
    hook.submit("job.py")
    argv = spark.call["argv"]
    assert argv[argv.index("--deploy-mode") + 1] == "client"
    assert argv[argv.index("--queue") + 1] == "b"


def test_a_path_to_spark_submit_is_fine(spark: StandIn) -> None:
    binary = str(spark.home / "bin" / "spark-submit")
    DuckLakeSparkSubmitHook(spark_binary=binary).submit("job.py")
    assert spark.started


def test_spark_submit_beside_the_interpreter_is_found(
    spark: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(spark.home / "bin" / "python"))
    DuckLakeSparkSubmitHook().submit("job.py")
    assert spark.started
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(AirflowException, match="spark-submit is not on this worker's PATH"):
        DuckLakeSparkSubmitHook().submit("job.py")


def test_python_workers_run_this_interpreter(
    spark: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    DuckLakeSparkSubmitHook().submit("job.py")
    assert spark.call["environment"]["PYSPARK_PYTHON"] == sys.executable
    DuckLakeSparkSubmitHook(env_vars={"PYSPARK_PYTHON": "mine"}).submit("job.py")
    assert spark.call["environment"]["PYSPARK_PYTHON"] == "mine"
    DuckLakeSparkSubmitHook(conf={"spark.pyspark.python": "mine"}).submit("job.py")
    assert "PYSPARK_PYTHON" not in spark.call["environment"]
    DuckLakeSparkSubmitHook(deploy_mode="cluster").submit("job.py")
    assert "PYSPARK_PYTHON" not in spark.call["environment"]
    monkeypatch.setenv("PYSPARK_PYTHON", "the-image's")
    DuckLakeSparkSubmitHook().submit("job.py")
    assert spark.call["environment"]["PYSPARK_PYTHON"] == "the-image's"


@pytest.mark.parametrize("master", ["local[2]", "yarn", "spark://h:7077"])
def test_the_job_environment_never_becomes_an_argument(
    spark: StandIn, connect: Connect, master: str
) -> None:
    """On YARN the base class turns environment variables into `--conf` arguments."""
    connect("s", conn_type="spark", host=master)
    hook = DuckLakeSparkSubmitHook(
        conn_id="s",
        env_vars={"MINE": "1"},
        job_environment={"DUCKLAKE_CATALOG_PASSWORD": ODD_PASSWORD},
    )
    hook.submit("job.py")
    assert spark.call["environment"]["DUCKLAKE_CATALOG_PASSWORD"] == ODD_PASSWORD
    assert spark.call["environment"]["MINE"] == "1"
    assert ODD_PASSWORD not in " ".join(spark.call["argv"])


def test_secrets_are_masked_in_command_output_and_error(spark: StandIn, task_log: TaskLog) -> None:
    spark.will(
        lines=[
            f"connecting with {ODD_PASSWORD}",
            "fs.s3a.secret.key = quiet1234",
            "postgresql://u:p%40ss%20w%27or%5Cd%3Dx%26%2541@h/d",
            "a line to read",
            'Exception in thread "main" bad token=quiet5678',
        ],
        exit=3,
    )
    hook = DuckLakeSparkSubmitHook(
        conf={"spark.hadoop.fs.s3a.secret.key": "quiet1234", "spark.app.x": "shown"},
        env_vars={"MY_TOKEN": "quiet5678"},
        application_args=["--db.password", "quiet9999", "--table", "main.t"],
        secrets=[ODD_PASSWORD],
    )
    with pytest.raises(AirflowException, match="Error code is: 3") as raised:
        hook.submit("job.py")
    text = f"{raised.value} {task_log}"
    for piece in ("p@ss", "p%40ss", "or\\d", "quiet"):
        assert piece not in text
    for piece in ("spark.app.x=shown", "--db.password ***", "--table main.t", "a line to read"):
        assert piece in text
    assert spark.call["argv"][-2:] == ["--table", "main.t"]


class Submission(threading.Thread):
    """A submission in a thread, as the task process waits for it while it is told to stop."""

    def __init__(self, hook: DuckLakeSparkSubmitHook, spark: StandIn) -> None:
        super().__init__(daemon=True)
        self.hook = hook
        self.error: AirflowException | None = None
        self.start()
        wait_for(lambda: spark.started, "the start of the stand-in")

    def run(self) -> None:
        """Submit; keep what it raises."""
        try:
            self.hook.submit("job.py")
        except AirflowException as error:
            self.error = error


@pytest.mark.parametrize("child", [SLEEP, STUBBORN], ids=["willing", "stubborn"])
def test_on_kill_ends_all_that_was_started(spark: StandIn, child: str) -> None:
    spark.will(children=[child, child], seconds=600)
    hook = DuckLakeSparkSubmitHook()
    submission = Submission(hook, spark)
    session = spark.call["pid"]
    assert os.getsid(spark.call["children"][0]) == session != os.getsid(0)
    started = time.monotonic()
    hook.on_kill()
    assert time.monotonic() - started < 15
    assert session_members(session) == []
    submission.join(30)
    assert not submission.is_alive()
    assert "Error code is: -" in str(submission.error)
    hook.on_kill()  # and again, with nothing left to do


def test_on_kill_before_anything_was_submitted(spark: StandIn) -> None:
    DuckLakeSparkSubmitHook().on_kill()
    assert not spark.started


def test_nothing_outlives_a_submission(spark: StandIn) -> None:
    """A JVM that dies leaves its Python driver behind, which would go on to commit."""
    detached = f"import os; os.dup2(os.open('/dev/null', 1), 1); os.dup2(1, 2); {SLEEP}"
    spark.will(children=[detached], exit=137)
    with pytest.raises(AirflowException):
        DuckLakeSparkSubmitHook().submit("job.py")
    assert session_members(spark.call["pid"]) == []


def test_an_exception_on_the_way_ends_the_application_too(
    spark: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a task's execution_timeout does, which is raised wherever the worker is just then."""

    def interrupted(*_: Any) -> None:
        wait_for(lambda: spark.started, "the start of the stand-in")
        raise KeyboardInterrupt

    spark.will(children=[STUBBORN], seconds=600)
    hook = DuckLakeSparkSubmitHook()
    monkeypatch.setattr(hook, "_process_spark_submit_log", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hook.submit("job.py")
    assert session_members(spark.call["pid"]) == []
    assert hook.return_code == -15


@pytest.fixture
def yarn_cluster(spark: StandIn, connect: Connect) -> StandIn:
    """A YARN cluster whose spark-submit waits for an application."""
    extra = {"deploy-mode": "cluster"}
    connect("spark_default", conn_type="spark", host="yarn", extra=extra)
    spark.will(lines=["Submitted application application_1_2"], seconds=600)
    return spark


def write_yarn(spark: StandIn, body: str) -> None:
    """Put a `yarn` command on PATH."""
    command = spark.home / "bin" / "yarn"
    command.write_text(f"#!/bin/sh\n{body}\n")
    command.chmod(0o755)


def test_an_application_on_a_cluster_is_cancelled_there(yarn_cluster: StandIn) -> None:
    write_yarn(yarn_cluster, f'echo "$@" > {yarn_cluster.home}/cancelled')
    hook = DuckLakeSparkSubmitHook()
    submission = Submission(hook, yarn_cluster)
    wait_for(lambda: hook._yarn_application_id, "the application's id")
    hook.on_kill()
    submission.join(30)
    cancelled = (yarn_cluster.home / "cancelled").read_text()
    assert cancelled == "application -kill application_1_2\n"
    assert session_members(yarn_cluster.call["pid"]) == []


def test_a_hanging_cluster_tool_does_not_hang_the_kill(
    yarn_cluster: StandIn, task_log: TaskLog
) -> None:
    write_yarn(yarn_cluster, f"echo $$ > {yarn_cluster.home}/yarn.pid; exec sleep 600")
    hook = DuckLakeSparkSubmitHook(kill_timeout=1.0)
    submission = Submission(hook, yarn_cluster)
    wait_for(lambda: hook._yarn_application_id, "the application's id")
    started = time.monotonic()
    hook.on_kill()
    assert time.monotonic() - started < 20
    submission.join(30)
    assert session_members(yarn_cluster.call["pid"]) == []
    assert any("did not answer in 1.0 seconds" in entry["event"] for entry in task_log)
    pid = yarn_cluster.home / "yarn.pid"
    wait_for(lambda: pid.exists() and pid.read_text().strip(), "the start of yarn")
    os.kill(int(pid.read_text()), 9)


def test_a_missing_cluster_tool_is_said_loudly(yarn_cluster: StandIn, task_log: TaskLog) -> None:
    hook = DuckLakeSparkSubmitHook()
    submission = Submission(hook, yarn_cluster)
    wait_for(lambda: hook._yarn_application_id, "the application's id")
    hook.on_kill()
    submission.join(30)
    assert session_members(yarn_cluster.call["pid"]) == []
    errors = [entry["event"] for entry in task_log if entry["log_level"] == "error"]
    assert any("may still run on the cluster" in error and "yarn" in error for error in errors)
