"""create_lake, create_table and info: what a person wants before and after the work."""

from __future__ import annotations

import time

from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.errors import (
    ConfigurationError,
    NotFound,
    UnsupportedCatalog,
)
from airflow_provider_ducklake.lake.inlined import count_live_rows
from airflow_provider_ducklake.lake.instants import format_instant
from airflow_provider_ducklake.lake.lake import Lake, LakeView
from airflow_provider_ducklake.lake.model import Table
from airflow_provider_ducklake.lake.reader import read_chosen_snapshots
from airflow_provider_ducklake.lake.results import OperationResult, TableResult
from airflow_provider_ducklake.lake.tables import (
    commit_table,
    exists_already,
    has_new_schema,
    plan_table,
)
from airflow_provider_ducklake.spark.operations._job import Job, chosen_tables, finished

CREATE_LAKE_OPTIONS = ("encrypted", "if_not_exists")
CREATE_TABLE_OPTIONS = ("columns", "partition_by", "sorted_by", "if_not_exists")
_LAKE = "the lake"  # what stands in the commit key for no table
INFO_OPTIONS: tuple[str, ...] = ()


def create_new_lake(job: Job) -> OperationResult:
    """Create the metadata tables of a new lake."""
    started = time.monotonic()
    location, storage = job.lake.location, job.settings.storage
    may_exist = bool(job.options.flag("if_not_exists"))
    # Looked up first, as tables are.
    if _is_made_by(job):
        messages = (_created(job),)
        return finished(job, started, 0, messages=messages, already_done=True)
    is_new = Lake.plan_creation(location, storage=storage, if_not_exists=may_exist)
    if not is_new:
        before = job.lake.head().snapshot_id
        return finished(job, started, before, messages=(f"{job.lake} exists already",))
    if job.dry_run:
        return finished(job, started, 0, messages=(f"would create {job.lake}",))
    encrypted = bool(job.options.flag("encrypted"))
    Lake.create(
        location, storage=storage, encrypted=encrypted, if_not_exists=may_exist, info=_info(job)
    )
    return finished(job, started, job.lake.head().snapshot_id, messages=(_created(job),))


def _created(job: Job) -> str:
    return f"created, with its data in {job.lake.data_path}"


def _info(job: Job) -> CommitInfo:
    """Return what is kept beside the first snapshot: with a key the words of this job, else none.

    A lake that nobody will look for is as any other client makes it.
    """
    return job.info_for(_LAKE) if job.info.key else CommitInfo()


def _is_made_by(job: Job) -> bool:
    """Tell whether an earlier try of this job has created the lake."""
    key = _info(job).key
    if key is None:
        return False
    try:
        return job.lake.find_job(key) is not None
    except (NotFound, UnsupportedCatalog):
        return False  # there is no lake


def create_new_table(job: Job) -> OperationResult:
    """Create a table from a column list, with partition and sort order if asked."""
    started = time.monotonic()
    if len(job.tables) != 1:
        raise ConfigurationError("create_table creates exactly one table: give --table")
    definition = job.options.text("columns")
    if definition is None:
        raise ConfigurationError("create_table needs --option columns='id int64, name varchar'")
    columns = parse_columns(definition)
    name = job.tables[0]
    # Looked up first: the table that an earlier try of this job made is no reason to refuse.
    done = job.find_done(name)
    if done is not None:
        before = job.lake.head().snapshot_id
        return finished(job, started, before, [done], already_done=True)
    partition_by = job.options.text("partition_by") or ""
    sorted_by = job.options.text("sorted_by") or ""
    may_exist = bool(job.options.flag("if_not_exists"))
    with job.lake.view() as view:
        before = view.head.snapshot_id
        planned = plan_table(view, name, columns, partition_by=partition_by, sorted_by=sorted_by)
        exists = exists_already(view, planned, may=may_exist)
    if exists:
        return finished(job, started, before, messages=(f"{name} exists already",))
    shown = ", ".join(f"{column.name} {column.sql_type}" for column in columns)
    verb = "would create" if job.dry_run else "created"
    messages = [f"{verb} {planned.full_name} ({shown})"]
    if has_new_schema(planned):
        messages.insert(0, f"{verb} schema {planned.schema.name}")
    if job.dry_run:
        return finished(job, started, before, messages=messages)
    commit = commit_table(job.lake, planned, base=before, info=job.info_for(name))
    result = TableResult(name, snapshot_id=commit.snapshot_id)
    return finished(
        job, started, before, [result], messages=messages, already_done=commit.already_done
    )


def info(job: Job) -> OperationResult:
    """Count files, bytes, deletes, inlined rows, snapshots and scheduled files."""
    started = time.monotonic()
    with job.lake.view() as view:
        tables = [_describe(view, table) for table in chosen_tables(job, view, for_upkeep=False)]
        scheduled = view.session.value(
            "SELECT count(*) FROM {ducklake_files_scheduled_for_deletion}"
        )
        ((number, *ends),) = view.session.rows(
            "SELECT count(*), min(snapshot_id), max(snapshot_id) FROM {ducklake_snapshot}"
        )
        snapshots = read_chosen_snapshots(view.session, ends)
        counts = {
            "snapshots": int(number),
            "tables": len(tables),
            "files_scheduled_for_deletion": int(scheduled),
        }
        first, last = snapshots[0], snapshots[-1]
        kept = (
            f"snapshots {first.snapshot_id} of {format_instant(first.time)} "
            f"to {last.snapshot_id} of {format_instant(last.time)}"
        )
        return finished(
            job,
            started,
            view.head.snapshot_id,
            tables,
            counts=counts,
            messages=(f"data path {view.data_path}", kept),
        )


def _describe(view: LakeView, table: Table) -> TableResult:
    files = view.live_files(table)
    stored = sum(file.record_count for file in files)
    deleted = sum(
        sum(d.delete_count for d in file.delete_files) + len(file.inlined_deletes) for file in files
    )
    inlined = count_live_rows(view.session, table.table_id)
    size = sum(file.file_size_bytes for file in files)
    return TableResult(
        table.full_name,
        files_before=len(files),
        files_after=len(files),
        bytes_in=size,
        bytes_out=size,
        rows=stored - deleted + inlined,
        deleted_rows=deleted,
        inlined_rows=inlined,
        delete_ratio=round(deleted / stored, 6) if stored else 0.0,
    )
