"""What every operation is given, and the steps all of them share."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.tasks import ParquetOptions
from airflow_provider_ducklake.lake.commit import CommitInfo, Committed
from airflow_provider_ducklake.lake.errors import CommitConflict, LakeError
from airflow_provider_ducklake.lake.fsck.findings import ClassReport
from airflow_provider_ducklake.lake.instants import utc_now
from airflow_provider_ducklake.lake.lake import Lake, LakeView
from airflow_provider_ducklake.lake.model import Table
from airflow_provider_ducklake.lake.options import (
    LakeOptions,
    OperationOptions,
    parse_flag,
    parse_size,
)
from airflow_provider_ducklake.lake.reader import find_table
from airflow_provider_ducklake.lake.results import (
    MOST_TABLES,
    Failure,
    OperationResult,
    TableResult,
    worth_telling,
)
from airflow_provider_ducklake.spark.operations._deadline import Deadline
from airflow_provider_ducklake.spark.runner import Runner
from airflow_provider_ducklake.storage import open_store

log = logging.getLogger("airflow_provider_ducklake")
REPLANS = 3  # times a table is planned anew after a conflict


@dataclass(frozen=True, slots=True)
class Job:
    """One operation on one lake, as asked for.

    Attributes:
        options: The operation's own options.
        tables: Names of tables; empty means all.
        sources: Paths of files or data to bring in.
        as_they_are: For `ingest`: the rows are those of the Parquet files in `sources`, untouched.
        report: Takes lines (file lists, plans) that are too long for a result.
        most_tables: So many tables its result tells of.
        deadline: When it begins nothing more, and no part of it does.
    """

    operation: str
    lake: Lake
    runner: Runner
    options: OperationOptions
    settings: KernelSettings
    tables: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    as_they_are: bool = False
    dry_run: bool = False
    info: CommitInfo = field(default_factory=CommitInfo)
    now: datetime = field(default_factory=utc_now)
    report: Callable[[str], None] = log.info
    most_tables: int = MOST_TABLES
    deadline: Deadline = field(default_factory=Deadline)

    def info_for(self, what: str) -> CommitInfo:
        """Return the commit info of one of several commits of this job, under a key of its own."""
        message = self.info.message or f"{self.operation} {what}".strip()
        key = f"{self.info.key}/{what}" if self.info.key else None
        return replace(self.info, message=message, key=key)

    def find_done(self, what: str) -> TableResult | None:
        """Return what an earlier try of this job did to a table, if it had committed."""
        results = self.find_all_done(what)
        return None if results is None else results[0]

    def find_all_done(self, what: str) -> tuple[TableResult, ...] | None:
        """Return what an earlier try of this job did in one commit to one or more tables."""
        key = self.info_for(what).key
        done = self.lake.find_job(key) if key else None
        return None if done is None else all_told_by(done, what)


def told_by(done: Committed[Any], what: str) -> TableResult:
    """Return what an earlier try of a job has stored beside its commit."""
    return all_told_by(done, what)[0]


def all_told_by(done: Committed[Any], what: str) -> tuple[TableResult, ...]:
    """Return the same of a commit that may be about several tables."""
    known = {"table": what, "snapshot_id": done.snapshot_id}
    stored = (done.result or {}).get("tables") or [{}]
    return tuple(TableResult(**{**known, **one}) for one in stored)


def chosen_tables(job: Job, view: LakeView, *, for_upkeep: bool) -> list[Table]:
    """Return the tables a job is about.

    Args:
        job: Names of tables, or none for all.
        view: The lake.
        for_upkeep: With no names given, leave out tables whose option `auto_compact` is false.
            A table named by a person is always done.

    Raises:
        NotFound: A named table does not exist.
    """
    tables = view.tables()
    if job.tables:
        return [find_table(tables, name) for name in job.tables]
    if not for_upkeep:
        return tables
    return [
        t for t in tables if parse_flag(view.option("auto_compact", t) or "true", "auto_compact")
    ]


def parquet_options(options: LakeOptions, table: Table) -> ParquetOptions:
    """Return how files of a table are to be written, from the lake's scoped options."""

    def get(key: str) -> str | None:
        return options.get(key, schema_id=table.schema.schema_id, table_id=table.table_id)

    def number(key: str) -> int | None:
        value = get(key)
        return None if value is None else int(value)

    row_group_bytes = get("parquet_row_group_size_bytes")
    encrypted = parse_flag(options.get("encrypted") or "false", "encrypted")
    hive = parse_flag(get("hive_file_pattern") or "true", "hive_file_pattern")
    return ParquetOptions(
        compression=get("parquet_compression"),
        compression_level=number("parquet_compression_level"),
        row_group_size=number("parquet_row_group_size"),
        row_group_size_bytes=(
            parse_size(row_group_bytes, "parquet_row_group_size_bytes") if row_group_bytes else None
        ),
        version=_version(get("parquet_version")),
        target_file_size=parse_size(get("target_file_size") or "", "target_file_size"),
        # As the reference: directories would tell what encryption hides.
        hive_file_pattern=hive and not encrypted,
        encrypted=encrypted,
    )


def _version(text: str | None) -> int | None:
    return None if text is None else int(text.strip().upper().removeprefix("V"))


def each_table(
    job: Job, tables: Iterable[Table], do: Callable[[Table], Sequence[TableResult]]
) -> list[TableResult]:
    """Do something to each table; one that fails is reported and does not stop the others.

    A table is planned anew a few times when another writer got in between.
    """
    results: list[TableResult] = []
    for table in tables:
        for attempt in range(1, REPLANS + 1):
            try:
                results += do(table)
            except CommitConflict as error:
                if attempt < REPLANS:
                    job.report(f"{table.full_name}: {error}")
                    continue
                results.append(TableResult(table.full_name, error=str(error)))
            except LakeError as error:
                results.append(TableResult(table.full_name, error=str(error)))
            break
    return results


def first_error(results: Iterable[object]) -> LakeError | None:
    """Return the first error among what a runner returned."""
    return next((result for result in results if isinstance(result, LakeError)), None)


def discard(lake: Lake, paths: Iterable[str]) -> None:
    """Delete files that were written for a commit that did not happen.

    The catalog is not asked for anything: it may be the very thing that refused.
    """
    written = list(paths)
    if written:
        open_store(written[0], lake.storage).delete(written)


def finished(
    job: Job,
    started: float,
    before: int,
    tables: Sequence[TableResult] = (),
    *,
    counts: Mapping[str, int] | None = None,
    failures: Sequence[Failure] = (),
    messages: Sequence[str] = (),
    findings: Sequence[ClassReport] = (),
    already_done: bool = False,
) -> OperationResult:
    """Put an operation's result together."""
    made = [table.snapshot_id for table in tables if table.snapshot_id is not None]
    told, others = worth_telling(tables, job.most_tables)
    for table in others:
        job.report(str(table))
    if others:
        messages = (*messages, f"{len(others):,} more tables are told of in the log only")
    return OperationResult(
        operation=job.operation,
        lake=str(job.lake),
        dry_run=job.dry_run,
        already_done=already_done,
        snapshot_before=before,
        snapshot_after=max(made, default=before),
        tables=tuple(told),
        counts=dict(counts or {}),
        failures=tuple(failures),
        messages=tuple(messages),
        findings=tuple(findings),
        seconds=round(time.monotonic() - started, 3),
    )
