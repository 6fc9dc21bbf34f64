"""Who can be in whose way: every operation of ours, and what a stock client may do meanwhile.

Both are about the table `s.t` that `prepare` makes, beside a table `s.o`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from airflow_provider_ducklake.lake import fault_points
from airflow_provider_ducklake.lake.cleanup import Watch
from airflow_provider_ducklake.lake.errors import CommitConflict
from airflow_provider_ducklake.lake.fault_points import FaultPoint
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.orphans import Listing
from airflow_provider_ducklake.lake.results import OperationResult, TableResult
from airflow_provider_ducklake.spark.operations import fsck, snapshots
from tests.interop.judge import Change, Judge
from tests.interop.merges import merged, run_merge
from tests.interop.palette import arrow_table, pairs, write_parquet
from tests.support.model import ModelTable, Predicate

TYPES: Final = {"id": "INTEGER", "v": "VARCHAR"}
TABLE, RENAMED, OTHER, NEW = "s.t", "s.t2", "s.o", "s.n"
RESTORED: Final = 2  # of the snapshots that `prepare` makes
_LONG_AGO: Final = 1_577_836_800
Changes = Mapping[str, ModelTable | None]


def prepare(judge: Judge) -> None:
    """Make a table in which every operation finds something to do."""
    judge.client.set_option("data_inlining_row_limit", 3)
    with judge.transaction():
        judge.client.sql("CREATE SCHEMA s")
        judge.create_table(TABLE, TYPES)
        judge.create_table(OTHER, TYPES)
    with judge.transaction():
        for first in (0, 10, 30):
            judge.insert_values(TABLE, *((i, "x") for i in range(first, first + 10)))
        judge.insert_values(OTHER, *((i, "o") for i in range(8)))
    assert judge.model.head == RESTORED
    # The second takes the place of the delete file of the first, which is scheduled for deletion.
    judge.delete(TABLE, "id BETWEEN 2 AND 5", lambda row: 2 <= row["id"] <= 5)
    judge.delete(TABLE, "id BETWEEN 6 AND 9", lambda row: 6 <= row["id"] <= 9)
    judge.insert_values(TABLE, *((i, "y") for i in range(40, 50)))
    judge.delete(TABLE, "id = 10", lambda row: row["id"] == 10)
    judge.insert_values(TABLE, (90, "in"), (91, "in"))
    write_parquet(judge.lake.directory / "raw" / "1.parquet", TYPES, pairs(_rows(221, 222)))
    write_parquet(Path(orphan_of(judge)), TYPES, pairs(_rows(231, 232)))
    os.utime(orphan_of(judge), (_LONG_AGO, _LONG_AGO))
    judge.change_catalog(
        "UPDATE ducklake_files_scheduled_for_deletion SET schedule_start = '2020-01-01 00:00:00+00'"
    )
    judge.change_catalog("INSERT INTO ducklake_table_stats VALUES (777, 1, 1, 1)")  # for fsck


def orphan_of(judge: Judge) -> str:
    """Return the path of a data file of rows 231 and 232 that no catalog names, an old one."""
    return f"{judge.lake.data_path}s/orphan.parquet"


def table_of(judge: Judge) -> str:
    """Return the name the table has now."""
    return TABLE if TABLE in judge.model.tables else RENAMED


def _rows(*ids: int) -> list[tuple[int, str]]:
    return [(i, "new") for i in ids]


@dataclass(frozen=True, slots=True)
class Theirs:
    """What a stock client does.

    Attributes:
        statements: In one snapshot each; `{head}` is the newest snapshot, `{orphan}` a file.
        effect: What it does to the model.
        expires: Snapshots that are gone then.
    """

    statements: tuple[str, ...]
    effect: Callable[[Judge], Changes] = lambda judge: {}
    expires: Callable[[Judge], tuple[int, ...]] = lambda judge: ()

    def begin(self, judge: Judge, run: Callable[[str], object]) -> None:
        """Run the statements."""
        head = judge.model.head
        for statement in self.statements:
            judge.log.append(f"{statement} -- stock")
            run(statement.format(head=head, next=head + 1, orphan=orphan_of(judge)))

    def done(self, judge: Judge) -> None:
        """Take up what came of them."""
        expired = self.expires(judge)
        judge.accept(self.effect(judge))
        judge.model.expire(expired)


def _changed(change: Change) -> Callable[[Judge], Changes]:
    return lambda judge: {table_of(judge): change(judge.table(table_of(judge)))}


def _inserted(*ids: int) -> Callable[[Judge], Changes]:
    return lambda judge: {table_of(judge): judge.with_new_rows(table_of(judge), _rows(*ids))}


def _inserted_elsewhere(first: int, end: int) -> Callable[[Judge], Changes]:
    return lambda judge: {OTHER: judge.with_new_rows(OTHER, _rows(*range(first, end)))}


def _without(where: Predicate) -> Callable[[Judge], Changes]:
    return _changed(lambda table: table.delete(where))


def _values(*ids: int) -> str:
    return ", ".join(f"({i}, 'new')" for i in ids)


def _renamed(judge: Judge, name: str, new: str) -> Changes:
    return {name: None, new: judge.table(name)}


_EVEN: Final = "id < 50 AND id % 2 = 0"


def _is_even(row: Mapping[str, Any]) -> bool:
    return bool(row["id"] < 50 and row["id"] % 2 == 0)


_ARGUMENTS: Final = "'lake', 't', schema => 's'"
THEIRS: Final = {
    "insert": Theirs(
        (f"INSERT INTO s.t VALUES {_values(*range(101, 106))}",), _inserted(*range(101, 106))
    ),
    "inlined insert": Theirs((f"INSERT INTO s.t VALUES {_values(111)}",), _inserted(111)),
    "delete": Theirs((f"DELETE FROM s.t WHERE {_EVEN}",), _without(_is_even)),
    "inlined delete": Theirs(
        ("DELETE FROM s.t WHERE id IN (1, 13, 31)",), _without(lambda row: row["id"] in (1, 13, 31))
    ),
    "delete inlined": Theirs(
        ("DELETE FROM s.t WHERE id = 90",), _without(lambda row: row["id"] == 90)
    ),
    "update": Theirs(
        (f"UPDATE s.t SET v = 'up' WHERE {_EVEN}",),
        _changed(lambda table: table.update(_is_even, lambda row: {"v": "up"})),
    ),
    "add column": Theirs(
        ("ALTER TABLE s.t ADD COLUMN n INTEGER DEFAULT 7",),
        _changed(lambda table: table.add_column("n", 7)),
    ),
    "drop column": Theirs(
        ("ALTER TABLE s.t DROP COLUMN v",), _changed(lambda table: table.drop_column("v"))
    ),
    "rename column": Theirs(
        ("ALTER TABLE s.t RENAME COLUMN v TO w",),
        _changed(lambda table: table.rename_column("v", "w")),
    ),
    "set default": Theirs(("ALTER TABLE s.t ALTER v SET DEFAULT 'd'",)),
    "rename table": Theirs(
        ("ALTER TABLE s.t RENAME TO t2",), lambda judge: _renamed(judge, TABLE, RENAMED)
    ),
    "drop table": Theirs(("DROP TABLE s.t",), lambda judge: {TABLE: None}),
    "create table n": Theirs(
        ("CREATE TABLE s.n (id INTEGER)",), lambda judge: {NEW: ModelTable(("id",))}
    ),
    "create view n": Theirs(("CREATE VIEW s.n AS SELECT 1 AS id",)),
    "rename to n": Theirs(
        ("ALTER TABLE s.o RENAME TO n",), lambda judge: _renamed(judge, OTHER, NEW)
    ),
    "drop schema": Theirs(
        ("DROP SCHEMA s CASCADE",),
        lambda judge: dict.fromkeys(judge.model.tables),
    ),
    "partition": Theirs(("ALTER TABLE s.t SET PARTITIONED BY (v)",)),
    "sort": Theirs(("ALTER TABLE s.t SET SORTED BY (id DESC)",)),
    "comment": Theirs(("COMMENT ON TABLE s.t IS 'said'",)),
    "merge files": Theirs((f"CALL ducklake_merge_adjacent_files({_ARGUMENTS})",)),
    "rewrite": Theirs((f"CALL ducklake_rewrite_data_files({_ARGUMENTS}, delete_threshold => 0)",)),
    "flush": Theirs(
        ("CALL ducklake_flush_inlined_data('lake', schema_name => 's', table_name => 't')",)
    ),
    "expire": Theirs(
        ("CALL ducklake_expire_snapshots('lake', versions => [1, 4])",),
        expires=lambda judge: (1, 4),
    ),
    "adopt": Theirs(
        ("CALL ducklake_add_data_files('lake', 't', '{orphan}', schema => 's')",),
        _inserted(231, 232),
    ),
    "clean up": Theirs(("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",)),
    "sweep": Theirs(
        ("CALL ducklake_delete_orphaned_files('lake', older_than => now() - INTERVAL 1 DAY)",)
    ),
    "other table": Theirs(
        (f"INSERT INTO s.o VALUES {_values(*range(101, 106))}",), _inserted_elsewhere(101, 106)
    ),
    # What was committed since our plan cannot be told any more.
    "history lost": Theirs(
        (
            f"INSERT INTO s.o VALUES {_values(*range(101, 106))}",
            f"INSERT INTO s.o VALUES {_values(*range(106, 111))}",
            "CALL ducklake_expire_snapshots('lake', versions => [{head}, {next}])",
        ),
        _inserted_elsewhere(101, 111),
        expires=lambda judge: (judge.model.head,),
    ),
}


@dataclass(frozen=True, slots=True)
class Ours:
    """An operation of ours.

    Attributes:
        operation: Its name.
        run: Does it.
        effect: What it does to the model, when it goes through.
        expires: Snapshots that are gone then.
        turn: Before which of its commits others act.
        moment: What it calls to commit, when that makes no snapshot.
    """

    operation: str
    run: Callable[[Judge], OperationResult | TableResult]
    effect: Callable[[Judge], Changes] = lambda judge: {}
    expires: tuple[int, ...] = ()
    turn: int = 1
    moment: tuple[object, str] | None = None


@dataclass(slots=True)
class Meanwhile:
    """Lets somebody act once, between the plan of an operation and its commit.

    Attributes:
        act: What happens then.
        turn: Before which of the operation's commits.
        happened: Whether it has.
        conflicts: How often a commit of the operation was refused.
    """

    act: Callable[[], object]
    turn: int = 1
    happened: bool = False
    conflicts: int = 0

    def pass_by(self) -> None:
        """Count a moment before a commit."""
        self.turn -= 1
        if not self.turn:
            self.happened = True
            self.act()

    @contextmanager
    def patched(self, moment: tuple[object, str] | None) -> Iterator[None]:
        """Act before any commit, or before a function is called that commits without a snapshot."""
        commit = Lake.commit

        def counted(*arguments: Any, **options: Any) -> Any:
            try:
                return commit(*arguments, **options)
            except CommitConflict:
                self.conflicts += 1
                raise

        def reached(point: FaultPoint) -> None:
            if point is FaultPoint.WORK_DONE:
                self.pass_by()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Lake, "commit", counted)
            if moment is None:
                patch.setattr(fault_points, "on_reach", reached)
            else:
                function = getattr(*moment)

                def call(*arguments: Any, **options: Any) -> Any:
                    self.pass_by()
                    return function(*arguments, **options)

                patch.setattr(*moment, call)
            yield


def _ours(
    name: str,
    *tables: str,
    effect: Callable[[Judge], Changes] = lambda judge: {},
    expires: tuple[int, ...] = (),
    turn: int = 1,
    moment: tuple[object, str] | None = None,
    **options: Any,
) -> Ours:
    def run(judge: Judge) -> OperationResult:
        return judge.operations.run(name, *tables, may_fail=True, **options)

    return Ours(name, run, effect, expires, turn, moment)


def _ingest(mode: str, *ids: int) -> Callable[[Judge], TableResult]:
    batches = arrow_table(TYPES, pairs(_rows(*ids))).to_batches() if ids else []
    return lambda judge: judge.operations.ingest(TABLE, batches, mode)


def _replaced(*ids: int) -> Callable[[Judge], Changes]:
    def effect(judge: Judge) -> Changes:
        name = table_of(judge)
        rows = judge.with_new_rows(name, _rows(*ids)).rows
        fresh = {row_id: row for row_id, row in rows.items() if row_id < 0}
        return {name: replace(judge.table(name), rows=fresh)}

    return effect


_MERGED: Final = [(i, "merged") for i in (1, 14, 34, 90, 301)]


def _merge(judge: Judge) -> TableResult:
    batches = arrow_table(TYPES, pairs(_MERGED)).to_batches()
    return run_merge(judge, TABLE, batches, {"merge_keys": "id"})


def _merged(judge: Judge) -> Changes:
    name = table_of(judge)
    return {name: merged(judge, name, list(TYPES), _MERGED, ["id"])}


def _restored(judge: Judge) -> Changes:
    return _put_back(judge, TABLE, table_of(judge))


def _put_back(judge: Judge, name: str, name_now: str) -> dict[str, ModelTable | None]:
    then, now = judge.model.tables_at(RESTORED)[name], judge.model.tables.get(name_now)
    next_row_id = max(then.next_row_id, now.next_row_id if now else 0)
    return {name_now: None, name: replace(then, next_row_id=next_row_id)}


def _lake_restored(judge: Judge) -> Changes:
    now = judge.model.tables
    other = OTHER if OTHER in now else NEW
    gone = dict.fromkeys(now)
    return {**gone, **_put_back(judge, TABLE, table_of(judge)), **_put_back(judge, OTHER, other)}


def _cleaned(judge: Judge) -> Changes:
    """See that what was scheduled long ago is gone."""
    scheduled = judge.catalog()["ducklake_files_scheduled_for_deletion"]
    assert not [row for row in scheduled if str(row["schedule_start"]).startswith("2020")]
    return {}


def _swept(judge: Judge) -> Changes:
    """See that the orphan is gone, unless it is none any more."""
    assert orphan_of(judge) not in judge.unreferenced_files()
    return {}


def _kept_up(judge: Judge) -> Changes:
    return {**_cleaned(judge), **_swept(judge)}


_BETWEEN_LOOKS: Final = (Listing, "require_share")
OURS: Final = {
    "append": Ours("ingest", _ingest("append", 201, 202), _inserted(201, 202)),
    "over": Ours("ingest", _ingest("overwrite", 211, 212), _replaced(211, 212)),
    "empty": Ours("ingest", _ingest("overwrite"), _replaced()),
    "upsert": Ours("ingest", _merge, _merged),
    "add": Ours(
        "add_data_files",
        lambda judge: judge.operations.run(
            "add_data_files",
            TABLE,
            sources=[f"{judge.lake.directory}/raw/*.parquet"],
            may_fail=True,
        ),
        _inserted(221, 222),
    ),
    "merge": _ours("merge_adjacent_files", TABLE),
    "rewrite": _ours("rewrite_data_files", TABLE, delete_threshold=0),
    "flush": _ours("flush_inlined_data", TABLE),
    "flush2": _ours("flush_inlined_data", TABLE, turn=2),
    "new": _ours(
        "create_table",
        NEW,
        columns="id int32",
        effect=lambda judge: {NEW: ModelTable(("id",))},
    ),
    "restore": _ours("restore", TABLE, snapshot=RESTORED, effect=_restored),
    "lake": _ours("restore", snapshot=RESTORED, effect=_lake_restored),
    "expire": _ours(
        "expire_snapshots",
        versions="3,5",
        expires=(3, 5),
        moment=(snapshots, "commit_expiry"),
    ),
    "clean": _ours("cleanup_old_files", effect=_cleaned, moment=(Watch, "still_unused")),
    "sweep": _ours("delete_orphaned_files", effect=_swept, moment=_BETWEEN_LOOKS),
    "fsck": _ours("fsck", repair=True, moment=(fsck, "commit_repair")),
    "check": _ours("checkpoint", delete_threshold=0, effect=_kept_up),
    "check3": _ours("checkpoint", delete_threshold=0, effect=_kept_up, turn=3),
}
