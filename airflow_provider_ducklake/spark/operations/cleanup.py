"""cleanup_old_files: objects that were scheduled for deletion long enough ago are deleted."""

from __future__ import annotations

import time

from airflow_provider_ducklake.lake.cleanup import (
    CleanupPlan,
    Watch,
    forget_files,
    plan_cleanup,
)
from airflow_provider_ducklake.lake.database.base import batches
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.spark.operations._job import Job, finished
from airflow_provider_ducklake.spark.operations._removal import (
    BATCH,
    Removed,
    chosen_cutoff,
    delete,
)

CLEANUP_OPTIONS = ("older_than", "cleanup_all", "force", "outside_data_path", "max_seconds")
ACKNOWLEDGED = 8 * BATCH  # objects that are looked up, deleted and taken off the schedule together


def cleanup_old_files(job: Job) -> OperationResult:
    """Delete files that were scheduled for deletion long enough ago, and forget them."""
    started = time.monotonic()
    with job.lake.view() as view:
        cutoff = chosen_cutoff(job, view)
        foreign = bool(job.options.flag("outside_data_path"))
        plan = plan_cleanup(view, cutoff, outside_data_path=foreign)
        head = view.head.snapshot_id
    for file in plan.delete:
        job.report(f"scheduled file {file.path}")
    for file in plan.forget:
        job.report(f"outside the data path, only forgotten: {file.path}")
    counts = {"files_deleted": len(plan.delete), "files_forgotten": len(plan.forget)}
    removed = Removed(job)
    if not job.dry_run:
        left = _delete_scheduled(job, plan, removed)
        forget_files(job.lake, plan.forget)
        counts |= {"files_deleted": removed.deleted, "files_missing": removed.missing}
        if left:
            counts["files_left_for_the_next_run"] = left
    if removed.failed:
        counts["files_failed"] = removed.failed
    counts |= {f"kept: {entry.reason}": entry.count for entry in plan.skipped}
    return finished(job, started, head, counts=counts, failures=removed.failures)


def _delete_scheduled(job: Job, plan: CleanupPlan, removed: Removed) -> int:
    """Delete in batches, each looked up again just before and acknowledged right after.

    Returns:
        How many files the deadline leaves for the next run.
    """
    left, watch = len(plan.delete), Watch(job.lake, plan)
    for batch in batches(plan.delete, ACKNOWLEDGED):
        if job.deadline.is_over:
            return left
        unused = watch.still_unused(batch)
        outcome = delete(job, [file.path for file in unused])
        done = set(outcome.done)
        forget_files(job.lake, [file for file in unused if file.path in done])
        removed.add(outcome)
        left -= len(batch)
    return left
