"""add_data_files: files somebody else wrote become part of a table, or are refused by name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.results import Skipped
from tests.interop.aftermath import life_goes_on
from tests.interop.catalog import live_files
from tests.interop.foreign_files import ADD, require_refusal, write_arrow, write_file
from tests.interop.judge import Judge


def test_registered_once(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """AD-01: a retry, or another spelling of the same file, adds nothing and is told."""
    judge.create_table("main.t", {"id": "INTEGER"})
    one = write_file(judge, "one.parquet", {"id": "INTEGER"}, [(1,)])
    planned = judge.dry_run(ADD, "main.t", sources=[one])
    assert (planned.tables[0].files_out, planned.tables[0].rows) == (1, 1)
    judge.add_files("main.t", [one], [(1,)])
    head = judge.model.head
    directory = str(Path(one).parent)
    monkeypatch.chdir(directory)
    for again in (one, f"{directory}/./one.parquet", f"{directory}//one.parquet", "one.parquet"):
        result = judge.add_files("main.t", [again], [])
        (table,) = result.tables
        assert (table.files_out, table.rows) == (0, 0)
        assert sum(skipped.count for skipped in table.skipped) == 1
    assert judge.model.head == head, "nothing new makes no snapshot"
    require_refusal(judge, [one], "one.parquet", "on_duplicate", on_duplicate="error")


def test_half_registered_batch(judge: Judge) -> None:
    """AD-01: of five files of which two are there, exactly three come, in one snapshot."""
    judge.create_table("main.t", {"id": "INTEGER"})
    files = [write_file(judge, f"{i}.parquet", {"id": "INTEGER"}, [(i,)]) for i in range(5)]
    judge.add_files("main.t", files[:2], [(0,), (1,)])
    head = judge.model.head
    pattern = str(judge.lake.directory / "raw" / "*.parquet")
    result = judge.add_files("main.t", [pattern, files[3]], [(2,), (3,), (4,)])
    assert result.tables[0].files_out == 3
    assert judge.model.head == head + 1


def test_mappings_of_two_writers(judge: Judge) -> None:
    """Name mappings of two writers never share an id, and attached clients find new ones."""
    judge.create_table("main.t", {"id": "INTEGER"})
    # Objects whose ids run ahead of the files': the two kinds must not be taken for each other.
    for number in range(5):
        judge.create_table(f"main.other{number}", {"id": "INTEGER"})
    with_extra = [
        write_file(judge, f"{name}.parquet", {"id": "INTEGER", name: "INTEGER"}, [(i, 0)])
        for i, name in enumerate("abcd")
    ]
    for i, path in enumerate(with_extra):
        if i % 2:
            judge.add_files("main.t", [path], [(i,)], ignore_extra_columns=True)
        else:
            call = (
                f"CALL ducklake_add_data_files('lake', 't', '{path}', ignore_extra_columns => true)"
            )
            judge.insert_by(call, "main.t", [(i,)])
        judge.check()
    life_goes_on(judge, "main.t")


def test_retired_file(judge: Judge) -> None:
    """AD-01: a file that was registered and replaced is refused aloud, never passed over."""
    judge.create_table("main.t", {"id": "INTEGER"})
    files = [write_file(judge, f"{i}.parquet", {"id": "INTEGER"}, [(i,)]) for i in range(2)]
    judge.add_files("main.t", files, [(0,), (1,)])
    (again,) = judge.add_files("main.t", files, []).tables
    assert (again.files_before, again.files_after, again.is_changed) == (2, 2, False)
    assert again.skipped == (Skipped("registered already", 2),)
    judge.delete("main.t", "id = 0", lambda row: row["id"] == 0)
    judge.upkeep("rewrite_data_files", delete_threshold=0)
    require_refusal(judge, files[:1], "0.parquet")
    judge.insert_values("main.t", *((i,) for i in range(10, 30)))
    judge.upkeep("merge_adjacent_files")
    require_refusal(judge, files[1:], "1.parquet")
    copy = shutil.copy(files[0], judge.lake.directory / "raw" / "copy.parquet")
    judge.add_files("main.t", [str(copy)], [(0,)])


def test_missing_and_extra_columns(judge: Judge) -> None:
    """AD-06: missing columns read their default when asked for; extra ones are left alone."""
    judge.create_table("main.t", {"id": "INTEGER"})
    judge.alter("main.t", "ADD COLUMN b INTEGER DEFAULT 7", lambda t: t.add_column("b", 7))
    judge.alter("main.t", "ADD COLUMN c INTEGER", lambda t: t.add_column("c"))
    less = write_file(judge, "less.parquet", {"id": "INTEGER"}, [(1,)])
    more = write_file(judge, "more.parquet", {"id": "INTEGER", "x": "INTEGER"}, [(2, 0)])
    require_refusal(judge, [less], "less.parquet", "column b ")
    require_refusal(judge, [more], "more.parquet", "x", allow_missing=True)
    judge.add_files("main.t", [less], [(1, 7, None)], allow_missing=True)
    judge.check_counts("main.t", {"b = 7": 1})
    judge.add_files("main.t", [more], [(2, 7, None)], allow_missing=True, ignore_extra_columns=True)
    judge.check_counts("main.t", {"b = 7": 2})
    catalog = judge.catalog()
    stored = {row["column_id"] for row in catalog["ducklake_file_column_stats"]}
    assert stored == {1}, "no statistics are invented for a column that is not there"
    life_goes_on(judge, "main.t")


def test_missing_struct_field(judge: Judge) -> None:
    """AD-06: a struct that lacks a field is a missing column, too."""
    types = {"id": "INTEGER", "s": "STRUCT(a INTEGER, b INTEGER)"}
    judge.create_table("main.t", types)
    table = pa.table({"id": pa.array([1], pa.int32()), "s": [{"a": 5}]})
    table = table.cast(pa.schema({"id": pa.int32(), "s": pa.struct({"a": pa.int32()})}))
    path = write_arrow(judge, "s.parquet", table)
    require_refusal(judge, [path], "s.parquet", "b")
    judge.add_files("main.t", [path], [(1, {"a": 5, "b": None})], allow_missing=True)


def test_rules_of_the_table(judge: Judge) -> None:
    """AD-06: NOT NULL holds, ambiguous names are refused, an empty file leaves no row."""
    judge.create_table("main.t", {"id": "INTEGER NOT NULL"})
    require_refusal(
        judge,
        [write_file(judge, "n.parquet", {"id": "INTEGER"}, [(1,), (None,)])],
        "n.parquet",
        "id",
    )
    twice = pa.table([pa.array([1], pa.int32())] * 2, names=["id", "ID"])
    require_refusal(judge, [write_arrow(judge, "twice.parquet", twice)], "twice.parquet", "ID")
    head = judge.model.head
    empty = write_arrow(judge, "empty.parquet", pa.table({"id": pa.array([], pa.int32())}))
    (table,) = judge.add_files("main.t", [empty], []).tables
    assert table.files_out == 0
    assert table.skipped
    assert judge.model.head == head
    assert not judge.catalog()["ducklake_data_file"]


def _partitioned(judge: Judge) -> None:
    judge.create_table("main.t", {"id": "INTEGER", "k": "INTEGER"})
    judge.alter("main.t", "SET PARTITIONED BY (k)")


def test_path_against_content(judge: Judge) -> None:
    """AD-09: a directory that says another value than the file is refused, both named."""
    _partitioned(judge)
    types = {"id": "INTEGER", "k": "INTEGER"}
    lying = write_file(judge, "k=9/f.parquet", types, [(1, 5)])
    require_refusal(judge, [lying], "f.parquet", "9", "5")
    honest = write_file(judge, "k=5/f.parquet", types, [(1, 5)])
    judge.add_files("main.t", [honest], [(1, 5)])
    without = write_file(judge, "k=6/f.parquet", {"id": "INTEGER"}, [(2,)])
    judge.add_files("main.t", [without], [(2, 6)])
    foreign = write_file(judge, "team_id=2/k=7/f.parquet", types, [(3, 7)])
    judge.add_files("main.t", [foreign], [(3, 7)])
    for k in (5, 6, 7):
        judge.check_counts("main.t", {f"k = {k}": 1})


def test_partition_value_from_the_data(judge: Judge) -> None:
    """AD-09: without a directory the data tells, if all its rows are of one partition."""
    _partitioned(judge)
    types = {"id": "INTEGER", "k": "INTEGER"}
    constant = write_file(judge, "5/f.parquet", types, [(1, 5), (2, 5)])
    judge.add_files("main.t", [constant], [(1, 5), (2, 5)])
    mixed = write_file(judge, "mixed.parquet", types, [(3, 5), (4, 6)])
    require_refusal(judge, [mixed], "mixed.parquet", "k")
    judge.check_counts("main.t", {"k = 5": 2})
    life_goes_on(judge, "main.t")


def test_bucket_that_is_not(judge: Judge) -> None:
    """AD-09: a directory naming an impossible bucket is refused."""
    judge.create_table("main.t", {"id": "INTEGER", "u": "VARCHAR"})
    judge.alter("main.t", "SET PARTITIONED BY (bucket(4, u))")
    path = write_file(
        judge, "u_bucket=999/f.parquet", {"id": "INTEGER", "u": "VARCHAR"}, [(1, "x")]
    )
    key = _bucket_directory(judge)
    wrong = judge.lake.directory / "raw" / f"{key}=999" / "f.parquet"
    wrong.parent.mkdir(parents=True)
    shutil.copy(path, wrong)
    require_refusal(judge, [str(wrong)], "999")


def _bucket_directory(judge: Judge) -> str:
    """Return what the reference names the directory of the table's bucket key."""
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.insert_values("main.t", (0, "x"))
    (file,) = live_files(judge.catalog(), "t")
    return str(file["path"]).split("=")[0]


def test_broken_files(judge: Judge) -> None:
    """Missing, empty, cut and foreign files are refused by name, and the catalog stays."""
    judge.create_table("main.t", {"id": "INTEGER"})
    raw = judge.lake.directory / "raw"
    whole = Path(write_file(judge, "whole.parquet", {"id": "INTEGER"}, [(1,)]))
    (raw / "cut.parquet").write_bytes(whole.read_bytes()[:-20])
    (raw / "nothing.parquet").write_bytes(b"")
    (raw / "text.parquet").write_text("id\n1\n")
    for name in ("cut", "nothing", "text", "absent"):
        require_refusal(judge, [str(whole), str(raw / f"{name}.parquet")], f"{name}.parquet")
    assert os.listdir(judge.lake.data_path) == [] if Path(judge.lake.data_path).exists() else True
    judge.add_files("main.t", [str(whole)], [(1,)])


def test_evolved_table(judge: Judge) -> None:
    """Files go on being read by column id when the table changes after registration."""
    judge.create_table("main.t", {"id": "INTEGER", "v": "VARCHAR"})
    first = write_file(judge, "1.parquet", {"v": "VARCHAR", "id": "INTEGER"}, [("a", 1)])
    judge.add_files("main.t", [first], [(1, "a")])
    judge.alter("main.t", "RENAME COLUMN v TO w", lambda t: t.rename_column("v", "w"))
    judge.alter("main.t", "ADD COLUMN v INTEGER", lambda t: t.add_column("v"))
    types = {"id": "INTEGER", "v": "INTEGER", "w": "VARCHAR"}
    second = write_file(judge, "2.parquet", types, [(2, 20, "b")])
    judge.add_files("main.t", [second], [(2, "b", 20)])
    judge.delete("main.t", "id = 1", lambda row: row["id"] == 1)
    judge.update("main.t", {"v": "21"}, "id = 2", lambda row: row["id"] == 2, lambda row: {"v": 21})
    judge.upkeep("rewrite_data_files", delete_threshold=0)
    life_goes_on(judge, "main.t")
