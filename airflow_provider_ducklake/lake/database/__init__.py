"""Catalog databases behind one Protocol: SQLite, DuckDB file, PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.database.base import Database, Session, Value
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.storage import StorageOptions

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.database.kept_connections import KeptConnections

__all__ = ["Database", "Session", "Value", "open_database"]


def open_database(
    location: CatalogLocation,
    *,
    storage: StorageOptions | None = None,
    lock_timeout: float = 60.0,
    connections: KeptConnections | None = None,
) -> Database:
    """Return the database a location names; nothing is connected or created yet.

    Args:
        location: Where the catalog lives.
        storage: How a catalog in a bucket is reached.
        lock_timeout: Seconds to wait for a file that another client holds.
        connections: Those to use instead of a new one for each transaction, to the store of which
            the location names a catalog.

    Raises:
        UnsupportedCatalog: Only DuckDB itself can reach it.
    """
    location.require_reach()
    if location.in_bucket:
        from airflow_provider_ducklake.lake.database.bucket import BucketDatabase

        return BucketDatabase(location, storage, lock_timeout)
    if location.kind == "sqlite":
        from airflow_provider_ducklake.lake.database.sqlite import SqliteDatabase

        return SqliteDatabase(location, lock_timeout)
    if location.kind == "duckdb":
        from airflow_provider_ducklake.lake.database.duckdb_file import DuckDBFileDatabase

        return DuckDBFileDatabase(location, lock_timeout)
    from airflow_provider_ducklake.lake.database.postgres import PostgresDatabase

    return PostgresDatabase(location, lock_timeout, connections)
