"""Lakes that this package itself created, one of each kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_ducklake.lake.lake import Lake
from tests.support.lakes import LakeUnderTest


@pytest.fixture
def new_lake(lake_under_test: LakeUnderTest) -> Lake:
    """A fresh lake on each kind of catalog."""
    return Lake.create(replace(lake_under_test.location, data_path=lake_under_test.data_path))
