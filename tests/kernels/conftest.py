"""What tests of kernels work with: a connection, a scratch directory, ways to make files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from airflow_provider_ducklake.kernels.connection import KernelSettings, open_connection
from airflow_provider_ducklake.storage import StorageOptions
from tests.kernels.appender import Appender
from tests.kernels.data_files import Directory
from tests.kernels.writer import Writer


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_connection(KernelSettings(StorageOptions({}))) as connection:
        yield connection


@pytest.fixture
def settings(tmp_path: Path) -> KernelSettings:
    directory = tmp_path / "scratch"
    directory.mkdir()
    return KernelSettings(StorageOptions({}), scratch_directory=str(directory))


@pytest.fixture
def write(
    connection: duckdb.DuckDBPyConnection, settings: KernelSettings, tmp_path: Path
) -> Writer:
    return Writer(connection, settings, tmp_path)


@pytest.fixture
def lake(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


@pytest.fixture
def add(tmp_path: Path) -> Appender:
    return Appender(tmp_path)
