"""A catalog in a SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from airflow_provider_ducklake.lake.catalog_lock import Turn
from airflow_provider_ducklake.lake.database.base import Parameter, Row, Session, Value
from airflow_provider_ducklake.lake.errors import (
    CatalogUnavailable,
    LakeError,
    LostRace,
    NotFound,
    UnsupportedCatalog,
)
from airflow_provider_ducklake.lake.fault_points import FaultPoint, reach
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.metadata_tables import BY_NAME


class SqliteSession(Session):
    """One transaction on a SQLite file."""

    # The types the reference's own DDL ends up with through DuckDB's SQLite scanner.
    types = MappingProxyType({"BOOLEAN": "BIGINT", "UUID": "VARCHAR", "TIMESTAMPTZ": "VARCHAR"})
    in_ids = "IN (SELECT value FROM json_each(?))"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _run(self, statement: str, parameters: Sequence[Parameter]) -> tuple[list[Row], int]:
        cursor = self._connection.execute(statement, parameters)
        rows = cursor.fetchall() if cursor.description else []
        return rows, cursor.rowcount

    def _stream(self, query: str, parameters: Sequence[Parameter]) -> Generator[Row]:
        # Not `yield from`: that closes the cursor of a stream nobody read to its end, and by then
        # the connection may be closed.
        for row in self._connection.execute(query, parameters):  # noqa: UP028
            yield row

    def _ids(self, ids: Sequence[int]) -> Parameter:
        return json.dumps(list(ids))

    def insert(self, table: str, rows: Iterable[Sequence[Value]]) -> None:
        # Prepared once and run for each row: SQLite takes no arrays.
        columns = [quote_identifier(name) for name, _ in BY_NAME[table].columns]
        given = ", ".join("?" * len(columns))
        text = f"INSERT INTO {{{table}}} ({', '.join(columns)}) VALUES ({given})"
        self._connection.executemany(self._expand(text, {}), rows)

    def has_table(self, name: str) -> bool:
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return self._connection.execute(query, (name,)).fetchone() is not None

    def table_names(self) -> list[str]:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        return [name for (name,) in self._connection.execute(query)]

    def inlined_text(self, column: str, stored_as_bytes: bool) -> str:
        return column


class SqliteDatabase:
    """A SQLite file; writers queue on its lock."""

    def __init__(self, location: CatalogLocation, lock_timeout: float) -> None:
        self._location = location
        self._lock_timeout = lock_timeout

    @contextmanager
    def read(self) -> Iterator[Session]:
        """See `Database.read`."""
        with self._transaction("ro", "BEGIN") as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """See `Database.write`."""
        with self._transaction("rw", "BEGIN IMMEDIATE") as session:
            yield session

    @contextmanager
    def create(self) -> Iterator[Session]:
        """See `Database.create`."""
        Path(self._location.target).parent.mkdir(parents=True, exist_ok=True)
        with self._transaction("rwc", "BEGIN IMMEDIATE") as session:
            yield session

    @contextmanager
    def _transaction(self, mode: str, begin: str) -> Iterator[Session]:
        path = Path(self._location.target)
        if mode != "rwc" and not path.is_file():
            raise NotFound(
                f"there is no {self._location}: check the path, or create the lake first "
                "(create_lake)"
            )
        uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
        turn = Turn(self._location, self._lock_timeout)
        with (
            self._errors_named(turn),
            nullcontext() if mode == "ro" else turn.taken(),
            closing(self._connect(uri, turn.seconds_left)) as connection,
        ):
            connection.execute(begin)
            try:
                yield SqliteSession(connection)
            except BaseException:
                connection.rollback()
                raise
            if mode == "ro":
                return
            reach(FaultPoint.UNCOMMITTED)
            connection.commit()
            reach(FaultPoint.COMMITTED)

    def _connect(self, uri: str, timeout: float) -> sqlite3.Connection:
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=timeout)

    @contextmanager
    def _errors_named(self, turn: Turn) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise LostRace(f"{self._location}: another commit was first ({error})") from error
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise turn.refusal() from error
            raise self._named(error) from error
        except sqlite3.DatabaseError as error:
            raise UnsupportedCatalog(
                f"{self._location} is not a SQLite database DuckLake can use ({error})"
            ) from error

    def _named(self, error: sqlite3.OperationalError) -> LakeError:
        text = str(error)
        if "no such table" in text or "no such column" in text:
            return UnsupportedCatalog(f"{self._location} holds no DuckLake 1.0 catalog ({text})")
        if "readonly" in text:
            return CatalogUnavailable(f"{self._location} cannot be written: check its permissions")
        if "full" in text:
            return CatalogUnavailable(f"{self._location}: the disk is full, nothing was committed")
        return CatalogUnavailable(f"{self._location} cannot be used ({text})")
