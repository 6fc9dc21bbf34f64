"""A merge by key beside other writers: nobody's rows are lost, no key comes to be there twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.errors import CommitConflict
from tests.interop.judge import Judge
from tests.interop.merges import merged, run_merge
from tests.interop.palette import arrow_table, pairs

TYPES = {"id": "INTEGER", "v": "VARCHAR"}
ROWS = ((1, "u"), (45, "u"), (100, "u"), (301, "new"))
ACTS: dict[str, Callable[[Judge], object]] = {
    "insert": lambda judge: judge.insert_values("main.t", *((i, "x") for i in range(301, 321))),
    "inlined insert": lambda judge: judge.insert_values("main.t", (301, "x")),
    "delete": lambda judge: judge.delete("main.t", "id < 20", lambda row: row["id"] < 20),
    "inlined delete": lambda judge: judge.delete("main.t", "id = 45", lambda r: r["id"] == 45),
    "flush": lambda judge: judge.upkeep("flush_inlined_data", "main.t"),
    "rewrite": lambda judge: judge.upkeep("rewrite_data_files", "main.t", delete_threshold=0),
    "alter": lambda judge: judge.alter(
        "main.t", "ADD COLUMN n INTEGER", lambda table: table.add_column("n")
    ),
}


@pytest.fixture
def filled(judge: Judge) -> Judge:
    """A table with two data files, one of them with a delete file, and rows in the catalog."""
    judge.create_table("main.t", TYPES)
    judge.create_table("main.other", {"id": "INTEGER"})
    judge.insert_values("main.t", *((i, "a") for i in range(40)))
    judge.insert_values("main.t", *((i, "b") for i in range(40, 80)))
    judge.delete("main.t", "id BETWEEN 2 AND 15", lambda row: 2 <= row["id"] <= 15)
    judge.insert_values("main.t", (100, "small"), (101, "small"))
    return judge


def _while(judge: Judge, act: Callable[[], object]) -> Iterator[pa.RecordBatch]:
    """Give the source's rows, and let somebody act after the plan was made."""
    yield from arrow_table(TYPES, pairs(ROWS[:1])).to_batches()
    act()
    judge.client.make_way()
    yield from arrow_table(TYPES, pairs(ROWS[1:])).to_batches()


@pytest.mark.parametrize("lake_factory", ["sqlite"], indirect=True)
def test_what_others_did_meanwhile_is_a_conflict(filled: Judge) -> None:
    """Whatever happened to the table since the plan, nothing is changed and no file is left."""
    judge = filled
    with judge.without_checks():
        for name, act in ACTS.items():
            batches = _while(judge, partial(act, judge))
            with pytest.raises(CommitConflict):
                run_merge(judge, "main.t", batches, {"merge_keys": "id"})
            assert not judge.unreferenced_files(), name
    judge.check()


@pytest.mark.parametrize("lake_factory", ["sqlite"], indirect=True)
def test_commits_to_other_tables_do_not_matter(filled: Judge) -> None:
    """The delete file that takes up an older one names the snapshot that it came with."""
    judge = filled
    expected = merged(judge, "main.t", list(TYPES), ROWS, ["id"])
    batches = _while(judge, lambda: judge.insert_values("main.other", (1,), (2,)))
    run_merge(judge, "main.t", batches, {"merge_keys": "id"})
    judge.accept({"main.t": expected})
    judge.check()
    assert not judge.unreferenced_files()
    head = judge.model.head
    feed = judge.client.table_changes("main.t", 1, head).elements()
    gone = [(row[0], row[3]) for row in feed if row[2] in ("delete", "update_preimage")]
    assert sorted(gone)[-3:] == [(head, 1), (head, 45), (head, 100)]
    assert len(gone) == 14 + 3


@pytest.mark.parametrize("lake_factory", ["sqlite"], indirect=True)
def test_a_writer_in_progress(filled: Judge) -> None:
    """A stock client that began before the merge and ends after it has to begin again."""
    judge = filled
    other = judge.lake.client()
    statements = (
        "DELETE FROM main.t WHERE id IN (45, 100)",
        "DELETE FROM main.t WHERE id < 40",
        "UPDATE main.t SET v = 'x' WHERE id = 1",
        "INSERT INTO main.t VALUES (301, 'x')",
    )
    try:
        for number, statement in enumerate(statements):
            rows = [(key, f"u{number}") for key, _ in ROWS]
            other.sql("BEGIN")
            other.sql(statement)
            expected = merged(judge, "main.t", list(TYPES), rows, ["id"])
            run_merge(
                judge, "main.t", arrow_table(TYPES, pairs(rows)).to_batches(), {"merge_keys": "id"}
            )
            judge.accept({"main.t": expected})
            with pytest.raises(duckdb.Error, match=r"(?i)conflict"):
                other.sql("COMMIT")
            other.forget()
    finally:
        other.forget()
    judge.check()
