"""Planning which data files to merge or rewrite, and committing the files that replace them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from airflow_provider_ducklake.lake.append import table_result_dict
from airflow_provider_ducklake.lake.changes import compaction_changes
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.commit import CommitInfo, Committed, SnapshotWriter
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.errors import CommitConflict
from airflow_provider_ducklake.lake.file_rows import (
    NewDataFile,
    add_data_files,
    end_files,
    remove_data_files,
    schedule_objects,
)
from airflow_provider_ducklake.lake.files import read_files
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.model import DataFile, Table, WrittenFile
from airflow_provider_ducklake.lake.results import Skipped, TableResult
from airflow_provider_ducklake.lake.tables import require_unchanged


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Data files that become one file (or none, when all their rows are deleted).

    Attributes:
        columns: Columns to write.
        with_row_ids: The output has to carry row ids: they are not one unbroken run.
    """

    files: tuple[DataFile, ...]
    columns: tuple[Column, ...]
    with_row_ids: bool

    @property
    def size(self) -> int:
        """Bytes of the group's files."""
        return sum(file.file_size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a merge or rewrite would do to one table, and why the rest is left alone.

    Attributes:
        base: Snapshot it was planned on.
        live: How many data files the table has.
        remaining: Files that a limit leaves for the next run.
    """

    table: Table
    base: int
    live: int
    groups: tuple[FileGroup, ...]
    skipped: tuple[Skipped, ...] = ()
    remaining: int = 0

    def result(self, *, files_out: int | None = None, bytes_out: int | None = None) -> TableResult:
        """Return the plan's figures as a result; outputs not given are predicted."""
        size = sum(group.size for group in self.groups)
        files_in = sum(len(group.files) for group in self.groups)
        out = len(self.groups) if files_out is None else files_out
        return TableResult(
            table=self.table.full_name,
            files_before=self.live,
            files_after=self.live - files_in + out,
            files_in=files_in,
            files_out=out,
            bytes_in=size,
            bytes_out=size if bytes_out is None else bytes_out,
            skipped=self.skipped,
            remaining=self.remaining,
        )


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """Which files a merge takes, and how much it may do in one call.

    Attributes:
        target_file_size: Bytes an output should reach; files as large are left alone.
        min_file_size: Smaller files are left alone (inclusive bound).
        max_file_size: Files this large or larger are left alone.
        min_files: Groups of fewer files that belong together are left alone.
        max_compacted_files: Outputs the whole call may make.
        max_compacted_bytes: Bytes of inputs after which the whole call begins no other output.
    """

    target_file_size: int
    min_file_size: int = 0
    max_file_size: int | None = None
    min_files: int = 2
    max_compacted_files: int | None = None
    max_compacted_bytes: int | None = None


def plan_merge(
    table: Table,
    base: int,
    files: Sequence[DataFile],
    columns_at: dict[int, tuple[Column, ...]],
    versions: Sequence[tuple[int, int]],
    limits: MergeLimits,
    *,
    partitions: frozenset[tuple[str | None, ...]] | None = None,
) -> CompactionPlan:
    """Group small files that may become one: same schema version, partition spec and values.

    Args:
        table: The table at the newest snapshot.
        base: That snapshot.
        files: Its live data files, in merge order.
        columns_at: The table's columns at each file's begin snapshot.
        versions: (begin snapshot, schema version) of the table, any order.
        limits: Sizes and bounds.
        partitions: Only files with these partition values; None takes all.

    Source: GenerateCompactions in ducklake_compaction_functions.cpp.
    """
    largest = min(limits.target_file_size, limits.max_file_size or limits.target_file_size)
    reasons: Counter[str] = Counter()
    groups: dict[tuple[object, ...], list[DataFile]] = defaultdict(list)
    for file in files:
        reason = _why_not_merged(file, limits.min_file_size, largest, partitions)
        if reason:
            reasons[reason] += 1
        else:
            key = (_version_of(versions, file), file.partition_id, file.partition_values)
            groups[key].append(file)
    merges: list[FileGroup] = []
    size = remaining = 0
    for group in groups.values():
        if 1 < len(group) < limits.min_files:
            reasons["fewer than min_files that belong together"] += len(group)
            continue
        for pack in _packs(group, limits.target_file_size):
            if len(pack) == 1:
                reasons[_why_alone(len(groups))] += 1
            elif _is_spent(len(merges), limits.max_compacted_files) or _is_spent(
                size, limits.max_compacted_bytes
            ):
                remaining += len(pack)
            else:
                columns = columns_at[pack[0].begin_snapshot]
                # Sorting mixes the sources' rows, so their order says nothing of row ids any more.
                with_row_ids = bool(table.sort_keys) or not _adjacent(pack)
                merges.append(FileGroup(tuple(pack), columns, with_row_ids))
                size += merges[-1].size
    skipped = tuple(Skipped(reason, count) for reason, count in sorted(reasons.items()))
    return CompactionPlan(table, base, len(files), tuple(merges), skipped, remaining)


def plan_rewrite(
    table: Table,
    base: int,
    files: Sequence[DataFile],
    deleted: dict[int, int],
    threshold: float,
    *,
    max_compacted_files: int | None = None,
    max_compacted_bytes: int | None = None,
) -> CompactionPlan:
    """Choose the files of which a large enough share of rows is deleted.

    Args:
        table: The table at the newest snapshot.
        base: That snapshot.
        files: Its live data files.
        deleted: Distinct deleted positions of each file that has deletes, by file id.
        threshold: Smallest share (0 to 1) of deleted rows worth a rewrite.
        max_compacted_files: Outputs the whole call may make.
        max_compacted_bytes: Bytes of inputs after which the whole call takes no other file.
    """
    reasons: Counter[str] = Counter()
    by_partition: dict[tuple[object, ...], list[DataFile]] = defaultdict(list)
    for file in files:
        count = deleted.get(file.data_file_id, 0)
        if count == 0:
            reasons["no deleted rows"] += 1
        elif count / max(file.record_count, 1) < threshold:
            reasons[f"less than {threshold:g} of its rows deleted"] += 1
        else:
            by_partition[(file.partition_id, file.partition_values)].append(file)
    groups: list[FileGroup] = []
    size = remaining = 0
    for found in by_partition.values():
        taken: list[DataFile] = []
        for file in found if not _is_spent(len(groups), max_compacted_files) else ():
            if not _is_spent(size, max_compacted_bytes):
                taken.append(file)
                size += file.file_size_bytes
        if taken:
            groups.append(FileGroup(tuple(taken), table.columns, True))
        remaining += len(found) - len(taken)
    skipped = tuple(Skipped(reason, count) for reason, count in sorted(reasons.items()))
    return CompactionPlan(table, base, len(files), tuple(groups), skipped, remaining)


def commit_merge(
    lake: Lake,
    plan: CompactionPlan,
    outputs: Sequence[tuple[FileGroup, WrittenFile]],
    info: CommitInfo | None = None,
) -> Committed[TableResult]:
    """Replace merged files: inputs leave the catalog and are scheduled, outputs take their place.

    The output's rows keep the snapshots they appeared at, so every kept snapshot reads as before.

    Raises:
        CommitConflict: An input is no longer live, or has deletes now.
    """

    def write(writer: SnapshotWriter) -> TableResult:
        require_unchanged(writer, plan.table)
        inputs = [file for group, _ in outputs for file in group.files]
        _require_same(writer, plan.table, inputs)
        removed = remove_data_files(writer.session, (file.data_file_id for file in inputs))
        if removed not in (-1, len(inputs)):
            raise CommitConflict(f"{plan.table.full_name}: inputs of the merge went meanwhile")
        objects = [(file.data_file_id, file.path) for file in inputs]
        schedule_objects(writer.session, data_path, objects, writer.now)
        new = [
            NewDataFile(
                file=output,
                begin_snapshot=min(file.begin_snapshot for file in group.files),
                row_id_start=_first_row_id(group, output),
                partition_id=group.files[0].partition_id,
                partial_max=max(file.partial_max or file.begin_snapshot for file in group.files),
            )
            for group, output in outputs
        ]
        add_data_files(writer, plan.table, _with_values(new, outputs))
        return _finished(writer, plan, [output for _, output in outputs])

    data_path = lake.data_path
    changes = compaction_changes("merge_adjacent", plan.table.table_id)
    return lake.commit(base=plan.base, changes=changes, write=write, info=info)


def commit_rewrite(
    lake: Lake,
    plan: CompactionPlan,
    outputs: Sequence[tuple[FileGroup, WrittenFile | None]],
    info: CommitInfo | None = None,
) -> Committed[TableResult]:
    """Replace files by copies without their deleted rows, visible from the new snapshot on.

    The old files and their deletes end at that snapshot; older snapshots go on reading them.

    Raises:
        CommitConflict: An input is no longer live, or its deletes are other ones now.
    """

    def write(writer: SnapshotWriter) -> TableResult:
        require_unchanged(writer, plan.table)
        inputs = [file for group, _ in outputs for file in group.files]
        _require_same(writer, plan.table, inputs)
        end_files(writer, (file.data_file_id for file in inputs))
        written = [(group, output) for group, output in outputs if output is not None]
        new = [
            NewDataFile(output, writer.snapshot_id, None, group.files[0].partition_id)
            for group, output in written
        ]
        add_data_files(writer, plan.table, _with_values(new, written))
        return _finished(writer, plan, [output for _, output in written])

    changes = compaction_changes("rewrite_delete", plan.table.table_id)
    return lake.commit(base=plan.base, changes=changes, write=write, info=info)


def schema_versions(session: Session, table_id: int) -> list[tuple[int, int]]:
    """Return (begin snapshot, schema version) of each shape a table has had."""
    rows = session.rows(
        "SELECT begin_snapshot, schema_version FROM {ducklake_schema_versions} WHERE table_id = ?",
        (table_id,),
    )
    return [(int(begin), int(version)) for begin, version in rows]


def _why_not_merged(
    file: DataFile,
    smallest: int,
    largest: int,
    partitions: frozenset[tuple[str | None, ...]] | None,
) -> str | None:
    if partitions is not None and file.partition_values not in partitions:
        return "in another partition"
    if file.touched:
        return "has deleted rows (rewrite_data_files applies them)"
    if file.file_size_bytes >= largest:
        return "large enough"
    if file.file_size_bytes < smallest:
        return "smaller than min_file_size"
    return None


def _is_spent(used: int, limit: int | None) -> bool:
    return limit is not None and used >= limit


def _why_alone(groups: int) -> str:
    if groups > 1:
        return "alone among files of its schema version and partition"
    return "nothing to merge it with"


def _version_of(versions: Sequence[tuple[int, int]], file: DataFile) -> int:
    begun = [pair for pair in versions if pair[0] <= file.begin_snapshot]
    return max(begun)[1] if begun else -1


def _packs(files: Iterable[DataFile], target: int) -> list[list[DataFile]]:
    """Pack files in order; a pack is closed once it has reached the target size."""
    packs: list[list[DataFile]] = [[]]
    size = 0
    for file in files:
        if size >= target:
            packs.append([])
            size = 0
        packs[-1].append(file)
        size += file.file_size_bytes
    return [pack for pack in packs if pack]


def _adjacent(files: Sequence[DataFile]) -> bool:
    """Tell whether the files' row ids are one unbroken run that their order alone implies.

    A file with rows of several snapshots may carry its row ids in a column, gaps and all, and
    still name a first one (as flushed files do): it never counts.
    """
    following = files[0].row_id_start
    for file in files:
        if following is None or file.row_id_start != following or file.partial_max is not None:
            return False
        following += file.record_count
    return True


def _first_row_id(group: FileGroup, output: WrittenFile) -> int | None:
    """Return where an output's row ids begin; None when it carries them in a column."""
    if group.with_row_ids or output.first_row_id is not None:
        return None
    return group.files[0].row_id_start


def _require_same(writer: SnapshotWriter, table: Table, planned: Sequence[DataFile]) -> None:
    ids = [file.data_file_id for file in planned]
    now = {
        f.data_file_id: f for f in read_files(writer.session, table, ids, writer.head.snapshot_id)
    }
    for file in planned:
        if now.get(file.data_file_id) != file:
            raise CommitConflict(
                f"data file {file.data_file_id} of {table.full_name} was replaced, or rows of it "
                "were deleted, while the job ran; plan again"
            )


def _with_values(
    new: Sequence[NewDataFile], outputs: Sequence[tuple[FileGroup, WrittenFile]]
) -> list[NewDataFile]:
    """Give each output the partition values of the files it was made from."""
    return [
        replace(one, file=replace(one.file, partition_values=group.files[0].partition_values))
        for one, (group, _) in zip(new, outputs, strict=True)
    ]


def _finished(
    writer: SnapshotWriter, plan: CompactionPlan, outputs: Sequence[WrittenFile]
) -> TableResult:
    size = sum(output.file_size_bytes for output in outputs)
    result = replace(
        plan.result(files_out=len(outputs), bytes_out=size),
        rows=sum(output.record_count for output in outputs),
        snapshot_id=writer.snapshot_id,
    )
    writer.result = {"tables": [table_result_dict(result)]}
    return result
