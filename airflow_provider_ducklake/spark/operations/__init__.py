"""The operations by name, each with the closed set of options it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.options import OperationOptions, unknown_name
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.spark.operations import (
    checkpoint,
    cleanup,
    compaction,
    definition,
    fleet,
    flush,
    fsck,
    ingest,
    orphans,
    registration,
    restore,
    snapshots,
)
from airflow_provider_ducklake.spark.operations._deadline import Deadline
from airflow_provider_ducklake.spark.operations._job import Job, log
from airflow_provider_ducklake.spark.operations._write_plan import INGEST_OPTIONS
from airflow_provider_ducklake.spark.operations.ingest import ingest_batches
from airflow_provider_ducklake.spark.operations.ingest_merge import merge_batches
from airflow_provider_ducklake.spark.runner import Runner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["OPERATIONS", "ingest_batches", "merge_batches", "run_operation"]

Operation = Callable[[Job], OperationResult]
OPERATIONS: Final[dict[str, tuple[Operation | None, tuple[str, ...]]]] = {
    "create_lake": (definition.create_new_lake, definition.CREATE_LAKE_OPTIONS),
    "create_table": (definition.create_new_table, definition.CREATE_TABLE_OPTIONS),
    "info": (definition.info, definition.INFO_OPTIONS),
    "ingest": (None, INGEST_OPTIONS),  # needs a DataFrame
    "add_data_files": (registration.add_data_files, registration.REGISTER_OPTIONS),
    "merge_adjacent_files": (compaction.merge_adjacent_files, compaction.MERGE_OPTIONS),
    "rewrite_data_files": (compaction.rewrite_data_files, compaction.REWRITE_OPTIONS),
    "flush_inlined_data": (flush.flush_inlined_data, flush.FLUSH_OPTIONS),
    "expire_snapshots": (snapshots.expire_snapshots, snapshots.EXPIRE_OPTIONS),
    "restore": (restore.restore, restore.RESTORE_OPTIONS),
    "cleanup_old_files": (cleanup.cleanup_old_files, cleanup.CLEANUP_OPTIONS),
    "delete_orphaned_files": (orphans.delete_orphaned_files, orphans.ORPHAN_OPTIONS),
    "fleet_maintenance": (fleet.fleet_maintenance, fleet.FLEET_OPTIONS),
    "fsck": (fsck.fsck, fsck.FSCK_OPTIONS),
    "checkpoint": (checkpoint.checkpoint, checkpoint.CHECKPOINT_OPTIONS),
}
# These open no Spark application: they are a few statements on the catalog.
WITHOUT_SPARK: Final = frozenset({"create_lake", "create_table", "info"})


def check_options(name: str, options: Mapping[str, str]) -> OperationOptions:
    """Return an operation's options, checked against its closed set.

    Raises:
        ConfigurationError: The operation or an option is unknown; the nearest one is named.
    """
    if name not in OPERATIONS:
        raise unknown_name("operation", name, OPERATIONS)
    return OperationOptions(name, options, OPERATIONS[name][1])


def only_reads(name: str, options: Mapping[str, str], *, dry_run: bool) -> bool:
    """Tell whether an operation leaves the catalog as it is."""
    if dry_run or name == "info":
        return True
    return name == "fsck" and not check_options(name, options).flag("repair")


def run_operation(
    name: str,
    lake: Lake,
    options: Mapping[str, str],
    *,
    runner: Runner,
    tables: Sequence[str] = (),
    sources: Sequence[str] = (),
    as_they_are: bool = False,
    dry_run: bool = False,
    commit: CommitInfo | None = None,
    settings: KernelSettings | None = None,
    data: Callable[[OperationOptions], DataFrame] | None = None,
    report: Callable[[str], None] = log.info,
) -> OperationResult:
    """Run one operation on a lake.

    Args:
        name: A key of `OPERATIONS`.
        lake: The lake.
        options: The operation's options as text.
        runner: Where the work on files is done.
        tables: `schema.table` names; empty means all, where that makes sense.
        sources: Files to bring in.
        as_they_are: For `ingest`: the rows are those of the Parquet files in `sources`, untouched.
        dry_run: Stop after planning; the result says what would be done.
        commit: Author, message and idempotency key.
        settings: For the kernels; None takes the lake's storage and defaults.
        data: For `ingest`: gives the rows.
        report: Takes file lists and plans, line by line.

    Raises:
        LakeError: One of its kinds, each with a message for a person. Tables that fail alone
            are told in the result instead.
    """
    checked = check_options(name, options)
    job = Job(
        operation=name,
        lake=lake,
        runner=runner,
        options=checked,
        settings=settings or KernelSettings(lake.storage),
        tables=tuple(tables),
        sources=tuple(sources),
        as_they_are=as_they_are,
        dry_run=dry_run,
        info=commit or CommitInfo(),
        report=report,
        deadline=Deadline.of(checked),
    )
    operation = OPERATIONS[name][0]
    if operation is not None:
        return operation(job)
    if data is None:
        raise ConfigurationError(f"{name} needs Spark: run it by spark-submit or by hand")
    return ingest.ingest(job, data(job.options))
