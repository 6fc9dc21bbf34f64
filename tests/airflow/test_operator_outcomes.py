"""Operators: what they return, and how they fail."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_ducklake.lake.model import Snapshot
from airflow_provider_ducklake.operators._outcome import result_of_commits
from airflow_provider_ducklake.operators.compaction import (
    DuckLakeMergeAdjacentFilesOperator,
)
from airflow_provider_ducklake.version_compat import AIRFLOW_V_3_3_PLUS
from tests.airflow.conftest import (
    Connect,
    FakeStateStore,
    StandIn,
    TaskLog,
    result,
    task_context,
)

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("default_lake")]
Merge = DuckLakeMergeAdjacentFilesOperator


def test_the_result_is_returned(spark: StandIn, task_log: TaskLog) -> None:
    table = {"table": "main.t", "files_before": 9, "files_after": 1, "files_in": 9, "files_out": 1}
    from airflow_provider_ducklake.lake.results import TableResult

    made = result(
        operation="merge_adjacent_files",
        snapshot_before=3,
        snapshot_after=4,
        tables=(TableResult(**table),),  # type: ignore[arg-type]
        messages=("all merged",),
    )
    spark.will(made)
    assert Merge(task_id="x").execute(task_context()) == json.loads(json.dumps(made))
    lines = [entry["event"] for entry in task_log]
    assert "merge_adjacent_files on a lake: snapshot 3 -> 4" in lines
    assert any(line.startswith("main.t: 9 files in, 1 out") for line in lines)
    assert "all merged" in lines
    assert not Path(spark.value("result-file")).exists()


def error(name: str, message: str = "what is wrong") -> dict[str, Any]:
    """Return what a job writes when it fails."""
    return {"error": {"type": name, "message": message}}


@pytest.mark.parametrize(
    "name", ["ConfigurationError", "UnsupportedCatalog", "NotFound", "BadInput", "SafetyRefusal"]
)
def test_errors_no_retry_can_mend(spark: StandIn, name: str) -> None:
    spark.will(error(name), exit=1)
    with pytest.raises(AirflowFailException) as raised:
        Merge(task_id="x").execute(task_context())
    assert str(raised.value) == f"{name}: what is wrong"
    assert raised.value.__suppress_context__


@pytest.mark.parametrize(
    "name", ["CommitConflict", "CommitStateUnknown", "CatalogUnavailable", "StorageError", "Odd"]
)
def test_errors_worth_a_retry(spark: StandIn, name: str) -> None:
    spark.will(error(name), exit=1)
    with pytest.raises(AirflowException) as raised:
        Merge(task_id="x").execute(task_context())
    assert not isinstance(raised.value, AirflowFailException)
    assert str(raised.value) == f"{name}: what is wrong"


def test_tables_that_failed_fail_the_task_after_the_others_are_done(spark: StandIn) -> None:
    from airflow_provider_ducklake.lake.results import TableResult

    made = result(
        operation="merge_adjacent_files",
        tables=(TableResult("main.good", files_in=2), TableResult("main.bad", error="odd file")),
    )
    spark.will(made, exit=1)
    context = task_context()
    with pytest.raises(AirflowException, match=r"failed for 1 of 2 tables: main\.bad: odd file"):
        Merge(task_id="x").execute(context)
    assert context["ti"].pushed["result"]["tables"][0]["files_in"] == 2


def test_parts_that_failed_fail_the_task_after_the_rest_is_done(spark: StandIn) -> None:
    from airflow_provider_ducklake.lake.results import Failure, TableResult

    failures = (Failure("StorageError", "2 files stay"), Failure("BadInput", "a corrupt footer"))
    tables = (TableResult("main.bad", error="odd file"), TableResult("main.good"))
    made = result(counts={"files_deleted": 7}, failures=failures, tables=tables)
    spark.will(made, exit=1)
    context = task_context()
    said = (
        "StorageError: 2 files stay; a corrupt footer; "
        "ingest failed for 1 of 2 tables: main.bad: odd file"
    )
    with pytest.raises(AirflowException, match=said):
        Merge(task_id="x").execute(context)
    assert context["ti"].pushed["result"]["counts"] == {"files_deleted": 7}


def test_a_job_that_dies_without_a_word(spark: StandIn) -> None:
    spark.will(lines=["java.lang.OutOfMemoryError: Java heap space"], exit=137)
    with pytest.raises(AirflowException, match="OutOfMemoryError") as raised:
        Merge(task_id="x").execute(task_context())
    assert not isinstance(raised.value, AirflowFailException)


def test_wrong_usage_is_no_reason_to_try_again(spark: StandIn) -> None:
    spark.will(lines=["ducklake: wrong usage: --table needs a value"], exit=2)
    with pytest.raises(AirflowFailException, match="wrong usage"):
        Merge(task_id="x").execute(task_context())


@pytest.mark.parametrize(("outcome", "message"), [(None, "without a result"), ("[", "no JSON")])
def test_a_job_that_ends_well_without_a_result_has_not(
    spark: StandIn, outcome: str | None, message: str
) -> None:
    spark.will(outcome)
    with pytest.raises(AirflowException, match=message):
        Merge(task_id="x").execute(task_context())


def commit(snapshot_id: int, key: str, tables: list[dict[str, Any]]) -> Snapshot:
    """Return a snapshot as a job with a key leaves it."""
    info = {"ducklake_job": {"key": key, "result": {"tables": tables}}}
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return Snapshot(snapshot_id, at, 1, 1, 1, extra_info=json.dumps(info))


def test_the_result_of_a_job_on_a_cluster_is_in_its_commits() -> None:
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    skipped = [{"reason": "too large", "count": 2}]
    snapshots = [
        Snapshot(6, at, 1, 1, 1, extra_info="not ours"),
        commit(7, "k/main.a", [{"table": "main.a", "files_in": 3, "skipped": skipped}]),
        commit(8, "kk/main.a", [{"table": "main.a", "files_in": 99}]),
        commit(9, "k/main.b", []),
        Snapshot(10, at, 1, 1, 1),
    ]
    found = result_of_commits(snapshots, "k", "merge_adjacent_files", "a lake")
    assert (found["snapshot_before"], found["snapshot_after"]) == (6, 9)
    assert [(t["table"], t["files_in"], t["snapshot_id"]) for t in found["tables"]] == [
        ("main.a", 3, 7),
        ("main.b", 0, 9),
    ]
    assert list(found["tables"][0]["skipped"]) == skipped
    nothing = result_of_commits(snapshots, "other", "merge_adjacent_files", "a lake")
    assert nothing["snapshot_after"] is None
    assert "committed nothing" in nothing["messages"][0]


def test_cluster_mode_asks_the_catalog_for_the_result(
    spark: StandIn, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook

    class FakeLake:
        """A lake with one commit of ours."""

        def snapshots_of_job(self, key: str) -> list[Snapshot]:
            """Return its snapshots."""
            assert key
            return [commit(7, "k/main.a", [{"table": "main.a", "files_in": 3}])]

        def __str__(self) -> str:
            return "a lake"

    monkeypatch.setattr(DuckLakeHook, "lake", lambda self: FakeLake())
    connect("yarn", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    operator = Merge(
        task_id="x", conn_id="yarn", secrets_mode="properties", commit_key="k", durable=False
    )
    found = operator.execute(task_context())
    assert spark.values("result-file") == []
    assert found["snapshot_after"] == 7
    assert found["tables"][0]["files_in"] == 3


@pytest.mark.parametrize("state", ["RUNNING", "FINISHED"])
@pytest.mark.skipif(not AIRFLOW_V_3_3_PLUS, reason="Airflow before 3.3 keeps no state of a task")
def test_a_retry_finds_the_application_of_the_try_before(
    spark: StandIn, connect: Connect, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Airflow 3.3: a durable operator waits for it, and asks the catalog what it did (SP-04)."""
    from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
    from airflow_provider_ducklake.hooks.spark_submit import DuckLakeSparkSubmitHook

    class FakeLake:
        """A lake with one commit of ours."""

        def snapshots_of_job(self, key: str) -> list[Snapshot]:
            """Return its snapshots."""
            assert key
            return [commit(7, "k", [{"table": "main.a", "files_in": 3}])]

    answers = [(state, "UNDEFINED" if state == "RUNNING" else "SUCCEEDED", "")]
    answers.append(("FINISHED", "SUCCEEDED", ""))
    monkeypatch.setattr(
        DuckLakeSparkSubmitHook, "_query_yarn_application_status", lambda *_: answers.pop(0)
    )
    monkeypatch.setattr(DuckLakeHook, "lake", lambda self: FakeLake())
    address = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": "http://rm:8088"}
    connect("yarn", conn_type="spark", host="yarn", extra=address)
    operator = Merge(
        task_id="x",
        conn_id="yarn",
        secrets_mode="properties",
        commit_key="k",
        yarn_track_via_rm_api=True,
    )
    store = FakeStateStore()
    store.set(operator.external_id_key, "application_1_2")
    found = operator.execute(task_context({"task_state_store": store}, try_number=2))
    assert found["snapshot_after"] == 7
    assert not spark.started
