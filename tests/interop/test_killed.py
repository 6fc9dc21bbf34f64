"""Exactly once: every operation is killed at every point it passes, looked at, and run again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pytest

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.fault_points import VARIABLE, FaultPoint
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.results import OperationResult, TableResult
from airflow_provider_ducklake.spark.operations import OPERATIONS
from tests.interop.catalog import catalog_faults, change_catalog, referenced_files
from tests.interop.judge import Judge
from tests.interop.palette import arrow_table, pairs, write_parquet
from tests.support.killed import Work, kill, passes_of
from tests.support.lakes import LakeFactory, LakeUnderTest, catalog_fingerprint
from tests.support.model import ModelLake, ModelTable, Predicate

TYPES: Final = {"id": "INTEGER"}
TASK_DONE, WORK_DONE = FaultPoint.TASK_DONE, FaultPoint.WORK_DONE
UNCOMMITTED, COMMITTED = FaultPoint.UNCOMMITTED, FaultPoint.COMMITTED
OBJECTS_DELETED = FaultPoint.OBJECTS_DELETED
NOT_PUT_BACK, PUT_BACK = FaultPoint.NOT_PUT_BACK, FaultPoint.PUT_BACK

Changes = Mapping[str, ModelTable | None]


def _nothing(judge: Judge) -> Changes:
    return {}


def _rows(*ids: int) -> Callable[[Judge], Changes]:
    return lambda judge: {"main.t": judge.with_new_rows("main.t", [(i,) for i in ids])}


def _has(number: int) -> Predicate:
    return lambda row: bool(row["id"] == number)


def _as_at_restored(judge: Judge) -> Changes:
    then, now = judge.model.tables_at(RESTORED)["main.t"], judge.table("main.t")
    return {"main.t": replace(then, next_row_id=now.next_row_id)}


@dataclass(frozen=True, slots=True)
class Case:
    """An operation, and the points it passes so and so often.

    Attributes:
        tasks: After which of its tasks it is killed: where others remain, or nothing differs from
            the point that follows the last.
        changes: What its commit changes in the model.
        expires: The snapshots it expires.
        damage: Statements on the catalog before it.
    """

    work: Work
    passes: Mapping[FaultPoint, int]
    changes: Callable[[Judge], Changes] = _nothing
    expires: tuple[int, ...] = ()
    damage: tuple[str, ...] = ()
    tasks: tuple[int, ...] = ()

    @property
    def kills(self) -> list[tuple[FaultPoint, int]]:
        """Where to kill it."""
        others = {point: number for point, number in self.passes.items() if point != TASK_DONE}
        return [(TASK_DONE, time) for time in self.tasks] + [
            (point, time) for point, number in others.items() for time in range(1, number + 1)
        ]


def _commits(number: int, *, tasks: int = 0) -> dict[FaultPoint, int]:
    once = {WORK_DONE: number, UNCOMMITTED: number, COMMITTED: number}
    return once | ({TASK_DONE: tasks} if tasks else {})


RESTORED: Final = 7  # of the snapshots that `_prepare` makes
_FORCED: Final = {"cleanup_all": "true", "force": "true"}
CASES: Final = {
    "create_table": Case(
        Work("create_table", ("main.n",), {"columns": "id int32"}),
        _commits(1),
        lambda judge: {"main.n": ModelTable(("id",))},
    ),
    "ingest": Case(
        Work("ingest", ("main.t",), rows=arrow_table(TYPES, pairs([(40,), (41,)]))),
        _commits(1),
        _rows(40, 41),
    ),
    "add_data_files": Case(
        Work("add_data_files", ("main.t",), sources=("raw/*.parquet",)),
        _commits(1, tasks=1),
        _rows(30, 31),
    ),
    "merge_adjacent_files": Case(
        Work("merge_adjacent_files", ("main.t",), {"target_file_size": "300"}),
        _commits(1, tasks=2),
        tasks=(1,),
    ),
    "rewrite_data_files": Case(
        Work("rewrite_data_files", ("main.t",), {"delete_threshold": "0"}), _commits(1, tasks=1)
    ),
    "flush_inlined_data": Case(Work("flush_inlined_data"), _commits(2, tasks=2)),
    "restore": Case(
        Work("restore", ("main.t",), {"snapshot": str(RESTORED)}),
        _commits(1, tasks=1),
        _as_at_restored,
    ),
    "expire_snapshots": Case(
        Work("expire_snapshots", options={"versions": "0..3"}),
        {UNCOMMITTED: 2, COMMITTED: 2},
        expires=(0, 1, 2, 3),
    ),
    "cleanup_old_files": Case(
        Work("cleanup_old_files", options=_FORCED),
        {TASK_DONE: 3, OBJECTS_DELETED: 2, UNCOMMITTED: 2, COMMITTED: 2},
        tasks=(1,),
    ),
    "delete_orphaned_files": Case(
        Work("delete_orphaned_files", options=_FORCED),
        {TASK_DONE: 2, OBJECTS_DELETED: 1},
        tasks=(1,),
    ),
    "fsck": Case(
        Work("fsck", options={"repair": "true"}),
        {TASK_DONE: 1, UNCOMMITTED: 2, COMMITTED: 2},
        damage=(
            "INSERT INTO ducklake_table_stats VALUES (777, 1, 1, 1)",
            "INSERT INTO ducklake_snapshot_changes VALUES (777, '', NULL, NULL, NULL)",
        ),
    ),
    # Its steps are killed above at every point; here between them.
    "checkpoint": Case(Work("checkpoint", options={"delete_threshold": "0"}), {COMMITTED: 4}),
    # Only what is the catalog's own.
    "in a bucket": Case(
        Work("merge_adjacent_files", ("main.t",), in_bucket=True), {NOT_PUT_BACK: 1, PUT_BACK: 1}
    ),
}
# They change nothing, or run others of this list, or have tests of their own below.
_OTHERS: Final = {"info", "fleet_maintenance", "create_lake"}


def test_every_point_and_every_operation_has_its_turn() -> None:
    killed = {point for case in CASES.values() for point, _ in case.kills}
    assert killed == set(FaultPoint)
    assert {case.work.operation for case in CASES.values()} | _OTHERS == OPERATIONS.keys()


def _prepare(judge: Judge) -> None:
    """Give every operation something to do."""
    judge.client.set_option("data_inlining_row_limit", 3)
    judge.create_table("main.t", TYPES)
    judge.client.set_option("data_inlining_row_limit", 0)
    for first in range(20, 28, 2):
        judge.insert_values("main.t", (first,), (first + 1,))
    judge.insert_values("main.t", (5,), (6,), (7,), (8,), (9,))
    # Each takes the place of the delete file before it, which is scheduled for deletion.
    for number in (9, 8, 7, 6):
        judge.delete("main.t", f"id = {number}", _has(number))
    judge.insert_values("main.t", (10,), (11,), (12,), (13,))
    judge.client.set_option("data_inlining_row_limit", 3)
    judge.delete("main.t", "id = 13", _has(13))
    judge.insert_values("main.t", (14,), (15,))
    for number in (30, 31):
        path = judge.lake.directory / "raw" / f"{number}.parquet"
        write_parquet(path, TYPES, pairs([(number,)]))
        shutil.copy(path, Path(judge.lake.data_path, "main", f"{number}.parquet"))


@dataclass(slots=True)
class Walk:
    """A lake that is put back to where it was before each kill.

    Attributes:
        judge: Knows what the lake must show.
        backup: A copy of all its files.
        model: What it shows then.
        changed: Whether the change of the case is in the lake.
    """

    judge: Judge
    backup: Path
    model: ModelLake = field(init=False)
    changed: bool = False

    def __post_init__(self) -> None:
        self.judge.client.release()
        shutil.copytree(self.judge.lake.directory, self.backup)
        self.model = self.judge.model

    def begin(self, case: Case) -> Work:
        """Put the lake back, and return the work as it is to be done on it."""
        lake = self.judge.lake
        self.judge.client.release()
        shutil.rmtree(lake.directory)
        shutil.copytree(self.backup, lake.directory)
        self.judge.model, self.changed = self.model.copy(), False
        self.judge.log[:] = []
        for statement in case.damage:
            change_catalog(lake, statement)
        sources = tuple(f"{lake.directory}/{source}" for source in case.work.sources)
        return replace(case.work, sources=sources)

    def look(self, case: Case, killed_at: str) -> None:
        """See that the lake shows what it did, or that and the whole change."""
        judge = self.judge
        judge.log.append(f"-- {case.work.operation} {killed_at}")
        judge.client.release()
        kept = judge.client.snapshot_ids()
        gone = set(judge.model.kept) - set(kept)
        assert gone <= set(case.expires), gone
        judge.model.expire(gone)
        if kept[-1] > judge.model.head:
            judge.accept({} if self.changed else case.changes(judge))
            self.changed = True
        judge.check()

    def end(self, case: Case) -> None:
        """See that all is done, once, and that a sweep removes what is left over, and only that."""
        judge = self.judge
        self.look(case, "run again")
        assert self.changed or not case.changes(judge)
        assert not set(case.expires) & set(judge.model.kept)
        judge.check_soundness()
        judge.operations.run("delete_orphaned_files", cleanup_all=True, force=True, max_fraction=1)
        stored = {f"{judge.lake.data_path}{name}" for name in judge.lake.stored_files()}
        assert stored == {p for p in referenced_files(judge.lake) if judge.lake.data_path in p}
        judge.check_catalog()


@pytest.fixture(scope="module")
def walk(scratch_directory: Path) -> Iterator[Walk]:
    """One lake in SQLite for all."""
    factory = LakeFactory("sqlite", scratch_directory)
    lake = factory.create()
    judge = Judge(lake)
    with judge.without_checks():
        _prepare(judge)
    backup = scratch_directory / f"{lake.directory.name}-backup"
    yield Walk(judge, backup)
    judge.close()
    shutil.rmtree(backup)
    factory.remove(lake)


@pytest.mark.parametrize("name", CASES)
def test_killed_and_run_again(walk: Walk, name: str) -> None:
    """IN-02, CL-01, EX-05: nothing is lost, nothing is there twice, and what was done is told."""
    case, location = CASES[name], walk.judge.lake.location
    passed, first = passes_of(walk.begin(case), location)
    walk.end(case)
    assert passed.items() >= case.passes.items()
    assert passed.keys() == case.passes.keys() or name in ("checkpoint", "in a bucket")
    for point, time in case.kills:
        work = walk.begin(case)
        before = catalog_fingerprint(walk.judge.lake)
        kill(work, location, point, time)
        if not case.damage:
            assert not catalog_faults(walk.judge.lake)
        if catalog_fingerprint(walk.judge.lake) != before:
            walk.look(case, f"killed at {point.value}:{time}")
        head, files = walk.judge.model.head, walk.judge.lake.stored_files()
        again = work.run(location)
        walk.end(case)
        if WORK_DONE in passed:
            assert _told(again) == _told(first)
        if point in (COMMITTED, PUT_BACK) and time == passed[point]:
            assert walk.judge.model.head == head
            assert walk.judge.lake.stored_files().keys() <= files.keys()


@pytest.mark.parametrize("lake_factory", ["duckdb", "postgres", "store"], indirect=True)
def test_killed_around_commit(judge: Judge) -> None:
    """Where the database itself has to come back: a log to be read again, a session to be ended."""
    location = judge.lake.location
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.create_table("main.t", TYPES)
    judge.client.release()
    for number, point in enumerate((UNCOMMITTED, COMMITTED)):
        rows = pairs([(number,), (number + 10,)])
        work = Work("ingest", ("main.t",), rows=arrow_table(TYPES, rows), key=point.value)
        change = {"main.t": judge.with_new_rows("main.t", [[v for _, v in row] for row in rows])}
        kill(work, location, point)
        log = Path(f"{location.target}.wal")
        assert log.exists() == (judge.lake.kind == "duckdb" and point is COMMITTED)
        if point is COMMITTED:
            judge.accept(change)
        judge.check()
        judge.client.release()
        again = work.run(location)
        if point is UNCOMMITTED:
            judge.accept(change)
        assert [table.snapshot_id for table in _told(again)] == [judge.model.head]
        judge.check()
        judge.client.make_way()
    judge.check_soundness()


@pytest.mark.parametrize("lake_factory", ["sqlite", "postgres", "store"], indirect=True)
def test_create_lake_killed_and_run_again(lake_under_test: LakeUnderTest) -> None:
    location = replace(lake_under_test.location, data_path=lake_under_test.data_path)
    Path(lake_under_test.data_path).mkdir()
    work = Work("create_lake")
    kill(work, location, UNCOMMITTED)
    kill(work, location, COMMITTED)
    made = catalog_fingerprint(lake_under_test)
    again = work.run(location)
    assert isinstance(again, OperationResult)
    assert (again.already_done, again.messages[0][:7]) == (True, "created")
    assert catalog_fingerprint(lake_under_test) == made
    with pytest.raises(ConfigurationError, match=r"(holds a lake|exists) already"):
        replace(work, key="run-2").run(location)
    client = lake_under_test.client()
    assert client.snapshot_ids() == [0]
    client.close()


def test_the_environment_arms_a_job_of_its_own(tmp_path: Path) -> None:
    lake = Lake.create(
        CatalogLocation.parse(f"ducklake:sqlite:{tmp_path}/c.sqlite", data_path=f"{tmp_path}/data/")
    )
    command = [sys.executable, "-m", "airflow_provider_ducklake.spark", "create_table", "--attach"]
    command += [lake.location.attach_string, "--table", "main.t", "--option", "columns=id int32"]
    command += ["--commit-key", "run-1", "--json"]
    armed = {**os.environ, VARIABLE: COMMITTED.value}
    killed = subprocess.run(command, env=armed, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [table.name for table in lake.tables()] == ["t"]
    again = subprocess.run(command, capture_output=True, check=True)
    assert json.loads(again.stdout)["already_done"] is True
    assert lake.head().snapshot_id == 1


def _told(result: OperationResult | TableResult) -> list[TableResult]:
    """Return what a result says of tables; what was left alone is not kept beside a commit."""
    tables = [result] if isinstance(result, TableResult) else result.tables
    return [replace(table, skipped=()) for table in tables]
