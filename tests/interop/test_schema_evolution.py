"""Schemas that change at every depth, between files of all origins and inlined rows, and upkeep."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.interop.catalog import live_files
from tests.interop.evolution import EVOLUTION, NESTED, forget_bounds_in_lists
from tests.interop.judge import Judge
from tests.interop.palette import write_parquet
from tests.interop.upkeep import OPERATIONS, Maintainer
from tests.interop.writes import STATEMENTS, Writer
from tests.support.lakes import LakeFactory

_EXAMPLES: Final = {"sqlite": 20, "postgres": 3, "duckdb": 2, "store": 3}
_SEED: Final = st.integers(0, 10_000)
_ROWS: Final = ("insert_small", "insert_large", "append", "register")
_CHANGES: Final = (
    *EVOLUTION,
    *("add_column", "drop_column", "rename_column", "widen_column"),
    *("partition", "delete", "update"),
)
_UPKEEP: Final = ("merge", "rewrite", "flush", "expire", "restore", "checkpoint")
# Rows between all changes, and upkeep now and then.
_ROUND: Final = st.tuples(
    st.sampled_from(_ROWS),
    st.sampled_from(_CHANGES),
    st.sampled_from((*_UPKEEP, "merge", "nothing")),
    _SEED,
)


def _run(judge: Judge, rounds: list[tuple[str, str, str, int]]) -> None:
    writer = Writer(judge, statements=STATEMENTS | EVOLUTION)
    shape = {"k": "INTEGER", "a": "INTEGER", "s": NESTED}
    judge.create_table("main.t", shape)
    writer.shapes["main.t"], writer.identities["main.t"] = shape, 0
    writer.remember()
    maintainer = Maintainer(judge, writer)
    for rows, change, operation, seed in rounds:
        with judge.without_checks():
            if rows in OPERATIONS:
                maintainer.run(rows, seed)
            else:
                writer.write(rows, 0, seed)
            writer.write(change, 0, seed)
        judge.check()
        writer.forget_bounds()
        if operation in OPERATIONS:
            maintainer.run(operation, seed)
    # In the end all that may be one file becomes one, and a stock client goes on with it.
    judge.expire(judge.model.kept[:-1], retain_last=1)
    maintainer.run("flush", 1)
    maintainer.run("merge", 7)
    judge.check()
    judge.client.sql("CALL ducklake_merge_adjacent_files('lake', 't')")
    judge.accept({})
    judge.check()
    judge.check_statistics(extremes=False)
    forget_bounds_in_lists(judge)
    judge.check_soundness()


def test_files_of_old_and_new_shapes(judge: Judge) -> None:
    """Files with the columns of long ago, and rows with those of now, are told apart by name."""
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.create_table("main.t", {"id": "INTEGER", "a": "INTEGER", "s": "STRUCT(x INTEGER)"})
    struct = ("{x: 1}", {"x": 1})
    judge.insert("main.t", [[("1", 1), ("10", 10), struct]])
    judge.alter("main.t", "ADD COLUMN b INTEGER DEFAULT 7", lambda t: t.add_column("b", 7))
    judge.alter(
        "main.t",
        "ADD COLUMN s.y INTEGER DEFAULT 5",
        lambda t: t.convert_column("s", lambda pairs: (*pairs, ("y", 5))),
    )
    judge.alter("main.t", "ALTER COLUMN b SET DEFAULT 9")
    judge.alter("main.t", "DROP COLUMN a", lambda t: t.drop_column("a"))
    judge.alter("main.t", "ADD COLUMN a VARCHAR", lambda t: t.add_column("a"))
    old = str(judge.lake.directory / "old.parquet")
    types = {"id": "INTEGER", "s": "STRUCT(x INTEGER)"}
    write_parquet(Path(old), types, [[("2", 2), struct]])
    # A registered file reads as one from before the column; new rows get what new rows get.
    rows = [(2, {"x": 1, "y": 5}, 7, None)]
    judge.add_files("main.t", [old], rows, allow_missing=True)
    now = {"id": "INTEGER", "s": "STRUCT(x INTEGER, y INTEGER)", "b": "INTEGER", "a": "VARCHAR"}
    new = [("3", 3), ("{x: 3, y: 3}", {"x": 3, "y": 3}), ("30", 30), ("'three'", "three")]
    judge.ingest("main.t", now, [new])
    judge.upkeep("merge_adjacent_files")
    judge.expire(judge.model.kept[:-1], retain_last=1)
    judge.upkeep("merge_adjacent_files")
    assert len(live_files(judge.catalog(), "t")) == 1
    judge.check_counts("main.t", {"b = 7": 2, "s.y = 5": 2, "a IS NULL": 2})
    judge.check_soundness()


@pytest.mark.parametrize("inlined", [0, 10], ids=["files", "inlined"])
def test_a_default_that_a_stock_client_lost(judge: Judge, inlined: int) -> None:
    """Snapshots show the default of a field, and later ones NULL; upkeep changes neither."""
    judge.client.set_option("data_inlining_row_limit", inlined)
    judge.create_table("main.t", {"id": "INTEGER", "s": "STRUCT(x INTEGER)"})
    judge.insert("main.t", [[("1", 1), ("{x: 1}", {"x": 1})]])
    judge.insert("main.t", [[("2", 2), ("{x: 2}", {"x": 2})]])
    judge.alter(
        "main.t",
        "ADD COLUMN s.y INTEGER DEFAULT 5",
        lambda t: t.convert_column("s", lambda pairs: (*pairs, ("y", 5))),
    )
    judge.insert("main.t", [[("3", 3), ("{x: 3, y: 3}", {"x": 3, "y": 3})]])
    with_default = judge.model.head
    judge.alter(
        "main.t",
        "RENAME COLUMN s.y TO z",
        lambda t: t.convert_column(
            "s", lambda pairs: (pairs[0], ("z", None if pairs[1][1] == 5 else pairs[1][1]))
        ),
    )
    judge.insert("main.t", [[("4", 4), ("{x: 4, z: 4}", {"x": 4, "z": 4})]])
    without = judge.model.head
    upkeep = ("merge_adjacent_files", "flush_inlined_data", "merge_adjacent_files")
    for name in upkeep:
        judge.upkeep(name)
    judge.check()
    for snapshot in (with_default, without, with_default):
        judge.restore(snapshot, "main.t")
        for name in upkeep:
            judge.upkeep(name)
        judge.check()
    judge.expire(judge.model.kept[:-1], retain_last=1)
    judge.upkeep("merge_adjacent_files")
    judge.check()
    judge.check_counts("main.t", {"s.y = 5": 2, "s.y IS NULL": 0, "s.y = 3": 1})
    judge.check_soundness()


@pytest.mark.timeout(0)
def test_any_changes(lake_factory: LakeFactory) -> None:
    """Every kept snapshot shows what it must, whatever was changed between whatever rows."""

    @settings(
        max_examples=_EXAMPLES[lake_factory.kind],
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(_ROUND, min_size=3, max_size=6))
    def run(rounds: list[tuple[str, str, str, int]]) -> None:
        lake = lake_factory.create()
        judge = Judge(lake)
        try:
            _run(judge, rounds)
        finally:
            judge.close()
            lake_factory.remove(lake)

    run()
