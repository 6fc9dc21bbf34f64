"""One private DuckDB: its scratch directory, its limits, and its errors in our words."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import pytest

from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    duckdb_errors,
    open_connection,
    scratch,
)
from airflow_provider_ducklake.kernels.file_schema import read_file_schema
from airflow_provider_ducklake.kernels.parquet import write_parquet
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.errors import (
    BadInput,
    ConfigurationError,
    LakeError,
    StorageError,
)
from airflow_provider_ducklake.storage import StorageOptions
from tests.kernels.writer import DEFAULTS, one


def test_place_that_cannot_be_written(
    connection: duckdb.DuckDBPyConnection, settings: KernelSettings, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot make directory"):
        write_parquet(
            connection,
            "SELECT 1 AS a",
            (),
            f"{tmp_path}/file/x.parquet",
            parse_columns("a int32"),
            DEFAULTS,
            settings,
        )


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"", BadInput), (b"PAR1" + bytes(100) + b"PAR1", BadInput), (None, StorageError)],
)
def test_broken_and_missing_files(
    settings: KernelSettings,
    tmp_path: Path,
    content: bytes | None,
    error: type[LakeError],
) -> None:
    path = tmp_path / "bad.parquet"
    if content is not None:
        path.write_bytes(content)
    # A broken file can break the DuckDB instance that read it.
    with open_connection(settings) as connection, pytest.raises(error, match="bad") as caught:
        read_file_schema(connection, str(path), path="s3://b/bad.parquet")
    assert "s3://b/bad.parquet" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_out_of_memory_says_what_to_do(tmp_path: Path) -> None:
    settings = KernelSettings(StorageOptions({}), "20MB", str(tmp_path))
    with open_connection(settings) as connection:
        connection.execute("SET max_temp_directory_size = '0KB'")
        with pytest.raises(LakeError, match=r"raise memory_limit|more room"), duckdb_errors("sort"):
            connection.execute("SELECT i, hash(i) FROM range(20000000) t(i) ORDER BY 2").fetchall()


def test_sql_text_is_never_shown(connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(LakeError) as caught, duckdb_errors("try"):
        connection.execute("SELECT no_such_column, 'topsecret'")
    assert "topsecret" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("limit", ["lots", ""])
def test_wrong_memory_limit(limit: str) -> None:
    settings = KernelSettings(StorageOptions({}), memory_limit=limit)
    with pytest.raises(ConfigurationError, match="memory_limit"), open_connection(settings):
        pytest.fail("a connection without a limit was opened")


def test_scratch_is_private_and_removed(tmp_path: Path) -> None:
    settings = KernelSettings(StorageOptions({}), scratch_directory=str(tmp_path))
    with scratch(settings) as first, scratch(settings) as second:
        assert first != second
        assert os.stat(first).st_mode & 0o077 == 0
        (Path(first) / "x").write_text("x")
    assert os.listdir(tmp_path) == []
    missing = KernelSettings(StorageOptions({}), scratch_directory=str(tmp_path / "no"))
    with pytest.raises(ConfigurationError, match="scratch directory"), scratch(missing):
        pytest.fail("a scratch directory was made up")


def test_connection_is_in_utc_and_downloads_nothing(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    assert one(connection, "SELECT current_setting('TimeZone')") == "UTC"
    assert one(connection, "SELECT current_setting('threads')") == 1
    assert one(connection, "SELECT current_setting('autoload_known_extensions')") is False
