"""Arrow batches become files: columns matched by name, whole batches or none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.kernels.tasks import ParquetOptions
from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError
from airflow_provider_ducklake.lake.model import (
    SortKey,
)
from tests.kernels.appender import Appender, partition_spec, read_rows


def test_columns_are_matched_by_name(add: Appender, connection: duckdb.DuckDBPyConnection) -> None:
    data = pa.table({"C": ["x"], "a": pa.array([1], pa.int32()), "B": [2.5]})
    [written] = add("a int32, b float64, c varchar", data)
    assert read_rows(connection, [written]) == [(1, 2.5, "x")]
    assert pq.read_schema(written.path).names == ["a", "b", "c"]


def test_the_exact_name_wins(add: Appender, connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(BadInput, match="'A', which the table does not have"):
        add("a int64", pa.table({"A": [1], "a": [2]}))


@pytest.mark.parametrize(
    ("columns", "data", "words"),
    [
        ("a int64, b int64", {"a": [1]}, "no field 'b'"),
        ("a int64", {"a": [1], "x": [1], "y": [1]}, "'x', 'y', which the table does not have"),
        ("b int64", {"B": [1], "c": [2]}, "'c', which the table"),
        ("s struct(x int64)", {"s": [{"x": 1, "z": 2}]}, "column s has 'z'"),
        ("s struct(x int64, y int64)", {"s": [{"x": 1}]}, "column s has no field 'y'"),
    ],
)
def test_missing_and_left_over_columns(
    add: Appender, columns: str, data: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(words)):
        add(columns, pa.table(data))
    assert add.stored() == []


def test_a_name_twice(add: Appender) -> None:
    with pytest.raises(BadInput, match="several fields 'a'"):
        add("a int64", pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]))


def test_no_batches_and_no_rows(add: Appender) -> None:
    assert add("a int64", []) == ()
    assert add("a int64", pa.schema([("a", pa.int64())]).empty_table()) == ()
    empty = pa.RecordBatch.from_pydict({"a": pa.array([], pa.int64())})
    assert add("a int64", [empty], partition=partition_spec((1, "identity"))) == ()
    assert add.stored() == []


def test_batches_stream_into_files_of_the_target_size(
    add: Appender, connection: duckdb.DuckDBPyConnection
) -> None:
    batches = (pa.record_batch({"a": pa.array(range(n, n + 1000))}) for n in range(0, 60_000, 1000))
    options = ParquetOptions(target_file_size=60_000, row_group_size=2048)
    written = add("a int64", batches, options=options)
    assert len(written) > 2
    assert [row[0] for row in read_rows(connection, written)] == list(range(60_000))
    assert all(f.file_size_bytes < 120_000 for f in written)
    assert sum(f.record_count for f in written) == 60_000


def test_batches_of_different_columns(add: Appender) -> None:
    batches = [pa.record_batch({"a": [1]}), pa.record_batch({"b": [1]})]
    with pytest.raises(BadInput, match="same columns"):
        add("a int64", batches)
    assert add.stored() == []


def test_an_error_of_the_source_stays_what_it_is(add: Appender) -> None:
    class SourceError(Exception):
        pass

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        raise SourceError("the other end hung up")

    with pytest.raises(SourceError, match="hung up"):
        add("a int64", batches())
    with pytest.raises(SourceError, match="hung up"):
        add("a int64", batches(), partition=partition_spec((1, "identity")))
    assert add.stored() == []


def test_sorted_across_batches(add: Appender, connection: duckdb.DuckDBPyConnection) -> None:
    batches = [
        pa.record_batch({"a": [3, 1], "b": ["x", "y"]}),
        pa.record_batch({"a": [2, 3], "b": ["z", "w"]}),
    ]
    written = add("a int64, b varchar", batches, sort_keys=(SortKey("a", "DESC"),))
    assert read_rows(connection, written) == [(3, "x"), (3, "w"), (2, "z"), (1, "y")]


def test_bad_sort_key(add: Appender) -> None:
    with pytest.raises(ConfigurationError, match="sort key 'gone'"):
        add("a int64", pa.table({"a": [1]}), sort_keys=(SortKey("gone"),))
