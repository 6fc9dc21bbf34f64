"""Small work orders of many catalogs run in common Spark jobs.

A job of Spark costs more than merging a few small files. While one job runs, what other catalogs
ask for meanwhile collects, and is the next job. A catalog with much to do has jobs of its own, in
its pool of the scheduler: it neither waits for others nor makes them wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from airflow_provider_ducklake.kernels.tasks import RewriteTask
from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.spark.operations._removal import Deletion
from airflow_provider_ducklake.spark.runner import Runner, error_named

Task = TypeVar("Task")
Result = TypeVar("Result")

SMALL_BYTES: Final = 32 * 1024**2
SMALL_DELETION: Final = 100  # objects
_PACKED: Final = 4  # work orders in one Spark task, one after the other


class SharedJobs:
    """Hands out runners, one for each catalog, that share jobs where they can."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._shared = runner.for_tenant("small catalogs")
        self._turn = threading.Lock()  # one shared job at a time; the others wait and collect
        self._lock = threading.Lock()
        self._waiting: list[_Request] = []

    def for_tenant(self, name: str) -> Runner:
        """Return the runner of one catalog."""
        return _TenantRunner(self, self._runner.for_tenant(name))

    def answer(self, request: _Request) -> bool:
        """Run a small request, and whatever else waits; return False when it has to run alone."""
        with self._lock:
            self._waiting.append(request)
        with self._turn:
            if not request.was_tried:
                with self._lock:
                    batch, self._waiting = self._waiting, []
                self._run_batch(batch)
        return request.answers is not None

    def _run_batch(self, batch: Sequence[_Request]) -> None:
        for request in batch:
            request.was_tried = True
        orders = [
            _Order(number, request.function, task)
            for number, request in enumerate(batch)
            for task in request.tasks
        ]
        names = ", ".join(dict.fromkeys(request.description for request in batch))
        try:
            packs = self._shared.run(_run_pack, list(_packs(orders)), names)
        except LakeError:
            return  # a worker died, of one of them: nobody else shall pay for it
        found: list[list[Any]] = [[] for _ in batch]
        for pack in packs:
            assert not isinstance(pack, LakeError)  # they are values inside of it
            for number, answer in pack:
                found[number].append(answer)
        for request, answers in zip(batch, found, strict=True):
            request.answers = answers


@dataclass(slots=True)
class _Request:
    """What one catalog wants to have run, and what came of it; without answers it runs alone."""

    function: Callable[[Any], Any]
    tasks: Sequence[Any]
    description: str
    answers: list[Any] | None = None
    was_tried: bool = False


class _TenantRunner:
    """The runner of one catalog."""

    def __init__(self, shared: SharedJobs, own: Runner) -> None:
        self._shared = shared
        self._own = own

    def for_tenant(self, name: str) -> Runner:
        """See `Runner.for_tenant`."""
        return self._shared.for_tenant(name)

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], description: str = ""
    ) -> list[Result | LakeError]:
        """See `Runner.run`."""
        if not tasks:
            return []
        request = _Request(function, tasks, description)
        if not is_small(tasks) or not self._shared.answer(request):
            return self._own.run(function, tasks, description)
        assert request.answers is not None
        return [_rebuilt(answer) for answer in request.answers]


def is_small(tasks: Sequence[object]) -> bool:
    """Tell whether some work orders are so little work that others may wait for them."""
    sizes = [_size(task) for task in tasks]
    return len(tasks) <= _PACKED and sum(sizes) <= SMALL_BYTES


def _size(task: object) -> int:
    """Return the bytes a work order reads; of what cannot be told, more than is small."""
    if isinstance(task, RewriteTask):
        sizes = [file.file_size_bytes for file in task.sources]
        # What the catalog says, which may be anything: no order makes others look smaller.
        return sum(sizes) if min(sizes, default=0) >= 0 else SMALL_BYTES + 1
    is_short = isinstance(task, Deletion) and len(task.paths) <= SMALL_DELETION
    return 0 if is_short else SMALL_BYTES + 1


@dataclass(frozen=True, slots=True)
class _Order:
    """One work order of the request with a number."""

    request: int
    function: Callable[[Any], Any]
    task: Any


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An error of ours on its way back to the driver."""

    kind: str
    message: str


def _packs(orders: Sequence[_Order]) -> Iterator[tuple[_Order, ...]]:
    for start in range(0, len(orders), _PACKED):
        yield tuple(orders[start : start + _PACKED])


def _run_pack(orders: Iterable[_Order]) -> list[tuple[int, Any]]:
    """Run work orders one after the other; one that is refused does not stop the others."""
    answers: list[tuple[int, Any]] = []
    for order in orders:
        try:
            answers.append((order.request, order.function(order.task)))
        except LakeError as error:
            answers.append((order.request, _Refusal(type(error).__name__, str(error))))
    return answers


def _rebuilt(answer: Any) -> Any:
    return error_named(answer.kind, answer.message) if isinstance(answer, _Refusal) else answer
