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


def test_geometry_has_a_box_that_is_not_too_small(write: Writer) -> None:
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
    # Six digits, which the reference keeps when it writes the box again.
    assert '"xmin": 0.123456, "xmax": 0.123457, "ymin": 2.000000, "ymax": 2.000000' in single


@pytest.mark.parametrize(
    ("values", "known"),
    [
        (["NULL", "NULL"], True),
        (["'POINT EMPTY'"], False),
        (["'POINT (inf 1)'", "'POINT (2 2)'"], False),
    ],
)
def test_a_box_without_edges_is_one_of_nothing(
    write: Writer, values: list[str], known: bool
) -> None:
    """DuckDB says of an infinite coordinate what it says of an empty geometry."""
    extra = _statistics(write, "geometry", values).extra_stats
    assert (extra is not None) == known
    if extra is not None:
        assert json.loads(extra) == {
            "bbox": dict.fromkeys(axis + end for axis in "xyzm" for end in ("min", "max")),
            "types": [],
        }


def _fields(statistics: ColumnStatistics) -> dict[str, dict[str, object]]:
    listed = json.loads(statistics.extra_stats or "[]")
    return {entry.pop("field_name"): entry for entry in listed}


def test_variant_of_two_shapes_has_only_a_size(write: Writer) -> None:
    statistics = _statistics(write, "variant", ["{'a': 1}", "{'a': 'x'}", "NULL"])
    assert statistics.size_bytes is not None
    assert statistics == ColumnStatistics(1, size_bytes=statistics.size_bytes)


def test_shredded_fields_of_a_variant(write: Writer) -> None:
    """Fields whose column is all there is of them; counts inside of lists are not believed."""
    statistics = _statistics(
        write, "variant", ["{'a': 7, 'l': [{'x': 1.5::DOUBLE}], 'm': 1}", "{'m': 'x'}"]
    )
    assert (statistics.value_count, statistics.null_count) == (2, 0)
    fields = _fields(statistics)
    for entry in fields.values():
        assert entry.pop("column_size_bytes", 0)
    assert fields == {
        '"a"': {
            "shredded_type": "int32", "null_count": 1, "min": "7", "max": "7", "num_values": 2,
            "any_valid": True,
        },
        '"l".element."x"': {
            "shredded_type": "float64", "min": "1.5", "max": "1.5", "contains_nan": False,
            "any_valid": True,
        },
    }  # fmt: skip


def test_a_value_among_miscounted_nulls_is_not_overlooked(write: Writer) -> None:
    """DuckDB counts six NULLs among the six values that are no DOUBLE, and one is a text."""
    number = "{'x': 1.5::DOUBLE}"
    values = [f"[{', '.join([number] * 4)}]", "[{'x': 'text'}, NULL]"]
    assert _fields(_statistics(write, "variant", values)) == {}


def test_fields_that_the_reference_takes_for_others_are_left_out(write: Writer) -> None:
    statistics = _statistics(write, "variant", ["""{'a"b': 1, 'c': {'x"': 2, 'y': 3}}"""])
    assert list(_fields(statistics)) == ['"c"."y"']
    nameless = """json('{"": 1, "a": 2}')::VARIANT"""
    assert _statistics(write, "variant", [nameless]).extra_stats is None


@pytest.mark.parametrize(
    ("values", "nulls"),
    [
        (["1", "2"], 0),
        (["1", "NULL"], None),
        (["{'a': 1}", "'x'"], 0),
        (["{'a': 1}", "NULL"], None),
    ],
)
def test_null_variants_are_not_counted(write: Writer, values: list[str], nulls: int | None) -> None:
    """DuckDB writes NULL as a value, so that it is known only that there is none."""
    assert _statistics(write, "variant", values).null_count == nulls
