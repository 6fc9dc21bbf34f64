"""Work orders on Spark's executors."""

from __future__ import annotations

from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.fault_points import FaultPoint
from airflow_provider_ducklake.spark.runner import SparkRunner
from tests.support.killed import counted


def _work(number: int) -> int:
    if number == 2:
        raise BadInput("two")
    return number * 10


def test_a_point_is_passed_for_each_answer(runner: SparkRunner) -> None:
    """IN-02: a job on Spark can be ended between its tasks and its commit as any other."""
    with counted() as passed:
        first, refused, last = runner.run(_work, [1, 2, 3])
    assert (first, str(refused), last) == (10, "two", 30)
    assert isinstance(refused, BadInput)
    assert passed == {FaultPoint.TASK_DONE: 3}
