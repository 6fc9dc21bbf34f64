"""Planning where rows that are written go: the table, its columns, the files' layout."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_provider_ducklake.kernels.tasks import AppendTask
from airflow_provider_ducklake.lake.columns import Column, number_columns
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError, NotFound
from airflow_provider_ducklake.lake.files import read_live_files
from airflow_provider_ducklake.lake.identifiers import qualified_name, split_name
from airflow_provider_ducklake.lake.inlined import count_live_rows
from airflow_provider_ducklake.lake.lake import LakeView
from airflow_provider_ducklake.lake.model import Table
from airflow_provider_ducklake.lake.options import parse_flag
from airflow_provider_ducklake.lake.table_specs import parse_partition_spec, parse_sort_spec
from airflow_provider_ducklake.lake.tables import is_planned, plan_table
from airflow_provider_ducklake.spark.operations._job import Job, parquet_options
from airflow_provider_ducklake.spark.operations.flush import flush_table
from airflow_provider_ducklake.spark.schema import ColumnMatch, match_columns

log = logging.getLogger("airflow_provider_ducklake")
MODES = ("append", "overwrite", "overwrite_partitions", "error_if_exists", "merge")
REPLACING = ("overwrite", "overwrite_partitions")
INGEST_OPTIONS = (
    "mode",
    "merge_keys",
    "delete_when",
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
    for option in ("merge_keys", "delete_when"):
        if job.options.text(option):
            raise ConfigurationError(f"option {option} of ingest is for mode=merge alone")
    with job.lake.view() as view:
        table = target_table(job, view, one_table(job), columns)
        match = match_columns(columns, table)
        check_match(job, table, match)
        return planned_write(view, table, match, job.options.choice("mode", MODES, "append"))


def one_table(job: Job) -> str:
    if len(job.tables) != 1:
        raise ConfigurationError("ingest writes to exactly one table: give --table schema.table")
    return qualified_name(*split_name(job.tables[0]))


def target_table(job: Job, view: LakeView, name: str, columns: Sequence[Column]) -> Table:
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


def check_match(job: Job, table: Table, match: ColumnMatch) -> None:
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


def planned_write(view: LakeView, table: Table, match: ColumnMatch, mode: str) -> PlannedWrite:
    if mode == "error_if_exists":
        refuse_rows(view.session, table, view.head.snapshot_id)
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


def refuse_rows(session: Session, table: Table, snapshot_id: int) -> None:
    if read_live_files(session, table, snapshot_id) or count_live_rows(session, table.table_id):
        raise ConfigurationError(f"{table.full_name} has rows already (mode=error_if_exists)")
