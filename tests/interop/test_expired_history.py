"""What expired snapshots changed is told for a day to whoever began before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import duckdb
import pytest

from airflow_provider_ducklake.lake.changes import told_without_files
from airflow_provider_ducklake.lake.commit import CommitInfo
from tests.interop.conflicts import OURS, THEIRS, Meanwhile, prepare
from tests.interop.judge import Judge
from tests.interop.rewind import Rewind
from tests.support.lakes import LakeFactory

_ROWS: Final = "SELECT rowid, id, v FROM s.t ORDER BY ALL"
LONG_AGO: Final = "UPDATE ducklake_snapshot SET snapshot_time = '2026-01-01 00:00:00+00'"
# What somebody commits while a transaction of a stock client is open, and the changes of that
# transaction that cannot stand beside it.
DELETES: Final = ("delete", "inlined delete", "delete inlined", "update")
COMPACTIONS: Final = ("merge files", "rewrite")
OUR_WORK: Final = {
    "merge": (*DELETES, *COMPACTIONS),
    "rewrite": (*DELETES, *COMPACTIONS),
    "flush": DELETES,
    "over": ("inlined insert", *DELETES, *COMPACTIONS),
    "upsert": ("insert", *DELETES, *COMPACTIONS),
    "restore": ("insert", *DELETES, *COMPACTIONS),
}
STOCK_WORK: Final = {
    "DELETE FROM s.t": ("insert", *DELETES, *COMPACTIONS),
    "DELETE FROM s.t WHERE id >= 30": ("insert", *DELETES, *COMPACTIONS),
    "ALTER TABLE s.t DROP COLUMN v": ("insert", "inlined insert", "add column", *DELETES),
    "CALL ducklake_rewrite_data_files('lake', 't', schema => 's', delete_threshold => 0)": (
        "delete",
        "update",
    ),
}


@pytest.fixture(scope="module")
def rewind(request: pytest.FixtureRequest, scratch_directory: Path) -> Iterator[Rewind]:
    """One lake in PostgreSQL, the only kind in which others commit beside an open transaction."""
    conninfo = request.getfixturevalue("postgres_server").create_database("expired_history")
    factory = LakeFactory("postgres", scratch_directory, conninfo)
    judge = Judge(factory.create())
    with judge.without_checks():
        prepare(judge)
    rewind = Rewind(judge)
    yield rewind
    rewind.close()
    judge.close()
    factory.remove(judge.lake)


def _outcome(rewind: Rewind, name: str, work: Callable[[Judge], object]) -> str:
    """Tell what becomes of a change of a stock client, whose history expires before it commits."""
    rewind.back()
    judge, other = rewind.judge, rewind.judge.lake.client()
    try:
        other.sql("BEGIN")
        THEIRS[name].begin(judge, other.sql)
        work(judge)
        # The newest snapshot stays: let it be one that has nothing to say of the table.
        judge.client.sql("INSERT INTO s.o VALUES (900, 'later')")
        judge.operations.run("expire_snapshots", retain_last=1)
        assert len(judge.client.snapshot_ids()) == 1
        other.sql("COMMIT")
    except duckdb.Error as error:
        return "told" if "conflict" in str(error) else str(error)
    finally:
        other.close()
    return "committed"


@pytest.mark.parametrize("ours", OUR_WORK)
def test_a_stock_client_is_told_of_what_we_did(rewind: Rewind, ours: str) -> None:
    """CC-03: a commit of ours is a conflict of an open transaction, expired or not."""
    for name in OUR_WORK[ours]:
        assert _outcome(rewind, name, OURS[ours].run) == "told", name


@pytest.mark.parametrize("statement", STOCK_WORK)
def test_a_stock_client_is_told_of_what_another_did(rewind: Rewind, statement: str) -> None:
    """CC-03: of files that are gone from the catalog it takes the table's word."""
    for name in STOCK_WORK[statement]:
        found = _outcome(rewind, name, lambda judge: judge.client.sql(statement))
        assert found == "told", name


def test_what_others_did_in_the_meantime(rewind: Rewind) -> None:
    """CC-03: a job of ours goes on too, when it can tell that nothing of it is in its way."""
    rewind.back()
    judge = rewind.judge

    def meanwhile() -> None:
        for value in (900, 901):
            judge.client.sql(f"INSERT INTO s.o VALUES ({value}, 'later')")
        judge.operations.run("expire_snapshots", retain_last=1)
        judge.client.release()

    rows, others = judge.client.sql(_ROWS), Meanwhile(meanwhile)
    with others.patched(None):
        result = judge.operations.run("merge_adjacent_files", "s.t")
    assert (others.happened, others.conflicts) == (True, 0)
    assert result.tables[0].files_in > 1
    assert judge.client.sql(_ROWS) == rows


def _told(judge: Judge) -> dict[int, str]:
    return {
        row["snapshot_id"]: row["changes_made"]
        for row in judge.catalog()["ducklake_snapshot_changes"]
    }


def test_changes_go_when_they_are_a_day_old(judge: Judge) -> None:
    """EX-06: nothing is left behind for good."""
    judge.create_table("main.t", {"id": "INTEGER"})
    for value in range(20, 26):
        judge.insert_values("main.t", *((value,) for _ in range(20)))
    judge.delete("main.t", "id = 20", lambda row: row["id"] == 20)
    judge.insert_values("main.t", (29,))
    before = _told(judge)
    judge.expire(judge.model.kept[1:-1], versions=f"1..{judge.model.head - 1}")
    now = _told(judge)
    assert now == {i: told_without_files(text) for i, text in before.items()}
    assert now != before
    assert not judge.operations.run("fsck").findings
    judge.change_catalog(f"{LONG_AGO} WHERE snapshot_id = {judge.model.head}")
    judge.insert_values("main.t", (30,))
    first = judge.model.kept[0]
    judge.expire([first], versions=str(first))
    assert _told(judge).keys() == set(judge.model.kept)
    judge.check()


def test_a_job_finds_what_it_did_in_an_expired_snapshot(judge: Judge) -> None:
    """A task that is cleared after an expiry loads nothing twice."""
    judge.create_table("main.t", {"id": "INTEGER"})
    judge.client.make_way()
    lake = judge.operations.open()
    info = CommitInfo(key="load/1")
    first = lake.commit(base=None, changes=[], write=lambda writer: "made", info=info)
    judge.accept({})
    judge.insert_values("main.t", (1,))
    judge.expire(judge.model.kept[:-1], retain_last=1)
    judge.client.make_way()
    again = lake.commit(base=None, changes=[], write=lambda writer: "made", info=info)
    assert (again.already_done, again.snapshot_id) == (True, first.snapshot_id)
