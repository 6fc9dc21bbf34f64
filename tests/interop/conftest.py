"""Fixtures of the interop tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.judge import Judge
from tests.support.lakes import LakeUnderTest


@pytest.fixture
def judge(lake_under_test: LakeUnderTest) -> Iterator[Judge]:
    """A judge of one fresh lake of each kind; in the end everything must still be right."""
    judge = Judge(lake_under_test)
    yield judge
    judge.check()
    judge.check_catalog()
    judge.close()
