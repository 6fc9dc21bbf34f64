"""Running work orders in parallel: on Spark's executors, or one after the other in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.lake.fault_points import FaultPoint, reach
from airflow_provider_ducklake.spark.failures import cause_of
from airflow_provider_ducklake.storage import objects

if TYPE_CHECKING:
    from pyspark import SparkContext

Task = TypeVar("Task")
Result = TypeVar("Result")


class Runner(Protocol):
    """Runs a function on each of some work orders, somewhere."""

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], description: str = ""
    ) -> list[Result | LakeError]:
        """Return one entry a task, in order: its result, or the error that ended it.

        Args:
            function: A module-level function or a picklable callable; it runs in another process.
            tasks: Picklable work orders.
            description: What the Spark UI shows while it runs.

        Raises:
            LakeError: The work could not be handed out at all, or a worker died.
        """

    def for_tenant(self, name: str) -> Runner:
        """Return a runner of one of several tenants that share what there is fairly."""


class LocalRunner:
    """Runs everything in this process, one after the other."""

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], description: str = ""
    ) -> list[Result | LakeError]:
        """See `Runner.run`."""
        results: list[Result | LakeError] = []
        for task in tasks:
            try:
                results.append(function(task))
            except LakeError as error:
                results.append(error)
            reach(FaultPoint.TASK_DONE)
        return results

    def for_tenant(self, name: str) -> LocalRunner:
        """See `Runner.for_tenant`."""
        return self


class SparkRunner:
    """Runs each work order as one Spark task."""

    def __init__(self, context: SparkContext, pool: str | None = None) -> None:
        self._context = context
        self._pool = pool

    def for_tenant(self, name: str) -> SparkRunner:
        """See `Runner.for_tenant`: each has a pool of Spark's fair scheduler."""
        return SparkRunner(self._context, name)

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], description: str = ""
    ) -> list[Result | LakeError]:
        """See `Runner.run`."""
        if not tasks:
            return []
        from py4j.protocol import Py4JJavaError

        self._context.setJobDescription(description)
        # Both are properties of this thread alone.
        self._context.setLocalProperty("spark.scheduler.pool", self._pool or "default")
        job = self._context.parallelize(tasks, len(tasks)).mapPartitions(_Guarded(function))
        try:
            answers = job.collect()
        except Py4JJavaError as error:
            raise LakeError(f"{description or 'a Spark job'} failed: {cause_of(error)}") from error
        results: list[Result | LakeError] = []
        for answer in answers:
            results.append(_rebuilt(answer))
            reach(FaultPoint.TASK_DONE)
        return results


class _Guarded(Generic[Task, Result]):
    """Sends our own errors back as values: an exception would arrive as a Java stack trace."""

    def __init__(self, function: Callable[[Task], Result]) -> None:
        self._function = function

    def __call__(self, tasks: Iterable[Task]) -> list[Result | _Refusal]:
        answers: list[Result | _Refusal] = []
        for task in tasks:
            try:
                answers.append(self._function(task))
            except LakeError as error:
                answers.append(_Refusal(type(error).__name__, str(error)))
        return answers


@dataclass(frozen=True, slots=True)
class _Refusal:
    kind: str
    message: str


def _rebuilt(answer: Result | _Refusal) -> Result | LakeError:
    if isinstance(answer, _Refusal):
        return error_named(answer.kind, answer.message)
    return answer


def error_named(name: str, message: str) -> LakeError:
    """Return the error of that class name; a plain LakeError when the name is not ours."""
    kind = getattr(errors, name, getattr(objects, name, LakeError))
    return kind(message) if issubclass(kind, LakeError) else LakeError(message)
