"""checkpoint: all upkeep in the right order, in one application."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.lake.options import OperationOptions
from airflow_provider_ducklake.lake.results import Failure, OperationResult, TableResult
from airflow_provider_ducklake.spark.operations._job import Job, finished
from airflow_provider_ducklake.spark.operations.cleanup import (
    CLEANUP_OPTIONS,
    ORPHAN_OPTIONS,
    cleanup_old_files,
    delete_orphaned_files,
)
from airflow_provider_ducklake.spark.operations.compaction import (
    MERGE_OPTIONS,
    REWRITE_OPTIONS,
    merge_adjacent_files,
    rewrite_data_files,
)
from airflow_provider_ducklake.spark.operations.flush import FLUSH_OPTIONS, flush_inlined_data
from airflow_provider_ducklake.spark.operations.snapshots import EXPIRE_OPTIONS, expire_snapshots

CHECKPOINT_OPTIONS = (
    "expire_older_than",
    "retain_last",
    "delete_threshold",
    "delete_older_than",
    "target_file_size",
    "max_compacted_files",
    "max_fraction",
)
Step = Callable[[Job], OperationResult]


def checkpoint(job: Job) -> OperationResult:
    """Flush, expire, merge, rewrite, clean up scheduled files, sweep orphans.

    A step that fails is reported and does not keep the others from running: each leaves the lake
    as good as it found it. Expiry runs only when an option, here or in the lake, says how far.

    Source: docs/stable/duckdb/maintenance/checkpoint.md for the order.
    """
    started = time.monotonic()
    with job.lake.view() as view:
        before, expires = view.head.snapshot_id, view.option("expire_older_than")
    get = job.options.text
    limits = {"max_compacted_files": get("max_compacted_files")}
    expiry = {"older_than": get("expire_older_than"), "retain_last": get("retain_last")}
    merge = {**limits, "target_file_size": get("target_file_size")}
    rewrite = {**limits, "delete_threshold": get("delete_threshold")}
    age = {"older_than": get("delete_older_than")}
    steps: list[tuple[str, Step, tuple[str, ...], Mapping[str, str | None]]] = [
        ("flush_inlined_data", flush_inlined_data, FLUSH_OPTIONS, {}),
        ("expire_snapshots", expire_snapshots, EXPIRE_OPTIONS, expiry),
        ("merge_adjacent_files", merge_adjacent_files, MERGE_OPTIONS, merge),
        ("rewrite_data_files", rewrite_data_files, REWRITE_OPTIONS, rewrite),
        ("cleanup_old_files", cleanup_old_files, CLEANUP_OPTIONS, age),
        (
            "delete_orphaned_files",
            delete_orphaned_files,
            ORPHAN_OPTIONS,
            {**age, "max_fraction": get("max_fraction")},
        ),
    ]
    if not any((expires, *expiry.values())):
        steps = [step for step in steps if step[0] != "expire_snapshots"]
    return _run(job, started, before, steps)


def _run(
    job: Job,
    started: float,
    before: int,
    steps: list[tuple[str, Step, tuple[str, ...], Mapping[str, str | None]]],
) -> OperationResult:
    tables: list[TableResult] = []
    counts: dict[str, int] = {}
    messages: list[str] = []
    failures: list[Failure] = []
    for name, step, known, given in steps:
        options = OperationOptions(name, {k: v for k, v in given.items() if v}, known)
        key = f"{job.info.key}/{name}" if job.info.key else None
        own = replace(job, operation=name, options=options, info=replace(job.info, key=key))
        try:
            result = step(own)
        except LakeError as error:
            failures.append(Failure(type(error).__name__, f"{name}: {error}"))
            continue
        failures += [replace(f, message=f"{name}: {f.message}") for f in result.failures]
        tables += [t for t in result.tables if t.files_in or t.files_out or t.error]
        counts |= {f"{name}: {key}": value for key, value in result.counts.items()}
        messages.append(f"{name}: {_did(result)}")
    return finished(
        job, started, before, tables, counts=counts, failures=failures, messages=messages
    )


def _did(result: OperationResult) -> str:
    files = sum(table.files_in for table in result.tables)
    made = sum(table.files_out for table in result.tables)
    if files or made:
        return f"{files} files in, {made} out"
    done = [f"{value} {key.replace('_', ' ')}" for key, value in result.counts.items() if value]
    return ", ".join(part for part in done if " kept" not in part) or "nothing to do"
