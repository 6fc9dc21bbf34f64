"""Rewriting by column id over a history, with the table's options, order and encryption."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.kernels.connection import open_connection
from airflow_provider_ducklake.kernels.file_schema import scan_sql
from airflow_provider_ducklake.kernels.tasks import ParquetOptions
from airflow_provider_ducklake.lake.columns import Column, parse_columns
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.model import DataFile, NameMapEntry, SortKey
from tests.kernels.data_files import Directory, numbers, rows_of


def test_columns_by_id_over_a_history(
    lake: Directory, connection: duckdb.DuckDBPyConnection
) -> None:
    # MG-06: a; add b default 7; rename a to aa; drop b, add another b; aa becomes int64.
    a, aa = Column(1, "a", "int32"), Column(1, "aa", "int64")
    b, again = Column(2, "b", "int32", initial_default="7"), Column(3, "b", "int32")
    sources = [
        lake.file("SELECT 1::INTEGER AS a", (a,)),
        lake.file("SELECT 2::INTEGER AS a, 20::INTEGER AS b", (a, b)),
        lake.file("SELECT 3::INTEGER AS aa, 30::INTEGER AS b", (replace(a, name="aa"), b)),
        lake.file("SELECT 4::BIGINT AS aa, 40::INTEGER AS b", (aa, again)),
    ]
    with open_connection(lake.settings) as plain:
        path = f"{lake.root}/in/registered.parquet"
        plain.execute(f"COPY (SELECT 5 AS Legacy, 50 AS old_b) TO '{path}' (FORMAT parquet)")
    entries = (NameMapEntry("Legacy", 1), NameMapEntry("old_b", 2))
    sources.append(
        DataFile(9, 1, path, 1, 1, 1, begin_snapshot=9, row_id_start=4, name_map=entries)
    )
    now = lake.rewrite(*sources, columns=(aa, again))
    assert [row[:2] for row in rows_of(connection, now)] == [
        (1, None), (2, None), (3, None), (4, 40), (5, None)
    ]  # fmt: skip
    then = lake.rewrite(*sources[:3], columns=(a, b))
    assert [row[:2] for row in rows_of(connection, then)] == [(1, 7), (2, 20), (3, 30)]


def test_nested_and_odd_types_survive(
    lake: Directory, connection: duckdb.DuckDBPyConnection
) -> None:
    columns = parse_columns(
        "h int128, i interval, z timetz, t time_ns, u uuid, j json, g geometry, v variant, "
        "s struct(x int32, l varchar[]), m map(varchar, struct(y float64)), d decimal(38,9)"
    )
    values = (
        "5::HUGEINT AS h, INTERVAL '1 day 2 seconds' AS i, '12:00:00+00'::TIMETZ AS z, "
        "'12:00:00.123456789'::TIME_NS AS t, 'f79c3e09-677c-4bbd-a479-3f349cb785e7'::UUID AS u, "
        "'[1]'::JSON AS j, 'POINT (1 2)'::GEOMETRY AS g, {'q': [1]}::VARIANT AS v, "
        "{'x': 1::INTEGER, 'l': ['p', NULL]} AS s, MAP {'k': {'y': 1.5::DOUBLE}} AS m, "
        "1.5::DECIMAL(38,9) AS d"
    )
    nulls = ", ".join(f"NULL::{c.sql_type} AS {c.name}" for c in columns)
    one = lake.file(f"SELECT {values}", columns)
    two = lake.file(f"SELECT {nulls}", columns)
    written = lake.rewrite(one, two, columns=columns)
    read = ", ".join(f"CAST(CAST({c.name} AS {c.sql_type}) AS VARCHAR)" for c in columns)

    def texts(*paths: str) -> list[Any]:
        return connection.execute(f"SELECT {read} FROM {scan_sql(paths)}").fetchall()

    assert texts(written.path) == texts(one.path, two.path)
    assert texts(written.path)[0][:4] == (
        "5",
        "1 day 00:00:02",
        "12:00:00+00",
        "12:00:00.123456789",
    )


def test_options_are_honoured(lake: Directory) -> None:
    # MG-08: compaction must not undo compression, row groups or order.
    sources = [lake.file(numbers(n * 5000, 5000)) for n in range(2)]
    options = ParquetOptions(compression="zstd", row_group_size=2048, version=2)
    written = lake.rewrite(*sources, options=options, sort_keys=(SortKey("a % 10"),))
    metadata = pq.read_metadata(written.path)
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert {metadata.row_group(i).num_rows for i in range(4)} == {2048}


def test_sorted_stably(lake: Directory, connection: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT CASE WHEN i % 3 < 2 THEN i % 3 END AS a, 'v' || i AS b FROM range(9) t(i)"
    keys = (SortKey("a", "DESC", "NULLS_FIRST"),)
    written = lake.rewrite(lake.file(query), sort_keys=keys)
    assert [row[1:] for row in rows_of(connection, written)] == [
        ("v2", 2), ("v5", 5), ("v8", 8), ("v1", 1), ("v4", 4), ("v7", 7), ("v0", 0), ("v3", 3),
        ("v6", 6),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "key",
    [
        SortKey("gone"),
        SortKey("a, b"),
        SortKey("a AS x"),
        SortKey("a FROM range(3)"),
        SortKey("1 ORDER BY 1"),
        SortKey("a) -- "),
        SortKey("(SELECT max(content) FROM read_text('/etc/hostname'))"),
        SortKey("row_number() OVER ()"),
        SortKey("a", "SIDEWAYS"),
        SortKey("a", "ASC", "NULLS"),
        SortKey("a; DROP TABLE x"),
        SortKey(""),
    ],
)
def test_sort_keys_that_cannot_be(lake: Directory, key: SortKey) -> None:
    with pytest.raises(ConfigurationError, match="sort key"):
        lake.run(lake.file(numbers(0, 2)), sort_keys=(key,))
    assert lake.outputs() == []


def test_encrypted_sources_and_output(
    lake: Directory, connection: duckdb.DuckDBPyConnection
) -> None:
    secret = ParquetOptions(encrypted=True)
    one, two = lake.file(numbers(0, 2), options=secret), lake.file(numbers(2, 2), options=secret)
    written = lake.rewrite(one, replace(two, inlined_deletes=(0,)), options=secret)
    assert written.encryption_key not in (None, one.encryption_key, two.encryption_key)
    assert [row[0] for row in rows_of(connection, written)] == [0, 1, 3]


def test_more_data_than_memory(lake: Directory, connection: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT i AS a, sha256(i::VARCHAR) || md5(i::VARCHAR) AS b FROM range({}, {}) t(i)"
    sources = [lake.file(query.format(n * 300_000, n * 300_000 + 300_000)) for n in range(4)]
    # Some 130 MB of values to stream through, twice as much to sort.
    for limit, files, more in (
        ("100MB", sources, {}),
        ("220MB", sources * 2, {"sort_keys": (SortKey("hash(a)"),)}),
    ):
        lake.settings = replace(lake.settings, memory_limit=limit)
        written = lake.rewrite(*files, **more)
        assert written.record_count == 300_000 * len(files)
        total = connection.execute(f"SELECT sum(a) FROM {scan_sql(written.path)}").fetchone()
        assert total == (len(files) // 4 * 1_199_999 * 1_200_000 // 2,)
