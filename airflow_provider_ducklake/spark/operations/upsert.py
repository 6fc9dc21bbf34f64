"""Running an upsert: the source is kept in files, matched, written anew, and committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.pruning import parse_condition, prune
from airflow_provider_ducklake.kernels.tasks import (
    AppendTask,
    KeysTask,
    MatchTask,
    StageTask,
    StampTask,
    UpsertTask,
)
from airflow_provider_ducklake.kernels.upsert import (
    Matches,
    UpsertedFiles,
    match_rows,
    stamp_deletes,
    write_upserted,
)
from airflow_provider_ducklake.kernels.upsert_source import as_data_file, gather_keys
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.errors import (
    CommitStateUnknown,
    LakeError,
    SnapshotTaken,
)
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.model import DataFile, WrittenDeleteFile, WrittenFile
from airflow_provider_ducklake.lake.reader import read_partition_spec
from airflow_provider_ducklake.lake.results import TableResult
from airflow_provider_ducklake.lake.scan import shares
from airflow_provider_ducklake.lake.table_stats import read_file_statistics
from airflow_provider_ducklake.lake.tables import is_planned
from airflow_provider_ducklake.lake.types import FLOATING
from airflow_provider_ducklake.lake.upsert import (
    UpsertOutput,
    UpsertPlan,
    commit_upsert,
    upsert_result,
)
from airflow_provider_ducklake.spark.operations._job import discard, first_error, told_by
from airflow_provider_ducklake.spark.runner import Runner

# Bytes of data files whose keys one task reads.
_SHARE: Final = 256 * 1024 * 1024
# How often delete files are written anew because others commit to the lake all the time.
_STAMPS: Final = 10

Stage = Callable[[StageTask], Sequence[WrittenFile]]


@dataclass(frozen=True, slots=True)
class Upsert:
    """One merge as planned.

    Attributes:
        plan: The rows there are.
        rows: How the source's rows are written in the end.
        keys: The key columns.
        delete_when: Condition in DuckDB's SQL under which a source row deletes, or None.
        aside: Source columns that only the condition needs.
        new_columns: Columns to add in the same commit.
        dry_run: Only count.
        description: What the Spark UI shows.
    """

    lake: Lake
    runner: Runner
    settings: KernelSettings
    plan: UpsertPlan
    rows: AppendTask
    keys: tuple[Column, ...]
    delete_when: str | None
    aside: tuple[str, ...]
    new_columns: tuple[Column, ...]
    dry_run: bool
    info: CommitInfo
    description: str


def upsert(work: Upsert, stage: Stage) -> TableResult:
    """Do one merge, or in a dry run count what it would do.

    Args:
        work: As planned.
        stage: Keeps the source's rows in files as a `StageTask` says.

    Raises:
        BadInput: A key is NULL or stands there twice, or a value does not fit.
        CommitConflict: Somebody wrote to the table meanwhile; nothing is left of the work.
    """
    scratch: list[str] = []
    try:
        staged = stage(StageTask(work.rows, work.delete_when, work.aside))
        scratch += (file.path for file in staged)
        return _merge(work, staged, scratch)
    finally:
        discard(work.lake, scratch)


def _merge(work: Upsert, staged: Sequence[WrittenFile], scratch: list[str]) -> TableResult:
    """Merge staged rows; the paths of what is not needed afterwards join `scratch`."""
    sources = tuple(as_data_file(file, place) for place, file in enumerate(staged))
    matches = _match(work, sources, scratch) if sources else []
    output = UpsertOutput(
        (),
        tuple(delete for found in matches for delete in found.deletes),
        tuple(row_id for found in matches for row_id in found.inlined),
        sum(found.updated for found in matches),
        sum(found.deleted for found in matches),
    )
    if work.dry_run:
        return upsert_result(work.plan, output, sum(file.record_count for file in staged))
    try:
        output = replace(output, files=_write(work, sources, matches))
    except LakeError:
        discard(work.lake, output.paths)
        raise
    return _commit(work, output, scratch)


def _match(work: Upsert, sources: tuple[DataFile, ...], scratch: list[str]) -> list[Matches]:
    directory, options = work.rows.directory, work.rows.options
    keys = _gathered(work, sources, scratch)
    files = _pruned(work, keys)
    empty = MatchTask(
        keys=work.keys,
        source_keys=as_data_file(keys, len(sources)),
        files=(),
        inlined=(),
        snapshot_id=work.plan.base + 1,
        directory=None if work.dry_run else directory,
        options=options,
    )
    tasks = [replace(empty, files=share) for share in shares(files, _SHARE)]
    if work.plan.inlined:
        tasks.append(replace(empty, inlined=work.plan.inlined))
    found = work.runner.run(
        partial(match_rows, settings=work.settings), tasks, f"{work.description}: matching rows"
    )
    done = [answer for answer in found if isinstance(answer, Matches)]
    scratch += (answer.found.path for answer in done if answer.found is not None)
    error = first_error(found)
    if error is not None:
        discard(work.lake, (path for answer in done for path in answer.paths))
        raise error
    return done


def _gathered(work: Upsert, sources: tuple[DataFile, ...], scratch: list[str]) -> WrittenFile:
    """Return the file of all keys: each staged file is read where its task runs, then those."""
    task = KeysTask(work.keys, (), work.rows.directory, work.rows.options)
    each = [replace(task, sources=(source,)) for source in sources]
    parts = _run_keys(work, each, scratch)
    if len(parts) > 1:
        files = tuple(as_data_file(part, number) for number, part in enumerate(parts))
        parts = _run_keys(work, [replace(task, sources=files, are_gathered=True)], scratch)
    return parts[0]


def _run_keys(work: Upsert, tasks: list[KeysTask], scratch: list[str]) -> list[WrittenFile]:
    found = work.runner.run(
        partial(gather_keys, settings=work.settings), tasks, f"{work.description}: keys"
    )
    files = [file for file in found if isinstance(file, WrittenFile)]
    scratch += (file.path for file in files)
    error = first_error(found)
    if error is not None:
        raise error
    return files


def _write(
    work: Upsert, sources: Sequence[DataFile], matches: Sequence[Matches]
) -> tuple[WrittenFile, ...]:
    answers = tuple(
        as_data_file(found.found, number)
        for number, found in enumerate(matches)
        if found.found is not None
    )
    found = work.runner.run(
        partial(write_upserted, settings=work.settings),
        [UpsertTask(source, answers, work.rows) for source in sources],
        f"{work.description}: writing",
    )
    done = [answer for answer in found if isinstance(answer, UpsertedFiles)]
    files = [file for part in done for file in (*part.updated, *part.inserted)]
    error = first_error(found)
    if error is not None:
        discard(work.lake, (file.path for file in files))
        raise error
    return tuple(files)


def _pruned(work: Upsert, keys: WrittenFile) -> list[DataFile]:
    """Return the data files that may hold a key of the source, by their statistics."""
    live = list(work.plan.live)
    sql = key_range(work.keys, keys)
    if not sql or not live:
        return live
    types = {key.name: key.sql_type for key in work.keys}
    with work.lake.view() as view:
        statistics = read_file_statistics(view.session, (file.data_file_id for file in live))
        ids = {file.partition_id for file in live if file.partition_id is not None}
        found = {number: read_partition_spec(view.session, number) for number in sorted(ids)}
    specs = {number: spec for number, spec in found.items() if spec is not None}
    condition = parse_condition(sql, types)
    return prune(condition, live, statistics, work.plan.table.columns, types, specs)


def key_range(keys: Sequence[Column], file: WrittenFile) -> str:
    """Return a condition that every key of the source satisfies; empty when none is known."""
    bounds = {s.column_id: s for s in file.statistics}
    parts = []
    for key in keys:
        known = bounds.get(key.column_id)
        if known is None or known.min_value is None or known.max_value is None:
            continue
        ends = (known.min_value, known.max_value)
        # Bounds leave NaN out, and no SQL text holds a NUL.
        if key.type in FLOATING or any("\0" in end for end in ends):
            continue
        low, high = (
            quote_literal(end)
            if key.type == "varchar"
            else f"CAST({quote_literal(end)} AS {key.sql_type})"
            for end in ends
        )
        name = quote_identifier(key.name)
        parts.append(f"{name} = {low}" if low == high else f"{name} BETWEEN {low} AND {high}")
    return " AND ".join(parts)


def _commit(work: Upsert, output: UpsertOutput, scratch: list[str]) -> TableResult:
    changed = output.files or output.deletes or output.inlined or work.new_columns
    if not changed and not is_planned(work.plan.table):
        return upsert_result(work.plan, output, 0)
    try:
        for attempt in range(1, _STAMPS + 1):
            try:
                done = commit_upsert(
                    work.lake, work.plan, output, new_columns=work.new_columns, info=work.info
                )
                break
            except SnapshotTaken:
                if attempt == _STAMPS:
                    raise
                output = _stamped(work, output, scratch)
    except CommitStateUnknown:
        raise
    except LakeError:
        discard(work.lake, output.paths)
        raise
    if done.value is not None:
        return done.value
    discard(work.lake, output.paths)  # an earlier try had committed
    return told_by(done, work.plan.table.full_name)


def _stamped(work: Upsert, output: UpsertOutput, scratch: list[str]) -> UpsertOutput:
    """Write the delete files that hold snapshots for the one that would be next now."""
    following = work.lake.head().snapshot_id + 1
    old = {
        delete.data_file_id: delete.delete_file
        for delete in output.deletes
        if delete.delete_file is not None and delete.delete_file.last_snapshot is not None
    }
    tasks = [
        StampTask(file, following, work.rows.directory, work.rows.options.encrypted)
        for file in old.values()
    ]
    found = work.runner.run(
        partial(stamp_deletes, settings=work.settings), tasks, f"{work.description}: delete files"
    )
    new = [file for file in found if isinstance(file, WrittenDeleteFile)]
    error = first_error(found)
    if error is not None:
        discard(work.lake, (file.path for file in new))
        raise error
    scratch += (file.path for file in old.values())
    by_id = dict(zip(old, new, strict=True))
    deletes = tuple(
        replace(delete, delete_file=by_id.get(delete.data_file_id, delete.delete_file))
        for delete in output.deletes
    )
    return replace(output, deletes=deletes)
