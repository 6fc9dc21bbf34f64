"""Compaction in parts: each commit stands for itself, and the whole call keeps to its limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.spark.operations import _deadline
from tests.interop.aftermath import life_goes_on
from tests.interop.interference import Watched
from tests.interop.judge import Judge
from tests.support.lakes import on_two_kinds

OPERATIONS: dict[str, dict[str, Any]] = {
    "merge_adjacent_files": {},
    "rewrite_data_files": {"delete_threshold": 0.1},
}
PARTITIONS = 4

pytestmark = [on_two_kinds, pytest.mark.parametrize("operation", OPERATIONS)]


def fill(judge: Judge, operation: str) -> None:
    """Make as many groups of two files as there are partitions, and one more of another table."""
    with judge.without_checks():
        for table in ("main.t", "main.u"):
            judge.create_table(table, {"id": "INTEGER", "k": "INTEGER"})
        judge.alter("main.t", "SET PARTITIONED BY (k)")
        judge.client.set_option("data_inlining_row_limit", 0)
        for start in (0, 40):
            numbers = range(start, start + 40)
            judge.insert_values("main.t", *((i, i % PARTITIONS) for i in numbers))
            judge.insert_values("main.u", *((i, 0) for i in numbers))
        if operation == "rewrite_data_files":
            for table in ("main.t", "main.u"):
                judge.delete(table, "id % 10 < 5", lambda row: row["id"] % 10 < 5)


def test_each_part_is_a_commit(judge: Judge, operation: str) -> None:
    fill(judge, operation)
    runner = Watched(lambda _: judge.client.make_way())
    info = CommitInfo(key="run-1")
    options = OPERATIONS[operation] | {"max_commits": 3}
    head = judge.model.head
    result = judge.upkeep(operation, "main.t", runner=runner, commit=info, **options)
    (table,) = result.tables
    assert (table.files_before, table.files_in) == (2 * PARTITIONS, 2 * PARTITIONS)
    assert (table.files_out, table.files_after) == (PARTITIONS, PARTITIONS)
    assert table.rows == len(judge.table("main.t").rows)
    # Four groups in at most three commits: two and two.
    assert (runner.parts, judge.model.head - head, table.snapshot_id) == (2, 2, head + 2)
    again = judge.upkeep(operation, "main.t", commit=info, **options)
    assert again.tables == result.tables
    assert judge.model.head == head + 2
    judge.check()
    life_goes_on(judge, "main.t")


def test_who_is_killed_between_parts_goes_on(judge: Judge, operation: str) -> None:
    """A try that has its first parts committed keeps them; the next one does the rest."""

    def die(part: int) -> None:
        judge.client.make_way()
        if part == 3:
            raise KeyboardInterrupt

    fill(judge, operation)
    options = OPERATIONS[operation] | {"max_commits": PARTITIONS}
    info = CommitInfo(key="run-1")
    with pytest.raises(KeyboardInterrupt):
        judge.operations.run(operation, "main.t", runner=Watched(die), commit=info, **options)
    assert len(judge.accept({})) == 2
    judge.check()
    (table,) = judge.upkeep(operation, "main.t", commit=info, **options).tables
    assert (table.files_in, table.files_out) == (4, 2)
    judge.check()
    assert not judge.unreferenced_files()


def test_a_writer_between_parts(judge: Judge, operation: str) -> None:
    """Rows deleted from files of a later part: that part is planned anew, what is done is done."""

    def interfere(part: int) -> None:
        if part == 2:
            judge.accept({})
            judge.delete("main.t", "id = 25", lambda row: row["id"] == 25)
        judge.client.make_way()

    fill(judge, operation)
    runner = Watched(interfere)
    options = OPERATIONS[operation] | {"max_commits": PARTITIONS}
    (table,) = judge.upkeep(operation, "main.t", runner=runner, **options).tables
    assert table.error is None
    # A merge leaves the two files of that partition alone then: rows of one are deleted.
    groups = PARTITIONS if operation == "rewrite_data_files" else PARTITIONS - 1
    assert runner.parts == groups + 1
    assert (table.files_before, table.files_in) == (2 * PARTITIONS, 2 * groups)
    judge.check()
    assert not judge.unreferenced_files()


def test_time_ends_the_whole_call(
    judge: Judge, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has begun is committed; the rest, of other tables too, is said to remain."""
    fill(judge, operation)
    clock = [0.0]
    monkeypatch.setattr(_deadline, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def tick(_: int) -> None:
        judge.client.make_way()
        clock[0] += 40

    options = OPERATIONS[operation] | {"max_seconds": 60}
    result = judge.upkeep(operation, runner=Watched(tick), **options)
    done = {t.table: (t.files_in, t.remaining) for t in result.tables}
    assert done == {"main.t": (4, 4), "main.u": (0, 2)}
    assert result.counts == {"files_left_for_the_next_run": 6}
    monkeypatch.undo()
    judge.check()
    result = judge.upkeep(operation, **OPERATIONS[operation])
    assert {t.table: t.files_in for t in result.tables} == {"main.t": 4, "main.u": 2}


@pytest.mark.parametrize("value", ["0", "-1", "soon", "inf", "nan"])
def test_times_that_are_none(judge: Judge, operation: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match="max_seconds"):
        judge.operations.run(operation, max_seconds=value)
