"""ingest with mode=merge: rows updated, deleted and inserted by key, as the reference would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ducklake.kernels.tasks import MatchTask
from airflow_provider_ducklake.lake.errors import (
    BadInput,
    ConfigurationError,
    LakeError,
)
from airflow_provider_ducklake.spark.runner import LocalRunner
from tests.interop.aftermath import life_goes_on
from tests.interop.catalog import live_files
from tests.interop.judge import Judge
from tests.interop.merges import merge, merged, run_merge
from tests.interop.palette import VALUES, arrow_table, pairs

TYPES = {"id": "INTEGER", "v": "VARCHAR"}
SOURCE = {**TYPES, "op": "VARCHAR"}
sqlite_only = pytest.mark.parametrize("lake_factory", ["sqlite"], indirect=True)


def _goes(row: Mapping[str, Any]) -> bool:
    return bool(row["op"] == "D")


def _batches(*rows: Sequence[Any], types: Mapping[str, str] = TYPES) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = arrow_table(types, pairs(rows)).to_batches()
    return found


def _fill(judge: Judge) -> None:
    """Two data files, with deletes of both kinds, and rows in the catalog."""
    judge.create_table("main.t", TYPES)
    judge.insert_values("main.t", *((i, f"a{i}") for i in range(40)))
    judge.insert_values("main.t", *((i, f"b{i}") for i in range(40, 80)))
    judge.delete("main.t", "id IN (3, 4)", lambda row: row["id"] in (3, 4))
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.delete("main.t", "id IN (41, 42)", lambda row: row["id"] in (41, 42))
    judge.client.set_option("data_inlining_row_limit", 10)
    judge.insert_values("main.t", (100, "small"), (101, "small"), (None, "no key"))


def _feed(judge: Judge, first: int, last: int) -> list[tuple[int, str, int]]:
    """Return (snapshot, kind, id) of a change feed."""
    found = judge.client.table_changes("main.t", first, last).elements()
    return sorted((row[0], row[2], row[3]) for row in found if row[3] is not None)


@pytest.mark.parametrize("lake_factory", ["sqlite", "store"], indirect=True)
def test_rows_are_updated_deleted_and_inserted(judge: Judge) -> None:
    """Over files with every kind of deletes and rows in the catalog; twice, and all snapshots."""
    _fill(judge)
    rows = [
        (1, "u", "U"),
        (2, "-", "D"),
        (3, "again", "U"),
        (43, "u", "U"),
        (44, "-", "D"),
        (100, "u", "U"),
        (101, "-", None),
        (200, "new", "U"),
        (201, "-", "D"),
    ]
    result = merge(judge, "main.t", SOURCE, pairs(rows), "id", goes=_goes, delete_when="op = 'D'")
    assert (result.rows, result.updated_rows, result.deleted_rows) == (6, 4, 2)
    assert not judge.unreferenced_files()
    first = judge.model.head
    updated = [
        (first, f"update_{half}image", i) for half in ("post", "pre") for i in (1, 43, 100, 101)
    ]
    gone, new = [(first, "delete", i) for i in (2, 44)], [(first, "insert", i) for i in (3, 200)]
    assert _feed(judge, first, first) == sorted(gone + new + updated)
    merge(judge, "main.t", TYPES, pairs([(1, "twice"), (45, "once"), (200, "twice")]), "id")
    deleted = [row for row in _feed(judge, 2, judge.model.head) if row[1] == "delete"]
    assert [row[2] for row in deleted if row[2] in (41, 42, 44)] == [41, 42, 44]
    judge.check_soundness()


@sqlite_only
def test_partitions_and_sort_order(judge: Judge) -> None:
    """Rows go to the partition they are in now, and files that cannot match are not opened."""
    types = {"id": "INTEGER", "k": "INTEGER"}
    judge.create_table("main.t", types)
    judge.alter("main.t", "SET PARTITIONED BY (k)")
    judge.alter("main.t", "SET SORTED BY (id DESC)")
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.insert_values("main.t", *((i, 1) for i in range(10)))
    judge.insert_values("main.t", *((i, 2) for i in range(10, 20)))
    asked: list[MatchTask] = []

    class Recorder(LocalRunner):
        def run(self, function: Any, tasks: Any, description: str = "") -> list[Any]:
            asked.extend(task for task in tasks if isinstance(task, MatchTask))
            found: list[Any] = super().run(function, tasks, description)
            return found

    rows = [(11, 1), (12, 2), (13, 3), (15, 3)]
    expected = merged(judge, "main.t", list(types), rows, ["id"])
    batches = arrow_table(types, pairs(rows)).to_batches()
    run_merge(judge, "main.t", batches, {"merge_keys": "id"}, runner=Recorder())
    judge.accept({"main.t": expected})
    judge.check()
    assert [len(task.files) for task in asked] == [1]
    catalog = judge.catalog()
    live = {row["data_file_id"]: row for row in live_files(catalog, "t")}
    values = [
        row["partition_value"]
        for row in catalog["ducklake_file_partition_value"]
        if row["data_file_id"] in live and live[row["data_file_id"]]["record_count"] < 10
    ]
    assert sorted(values) == ["1", "2", "3"]
    judge.check_soundness()
    life_goes_on(judge, "main.t")


@sqlite_only
def test_rows_that_go_with_their_file(judge: Judge) -> None:
    """Several rows of one key are all replaced; a file without rows ends; key NULL matches none."""
    judge.create_table("main.t", TYPES)
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.insert_values("main.t", (1, "a"), (1, "b"), (2, "c"), (3, "d"))
    judge.client.set_option("write_deletion_vectors", "true")
    judge.delete("main.t", "id = 3", lambda row: row["id"] == 3)
    judge.insert_values("main.t", (None, "e"), (4, "f"), (5, "g"))
    judge.delete("main.t", "id = 5", lambda row: row["id"] == 5)
    merge(judge, "main.t", TYPES, pairs([(1, "u"), (2, "u"), (4, "u")]), "id")
    head = judge.model.head
    assert len(_feed(judge, head, head)) == 8
    ended = [r for r in judge.catalog()["ducklake_data_file"] if r["end_snapshot"] == head]
    assert [row["record_count"] for row in ended] == [4]
    merge(
        judge,
        "main.t",
        SOURCE,
        pairs([(1, "-", "D"), (2, "-", "D")]),
        "id",
        _goes,
        delete_when="op = 'D'",
    )
    judge.check_soundness()
    judge.client.sql("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")
    judge.accept({})
    judge.check()


@sqlite_only
def test_keys_of_every_type(judge: Judge) -> None:
    """NaN and −0.0, instants, decimals, bytes: a key is found again whatever it is made of."""
    pools = {
        name: [pair for pair in pool if pair[1] is not None]
        for name, pool in VALUES.items()
        if not name.startswith(("STRUCT", "MAP")) and not name.endswith("[]")
    }
    types = {f"c{i}": name for i, name in enumerate(pools)} | {"h": "HUGEINT", "v": "INTEGER"}
    numbers = range(6)
    rows = [
        [*(pool[n % len(pool)] for pool in pools.values()), (str(n), n), ("0", 0)] for n in numbers
    ]
    judge.create_table("main.t", types)
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.insert("main.t", rows[:3])
    judge.client.set_option("data_inlining_row_limit", 10)
    judge.insert("main.t", rows[3:])
    changed = [[*row[:-1], ("1", 1)] for row in rows]
    keys = ",".join(name for name in types if name != "v")
    assert merge(judge, "main.t", types, changed, keys).updated_rows == len(rows)


@sqlite_only
def test_what_is_refused(judge: Judge) -> None:
    """One line says what is wrong with which key or column; nothing is left of it."""
    judge.create_table("main.t", {**TYPES, "l": "INTEGER[]"})
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.insert("main.t", [[("1", 1), ("'a'", "a"), ("[]", [])]])
    types = {**TYPES, "l": "INTEGER[]"}
    row, id_only = (1, "u", None), {"merge_keys": "id"}
    twice = _batches(row, (7, "x", None), (7, "y", None), types=types)
    no_key = _batches(row, (None, "x", None), types=types)
    good = _batches(row, types=types)
    text = _batches(("1.5", "u", None), types={**types, "id": "VARCHAR"})
    cases: list[tuple[list[pa.RecordBatch], dict[str, str], type[LakeError], str]] = [
        (twice, id_only, BadInput, "2 rows with the merge key id = 7"),
        (no_key, id_only, BadInput, "NULL in the merge key 'id'"),
        (text, id_only, BadInput, "id"),
        (_batches((1, "u")), id_only, BadInput, "lacks columns of main.t: 'l'"),
        (_batches((1, "u")), {**id_only, "allow_missing": "true"}, BadInput, "whole rows"),
        (_batches((*row, 1), types={**types, "n": "INTEGER"}), id_only, BadInput, "'n'"),
        (good, {}, ConfigurationError, "merge_keys"),
        (good, {"merge_keys": "idd"}, ConfigurationError, "did you mean 'id'"),
        (good, {"merge_keys": "id,ID"}, ConfigurationError, "twice"),
        (good, {"merge_keys": "l"}, ConfigurationError, "INTEGER"),
        (good, {**id_only, "delete_when": "op = 'D'"}, ConfigurationError, "op"),
        (good, {**id_only, "delete_when": "id = 1; DROP"}, ConfigurationError, "delete_when"),
        (good, {**id_only, "delete_when": "v::INTEGER = 1"}, BadInput, "u"),
    ]
    before = judge.fingerprint(), judge.lake.stored_files()
    for batches, options, kind, message in cases:
        with pytest.raises(kind, match=message):
            run_merge(judge, "main.t", batches, options)
        assert (judge.fingerprint(), judge.lake.stored_files()) == before, message


@sqlite_only
def test_new_columns_and_a_new_table(judge: Judge) -> None:
    """Shape and rows change in one snapshot; a condition's own column is no new one."""
    _fill(judge)
    expected = (
        judge.table("main.t")
        .add_column("n")
        .update(lambda row: row["id"] == 1, lambda _: {"v": "u", "n": 7})
    )
    source = _batches((1, "u", 7, 0), (2, "u", 7, 1), types={**TYPES, "n": "BIGINT", "x": "BIGINT"})
    options = {"merge_keys": "ID", "delete_when": "x > 0", "schema_evolution": "add_columns"}
    run_merge(judge, "main.t", source, options)
    judge.accept({"main.t": expected.delete(lambda row: row["id"] == 2)})
    judge.check()
    run_merge(
        judge,
        "main.made",
        _batches((1, "a"), (2, "b")),
        {"merge_keys": "id", "delete_when": "v = 'b'", "create_table": "true"},
    )
    assert judge.client.sql("FROM main.made") == [(1, "a")]
    judge.client.sql("DROP TABLE main.made")
    judge.accept({})


@sqlite_only
def test_dry_run_and_retry(judge: Judge) -> None:
    """A dry run counts and leaves nothing; a second run under a key returns the first's result."""
    _fill(judge)
    source = _batches((1, "u", "U"), (45, "-", "D"), (100, "u", "U"), types=SOURCE)
    options = {"merge_keys": "id", "delete_when": "op = 'D'"}
    before = judge.fingerprint(), judge.lake.stored_files()
    told = run_merge(judge, "main.t", source, options, dry_run=True)
    assert (judge.fingerprint(), judge.lake.stored_files()) == before
    assert (told.rows, told.updated_rows, told.deleted_rows) == (3, 2, 1)
    assert (told.files_in, told.files_before, told.files_after) == (2, 2, 2)
    rows = [(1, "u", "U"), (45, "-", "D"), (100, "u", "U")]
    expected = merged(judge, "main.t", list(SOURCE), rows, ["id"], _goes)
    first = run_merge(judge, "main.t", source, options, key="k")
    judge.accept({"main.t": expected})
    judge.insert_values("main.t", (300, "later"))
    assert run_merge(judge, "main.t", source, options, key="k") == first
    assert first.snapshot_id == judge.client.snapshot_ids()[-2]
