"""ingest: the rows of any Spark source, or of Arrow batches, become data files of a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ducklake.kernels.append import append
from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.lake.append import Overwrite, append_files
from airflow_provider_ducklake.lake.commit import CommitInfo, SnapshotWriter
from airflow_provider_ducklake.lake.errors import (
    CommitConflict,
    CommitStateUnknown,
    ConfigurationError,
    LakeError,
)
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.model import Table, WrittenFile
from airflow_provider_ducklake.lake.results import OperationResult, TableResult
from airflow_provider_ducklake.lake.tables import is_planned
from airflow_provider_ducklake.spark.operations._file_copy import copy_files
from airflow_provider_ducklake.spark.operations._job import (
    REPLANS,
    Job,
    discard,
    finished,
    told_by,
)
from airflow_provider_ducklake.spark.operations._write_plan import (
    MODES,
    REPLACING,
    PlannedWrite,
    one_table,
    plan_write,
    planned_write,
    refuse_rows,
)
from airflow_provider_ducklake.spark.operations.ingest_merge import merge
from airflow_provider_ducklake.spark.schema import ColumnMatch, columns_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def ingest(job: Job, data: DataFrame) -> OperationResult:
    """Write the rows of a DataFrame to one table and commit them as one snapshot.

    Args:
        job: Names exactly one table; see `INGEST_OPTIONS`.
        data: Any DataFrame; its columns are matched with the table's by name.

    Raises:
        BadInput: Columns do not match, or a value does not fit; nothing is committed then.
    """
    started = time.monotonic()
    name = one_table(job)
    before = job.lake.head().snapshot_id
    done = job.find_done(name)
    if done is not None:
        return finished(job, started, before, [done], already_done=True)
    mode = job.options.choice("mode", MODES, "append")
    # An overwrite that is done once more takes the rows with it that somebody has just committed.
    # For the others a table that was created or altered meanwhile is as good a target, and a merge
    # finds the rows that came.
    tries = 1 if mode in REPLACING else REPLANS
    for attempt in range(1, tries + 1):
        try:
            result = _ingest_once(job, name, data, mode)
            break
        except CommitConflict as error:
            if attempt == tries:
                raise
            job.report(f"{name}: {error}")
    return finished(job, started, before, [result])


def _ingest_once(job: Job, name: str, data: DataFrame, mode: str) -> TableResult:
    from airflow_provider_ducklake.spark.dataframes import write_files

    if mode == "merge":
        return merge(
            job,
            columns_of(data.schema),
            lambda match, task: write_files(data, match, task, job.settings, job.operation),
        )
    planned = plan_write(job, columns_of(data.schema))
    if job.dry_run:
        return _would_do(job, planned, data.count())
    files = None
    if job.as_they_are and not planned.match.missing:
        files = copy_files(job, data, planned.task, planned.table.full_name)
    if files is None:
        files = write_files(data, planned.match, planned.task, job.settings, job.operation)
    return _commit(job.lake, planned, files, job.info_for(name))


def ingest_batches(
    lake: Lake,
    table_name: str,
    batches: Iterable[pa.RecordBatch],
    *,
    mode: str = "append",
    settings: KernelSettings | None = None,
    info: CommitInfo | None = None,
) -> TableResult:
    """Write Arrow batches to a table in this process and commit them as one snapshot.

    Args:
        lake: The lake.
        table_name: `schema.table`.
        batches: Batches with every column of the table, by name.
        mode: One of `MODES` but merge, for which there is `merge_batches`.
        settings: For the kernel; None takes the lake's storage and defaults.
        info: For the commit.

    Raises:
        BadInput: A column is missing, or a value does not fit.
        CommitConflict: The table changed meanwhile.
    """
    if mode not in MODES or mode == "merge":
        modes = ", ".join(known for known in MODES if known != "merge")
        raise ConfigurationError(f"mode {mode!r}: it is one of {modes}")
    with lake.view() as view:
        table = view.table(table_name)
        everything = ColumnMatch({c.column_id: c.name for c in table.columns}, (), ())
        planned = planned_write(view, table, everything, mode)
    files = append(batches, planned.task, settings or KernelSettings(lake.storage))
    return _commit(lake, planned, files, info)


def _would_do(job: Job, planned: PlannedWrite, rows: int) -> TableResult:
    """Return what a dry run tells; which partitions are replaced, only the written files know."""
    table = planned.table
    with job.lake.view() as view:
        live = [] if is_planned(table) else view.live_files(table)
    going = live if planned.mode == "overwrite" else []
    return TableResult(
        table.full_name,
        files_before=len(live),
        files_after=len(live) - len(going),
        files_in=len(going),
        bytes_in=sum(file.file_size_bytes for file in going),
        rows=rows,
    )


def _commit(
    lake: Lake, planned: PlannedWrite, files: Sequence[WrittenFile], info: CommitInfo | None
) -> TableResult:
    overwrite = None
    if planned.mode == "overwrite":
        overwrite = Overwrite()
    elif planned.mode == "overwrite_partitions":
        overwrite = Overwrite(frozenset(file.partition_values for file in files))
    rows = sum(file.record_count for file in files)
    changes_nothing = (
        overwrite is None and not planned.new_columns and not is_planned(planned.table)
    )
    if rows == 0 and changes_nothing:
        return TableResult(planned.table.full_name)
    try:
        commit = append_files(
            lake,
            planned.table,
            files,
            base=None if overwrite is None else planned.base,
            new_columns=planned.new_columns,
            overwrite=overwrite,
            validate=_require_empty(planned.table) if planned.mode == "error_if_exists" else None,
            info=info,
        )
    except CommitStateUnknown:
        raise
    except LakeError:
        discard(lake, (file.path for file in files))
        raise
    if commit.value is None:  # an earlier try has committed
        discard(lake, (file.path for file in files))
        return told_by(commit, planned.table.full_name)
    return commit.value


def _require_empty(table: Table) -> Callable[[SnapshotWriter], None]:
    """Look again in the commit: rows may have come while ours were written."""
    return lambda writer: refuse_rows(writer.session, table, writer.head.snapshot_id)


def commit_write(job: Job, planned: PlannedWrite, files: Sequence[WrittenFile]) -> TableResult:
    """Commit files written for a planned write as one snapshot, once under the job's key.

    Raises:
        CommitConflict: The table changed meanwhile; the files are removed.
    """
    name = one_table(job)
    done = job.find_done(name)
    if done is not None:
        discard(job.lake, (file.path for file in files))
        return done
    return _commit(job.lake, planned, files, job.info_for(name))
