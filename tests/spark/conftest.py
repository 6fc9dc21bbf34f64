"""One Spark session for the tests of this folder, and a lake to work on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.spark.runner import SparkRunner
from airflow_provider_ducklake.spark.session import open_context, sql_session
from tests.support.lakes import LakeUnderTest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two local cores, as jobs have it."""
    with open_context("tests", "local[2]") as context:
        yield sql_session(context)


@pytest.fixture
def runner(spark: SparkSession) -> SparkRunner:
    """Work is done by Spark tasks."""
    return SparkRunner(spark.sparkContext)


@pytest.fixture
def sqlite_lake(tmp_path: Path) -> tuple[Lake, LakeUnderTest]:
    """A fresh lake with a SQLite catalog, and the judge's view of it."""
    attach, data = f"ducklake:sqlite:{tmp_path}/catalog.sqlite", f"{tmp_path}/data/"
    location = CatalogLocation.parse(attach)
    lake = Lake.create(replace(location, data_path=data))
    return lake, LakeUnderTest("sqlite", attach, data, location, tmp_path)
