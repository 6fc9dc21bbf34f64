"""expire_snapshots: old snapshots go, and what only they reached is scheduled for deletion."""

from __future__ import annotations

import time
from collections.abc import Sequence

from airflow_provider_ducklake.lake.database.base import batches
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.expiry import (
    ExpiryOutcome,
    commit_expiry,
    plan_expiry,
    predict_expiry,
)
from airflow_provider_ducklake.lake.instants import parse_cutoff
from airflow_provider_ducklake.lake.reader import read_chosen_snapshots, snapshot_times
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.spark.operations._job import Job, finished

EXPIRE_OPTIONS = ("older_than", "versions", "retain_last", "max_seconds")
BATCH = 5_000  # snapshots a transaction


def expire_snapshots(job: Job) -> OperationResult:
    """Expire snapshots by age, by id, or by how many shall stay; given together, all must hold."""
    started = time.monotonic()
    versions = parse_versions(job.options.text("versions"))
    retain_last = job.options.integer("retain_last", at_least=1)
    older_than = job.options.text("older_than")
    with job.lake.view() as view:
        head = view.head.snapshot_id
        if older_than is None and versions is None and retain_last is None:
            older_than = view.option("expire_older_than")
        plan = plan_expiry(
            snapshot_times(view.session),
            now=job.now,
            older_than=parse_cutoff(older_than, job.now) if older_than else None,
            versions=versions,
            retain_last=retain_last,
        )
        done = predict_expiry(view, plan) if job.dry_run else ExpiryOutcome()
    left = 0 if job.dry_run else len(plan.expired)
    for number, ids in enumerate(batches(plan.expired, BATCH)):
        if job.deadline.is_over and not job.dry_run:
            break
        _describe(job, ids)
        if not job.dry_run:
            done += commit_expiry(job.lake, ids, settled=plan.settled, sweep=number == 0)
            left -= len(ids)
    counts = {
        "snapshots_expired": done.snapshots,
        "snapshots_kept": len(plan.kept),
        "data_files_scheduled": done.data_files,
        "delete_files_scheduled": done.delete_files,
        "bytes_scheduled": done.size,
    }
    if left:
        counts["snapshots_left_for_the_next_run"] = left
    return finished(job, started, head, counts=counts)


def parse_versions(text: str | None) -> list[range] | None:
    """Parse snapshot ids: `3,4,9` or a range `1..5` (both ends included).

    Returns:
        Ascending ranges of which none meets another.
    """
    if not text:
        return None
    found: list[range] = []
    for part in text.strip("[]() ").split(","):
        first, dots, last = part.strip().partition("..")
        try:
            found.append(range(int(first), int(last if dots else first) + 1))
        except ValueError:
            raise ConfigurationError(
                f"versions {text!r}: write snapshot ids such as 3,4,9 or 1..5"
            ) from None
    merged: list[range] = []
    for ids in sorted(filter(len, found), key=lambda ids: ids.start):
        if merged and ids.start <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(ids.stop, merged[-1].stop))
        else:
            merged.append(ids)
    return merged


def _describe(job: Job, ids: Sequence[int]) -> None:
    """Tell what goes, of so many snapshots as go together: a lake may have had millions."""
    with job.lake.view() as view:
        for snapshot in read_chosen_snapshots(view.session, ids):
            told = f"{snapshot.snapshot_id} of {snapshot.time}: {snapshot.changes_made}"
            job.report(f"snapshot {told}")
