"""delete_orphaned_files: data files that no catalog entry refers to are deleted, or moved."""

from __future__ import annotations

import time
from datetime import datetime

from airflow_provider_ducklake.kernels.connection import scratch
from airflow_provider_ducklake.lake.cleanup import ORPHAN_FLOOR
from airflow_provider_ducklake.lake.errors import ConfigurationError, StorageError
from airflow_provider_ducklake.lake.orphans import (
    MAX_FRACTION,
    Listing,
    open_listing,
    refuse_shared_root,
)
from airflow_provider_ducklake.lake.paths import Location
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.spark.operations._job import Job, finished
from airflow_provider_ducklake.spark.operations._removal import (
    BATCH,
    Removed,
    chosen_cutoff,
    delete,
    move_away,
)
from airflow_provider_ducklake.storage import open_store

ORPHAN_OPTIONS = (
    "older_than",
    "cleanup_all",
    "force",
    "max_fraction",
    "quarantine",
    "max_seconds",
)
ROUND = 32 * BATCH  # orphans that are handed out together


def delete_orphaned_files(job: Job) -> OperationResult:
    """Delete, or move elsewhere, data files under the data path that the catalog does not know."""
    started = time.monotonic()
    with job.lake.view() as view:
        cutoff = chosen_cutoff(job, view, floor=ORPHAN_FLOOR)
        refuse_shared_root(view)
        data_path = view.data_path
    quarantine = _quarantine(job, data_path)
    fraction = job.options.fraction("max_fraction")
    root = Location.parse(data_path).real()
    with scratch(job.settings) as directory, open_listing(directory) as listing:
        # Listed first, references read after: a file committed in between is known, no orphan.
        _list(job, listing, data_path, root, cutoff)
        with job.lake.view() as view:
            listing.strike(view)
            head = view.head.snapshot_id
        listing.require_share(root, MAX_FRACTION if fraction is None else fraction)
        number, size = listing.orphans()
        skipped = {f"kept: {entry.reason}": entry.count for entry in listing.skipped()}
        for batch in listing.batches(BATCH):
            for orphan in batch:
                job.report(f"orphan {orphan.path}, {orphan.size} bytes, of {orphan.last_modified}")
        done = "deleted" if quarantine is None else "quarantined"
        counts = {f"files_{done}": number, f"bytes_{done}": size}
        removed = Removed(job)
        if not job.dry_run:
            left = _remove(job, listing, quarantine, removed)
            counts = {f"files_{done}": removed.deleted, f"bytes_{done}": removed.size}
            counts["files_missing"] = removed.missing
            if left:
                counts["files_left_for_the_next_run"] = left
    if removed.failed:
        counts["files_failed"] = removed.failed
    return finished(
        job,
        started,
        head,
        counts={**counts, **skipped},
        failures=removed.failures,
        messages=[f"orphans go to {quarantine}"] if quarantine and number else [],
    )


def _list(job: Job, listing: Listing, data_path: str, root: Location, cutoff: datetime) -> None:
    try:
        listing.add(open_store(data_path, job.settings.storage).list(data_path), root, cutoff)
    except StorageError as error:
        raise StorageError(f"the listing failed, so nothing was deleted: {error}") from error


def _remove(job: Job, listing: Listing, quarantine: str | None, removed: Removed) -> int:
    """Take the orphans away until the deadline; return how many are left for the next run."""
    # Looked up again just before: somebody may have committed or registered one meanwhile.
    with job.lake.view() as view:
        listing.strike(view)
    left, _ = listing.orphans()
    for orphans in listing.batches(ROUND):
        if job.deadline.is_over:
            return left
        sizes = {orphan.path: orphan.size for orphan in orphans}
        if quarantine is None:
            removed.add(delete(job, list(sizes), listed=True), sizes)
        else:
            removed.add(move_away(job, list(sizes), quarantine), sizes)
        left -= len(orphans)
    return left


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
