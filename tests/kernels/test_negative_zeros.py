"""-0.0 stays -0.0, and a filter on zero finds it, in every file that is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.kernels.parquet import write_parquet_files
from airflow_provider_ducklake.kernels.tasks import ParquetOptions
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.model import SortKey
from tests.kernels.appender import Appender, partition_spec
from tests.kernels.data_files import Directory
from tests.kernels.writer import DEFAULTS, Writer

# Few values, many times: DuckDB makes a dictionary of them.
ROWS = [0.0, -0.0, None, 1.5, float("nan"), float("-inf"), -1.5] * 40
NESTED = {
    "float64": ("x double", "{}"),
    "float32": ("x float32", "{}"),
    "list": ("x double[]", "[{}, 1]"),
    "lists": ("x float32[][]", "[[{}], NULL]"),
    "struct": ("x struct(a int32, b struct(c double))", "{{'a': 1, 'b': {{'c': {}}}}}"),
    "key": ("x map(double, int32)", "MAP {{{}: 1}}"),
    "value": ("x map(varchar, struct(d double[]))", "MAP {{'k': {{'d': [{}]}}}}"),
}


def spelled(values: object) -> str:
    """Return values as text, in which the two zeros differ."""
    return repr(values).replace("nan", "'nan'")


def query(kind: str, zeros: tuple[str, ...]) -> str:
    """Return a query whose values hold these zeros in turn."""
    columns, form = NESTED[kind]
    (column,) = parse_columns(columns)
    cases = " ".join(
        f"WHEN i % {len(zeros)} = {at} THEN {form.format(zero + '::DOUBLE')}::{column.sql_type}"
        for at, zero in enumerate(zeros)
    )
    return f"SELECT CASE {cases} END AS x FROM range(300) t(i)"


def dictionaries(path: str) -> set[bool]:
    """Tell whether column chunks have dictionaries."""
    groups = pq.ParquetFile(path).metadata
    chunks = [
        groups.row_group(g).column(c)
        for g in range(groups.num_row_groups)
        for c in range(groups.num_columns)
    ]
    return {any("DICTIONARY" in encoding for encoding in chunk.encodings) for chunk in chunks}


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize(
    "options",
    [DEFAULTS, ParquetOptions(row_group_size_bytes=1_000), ParquetOptions(version=2)],
    ids=["plain", "row groups by bytes", "version 2"],
)
def test_zeros_of_both_signs_are_kept(
    write: Writer, connection: duckdb.DuckDBPyConnection, kind: str, options: ParquetOptions
) -> None:
    sql = query(kind, ("0.0", "'-0.0'"))
    written = write(sql, NESTED[kind][0], options)
    assert written.record_count == 300
    expected = [row[0] for row in connection.execute(sql).fetchall()]
    found = connection.execute(f"SELECT x FROM '{written.path}'").fetchall()
    assert spelled([row[0] for row in found]) == spelled(expected)
    assert dictionaries(written.path) == {False}


@pytest.mark.parametrize("kind", NESTED)
def test_files_without_negative_zeros_have_dictionaries(write: Writer, kind: str) -> None:
    assert True in dictionaries(write(query(kind, ("0.0", "1.0")), NESTED[kind][0]).path)


def test_a_filter_finds_negative_zeros(
    write: Writer, connection: duckdb.DuckDBPyConnection
) -> None:
    """Where there is no other zero, and a Bloom filter would know the bits of -0.0 alone."""
    written = write(query("float64", ("'-0.0'", "1.0", "2.0")), NESTED["float64"][0])
    for zero in ("0.0", "'-0.0'::DOUBLE"):
        counted = connection.execute(f"SELECT count(*) FROM '{written.path}' WHERE x = {zero}")
        assert counted.fetchall() == [(100,)]


def test_no_file_of_the_first_try_is_left(
    connection: duckdb.DuckDBPyConnection, write: Writer, tmp_path: Path
) -> None:
    """The negative zero comes late, when files have been closed."""
    value = "CASE WHEN i = 299999 THEN '-0.0' ELSE i % 7 END::DOUBLE"
    rows = f"SELECT {value} AS x FROM range(300000) t(i)"
    options = ParquetOptions(row_group_size=20_480, target_file_size=1)
    files = write_parquet_files(
        connection, rows, (), f"{tmp_path}/out/", parse_columns("x double"), options, write.settings
    )
    assert len(files) > 2
    assert sorted(str(path) for path in (tmp_path / "out").iterdir()) == sorted(
        file.path for file in files
    )
    assert sum(file.record_count for file in files) == 300_000


def batches(*parts: list[Any], kind: pa.DataType | None = None) -> list[pa.RecordBatch]:
    """Return a batch of rows (id, x) for each part."""
    made = []
    for number, part in enumerate(parts):
        ids = pa.array(range(number * 1000, number * 1000 + len(part)), pa.int32())
        made.append(pa.record_batch({"id": ids, "x": pa.array(part, kind or pa.float64())}))
    return made


def read(files: Any) -> list[Any]:
    return [row["x"] for file in files for row in pq.read_table(file.path).to_pylist()]


POSITIVE = [value for value in ROWS if repr(value) != "-0.0"]


def test_a_stream_goes_on_without_dictionaries(add: Appender) -> None:
    """It cannot be read again: what came before the first negative zero is a file of its own."""
    files = add("id int32, x double", batches(POSITIVE, ROWS, POSITIVE))
    assert [dictionaries(file.path) for file in files] == [{False, True}, {False}]
    assert spelled(read(files)) == spelled([*POSITIVE, *ROWS, *POSITIVE])


def test_a_stream_that_begins_with_them_is_one_file(add: Appender) -> None:
    (file,) = add("id int32, x double", batches(ROWS, POSITIVE))
    assert spelled(read([file])) == spelled([*ROWS, *POSITIVE])


@pytest.mark.parametrize(
    ("kind", "declared", "wrap"),
    [
        (pa.float32(), "float32", lambda v: v),
        (pa.list_(pa.float64()), "double[]", lambda v: [v]),
        (pa.large_list(pa.float32()), "float32[]", lambda v: [1.0, v]),
        (pa.struct([("a", pa.float64())]), "struct(a double)", lambda v: {"a": v}),
        (pa.map_(pa.string(), pa.float64()), "map(varchar, double)", lambda v: [("k", v)]),
        (pa.dictionary(pa.int32(), pa.float64()), "double", lambda v: v),
    ],
)
def test_streams_of_nested_values(
    add: Appender, kind: pa.DataType, declared: str, wrap: Any
) -> None:
    rows = [wrap(value) for value in (0.0, -0.0, 2.0) * 50]
    if pa.types.is_dictionary(kind):
        indices = pa.array([0, 1, 2] * 50, pa.int32())
        column = pa.DictionaryArray.from_arrays(indices, pa.array([0.0, -0.0, 2.0]))
    else:
        column = pa.array(rows, kind)
    files = add(f"x {declared}", [pa.record_batch({"x": column})])
    assert spelled(read(files)) == spelled(rows)


def test_streams_that_are_sorted_or_partitioned(add: Appender) -> None:
    parts = batches([3.0, 2.0, -0.0, 0.0] * 30, [0.0, 1.0, -0.0] * 30)
    expected = sorted(spelled(value) for batch in parts for value in batch["x"].to_pylist())
    files = add("id int32, x double", parts, sort_keys=(SortKey("id"),))
    assert sorted(spelled(value) for value in read(files)) == expected
    files = add("id int32, x double", parts, partition=partition_spec((1, "bucket(2)")))
    assert len(files) == 2
    assert sorted(spelled(value) for value in read(files)) == expected


def test_merged_files_keep_them(lake: Directory) -> None:
    columns = parse_columns("a double")
    sources = [
        lake.file(f"SELECT {zero}::DOUBLE AS a FROM range(50)", columns)
        for zero in ("0.0", "'-0.0'", "1.0")
    ]
    written = lake.rewrite(*sources, columns=columns, write_row_ids=False)
    rows = pq.read_table(written.path)["a"].to_pylist()
    assert spelled(rows) == spelled([0.0] * 50 + [-0.0] * 50 + [1.0] * 50)


def test_the_order_of_a_query_is_kept(write: Writer, connection: duckdb.DuckDBPyConnection) -> None:
    """With negative zeros and without: several row groups of a query that sorts."""
    for last in ("0.5", "'-0.0'"):
        rows = (
            f"SELECT i * 7919 % 300007 AS k, CASE WHEN i = 9 THEN {last} ELSE i END::DOUBLE AS x "
            "FROM range(300007) t(i)"
        )
        written = write(f"SELECT * FROM ({rows}) ORDER BY k DESC", "k int64, x double")
        scan = f"read_parquet('{written.path}', file_row_number = true)"
        wrong = f"SELECT count(*) FROM {scan} WHERE k <> 300006 - file_row_number"
        assert connection.execute(wrong).fetchall() == [(0,)]
