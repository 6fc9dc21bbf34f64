"""The steps of upkeep, in the order that loses nothing: for one lake, or for many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from airflow_provider_ducklake.lake.options import OperationOptions
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.spark.operations._job import Job
from airflow_provider_ducklake.spark.operations.cleanup import CLEANUP_OPTIONS, cleanup_old_files
from airflow_provider_ducklake.spark.operations.compaction import (
    MERGE_OPTIONS,
    REWRITE_OPTIONS,
    merge_adjacent_files,
    rewrite_data_files,
)
from airflow_provider_ducklake.spark.operations.flush import FLUSH_OPTIONS, flush_inlined_data
from airflow_provider_ducklake.spark.operations.orphans import (
    ORPHAN_OPTIONS,
    delete_orphaned_files,
)
from airflow_provider_ducklake.spark.operations.snapshots import EXPIRE_OPTIONS, expire_snapshots


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a larger one.

    Attributes:
        name: The operation's name.
        operation: The operation.
        known: Names of its options.
        given: What they are here; None and empty are not given.
    """

    name: str
    operation: Callable[[Job], OperationResult]
    known: tuple[str, ...]
    given: Mapping[str, str | None]

    def run(self, job: Job) -> OperationResult:
        """Run it as a part of a job, under a key of its own."""
        options = {name: value for name, value in self.given.items() if value}
        key = f"{job.info.key}/{self.name}" if job.info.key else None
        return self.operation(
            replace(
                job,
                operation=self.name,
                options=OperationOptions(self.name, options, self.known),
                info=replace(job.info, key=key),
            )
        )


def upkeep_steps(options: OperationOptions) -> tuple[Step, ...]:
    """Return flush, expire, merge, rewrite, clean up and sweep, with what a larger operation says.

    Args:
        options: `expire_older_than`, `retain_last`, `delete_threshold`, `delete_older_than`,
            `target_file_size`, `max_file_size`, `min_files`, `max_compacted_files`,
            `max_compacted_bytes`, `max_fraction`; none has to be given.

    Source: docs/stable/duckdb/maintenance/checkpoint.md for the order.
    """
    get = options.text
    limits = {name: get(name) for name in ("max_compacted_files", "max_compacted_bytes")}
    expiry = {"older_than": get("expire_older_than"), "retain_last": get("retain_last")}
    sizes = {name: get(name) for name in ("target_file_size", "max_file_size", "min_files")}
    merge = {**limits, **sizes}
    rewrite = {**limits, "delete_threshold": get("delete_threshold")}
    age = {"older_than": get("delete_older_than")}
    sweep = {**age, "max_fraction": get("max_fraction")}
    return (
        Step("flush_inlined_data", flush_inlined_data, FLUSH_OPTIONS, {}),
        Step("expire_snapshots", expire_snapshots, EXPIRE_OPTIONS, expiry),
        Step("merge_adjacent_files", merge_adjacent_files, MERGE_OPTIONS, merge),
        Step("rewrite_data_files", rewrite_data_files, REWRITE_OPTIONS, rewrite),
        Step("cleanup_old_files", cleanup_old_files, CLEANUP_OPTIONS, age),
        Step("delete_orphaned_files", delete_orphaned_files, ORPHAN_OPTIONS, sweep),
    )
