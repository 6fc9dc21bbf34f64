"""What the lake asks of a catalog database: short transactions and one SQL dialect for all.

Statements are written once. A name in braces becomes a quoted, schema-qualified table:
`{ducklake_snapshot}`, or `{inlined}` with `inlined="ducklake_inlined_data_1_2"` passed along.
A question mark is a bound parameter, and `IN (??)` is one too, that stands for many ids. There is
no other way to put a value into a statement.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol

from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.metadata_tables import BY_NAME, METADATA_TABLES

Value = str | bytes | int | float | bool | None
Parameter = Value | list[int]
Row = tuple[Any, ...]

_TABLE: Final = re.compile(r"\{(\w+)\}")
BATCH: Final = 500  # bound parameters a statement: below every database's limit
IDS: Final = 20_000  # ids a statement, all in one parameter
STREAMED: Final = 5_000  # rows of a stream in memory


class Database(Protocol):
    """A catalog database; each call opens one short transaction and closes it again."""

    def read(self) -> AbstractContextManager[Session]:
        """Open a read-only transaction that sees one state of the catalog."""

    def write(self) -> AbstractContextManager[Session]:
        """Open a write transaction: committed at the end, rolled back on any error.

        Raises (at the end):
            LostRace: Another writer was first; the same work may be tried again.
            CommitStateUnknown: The connection broke during COMMIT.
        """

    def create(self) -> AbstractContextManager[Session]:
        """Like `write`, for a database (file, schema) that may not exist yet."""


class Session(ABC):
    """One transaction on a catalog."""

    schema: str | None = None
    types: Mapping[str, str] = MappingProxyType({})
    # How a database says `IN (??)` with one parameter, so that a batch of ids is one statement.
    in_ids: ClassVar[str]

    @abstractmethod
    def _run(self, statement: str, parameters: Sequence[Parameter]) -> tuple[list[Row], int]:
        """Run one statement; return its rows (none for DML) and the count of rows it changed."""

    @abstractmethod
    def _stream(self, query: str, parameters: Sequence[Parameter]) -> Generator[Row]:
        """Yield the rows of one query, few of them in memory."""

    def _ids(self, ids: Sequence[int]) -> Parameter:
        """Return ids as the parameter that stands in `in_ids`."""
        return list(ids)

    @abstractmethod
    def has_table(self, name: str) -> bool:
        """Tell whether a table of that name exists in the metadata schema."""

    @abstractmethod
    def inlined_text(self, column: str, stored_as_bytes: bool) -> str:
        """Return the SQL that reads a quoted inlined column as text (or bytes) without loss."""

    @abstractmethod
    def table_names(self) -> list[str]:
        """Return the names of all tables in the metadata schema."""

    def sibling_data_paths(self) -> list[tuple[str, str]]:
        """Return (schema, data path) of the other lakes in the same database."""
        return []

    def rows(self, query: str, parameters: Sequence[Value] = (), **tables: str) -> list[Row]:
        """Return all rows of a query (see the module's text for `{table}` and `?`)."""
        return self._run(self._expand(query, tables), parameters)[0]

    def stream(self, query: str, parameters: Sequence[Value] = (), **tables: str) -> Generator[Row]:
        """Yield the rows of a query that may have millions; nothing else may be run meanwhile.

        Whoever does not read it to its end closes it.
        """
        return self._stream(self._expand(query, tables), parameters)

    def value(self, query: str, parameters: Sequence[Value] = (), **tables: str) -> Any:
        """Return the first column of the first row, None when there is no row."""
        found = self.rows(query, parameters, **tables)
        return found[0][0] if found else None

    def execute(self, statement: str, parameters: Sequence[Value] = (), **tables: str) -> int:
        """Run a statement that returns no rows; return how many rows it changed."""
        return self._run(self._expand(statement, tables), parameters)[1]

    def rows_in(
        self, query: str, ids: Iterable[int], parameters: Sequence[Value] = (), **tables: str
    ) -> list[Row]:
        """Run a query whose text holds `IN (??)` once a batch of ids; return all rows.

        Args:
            query: `??` stands for the ids; other parameters come before them.
            ids: Any number, none gives no rows.
        """
        text = query.replace("IN (??)", self.in_ids)
        found: list[Row] = []
        for batch in batches(sorted(set(ids)), IDS):
            found += self._run(self._expand(text, tables), (*parameters, self._ids(batch)))[0]
        return found

    def execute_in(
        self, statement: str, ids: Iterable[int], parameters: Sequence[Value] = (), **tables: str
    ) -> int:
        """Run a statement with `IN (??)` once a batch of ids; return how many rows it changed."""
        text = statement.replace("IN (??)", self.in_ids)
        changed = 0
        for batch in batches(sorted(set(ids)), IDS):
            changed += self._run(self._expand(text, tables), (*parameters, self._ids(batch)))[1]
        return changed

    def insert(self, table: str, rows: Iterable[Sequence[Value]]) -> None:
        """Insert full rows into a metadata table, columns in the order of the specification."""
        columns = [name for name, _ in BY_NAME[table].columns]
        one = f"({', '.join('?' * len(columns))})"
        names = ", ".join(quote_identifier(name) for name in columns)
        for batch in batches(list(rows), max(1, BATCH // len(columns))):
            text = f"INSERT INTO {{{table}}} ({names}) VALUES {', '.join([one] * len(batch))}"
            self.execute(text, [value for row in batch for value in row])

    def create_metadata_tables(self) -> None:
        """Create all tables of DuckLake 1.0 in the metadata schema."""
        for table in METADATA_TABLES:
            columns = ", ".join(
                quote_identifier(name)
                + f" {self.types.get(kind, kind)}"
                + (" NOT NULL" if name in table.not_null else "")
                + (" PRIMARY KEY" if name == table.primary_key else "")
                for name, kind in table.columns
            )
            self.execute("CREATE TABLE {new} (" + columns + ")", new=table.name)

    def _expand(self, text: str, tables: dict[str, str]) -> str:
        def name_of(match: re.Match[str]) -> str:
            name = tables.get(match[1], match[1])
            if name == match[1] and name not in BY_NAME:
                raise KeyError(f"statement names an unknown metadata table: {name}")
            quoted = quote_identifier(name)
            return f"{quote_identifier(self.schema)}.{quoted}" if self.schema else quoted

        return _TABLE.sub(name_of, text)


def batches(items: Sequence[Any], size: int = BATCH) -> Iterator[Sequence[Any]]:
    """Yield consecutive slices of at most `size` items."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
