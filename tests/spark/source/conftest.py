"""Fixtures of the data source's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.judge import Judge
from tests.support.lakes import LakeFactory, LakeUnderTest


@pytest.fixture
def judge(lake_under_test: LakeUnderTest) -> Iterator[Judge]:
    """A judge of one fresh lake of each kind."""
    judge = Judge(lake_under_test)
    yield judge
    judge.close()


@pytest.fixture
def sqlite_judge(scratch_directory: Path) -> Iterator[Judge]:
    """A judge of one fresh lake on SQLite, for what does not depend on the catalog's kind."""
    factory = LakeFactory("sqlite", scratch_directory)
    lake = factory.create()
    judge = Judge(lake)
    yield judge
    judge.close()
    factory.remove(lake)
