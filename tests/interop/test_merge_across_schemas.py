"""merge_adjacent_files over files from both sides of a change of schema, and stock upkeep after."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider_ducklake.lake.results import TableResult
from tests.interop.catalog import live_files
from tests.interop.foreign_files import write_file
from tests.interop.judge import Judge
from tests.interop.stock_upkeep import stock_upkeep

on_two_databases = pytest.mark.parametrize("lake_factory", ["sqlite", "postgres"], indirect=True)
pytestmark = on_two_databases


@pytest.fixture(autouse=True)
def files_only(judge: Judge) -> Iterator[None]:
    """Make every insert a data file, however small."""
    judge.client.set_option("data_inlining_row_limit", 0)
    yield
    judge.check_soundness(after_stock_rewrite=True)


def _merge(judge: Judge, **options: object) -> TableResult:
    (table,) = judge.upkeep("merge_adjacent_files", "main.t", **options).tables
    return table


def _expire_to(judge: Judge, first_kept: int) -> None:
    gone = [snapshot for snapshot in judge.model.kept if snapshot < first_kept]
    judge.expire(gone, versions=",".join(map(str, gone)))


def test_the_past_is_gone(judge: Judge) -> None:
    """Columns added, widened and renamed, and a file without field ids: all become one file."""
    judge.create_table("main.t", {"id": "INTEGER", "v": "VARCHAR"})
    judge.insert_values("main.t", (1, "one"), (2, None))
    source = write_file(judge, "f.parquet", {"v": "VARCHAR", "id": "INTEGER"}, [("three", 3)])
    judge.add_files("main.t", [source], [(3, "three")])
    judge.alter("main.t", "ADD COLUMN n INTEGER DEFAULT 7", lambda t: t.add_column("n", 7))
    judge.alter("main.t", "ALTER COLUMN id TYPE BIGINT")
    judge.alter("main.t", "RENAME COLUMN v TO w", lambda t: t.rename_column("v", "w"))
    judge.insert_values("main.t", (4, "four", 40), (2**40, "five", None))
    left = _merge(judge)
    assert left.files_in == 2
    assert [s.reason[:14] for s in left.skipped] == ["schema changed"]
    _expire_to(judge, judge.model.head - 1)
    feed = judge.changes("main.t")
    assert (_merge(judge).files_in, len(live_files(judge.catalog(), "t"))) == (2, 1)
    assert judge.changes("main.t") == feed
    judge.check_counts("main.t", {"n = 7": 3, "n IS NULL": 1, "n > 7": 1, "id > 5": 1})
    judge.insert_values("main.t", (6, "six", 60))
    stock_upkeep(judge)


def test_the_change_itself_is_kept(judge: Judge) -> None:
    """A file that begins at a kept snapshot is new at it to a change feed, with all its rows."""
    judge.create_table("main.t", {"id": "INTEGER"})
    judge.insert_values("main.t", (1,))
    judge.alter("main.t", "ADD COLUMN n INTEGER", lambda t: t.add_column("n"))
    change = judge.model.head
    judge.insert_values("main.t", (2, 20))
    judge.insert_values("main.t", (3, 30))
    _expire_to(judge, change)
    feed = judge.changes("main.t")
    result = _merge(judge)
    assert result.files_in == 2
    assert [s.reason for s in result.skipped] == [
        f"schema changed at snapshot {change}: snapshot {change} is kept and needs the files from "
        "before as they are (expire_snapshots)"
    ]
    assert judge.changes("main.t") == feed
    _expire_to(judge, change + 1)
    feed = judge.changes("main.t")
    assert _merge(judge).files_in == 2
    assert judge.changes("main.t") == feed
    stock_upkeep(judge)


def test_snapshots_from_before_any_of_the_files(judge: Judge) -> None:
    """An old snapshot that sees none of them is in nobody's way."""
    judge.create_table("main.t", {"id": "INTEGER"})
    oldest = judge.model.head
    judge.insert_values("main.t", (1,))
    judge.alter("main.t", "ADD COLUMN n INTEGER DEFAULT 3", lambda t: t.add_column("n", 3))
    judge.insert_values("main.t", (2, 20))
    gone = range(oldest + 1, judge.model.head)
    judge.expire(gone, versions=",".join(map(str, gone)))
    feed = judge.changes("main.t")
    assert _merge(judge).files_in == 2
    assert judge.changes("main.t") == feed
    judge.insert_values("main.t", (3, 30))
    stock_upkeep(judge)


def test_nothing_was_added(judge: Judge) -> None:
    """Where columns were dropped or renamed at most, all snapshots may be kept."""
    judge.create_table("main.t", {"id": "INTEGER", "a": "INTEGER", "b": "VARCHAR"})
    judge.insert_values("main.t", *((i, i, "large") for i in range(100)))
    judge.insert_values("main.t", (101, 1, "one"))
    judge.alter("main.t", "ALTER COLUMN a SET DEFAULT 5")
    judge.alter("main.t", "ALTER COLUMN id SET NOT NULL")
    judge.insert_values("main.t", (102, 2, "two"))
    judge.alter("main.t", "RENAME COLUMN b TO c", lambda t: t.rename_column("b", "c"))
    judge.insert_values("main.t", (103, 3, "three"))
    judge.alter("main.t", "DROP COLUMN a", lambda t: t.drop_column("a"))
    judge.insert_values("main.t", (104, "four"))
    feed = judge.changes("main.t")
    sizes = sorted(file["file_size_bytes"] for file in live_files(judge.catalog(), "t"))
    result = _merge(judge, max_file_size=sizes[-1])
    assert (result.files_in, result.files_out) == (4, 1)
    assert judge.changes("main.t") == feed
    stock_upkeep(judge)


def test_columns_that_had_to_be_filled(judge: Judge) -> None:
    """No file that begins while a column was NOT NULL gets a NULL: a client would refuse it."""
    number = "INTEGER NOT NULL"
    judge.create_table("main.t", {"id": "INTEGER", "a": number, "b": number})
    judge.insert_values("main.t", *((i, i, i) for i in range(10)))
    judge.insert_values("main.t", (11, 1, 1))
    judge.alter("main.t", "ALTER COLUMN b DROP NOT NULL")
    judge.insert_values("main.t", (12, 2, None))
    judge.alter("main.t", "DROP COLUMN a", lambda t: t.drop_column("a"))
    judge.insert_values("main.t", (13, None))
    result = _merge(judge)
    assert result.files_in == 2
    assert [s.reason[:14] for s in result.skipped] == ["schema changed"] * len(result.skipped)
    stock_upkeep(judge)
    _expire_to(judge, judge.model.head)
    assert len(live_files(judge.catalog(), "t")) > 1
    _merge(judge)
    assert len(live_files(judge.catalog(), "t")) == 1
    stock_upkeep(judge)


def test_fields_of_structs(judge: Judge) -> None:
    """A field that is added ends a shape, one that is dropped or renamed does not."""
    kind = "STRUCT(x INTEGER, y STRUCT(z VARCHAR))"
    judge.create_table("main.t", {"id": "INTEGER", "s": kind})
    judge.insert("main.t", [[("1", 1), ("{x: 1, y: {z: 'a'}}", {"x": 1, "y": {"z": "a"}})]])
    judge.alter(
        "main.t",
        "RENAME COLUMN s.x TO xx",
        lambda t: t.convert_column("s", lambda s: (("xx", s[0][1]), s[1])),
    )
    judge.insert("main.t", [[("2", 2), ("{xx: 2, y: {z: 'b'}}", {"xx": 2, "y": {"z": "b"}})]])
    assert _merge(judge).files_in == 2
    judge.alter(
        "main.t",
        "ADD COLUMN s.y.n INTEGER",
        lambda t: t.convert_column("s", lambda s: (s[0], ("y", (*s[1][1], ("n", None))))),
    )
    new = {"xx": 3, "y": {"z": "c", "n": 3}}
    judge.insert("main.t", [[("3", 3), ("{xx: 3, y: {z: 'c', n: 3}}", new)]])
    assert _merge(judge).files_in == 0
    _expire_to(judge, judge.model.head)
    assert _merge(judge).files_in == 2
    new = {"xx": 4, "y": {"z": None, "n": 4}}
    judge.insert("main.t", [[("4", 4), ("{xx: 4, y: {z: NULL, n: 4}}", new)]])
    stock_upkeep(judge)


def test_files_that_hold_columns_added_later(judge: Judge) -> None:
    """A file that begins before a column of its own, as other clients may make: nothing is lost."""
    judge.create_table("main.t", {"id": "INTEGER"})
    before = judge.model.head
    judge.alter("main.t", "ADD COLUMN n INTEGER", lambda t: t.add_column("n"))
    judge.insert_values("main.t", (1, 10))
    judge.insert_values("main.t", (2, 20))
    _expire_to(judge, judge.model.head)
    judge.change_catalog(f"UPDATE ducklake_data_file SET begin_snapshot = {before}")
    assert _merge(judge).files_in == 2
    judge.insert_values("main.t", (3, 30))
    stock_upkeep(judge)
