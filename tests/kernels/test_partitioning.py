"""Partition keys: SQL, directory names and catalog text as the reference has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.kernels.partitioning import (
    directory_values,
    partition_directory,
    partition_keys,
)
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.errors import ConfigurationError, UnsupportedCatalog
from airflow_provider_ducklake.lake.model import PartitionField, PartitionSpec

COLUMNS = parse_columns("ts timestamptz, region varchar, year int32, n decimal(4,2)")
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def _spec(*fields: tuple[int, str]) -> PartitionSpec:
    return PartitionSpec(
        7, tuple(PartitionField(i, column, t) for i, (column, t) in enumerate(fields))
    )


def test_names_take_the_column_along_when_taken(connection: duckdb.DuckDBPyConnection) -> None:
    spec = _spec((1, "year"), (3, "identity"), (3, "bucket(4)"), (2, "bucket(8)"))
    keys = partition_keys(connection, spec, COLUMNS)
    assert [key.name for key in keys] == ["year", "year_year", "bucket", "bucket_region"]
    assert [key.transform for key in keys] == ["year", "identity", "bucket", "bucket"]


def test_values_are_text_or_null(connection: duckdb.DuckDBPyConnection) -> None:
    spec = _spec(
        (1, "year"), (1, "month"), (1, "day"), (1, "hour"), (2, "identity"), (4, "identity")
    )
    keys = partition_keys(connection, spec, COLUMNS)
    query = (
        f"SELECT {', '.join(key.text for key in keys)} FROM (VALUES "
        "(TIMESTAMPTZ '2024-12-31 23:30:00-02', 'eu', 2024, 0.5::DECIMAL(4,2)), "
        "(NULL, NULL, NULL, NULL)) AS t(ts, region, year, n)"
    )
    assert connection.execute(query).fetchall() == [
        ("2025", "1", "1", "1", "eu", "0.50"),
        (None, None, None, None, None, None),
    ]


def test_directories_are_percent_encoded(connection: duckdb.DuckDBPyConnection) -> None:
    columns = parse_columns('"a b" varchar, c varchar')
    keys = partition_keys(connection, _spec((1, "identity"), (2, "identity")), columns)
    assert partition_directory(keys, ("x/y=ä~.-_", None)) == (
        "a%20b=x%2Fy%3D%C3%A4~.-_/c=__HIVE_DEFAULT_PARTITION__/"
    )


def test_column_that_is_gone(connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(ConfigurationError, match="column id 99"):
        partition_keys(connection, _spec((99, "identity")), COLUMNS)


@pytest.mark.parametrize("transform", ["truncate(3)", "bucket(0)", "bucket", "years"])
def test_unknown_transform(connection: duckdb.DuckDBPyConnection, transform: str) -> None:
    with pytest.raises(UnsupportedCatalog, match="transform"):
        partition_keys(connection, _spec((2, transform)), COLUMNS)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/l/a=1/b=x%20y/f.parquet", {"a": "1", "b": "x y"}),
        ("/l/a=1/a=2/f.parquet", {"a": "1"}),
        ("/l/a=/f.parquet", {"a": ""}),
        ("/l/a=NULL/b=null/c=__HIVE_DEFAULT_PARTITION__/f", {"a": None, "b": None, "c": None}),
        ("/l/a=b=c/=d/e?=f/g.parquet", {}),
        ("/l/a=%zz%C3%A4+/f.parquet", {"a": "%zzä+"}),
        ("a=1", {}),
    ],
)
def test_directory_values(path: str, values: dict[str, str | None]) -> None:
    assert directory_values(path) == values


@given(TEXT)
def test_what_we_name_reads_back(connection: duckdb.DuckDBPyConnection, value: str) -> None:
    keys = partition_keys(connection, _spec((1, "identity")), parse_columns("k varchar"))
    expected = None if value.upper() == "NULL" or value == "__HIVE_DEFAULT_PARTITION__" else value
    assert directory_values(partition_directory(keys, (value,)) + "f.parquet") == {"k": expected}


@pytest.mark.parametrize(
    "value",
    ["a b", "a/b", "ä~.-_", "a%20", "a=b", "x?y", "a:b", "a+b", "NULL", "'", '"', "\\", "*"],
)
def test_duckdb_names_directories_alike(tmp_path: Path, value: str) -> None:
    columns = parse_columns('"k y" varchar')
    with duckdb.connect(":memory:") as connection:
        keys = partition_keys(connection, _spec((1, "identity")), columns)
        connection.execute(
            f"COPY (SELECT ? AS \"k y\", 1 AS v) TO '{tmp_path}' "
            '(FORMAT parquet, PARTITION_BY ("k y"), OVERWRITE_OR_IGNORE)',
            [value],
        )
    assert os.listdir(tmp_path) == [partition_directory(keys, (value,)).rstrip("/")]
