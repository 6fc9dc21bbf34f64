"""Merges by key: ours, and what they should do to the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import pyarrow as pa

from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.results import TableResult
from airflow_provider_ducklake.spark.operations import check_options, merge_batches
from airflow_provider_ducklake.spark.operations._job import Job
from airflow_provider_ducklake.spark.runner import LocalRunner, Runner
from tests.interop.judge import Judge
from tests.interop.palette import Pair, arrow_table
from tests.support.model import ModelTable, Predicate, Record
from tests.support.reference import Row, normalise_row


def run_merge(
    judge: Judge,
    table: str,
    batches: Iterable[pa.RecordBatch],
    options: Mapping[str, str],
    *,
    key: str | None = None,
    dry_run: bool = False,
    runner: Runner | None = None,
) -> TableResult:
    """Merge batches into a table by our operation, without Spark."""
    judge.client.make_way()
    lake = judge.operations.open()
    return merge_into(lake, table, batches, options, key=key, dry_run=dry_run, runner=runner)


def merge_into(
    lake: Lake,
    table: str,
    batches: Iterable[pa.RecordBatch],
    options: Mapping[str, str],
    *,
    key: str | None = None,
    dry_run: bool = False,
    runner: Runner | None = None,
) -> TableResult:
    """Merge batches into a table of any lake."""
    job = Job(
        operation="ingest",
        lake=lake,
        runner=runner or LocalRunner(),
        options=check_options("ingest", {"mode": "merge", **options}),
        settings=KernelSettings(lake.storage),
        tables=(table,),
        dry_run=dry_run,
        info=CommitInfo(key=key),
    )
    return merge_batches(job, batches)


def merged(
    judge: Judge,
    table: str,
    names: Sequence[str],
    rows: Iterable[Sequence[object]],
    keys: Sequence[str],
    goes: Predicate | None = None,
) -> ModelTable:
    """Return what a table should be after a merge, from the model alone."""
    model = judge.table(table)
    new: list[list[object]] = []
    for row in rows:
        record = dict(zip(names, row, strict=True))
        wanted = normalise_row([record[key] for key in keys])

        def same(other: Record, wanted: Row = wanted) -> bool:
            return tuple(other[key] for key in keys) == wanted

        values = {name: record[name] for name in model.columns}
        if goes is not None and goes(record):
            model = model.delete(same)
        elif any(same(other) for _, other in model.records()):
            model = model.update(same, partial(_always, values))
        else:
            new.append(list(values.values()))
    return model.insert({-1_000_000 - number: row for number, row in enumerate(new)})


def _always(values: Record, _: Record) -> Record:
    return values


def merge(
    judge: Judge,
    table: str,
    types: Mapping[str, str],
    rows: Sequence[Sequence[Pair]],
    keys: str,
    goes: Predicate | None = None,
    **options: str,
) -> TableResult:
    """Merge rows into a table and compare every snapshot with the model."""
    values = [[value for _, value in row] for row in rows]
    expected = merged(judge, table, list(types), values, keys.split(","), goes)
    changed = expected != judge.table(table)
    judge.log.append(f"-- merge {len(rows)} rows into {table} by {keys} {options}")
    result = run_merge(
        judge, table, arrow_table(types, rows).to_batches(), {"merge_keys": keys, **options}
    )
    judge.accept({table: expected} if changed else {})
    judge.check(table)
    return result
