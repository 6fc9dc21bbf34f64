"""Planning merges and rewrites: packing is a property of sizes, not of examples."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.compaction import (
    MOST_FILES,
    CompactionPlan,
    MergeLimits,
    plan_merge,
    plan_rewrite,
)
from airflow_provider_ducklake.lake.model import DataFile, Schema, SortKey, Table
from airflow_provider_ducklake.lake.shapes import Shape, Shapes

COLUMNS = parse_columns("id int64")
WIDER = parse_columns("id int64, more int64")
ONE_SHAPE = Shapes(((0, COLUMNS),), (Shape(0, kept=0),))
TABLE = Table(1, "", Schema(0, "main", "/d/main/"), "t", "/d/main/t/", COLUMNS)


def data_file(
    number: int,
    size: int = 10,
    *,
    begin: int = 1,
    rows: int = 10,
    start: int | None = None,
    partition: tuple[str | None, ...] = (),
    partial_max: int | None = None,
    touched: bool = False,
) -> DataFile:
    """Return a data file with the few properties planning looks at."""
    return DataFile(
        data_file_id=number,
        table_id=1,
        path=f"/d/main/t/{number}.parquet",
        record_count=rows,
        file_size_bytes=size,
        footer_size=1,
        begin_snapshot=begin,
        row_id_start=start,
        partition_id=9 if partition else None,
        partition_values=partition,
        partial_max=partial_max,
        touched=touched,
    )


def merge(
    files: list[DataFile],
    target: int = 100,
    shapes: Shapes = ONE_SHAPE,
    table: Table = TABLE,
    **limits: int,
) -> CompactionPlan:
    """Plan a merge of some files."""
    return plan_merge(table, 50, files, shapes, MergeLimits(target, **limits))


sizes = st.lists(st.integers(1, 150), max_size=40)


@given(sizes, st.integers(1, 200))
def test_every_file_is_merged_or_said_to_be_left_alone(given_sizes: list[int], target: int) -> None:
    files = [data_file(n, size) for n, size in enumerate(given_sizes)]
    plan = merge(files, target)
    merged = [file for group in plan.groups for file in group.files]
    assert len(merged) == len(set(merged))
    assert len(merged) + sum(s.count for s in plan.skipped) == len(files)
    assert all(len(group.files) >= 2 for group in plan.groups)
    assert all(file.file_size_bytes < target for file in merged)


def test_one_task_reads_ten_thousand_files_at_most() -> None:
    """Files so tiny that no number of them reaches the target: memory is that of their footers."""
    plan = merge([data_file(n, 1) for n in range(2 * MOST_FILES + 500)], 10**9)
    assert [len(group.files) for group in plan.groups] == [MOST_FILES, MOST_FILES, 500]
    assert sorted(f.data_file_id for g in plan.groups for f in g.files) == [*range(20_500)]


@given(sizes, st.integers(1, 200))
def test_an_output_is_at_most_twice_the_target(given_sizes: list[int], target: int) -> None:
    plan = merge([data_file(n, size) for n, size in enumerate(given_sizes)], target)
    assert all(group.size < 2 * target for group in plan.groups)
    # A pack is closed only when full: of one kind of file, at most one output stays below.
    assert sum(group.size < target for group in plan.groups) <= 1


@given(sizes, st.integers(1, 5))
def test_the_limit_holds_for_the_whole_call(given_sizes: list[int], limit: int) -> None:
    files = [data_file(n, size, partition=(str(n % 3),)) for n, size in enumerate(given_sizes)]
    free, bounded = merge(files), merge(files, max_compacted_files=limit)
    assert len(bounded.groups) == min(limit, len(free.groups))
    left = sum(len(group.files) for group in free.groups[limit:])
    assert bounded.remaining == left


def test_files_of_other_shape_or_partition_are_not_mixed() -> None:
    """MG-02, MG-06."""
    files = [
        data_file(1, begin=1, partition=("a",)),
        data_file(2, begin=2, partition=("a",)),
        data_file(3, begin=7, partition=("a",)),
        data_file(4, begin=1, partition=(None,)),
        data_file(5, begin=2, partition=(None,)),
        data_file(6, begin=2),
    ]
    shapes = Shapes(((1, COLUMNS), (5, WIDER)), (Shape(1, kept=1), Shape(5, kept=2)))
    plan = merge(files, shapes=shapes)
    assert [[f.data_file_id for f in g.files] for g in plan.groups] == [[1, 2], [4, 5]]
    assert [(s.count, s.reason.split(":")[0]) for s in plan.skipped] == [
        (1, "alone in its partition"),
        (1, "schema changed at snapshot 5"),
    ]


def test_sizes_bound_what_is_taken() -> None:
    files = [data_file(n, size) for n, size in enumerate([5, 10, 20, 30, 80, 100])]
    plan = merge(files, target=100, min_file_size=10, max_file_size=80)
    assert [[f.data_file_id for f in g.files] for g in plan.groups] == [[1, 2, 3]]


def test_files_with_deletes_are_left_to_rewrite() -> None:
    """MG-01."""
    plan = merge([data_file(1), data_file(2, touched=True), data_file(3)])
    assert [[f.data_file_id for f in g.files] for g in plan.groups] == [[1, 3]]
    assert "rewrite_data_files" in plan.skipped[0].reason


def test_row_ids_are_written_unless_order_alone_implies_them() -> None:
    run = [data_file(1, start=0), data_file(2, start=10)]
    gap = [data_file(1, start=0), data_file(2, start=11)]
    flushed = [data_file(1, start=0, partial_max=3), data_file(2, start=10)]
    sorted_table = Table(1, "", TABLE.schema, "t", "/d/", COLUMNS, sort_keys=(SortKey("id"),))
    assert [merge(files).groups[0].with_row_ids for files in (run, gap, flushed)] == [
        False,
        True,
        True,
    ]
    assert merge(run, table=sorted_table).groups[0].with_row_ids


def test_rewrites_are_chosen_by_the_share_of_deleted_rows() -> None:
    """RW-02: compared with >=, whatever the size; one output a partition."""
    files = [
        data_file(1, size=10**9),
        data_file(2),
        data_file(3, partition=("a",)),
        data_file(4, partition=("a",)),
        data_file(5),
    ]
    deleted = {1: 3, 2: 2, 3: 10, 4: 5}
    plan = plan_rewrite(TABLE, 50, files, deleted, 0.3, 10**12)
    assert [[f.data_file_id for f in g.files] for g in plan.groups] == [[1], [3, 4]]
    assert {s.reason: s.count for s in plan.skipped} == {
        "no deleted rows": 1,
        "less than 0.3 of its rows deleted": 1,
    }
    everything = plan_rewrite(TABLE, 50, files, deleted, 0.0, 10**12)
    assert sum(len(group.files) for group in everything.groups) == 4
    bounded = plan_rewrite(TABLE, 50, files, deleted, 0.0, 10**12, max_compacted_files=1)
    assert (len(bounded.groups), bounded.remaining) == (1, 2)


def test_a_rewrite_is_parted_where_much_is_left() -> None:
    """A task writes one file: it must not become all that is left of a large partition."""
    files = [data_file(number, size=100) for number in range(10)]
    half = dict.fromkeys(range(10), 5)  # of ten rows each
    plan = plan_rewrite(TABLE, 50, files, half, 0.1, 200)
    assert [len(group.files) for group in plan.groups] == [4, 4, 2]
    nothing_left = plan_rewrite(TABLE, 50, files, dict.fromkeys(half, 10), 0.1, 200)
    assert [len(group.files) for group in nothing_left.groups] == [10]


@given(sizes, st.integers(1, 2_000))
def test_the_bytes_of_the_whole_call_are_bounded(given_sizes: list[int], limit: int) -> None:
    """The rest is said to remain; whoever goes on comes to an end."""
    files = [data_file(n, size, partition=(str(n % 3),)) for n, size in enumerate(given_sizes)]
    free, bounded = merge(files), merge(files, max_compacted_bytes=limit)
    taken = [group.size for group in bounded.groups]
    assert bool(taken) == bool(free.groups)
    assert sum(taken[:-1]) < limit
    inputs = [sum(len(group.files) for group in plan.groups) for plan in (free, bounded)]
    assert inputs[1] + bounded.remaining == inputs[0]
    rewrite = plan_rewrite(
        TABLE, 50, files, dict.fromkeys(range(len(files)), 5), 0.1, 100, max_compacted_bytes=limit
    )
    rewritten = [file for group in rewrite.groups for file in group.files]
    assert bool(rewritten) == bool(files)
    assert sum(file.file_size_bytes for file in rewritten[:-1]) < limit
    assert len(rewritten) + rewrite.remaining == len(files)


def test_few_files_that_belong_together_are_left_alone() -> None:
    files = [data_file(n, partition=("a" if n < 3 else "b",)) for n in range(7)]
    plan = merge(files, min_files=4)
    assert [[f.data_file_id for f in g.files] for g in plan.groups] == [[3, 4, 5, 6]]
    assert [(s.count, "min_files" in s.reason) for s in plan.skipped] == [(3, True)]
    assert len(merge(files, min_files=3).groups) == 2
