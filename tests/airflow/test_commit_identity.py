"""What a commit of an operator says of itself, and the key under which it is made once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_ducklake.operators.base import DuckLakeSparkOperator
from airflow_provider_ducklake.operators.compaction import (
    DuckLakeMergeAdjacentFilesOperator,
    DuckLakeRewriteDataFilesOperator,
)
from tests.airflow.conftest import (
    Connect,
    StandIn,
    task_context,
)

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("default_lake")]
Merge = DuckLakeMergeAdjacentFilesOperator


def test_what_a_commit_says_of_itself(spark: StandIn) -> None:
    context = task_context(map_index=4, try_number=2)
    Merge(task_id="x", commit_extra_info={"ticket": "T-1"}).execute(context)
    assert spark.value("author") == "airflow"
    assert spark.value("message") == (
        "merge_adjacent_files by task nightly.work[4], run manual__2026-01-02"
    )
    assert json.loads(spark.value("extra-info")) == {
        "dag_id": "nightly",
        "run_id": "manual__2026-01-02",
        "task_id": "work",
        "map_index": 4,
        "try_number": 2,
        "ticket": "T-1",
    }
    Merge(task_id="x", author="me", commit_message="why").execute(context)
    assert (spark.value("author"), spark.value("message")) == ("me", "why")


def key_of(spark: StandIn, operator: DuckLakeSparkOperator | None = None, **given: Any) -> str:
    """Return the idempotency key a task of these attributes gives its job."""
    (operator or Merge(task_id="x")).execute(task_context(**given))
    return spark.value("commit-key")


def test_the_key_is_the_same_for_every_try_and_another_for_every_other_task(
    spark: StandIn, connect: Connect
) -> None:
    """Design rule 13."""
    first = key_of(spark)
    assert len(first) == 64
    assert key_of(spark, try_number=2) == first
    connect("moved", conn_type="ducklake", extra={"attach": "ducklake:sqlite:/other.db"})
    others = {
        key_of(spark, map_index=0),
        key_of(spark, map_index=1),
        key_of(spark, run_id="other"),
        key_of(spark, dag_id="other"),
        key_of(spark, task_id="other"),
        key_of(spark, DuckLakeRewriteDataFilesOperator(task_id="x")),
        key_of(spark, Merge(task_id="x", ducklake_conn_id="moved")),
    }
    assert len(others | {first}) == 8
    assert key_of(spark, Merge(task_id="x", commit_key="mine")) == "mine"


def test_the_password_takes_no_part_in_the_key(spark: StandIn, connect: Connect) -> None:
    fields: dict[str, Any] = {"conn_type": "ducklake", "host": "db", "schema": "l"}
    keys = set()
    for password in ("one", "two"):
        connect("ducklake_default", password=password, **fields)
        keys.add(key_of(spark))
    assert len(keys) == 1


def test_without_a_run_every_execution_is_one_of_its_own(spark: StandIn) -> None:
    keys = set()
    for _ in range(2):
        Merge(task_id="x").execute({})
        keys.add(spark.value("commit-key"))
    assert len(keys) == 2
