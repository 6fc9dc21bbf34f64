"""flush_inlined_data: rows and deletes that live in the catalog become Parquet files."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import duckdb

from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.flush import FlushedFiles, flush, flush_deletes
from airflow_provider_ducklake.kernels.tasks import FlushDeletesTask, FlushTask
from airflow_provider_ducklake.lake.errors import CommitStateUnknown, LakeError
from airflow_provider_ducklake.lake.flush import (
    FlushOutput,
    FlushPlan,
    commit_flush,
    commit_flushed_deletes,
    plan_flush,
)
from airflow_provider_ducklake.lake.model import Table, WrittenDeleteFile
from airflow_provider_ducklake.lake.results import OperationResult, TableResult
from airflow_provider_ducklake.spark.operations._job import (
    Job,
    chosen_tables,
    discard,
    each_table,
    finished,
    first_error,
    parquet_options,
    told_by,
)
from airflow_provider_ducklake.spark.operations._partitions import usable_order

FLUSH_OPTIONS = ("max_seconds",)


def flush_inlined_data(job: Job) -> OperationResult:
    """Write inlined rows, every version of them, and inlined deletes to Parquet."""
    started = time.monotonic()
    with job.lake.view() as view:
        tables = chosen_tables(job, view, for_upkeep=True)
        before = view.head.snapshot_id
    left = 0

    def do(table: Table) -> list[TableResult]:
        nonlocal left
        if job.deadline.is_over and not job.dry_run:
            left += 1
            return []
        return [flush_table(job, table)]

    results = each_table(job, tables, do)
    counts = {"tables_left_for_the_next_run": left} if left else {}
    return finished(job, started, before, results, counts=counts)


def flush_table(job: Job, table: Table) -> TableResult:
    """Flush one table: its rows in one commit, its deletes of data files in another."""
    done = job.find_done(table.full_name)
    deletes_done = job.find_done(_deletes_of(table))
    if deletes_done is not None:
        return deletes_done if done is None else _together(done, deletes_done)
    if done is None:
        with job.lake.view() as view:
            plan = plan_flush(
                view.session, view.table(table.full_name), view.head.snapshot_id, view.data_path
            )
        for part in plan.rows:
            job.report(f"{table.full_name}: {len(part.rows)} inlined rows in {part.source.name}")
        if job.dry_run:
            return plan.result()
        done = _flush_rows(job, plan) if plan.rows else plan.result()
    return _flush_deletes(job, table, done)


def _flush_rows(job: Job, plan: FlushPlan) -> TableResult:
    with job.lake.view() as view:
        options = parquet_options(view.options, plan.table)
    with duckdb.connect(":memory:") as connection:
        tasks = [
            FlushTask(
                columns=part.table.columns,
                rows=part.rows,
                directory=part.table.data_path,
                options=options,
                partition=part.table.partition,
                sort_keys=usable_order(connection, part.table, part.table.columns),
            )
            for part in plan.rows
        ]
    name = plan.table.full_name
    written = job.runner.run(partial(_flush, job.settings), tasks, f"{job.operation} {name}: rows")
    outputs = [
        FlushOutput(part, files.files, files.delete_files)
        for part, files in zip(plan.rows, written, strict=True)
        if isinstance(files, FlushedFiles)
    ]
    error = first_error(written)
    try:
        if error is not None:
            raise error
        commit = commit_flush(job.lake, plan, outputs, job.info_for(name))
    except CommitStateUnknown:
        raise
    except LakeError:
        _discard(job, outputs)
        raise
    if commit.value is None:  # an earlier try, taken for dead, has committed after all
        _discard(job, outputs)
        return told_by(commit, name)
    return commit.value


def _flush_deletes(job: Job, table: Table, so_far: TableResult) -> TableResult:
    with job.lake.view() as view:
        plan = plan_flush(
            view.session, view.table(table.full_name), view.head.snapshot_id, view.data_path
        )
        encrypted = parquet_options(view.options, plan.table).encrypted
    if not plan.deletes:
        return replace(so_far, skipped=(*so_far.skipped, *plan.skipped))
    tasks = [
        FlushDeletesTask(part.data_file, part.deletes, plan.table.data_path, encrypted)
        for part in plan.deletes
    ]
    name = plan.table.full_name
    written = job.runner.run(
        partial(_flush_file_deletes, job.settings), tasks, f"{job.operation} {name}: deletes"
    )
    outputs = [
        (part, file)
        for part, file in zip(plan.deletes, written, strict=True)
        if isinstance(file, WrittenDeleteFile)
    ]
    error = first_error(written)
    try:
        if error is not None:
            raise error
        info = job.info_for(_deletes_of(table))
        commit = commit_flushed_deletes(job.lake, plan, outputs, info)
    except CommitStateUnknown:
        raise
    except LakeError:
        discard(job.lake, (file.path for _, file in outputs))
        raise
    done = commit.value
    if done is None:  # an earlier try, taken for dead, has committed after all
        discard(job.lake, (file.path for _, file in outputs))
        done = told_by(commit, name)
    return _together(replace(so_far, skipped=(*so_far.skipped, *plan.skipped)), done)


def _deletes_of(table: Table) -> str:
    """Return what stands in the key of the second commit."""
    return f"{table.full_name} deletes"


def _together(rows: TableResult, deletes: TableResult) -> TableResult:
    return replace(
        rows,
        rows=rows.rows + deletes.rows,
        files_out=rows.files_out + deletes.files_out,
        snapshot_id=deletes.snapshot_id,
    )


def _discard(job: Job, outputs: list[FlushOutput]) -> None:
    paths = [file.path for output in outputs for file in output.files]
    paths += [file.path for output in outputs for file in output.delete_files]
    discard(job.lake, paths)


def _flush(settings: KernelSettings, task: FlushTask) -> FlushedFiles:
    return flush(task, settings)


def _flush_file_deletes(settings: KernelSettings, task: FlushDeletesTask) -> WrittenDeleteFile:
    return flush_deletes(task, settings)
