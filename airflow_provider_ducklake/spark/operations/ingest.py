"""ingest: the rows of any Spark source, or of Arrow batches, become data files of a table."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.kernels.append import append
from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.tasks import AppendTask
from airflow_provider_ducklake.lake.append import Overwrite, append_files
from airflow_provider_ducklake.lake.columns import Column, number_columns
from airflow_provider_ducklake.lake.commit import CommitInfo, SnapshotWriter
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.errors import (
    BadInput,
    CommitConflict,
    CommitStateUnknown,
    ConfigurationError,
    LakeError,
    NotFound,
)
from airflow_provider_ducklake.lake.files import read_live_files
from airflow_provider_ducklake.lake.identifiers import qualified_name
from airflow_provider_ducklake.lake.inlined import count_live_rows
from airflow_provider_ducklake.lake.lake import Lake, LakeView
from airflow_provider_ducklake.lake.model import Table, WrittenFile
from airflow_provider_ducklake.lake.options import parse_flag
from airflow_provider_ducklake.lake.reader import split_name
from airflow_provider_ducklake.lake.results import OperationResult, TableResult
from airflow_provider_ducklake.lake.table_specs import parse_partition_spec, parse_sort_spec
from airflow_provider_ducklake.lake.tables import is_planned, plan_table
from airflow_provider_ducklake.spark.operations._file_copy import copy_files
from airflow_provider_ducklake.spark.operations._job import (
    Job,
    discard,
    finished,
    parquet_options,
    told_by,
)
from airflow_provider_ducklake.spark.operations.flush import flush_table
from airflow_provider_ducklake.spark.schema import ColumnMatch, columns_of, match_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

log = logging.getLogger("airflow_provider_ducklake")
MODES = ("append", "overwrite", "overwrite_partitions", "error_if_exists")
_REPLACING = ("overwrite", "overwrite_partitions")
INGEST_OPTIONS = (
    "mode",
    "create_table",
    "allow_missing",
    "schema_evolution",
    "partition_by",
    "sorted_by",
    "reader.",
)


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """Where rows go, and how.

    Attributes:
        table: As it is, or as it will be created.
        grown: As its files will be written: with columns that are added in the same commit.
        match: How the columns of the rows meet those of the table.
        task: The work order of each writing task.
        mode: One of `MODES`.
        base: The snapshot it was planned on, whose rows an overwrite replaces.
    """

    table: Table
    grown: Table
    match: ColumnMatch
    task: AppendTask
    mode: str
    base: int

    @property
    def new_columns(self) -> tuple[Column, ...]:
        """The columns that are added."""
        return self.grown.columns[len(self.table.columns) :]


def ingest(job: Job, data: DataFrame) -> OperationResult:
    """Write the rows of a DataFrame to one table and commit them as one snapshot.

    Args:
        job: Names exactly one table; see `INGEST_OPTIONS`.
        data: Any DataFrame; its columns are matched with the table's by name.

    Raises:
        BadInput: Columns do not match, or a value does not fit; nothing is committed then.
    """
    started = time.monotonic()
    name = _one_table(job)
    before = job.lake.head().snapshot_id
    done = job.find_done(name)
    if done is not None:
        return finished(job, started, before, [done], already_done=True)
    try:
        result = _ingest_once(job, name, data)
    except CommitConflict as error:
        if job.options.choice("mode", MODES, "append") in _REPLACING:
            raise  # once more, it would take the rows with it that somebody has just committed
        # Somebody else created the table, or altered it; it is as good a target now.
        job.report(f"{name}: {error}")
        result = _ingest_once(job, name, data)
    return finished(job, started, before, [result])


def _ingest_once(job: Job, name: str, data: DataFrame) -> TableResult:
    from airflow_provider_ducklake.spark.dataframes import write_files

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
        mode: One of `MODES`.
        settings: For the kernel; None takes the lake's storage and defaults.
        info: For the commit.

    Raises:
        BadInput: A column is missing, or a value does not fit.
        CommitConflict: The table changed meanwhile.
    """
    if mode not in MODES:
        raise ConfigurationError(f"mode {mode!r}: it is one of {', '.join(MODES)}")
    with lake.view() as view:
        table = view.table(table_name)
        everything = ColumnMatch({c.column_id: c.name for c in table.columns}, (), ())
        planned = _planned(view, table, everything, mode)
    files = append(batches, planned.task, settings or KernelSettings(lake.storage))
    return _commit(lake, planned, files, info)


def _one_table(job: Job) -> str:
    if len(job.tables) != 1:
        raise ConfigurationError("ingest writes to exactly one table: give --table schema.table")
    return qualified_name(*split_name(job.tables[0]))


def _table(job: Job, view: LakeView, name: str, columns: Sequence[Column]) -> Table:
    """Return the table to write to: the one there is, or the one to be created if that is asked."""
    partition_by = job.options.text("partition_by") or ""
    sorted_by = job.options.text("sorted_by") or ""
    try:
        table = view.table(name)
    except NotFound:
        if not job.options.flag("create_table"):
            raise
        return plan_table(view, name, columns, partition_by=partition_by, sorted_by=sorted_by)
    fields = parse_partition_spec(partition_by, table.columns)
    if fields and fields != (table.partition.fields if table.partition else ()):
        log.warning("%s has another partition spec than %s, and keeps it", name, partition_by)
    if sorted_by and parse_sort_spec(sorted_by, table.columns) != table.sort_keys:
        log.warning("%s has another sort order than %s, and keeps it", name, sorted_by)
    return table


def _check_match(job: Job, table: Table, match: ColumnMatch) -> None:
    evolution = job.options.choice("schema_evolution", ("none", "add_columns"), "none")
    if match.extra and evolution == "none":
        names = ", ".join(repr(column.name) for column in match.extra)
        raise BadInput(
            f"the source has columns that {table.full_name} lacks: {names}; leave them out in "
            "--sql, or give schema_evolution=add_columns"
        )
    if match.missing and not job.options.flag("allow_missing"):
        names = ", ".join(repr(column.name) for column in match.missing)
        raise BadInput(
            f"the source lacks columns of {table.full_name}: {names}; add them in --sql, or give "
            "allow_missing=true to fill in their defaults"
        )
    for column in match.missing:
        if column.default_value_type == "expression" and column.default_value is not None:
            raise BadInput(
                f"column {column.name!r} of {table.full_name} defaults to an expression only "
                f"DuckDB evaluates ({column.default_value}): compute it in --sql"
            )


def _planned(view: LakeView, table: Table, match: ColumnMatch, mode: str) -> PlannedWrite:
    if mode == "error_if_exists":
        _refuse_rows(view.session, table, view.head.snapshot_id)
    if mode == "overwrite_partitions" and table.partition is None:
        raise ConfigurationError(
            f"{table.full_name} is not partitioned: use mode=overwrite to replace all of it"
        )
    if mode == "overwrite_partitions" and not is_planned(table):
        _refuse_other_specs(view, table)
    grown = table
    if match.extra:
        newest = view.session.value(
            "SELECT max(column_id) FROM {ducklake_column} WHERE table_id = ?", (table.table_id,)
        )
        added = number_columns(match.extra, int(newest) + 1)
        grown = replace(table, columns=(*table.columns, *added))
    sorts = parse_flag(view.option("sort_on_insert", table) or "true", "sort_on_insert")
    task = AppendTask(
        columns=grown.columns,
        directory=table.data_path,
        options=parquet_options(view.options, table),
        partition=table.partition,
        sort_keys=table.sort_keys if sorts else (),
    )
    # A table that is created has nothing to replace.
    mode = "append" if is_planned(table) else mode
    return PlannedWrite(table, grown, match, task, mode, view.head.snapshot_id)


def _flush_before_overwrite(job: Job, planned: PlannedWrite) -> bool:
    """Give inlined rows their partition: only files have one that can be replaced.

    Returns:
        True when there were any.
    """
    table = planned.table
    if planned.mode != "overwrite_partitions" or job.dry_run:
        return False
    with job.lake.view() as view:
        if not count_live_rows(view.session, table.table_id):
            return False
    key = f"{job.info.key}/flush" if job.info.key else None
    flush_table(replace(job, info=replace(job.info, key=key)), table)
    return True


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


def _refuse_rows(session: Session, table: Table, snapshot_id: int) -> None:
    if read_live_files(session, table, snapshot_id) or count_live_rows(session, table.table_id):
        raise ConfigurationError(f"{table.full_name} has rows already (mode=error_if_exists)")


def _require_empty(table: Table) -> Callable[[SnapshotWriter], None]:
    """Look again in the commit: rows may have come while ours were written."""
    return lambda writer: _refuse_rows(writer.session, table, writer.head.snapshot_id)


def _refuse_other_specs(view: LakeView, table: Table) -> None:
    spec = table.partition.partition_id if table.partition else None
    others = [file for file in view.live_files(table) if file.partition_id != spec]
    if others:
        raise ConfigurationError(
            f"{len(others)} files of {table.full_name} were written under another partition spec, "
            "so which partition their rows are in is not known; use mode=overwrite"
        )


def plan_write(job: Job, columns: Sequence[Column]) -> PlannedWrite:
    """Find out where rows with some columns go, under the options of `ingest`.

    Inlined rows of a table whose partitions are to be replaced become files first.

    Args:
        job: Names exactly one table.
        columns: What the rows have, without ids.

    Raises:
        BadInput: Columns do not match.
        NotFound: There is no such table, and none is to be created.
    """
    planned = _plan(job, columns)
    if _flush_before_overwrite(job, planned):
        planned = _plan(job, columns)
    return planned


def _plan(job: Job, columns: Sequence[Column]) -> PlannedWrite:
    with job.lake.view() as view:
        table = _table(job, view, _one_table(job), columns)
        match = match_columns(columns, table)
        _check_match(job, table, match)
        return _planned(view, table, match, job.options.choice("mode", MODES, "append"))


def commit_write(job: Job, planned: PlannedWrite, files: Sequence[WrittenFile]) -> TableResult:
    """Commit files written for a planned write as one snapshot, once under the job's key.

    Raises:
        CommitConflict: The table changed meanwhile; the files are removed.
    """
    name = _one_table(job)
    done = job.find_done(name)
    if done is not None:
        discard(job.lake, (file.path for file in files))
        return done
    return _commit(job.lake, planned, files, job.info_for(name))
