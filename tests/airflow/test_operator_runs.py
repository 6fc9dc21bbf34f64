"""Operators: secrets on their way to the job, the hook in between, and how a job is killed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_ducklake.hooks._processes import session_members
from airflow_provider_ducklake.operators.base import DuckLakeSparkOperator
from airflow_provider_ducklake.operators.compaction import (
    DuckLakeMergeAdjacentFilesOperator,
)
from tests.airflow.conftest import (
    ODD_PASSWORD,
    StandIn,
    TaskLog,
    task_context,
    wait_for,
)

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("default_lake")]
Merge = DuckLakeMergeAdjacentFilesOperator


def all_that_can_be_seen(operator: DuckLakeSparkOperator, spark: StandIn, task_log: TaskLog) -> str:
    """Return command line, log and rendered fields as one text."""
    fields = [str(getattr(operator, name)) for name in operator.template_fields]
    return f"{spark.call['argv']} {task_log} {fields} {vars(operator)['application_args']}"


def shown(text: str) -> bool:
    """Tell whether a piece of one of the secrets stands in a text."""
    return any(piece in text for piece in ("p@ss", "p%40ss", "or\\d", "x&%", "qu1et"))


def handed_on(environment: Iterable[str]) -> set[str]:
    """Return the variables a job got from its operator, not from whoever runs the tests."""
    return {name for name in environment if name.startswith("DUCKLAKE_")} - os.environ.keys()


def test_secrets_by_environment(spark: StandIn, task_log: TaskLog) -> None:
    """Cases CT-03: not in argv, logs, rendered fields; the job gets them all the same."""
    operator = Merge(task_id="x")
    operator.execute(task_context())
    environment = spark.call["environment"]
    assert environment["DUCKLAKE_CATALOG_PASSWORD"] == ODD_PASSWORD
    assert environment["DUCKLAKE_STORAGE_AWS_SECRET_ACCESS_KEY"] == "qu1et"
    assert environment["DUCKLAKE_STORAGE_AWS_REGION"] == "eu-west-1"
    assert "properties" not in spark.call
    assert not shown(all_that_can_be_seen(operator, spark, task_log))


def test_secrets_by_a_properties_file(
    spark: StandIn,
    task_log: TaskLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.eventLog.enabled true\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    operator = Merge(task_id="x", secrets_mode="properties")
    operator.execute(task_context())
    call = spark.call
    assert call["properties_mode"] == "0o600"
    lines = call["properties"].splitlines()
    assert lines[0] == "spark.eventLog.enabled true"
    escaped = ODD_PASSWORD.replace("\\", "\\\\")
    assert f"spark.ducklake.catalog.password={escaped}" in lines
    assert "spark.ducklake.storage.aws_secret_access_key=qu1et" in lines
    assert not handed_on(call["environment"])
    assert not Path(call["argv"][call["argv"].index("--properties-file") + 1]).exists()
    assert not shown(all_that_can_be_seen(operator, spark, task_log))


def test_the_authors_own_properties_file_is_kept(spark: StandIn, tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("spark.mine 1")
    Merge(task_id="x", secrets_mode="properties", properties_file=str(own)).execute(task_context())
    assert spark.call["properties"].startswith("spark.mine 1\n")
    Merge(task_id="x", properties_file=str(own)).execute(task_context())
    assert spark.call["properties"] == "spark.mine 1"


def test_secrets_left_to_the_deployment(spark: StandIn) -> None:
    Merge(task_id="x", secrets_mode="none").execute(task_context())
    assert not handed_on(spark.call["environment"])


def test_secrets_a_job_prints_are_masked(spark: StandIn, task_log: TaskLog) -> None:
    spark.will(lines=[f"I know {ODD_PASSWORD} and qu1et"], exit=1)
    with pytest.raises(AirflowException) as raised:
        Merge(task_id="x").execute(task_context())
    assert not shown(f"{raised.value} {task_log}")
    assert "I know *** and ***" in str(task_log)


def test_on_kill_ends_the_application(spark: StandIn) -> None:
    sleep = "import time; time.sleep(600)"
    spark.will(children=[sleep, sleep], seconds=600)
    operator = Merge(task_id="x")
    raised: list[BaseException] = []

    def execute() -> None:
        try:
            operator.execute(task_context())
        except AirflowException as failure:
            raised.append(failure)

    task = threading.Thread(target=execute, daemon=True)
    task.start()
    wait_for(lambda: spark.started, "the submission")
    operator.on_kill()
    task.join(30)
    assert not task.is_alive()
    assert session_members(spark.call["pid"]) == []
    assert len(raised) == 1
    operator.on_kill()


def test_on_kill_before_anything_was_submitted(spark: StandIn) -> None:
    Merge(task_id="x").on_kill()
    assert not spark.started


def test_our_hook_gets_all_the_base_class_would_give_its_own(spark: StandIn) -> None:
    """Whatever arguments the installed provider knows are handed on."""
    import inspect

    operator = Merge(task_id="x", verbose=True, java_class=None, files="f", keytab="k")
    operator.execute(task_context())
    assert {"--verbose", "--files", "--keytab"} <= set(spark.call["argv"])
    names = set(inspect.signature(SparkSubmitHook.__init__).parameters) - {"self"}
    missing = {n for n in names if not (hasattr(operator, n) or hasattr(operator, f"_{n}"))}
    assert missing == set()


def test_parent_job_information_reaches_the_application(
    spark: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenLineage: the base class adds to `conf` in execute(), before it makes its hook."""
    from airflow.providers.apache.spark.operators import spark_submit

    def inject(conf: dict[str, str], context: Any) -> dict[str, str]:
        return {**conf, "spark.openlineage.parentRunId": "r"}

    monkeypatch.setattr(spark_submit, "inject_parent_job_information_into_spark_properties", inject)
    Merge(task_id="x", openlineage_inject_parent_job_info=True).execute(task_context())
    assert "spark.openlineage.parentRunId=r" in spark.call["argv"]


def test_executing_twice_is_like_executing_two_operators(spark: StandIn) -> None:
    operator = Merge(task_id="x")
    operator.execute(task_context())
    first = spark.call["argv"]
    operator.execute(task_context(run_id="other"))
    second = spark.call["argv"]
    assert len(first) == len(second)
    assert "--message=merge_adjacent_files by task nightly.work, run other" in second
