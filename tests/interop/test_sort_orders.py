"""Sorted tables: what their order may call, when rows are sorted, and when they cannot be."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.errors import ConfigurationError
from tests.interop.catalog import live_files
from tests.interop.judge import Judge
from tests.interop.palette import pairs
from tests.support.lakes import on_two_kinds

_TYPES = {"id": "INTEGER", "v": "INTEGER"}
_MACROS = (
    "CREATE MACRO far(a, b := 3) AS abs(a - b), (a, b, c) AS a",
    "CREATE MACRO lowest(a INTEGER, other INTEGER := 0) AS far(a, other) % 101",
)


def _values(judge: Judge) -> list[list[int]]:
    """Return the values of each live file, in its order."""
    root = judge.lake.data_path + "main/t/"
    paths = [root + row["path"] for row in live_files(judge.catalog(), "t")]
    return [pq.read_table(path, columns=["v"]).column("v").to_pylist() for path in paths]


def _far(value: int) -> int:
    return abs(value - 3) % 101


def _define(judge: Judge, macros: tuple[str, ...] = _MACROS) -> None:
    for statement in macros:
        judge.execute(statement, {})


def _fill(judge: Judge) -> None:
    """Bring rows in by our ingest and by a stock client, in files and in the catalog."""
    judge.ingest("main.t", _TYPES, pairs([(i, i * 37 % 101) for i in range(50)]))
    judge.client.set_option("data_inlining_row_limit", 100)
    for start in (50, 60):
        judge.insert_values("main.t", *((i, i * 37 % 101) for i in range(start, start + 10)))


@pytest.mark.parametrize("call", ["lowest(v, 3)", "main.lowest(v, other := 3)"])
def test_macros_of_the_lake(judge: Judge, call: str) -> None:
    """Ingest, flush and merge sort by macros, one of which calls another."""
    _define(judge)
    judge.create_table("main.t", _TYPES)
    judge.alter("main.t", f"SET SORTED BY ({call}, v)")
    _fill(judge)
    judge.upkeep("flush_inlined_data")
    files = _values(judge)
    assert len(files) > 1
    assert files == [sorted(values, key=lambda v: (_far(v), v)) for values in files]
    judge.upkeep("merge_adjacent_files")
    (merged,) = _values(judge)
    assert merged == sorted(merged, key=lambda v: (_far(v), v))
    assert len(merged) == 70


@on_two_kinds
def test_a_macro_that_is_gone(judge: Judge) -> None:
    """Nobody can insert, as with a stock client; files are merged as they are."""
    _define(judge, ("CREATE MACRO negated(a) AS -a",))
    judge.create_table("main.t", _TYPES)
    judge.alter("main.t", "SET SORTED BY (negated(v))")
    _fill(judge)
    judge.execute("DROP MACRO negated", {})
    with pytest.raises(ConfigurationError, match="sort key 'negated"):
        judge.ingest("main.t", _TYPES, pairs([(1, 1)]))
    judge.upkeep("flush_inlined_data")
    judge.upkeep("merge_adjacent_files")
    assert len(_values(judge)) == 1
    judge.alter("main.t", "SET SORTED BY (-v)")
    judge.upkeep("merge_adjacent_files")
    judge.ingest("main.t", _TYPES, pairs([(100, 1), (101, 2)]))
    assert _values(judge)[-1] == [2, 1]


@on_two_kinds
def test_sort_on_insert(judge: Judge) -> None:
    """Rows come into files as they arrive where the option says so; a merge sorts them."""
    judge.create_table("main.t", _TYPES)
    judge.alter("main.t", "SET SORTED BY (v DESC)")
    judge.client.set_option("sort_on_insert", False, table="main.t")
    values = [i * 37 % 101 for i in range(100)]
    for half in (values[:50], values[50:]):
        judge.ingest("main.t", _TYPES, pairs([(i, v) for i, v in enumerate(half)]))
    assert _values(judge) == [values[:50], values[50:]]
    judge.upkeep("merge_adjacent_files")
    assert _values(judge) == [sorted(values, reverse=True)]
