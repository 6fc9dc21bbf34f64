"""The unmodified `ducklake` extension of DuckDB as an independent client of a lake."""

from __future__ import annotations

import atexit
import importlib.metadata
import importlib.util
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import duckdb

from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal

REFERENCE_VERSION: Final = "1.5.5"
EXTENSIONS: Final = ("ducklake", "sqlite_scanner", "postgres_scanner")

# Anything hashable that stands for one value of a row.
Value: TypeAlias = Any
Row: TypeAlias = tuple[Value, ...]
# (rowid, *values) -> how often a snapshot shows it.
Rows: TypeAlias = Counter[Row]


def extension_file(name: str) -> Path:
    """Return the loadable file of a DuckDB extension that was installed as a wheel.

    Raises:
        LookupError: The wheel is not installed, or its DuckDB is not the reference's version.
    """
    version = importlib.metadata.version("duckdb")
    if version != REFERENCE_VERSION:
        raise LookupError(f"the judge is DuckDB {REFERENCE_VERSION}, but {version} is installed")
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(root) / "extensions" / f"v{version}" / f"{name}.duckdb_extension"
        if path.is_file():
            return path
    raise LookupError(f"DuckDB extension {name} is not installed: pip install duckdb-extension-…")


def normalise(value: Any) -> Value:
    """Return a hashable value for what DuckDB returned; NaN equals NaN, -0.0 differs from 0.0.

    Structs and maps become tuples of pairs in their order, lists tuples, bytes-likes bytes.
    """
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return "-0.0" if value == 0 and math.copysign(1.0, value) < 0 else value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping):
        return tuple((normalise(key), normalise(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(normalise(item) for item in value)
    return value


def normalise_row(row: Sequence[Any]) -> Row:
    """Return a row with every value normalised."""
    return tuple(normalise(value) for value in row)


@dataclass(frozen=True, slots=True)
class ReferenceSnapshot:
    """One row of the reference's `snapshots()`; `changes` is a frozen set of (kind, names)."""

    snapshot_id: int
    time: datetime
    schema_version: int
    changes: frozenset[tuple[str, tuple[str, ...]]]
    author: str | None
    message: str | None
    extra_info: str | None


# Loading the extensions costs a third of a second, attaching a lake a few milliseconds: a
# client takes a loaded DuckDB instance from here and puts it back.
_IDLE: list[duckdb.DuckDBPyConnection] = []


@atexit.register
def _close_idle() -> None:
    while _IDLE:
        _IDLE.pop().close()


def _loaded_instance() -> duckdb.DuckDBPyConnection:
    if _IDLE:
        return _IDLE.pop()
    connection = duckdb.connect(":memory:", config={"threads": 1})
    for name in EXTENSIONS:
        connection.load_extension(str(extension_file(name)))
    connection.execute("SET TimeZone = 'UTC'")
    return connection


class ReferenceClient:
    """A DuckDB session with one lake attached as `lake` and made the default database.

    The lake is attached when a statement needs it. `release()` detaches it, which lets go of
    the exclusive lock on a catalog that is a DuckDB file and of every cached piece of metadata.
    """

    def __init__(
        self,
        attach_string: str,
        *,
        data_path: str | None = None,
        metadata_schema: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare a client; nothing is opened yet.

        Args:
            attach_string: `ducklake:sqlite:…`, `ducklake:duckdb:…` or `ducklake:postgres:…`.
            data_path: Where a new lake keeps its files; needed once.
            metadata_schema: Schema of the metadata tables in PostgreSQL.
            options: Further ATTACH options, names to SQL literals.
        """
        given = {"DATA_PATH": data_path, "METADATA_SCHEMA": metadata_schema}
        literals = {name: quote_literal(text) for name, text in given.items() if text is not None}
        self._options = literals | dict(options or {})
        self._metadata = f"__ducklake_metadata_lake.{quote_identifier(metadata_schema or 'main')}"
        self._attach_string = attach_string
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._attached = False

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The session, with the lake attached."""
        if self._connection is None:
            self._connection = _loaded_instance()
        if not self._attached:
            options = ", ".join(f"{name} {literal}" for name, literal in self._options.items())
            suffix = f" ({options})" if options else ""
            self._connection.execute(
                f"ATTACH {quote_literal(self._attach_string)} AS lake{suffix}; USE lake"
            )
            self._attached = True
        return self._connection

    def sql(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run one statement and return its rows, normalised."""
        result = self.connection.execute(statement, list(parameters))
        return [normalise_row(row) for row in result.fetchall()]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the statements inside in one transaction: one snapshot, or none on an error."""
        self.sql("BEGIN")
        try:
            yield
        except BaseException:
            self.sql("ROLLBACK")
            raise
        self.sql("COMMIT")

    def rows_at(self, table: str, snapshot: int, *, as_text: bool = False) -> Rows:
        """Return the multiset of (rowid, *values) of a table at a snapshot.

        Args:
            table: `schema.table` or a bare name in `main`.
            snapshot: Snapshot id.
            as_text: Cast every column to text, for types Python has no exact value for.
        """
        columns = "COLUMNS(*)::VARCHAR" if as_text else "*"
        return Counter(
            self.sql(f"SELECT rowid, {columns} FROM {_qualified(table)} AT (VERSION => {snapshot})")
        )

    def columns_at(self, table: str, snapshot: int) -> tuple[str, ...]:
        """Return the names of a table's columns at a snapshot, in order."""
        found = self.sql(f"DESCRIBE FROM {_qualified(table)} AT (VERSION => {snapshot})")
        return tuple(str(row[0]) for row in found)

    def tables(self) -> frozenset[str]:
        """Return `schema.table` of every table at the newest snapshot."""
        found = self.sql(
            "SELECT schema_name || '.' || table_name FROM duckdb_tables() "
            "WHERE database_name = 'lake'"
        )
        return frozenset(str(row[0]) for row in found)

    def snapshots(self) -> list[ReferenceSnapshot]:
        """Return the kept snapshots, oldest first."""
        found = self.sql(
            "SELECT snapshot_id, snapshot_time, schema_version, changes, author, "
            "commit_message, commit_extra_info FROM ducklake_snapshots('lake') ORDER BY 1"
        )
        return [
            ReferenceSnapshot(number, time, version, frozenset(changes), author, message, extra)
            for number, time, version, changes, author, message, extra in found
        ]

    def snapshot_ids(self) -> list[int]:
        """Return the ids of the kept snapshots, oldest first."""
        return [
            int(row[0]) for row in self.sql("SELECT snapshot_id FROM ducklake_snapshots('lake')")
        ]

    def recorded_snapshot_ids(self) -> list[int]:
        """Return what `snapshot_ids` does from the metadata table, without reading the schema."""
        place = f"{self._metadata}.ducklake_snapshot"
        return [int(row[0]) for row in self.sql(f"SELECT snapshot_id FROM {place} ORDER BY 1")]

    def columns_of_changed_type(self) -> frozenset[str]:
        """Return all names, in whatever table, of columns that have had several types.

        The reference keeps the bounds of a table in memory as the type it read them for first,
        and is led astray by them, or ends, at a snapshot where the column had another type.
        """
        columns = f"{self._metadata}.ducklake_column"
        found = self.sql(
            f"SELECT DISTINCT column_name FROM {columns} WHERE (table_id, column_id) IN "
            f"(SELECT (table_id, column_id) FROM {columns} GROUP BY table_id, column_id "
            "HAVING count(DISTINCT column_type) > 1)"
        )
        return frozenset(str(row[0]) for row in found)

    def table_changes(self, table: str, first: int, last: int) -> Counter[Row]:
        """Return the change feed of a table between two snapshots, both included."""
        schema, _, name = table.rpartition(".")
        return Counter(
            self.sql(
                f"FROM ducklake_table_changes('lake', {quote_literal(schema or 'main')}, "
                f"{quote_literal(name)}, {first}, {last})"
            )
        )

    def set_option(self, name: str, value: Any, *, table: str | None = None) -> None:
        """Set an option of the lake, or of one table, in the catalog."""
        scope = ""
        if table is not None:
            schema, _, name_only = table.rpartition(".")
            names = quote_literal(schema or "main"), quote_literal(name_only)
            scope = f", schema => {names[0]}, table_name => {names[1]}"
        self.sql(f"CALL lake.set_option({quote_literal(name)}, ?{scope})", [value])

    def release(self) -> None:
        """Detach the lake; the next statement attaches it anew."""
        if self._connection is not None and self._attached:
            self._connection.execute("USE memory; DETACH lake")
            self._attached = False

    def make_way(self) -> None:
        """Detach a catalog that only one client can have open; stay attached to any other.

        So most of what others commit is met by a client that was there before them.
        """
        if self._attach_string.startswith("ducklake:duckdb:"):
            self.release()

    def forget(self) -> None:
        """Throw the session away, in whatever state an error left it; the next is a new one."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._attached = None, False

    def close(self) -> None:
        """Detach the lake and give the session back."""
        self.release()
        if self._connection is not None:
            _IDLE.append(self._connection)
            self._connection = None


def _qualified(table: str) -> str:
    schema, _, name = table.rpartition(".")
    return f"lake.{quote_identifier(schema or 'main')}.{quote_identifier(name)}"
