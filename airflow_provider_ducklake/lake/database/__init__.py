"""Catalog databases behind one Protocol: SQLite, DuckDB file, PostgreSQL."""

from __future__ import annotations

from airflow_provider_ducklake.lake.database.base import Database, Session, Value
from airflow_provider_ducklake.lake.location import CatalogLocation

__all__ = ["Database", "Session", "Value", "open_database"]


def open_database(location: CatalogLocation, *, lock_timeout: float = 60.0) -> Database:
    """Return the database a location names; nothing is connected or created yet.

    Args:
        location: Where the catalog lives.
        lock_timeout: Seconds to wait for a file that another client holds.
    """
    if location.kind == "sqlite":
        from airflow_provider_ducklake.lake.database.sqlite import SqliteDatabase

        return SqliteDatabase(location, lock_timeout)
    if location.kind == "duckdb":
        from airflow_provider_ducklake.lake.database.duckdb_file import DuckDBFileDatabase

        return DuckDBFileDatabase(location, lock_timeout)
    from airflow_provider_ducklake.lake.database.postgres import PostgresDatabase

    return PostgresDatabase(location, lock_timeout)
