"""Small work orders of several catalogs share Spark jobs; large ones and deadly ones do not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_ducklake.lake.errors import BadInput, LakeError
from airflow_provider_ducklake.spark.operations._removal import Deletion
from airflow_provider_ducklake.spark.operations._shared_jobs import SharedJobs
from airflow_provider_ducklake.spark.runner import LocalRunner


@dataclass
class Cluster:
    """Runs jobs in this process, notes them, and loses the worker that meets a deadly order.

    Attributes:
        jobs: Tenant and number of tasks of each job.
        gate: The first job waits for it.
    """

    jobs: list[tuple[str, int]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    tenant: str = ""

    @property
    def running(self) -> int:
        """Jobs that have begun."""
        return len(self.jobs)

    def for_tenant(self, name: str) -> Cluster:
        return Cluster(self.jobs, self.gate, name)

    def run(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], description: str = ""
    ) -> list[Any]:
        self.jobs.append((self.tenant, len(tasks)))
        self.gate.wait(30)
        try:
            return LocalRunner().run(function, tasks)
        except MemoryError:
            raise LakeError(f"a Spark job failed: {description}") from None


def work(task: Deletion) -> str:
    if task.root == "bad":
        raise BadInput("this one is bad")
    if task.root == "deadly":
        raise MemoryError
    return f"{task.root} {len(task.paths)}"


def answers(cluster: Cluster, roots: Sequence[str], paths: int = 1) -> list[object]:
    """Return what each of several catalogs is answered when all ask at the same time."""
    jobs = SharedJobs(cluster)

    def ask(root: str) -> object:
        try:
            tasks = [Deletion(root, ("path",) * paths, listed=False)]
            (found,) = jobs.for_tenant(root).run(work, tasks, root)
        except LakeError as error:
            return error
        return found

    with ThreadPoolExecutor(len(roots)) as pool:
        waiting = [pool.submit(ask, root) for root in roots]
        deadline = time.monotonic() + 30
        while cluster.running + len(jobs._waiting) < len(roots) and time.monotonic() < deadline:
            time.sleep(0.001)
        cluster.gate.set()
        return [future.result() for future in waiting]


def test_what_waits_for_a_job_goes_into_the_next() -> None:
    cluster = Cluster()
    roots = [f"root{number}" for number in range(10)]
    assert answers(cluster, roots) == [f"{root} 1" for root in roots]
    # One began at once; the other nine waited, and are three tasks.
    assert cluster.jobs == [("small catalogs", 1), ("small catalogs", 3)]


def test_much_work_has_a_job_of_its_own() -> None:
    cluster = Cluster()
    assert answers(cluster, ["one", "two"], 1000) == ["one 1000", "two 1000"]
    assert sorted(cluster.jobs) == [("one", 1), ("two", 1)]


def test_a_refusal_is_its_own_alone() -> None:
    first, bad, last = answers(Cluster(), ["first", "bad", "last"])
    assert (first, last) == ("first 1", "last 1")
    assert isinstance(bad, BadInput)


def test_a_worker_that_dies_takes_nobody_with_it() -> None:
    first, deadly, last = answers(Cluster(), ["first", "deadly", "last"])
    assert (first, last) == ("first 1", "last 1")
    assert str(deadly) == "a Spark job failed: deadly"
