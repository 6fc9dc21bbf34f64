"""What Parquet cannot hold is refused at every depth; what it can goes in."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from airflow_provider_ducklake.kernels.file_schema import scan_sql
from airflow_provider_ducklake.kernels.projection import project
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.errors import BadInput
from tests.kernels.reading import data_file, read_columns
from tests.kernels.writer import DEFAULTS, Writer

INEXACT = [
    ("int128", "170141183460469231731687303715884105727"),
    ("uint128", "9007199254740993"),
    ("interval", "1 day 00:00:00.000001"),
    ("interval", "-1 day"),
    ("interval", "1 month -1 day"),
    ("interval", "1200 hours"),
    ("timetz", "12:00:00+01"),
]


@pytest.mark.parametrize(("kind", "value"), INEXACT)
@pytest.mark.parametrize(
    ("wrapped_type", "wrapped"),
    [
        ("{0}", "v"),
        ("{0}[]", "[NULL, v]"),
        ("struct(a int32, b {0})", "{{'a': 1::INTEGER, 'b': v}}"),
        ("map(varchar, {0}[])", "MAP {{'k': [v]}}"),
        ("{0}[][]", "[NULL, [v]]"),
    ],
)
def test_what_parquet_would_change_is_refused(
    write: Writer, tmp_path: Path, kind: str, value: str, wrapped_type: str, wrapped: str
) -> None:
    columns = parse_columns(f"x {wrapped_type.format(kind)}")
    [inner] = parse_columns(f"v {kind}")
    expression = wrapped.format()
    with pytest.raises(BadInput, match=f"column x .{kind}.*value"):
        write(
            f"SELECT {expression} AS x FROM (SELECT CAST(? AS {inner.sql_type}) AS v)",
            columns,
            DEFAULTS,
            [value],
        )
    assert list((tmp_path / "data").rglob("*.parquet")) == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int128", "9007199254740992"),
        ("int128", "-85070591730234615865843651857942052864"),
        ("uint128", "0"),
        ("interval", "5 months 3 days 01:02:03.004"),
        ("interval", "1192:59:59.999"),
        ("timetz", "12:00:00.5+00"),
    ],
)
def test_what_parquet_can_hold_goes_in(
    write: Writer, connection: duckdb.DuckDBPyConnection, kind: str, value: str
) -> None:
    [column] = parse_columns(f"x {kind}")
    query = f"SELECT CAST(? AS {column.sql_type}) AS x UNION ALL SELECT NULL"
    written = write(query, (column,), DEFAULTS, [value])
    found = connection.execute(
        f"SELECT CAST(CAST(x AS {column.sql_type}) AS VARCHAR), "
        f"CAST(CAST(? AS {column.sql_type}) AS VARCHAR) FROM {scan_sql(written.path)}",
        [value],
    ).fetchall()
    assert found[0][0] == found[0][1]
    assert found[1][0] is None


@pytest.mark.parametrize(
    ("kind", "value", "field_ids"),
    [
        ("int128", "v", "1"),
        ("int128[]", "[NULL, v]", "{__duckdb_field_id: 1, element: 2}"),
        ("struct(a int128)", "{'a': v}", "{__duckdb_field_id: 1, a: 2}"),
        ("map(varchar, int128)", "MAP {'k': v}", "{__duckdb_field_id: 1, key: 2, value: 3}"),
    ],
)
def test_what_only_a_stock_file_can_hold_is_named(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, kind: str, value: str, field_ids: str
) -> None:
    """The reference writes the least 128-bit integer as a DOUBLE that nobody reads again."""
    columns = parse_columns(f"x {kind}")
    path = str(tmp_path / "f.parquet")

    def read(integer: int) -> str:
        connection.execute(
            f"COPY (SELECT {value} AS x FROM (SELECT '{integer}'::HUGEINT AS v) UNION ALL "
            f"SELECT NULL) TO '{path}' (FORMAT parquet, FIELD_IDS {{x: {field_ids}}})"
        )
        projection = project(connection, data_file(path), path, columns)
        return str(read_columns(connection, projection))

    assert str(-(2**126)) in read(-(2**126))
    named = r"column .* holds .* delete the row, .*; value -1.7014118346046923e\+38"
    with pytest.raises(duckdb.InvalidInputException, match=named):
        read(-(2**127))
