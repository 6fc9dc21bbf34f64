"""Several files in one scan: together where they fit, in order, each with its own ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from airflow_provider_ducklake.kernels.parquet import write_parquet
from airflow_provider_ducklake.kernels.projection import FILE_STEP, open_source, project_together
from airflow_provider_ducklake.kernels.tasks import ParquetOptions
from airflow_provider_ducklake.lake.columns import Column, parse_columns
from airflow_provider_ducklake.lake.model import DataFile, NameMapEntry
from tests.kernels.reading import SETTINGS, data_file, read_columns, write_file


def open_sources(connection: duckdb.DuckDBPyConnection, *files: DataFile) -> list[Any]:
    return [open_source(connection, file, file.path) for file in files]


def test_one_scan_over_files_with_more_and_fewer_columns(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    one, two, three = (tmp_path / f"{n}.parquet" for n in ("z", "a", "m"))
    write_file(connection, one, "a int32", "SELECT i::INTEGER AS a FROM range(2) t(i)")
    both = "SELECT 5::INTEGER AS a, NULL::VARCHAR AS b"
    write_file(connection, two, "a int32, b varchar", both)
    internal = f"{both}, 7 AS _ducklake_internal_row_id, 3 AS _ducklake_internal_snapshot_id"
    write_parquet(
        connection, internal, (), str(three), parse_columns("a int32, b varchar"),
        ParquetOptions(), SETTINGS, write_row_ids=True, write_snapshot_ids=True,
    )  # fmt: skip
    files = [
        data_file(one),
        data_file(two, row_id_start=40, begin_snapshot=6),
        data_file(three, row_id_start=None),
    ]
    columns = (Column(2, "bb", "varchar", initial_default="dflt"), Column(1, "aa", "int64"))
    together = project_together(open_sources(connection, *files), columns)
    assert together is not None
    extra = f"{together.row_id}, {together.snapshot_id}, {together.position}"
    assert read_columns(connection, together, extra) == [
        ("dflt", 0, 100, 5, 0),
        ("dflt", 1, 101, 5, 1),
        (None, 5, 40, 6, FILE_STEP),
        (None, 5, 7, 3, 2 * FILE_STEP),
    ]


def test_one_scan_of_equal_files_keeps_their_order(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    files = []
    for number in (3, 1, 2, 0):
        path = tmp_path / f"{number}.parquet"
        write_file(connection, path, "a int32", f"SELECT {number}::INTEGER AS a FROM range(3000)")
        files.append(data_file(path))
    together = project_together(open_sources(connection, *files), parse_columns("a int32"))
    assert together is not None
    assert [row[0] for row in read_columns(connection, together)] == [3] * 3000 + [1] * 3000 + [
        2
    ] * 3000 + [0] * 3000


@pytest.mark.parametrize(
    ("definition", "query"),
    [
        ("b int32, a int32", "SELECT 1::INTEGER AS b, 2::INTEGER AS a"),  # names swapped
        ("a int64", "SELECT 1::BIGINT AS a"),  # another type
        ("b int32", "SELECT 1::INTEGER AS b"),  # another name
        ("a int32, filename int32", "SELECT 1::INTEGER AS a, 1::INTEGER AS filename"),
    ],
)
def test_files_that_differ_are_not_read_together(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, definition: str, query: str
) -> None:
    one, two = tmp_path / "1.parquet", tmp_path / "2.parquet"
    write_file(connection, one, "a int32, c int32", "SELECT 1::INTEGER AS a, 3::INTEGER AS c")
    write_file(connection, two, definition, query)
    assert (
        project_together(
            open_sources(connection, data_file(one), data_file(two)), parse_columns("a int64")
        )
        is None
    )
    mapped = data_file(one, name_map=(NameMapEntry("a", 1),))
    assert project_together(open_sources(connection, mapped), parse_columns("a int64")) is None


def test_row_ids_that_nothing_tells(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    one, two = tmp_path / "1.parquet", tmp_path / "2.parquet"
    for path in (one, two):
        write_file(connection, path, "a int32", "SELECT 1::INTEGER AS a")
    together = project_together(
        open_sources(connection, data_file(one), data_file(two, row_id_start=None)),
        parse_columns("a int32"),
    )
    assert together is not None
    assert together.row_id is None
