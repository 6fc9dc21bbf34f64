"""What a job left behind in its result file: a result, or the error that ended it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_ducklake.hooks._errors import airflow_error_named
from airflow_provider_ducklake.lake.results import OperationResult, Skipped, TableResult

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.model import Snapshot


def read_outcome(path: Path) -> dict[str, Any] | None:
    """Return what a job wrote, None when it did not get that far.

    Raises:
        AirflowException: The file is there and holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        outcome = json.loads(text)
    except ValueError:
        outcome = None
    if not isinstance(outcome, dict):
        raise AirflowException(f"the job's result file holds no JSON object but: {text[:200]!r}")
    return outcome


def result_of_commits(
    snapshots: Iterable[Snapshot], key: str, operation: str, lake: str
) -> dict[str, Any]:
    """Return what a job on a cluster did, as far as its commits tell.

    Args:
        snapshots: The kept snapshots.
        key: The job's key; a job that commits more than once adds `/` and what each is about.
        operation: Its name.
        lake: The catalog, without secrets.
    """
    tables, ids = [], []
    for snapshot in snapshots:
        job = _job_of(snapshot)
        own = str(job.get("key", ""))
        if own == key or own.startswith(f"{key}/"):
            ids.append(snapshot.snapshot_id)
            found = job.get("result") or {}
            tables += [_table(entry, snapshot, own) for entry in found.get("tables") or [{}]]
    note = "the job committed nothing: there was nothing to do, or it was a dry run"
    return OperationResult(
        operation,
        lake,
        snapshot_before=min(ids) - 1 if ids else None,
        snapshot_after=max(ids, default=None),
        tables=tuple(tables),
        messages=() if ids else (f"{note}; the driver's log tells which",),
    ).to_dict()


def _job_of(snapshot: Snapshot) -> dict[str, Any]:
    try:
        job = json.loads(snapshot.extra_info or "{}")["ducklake_job"]
    except (ValueError, KeyError, TypeError):
        return {}
    return job if isinstance(job, dict) else {}


def _table(entry: dict[str, Any], snapshot: Snapshot, key: str) -> TableResult:
    known = {name: entry[name] for name in TableResult.__slots__ if name in entry}
    skipped = tuple(Skipped(**item) for item in known.pop("skipped", ()))
    found = {"table": key.rpartition("/")[2], "snapshot_id": snapshot.snapshot_id, **known}
    return TableResult(**found, skipped=skipped)


def failure_of(outcome: dict[str, Any]) -> AirflowException | None:
    """Return the error a job reported, of itself or of single tables; None when all went well."""
    if error := outcome.get("error"):
        return airflow_error_named(str(error.get("type")), str(error.get("message")))
    failures = outcome.get("failures") or []
    tables = outcome.get("tables") or []
    failed = [table for table in tables if table.get("error")]
    said = [str(failure.get("message")) for failure in failures]
    if failed:
        details = "; ".join(f"{table['table']}: {table['error']}" for table in failed)
        operation, of_all = outcome.get("operation"), f"{len(failed)} of {len(tables)} tables"
        said.append(f"{operation} failed for {of_all}: {details}")
    if failures:
        return airflow_error_named(str(failures[0].get("kind")), "; ".join(said))
    return AirflowException(said[0]) if said else None


def summary_lines(result: dict[str, Any]) -> Iterator[str]:
    """Yield a few lines for the task's log."""
    done = " (nothing was changed: dry run)" if result.get("dry_run") else ""
    if result.get("already_done"):
        done = " (done by an earlier try of this task, whose result this is)"
    before, after = result.get("snapshot_before"), result.get("snapshot_after")
    yield f"{result.get('operation')} on {result.get('lake')}: snapshot {before} -> {after}{done}"
    for table in result.get("tables") or []:
        yield (
            f"{table['table']}: {table['files_in']} files in, {table['files_out']} out, "
            f"{table['bytes_in']} -> {table['bytes_out']} bytes, {table['rows']} rows; "
            f"live files {table['files_before']} -> {table['files_after']}"
        )
    for found in result.get("findings") or []:
        yield f"{found['severity']} {found['damage']}: {found['count']}, {found['example']}"
    for name, count in (result.get("counts") or {}).items():
        yield f"{name}: {count}"
    yield from result.get("messages") or []
