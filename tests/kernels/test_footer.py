"""What a footer says: nested columns in every layout, and statistics that are right or absent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.model import NameMapEntry
from airflow_provider_ducklake.lake.statistics import bound_of
from tests.kernels.handmade_parquet import (
    BYTE_ARRAY,
    INT32,
    LIST,
    MAP,
    REPEATED,
    REQUIRED,
    UTF8,
    Node,
    Statistics,
    write_handmade,
)
from tests.kernels.registration import Files, inspect_file, refused, statistics


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    files = Files(tmp_path)
    yield files
    files.connection.close()


def test_statistics_belong_to_leaf_columns(files: Files) -> None:
    path = files.sql(
        "SELECT [i, NULL] AS a, [{'k': 'x', 'v': NULL::VARCHAR}, NULL] AS d, 100::UINTEGER AS n, "
        "MAP {'m': i::INT} AS m FROM (SELECT i::DOUBLE AS i FROM range(10_000) r(i)) "
        "UNION ALL SELECT NULL, [], 100::UINTEGER, NULL"
    )
    file = inspect_file(
        path, "a float64[], d struct(k varchar, v varchar)[], n uint32, m map(varchar, int32)"
    )
    columns = parse_columns(
        "a float64[], d struct(k varchar, v varchar)[], n uint32, m map(varchar, int32)"
    )
    found = statistics(file)
    assert list(found) == [leaf.column_id for c in columns for leaf in c.leaves()]
    n = found[columns[2].column_id]
    assert (n.min_value, n.max_value, n.value_count, n.null_count) == ("100", "100", 10_001, 0)
    # Below lists DuckDB writes more NULLs than there are slots: such counts are unknown.
    assert [s.value_count is None for s in found.values()] == [True, True, True, False, True, True]
    value = found[columns[3].children[1].column_id]
    assert (value.min_value, value.max_value) == ("0", "9999")
    v = found[columns[1].children[0].children[1].column_id]
    assert (v.value_count, v.min_value, v.max_value) == (None, None, None)
    k = found[columns[1].children[0].children[0].column_id]
    assert (k.min_value, k.max_value) == ("x", "x")
    assert file.name_map[3] == NameMapEntry(
        "m", 8, children=(NameMapEntry("key", 9), NameMapEntry("value", 10))
    )


SLOTS: Final = [(0, 2), (1, 2), (0, 1), (0, 0), (0, 2)]  # [1, 2], [], NULL, [3]


def _list_file(path: Path, repeated: Node, name: str = "l") -> str:
    write_handmade(path, 4, [Node(name, converted=LIST, children=(repeated,))])
    return str(path)


def _numbers(name: str, repetition: int = REQUIRED) -> Node:
    return Node(name, repetition, INT32, levels=SLOTS, values=[1, 2, 3])


@pytest.mark.parametrize(
    ("repeated", "mapped"),
    [
        (Node("list", REPEATED, children=(_numbers("element"),)), "list"),
        (Node("list", REPEATED, children=(_numbers("item"),)), "list"),
        (Node("bag", REPEATED, children=(_numbers("array_element"),)), "bag"),
        (_numbers("array", REPEATED), "list"),
        (_numbers("element", REPEATED), "list"),
        (_numbers("numbers", REPEATED), "numbers"),
    ],
)
def test_every_list_layout_is_read_right(files: Files, repeated: Node, mapped: str) -> None:
    path = _list_file(files.directory / "f.parquet", repeated)
    file = inspect_file(path, "l int32[]")
    # The reference finds the element by this name; by another it reads NULL without a word.
    assert file.name_map == (NameMapEntry("l", 1, children=(NameMapEntry(mapped, 2),)),)
    read = files.connection.execute("SELECT l FROM read_parquet(?)", [path]).fetchall()
    assert read == [([1, 2],), ([],), (None,), ([3],)]


@pytest.mark.parametrize("name", ["array", "l_tuple"])
def test_lists_that_engines_read_in_two_ways_are_refused(tmp_path: Path, name: str) -> None:
    record = Node(name, REPEATED, children=(_numbers("a"),))
    assert "two ways" in refused(_list_file(tmp_path / "f.parquet", record), "l int32[]")


def test_two_field_records_in_the_old_list_layout_are_accepted(tmp_path: Path) -> None:
    record = Node("array", REPEATED, children=(_numbers("a"), _numbers("b")))
    file = inspect_file(_list_file(tmp_path / "f.parquet", record), "l struct(a int32, b int32)[]")
    [element] = file.name_map[0].children
    assert [child.source_name for child in element.children] == ["a", "b"]


def test_maps_are_known_by_the_names_of_their_fields(tmp_path: Path) -> None:
    def write(key: str, value: str) -> str:
        path = tmp_path / f"{key}.parquet"
        entries = Node("entries", REPEATED, children=(_numbers(key), _numbers(value)))
        write_handmade(path, 4, [Node("m", converted=MAP, children=(entries,))])
        return str(path)

    assert len(inspect_file(write("KEY", "VALUE"), "m map(int32, int32)").name_map[0].children) == 2
    assert "not named key and value" in refused(write("k", "v"), "m map(int32, int32)")


def test_floats_make_no_claim_because_of_nan(files: Files) -> None:
    path = files.arrow(pa.table({"x": [1.0, 2.0, float("nan")], "y": pa.array([1.5] * 3, "f4")}))
    for entry in inspect_file(path, "x float64, y float32").statistics:
        assert entry.contains_nan is None
        assert (entry.min_value, entry.max_value) == (None, None)
        assert (entry.value_count, entry.null_count) == (3, 0)


def test_bounds_are_in_the_catalogs_text(files: Files) -> None:
    path = files.sql(
        "SELECT unnest([true, true, NULL]) AS b, unnest(['\\xAA\\x00'::BLOB, 'a', 'b']) AS raw, "
        "unnest([18446744073709551615, 9, 10])::UBIGINT AS u, "
        "unnest([DATE '-44-03-15', '2024-01-01', '2024-01-02']) AS d, "
        "unnest(['é', 'b', 'z']) AS s, unnest([-1.50, 2, 10])::DECIMAL(9,2) AS n"
    )
    file = inspect_file(path, "b boolean, raw blob, u uint64, d date, s varchar, n decimal(9,2)")
    bounds = {i: (s.min_value, s.max_value) for i, s in statistics(file).items()}
    assert bounds == {
        1: ("1", "1"),
        2: (None, None),
        3: ("9", "18446744073709551615"),
        4: ("0045-03-15 (BC)", "2024-01-02"),
        5: ("b", "é"),
        6: ("-1.50", "10.00"),
    }


def test_all_row_groups_count(files: Files) -> None:
    numbers = [*range(-50, 50)]
    table = pa.table(
        {
            "n": pa.array([*numbers, None, None]),
            "s": pa.array([*map(str, numbers), "x", "x"]),
            "t": pa.array([*numbers, 5, 5], pa.timestamp("us")),
        }
    )
    file = inspect_file(files.arrow(table, row_group_size=7), "n int64, s varchar, t timestamp")
    n, s, t = (statistics(file)[i] for i in (1, 2, 3))
    assert (n.value_count, n.null_count, n.min_value, n.max_value) == (100, 2, "-50", "49")
    assert (s.min_value, s.max_value) == (min(map(str, numbers)), "x")
    assert (t.min_value, t.max_value) == ("1969-12-31 23:59:59.99995", "1970-01-01 00:00:00.000049")
    assert bound_of("timestamp", [t.min_value, t.max_value], smallest=True) == t.min_value


def test_a_row_group_without_bounds_takes_them_from_the_file(files: Files) -> None:
    schema = pa.schema({"n": pa.int64()})
    path = files.directory / "f.parquet"
    with pq.ParquetWriter(path, schema, write_statistics=False) as writer:
        writer.write_table(pa.table({"n": [1, 2]}))
    [entry] = inspect_file(str(path), "n int64").statistics
    assert (entry.min_value, entry.value_count, entry.null_count) == (None, None, None)
    assert entry.size_bytes


def _strings_file(path: Path, low: bytes, high: bytes, *, deprecated: bool = False) -> str:
    known = Statistics(0, low, high, deprecated)
    levels = [(0, 1), (0, 1)]
    node = Node("s", 1, BYTE_ARRAY, UTF8, levels=levels, values=[low, high], statistics=known)
    write_handmade(path, 2, [node])
    return str(path)


def test_text_bounds_that_may_be_cut_off_are_unknown(tmp_path: Path) -> None:
    [short] = inspect_file(_strings_file(tmp_path / "s", b"ab", b"zz"), "s varchar").statistics
    assert (short.min_value, short.max_value) == ("ab", "zz")
    # The footer does not say that these are exact, and writers cut off from 32 bytes on.
    [long] = inspect_file(_strings_file(tmp_path / "l", b"a" * 64, b"z"), "s varchar").statistics
    assert (long.min_value, long.max_value) == (None, None)
    assert (long.value_count, long.null_count) == (2, 0)


def test_exact_long_bounds_are_taken_at_their_word(files: Files) -> None:
    path = files.arrow(pa.table({"s": ["a" * 300, "b" * 300]}))
    [entry] = inspect_file(path, "s varchar").statistics
    assert (entry.min_value, entry.max_value) == ("a" * 300, "b" * 300)


def test_bounds_of_the_old_unordered_kind_are_ignored(tmp_path: Path) -> None:
    path = _strings_file(tmp_path / "f", b"a", b"z", deprecated=True)
    [entry] = inspect_file(path, "s varchar").statistics
    assert (entry.min_value, entry.max_value) == (None, None)


def test_a_column_of_nulls_has_counts_and_no_bounds(files: Files) -> None:
    [entry] = inspect_file(files.sql("SELECT NULL::INT AS n FROM range(5)"), "n int32").statistics
    assert (entry.value_count, entry.null_count) == (0, 5)
    assert (entry.min_value, entry.max_value, entry.contains_nan) == (None, None, None)
