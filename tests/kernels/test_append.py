"""Arrow batches become files: matched by name, converted without loss, partitioned as agreed."""

from __future__ import annotations

import datetime
import decimal
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from airflow_provider_ducklake.kernels.append import append
from airflow_provider_ducklake.kernels.connection import KernelSettings, open_connection
from airflow_provider_ducklake.kernels.file_schema import scan_sql
from airflow_provider_ducklake.kernels.parquet import write_parquet_files
from airflow_provider_ducklake.kernels.tasks import AppendTask, ParquetOptions
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError
from airflow_provider_ducklake.lake.model import (
    PartitionField,
    PartitionSpec,
    SortKey,
    WrittenFile,
)
from airflow_provider_ducklake.storage import StorageOptions
from tests.support.lakes import LakeFactory, catalog_rows

UTC = datetime.timezone.utc


class Appender:
    """Appends to a table in one directory."""

    def __init__(self, root: Path) -> None:
        self.directory = f"{root}/data/t/"
        (root / "scratch").mkdir()
        self.settings = KernelSettings(StorageOptions({}), "500MB", str(root / "scratch"))

    def __call__(
        self, columns: str, data: pa.Table | Iterable[pa.RecordBatch], **more: Any
    ) -> tuple[WrittenFile, ...]:
        batches = data.to_batches() if isinstance(data, pa.Table) else data
        options = more.pop("options", ParquetOptions())
        task = AppendTask(parse_columns(columns), self.directory, options, **more)
        try:
            return append(batches, task, self.settings)
        finally:
            assert os.listdir(self.settings.scratch_directory) == []

    def stored(self) -> list[str]:
        return sorted(
            str(p.relative_to(self.directory)) for p in Path(self.directory).rglob("*.parquet")
        )


@pytest.fixture
def add(tmp_path: Path) -> Appender:
    return Appender(tmp_path)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_connection(KernelSettings(StorageOptions({}))) as connection:
        yield connection


def _read(
    connection: duckdb.DuckDBPyConnection, files: Sequence[WrittenFile], select: str = "*"
) -> list[Any]:
    return connection.execute(
        f"SELECT {select} FROM {scan_sql([file.path for file in files])}"
    ).fetchall()


def _spec(*fields: tuple[int, str]) -> PartitionSpec:
    return PartitionSpec(3, tuple(PartitionField(i, c, t) for i, (c, t) in enumerate(fields)))


# --- names ---------------------------------------------------------------------------------


def test_columns_are_matched_by_name(add: Appender, connection: duckdb.DuckDBPyConnection) -> None:
    data = pa.table({"C": ["x"], "a": pa.array([1], pa.int32()), "B": [2.5]})
    [written] = add("a int32, b float64, c varchar", data)
    assert _read(connection, [written]) == [(1, 2.5, "x")]
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


# --- values --------------------------------------------------------------------------------

UUID = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
UTC_NS, KOLKATA = pa.timestamp("ns", "UTC"), pa.timestamp("us", "Asia/Kolkata")
TEXT_TO_INT = pa.map_(pa.string(), pa.int32())
FITS = [
    ("int32", pa.array([2**31 - 1, None], pa.int64()), "2147483647"),
    ("uint8", pa.array([255, None], pa.int64()), "255"),
    ("int64", pa.array([3.0, None]), "3"),
    ("float64", pa.array([2**53, None], pa.int64()), "9007199254740992.0"),
    ("float32", pa.array([0.5, None], pa.float64()), "0.5"),
    ("float64", pa.array([1.5, None], pa.float16()), "1.5"),
    ("decimal(4,2)", pa.array([decimal.Decimal("1.500"), None], pa.decimal128(10, 3)), "1.50"),
    ("decimal(38,2)", pa.array([decimal.Decimal("1.50"), None], pa.decimal256(50, 2)), "1.50"),
    ("int128", pa.array([decimal.Decimal(7), None], pa.decimal128(38, 0)), "7"),
    ("varchar", pa.array([12, None]), "12"),
    ("varchar", pa.array(["x", None]).dictionary_encode(), "x"),
    ("varchar", pa.array(["x", None], pa.large_string()), "x"),
    ("int32", pa.array([" 12 ", None]), "12"),
    ("decimal(9,2)", pa.array(["-1.50000", None]), "-1.50"),
    ("float64", pa.array(["0.1", None]), "0.1"),
    ("boolean", pa.array(["TRUE", None]), "true"),
    ("uuid", pa.array([UUID.upper(), None]), UUID),
    ("json", pa.array(['{"a":1}', None]), '{"a":1}'),
    ("date", pa.array(["2024-02-29", None]), "2024-02-29"),
    ("date", pa.array([datetime.datetime(2024, 2, 29), None]), "2024-02-29"),
    ("date", pa.array([datetime.date(2024, 2, 29), None], pa.date64()), "2024-02-29"),
    ("time", pa.array(["12:00:00.5", None]), "12:00:00.5"),
    ("time_ns", pa.array([1, None], pa.time64("ns")), "00:00:00.000000001"),
    ("timetz", pa.array(["12:00:00+00", None]), "12:00:00+00"),
    ("interval", pa.array(["1 day", None]), "1 day"),
    ("interval", pa.array([1_500_000_000, None], pa.duration("ns")), "00:00:01.5"),
    ("timestamp_s", pa.array([datetime.datetime(2024, 1, 1, 1), None]), "2024-01-01 01:00:00"),
    ("timestamp", pa.array([1000, None], pa.timestamp("ns")), "1970-01-01 00:00:00.000001"),
    ("timestamp", pa.array(["2024-01-01T01:00:00", None]), "2024-01-01 01:00:00"),
    ("timestamp_ns", pa.array([1, None], pa.timestamp("ns")), "1970-01-01 00:00:00.000000001"),
    ("timestamptz", pa.array([0, None], KOLKATA), "1970-01-01 00:00:00+00"),
    ("timestamptz", pa.array([5000, None], UTC_NS), "1970-01-01 00:00:00.000005+00"),
    ("timestamptz", pa.array(["2024-01-01 05:30:00+05:30", None]), "2024-01-01 00:00:00+00"),
    ("blob", pa.array([b"\x00\xff", None]), "\\x00\\xFF"),
    ("geometry", pa.array(["POINT (1 2)", None]), "POINT (1 2)"),
    ("int64[]", pa.array([[1, None], None], pa.list_(pa.int32(), 2)), "[1, NULL]"),
    ("int64[]", pa.array([["1", None], None]), "[1, NULL]"),
    ("map(varchar, int64)", pa.array([[("k", 1)], None], TEXT_TO_INT), "{k=1}"),
    ("struct(y varchar, x int64)", pa.array([{"x": 1, "Y": "a"}, None]), "{'y': a, 'x': 1}"),
    ("struct(l struct(x int8)[])", pa.array([{"l": [{"x": 7}]}, None]), "{'l': [{'x': 7}]}"),
    ("variant", pa.array([{"x": 1}, None]), "{'x': 1}"),
    ("date", pa.nulls(2), None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "values", "text"), FITS)
def test_what_fits_is_converted(
    add: Appender,
    connection: duckdb.DuckDBPyConnection,
    kind: str,
    values: pa.Array,
    text: str | None,
) -> None:
    [column] = parse_columns(f"x {kind}")
    written = add(f"x {kind}", pa.table({"x": values}))
    read = f"CAST(CAST(x AS {column.sql_type}) AS VARCHAR)"
    assert _read(connection, written, read) == [(text,), (None,)]


LOSES = [
    ("int32", pa.array([2**31])),
    ("uint8", pa.array([-1])),
    ("int64", pa.array([1.5])),
    ("int64", pa.array([float("nan")])),
    ("float64", pa.array([2**53 + 1])),
    ("float32", pa.array([0.1])),
    ("decimal(4,2)", pa.array([decimal.Decimal("1.555")])),
    ("decimal(4,2)", pa.array([100])),
    ("int128", pa.array([decimal.Decimal(2**53 + 1)], pa.decimal128(38, 0))),
    ("int32", pa.array(["1.5"])),
    ("int32", pa.array(["1e2"])),
    ("int32", pa.array(["12345678901"])),
    ("decimal(9,2)", pa.array(["1.505"])),
    ("boolean", pa.array(["yes"])),
    ("uuid", pa.array(["no"])),
    ("json", pa.array(["{a"])),
    ("date", pa.array(["2024-01-01 10:00:00"])),
    ("date", pa.array([datetime.datetime(2024, 1, 1, 1)])),
    ("time", pa.array(["12:00:00.1234567"])),
    ("time", pa.array([1], pa.time64("ns"))),
    ("timetz", pa.array(["12:00:00+01"])),
    ("interval", pa.array([1], pa.duration("us"))),
    ("interval", pa.array([1], pa.duration("ns"))),
    ("timestamp", pa.array(["2024-01-01 00:00:00+05"])),
    ("timestamp", pa.array(["2024-01-01T00:00:00Z"])),
    ("timestamp", pa.array([1], pa.timestamp("ns"))),
    ("timestamp_s", pa.array([1], pa.timestamp("ms"))),
    ("timestamp_ns", pa.array([datetime.datetime(9999, 1, 1)])),
    ("timestamptz", pa.array([1], pa.timestamp("ns", "UTC"))),
    ("int8[]", pa.array([[1, 300]])),
    ("map(int8, int8)", pa.array([[(1, 300)]], pa.map_(pa.int64(), pa.int64()))),
    ("struct(a int8, b varchar)", pa.array([{"a": 300, "b": "x"}])),
]


@pytest.mark.parametrize(("kind", "values"), LOSES)
def test_what_would_lose_is_refused(add: Appender, kind: str, values: pa.Array) -> None:
    with pytest.raises(BadInput, match=r"column x\b") as caught:
        add(f"x {kind}", pa.table({"x": values}))
    assert "\n" not in str(caught.value)
    assert add.stored() == []


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("timestamp", pa.array([1], pa.timestamp("us", "UTC"))),
        ("timestamptz", pa.array([1], pa.timestamp("us"))),
        ("int32", pa.array([True])),
        ("int32", pa.array([datetime.date(2024, 1, 1)])),
        ("blob", pa.array(["x"])),
        ("varchar", pa.array([b"x"])),
        ("int32[]", pa.array([1])),
        ("int32", pa.array([[1]])),
        ("struct(a int32)", pa.array([[1]])),
    ],
)
def test_types_that_never_fit_are_refused_by_type(
    add: Appender, kind: str, values: pa.Array
) -> None:
    [column] = parse_columns(f"x {kind}")
    with pytest.raises(BadInput, match=rf"column x: the input is .*{re.escape(column.sql_type)}"):
        add(f"x {kind}", pa.table({"x": values}))


def test_null_where_none_is_allowed(add: Appender) -> None:
    with pytest.raises(BadInput, match="column b is NOT NULL"):
        add("a int64, b int64 NOT NULL", pa.table({"a": [1, 2], "b": [1, None]}))
    with pytest.raises(BadInput, match="column b is NOT NULL"):
        add("b date NOT NULL", pa.table({"b": pa.nulls(1)}))
    assert add.stored() == []


def test_instants_do_not_depend_on_a_session_zone(
    add: Appender, connection: duckdb.DuckDBPyConnection
) -> None:
    instant = datetime.datetime(2024, 7, 1, 12, tzinfo=UTC)
    data = pa.table({"x": pa.array([instant], pa.timestamp("us", "Asia/Kolkata"))})
    written = add("x timestamptz", data)
    assert _read(connection, written, "epoch_us(x)") == [(int(instant.timestamp() * 1_000_000),)]
    kind = pq.read_schema(written[0].path).field("x").type
    assert kind == pa.timestamp("us", "UTC")
    assert written[0].statistics[0].min_value == "2024-07-01 12:00:00+00"


@given(
    st.sampled_from(["int8", "uint16", "int32", "float64", "decimal(12,0)"]),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5),
)
@hypothesis_settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_numbers_go_in_whole_or_not_at_all(
    tmp_path_factory: pytest.TempPathFactory,
    connection: duckdb.DuckDBPyConnection,
    kind: str,
    values: list[int | None],
) -> None:
    add = Appender(tmp_path_factory.mktemp("numbers"))
    try:
        written = add(f"x {kind}", pa.table({"x": pa.array(values, pa.int64())}))
    except BadInput:
        assert add.stored() == []
        limits = {"int8": 2**7 - 1, "uint16": 0, "int32": 2**31 - 1, "float64": 2**53}
        assert any(v is not None and abs(v) > limits.get(kind, 10**12 - 1) for v in values)
    else:
        found = [row[0] for row in _read(connection, written)]
        assert found == values


# --- batches and files ---------------------------------------------------------------------


def test_no_batches_and_no_rows(add: Appender) -> None:
    assert add("a int64", []) == ()
    assert add("a int64", pa.schema([("a", pa.int64())]).empty_table()) == ()
    empty = pa.RecordBatch.from_pydict({"a": pa.array([], pa.int64())})
    assert add("a int64", [empty], partition=_spec((1, "identity"))) == ()
    assert add.stored() == []


def test_batches_stream_into_files_of_the_target_size(
    add: Appender, connection: duckdb.DuckDBPyConnection
) -> None:
    batches = (pa.record_batch({"a": pa.array(range(n, n + 1000))}) for n in range(0, 60_000, 1000))
    options = ParquetOptions(target_file_size=60_000, row_group_size=2048)
    written = add("a int64", batches, options=options)
    assert len(written) > 2
    assert [row[0] for row in _read(connection, written)] == list(range(60_000))
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
        add("a int64", batches(), partition=_spec((1, "identity")))
    assert add.stored() == []


def test_sorted_across_batches(add: Appender, connection: duckdb.DuckDBPyConnection) -> None:
    batches = [
        pa.record_batch({"a": [3, 1], "b": ["x", "y"]}),
        pa.record_batch({"a": [2, 3], "b": ["z", "w"]}),
    ]
    written = add("a int64, b varchar", batches, sort_keys=(SortKey("a", "DESC"),))
    assert _read(connection, written) == [(3, "x"), (3, "w"), (2, "z"), (1, "y")]


def test_bad_sort_key(add: Appender) -> None:
    with pytest.raises(ConfigurationError, match="sort key 'gone'"):
        add("a int64", pa.table({"a": [1]}), sort_keys=(SortKey("gone"),))


# --- partitions ----------------------------------------------------------------------------

ROWS = pa.table(
    {
        "ts": pa.array([0, 0, 86_400 * 400, None, 0], pa.timestamp("s")).cast(pa.timestamp("us")),
        "region": ["eu", "a/b", "eu", None, "eu"],
        "n": [5, 4, 3, 2, 1],
    }
)


def test_one_file_a_partition(add: Appender, connection: duckdb.DuckDBPyConnection) -> None:
    spec = _spec((1, "year"), (2, "identity"))
    written = add(
        "ts timestamp, region varchar, n int64", ROWS, partition=spec, sort_keys=(SortKey("n"),)
    )
    found = {f.partition_values: [row[0] for row in _read(connection, [f], "n")] for f in written}
    assert found == {
        ("1970", "eu"): [1, 5],
        ("1970", "a/b"): [4],
        ("1971", "eu"): [3],
        (None, None): [2],
    }
    assert {os.path.dirname(path) for path in add.stored()} == {
        "year=1970/region=eu",
        "year=1970/region=a%2Fb",
        "year=1971/region=eu",
        "year=__HIVE_DEFAULT_PARTITION__/region=__HIVE_DEFAULT_PARTITION__",
    }
    assert all(f.path.startswith(add.directory) and os.path.exists(f.path) for f in written)
    assert {f.record_count: len(f.statistics) for f in written} == {2: 3, 1: 3}


def test_flat_partitions(add: Appender) -> None:
    options = ParquetOptions(hive_file_pattern=False)
    written = add(
        "ts timestamp, region varchar, n int64",
        ROWS,
        partition=_spec((2, "identity")),
        options=options,
    )
    assert {f.partition_values for f in written} == {("eu",), ("a/b",), (None,)}
    assert len(add.stored()) == 3
    assert not any("/" in path for path in add.stored())


def test_large_partitions_are_split(add: Appender, connection: duckdb.DuckDBPyConnection) -> None:
    data = pa.table({"k": [i % 2 for i in range(40_000)], "v": range(40_000)})
    options = ParquetOptions(target_file_size=40_000, row_group_size=2048)
    written = add("k int64, v int64", data, partition=_spec((1, "identity")), options=options)
    for key in ("0", "1"):
        files = [f for f in written if f.partition_values == (key,)]
        assert len(files) > 1
        rows = [row[0] for row in _read(connection, files, "v")]
        assert rows == list(range(int(key), 40_000, 2))


def test_many_partitions(add: Appender, connection: duckdb.DuckDBPyConnection) -> None:
    data = pa.table({"k": [i * 7919 % 300 for i in range(30_000)], "v": range(30_000)})
    written = add("k int64, v int64", data, partition=_spec((1, "identity")))
    assert len(written) == 300
    assert {f.record_count for f in written} == {100}
    assert len(_read(connection, written)) == 30_000


def test_failure_in_a_later_partition_removes_the_earlier(
    add: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(10))

    def fail_at_the_third(*args: Any) -> tuple[WrittenFile, ...]:
        if next(calls) == 2:
            raise BadInput("the third")
        return write_parquet_files(*args)

    module = "airflow_provider_ducklake.kernels.append"
    monkeypatch.setattr(f"{module}.write_parquet_files", fail_at_the_third)
    with pytest.raises(BadInput, match="the third"):
        add("ts timestamp, region varchar, n int64", ROWS, partition=_spec((3, "identity")))
    assert add.stored() == []


def test_more_rows_than_memory(add: Appender) -> None:
    add.settings = replace(add.settings, memory_limit="40MB")

    def batches() -> Iterator[pa.RecordBatch]:
        for n in range(0, 600_000, 50_000):
            text = [f"{i:032d}{i:064d}" for i in range(n, n + 50_000)]
            yield pa.record_batch({"k": pa.array(range(50_000)), "v": text})

    options = ParquetOptions(row_group_size=20_480)
    whole = add("k int64, v varchar", batches(), options=options)
    assert sum(f.record_count for f in whole) == 600_000
    add.settings = replace(add.settings, memory_limit="100MB")
    spec = _spec((1, "bucket(3)"))
    split = add("k int64, v varchar", batches(), options=options, partition=spec)
    assert sum(f.record_count for f in split) == 600_000
    assert {f.partition_values for f in split} == {("0",), ("1",), ("2",)}


# --- the reference -------------------------------------------------------------------------

PARTITIONINGS = [
    ("year(ts), region", _spec((1, "year"), (2, "identity"))),
    (
        "region, bucket(3, n), bucket(2, region)",
        _spec((2, "identity"), (3, "bucket(3)"), (2, "bucket(2)")),
    ),
    ("month(ts), day(ts), hour(ts)", _spec((1, "month"), (1, "day"), (1, "hour"))),
    ("d, f", _spec((4, "identity"), (5, "identity"))),
    ("ts", _spec((1, "identity"))),
]


@pytest.mark.parametrize(("clause", "spec"), PARTITIONINGS)
def test_partitions_are_those_of_the_reference(
    add: Appender, scratch_directory: Path, clause: str, spec: PartitionSpec
) -> None:
    columns = "ts timestamptz, region varchar, n int64, d decimal(4,2), f float64"
    values = (
        "('2024-12-31 23:30:00-02', 'eu', 1, 0.5, 1.5), "
        "('2024-02-29 01:00:00.5+00', 'a b/ü', 2, 1, 1e20), "
        "(NULL, NULL, NULL, NULL, NULL), ('1969-12-31 23:59:59+00', '', -7, -3.25, 'nan'), "
        "('2024-12-31 23:30:00-02', 'x%20', 9, 0.5, -0.0)"
    )
    factory = LakeFactory("sqlite", scratch_directory)
    lake = factory.create()
    client = lake.client(DATA_INLINING_ROW_LIMIT="0")
    client.sql("CREATE TABLE t(ts TIMESTAMPTZ, region VARCHAR, n BIGINT, d DECIMAL(4,2), f DOUBLE)")
    client.sql(f"ALTER TABLE t SET PARTITIONED BY ({clause})")
    client.sql(f"INSERT INTO t VALUES {values}")
    rows = client.connection.execute("FROM t").to_arrow_table()
    client.release()
    catalog = catalog_rows(lake)
    factory.remove(lake)

    texts: dict[int, dict[int, str | None]] = {}
    for row in catalog["ducklake_file_partition_value"]:
        texts.setdefault(row["data_file_id"], {})[row["partition_key_index"]] = row[
            "partition_value"
        ]
    theirs = {
        tuple(texts[file["data_file_id"]][i] for i in range(len(spec.fields))): (
            os.path.dirname(file["path"]),
            file["record_count"],
        )
        for file in catalog["ducklake_data_file"]
    }
    ours = {
        f.partition_values: (
            os.path.dirname(os.path.relpath(f.path, add.directory)),
            f.record_count,
        )
        for f in add(columns, rows, partition=spec)
    }
    assert ours == theirs
