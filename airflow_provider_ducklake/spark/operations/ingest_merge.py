"""ingest with mode=merge: by key, rows of a source replace or delete those of a table."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from airflow_provider_ducklake.kernels.pruning import parse_condition
from airflow_provider_ducklake.kernels.tasks import StageTask
from airflow_provider_ducklake.kernels.upsert_source import incoming_columns, stage
from airflow_provider_ducklake.lake.columns import Column, find_column
from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError
from airflow_provider_ducklake.lake.lake import LakeView
from airflow_provider_ducklake.lake.model import Table, WrittenFile
from airflow_provider_ducklake.lake.options import unknown_name
from airflow_provider_ducklake.lake.results import TableResult
from airflow_provider_ducklake.lake.upsert import plan_upsert
from airflow_provider_ducklake.spark.operations._job import Job
from airflow_provider_ducklake.spark.operations._write_plan import (
    check_match,
    one_table,
    planned_write,
    target_table,
)
from airflow_provider_ducklake.spark.operations.upsert import Upsert, upsert
from airflow_provider_ducklake.spark.schema import ColumnMatch, match_columns

if TYPE_CHECKING:
    import pyarrow as pa

# Two texts of one value of these may differ, or two values be equal that are not the same.
_NO_KEYS: Final = frozenset({"json", "variant", "geometry", "interval"})

Stage = Callable[[ColumnMatch, StageTask], Sequence[WrittenFile]]


@dataclass(frozen=True, slots=True)
class MergeRule:
    """What a merge goes by.

    Attributes:
        keys: Names of the key columns.
        delete_when: Condition in DuckDB's SQL over the source's columns, or None.
        aside: Source columns that the table lacks and only the condition needs.
    """

    keys: tuple[str, ...]
    delete_when: str | None = None
    aside: tuple[str, ...] = ()


def merge_rule(
    keys: str | None, delete_when: str | None, given: Mapping[str, str], known: Iterable[Column]
) -> MergeRule:
    """Return what a merge goes by, checked against the source.

    Args:
        keys: Names separated by commas; one with a comma in it is quoted.
        delete_when: A condition, or None.
        given: DuckDB type of each source column, by name.
        known: Top-level columns of the table.

    Raises:
        ConfigurationError: There is no key, or the condition does not fit the source.
    """
    names = tuple(name.strip() for name in next(csv.reader([keys or ""], skipinitialspace=True)))
    if not any(names) or not all(names):
        raise ConfigurationError(
            "mode=merge needs the columns that tell which row is which: give merge_keys, e.g. id"
        )
    if delete_when is None:
        return MergeRule(names)
    try:
        used = parse_condition(delete_when, given).columns
    except ConfigurationError as error:
        raise ConfigurationError(f"option delete_when of ingest: {error}") from None
    table = list(known)
    aside = tuple(n for n in given if n.lower() in used and find_column(table, n) is None)
    return MergeRule(names, delete_when, aside)


def key_columns(rule: MergeRule, columns: Sequence[Column], table: str) -> tuple[Column, ...]:
    """Return the key columns of a table.

    Raises:
        ConfigurationError: There is no column of a name, or it cannot be a key.
    """
    found: list[Column] = []
    for name in rule.keys:
        column = find_column(columns, name)
        if column is None:
            raise unknown_name(f"merge key of {table}", name, (c.name for c in columns))
        if column.is_nested or column.type in _NO_KEYS:
            raise ConfigurationError(
                f"merge key {column.name!r} of {table} is {column.sql_type}: whether two such "
                "values are the same is not plain; choose columns of other types"
            )
        if column in found:
            raise ConfigurationError(f"merge_keys names {name!r} twice")
        found.append(column)
    return tuple(found)


def merge(job: Job, columns: Sequence[Column], stage_rows: Stage) -> TableResult:
    """Merge rows into one table, or in a dry run count what would change.

    Args:
        job: Names exactly one table; see `INGEST_OPTIONS`.
        columns: What the rows have, without ids.
        stage_rows: Keeps the rows in files.

    Raises:
        BadInput: Columns do not match, a value does not fit, a key is NULL or stands there twice.
        CommitConflict: Somebody wrote to the table meanwhile; nothing was changed.
    """
    name = one_table(job)
    with job.lake.view() as view:
        work, match = _plan(job, view, name, columns)
    return upsert(work, lambda task: stage_rows(match, task))


def merge_batches(job: Job, batches: Iterable[pa.RecordBatch]) -> TableResult:
    """Merge Arrow batches into one table, reading them in this process.

    Args:
        job: Names exactly one table; see `INGEST_OPTIONS`.
        batches: All of one schema.

    Raises:
        BadInput, CommitConflict: As for `merge`.
    """
    name = one_table(job)
    done = job.find_done(name)
    iterator = iter(batches)
    first = next(iterator, None)
    if done is not None or first is None:
        return done or TableResult(name)
    rows = chain([first], iterator)
    columns = incoming_columns(first.schema)
    return merge(job, columns, lambda _, task: stage(rows, task, job.settings))


def _plan(
    job: Job, view: LakeView, name: str, columns: Sequence[Column]
) -> tuple[Upsert, ColumnMatch]:
    table = target_table(job, view, name, columns)
    given = {column.name: column.sql_type for column in columns}
    rule = merge_rule(
        job.options.text("merge_keys"), job.options.text("delete_when"), given, table.columns
    )
    match = match_columns([c for c in columns if c.name not in rule.aside], table)
    _refuse_missing(table, match)
    check_match(job, table, match)
    keys = key_columns(rule, table.columns, table.full_name)
    planned = planned_write(view, table, match, "merge")
    work = Upsert(
        lake=job.lake,
        runner=job.runner,
        settings=job.settings,
        plan=plan_upsert(view, table, keys),
        rows=planned.task,
        keys=keys,
        delete_when=rule.delete_when,
        aside=rule.aside,
        new_columns=planned.new_columns,
        dry_run=job.dry_run,
        info=job.info_for(name),
        description=f"{job.operation} {table.full_name}",
    )
    return work, match


def _refuse_missing(table: Table, match: ColumnMatch) -> None:
    if match.missing:
        names = ", ".join(repr(column.name) for column in match.missing)
        raise BadInput(
            f"the source lacks columns of {table.full_name}: {names}; a merge replaces whole rows, "
            "which would lose these values: add the columns in --sql"
        )
