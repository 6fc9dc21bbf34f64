"""Hashes equal those of the reference extension's own `murmur3_32`, for every type."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.kernels.murmur3 import murmur3_sql, register_murmur3
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import UnsupportedCatalog
from airflow_provider_ducklake.lake.identifiers import quote_literal
from airflow_provider_ducklake.lake.types import DUCKDB_NAMES, duckdb_type
from tests.support.reference import extension_file

VALUES = {
    "boolean": ["true", "false"],
    "int8": ["-128", "7"],
    "int16": ["-300", "32767"],
    "int32": ["34", "-1", "-2147483648"],
    "int64": ["34", "-9223372036854775808", "9223372036854775807"],
    "int128": ["-170141183460469231731687303715884105728", "1"],
    "uint8": ["200"],
    "uint16": ["20000"],
    "uint32": ["4000000000"],
    "uint64": ["18446744073709551615", "34"],
    "uint128": ["340282366920938463463374607431768211455"],
    "float32": ["1.5", "0.1", "-0.0", "0.0", "nan", "-nan", "inf"],
    "float64": ["1.5", "0.1", "-0.0", "0.0", "nan", "-inf"],
    "decimal(2,2)": ["-.05", "0.99"],
    "decimal(4,2)": ["-0.05", "12.34"],
    "decimal(9,0)": ["-5"],
    "decimal(18,4)": ["123456.7890"],
    "decimal(19,0)": ["7"],
    "decimal(38,10)": ["1.5", "-.5"],
    "date": ["2017-11-16", "0001-01-01 (BC)", "infinity", "-infinity"],
    "time": ["22:31:08", "24:00:00"],
    "time_ns": ["22:31:08.123456789"],
    "timetz": ["22:31:08+01", "22:31:08-15:59:59", "00:00:00+15:59:59", "24:00:00+00"],
    "timestamp": ["2017-11-16 22:31:08", "290000-01-01", "infinity", "-infinity"],
    "timestamp_us": ["2017-11-16 22:31:08.5"],
    "timestamptz": ["2017-11-16 22:31:08+05", "infinity", "-infinity"],
    "timestamp_s": ["2017-11-16 22:31:08", "1960-01-01 00:00:01", "290000-01-01", "infinity"],
    "timestamp_ms": ["2017-11-16 22:31:08.123", "1960-01-01 00:00:00.001", "-infinity"],
    "timestamp_ns": ["2017-11-16 22:31:08.123456789", "infinity", "-infinity"],
    "varchar": ["iceberg", "", "ä", "a" * 100],
    "json": ['{"a": 1}'],
    "blob": ["\\x00\\x01\\xFF", ""],
    "uuid": ["f79c3e09-677c-4bbd-a479-3f349cb785e7"],
    "interval": ["1 day 00:00:01", "-3 months"],
}


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"LOAD {quote_literal(str(extension_file('ducklake')))}")
        register_murmur3(connection)
        yield connection


def _hashes(
    connection: duckdb.DuckDBPyConnection, kind: str, value: str | None
) -> tuple[int | None, int | None]:
    column = Column(1, "x", kind)
    row = connection.execute(
        f"SELECT murmur3_32(x), {murmur3_sql('x', column)} "
        f"FROM (SELECT CAST(? AS {duckdb_type(kind)}) AS x)",
        [value],
    ).fetchone()
    assert row is not None
    return row


@pytest.mark.parametrize(
    ("kind", "value"), [(kind, value) for kind in VALUES for value in VALUES[kind]]
)
def test_equals_the_reference(connection: duckdb.DuckDBPyConnection, kind: str, value: str) -> None:
    theirs, ours = _hashes(connection, kind, value)
    assert ours == theirs
    assert ours is not None


@pytest.mark.parametrize("kind", VALUES)
def test_null_stays_null(connection: duckdb.DuckDBPyConnection, kind: str) -> None:
    assert _hashes(connection, kind, None) == (None, None)


def test_every_scalar_type_is_covered_or_refused() -> None:
    assert set(DUCKDB_NAMES) - set(VALUES) == {"variant", "geometry"}
    for kind in ("variant", "geometry", "list"):
        with pytest.raises(UnsupportedCatalog, match="column x"):
            murmur3_sql("x", Column(1, "x", kind))


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_integer(connection: duckdb.DuckDBPyConnection, value: int) -> None:
    theirs, ours = _hashes(connection, "int64", str(value))
    assert ours == theirs


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_text(connection: duckdb.DuckDBPyConnection, value: str) -> None:
    theirs, ours = _hashes(connection, "varchar", value)
    assert ours == theirs


def test_more_rows_than_a_vector_holds(connection: duckdb.DuckDBPyConnection) -> None:
    column = Column(1, "x", "int64")
    row = connection.execute(
        f"SELECT count(*), count(*) FILTER (murmur3_32(x) IS NOT DISTINCT FROM "
        f"{murmur3_sql('x', column)}) FROM (SELECT CASE WHEN i % 7 > 0 THEN i * 1000003 END AS x "
        "FROM range(10000) t(i))"
    ).fetchone()
    assert row == (10000, 10000)


def test_registering_twice_is_fine(connection: duckdb.DuckDBPyConnection) -> None:
    register_murmur3(connection)
    assert _hashes(connection, "int32", "34")[1] == 2017239379  # Iceberg's own test vector
