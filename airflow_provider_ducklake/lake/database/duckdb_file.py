"""A catalog in a DuckDB file, which one process at a time may have open for writing."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb

from airflow_provider_ducklake.lake.database.base import Row, Session, Value
from airflow_provider_ducklake.lake.errors import (
    CatalogUnavailable,
    LakeError,
    LostRace,
    UnsupportedCatalog,
)
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.location import CatalogLocation


class DuckDBSession(Session):
    """One transaction on a DuckDB file."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, schema: str) -> None:
        self._connection = connection
        self.schema = schema

    def _run(self, statement: str, parameters: Sequence[Value]) -> tuple[list[Row], int]:
        result = self._connection.execute(statement, list(parameters))
        rows = result.fetchall()
        is_count = [column[0] for column in result.description or []] == ["Count"]
        return ([], int(rows[0][0])) if is_count and rows else (rows, -1)

    def has_table(self, name: str) -> bool:
        return name in self.table_names()

    def table_names(self) -> list[str]:
        query = (
            "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() "
            "AND schema_name = ? ORDER BY table_name"
        )
        return [name for (name,) in self._connection.execute(query, [self.schema]).fetchall()]

    def inlined_text(self, column: str, stored_as_bytes: bool) -> str:
        return column if stored_as_bytes else f"CAST({column} AS VARCHAR)"

    def sibling_data_paths(self) -> list[tuple[str, str]]:
        schemas = self._run(
            "SELECT table_schema FROM information_schema.tables WHERE table_name = ? "
            "AND table_catalog = current_database()",
            ("ducklake_metadata",),
        )[0]
        found = []
        for (schema,) in schemas:
            if schema != self.schema:
                table = f"{quote_identifier(schema)}.ducklake_metadata"
                query = f'SELECT "value" FROM {table} WHERE "key" = ? AND "scope" IS NULL'
                found += [(schema, path) for (path,) in self._run(query, ("data_path",))[0]]
        return found


class DuckDBFileDatabase:
    """A DuckDB file; opened only for the length of a transaction so that others get their turn."""

    def __init__(self, location: CatalogLocation, lock_timeout: float) -> None:
        self._location = location
        self._lock_timeout = lock_timeout
        self._schema = location.metadata_schema or "main"

    @contextmanager
    def read(self) -> Iterator[Session]:
        """See `Database.read`."""
        with self._transaction(read_only=True, create=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """See `Database.write`."""
        with self._transaction(read_only=False, create=False) as session:
            yield session

    @contextmanager
    def create(self) -> Iterator[Session]:
        """See `Database.create`."""
        Path(self._location.target).parent.mkdir(parents=True, exist_ok=True)
        with self._transaction(read_only=False, create=True) as session:
            yield session

    @contextmanager
    def _transaction(self, *, read_only: bool, create: bool) -> Iterator[Session]:
        if not create and not Path(self._location.target).is_file():
            raise CatalogUnavailable(
                f"there is no {self._location}: check the path, or create the lake first"
            )
        with self._errors_named(), closing(self._connect(read_only)) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.begin()
            try:
                if create:
                    connection.execute(
                        "CREATE SCHEMA IF NOT EXISTS " + quote_identifier(self._schema)
                    )
                yield DuckDBSession(connection, self._schema)
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    def _connect(self, read_only: bool) -> duckdb.DuckDBPyConnection:
        deadline = time.monotonic() + self._lock_timeout
        while True:
            try:
                return duckdb.connect(self._location.target, read_only=read_only)
            except (
                duckdb.IOException,
                duckdb.ConnectionException,
                duckdb.BinderException,
            ) as error:
                if not _is_lock(error):
                    raise
                if time.monotonic() > deadline:
                    raise CatalogUnavailable(
                        f"{self._location} stayed locked for {self._lock_timeout:g} s: "
                        f"{_holder(error)}. Close that client, or let jobs queue in an Airflow pool"
                    ) from error
            time.sleep(random.uniform(0.02, 0.2))

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except (duckdb.ConstraintException, duckdb.TransactionException) as error:
            raise LostRace(f"{self._location}: another commit was first ({error})") from error
        except duckdb.CatalogException as error:
            raise UnsupportedCatalog(
                f"{self._location} holds no DuckLake 1.0 catalog ({_first_line(error)})"
            ) from error
        except duckdb.Error as error:
            raise self._named(error) from error

    def _named(self, error: duckdb.Error) -> LakeError:
        if "not a valid DuckDB database file" in str(error):
            return UnsupportedCatalog(f"{self._location} is not a DuckDB file")
        return CatalogUnavailable(f"{self._location} cannot be used ({_first_line(error)})")


def _is_lock(error: duckdb.Error) -> bool:
    text = str(error)
    # The other messages come when the same process has the file open in another way.
    return any(
        part in text
        for part in ("Could not set lock", "different configuration", "already attached")
    )


def _holder(error: duckdb.Error) -> str:
    text = _first_line(error)
    start = text.find("Conflicting lock is held")
    return text[start:].split(". ")[0] if start >= 0 else "this process has it open itself"


def _first_line(error: duckdb.Error) -> str:
    return str(error).split("\n", 1)[0]
