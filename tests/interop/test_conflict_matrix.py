"""Each of our operations beside each change of a stock client, in both orders.

Whatever comes of it: every kept snapshot shows the rows it should, the catalog is sound, and who
lost leaves no file of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import pytest

from airflow_provider_ducklake.lake.errors import CatalogUnavailable, CommitConflict
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.spark.operations import OPERATIONS
from tests.interop.conflicts import (
    OTHER,
    OURS,
    THEIRS,
    Meanwhile,
    Ours,
    Theirs,
    orphan_of,
    prepare,
)
from tests.interop.judge import Judge
from tests.interop.operations import Operations
from tests.interop.rewind import Rewind
from tests.support.lakes import LakeFactory, LakeKind

# The stock client commits between our plan and our commit:
#   .  ours goes through at once      a  ours plans again by itself and goes through
#   C  CommitConflict                 E  ours says that the table, or its schema, is not there
#   -  not tried: they have nothing in common that another cell does not show
# `empty` is an overwrite without rows, `upsert` an ingest with mode=merge, `flush2` the second
# commit of a flush, `new` a create_table, `lake` a restore of everything, `check` a checkpoint
# and `check3` the commit of its merge.
STOCK_FIRST: Final = """
              |append over empty upsert add merge rewrite flush flush2 new restore lake
insert        |  .     C     C     C     .    .      .      .     .     -     a     a
inlined insert|  .     C     C     C     .    .      .      .     .     -     a     a
delete        |  .     C     C     C     .    a      a      .     a     -     a     a
inlined delete|  .     C     C     C     .    a      a      .     a     -     a     a
delete inlined|  .     C     C     C     .    .      .      a     .     -     a     a
update        |  .     C     C     C     .    a      a      .     a     -     a     a
add column    |  C     C     C     C     C    a      a      .     a     -     a     a
drop column   |  C     C     C     C     C    a      a      .     a     -     a     a
rename column |  C     C     C     C     C    a      a      .     a     -     a     a
set default   |  C     C     C     C     C    a      a      .     a     -     a     a
partition     |  C     C     C     C     C    a      a      .     a     -     a     a
sort          |  .     C     C     C     .    a      a      .     a     -     a     a
comment       |  .     C     C     C     .    a      a      .     a     -     a     a
rename table  |  .     .     .     a     .    .      .      E     .     -     a     a
drop table    |  C     C     C     C     C    E      E      E     E     -     a     a
drop schema   |  C     C     C     C     C    E      E      E     E     C     E     a
create table n|  -     -     -     -     -    -      -      -     -     C     -     a
create view n |  -     -     -     -     -    -      -      -     -     C     -     a
rename to n   |  -     -     -     -     -    -      -      -     -     C     -     a
merge files   |  .     C     C     C     .    a      .      .     .     -     a     a
rewrite       |  .     C     C     C     .    .      a      .     a     -     a     a
flush         |  .     C     C     C     .    .      a      a     a     -     a     a
expire        |  .     .     .     .     .    .      .      .     .     .     .     .
adopt         |  -     -     -     -     -    .      -      -     -     -     a     a
clean up      |  -     -     -     -     -    -      -      -     -     -     -     .
sweep         |  -     -     -     -     -    -      -      -     -     -     -     .
other table   |  .     .     .     a     .    .      .      .     .     .     .     a
history lost  |  .     C     C     C     .    a      a      a     a     C     a     a
"""
UPKEEP_FIRST: Final = """
              |check check3 expire clean sweep fsck
insert        |  .     -      -      .     .    -
inlined insert|  .     -      -      -     -    -
delete        |  .     a      .      .     .    .
inlined delete|  .     a      -      -     -    -
delete inlined|  a     -      -      -     -    -
update        |  .     a      -      .     .    -
add column    |  .     a      -      -     -    -
drop column   |  .     -      -      -     -    -
rename column |  .     -      -      -     -    -
set default   |  .     -      -      -     -    -
partition     |  .     a      -      -     -    -
sort          |  .     -      -      -     -    -
comment       |  .     -      -      -     -    -
rename table  |  E     -      -      -     -    -
drop table    |  E     E      .      .     .    .
drop schema   |  E     E      -      .     .    -
create table n|  .     -      -      -     -    -
create view n |  .     -      -      -     -    -
rename to n   |  .     -      -      -     -    -
merge files   |  .     a      .      .     .    .
rewrite       |  .     .      .      .     .    .
flush         |  a     .      .      .     .    .
expire        |  .     .      .      .     .    .
adopt         |  .     -      -      .     .    -
clean up      |  .     -      -      .     .    -
sweep         |  .     -      -      .     .    -
other table   |  .     -      .      .     .    .
history lost  |  a     a      .      .     .    .
"""

# The stock client has done its statement in a transaction that it commits after our commit:
#   .  both go through                S  the stock client is told of a conflict
#   w  ours waits for the stock client, here until its patience ends
# Nobody can know of a file that is adopted but not committed: the sweep is not tried beside that.
STOCK_OPEN: Final = """
              |append over empty upsert add merge rewrite flush new restore lake
insert        |  .     S     S     S     .    .      .      .    -     S     S
inlined insert|  .     S     S     S     .    .      .      .    -     S     S
delete        |  S     S     S     S     S    S      S      S    -     S     S
inlined delete|  S     S     S     S     S    S      S      S    -     S     S
delete inlined|  S     S     S     S     S    S      S      S    -     S     S
update        |  S     S     S     S     S    S      S      S    -     S     S
add column    |  .     .     .     .     .    .      .      .    -     .     .
drop column   |  .     .     .     .     .    .      .      .    -     .     -
rename column |  .     .     .     .     .    .      .      .    -     .     -
set default   |  .     .     .     .     .    .      .      .    -     .     -
partition     |  .     .     .     .     .    .      .      .    -     .     .
sort          |  .     .     .     .     .    .      .      .    -     .     -
comment       |  .     .     .     .     .    .      .      .    -     .     .
rename table  |  .     .     .     .     .    .      .      .    -     .     .
drop table    |  .     .     .     .     .    .      .      .    -     .     .
drop schema   |  .     .     .     .     .    .      .      .    S     .     .
create table n|  -     -     -     -     -    -      -      -    S     -     .
create view n |  -     -     -     -     -    -      -      -    S     -     -
rename to n   |  -     -     -     -     -    -      -      -    S     -     -
merge files   |  .     S     S     S     .    S      S      S    -     S     S
rewrite       |  .     S     S     S     .    S      S      S    -     S     S
flush         |  S     w     w     w     S    S      S      w    -     w     w
expire        |  .     .     .     .     .    .      .      .    .     .     .
adopt         |  -     -     -     -     -    .      -      -    -     S     S
clean up      |  -     -     -     -     -    -      -      -    -     -     .
sweep         |  -     -     -     -     -    -      -      -    -     -     .
other table   |  .     .     .     .     .    .      .      .    .     .     .
"""
UPKEEP_OPEN: Final = """
              |check expire clean sweep fsck
insert        |  .     -      -     -    -
delete        |  S     .      .     .    .
inlined delete|  S     -      -     -    -
delete inlined|  S     -      -     -    -
update        |  S     -      -     -    -
add column    |  .     -      -     -    -
drop table    |  .     .      .     .    .
drop schema   |  .     -      -     -    -
merge files   |  S     .      .     .    .
rewrite       |  S     .      .     .    .
flush         |  w     .      .     .    .
expire        |  .     .      .     .    .
adopt         |  -     -      .     -    -
clean up      |  w     -      w     .    -
sweep         |  .     -      .     .    -
other table   |  .     .      .     .    .
"""

# The operation of the row, by another job of ours, runs as a whole between plan and commit of that
# of the column; letters as in the first table.
OUR_OWN: Final = """
              |append over upsert merge rewrite flush restore
append        |   .    C     C      .      .      .      a
over          |   .    C     C      a      a      a      a
upsert        |   .    C     C      a      a      a      a
merge         |   .    C     C      a      .      .      a
rewrite       |   .    C     C      .      a      .      a
flush         |   .    C     C      .      a      a      a
restore       |   .    C     C      a      a      a      a
"""
# They change nothing, make what nobody can know of before, or run the others.
_APART: Final = {"info", "create_lake", "fleet_maintenance"}
Cells = dict[str, dict[str, str]]


def _cells(table: str) -> Cells:
    """Return what a table expects: for each of our operations, the stock client's changes."""
    header, *lines = (line.split("|") for line in table.strip("\n").splitlines())
    cells: Cells = {name: {} for name in header[1].split()}
    for their, marks in lines:
        for row, mark in zip(cells.values(), marks.split(), strict=True):
            if mark != "-":
                row[their.strip()] = mark
    return cells


_FIRST = _cells(STOCK_FIRST) | _cells(UPKEEP_FIRST)
_OPEN = _cells(STOCK_OPEN) | _cells(UPKEEP_OPEN)
_OWN = _cells(OUR_OWN)


def test_every_operation_and_every_change_has_its_place() -> None:
    for cells in (_FIRST, _OPEN):
        assert cells.keys() | {"flush2", "check3"} == OURS.keys()
    assert {name for row in _FIRST.values() for name in row} == THEIRS.keys()
    assert {name for row in _OPEN.values() for name in row} == THEIRS.keys() - {"history lost"}
    assert {ours.operation for ours in OURS.values()} | _APART == OPERATIONS.keys()


@dataclass(frozen=True, slots=True)
class _Impatient(Operations):
    def open(self) -> Lake:
        return Lake.open(self.lake.location, lock_timeout=0.3)


@pytest.fixture(scope="module")
def rewind(request: pytest.FixtureRequest, scratch_directory: Path) -> Iterator[Rewind]:
    """One lake for all cells of an order."""
    kind: LakeKind = request.param
    conninfo = None
    if kind == "postgres":
        conninfo = request.getfixturevalue("postgres_server").create_database("conflicts")
    factory = LakeFactory(kind, scratch_directory, conninfo)
    judge = Judge(factory.create())
    judge.operations = _Impatient(judge.lake, judge.client.make_way)
    with judge.without_checks():
        prepare(judge)
    judge.check()
    rewind = Rewind(judge)
    yield rewind
    rewind.close()
    judge.close()
    factory.remove(judge.lake)


def _run(judge: Judge, ours: Ours) -> str:
    """Run an operation of ours, take up what it did, and say how it ended."""
    try:
        result = ours.run(judge)
    except CommitConflict:
        return "C"
    except CatalogUnavailable as error:
        return "w" if "held a lock" in str(error) else str(error)
    errors = [failure.message for failure in getattr(result, "failures", ())]
    errors += [table.error for table in getattr(result, "tables", ()) if table.error]
    if errors:
        if any("held a lock" in error for error in errors):
            judge.accept({})
            return "w"
        assert any("unknown table" in e or "schema was dropped" in e for e in errors), errors
        judge.accept({})
        return "E"
    judge.model.expire(ours.expires)
    now = judge.model.tables
    judge.accept({n: table for n, table in ours.effect(judge).items() if table != now.get(n)})
    return "."


def _look(judge: Judge, theirs: set[str]) -> None:
    """See that all is as it should be, but for files that the stock client has left."""
    judge.check(*{name for t in judge.model.kept for name in judge.model.tables_at(t)} - {OTHER})
    judge.check_catalog()
    left = judge.unreferenced_files() - theirs - {orphan_of(judge)}
    assert not left, judge.message("files", left)


def _meanwhile(judge: Judge, ours: Ours, act: Callable[[], None]) -> str:
    meanwhile = Meanwhile(act, ours.turn)
    with meanwhile.patched(ours.moment):
        outcome = _run(judge, ours)
    assert meanwhile.happened
    _look(judge, set())
    return "a" if outcome == "." and meanwhile.conflicts else outcome


def _stock_first(judge: Judge, ours: Ours, theirs: Theirs) -> str:
    def act() -> None:
        judge.accept({})
        theirs.begin(judge, judge.client.sql)
        theirs.done(judge)
        judge.client.release()

    return _meanwhile(judge, ours, act)


def _stock_open(judge: Judge, ours: Ours, theirs: Theirs) -> str:
    other = judge.lake.client()
    try:
        other.sql("BEGIN")
        theirs.begin(judge, other.sql)
        written = judge.unreferenced_files()
        outcome = _run(judge, ours)
        try:
            other.sql("COMMIT")
        except duckdb.Error as error:
            outcome = outcome.replace(".", "S" if "conflict" in str(error) else str(error))
        else:
            theirs.done(judge)
    finally:
        other.forget()  # or what it has locked would be in the way of the next cell
    _look(judge, written)
    return outcome


def _compare(rewind: Rewind, expected: dict[str, str], cell: Callable[[Judge, str], str]) -> None:
    wrong: list[str] = []
    for their in expected:
        rewind.back()
        try:
            found = cell(rewind.judge, their)
        except AssertionError as error:
            found = str(error)
        if found != expected[their]:
            wrong.append(f"{their}: {found}, not {expected[their]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("rewind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", _FIRST)
def test_stock_client_commits_first(rewind: Rewind, name: str) -> None:
    """CC-01, CC-03: what a stock client committed after our plan is kept, and told of."""
    _compare(rewind, _FIRST[name], lambda j, their: _stock_first(j, OURS[name], THEIRS[their]))


@pytest.mark.parametrize("rewind", ["postgres"], indirect=True)
@pytest.mark.parametrize("name", _OPEN)
def test_stock_client_commits_last(rewind: Rewind, name: str) -> None:
    """CC-01, CC-04: what we committed is kept by a stock client that had begun before."""
    _compare(rewind, _OPEN[name], lambda j, their: _stock_open(j, OURS[name], THEIRS[their]))


@pytest.mark.parametrize("rewind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", _OWN)
def test_two_jobs_of_ours(rewind: Rewind, name: str) -> None:
    """CC-03: of two jobs on one table none undoes the other, and no file is retired twice."""

    def cell(judge: Judge, other: str) -> str:
        def act() -> None:
            assert _run(judge, OURS[other]) == "."
            judge.client.release()

        outcome = _meanwhile(judge, OURS[name], act)
        scheduled = judge.catalog()["ducklake_files_scheduled_for_deletion"]
        assert len({row["path"] for row in scheduled}) == len(scheduled)
        return outcome

    _compare(rewind, _OWN[name], cell)
