"""merge_adjacent_files and rewrite_data_files: plan on the driver, write on executors, commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

import duckdb

from airflow_provider_ducklake.kernels.partitioning import partition_directory, partition_keys
from airflow_provider_ducklake.kernels.rewrite import rewrite
from airflow_provider_ducklake.kernels.tasks import ParquetOptions, RewriteTask
from airflow_provider_ducklake.lake.compaction import (
    CompactionPlan,
    FileGroup,
    MergeLimits,
    plan_merge,
    plan_rewrite,
)
from airflow_provider_ducklake.lake.compaction_commit import commit_merge, commit_rewrite
from airflow_provider_ducklake.lake.errors import (
    CommitStateUnknown,
    ConfigurationError,
    LakeError,
)
from airflow_provider_ducklake.lake.lake import LakeView
from airflow_provider_ducklake.lake.model import PartitionSpec, Table
from airflow_provider_ducklake.lake.options import OperationOptions, parse_fraction
from airflow_provider_ducklake.lake.results import OperationResult, TableResult
from airflow_provider_ducklake.lake.shapes import read_shapes
from airflow_provider_ducklake.spark.operations._job import (
    Job,
    chosen_tables,
    discard,
    each_table,
    finished,
    first_error,
    parquet_options,
    told_by,
)
from airflow_provider_ducklake.spark.operations._partitions import (
    matching_partitions,
    parse_partition_filter,
    partition_specs,
    usable_order,
)

MERGE_OPTIONS = (
    "min_file_size",
    "max_file_size",
    "min_files",
    "max_compacted_files",
    "max_compacted_bytes",
    "max_seconds",
    "max_commits",
    "target_file_size",
    "partition",
)
REWRITE_OPTIONS = (
    "delete_threshold",
    "max_compacted_files",
    "max_compacted_bytes",
    "max_seconds",
    "max_commits",
)
# With an end in time the work on a table is in parts, or it could only end between tables.
_PARTS_IN_TIME: Final = 10


@dataclass(frozen=True, slots=True)
class _Planned:
    """A plan and the work orders of its groups, in the same order."""

    plan: CompactionPlan
    tasks: tuple[RewriteTask, ...]

    def part(self, start: int, end: int) -> _Planned:
        plan = replace(self.plan, groups=self.plan.groups[start:end])
        return _Planned(plan, self.tasks[start:end])

    def after(self, earlier: TableResult | None) -> _Planned:
        """Return the same, once an earlier part has done this to the table."""
        live = self.plan.live if earlier is None else earlier.files_after
        return replace(self, plan=replace(self.plan, live=live, earlier=earlier))


@dataclass(frozen=True, slots=True)
class _Budget:
    """Outputs the whole call may still make, and bytes it may read for them; None has no end."""

    files: int | None
    size: int | None

    def without(self, groups: Sequence[FileGroup]) -> _Budget:
        files = None if self.files is None else self.files - len(groups)
        size = None if self.size is None else self.size - sum(group.size for group in groups)
        return _Budget(files, size)


@dataclass(frozen=True, slots=True)
class _Pace:
    """In how many commits the work on a table is put in."""

    commits: int

    @classmethod
    def of(cls, job: Job) -> _Pace:
        commits = job.options.integer("max_commits", at_least=1)
        return cls(commits or (_PARTS_IN_TIME if job.deadline.is_set else 1))

    def parts(self, planned: _Planned) -> list[_Planned]:
        size = -(-len(planned.tasks) // self.commits)
        starts = range(0, len(planned.tasks), max(size, 1))
        return [planned.part(start, start + size) for start in starts]


# Reads what a plan needs; the plan is made later, when no transaction is open any more.
_ReadOne = Callable[[LakeView, Table, _Budget], Callable[[], _Planned]]


@dataclass(frozen=True, slots=True)
class _MergeRequest:
    """What a merge was asked for, read before any table is looked at."""

    target_file_size: int | None
    min_file_size: int
    max_file_size: int | None
    min_files: int
    partition: Mapping[str, str] | None

    @classmethod
    def of(cls, options: OperationOptions) -> _MergeRequest:
        smallest = options.size("min_file_size") or 0
        largest = options.size("max_file_size")
        if largest is not None and smallest >= largest:
            raise ConfigurationError("min_file_size must be less than max_file_size")
        wanted = parse_partition_filter(options.text("partition"))
        number = options.integer("min_files", at_least=2) or 2
        return cls(options.size("target_file_size"), smallest, largest, number, wanted)


def merge_adjacent_files(job: Job) -> OperationResult:
    """Merge small data files of one partition, across changes of schema where that is safe."""
    request = _MergeRequest.of(job.options)
    return _compact(job, partial(_read_merge, request), commits_merges=True)


def rewrite_data_files(job: Job) -> OperationResult:
    """Rewrite data files of which a large share of rows is deleted, without those rows."""
    threshold = job.options.fraction("delete_threshold")
    return _compact(job, partial(_read_rewrite, threshold), commits_merges=False)


def _compact(job: Job, read_one: _ReadOne, *, commits_merges: bool) -> OperationResult:
    started = time.monotonic()
    with job.lake.view() as view:
        tables = chosen_tables(job, view, for_upkeep=True)
        before = view.head.snapshot_id
    left = _Budget(
        job.options.integer("max_compacted_files", at_least=1),
        job.options.size("max_compacted_bytes"),
    )
    pace = _Pace.of(job)
    so_far: dict[str, TableResult] = {}

    def do(table: Table) -> list[TableResult]:
        nonlocal left
        name = table.full_name
        done = job.find_done(name)
        if done is not None:
            return [done]
        with job.lake.view() as view:
            budget = _Budget(0, 0) if job.deadline.is_over else left
            plan_one = read_one(view, view.table(name), budget)
        planned = plan_one()
        _describe(job, planned.plan)
        result = replace(planned.plan, earlier=so_far.get(name)).result()
        parts = [] if job.dry_run else pace.parts(planned)
        for number, part in enumerate(parts):
            if number and job.deadline.is_over:
                waiting = sum(len(g.files) for p in parts[number:] for g in p.plan.groups)
                return [replace(result, remaining=result.remaining + waiting)]
            keyed = number == len(parts) - 1
            result = _run(job, part.after(so_far.get(name)), keyed, commits_merges)
            so_far[name] = result
            left = left.without(part.plan.groups)
        if job.dry_run:
            left = left.without(planned.plan.groups)
        return [result]

    results = [
        # Of a table that failed, what was committed before is done.
        replace(so_far[result.table], error=result.error)
        if result.error and result.table in so_far
        else result
        for result in each_table(job, tables, do)
    ]
    remaining = sum(result.remaining for result in results)
    counts = {"files_left_for_the_next_run": remaining} if remaining else {}
    return finished(job, started, before, results, counts=counts)


def _read_merge(
    request: _MergeRequest, view: LakeView, table: Table, budget: _Budget
) -> Callable[[], _Planned]:
    snapshot_id = view.head.snapshot_id
    options = parquet_options(view.options, table)
    target = request.target_file_size or options.target_file_size
    files = view.live_files(table)
    specs = partition_specs(view, files)
    shapes = read_shapes(view.session, table.table_id)
    limits = MergeLimits(
        target,
        request.min_file_size,
        request.max_file_size,
        request.min_files,
        budget.files,
        budget.size,
    )

    def plan_one() -> _Planned:
        partitions = matching_partitions(request.partition, table, specs, files)
        plan = plan_merge(table, snapshot_id, files, shapes, limits, partitions=partitions)
        return _Planned(plan, _tasks(plan, specs, options, snapshots=True))

    return plan_one


def _read_rewrite(
    threshold: float | None, view: LakeView, table: Table, budget: _Budget
) -> Callable[[], _Planned]:
    if threshold is None:
        stored = view.option("rewrite_delete_threshold", table) or "0.95"
        threshold = parse_fraction(stored, "rewrite_delete_threshold")
    snapshot_id = view.head.snapshot_id
    options = parquet_options(view.options, table)
    files = view.live_files(table)
    specs = partition_specs(view, files)

    def plan_one() -> _Planned:
        deleted = {
            file.data_file_id: sum(d.delete_count for d in file.delete_files)
            + len(file.inlined_deletes)
            for file in files
        }
        plan = plan_rewrite(
            table,
            snapshot_id,
            files,
            deleted,
            threshold,
            options.target_file_size,
            max_compacted_files=budget.files,
            max_compacted_bytes=budget.size,
        )
        return _Planned(plan, _tasks(plan, specs, options, snapshots=False))

    return plan_one


def _tasks(
    plan: CompactionPlan,
    specs: Mapping[int, PartitionSpec],
    options: ParquetOptions,
    *,
    snapshots: bool,
) -> tuple[RewriteTask, ...]:
    table = plan.table
    if not plan.groups:
        return ()
    with duckdb.connect(":memory:") as connection:
        # Groups are many, but of few shapes.
        order_of = cache(partial(usable_order, connection, table))

        def task(group: FileGroup) -> RewriteTask:
            first = group.files[0]
            spec = None if first.partition_id is None else specs.get(first.partition_id)
            directory = table.data_path
            if spec is not None and options.hive_file_pattern:
                keys = partition_keys(connection, spec, group.columns)
                directory += partition_directory(keys, first.partition_values)
            return RewriteTask(
                columns=group.columns,
                sources=group.files,
                directory=directory,
                options=options,
                sort_keys=order_of(group.columns),
                write_row_ids=group.with_row_ids,
                write_snapshot_ids=snapshots,
            )

        return tuple(map(task, plan.groups))


def _run(job: Job, planned: _Planned, keyed: bool, commits_merges: bool) -> TableResult:
    """Write the outputs of some groups and commit them; only the last commit has the job's key.

    A try that finds the key does no more; one that finds the table half done goes on with it.
    """
    plan = planned.plan
    name = plan.table.full_name
    written = job.runner.run(
        partial(rewrite, settings=job.settings),
        planned.tasks,
        f"{job.operation} {name}: {len(planned.tasks)} groups",
    )
    outputs = [
        (g, w) for g, w in zip(plan.groups, written, strict=True) if not isinstance(w, LakeError)
    ]
    files = [file for _, made in outputs for file in made]
    error = first_error(written)
    try:
        if error is not None and not outputs:
            raise error
        info = job.info_for(name)
        if not keyed:
            info = replace(info, key=None)
        if commits_merges:
            pairs = [(group, made[0]) for group, made in outputs]
            commit = commit_merge(job.lake, plan, pairs, info)
        else:
            singles = [(group, made[0] if made else None) for group, made in outputs]
            commit = commit_rewrite(job.lake, plan, singles, info)
    except CommitStateUnknown:
        raise
    except LakeError:
        discard(job.lake, (file.path for file in files))
        raise
    result = commit.value
    if result is None:  # an earlier try, taken for dead, has committed after all
        discard(job.lake, (file.path for file in files))
        return told_by(commit, name)
    return replace(result, error=result.error or str(error)) if error else result


def _describe(job: Job, plan: CompactionPlan) -> None:
    for group in plan.groups:
        names = ", ".join(file.path for file in group.files)
        job.report(f"{plan.table.full_name}: {len(group.files)} files, {group.size} bytes: {names}")
    for skipped in plan.skipped:
        job.report(f"{plan.table.full_name}: {skipped.count} files left alone: {skipped.reason}")
