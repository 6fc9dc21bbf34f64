"""Statistics of a written file: right for every type, or unknown."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest

from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.statistics import ColumnStatistics
from tests.kernels.writer import Writer


def _statistics(write: Writer, kind: str, values: Sequence[str]) -> ColumnStatistics:
    [column] = parse_columns(f"x {kind}")
    selects = (f"SELECT CAST({value} AS {column.sql_type}) AS x" for value in values)
    [statistics] = write(" UNION ALL ".join(selects), (column,)).statistics
    return statistics


@pytest.mark.parametrize(
    ("kind", "values", "bounds"),
    [
        ("boolean", ["true", "false", "NULL"], ("0", "1")),
        ("int64", ["-5", "10", "9", "NULL"], ("-5", "10")),
        ("uint64", ["18446744073709551615", "NULL"], ("18446744073709551615",) * 2),
        ("decimal(38,5)", ["'1.5'", "'10'", "NULL"], ("1.50000", "10.00000")),
        ("date", ["'infinity'", "'0001-01-01'", "NULL"], ("0001-01-01", "infinity")),
        ("time", ["'12:00:00.5'", "NULL"], ("12:00:00.5", "12:00:00.5")),
        ("timestamp", ["'2024-01-01'", "NULL"], ("2024-01-01 00:00:00",) * 2),
        ("timestamptz", ["'2024-01-01 05:30:00+05:30'", "NULL"], ("2024-01-01 00:00:00+00",) * 2),
        (
            "timestamp_ns",
            ["'2024-01-01 00:00:00.000000001'"],
            ("2024-01-01 00:00:00.000000001",) * 2,
        ),
        (
            "uuid",
            ["'f79c3e09-677c-4bbd-a479-3f349cb785e7'"],
            ("f79c3e09-677c-4bbd-a479-3f349cb785e7",) * 2,
        ),
        ("varchar", ["'b'", "''", "'é'", "NULL"], ("", "é")),
        ("json", ["'[1]'", "NULL"], ("[1]", "[1]")),
        ("int128", ["5", "NULL"], (None, None)),
    ],
)
def test_counts_and_bounds(
    write: Writer, kind: str, values: list[str], bounds: tuple[str | None, str | None]
) -> None:
    statistics = _statistics(write, kind, values)
    nulls = values.count("NULL")
    assert (statistics.value_count, statistics.null_count) == (len(values) - nulls, nulls)
    assert (statistics.min_value, statistics.max_value) == bounds
    assert statistics.contains_nan is None
    assert statistics.size_bytes is not None
    assert statistics.size_bytes > 0


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_nan_is_told_and_left_out_of_bounds(write: Writer, kind: str) -> None:
    statistics = _statistics(write, kind, ["'nan'", "-1.5", "2", "NULL"])
    assert (statistics.min_value, statistics.max_value) == ("-1.5", "2.0")
    assert statistics.contains_nan is True
    assert _statistics(write, kind, ["1"]).contains_nan is False
    only_nan = _statistics(write, kind, ["'nan'"])
    assert (only_nan.min_value, only_nan.max_value, only_nan.value_count) == (None, None, 1)


@pytest.mark.parametrize(("kind", "value"), [("interval", "'1 day'"), ("timetz", "'12:00:00+00'")])
def test_what_duckdb_does_not_count_is_unknown(write: Writer, kind: str, value: str) -> None:
    statistics = _statistics(write, kind, [value, "NULL"])
    assert (statistics.value_count, statistics.null_count) == (None, None)
    assert (statistics.min_value, statistics.max_value) == (None, None)


def test_cut_bounds_are_unknown(write: Writer) -> None:
    statistics = _statistics(write, "varchar", ["repeat('a', 1000)", "'a'"])
    assert (statistics.min_value, statistics.max_value) == ("a", None)


def test_a_bound_that_postgresql_cannot_hold_is_unknown(write: Writer) -> None:
    statistics = _statistics(write, "varchar", ["'a'", "'b' || chr(0)"])
    assert (statistics.min_value, statistics.max_value) == ("a", None)


def test_only_null(write: Writer) -> None:
    assert _statistics(write, "int32", ["NULL", "NULL"]) == ColumnStatistics(
        1, size_bytes=_statistics(write, "int32", ["NULL"]).size_bytes, value_count=0, null_count=2
    )


def test_geometry_has_an_exact_box(write: Writer) -> None:
    statistics = _statistics(
        write, "geometry", ["'POINT(0.123456789 2)'", "'LINESTRING(-1 0, 3 4)'", "NULL"]
    )
    assert statistics.extra_stats is not None
    extra = json.loads(statistics.extra_stats)
    assert extra["types"] == ["linestring", "point"]
    assert extra["bbox"] == {
        "xmin": -1.0, "xmax": 3.0, "ymin": 0.0, "ymax": 4.0,
        "zmin": None, "zmax": None, "mmin": None, "mmax": None,
    }  # fmt: skip
    # The reference's parser takes a number without a point for zero.
    assert not re.search(r": -?\d+[,}]", statistics.extra_stats)
    single = _statistics(write, "geometry", ["'POINT(0.123456789 2)'"]).extra_stats
    assert single is not None
    assert '"xmin": 0.123456789' in single


def test_variant_has_only_a_size(write: Writer) -> None:
    statistics = _statistics(write, "variant", ["{'a': 1, 'b': [1, 2]}", "'x'", "NULL"])
    assert statistics.size_bytes is not None
    assert statistics == ColumnStatistics(1, size_bytes=statistics.size_bytes)
