"""A catalog in a DuckDB file, which one process at a time may have open for writing."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Final
from uuid import uuid4

import duckdb

from airflow_provider_ducklake.lake.catalog_lock import Turn
from airflow_provider_ducklake.lake.database.base import STREAMED, Parameter, Row, Session
from airflow_provider_ducklake.lake.errors import (
    CatalogUnavailable,
    LakeError,
    LostRace,
    NotFound,
    UnsupportedCatalog,
)
from airflow_provider_ducklake.lake.fault_points import FaultPoint, reach
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal
from airflow_provider_ducklake.lake.location import CatalogLocation

_HOLDER: Final = re.compile(r"Conflicting lock is held in (.*?)(?:\. See also .*)?$")


class DuckDBSession(Session):
    """One transaction on a DuckDB file."""

    in_ids = "IN (SELECT unnest(CAST(? AS BIGINT[])))"

    def __init__(self, connection: duckdb.DuckDBPyConnection, schema: str) -> None:
        self._connection = connection
        self.schema = schema

    def _run(self, statement: str, parameters: Sequence[Parameter]) -> tuple[list[Row], int]:
        result = self._connection.execute(statement, list(parameters))
        rows = result.fetchall()
        is_count = [column[0] for column in result.description or []] == ["Count"]
        return ([], int(rows[0][0])) if is_count and rows else (rows, -1)

    def _stream(self, query: str, parameters: Sequence[Parameter]) -> Generator[Row]:
        result = self._connection.execute(query, list(parameters))
        while rows := result.fetchmany(STREAMED):
            yield from rows

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
    """A DuckDB file; opened only for the length of a transaction so that others get their turn.

    Starting DuckDB takes ten times as long as attaching a file, so one instance in memory stays and
    the file comes and goes.
    """

    def __init__(self, location: CatalogLocation, lock_timeout: float) -> None:
        self._location = location
        self._lock_timeout = lock_timeout
        self._schema = location.metadata_schema or "main"
        self._instance: duckdb.DuckDBPyConnection | None = None

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
            raise NotFound(
                f"there is no {self._location}: check the path, or create the lake first "
                "(create_lake)"
            )
        turn = Turn(self._location, self._lock_timeout)
        with (
            self._errors_named(),
            nullcontext() if read_only else turn.taken(),
            self._attached(read_only, turn) as connection,
        ):
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
            if not read_only:
                reach(FaultPoint.UNCOMMITTED)
            connection.commit()
            if not read_only:
                reach(FaultPoint.COMMITTED)

    @contextmanager
    def _attached(self, read_only: bool, turn: Turn) -> Iterator[duckdb.DuckDBPyConnection]:
        # A name no schema has: DuckDB takes the first part of a table's name for either.
        name = quote_identifier(f"lake_{uuid4().hex}")
        if self._instance is None:
            self._instance = duckdb.connect(":memory:")
        with closing(self._instance.cursor()) as connection:
            # The bar would be drawn on the standard output of a job.
            connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
            self._attach(connection, name, read_only, turn)
            try:
                connection.execute("USE " + name)
                yield connection
            finally:
                self._detach(connection, name)

    def _attach(
        self, connection: duckdb.DuckDBPyConnection, name: str, read_only: bool, turn: Turn
    ) -> None:
        options = "(TYPE duckdb, READ_ONLY)" if read_only else "(TYPE duckdb)"
        statement = " ".join(("ATTACH", quote_literal(self._location.target), "AS", name, options))
        while True:
            try:
                connection.execute(statement)
            except (duckdb.IOException, duckdb.BinderException) as error:
                if not _is_lock(error):
                    raise
                if not turn.seconds_left:
                    raise turn.refusal(_holder(error)) from error
            else:
                return
            turn.pause()

    def _detach(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        try:
            connection.execute("USE memory; DETACH " + name)
        except duckdb.Error:
            # It could not write what is committed into the file, and whoever opens that next will.
            # Without this instance nothing holds the file.
            self._instance = None

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
    # The second one comes when the same process has the file open itself.
    return "Could not set lock" in text or "already attached" in text


def _holder(error: duckdb.Error) -> str:
    """Return what DuckDB knows of the holder: program, process id, sometimes the user."""
    held = _HOLDER.search(_first_line(error))
    return held[1] if held else "this very process"


def _first_line(error: duckdb.Error) -> str:
    return str(error).split("\n", 1)[0]
