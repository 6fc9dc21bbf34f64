"""expire_snapshots: old snapshots go, and what only they reached is scheduled for deletion."""

from __future__ import annotations

import time
from collections.abc import Sequence

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.expiry import commit_expiry, plan_expiry, predict_expiry
from airflow_provider_ducklake.lake.instants import parse_cutoff
from airflow_provider_ducklake.lake.model import Snapshot
from airflow_provider_ducklake.lake.reader import read_snapshots
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.spark.operations._job import Job, finished

EXPIRE_OPTIONS = ("older_than", "versions", "retain_last")


def expire_snapshots(job: Job) -> OperationResult:
    """Expire snapshots by age, by id, or by how many shall stay; given together, all must hold."""
    started = time.monotonic()
    with job.lake.view() as view:
        snapshots = read_snapshots(view.session)
        default = view.option("expire_older_than")
    versions = parse_versions(job.options.text("versions"))
    retain_last = job.options.integer("retain_last", at_least=1)
    older_than = job.options.text("older_than")
    if older_than is None and versions is None and retain_last is None:
        older_than = default
    plan = plan_expiry(
        snapshots,
        older_than=parse_cutoff(older_than, job.now) if older_than else None,
        versions=versions,
        retain_last=retain_last,
    )
    for snapshot in _by_id(snapshots, plan.expired):
        job.report(f"snapshot {snapshot.snapshot_id} of {snapshot.time}: {snapshot.changes_made}")
    head = snapshots[-1].snapshot_id
    counts = {"snapshots_expired": len(plan.expired), "snapshots_kept": plan.kept}
    if job.dry_run:
        with job.lake.view() as view:
            done = predict_expiry(view, plan)
    else:
        done = commit_expiry(job.lake, plan)
    counts |= {
        "snapshots_expired": done.snapshots,
        "data_files_scheduled": done.data_files,
        "delete_files_scheduled": done.delete_files,
        "bytes_scheduled": done.size,
    }
    return finished(job, started, head, counts=counts)


def parse_versions(text: str | None) -> list[int] | None:
    """Parse snapshot ids: `3,4,9` or a range `1..5` (both ends included)."""
    if not text:
        return None
    ids: list[int] = []
    for part in text.strip("[]() ").split(","):
        first, dots, last = part.strip().partition("..")
        try:
            ids += range(int(first), int(last) + 1) if dots else [int(first)]
        except ValueError:
            raise ConfigurationError(
                f"versions {text!r}: write snapshot ids such as 3,4,9 or 1..5"
            ) from None
    return ids


def _by_id(snapshots: Sequence[Snapshot], ids: Sequence[int]) -> list[Snapshot]:
    wanted = set(ids)
    return [snapshot for snapshot in snapshots if snapshot.snapshot_id in wanted]
