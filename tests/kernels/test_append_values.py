"""Values of Arrow batches are converted without loss, or refused."""

from __future__ import annotations

import datetime
import decimal
import re

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.errors import BadInput
from tests.kernels.appender import Appender, read_rows

UTC = datetime.timezone.utc
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
    assert read_rows(connection, written, read) == [(text,), (None,)]


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
    assert read_rows(connection, written, "epoch_us(x)") == [
        (int(instant.timestamp() * 1_000_000),)
    ]
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
        found = [row[0] for row in read_rows(connection, written)]
        assert found == values
