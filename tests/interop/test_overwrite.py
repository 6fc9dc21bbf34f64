"""Replacing rows while a stock client writes: nobody's rows go that the overwrite did not see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.errors import CommitConflict, ConfigurationError
from tests.interop.judge import Judge
from tests.support.lakes import on_every_kind

NEW: Final = pa.table({"id": pa.array([7, 8], pa.int32()), "k": pa.array([1, 1], pa.int32())})
ACTS: Final = {
    "insert": lambda judge: judge.insert_values("main.t", (100, 1), (101, 1)),
    "delete": lambda judge: judge.delete("main.t", "id = 1", lambda row: row["id"] == 1),
    "merge": lambda judge: judge.upkeep("merge_adjacent_files", "main.t"),
}


def _while(judge: Judge, act: Callable[[Judge], object]) -> Iterator[pa.RecordBatch]:
    """Give the new rows, and let somebody act before the last of them is written."""
    yield from NEW.slice(0, 1).to_batches()
    act(judge)
    judge.client.make_way()
    yield from NEW.slice(1).to_batches()


@pytest.fixture
def partitioned(judge: Judge) -> Judge:
    """A table partitioned by `k` with two files in partition 1 and one in partition 2."""
    judge.create_table("main.t", {"id": "INTEGER", "k": "INTEGER"})
    judge.alter("main.t", "SET PARTITIONED BY (k)")
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.insert_values("main.t", (1, 1), (2, 2))
    judge.insert_values("main.t", (3, 1))
    return judge


@pytest.mark.parametrize("mode", ["overwrite", "overwrite_partitions"])
@on_every_kind(("act",), [(act,) for act in ACTS], everywhere=("insert",))
def test_rows_written_meanwhile_stay(partitioned: Judge, mode: str, act: str) -> None:
    """The overwrite is refused, its files are gone, and all rows are as the others left them."""
    judge = partitioned
    with pytest.raises(CommitConflict):
        judge.operations.ingest("main.t", _while(judge, ACTS[act]), mode)
    judge.accept({})
    judge.check()
    assert not judge.unreferenced_files()


@pytest.mark.parametrize("mode", ["overwrite", "overwrite_partitions"])
@pytest.mark.parametrize("lake_factory", ["sqlite", "duckdb", "postgres"], indirect=True)
def test_rows_inlined_meanwhile_stay(partitioned: Judge, mode: str) -> None:
    """Rows in the catalog count as those in files do."""
    judge = partitioned
    judge.client.set_option("data_inlining_row_limit", 10)
    with pytest.raises(CommitConflict):
        judge.operations.ingest("main.t", _while(judge, ACTS["insert"]), mode)
    judge.accept({})
    judge.check()


def test_other_tables_do_not_matter(partitioned: Judge) -> None:
    """Rows that come into another table are kept, and the overwrite goes through."""
    judge = partitioned
    judge.create_table("main.u", {"id": "INTEGER"})
    batches = _while(judge, lambda judge: judge.insert_values("main.u", (1,)))
    judge.operations.ingest("main.t", batches, "overwrite_partitions")
    left = judge.table("main.t").delete(lambda row: row["k"] == 1)
    judge.accept({"main.t": left.insert({-1: (7, 1), -2: (8, 1)})})
    judge.check()


def test_no_rows_beside_those_of_an_empty_table(judge: Judge) -> None:
    """mode=error_if_exists looks again when it commits."""
    judge.create_table("main.t", {"id": "INTEGER", "k": "INTEGER"})
    with pytest.raises(ConfigurationError, match="has rows already"):
        judge.operations.ingest("main.t", _while(judge, ACTS["insert"]), "error_if_exists")
    judge.accept({})
    judge.check()
    assert not judge.unreferenced_files()
