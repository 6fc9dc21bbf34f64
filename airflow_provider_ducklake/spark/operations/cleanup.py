"""cleanup_old_files and delete_orphaned_files: objects nobody needs any more are deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from airflow_provider_ducklake.kernels.connection import KernelSettings, scratch
from airflow_provider_ducklake.lake.cleanup import (
    ORPHAN_FLOOR,
    ScheduledFile,
    deletion_cutoff,
    forget_files,
    plan_cleanup,
    still_unused,
)
from airflow_provider_ducklake.lake.database.base import batches
from airflow_provider_ducklake.lake.errors import ConfigurationError, LakeError, StorageError
from airflow_provider_ducklake.lake.fault_points import FaultPoint, reach
from airflow_provider_ducklake.lake.orphans import MAX_FRACTION, plan_orphans, refuse_shared_root
from airflow_provider_ducklake.lake.paths import Location
from airflow_provider_ducklake.lake.references import read_references
from airflow_provider_ducklake.lake.results import Failure, OperationResult, Skipped
from airflow_provider_ducklake.spark.operations._job import Job, finished
from airflow_provider_ducklake.storage import DeleteOutcome, ObjectInfo, StorageOptions, open_store
from airflow_provider_ducklake.storage.quarantine import move

CLEANUP_OPTIONS = ("older_than", "cleanup_all", "force", "outside_data_path")
ORPHAN_OPTIONS = ("older_than", "cleanup_all", "force", "max_fraction", "quarantine")
BATCH = 1_000  # objects a task
MOVED = 50  # objects a task, where each is copied
ACKNOWLEDGED = 8 * BATCH  # objects that are looked up, deleted and taken off the schedule together


def cleanup_old_files(job: Job) -> OperationResult:
    """Delete files that were scheduled for deletion long enough ago, and forget them."""
    started = time.monotonic()
    with job.lake.view() as view:
        cutoff = deletion_cutoff(
            view,
            job.now,
            older_than=job.options.text("older_than"),
            everything=bool(job.options.flag("cleanup_all")),
            force=bool(job.options.flag("force")),
        )
        foreign = bool(job.options.flag("outside_data_path"))
        plan = plan_cleanup(view, cutoff, outside_data_path=foreign)
        head = view.head.snapshot_id
    for file in plan.delete:
        job.report(f"scheduled file {file.path}")
    for file in plan.forget:
        job.report(f"outside the data path, only forgotten: {file.path}")
    counts = {"files_deleted": len(plan.delete), "files_forgotten": len(plan.forget)}
    outcome = DeleteOutcome()
    if not job.dry_run:
        outcome = _delete_scheduled(job, plan.delete)
        forget_files(job.lake, plan.forget)
        counts |= {"files_deleted": len(outcome.deleted), "files_missing": len(outcome.missing)}
    counts |= _reasons(plan.skipped)
    return _reported(job, started, head, counts, outcome)


def delete_orphaned_files(job: Job) -> OperationResult:
    """Delete, or move elsewhere, data files under the data path that the catalog does not know."""
    started = time.monotonic()
    with job.lake.view() as view:
        cutoff = deletion_cutoff(
            view,
            job.now,
            older_than=job.options.text("older_than"),
            everything=bool(job.options.flag("cleanup_all")),
            force=bool(job.options.flag("force")),
            floor=ORPHAN_FLOOR,
        )
        refuse_shared_root(view)
        data_path = view.data_path
    quarantine = _quarantine(job, data_path)
    fraction = job.options.fraction("max_fraction")
    # Listed first, references read after: a file committed in between is known, not an orphan.
    listed = _list(job, data_path)
    with job.lake.view() as view:
        references = read_references(view.session, data_path)
        head = view.head.snapshot_id
    plan = plan_orphans(
        listed,
        references,
        Location.parse(data_path).real(),
        cutoff,
        max_fraction=MAX_FRACTION if fraction is None else fraction,
    )
    for orphan in plan.orphans:
        job.report(f"orphan {orphan.path}, {orphan.size} bytes, of {orphan.last_modified}")
    done = "deleted" if quarantine is None else "quarantined"
    counts = {f"files_{done}": len(plan.orphans), f"bytes_{done}": plan.size}
    outcome = DeleteOutcome()
    if not job.dry_run:
        paths = _still_orphans(job, plan.orphans, data_path)
        if quarantine is None:
            outcome = _delete(job, paths, listed=True)
        else:
            outcome = _move(job, paths, quarantine)
        counts |= {f"files_{done}": len(outcome.deleted), "files_missing": len(outcome.missing)}
    counts |= _reasons(plan.skipped)
    messages = [f"orphans go to {quarantine}"] if quarantine and plan.orphans else []
    return _reported(job, started, head, counts, outcome, messages)


def _quarantine(job: Job, data_path: str) -> str | None:
    """Return the folder that takes this run's orphans; None for deleting them."""
    wanted = job.options.text("quarantine")
    if not wanted:
        return None
    place, root = Location.parse(wanted).real(), Location.parse(data_path).real()
    if place.is_under(root) or root.is_under(place) or place.ambiguous_with(root):
        raise ConfigurationError(
            f"quarantine {wanted} and the data path {data_path} share a root: what is moved there "
            "would be swept again. Name a folder or bucket elsewhere"
        )
    # Orphans of one name, of several runs, must not replace each other.
    folder = f"{place.path.rstrip('/')}/{job.now:%Y%m%dT%H%M%S.%fZ}/"
    if not job.dry_run:
        open_store(folder, job.settings.storage).ensure_writable(folder)
    return folder


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


def _delete_scheduled(job: Job, files: Sequence[ScheduledFile]) -> DeleteOutcome:
    """Delete in batches, each looked up again just before and acknowledged right after."""
    total = DeleteOutcome()
    for batch in batches(files, ACKNOWLEDGED):
        unused = still_unused(job.lake, batch)
        outcome = _delete(job, [file.path for file in unused])
        done = set(outcome.done)
        forget_files(job.lake, [file for file in unused if file.path in done])
        total += outcome
    return total


def _still_orphans(job: Job, orphans: Iterable[ObjectInfo], data_path: str) -> list[str]:
    with job.lake.view() as view:
        references = read_references(view.session, data_path)
    known = references.files | references.scheduled
    return [orphan.path for orphan in orphans if orphan.location.real() not in known]


def _delete(job: Job, paths: Sequence[str], *, listed: bool = False) -> DeleteOutcome:
    root = job.lake.data_path
    tasks = [Deletion(root, tuple(batch), listed) for batch in batches(paths, BATCH)]
    return _take_away(job, partial(_delete_batch, job.settings.storage), tasks, "deleting")


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


def _move(job: Job, paths: Sequence[str], quarantine: str) -> DeleteOutcome:
    root = Location.parse(job.lake.data_path).real()
    tasks = [
        Move(root.path, quarantine, {path: quarantine + _below(root, path) for path in batch})
        for batch in batches(paths, MOVED)
    ]
    return _take_away(job, partial(_move_batch, job.settings), tasks, "moving")


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


def _list(job: Job, data_path: str) -> list[ObjectInfo]:
    (listed,) = job.runner.run(
        partial(_list_directory, job.settings.storage), [data_path], f"{job.operation}: listing"
    )
    if isinstance(listed, LakeError):
        raise StorageError(f"the listing failed, so nothing was deleted: {listed}")
    return listed


def _list_directory(storage: StorageOptions, directory: str) -> list[ObjectInfo]:
    return list(open_store(directory, storage).list(directory))


def _reasons(skipped: Iterable[Skipped]) -> dict[str, int]:
    return {f"kept: {entry.reason}": entry.count for entry in skipped}


def _reported(
    job: Job,
    started: float,
    head: int,
    counts: dict[str, int],
    outcome: DeleteOutcome,
    messages: Sequence[str] = (),
) -> OperationResult:
    for path, reason in outcome.failed:
        job.report(f"not deleted: {path}: {reason}")
    failures = []
    if outcome.failed:
        counts = {**counts, "files_failed": len(outcome.failed)}
        first_path, first_reason = outcome.failed[0]
        message = (
            f"{len(outcome.failed)} files could not be deleted and stay for the next run "
            f"({len(outcome.done)} are done); the first: {first_path}: {first_reason}"
        )
        failures.append(Failure(StorageError.__name__, message))
    return finished(job, started, head, counts=counts, failures=failures, messages=messages)
