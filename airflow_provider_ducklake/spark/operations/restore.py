"""restore: a table, or the whole lake, shows again what an older kept snapshot showed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Final

from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.restore import RestoredFile, restore_file
from airflow_provider_ducklake.kernels.tasks import RestoreTask
from airflow_provider_ducklake.lake.errors import (
    CommitConflict,
    CommitStateUnknown,
    LakeError,
)
from airflow_provider_ducklake.lake.instants import parse_cutoff
from airflow_provider_ducklake.lake.model import Snapshot
from airflow_provider_ducklake.lake.restore import (
    RestorePlan,
    TableRestore,
    find_target,
    plan_lake_restore,
    plan_table_restore,
)
from airflow_provider_ducklake.lake.restore_commit import (
    RestoredDeletes,
    commit_restore,
    restore_results,
)
from airflow_provider_ducklake.lake.results import OperationResult, TableResult
from airflow_provider_ducklake.spark.operations._job import (
    REPLANS,
    Job,
    all_told_by,
    discard,
    finished,
    first_error,
    parquet_options,
)

RESTORE_OPTIONS = ("snapshot", "at")
_LAKE: Final = "the lake"  # what stands in commit keys and messages for no table
_MOST_NAMES: Final = 20


def restore(job: Job) -> OperationResult:
    """Make a snapshot that shows some tables, or everything, as an older kept snapshot does."""
    started = time.monotonic()
    with job.lake.view() as view:
        before = view.head.snapshot_id
    done = {name: job.find_all_done(name) for name in job.tables or (_LAKE,)}
    if all(results is not None for results in done.values()):
        tables = [result for results in done.values() for result in results or ()]
        return finished(job, started, before, tables, already_done=True)
    with job.lake.view() as view:
        target = find_target(
            view, snapshot_id=job.options.integer("snapshot", at_least=0), at=_instant(job)
        )
    if target.snapshot_id == before:
        message = f"snapshot {before} is the newest: there is nothing to restore"
        return finished(job, started, before, messages=(message,))
    messages = [f"restores snapshot {target.snapshot_id} of {target.time.isoformat()}"]
    results: list[TableResult] = []
    if not job.tables:
        results += _with_replans(job, target, None, messages)
    for name in job.tables:
        earlier = done[name]
        if earlier is not None:
            results += earlier
            continue
        try:
            results += _with_replans(job, target, name, messages)
        except LakeError as error:
            results.append(TableResult(name, error=str(error)))
    return finished(job, started, before, results, messages=messages)


def _instant(job: Job) -> datetime | None:
    text = job.options.text("at")
    return parse_cutoff(text, job.now) if text else None


def _with_replans(
    job: Job, target: Snapshot, name: str | None, messages: list[str]
) -> tuple[TableResult, ...]:
    """Restore one table, or the lake; plan anew when another writer got in between."""
    for attempt in range(1, REPLANS + 1):
        try:
            return _restore(job, target.snapshot_id, name, messages)
        except CommitConflict as error:
            if attempt == REPLANS:
                raise
            job.report(f"{name or _LAKE}: {error}")
    raise AssertionError("unreachable")


def _restore(
    job: Job, target: int, name: str | None, messages: list[str]
) -> tuple[TableResult, ...]:
    with job.lake.view() as view:
        find_target(view, snapshot_id=target)  # it may have expired since
        if name is None:
            plan = plan_lake_restore(view, target)
        else:
            plan = plan_table_restore(view, target, name)
        encrypted = {
            restore.table.table_id: parquet_options(view.options, restore.table).encrypted
            for restore in plan.tables
        }
    outputs: dict[int, tuple[RestoredDeletes, ...]] = {}
    try:
        for restore in plan.tables:
            table_id = restore.table.table_id
            outputs[table_id] = _restore_deletes(job, restore, target, encrypted[table_id])
        if not plan.is_needed or _changes_nothing(plan, outputs):
            messages.append(f"{name or _LAKE} is as snapshot {target} shows it: nothing to restore")
            return ()
        _tell(job, plan, messages)
        if job.dry_run:
            return restore_results(plan, outputs)
        commit = commit_restore(
            job.lake, plan, outputs, name=name, info=job.info_for(name or _LAKE)
        )
    except CommitStateUnknown:
        raise
    except LakeError:
        discard(job.lake, _written(outputs))
        raise
    if commit.value is None:  # an earlier try had committed
        discard(job.lake, _written(outputs))
        return all_told_by(commit, name or _LAKE)
    return commit.value


def _changes_nothing(plan: RestorePlan, outputs: Mapping[int, tuple[RestoredDeletes, ...]]) -> bool:
    """Tell whether all that seemed to differ is the same when the delete files are read."""
    return not plan.entries and not any(
        restore.retired
        or restore.inlined.is_needed
        or any(change.same for change in restore.changed)
        or any(output.is_needed for output in outputs[restore.table.table_id])
        for restore in plan.tables
    )


def _restore_deletes(
    job: Job, restore: TableRestore, target: int, encrypted: bool
) -> tuple[RestoredDeletes, ...]:
    """Write the delete files of a table's changed files; in a dry run only count their rows."""
    changes = [change for change in restore.changed if not change.same]
    name = restore.table.full_name
    tasks = [
        RestoreTask(
            then=change.then,
            last=change.last,
            snapshot_id=target,
            inlined=change.inlined,
            hidden_since=change.hidden_since,
            rewrite_history=change.rewrites_history,
            directory=None if job.dry_run else restore.table.data_path,
            encrypted=encrypted,
        )
        for change in changes
    ]
    found = job.runner.run(
        partial(_restore_file, job.settings), tasks, f"{job.operation} {name}: deletes"
    )
    error = first_error(found)
    if error is not None:
        discard(job.lake, (p for f in found if isinstance(f, RestoredFile) for p in f.paths))
        raise error
    return tuple(
        RestoredDeletes(change, file.back, file.gone, file.now, file.history)
        for change, file in zip(changes, found, strict=True)
        if isinstance(file, RestoredFile)
    )


def _restore_file(settings: KernelSettings, task: RestoreTask) -> RestoredFile:
    return restore_file(task, settings)


def _written(outputs: Mapping[int, tuple[RestoredDeletes, ...]]) -> Iterator[str]:
    for of_table in outputs.values():
        for output in of_table:
            yield from (file.path for file in (output.now, output.history) if file is not None)


def _tell(job: Job, plan: RestorePlan, messages: list[str]) -> None:
    """Say what a person should know beyond numbers: which things come and go."""
    back = [f"table {r.table.full_name}" for r in plan.tables if not r.is_live]
    gone = [f"table {table.full_name}" for table in plan.dropped]
    for change in plan.entries:
        kind = change.table.removeprefix("ducklake_")
        if kind in ("schema", "view", "macro"):
            gone += [f"{kind} {entry[f'{kind}_name']!s}" for entry in change.gone]
            back += [f"{kind} {entry[f'{kind}_name']!s}" for entry in change.back]
    for verb, things in (("comes back", back), ("goes", gone)):
        if things:
            job.report(f"{verb}: {', '.join(things)}")
            more = f" and {len(things) - _MOST_NAMES:,} more" if len(things) > _MOST_NAMES else ""
            messages.append(f"{verb}: {', '.join(things[:_MOST_NAMES])}{more}")
    for restore in plan.tables:
        job.report(
            f"{restore.table.full_name}: {len(restore.retired)} data files go, "
            f"{len(restore.changed)} come back or change their deletes"
        )
