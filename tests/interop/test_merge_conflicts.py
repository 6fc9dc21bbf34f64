"""A merge by key beside other writers: nobody's rows are lost, no key comes to be there twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from tests.interop.judge import Judge
from tests.interop.merges import merged, run_merge
from tests.interop.palette import arrow_table, pairs

TYPES = {"id": "INTEGER", "v": "VARCHAR"}
ROWS = ((1, "u"), (45, "u"), (100, "u"), (301, "new"))


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
