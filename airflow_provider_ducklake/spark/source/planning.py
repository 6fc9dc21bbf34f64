"""Planning a read in one short transaction: snapshots, columns, files, and shares for the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import LongType, StringType, StructField, StructType

from airflow_provider_ducklake.kernels.pruning import Condition, parse_condition, prune
from airflow_provider_ducklake.kernels.tasks import ChangedFile, ChangesTask, RowShape, ScanTask
from airflow_provider_ducklake.lake.columns import Column, find_column
from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError
from airflow_provider_ducklake.lake.files import read_live_files
from airflow_provider_ducklake.lake.lake import LakeView
from airflow_provider_ducklake.lake.model import DataFile, Table
from airflow_provider_ducklake.lake.reader import read_partition_spec, read_snapshot
from airflow_provider_ducklake.lake.scan import (
    OPEN_COST,
    ChangedFiles,
    changed_files,
    changed_rows,
    shares,
    snapshot_at,
    table_at,
    visible_rows,
)
from airflow_provider_ducklake.lake.table_stats import read_file_statistics
from airflow_provider_ducklake.spark.source.filters import filter_sql
from airflow_provider_ducklake.spark.source.options import ReadOptions
from airflow_provider_ducklake.spark.source.schema import (
    Field,
    chosen_columns,
    fields_of,
    require_same,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

ROW_ID: Final = "rowid"
SNAPSHOT_ID: Final = "snapshot_id"
CHANGE_TYPE: Final = "change_type"


@dataclass(frozen=True, slots=True)
class Span:
    """The snapshots a read is about: one and the same for all but a change feed."""

    first: int
    last: int


def resolve(view: LakeView, options: ReadOptions) -> Span:
    """Return the snapshots a read is about.

    Raises:
        NotFound: One is not kept, or none was there at the time.
    """
    head = view.head.snapshot_id
    if options.changes is not None:
        first, last = options.changes
        span = Span(first, head if last is None else last)
        if span.last < span.first:
            raise ConfigurationError(
                f"changes_from {first} lies after the newest snapshot, which is {head}"
            )
    elif options.at is not None:
        number = snapshot_at(view.session, options.at)
        span = Span(number, number)
    else:
        number = head if options.snapshot is None else options.snapshot
        span = Span(number, number)
    for number in {span.first, span.last}:
        read_snapshot(view.session, number)
    return span


def offered(table: Table, options: ReadOptions) -> tuple[tuple[Field, ...], StructType]:
    """Return the table's columns that are read, and the schema Spark is offered.

    Raises:
        BadInput: Spark cannot hold a column exactly.
        ConfigurationError: A column is named that is not there, or a name would stand twice.
    """
    columns = chosen_columns(table.columns, options.columns, table.full_name)
    fields = fields_of(columns, as_text=options.as_text)
    own = [StructField(field.column.name, field.data_type) for field in fields]
    if options.changes is not None:
        before = [StructField(name, LongType()) for name in (SNAPSHOT_ID, ROW_ID)]
        schema = StructType([*before, StructField(CHANGE_TYPE, StringType()), *own])
    else:
        schema = StructType([*own, *(StructField(n, LongType()) for n in options.metadata_columns)])
    names = [field.name.lower() for field in schema.fields]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise ConfigurationError(
            f"{table.full_name} has a column {doubled!r} of its own, beside that of the source: "
            "leave it out by naming the others in the option columns"
        )
    return fields, schema


def plan(
    view: LakeView,
    options: ReadOptions,
    span: Span,
    wanted: StructType,
    pushed: Sequence[Filter] = (),
) -> list[ScanTask] | list[ChangesTask]:
    """Return the shares of the tasks of one read; none where there is nothing to read.

    Args:
        view: The lake.
        options: What was asked for.
        span: The snapshots.
        wanted: The schema Spark expects: the one offered, or some fields of it.
        pushed: Filters Spark will apply; rows and files they exclude may be left out.

    Raises:
        ConfigurationError: A filter or a column is wrong.
        NotFound: A snapshot is no longer kept.
    """
    table = table_at(view, options.table, span.last)
    _, schema = offered(table, options)
    require_same(wanted, schema, table.full_name)
    types = _column_types(table.columns)
    extra = [f.name for f in schema.fields if find_column(table.columns, f.name) is None]
    condition = _condition(options, types, extra, pushed)
    shape = _shape(table, options, wanted, types, condition)
    ids = {column.column_id for column in shape.columns}
    if options.changes is not None:
        changed = changed_files(view, table, span.first, span.last)
        inlined = tuple(changed_rows(view, table, span.first, span.last, ids))
        everything = ChangesTask(shape, CHANGE_TYPE, span.first, span.last, (), inlined)
        return _feed_shares(everything, changed, options.partition_size)
    files = read_live_files(view.session, table, span.last)
    if condition is not None:
        files = _pruned(view, table, files, condition, types)
    rows = tuple(visible_rows(view, table, span.last, ids))
    empty = ScanTask(shape, span.last, ())
    tasks = [replace(empty, files=share) for share in shares(files, options.partition_size)]
    return [*tasks, replace(empty, inlined=rows)] if rows else tasks


def _column_types(columns: Sequence[Column]) -> dict[str, str]:
    """Return the DuckDB type in which a filter sees each column; some it cannot see."""
    types = {}
    for column in columns:
        try:
            (field,) = fields_of([column], as_text=True)
        except BadInput:
            continue
        types[column.name] = field.sql_type
    return types


def _condition(
    options: ReadOptions, types: dict[str, str], extra: Sequence[str], pushed: Sequence[Filter]
) -> Condition | None:
    known = types | {name: "VARCHAR" if name == CHANGE_TYPE else "BIGINT" for name in extra}
    parts = [filter_sql(one, known) for one in pushed]
    texts = [text for text in (options.condition, *parts) if text is not None]
    if not texts:
        return None
    if len(texts) == 1:
        return parse_condition(texts[0], known)
    return parse_condition(" AND ".join(f"({text}\n)" for text in texts), known)


def _shape(
    table: Table,
    options: ReadOptions,
    wanted: StructType,
    types: dict[str, str],
    condition: Condition | None,
) -> RowShape:
    outputs = tuple(field.name for field in wanted.fields)
    needed = {name.lower() for name in outputs} | (condition.columns if condition else frozenset())
    columns = tuple(column for column in table.columns if column.name.lower() in needed)
    is_feed = options.changes is not None
    names = (ROW_ID, SNAPSHOT_ID) if is_feed else options.metadata_columns
    return RowShape(
        columns=columns,
        types=tuple(types[column.name] for column in columns),
        outputs=outputs,
        row_id=ROW_ID if ROW_ID in names else None,
        snapshot_id=SNAPSHOT_ID if SNAPSHOT_ID in names else None,
        condition=condition.sql if condition else None,
    )


def _pruned(
    view: LakeView,
    table: Table,
    files: Sequence[DataFile],
    condition: Condition,
    types: dict[str, str],
) -> list[DataFile]:
    statistics = read_file_statistics(view.session, (file.data_file_id for file in files))
    ids = {file.partition_id for file in files if file.partition_id is not None}
    found = {number: read_partition_spec(view.session, number) for number in sorted(ids)}
    specs = {number: spec for number, spec in found.items() if spec is not None}
    return prune(condition, files, statistics, table.columns, types, specs)


def _feed_shares(everything: ChangesTask, changed: ChangedFiles, size: int) -> list[ChangesTask]:
    """Cut a feed into ranges of snapshots: the two halves of an update are in one snapshot."""
    inlined = {
        snapshot
        for part in everything.inlined
        for row in part.rows
        for snapshot in (row.begin_snapshot, row.end_snapshot)
    }
    if not changed.files and not inlined:
        return []
    weights: dict[int, int] = {}
    for file in changed.files:
        for first, _ in changed.spans(file):
            start = max(first, everything.first)
            weights[start] = weights.get(start, 0) + file.file_size_bytes + OPEN_COST
    cuts, load = [everything.first], 0
    for snapshot in sorted(weights):
        if load + weights[snapshot] > size and load:
            cuts.append(snapshot)
            load = 0
        load += weights[snapshot]
    ends = [*(cut - 1 for cut in cuts[1:]), everything.last]
    tasks = [
        replace(
            everything,
            first=first,
            last=last,
            files=tuple(
                ChangedFile(file, changed.deletes[file.data_file_id])
                for file in changed.files
                if any(a <= last and b >= first for a, b in changed.spans(file))
            ),
        )
        for first, last in zip(cuts, ends, strict=True)
    ]
    return [task for task in tasks if task.files or task.inlined]
