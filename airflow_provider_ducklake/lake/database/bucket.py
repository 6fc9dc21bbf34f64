"""A SQLite catalog in a bucket, for reading: each transaction sees a copy fetched for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from airflow_provider_ducklake.lake.database.base import Session
from airflow_provider_ducklake.lake.database.sqlite import SqliteDatabase
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.remote_catalog import checked_out
from airflow_provider_ducklake.storage import StorageOptions


class BucketDatabase:
    """A catalog at a URL; no lease is taken, and the copy is gone when the transaction ends."""

    def __init__(
        self, location: CatalogLocation, storage: StorageOptions | None, lock_timeout: float
    ) -> None:
        self._location = location
        self._storage = storage
        self._lock_timeout = lock_timeout

    @contextmanager
    def read(self) -> Iterator[Session]:
        """See `Database.read`."""
        with (
            checked_out(self._location.target, self._storage, read_only=True) as checkout,
            SqliteDatabase(checkout.location, self._lock_timeout).read() as session,
        ):
            yield session

    def write(self) -> AbstractContextManager[Session]:
        """Refuse: what is written to a copy has to be put back."""
        raise ConfigurationError(
            f"{self._location} is in a bucket and can only be read like this: change it with an "
            "operator, with --catalog-url of python -m airflow_provider_ducklake.spark, or inside "
            "checked_out() of lake/remote_catalog.py"
        )

    create = write
