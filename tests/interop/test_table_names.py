"""A table is read by its name at a snapshot, and none of the others with it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from airflow_provider_ducklake.lake import reader
from airflow_provider_ducklake.lake.errors import NotFound
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.model import Table
from tests.support.lakes import LakeUnderTest

HISTORY = (
    "CREATE SCHEMA s",
    "CREATE TABLE t (id INTEGER)",
    "CREATE TABLE s.t (id INTEGER, v VARCHAR)",
    'CREATE TABLE s."we.ird" (id INTEGER)',
    "CREATE TABLE gone (id INTEGER)",
    "ALTER TABLE t RENAME TO u",
    "DROP TABLE gone",
)
NAMES = ("t", "main.T", "MAIN.u", "s.t", "S.t", '"s"."we.ird"', "s.WE.ird", "gone", "no.t", "s.u")


def _found(read: Callable[[], Table]) -> Table | str:
    try:
        return read()
    except NotFound as error:
        return str(error)


def test_by_name(lake_under_test: LakeUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(lake_under_test.client()) as client:
        for statement in HISTORY:
            client.sql(statement)
    rows_read: list[int] = []
    trees = reader.column_trees

    def watched(rows: list[Any]) -> Any:
        rows_read.append(len(rows))
        return trees(rows)

    with Lake.open(lake_under_test.location).view() as view:
        there = 0
        for snapshot_id in range(view.head.snapshot_id + 1):
            tables = view.tables(snapshot_id)
            for name in NAMES:
                expected = _found(lambda: reader.find_table(tables, name))  # noqa: B023
                assert _found(lambda: view.table_at(snapshot_id, name)) == expected  # noqa: B023
                there += isinstance(expected, Table)
        assert there > 10
        monkeypatch.setattr(reader, "column_trees", watched)
        assert view.table("s.t").full_name == "s.t"
        assert rows_read == [2], "columns of its own"
        assert view.table("S.T").full_name == "s.t"
        assert rows_read == [2, 4], "of all, to compare names without case"
