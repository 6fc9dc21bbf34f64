"""A store for the tests, on S3."""

from __future__ import annotations

import pytest

from airflow_provider_ducklake.storage import RoutedStore, open_store
from tests.support.s3 import S3Server, options_for


@pytest.fixture
def s3_store(s3_server: S3Server) -> RoutedStore:
    """Give a store whose root is an empty bucket."""
    return open_store(s3_server.url, options_for(s3_server))
