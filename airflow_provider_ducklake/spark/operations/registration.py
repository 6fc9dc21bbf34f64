"""add_data_files: Parquet files somebody else wrote become data files of a table, as they are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_ducklake.kernels.tasks import RegisterTask
from airflow_provider_ducklake.lake.append import append_files
from airflow_provider_ducklake.lake.commit import SnapshotWriter
from airflow_provider_ducklake.lake.errors import (
    BadInput,
    CommitConflict,
    ConfigurationError,
    LakeError,
)
from airflow_provider_ducklake.lake.model import Table, WrittenFile
from airflow_provider_ducklake.lake.registration import Registration, plan_registration
from airflow_provider_ducklake.lake.results import OperationResult, Skipped, TableResult
from airflow_provider_ducklake.spark.operations._job import Job, finished, told_by
from airflow_provider_ducklake.spark.operations._source_files import (
    find_files,
    inspect_in_parallel,
)

REGISTER_OPTIONS = ("allow_missing", "ignore_extra_columns", "hive_partitioning", "on_duplicate")


def add_data_files(job: Job) -> OperationResult:
    """Register Parquet files in one table: all are checked first, then all commit at once."""
    started = time.monotonic()
    if len(job.tables) != 1:
        raise ConfigurationError("add_data_files registers in exactly one table: give --table")
    with job.lake.view() as view:
        table = view.table(job.tables[0])
        before = view.head.snapshot_id
    done = job.find_done(table.full_name)
    if done is not None:
        return finished(job, started, before, [done], already_done=True)
    paths = find_files(job)
    with job.lake.view() as view:
        plan = plan_registration(view.session, table, paths, view.data_path)
        live = len(view.live_files(table))
    _report_duplicates(job, plan)
    files = _inspect(job, table, plan.new)
    with_rows = [file for file in files if file.record_count]
    skipped = _skipped(len(plan.already), len(files) - len(with_rows))
    if job.dry_run or not with_rows:
        result = TableResult(
            table=table.full_name,
            files_before=live,
            files_after=live + len(with_rows),
            files_out=len(with_rows),
            bytes_out=sum(file.file_size_bytes for file in with_rows),
            rows=sum(file.record_count for file in with_rows),
            skipped=skipped,
        )
        return finished(job, started, before, [result])
    result = _commit(job, table, with_rows, skipped)
    return finished(job, started, before, [result])


def _report_duplicates(job: Job, plan: Registration) -> None:
    strict = job.options.choice("on_duplicate", ("skip", "error"), "skip") == "error"
    for path in plan.already:
        job.report(f"registered already: {path}")
    if plan.already and strict:
        raise BadInput(
            f"{len(plan.already)} files are registered already, the first is {plan.already[0]} "
            "(on_duplicate=error)"
        )


def _inspect(job: Job, table: Table, paths: Sequence[str]) -> list[WrittenFile]:
    tasks = [
        RegisterTask(
            path=path,
            table_name=table.full_name,
            columns=table.columns,
            partition=table.partition,
            allow_missing=bool(job.options.flag("allow_missing")),
            ignore_extra_columns=bool(job.options.flag("ignore_extra_columns")),
            hive_partitioning=job.options.flag("hive_partitioning", None),
        )
        for path in paths
    ]
    files, refused = [], []
    for answer in inspect_in_parallel(job, tasks):
        if isinstance(answer, LakeError):
            job.report(str(answer))
            refused.append(answer)
        else:
            files.append(answer)
    if refused:
        more = f" (and {len(refused) - 1} more files, see the log)" if len(refused) > 1 else ""
        raise type(refused[0])(f"{refused[0]}{more}; nothing was registered")
    return files


def _commit(
    job: Job, table: Table, files: Sequence[WrittenFile], skipped: tuple[Skipped, ...]
) -> TableResult:
    data_path = job.lake.data_path

    def still_new(writer: SnapshotWriter) -> None:
        paths = [file.path for file in files]
        now = plan_registration(writer.session, table, paths, data_path)
        if now.already:
            raise CommitConflict(
                f"{now.already[0]} was registered by another job meanwhile; run it again"
            )

    info = job.info_for(table.full_name)
    commit = append_files(job.lake, table, files, validate=still_new, info=info)
    result = commit.value or told_by(commit, table.full_name)
    return replace(result, skipped=skipped)


def _skipped(already: int, empty: int) -> tuple[Skipped, ...]:
    reasons = {"registered already": already, "has no rows": empty}
    return tuple(Skipped(reason, count) for reason, count in reasons.items() if count)
