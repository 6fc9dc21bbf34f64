"""Rows of every metadata table go into PostgreSQL as they are, an array for each column."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_ducklake.lake.database.base import Value
from airflow_provider_ducklake.lake.database.postgres import PostgresDatabase
from airflow_provider_ducklake.lake.errors import CatalogUnavailable
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.metadata_tables import METADATA_TABLES, MetadataTable

VALUES: dict[str, list[Value]] = {
    "VARCHAR": ["", "NULL", None, "{a,b}", '"', "\\", "a\nb", "é€", "%s", "'", "{}", "[1, 2]"],
    "BIGINT": [0, None, 1, -(2**63), 2**40, 2**63 - 1, -1, 40_000],
    "BOOLEAN": [True, None, False],
    "UUID": ["018f6f2e-0000-7000-8000-000000000001", None],
    "TIMESTAMPTZ": ["2026-11-28 12:00:00.123456+00", None, "0001-01-01 00:00:00+00"],
}


def row(table: MetadataTable, number: int) -> list[Value]:
    """Return a row with the values in turn, and NULL where the table admits it."""
    found: list[Value] = []
    for at, (name, kind) in enumerate(table.columns):
        if name == table.primary_key:
            found.append(number)
            continue
        values = [v for v in VALUES[kind] if v is not None or name not in table.not_null]
        found.append(values[(number + at) % len(values)])
    return found


def text(value: Any) -> str | None:
    """Return a value as the database prints it."""
    return None if value is None else str(value)


@pytest.fixture
def database(postgres_database: str) -> PostgresDatabase:
    """A schema with the tables of a lake, all empty."""
    location = CatalogLocation.parse(f"ducklake:postgres:{postgres_database}")
    database = PostgresDatabase(location, 5.0)
    with database.create() as session:
        session.create_metadata_tables()
    return database


def test_every_table_takes_every_value(database: PostgresDatabase) -> None:
    for table in METADATA_TABLES:
        rows = [row(table, number) for number in range(24)]
        with database.write() as session:
            session.insert(table.name, [])
            session.insert(table.name, rows)
        columns = ", ".join(
            f"CAST(\"{name}\" AT TIME ZONE 'UTC' AS VARCHAR) || '+00'"
            if kind == "TIMESTAMPTZ"
            else f'"{name}"'
            for name, kind in table.columns
        )
        with database.read() as session:
            found = session.rows(f"SELECT {columns} FROM {{{table.name}}}")
        assert [[text(v) for v in one] for one in found] == [
            [text(v) for v in one] for one in rows
        ], table.name


def test_more_rows_than_one_statement_takes(database: PostgresDatabase) -> None:
    rows = [(number, 1, f"v{number}") for number in range(25_000)]
    with database.write() as session:
        session.insert("ducklake_column_mapping", rows)
    with database.read() as session:
        assert session.rows("SELECT * FROM {ducklake_column_mapping} ORDER BY 1") == rows


def test_rows_of_different_lengths_are_refused(database: PostgresDatabase) -> None:
    with pytest.raises(ValueError, match="shorter"), database.write() as session:
        session.insert("ducklake_column_mapping", [(1, 1, "x"), (2, 1)])
    with pytest.raises(CatalogUnavailable), database.write() as session:
        session.insert("ducklake_column_mapping", [(1, 1)])
