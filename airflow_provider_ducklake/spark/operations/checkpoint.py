"""checkpoint: all upkeep in the right order, in one application."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.lake.results import Failure, OperationResult, TableResult
from airflow_provider_ducklake.spark.operations._job import Job, finished
from airflow_provider_ducklake.spark.operations._upkeep import Step, upkeep_steps

CHECKPOINT_OPTIONS = (
    "expire_older_than",
    "retain_last",
    "delete_threshold",
    "delete_older_than",
    "target_file_size",
    "max_compacted_files",
    "max_fraction",
    "max_seconds",
)


def checkpoint(job: Job) -> OperationResult:
    """Flush, expire, merge, rewrite, clean up scheduled files, sweep orphans.

    A step that fails is reported and does not keep the others from running: each leaves the lake
    as good as it found it. `max_seconds` bound all of them together: no step, and no part of one,
    begins later. Expiry runs only when an option, here or in the lake, says how far.

    Source: docs/stable/duckdb/maintenance/checkpoint.md for the order.
    """
    started = time.monotonic()
    with job.lake.view() as view:
        before, expires = view.head.snapshot_id, view.option("expire_older_than")
    expires = expires or job.options.text("expire_older_than") or job.options.text("retain_last")
    steps = [
        step for step in upkeep_steps(job.options) if expires or step.name != "expire_snapshots"
    ]
    return _run(job, started, before, steps)


def _run(job: Job, started: float, before: int, steps: Sequence[Step]) -> OperationResult:
    tables: list[TableResult] = []
    counts: dict[str, int] = {}
    messages: list[str] = []
    failures: list[Failure] = []
    for number, step in enumerate(steps):
        if job.deadline.is_over and not job.dry_run:
            later = [step.name for step in steps[number:]]
            messages.append(f"not begun, as max_seconds are over: {', '.join(later)}")
            counts["steps_left_for_the_next_run"] = len(later)
            break
        name = step.name
        try:
            result = step.run(job)
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
