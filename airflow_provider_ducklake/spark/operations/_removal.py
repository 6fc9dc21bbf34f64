"""Taking objects away, many at a time, and telling what became of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from airflow_provider_ducklake.kernels.connection import KernelSettings, scratch
from airflow_provider_ducklake.lake.cleanup import deletion_cutoff
from airflow_provider_ducklake.lake.database.base import batches
from airflow_provider_ducklake.lake.errors import LakeError, StorageError
from airflow_provider_ducklake.lake.fault_points import FaultPoint, reach
from airflow_provider_ducklake.lake.lake import LakeView
from airflow_provider_ducklake.lake.paths import Location
from airflow_provider_ducklake.lake.results import Failure
from airflow_provider_ducklake.spark.operations._job import Job
from airflow_provider_ducklake.storage import DeleteOutcome, StorageOptions, open_store
from airflow_provider_ducklake.storage.quarantine import move

BATCH = 1_000  # objects a task
MOVED = 50  # objects a task, where each is copied


@dataclass(frozen=True, slots=True)
class Deletion:
    """Objects for one task to delete, below one root."""

    root: str
    paths: tuple[str, ...]
    listed: bool


@dataclass(frozen=True, slots=True)
class Move:
    """Objects below one root for one task to move: path, and where it goes below `quarantine`."""

    root: str
    quarantine: str
    places: Mapping[str, str]

    @property
    def paths(self) -> tuple[str, ...]:
        """The objects."""
        return tuple(self.places)


Task = TypeVar("Task", Deletion, Move)


class Removed:
    """What became of all objects so far, of which there may be millions: counts, no paths."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.deleted = self.missing = self.failed = self.size = 0
        self._first: tuple[str, str] | None = None

    def add(self, outcome: DeleteOutcome, sizes: Mapping[str, int] | None = None) -> None:
        """Count what became of some objects; those that failed are reported one by one."""
        self.deleted += len(outcome.deleted)
        self.missing += len(outcome.missing)
        self.failed += len(outcome.failed)
        if sizes is not None:
            self.size += sum(sizes[path] for path in outcome.deleted)
        for path, reason in outcome.failed:
            self._first = self._first or (path, reason)
            self._job.report(f"not deleted: {path}: {reason}")

    @property
    def failures(self) -> list[Failure]:
        """What a result tells of the objects that could not be deleted."""
        if self._first is None:
            return []
        path, reason = self._first
        message = (
            f"{self.failed} files could not be deleted and stay for the next run "
            f"({self.deleted + self.missing} are done); the first: {path}: {reason}"
        )
        return [Failure(StorageError.__name__, message)]


def chosen_cutoff(job: Job, view: LakeView, *, floor: timedelta | None = None) -> datetime:
    """Return the instant before which this job's options let objects go, as `deletion_cutoff`."""
    return deletion_cutoff(
        view,
        job.now,
        older_than=job.options.text("older_than"),
        everything=bool(job.options.flag("cleanup_all")),
        force=bool(job.options.flag("force")),
        floor=floor,
    )


def delete(job: Job, paths: Sequence[str], *, listed: bool = False) -> DeleteOutcome:
    """Delete objects."""
    root = job.lake.data_path
    tasks = [Deletion(root, tuple(batch), listed) for batch in batches(paths, BATCH)]
    return _take_away(job, partial(_delete_batch, job.settings.storage), tasks, "deleting")


def move_away(job: Job, paths: Sequence[str], quarantine: str) -> DeleteOutcome:
    """Move objects below the data path to their places below another folder."""
    root = Location.parse(job.lake.data_path).real()
    tasks = [
        Move(root.path, quarantine, {path: quarantine + _below(root, path) for path in batch})
        for batch in batches(paths, MOVED)
    ]
    return _take_away(job, partial(_move_batch, job.settings), tasks, "moving")


def _take_away(
    job: Job, function: Callable[[Task], DeleteOutcome], tasks: Sequence[Task], what: str
) -> DeleteOutcome:
    """Run work orders that remove objects; what a failed one was given may still be there."""
    if tasks:
        job.lake.before_deleting()
    outcomes = job.runner.run(function, tasks, f"{job.operation}: {what}")
    reach(FaultPoint.OBJECTS_DELETED)
    total = DeleteOutcome()
    for task, outcome in zip(tasks, outcomes, strict=True):
        if isinstance(outcome, LakeError):
            outcome = DeleteOutcome(failed=tuple((path, str(outcome)) for path in task.paths))
        total += outcome
    return total


def _below(root: Location, path: str) -> str:
    segments = Location.parse(path).real().segments
    return "/".join(segments[len(root.segments) :])


def _move_batch(settings: KernelSettings, task: Move) -> DeleteOutcome:
    source = open_store(task.root, settings.storage)
    target = open_store(task.quarantine, settings.storage)
    with scratch(settings) as directory:
        return move(task.places, source, target, directory)


def _delete_batch(storage: StorageOptions, task: Deletion) -> DeleteOutcome:
    return open_store(task.root, storage).delete(task.paths, listed=task.listed)
