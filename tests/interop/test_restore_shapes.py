"""restore where files are encrypted, and where partitions, sort order and inlined rows changed."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any, Final

import pytest

from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from tests.interop.aftermath import life_goes_on
from tests.interop.judge import Judge
from tests.interop.palette import pairs
from tests.support.lakes import LakeUnderTest, on_two_kinds

_DAY: Final = date(2024, 2, 3)


def test_encrypted_files(tmp_path: Path) -> None:
    """Delete files of the older snapshot and of the history in between are encrypted too."""
    attach, data = f"ducklake:sqlite:{tmp_path}/c.sqlite", f"{tmp_path}/data/"
    location = CatalogLocation.parse(attach, data_path=data)
    Lake.create(location, encrypted=True)
    judge = Judge(LakeUnderTest("sqlite", attach, data, location, tmp_path))
    # The stock client of the tests cannot encrypt: its rows and deletes stay in the catalog.
    judge.client.set_option("data_inlining_row_limit", 50)
    types = {"id": "INTEGER", "v": "VARCHAR"}
    judge.create_table("main.t", types)
    for start in (0, 20):
        judge.ingest("main.t", types, pairs([(i, "x") for i in range(start, start + 20)]))
    judge.delete("main.t", "id IN (3, 4, 5)", lambda row: 3 <= row["id"] <= 5)
    judge.upkeep("flush_inlined_data")
    judge.delete("main.t", "id = 30", lambda row: row["id"] == 30)
    judge.insert_values("main.t", (100, "inlined"))
    target = judge.model.head
    judge.delete("main.t", "id < 15", lambda row: row["id"] < 15)
    judge.upkeep("flush_inlined_data")
    judge.delete("main.t", "id = 31", lambda row: row["id"] == 31)
    judge.upkeep("merge_adjacent_files")
    judge.delete("main.t", "true", lambda row: True)
    judge.ingest("main.t", types, pairs([(i, "late") for i in range(200, 220)]))
    late = judge.model.head
    for snapshot in (target, late, target):
        judge.restore(snapshot, "main.t")
    files = [*Path(data).rglob("*.parquet")]
    assert {file.read_bytes()[:4] for file in files} == {b"PARE"}
    judge.check_soundness()
    judge.expire(judge.model.kept[:-1], retain_last=1)
    judge.operations.run("cleanup_old_files", cleanup_all=True, force=True)
    judge.check()
    judge.check_catalog()
    judge.close()


@on_two_kinds
@pytest.mark.parametrize("place", ["v", "s.a"])
def test_columns_that_came_back_by_name(judge: Judge, place: str) -> None:
    """New rows in the catalog are of the column that is there, not of a later one so called."""
    judge.create_table("main.t", {"id": "INTEGER", "s": "STRUCT(b INTEGER, a INTEGER)"})
    judge.alter("main.t", "ADD COLUMN v INTEGER", lambda t: t.add_column("v"))
    _insert(judge, 1)
    target = judge.model.head
    if place == "v":
        judge.alter("main.t", "DROP COLUMN v", lambda t: t.drop_column("v"))
        judge.alter("main.t", "ADD COLUMN v INTEGER DEFAULT 6", lambda t: t.add_column("v", 6))
    else:
        judge.alter(
            "main.t", "DROP COLUMN s.a", lambda t: t.convert_column("s", lambda fields: fields[:1])
        )
        judge.alter(
            "main.t",
            "ADD COLUMN s.a INTEGER DEFAULT 6",
            lambda t: t.convert_column("s", lambda fields: (*fields, ("a", 6))),
        )
    _insert(judge, 2)
    later = judge.model.head
    for number, snapshot in enumerate((target, later, target), start=3):
        judge.restore(snapshot, "main.t")
        _insert(judge, number)
    judge.update("main.t", {"id": "9"}, "id = 1", lambda row: row["id"] == 1, lambda _: {"id": 9})
    judge.check()
    judge.upkeep("flush_inlined_data")
    judge.upkeep("merge_adjacent_files")
    judge.check_soundness()


def _insert(judge: Judge, number: int) -> None:
    fields = {"b": number, "a": -number}
    judge.insert(
        "main.t", [[(str(number), number), (str(fields), fields), (str(number * 10), number * 10)]]
    )


def _shape(judge: Judge) -> tuple[Any, Any]:
    judge.client.make_way()
    table = judge.operations.open().table("main.t")
    return table.partition, table.sort_keys


@on_two_kinds
def test_partitions_sort_order_and_inlined_rows(judge: Judge) -> None:
    """Whatever is written next is partitioned and sorted as at the snapshot."""
    judge.client.set_option("data_inlining_row_limit", 3)
    judge.create_table("main.t", {"id": "INTEGER", "k": "INTEGER", "d": "DATE"})
    judge.alter("main.t", "SET PARTITIONED BY (k)")
    judge.alter("main.t", "SET SORTED BY (id DESC NULLS FIRST)")
    judge.insert_by(
        "INSERT INTO main.t SELECT i, i % 2, NULL FROM range(30) r(i)",
        "main.t",
        [(i, i % 2, None) for i in range(30)],
    )
    judge.insert_values("main.t", (100, 1, None), (101, 0, None))
    judge.delete("main.t", "id = 7", lambda row: row["id"] == 7)
    judge.delete("main.t", "id = 100", lambda row: row["id"] == 100)
    target, shape = judge.model.head, _shape(judge)
    assert None not in shape
    judge.alter("main.t", "SET PARTITIONED BY (bucket(4, id), year(d))")
    judge.alter("main.t", "SET SORTED BY (k ASC, id ASC)")
    judge.insert_by(
        "INSERT INTO main.t SELECT i, 9, DATE '2024-02-03' FROM range(200, 230) r(i)",
        "main.t",
        [(i, 9, _DAY) for i in range(200, 230)],
    )
    judge.insert_values("main.t", (300, 9, None))
    judge.delete("main.t", "id = 101", lambda row: row["id"] == 101)
    judge.delete("main.t", "id < 10", lambda row: row["id"] < 10)
    later, other_shape = judge.model.head, _shape(judge)
    judge.upkeep("flush_inlined_data")
    judge.alter("main.t", "RESET PARTITIONED BY")
    judge.alter("main.t", "RESET SORTED BY")
    for snapshot, expected in ((target, shape), (later, other_shape), (target, shape)):
        judge.restore(snapshot, "main.t")
        assert _fields(_shape(judge)) == _fields(expected)
        judge.check_catalog()
    judge.insert_by(
        "INSERT INTO main.t SELECT i, i % 3, NULL FROM range(400, 430) r(i)",
        "main.t",
        [(i, i % 3, None) for i in range(400, 430)],
    )
    judge.check_counts("main.t", {"k = 1": 24, "id = 101": 1, "id = 7": 0, "k = 9": 0})
    judge.upkeep("flush_inlined_data")
    judge.upkeep("merge_adjacent_files")
    judge.check_catalog()
    life_goes_on(judge, "main.t")


def _fields(shape: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return what a shape says, without the id of its partition spec."""
    partition, sort_keys = shape
    return partition and partition.fields, sort_keys
