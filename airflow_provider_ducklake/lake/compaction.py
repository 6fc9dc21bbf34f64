"""Planning which data files to merge or rewrite; `compaction_commit` puts what comes of it in."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.model import DataFile, Table, WrittenFile
from airflow_provider_ducklake.lake.results import Skipped, TableResult
from airflow_provider_ducklake.lake.shapes import Shapes

# Files that become one: a task holds the footers of all it reads, some 16 kB each. What very many
# tiny files become is merged again by the next run.
MOST_FILES: Final = 10_000


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Data files that become one file (or none, when all their rows are deleted).

    Attributes:
        columns: Columns to write.
        with_row_ids: The output has to carry row ids: they are not one unbroken run.
        begin_snapshot: Where the output of a merge begins; one of a rewrite begins with its commit.
    """

    files: tuple[DataFile, ...]
    columns: tuple[Column, ...]
    with_row_ids: bool
    begin_snapshot: int | None = None

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
        earlier: What commits of other parts of the work on this table have done before.
    """

    table: Table
    base: int
    live: int
    groups: tuple[FileGroup, ...]
    skipped: tuple[Skipped, ...] = ()
    remaining: int = 0
    earlier: TableResult | None = None

    def result(self, outputs: Sequence[WrittenFile] | None = None) -> TableResult:
        """Return the plan's figures, with those of `earlier`; outputs not given are predicted."""
        size = sum(group.size for group in self.groups)
        files_in = sum(len(group.files) for group in self.groups)
        files_out = len(self.groups) if outputs is None else len(outputs)
        result = TableResult(
            table=self.table.full_name,
            files_before=self.live,
            files_after=self.live - files_in + files_out,
            files_in=files_in,
            files_out=files_out,
            bytes_in=size,
            bytes_out=size if outputs is None else sum(o.file_size_bytes for o in outputs),
            rows=sum(output.record_count for output in outputs or ()),
            skipped=self.skipped,
            remaining=self.remaining,
        )
        return result if self.earlier is None else _together(self.earlier, result)


def _together(earlier: TableResult, later: TableResult) -> TableResult:
    """Return what two commits have done to one table."""
    return replace(
        later,
        files_before=earlier.files_before,
        files_in=earlier.files_in + later.files_in,
        files_out=earlier.files_out + later.files_out,
        bytes_in=earlier.bytes_in + later.bytes_in,
        bytes_out=earlier.bytes_out + later.bytes_out,
        rows=earlier.rows + later.rows,
        snapshot_id=later.snapshot_id or earlier.snapshot_id,
        error=earlier.error or later.error,
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
    shapes: Shapes,
    limits: MergeLimits,
    *,
    partitions: frozenset[tuple[str | None, ...]] | None = None,
) -> CompactionPlan:
    """Group small files that may become one: same partition spec and values, and one shape.

    Args:
        table: The table at the newest snapshot.
        base: That snapshot.
        files: Its live data files, in merge order.
        shapes: The shapes it has had.
        limits: Sizes and bounds.
        partitions: Only files with these partition values; None takes all.

    Source: GenerateCompactions in ducklake_compaction_functions.cpp.
    """
    largest = min(limits.target_file_size, limits.max_file_size or limits.target_file_size)
    reasons: Counter[str] = Counter()
    by_partition: dict[tuple[object, ...], dict[int, list[DataFile]]] = defaultdict(dict)
    for file in files:
        shape = shapes.index_of(file)
        reason = _why_not_merged(file, limits.min_file_size, largest, partitions)
        if reason is None and not shapes.can_hold(shape, [file]):
            reason = shapes.why_not(shape)
        if reason:
            reasons[reason] += 1
        else:
            of_one = by_partition[file.partition_id, file.partition_values]
            of_one.setdefault(shape, []).append(file)
    alone = "nothing to merge it with" if len(by_partition) < 2 else "alone in its partition"
    merges: list[FileGroup] = []
    size = remaining = 0
    for group, why_apart in chain(*(_joined(found, shapes) for found in by_partition.values())):
        if 1 < len(group) < limits.min_files:
            reasons["fewer than min_files that belong together"] += len(group)
            continue
        for pack in _packs(group, limits.target_file_size, lambda file: file.file_size_bytes):
            if len(pack) == 1:
                reasons[why_apart or alone] += 1
            elif _is_spent(len(merges), limits.max_compacted_files) or _is_spent(
                size, limits.max_compacted_bytes
            ):
                remaining += len(pack)
            else:
                # Sorting mixes the sources' rows, so their order says nothing of row ids any more.
                with_row_ids = bool(table.sort_keys) or not _adjacent(pack)
                begin = shapes.begin_of(pack)
                columns = shapes.columns_at(begin)
                merges.append(FileGroup(tuple(pack), columns, with_row_ids, begin))
                size += merges[-1].size
    skipped = tuple(Skipped(reason, count) for reason, count in sorted(reasons.items()))
    return CompactionPlan(table, base, len(files), tuple(merges), skipped, remaining)


def plan_rewrite(
    table: Table,
    base: int,
    files: Sequence[DataFile],
    deleted: dict[int, int],
    threshold: float,
    target_file_size: int,
    *,
    max_compacted_files: int | None = None,
    max_compacted_bytes: int | None = None,
) -> CompactionPlan:
    """Choose the files of which a large enough share of rows is deleted.

    Those of one partition become one file, or several where so much is left of them: a file is
    written by one task, from copies on its disk where they are in a bucket.

    Args:
        table: The table at the newest snapshot.
        base: That snapshot.
        files: Its live data files.
        deleted: Distinct deleted positions of each file that has deletes, by file id.
        threshold: Smallest share (0 to 1) of deleted rows worth a rewrite.
        target_file_size: Bytes an output should reach, as far as the share of rows left tells.
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
        for pack in _packs(found, target_file_size, lambda file: _size_left(file, deleted)):
            taken: list[DataFile] = []
            for file in pack if not _is_spent(len(groups), max_compacted_files) else ():
                if not _is_spent(size, max_compacted_bytes):
                    taken.append(file)
                    size += file.file_size_bytes
            if taken:
                groups.append(FileGroup(tuple(taken), table.columns, True))
            remaining += len(pack) - len(taken)
    skipped = tuple(Skipped(reason, count) for reason, count in sorted(reasons.items()))
    return CompactionPlan(table, base, len(files), tuple(groups), skipped, remaining)


def _joined(
    found: Mapping[int, list[DataFile]], shapes: Shapes
) -> list[tuple[list[DataFile], str | None]]:
    """Put the files of one partition together, shape after shape, as far as that is safe.

    Returns:
        Groups, each with the reason why it is apart from others, if there are any.
    """
    joined: list[tuple[list[DataFile], str | None]] = []
    for shape in sorted(found):
        files, why = found[shape], None
        if joined:
            older, why_older = joined.pop()
            if shapes.can_hold(shape, older):
                files, why = older + files, why_older
            else:
                why = shapes.why_not(shape)
                joined.append((older, why))
        joined.append((files, why))
    return joined


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


def _packs(
    files: Iterable[DataFile], target: int, size_of: Callable[[DataFile], int]
) -> list[list[DataFile]]:
    """Pack files in order; a pack is closed once it has reached the target size, or is too many."""
    packs: list[list[DataFile]] = [[]]
    size = 0
    for file in files:
        if size >= target or len(packs[-1]) == MOST_FILES:
            packs.append([])
            size = 0
        packs[-1].append(file)
        size += size_of(file)
    return [pack for pack in packs if pack]


def _size_left(file: DataFile, deleted: Mapping[int, int]) -> int:
    rows = max(file.record_count, 1)
    return file.file_size_bytes * max(rows - deleted.get(file.data_file_id, 0), 0) // rows


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
