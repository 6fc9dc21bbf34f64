"""Column statistics: what is not known of one file is not known of the table."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.statistics import (
    ColumnStatistics,
    Growth,
    TableColumnStatistics,
    bound_of,
    bounds_of,
    merge_into_table,
)


def of(
    low: str | None,
    high: str | None,
    *,
    nulls: int | None = 0,
    values: int | None = 3,
    nan: bool | None = None,
) -> ColumnStatistics:
    """Return statistics of column 1 in a file."""
    return ColumnStatistics(1, 8, values, nulls, low, high, nan)


def merged(
    kind: str, current: TableColumnStatistics | None, *files: ColumnStatistics | None
) -> TableColumnStatistics:
    """Merge files into a table's statistics of column 1."""
    [result] = merge_into_table([Growth(Column(1, "c", kind), current, files)])
    return result


@pytest.mark.parametrize(
    ("kind", "values", "low", "high"),
    [
        ("int32", ["9", "10", "-11"], "-11", "10"),
        ("uint64", ["9", "18446744073709551615"], "9", "18446744073709551615"),
        ("decimal(38,2)", ["9.50", "10.00", "-0.01"], "-0.01", "10.00"),
        ("float64", ["1e10", "9.0", "-inf"], "-inf", "1e10"),
        ("date", ["0044-03-15 (BC)", "2024-01-01", "infinity"], "0044-03-15 (BC)", "infinity"),
        (
            "timestamptz",
            ["2024-01-01 12:00:00+00", "2024-01-01 00:00:00+00"],
            "2024-01-01 00:00:00+00",
            "2024-01-01 12:00:00+00",
        ),
        ("varchar", ["b", "a", "é"], "a", "é"),
        ("boolean", ["1", "0"], "0", "1"),
        (
            "uuid",
            ["f" * 8 + "-0000-0000-0000-" + "0" * 12, "0" * 8 + "-0000-0000-0000-" + "0" * 12],
            "0" * 8 + "-0000-0000-0000-" + "0" * 12,
            "f" * 8 + "-0000-0000-0000-" + "0" * 12,
        ),
    ],
)
def test_bounds_are_compared_as_their_type(
    kind: str, values: list[str], low: str, high: str
) -> None:
    assert bound_of(kind, values, smallest=True) == low
    assert bound_of(kind, values, smallest=False) == high


@pytest.mark.parametrize("kind", ["interval", "int128", "timetz", "blob", "list"])
def test_types_without_bounds_have_none(kind: str) -> None:
    assert bound_of(kind, ["1", "2"], smallest=True) is None


def test_one_unknown_bound_makes_the_table_s_unknown() -> None:
    assert merged("int32", None, of("1", "5"), of(None, None)).min_value is None
    assert merged("int32", None, of("1", "5"), None) == TableColumnStatistics(1)


def test_a_file_of_nulls_has_no_say_in_bounds() -> None:
    only_null = of(None, None, nulls=4, values=0)
    result = merged("int32", None, of("1", "5"), only_null)
    assert (result.min_value, result.max_value, result.contains_null) == ("1", "5", True)


def test_a_file_of_nulls_leaves_bounds_that_only_others_give() -> None:
    current = TableColumnStatistics(1, False, None, "00FF", "00FF")
    result = merged("blob", current, of(None, None, nulls=4, values=0))
    assert (result.min_value, result.max_value, result.contains_null) == ("00FF", "00FF", True)


def test_a_file_with_bounds_holds_values_whatever_it_counts() -> None:
    current = TableColumnStatistics(1, False, None, "3", "7")
    result = merged("int32", current, of("9", "9", nulls=2, values=0))
    assert (result.min_value, result.max_value) == ("3", "9")


def test_bounds_only_widen() -> None:
    current = TableColumnStatistics(1, False, None, "3", "7")
    result = merged("int32", current, of("10", "12"), of("4", "5"))
    assert (result.min_value, result.max_value) == ("3", "12")


def test_a_table_without_bounds_has_held_only_nulls() -> None:
    current = TableColumnStatistics(1, True)
    result = merged("int32", current, of("4", "5"))
    assert (result.min_value, result.max_value, result.contains_null) == ("4", "5", True)


def test_nan_is_known_only_when_every_file_says_so() -> None:
    assert merged("float64", None, of("1.0", "2.0", nan=False)).contains_nan is False
    assert merged("float64", None, of("1.0", "2.0", nan=None)).contains_nan is None
    assert merged(
        "float64", None, of("1.0", "2.0", nan=None), of(None, None, nan=True)
    ).contains_nan
    assert merged("int32", None, of("1", "2")).contains_nan is None


def test_a_bound_its_type_cannot_read_is_no_bound() -> None:
    assert bound_of("int32", ["1", "one"], smallest=True) is None


def test_columns_are_compared_each_for_itself() -> None:
    groups: list[tuple[str, list[str | None]]] = [
        ("int32", ["10", "9"]),
        ("int32", ["1", "one"]),
        ("date", ["2024-01-02", "2024-01-01"]),
        ("int32", []),
        ("int32", ["7", None]),
        ("varchar", ["10", "9"]),
        ("int32", ["-3", "3", "4"]),
        ("float64", ["8.0", "8.0"]),
        ("blob", ["00", "01"]),
    ]
    low = ["9", None, "2024-01-01", None, None, "10", "-3", "8.0", None]
    high = ["10", None, "2024-01-02", None, None, "9", "4", "8.0", None]
    assert bounds_of(groups, smallest=True) == low
    assert bounds_of(groups, smallest=False) == high


_FORKS_AMONG_THREADS = """
import os, signal, threading
from airflow_provider_ducklake.lake.statistics import bound_of

def check():
    for number in range(200):
        texts = [str(number), "9", "-10"]
        assert bound_of("int64", texts, smallest=False) == str(max(number, 9)), number
        assert bound_of("date", ["2026-01-02", "0044-03-15 (BC)"], smallest=True)[:4] == "0044"

def child():
    signal.alarm(60)  # one that waits for what its parent held is ended
    check()

threads = [threading.Thread(target=check) for _ in range(4)]
check()
for thread in threads:
    thread.start()
for _ in range(5):
    if (pid := os.fork()) == 0:
        child()
        raise SystemExit(0)  # ends as an interpreter does, with what it inherited
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
for thread in threads:
    thread.join()
print("compared")
"""


def test_bounds_are_compared_in_threads_and_forked_processes() -> None:
    """As workers of Spark are forked, and catalogs of a fleet are worked on in threads."""
    command = [sys.executable, "-W", "ignore", "-c", _FORKS_AMONG_THREADS]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (ran.returncode, ran.stdout) == (0, "compared\n"), ran.stderr
