"""The rows of a metadata table with the names of their columns, whatever version they are of."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.inlined import InlinedRow
from airflow_provider_ducklake.lake.metadata_tables import BY_NAME, METADATA_TABLES

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of one table.

    Attributes:
        columns: Names of the columns, in the order of the values.
        rows: The values.
    """

    columns: tuple[str, ...]
    rows: Sequence[Row] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def values(self, name: str) -> list[Any]:
        """Return the values of one column."""
        at = self.columns.index(name)
        return [row[at] for row in self.rows]

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield each row as column name -> value."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def where(self, name: str, wanted: Container[Any]) -> Rows:
        """Return the rows whose value in one column is among the wanted ones."""
        at = self.columns.index(name)
        return Rows(self.columns, [row for row in self.rows if row[at] in wanted])

    def filtered(self, keep: Callable[[Mapping[str, Any]], bool]) -> Rows:
        """Return the rows, seen as column name -> value, that a predicate holds for."""
        pairs = zip(self.records(), self.rows, strict=True)
        return Rows(self.columns, [row for record, row in pairs if keep(record)])

    def mapped(self, changes: Mapping[str, Callable[[Any], Any]]) -> Rows:
        """Return the rows with the values of some columns changed; other names are ignored."""
        at = [(i, changes[name]) for i, name in enumerate(self.columns) if name in changes]
        if not at:
            return self
        changed = []
        for row in self.rows:
            values = list(row)
            for index, change in at:
                values[index] = change(values[index])
            changed.append(tuple(values))
        return Rows(self.columns, changed)

    def renamed(self, old: str, new: str) -> Rows:
        """Return the rows with another name for a column."""
        return Rows(tuple(new if name == old else name for name in self.columns), self.rows)

    def selected(self, columns: Sequence[str], defaults: Mapping[str, Any]) -> Rows:
        """Return the rows with exactly these columns, those not there filled with a default."""
        if tuple(columns) == self.columns:
            return self
        at = [self.columns.index(name) if name in self.columns else None for name in columns]
        filled = [defaults.get(name) for name in columns]
        return Rows(
            tuple(columns),
            [
                tuple(filled[i] if k is None else row[k] for i, k in enumerate(at))
                for row in self.rows
            ],
        )


Tables = Mapping[str, Rows]


@dataclass(frozen=True, slots=True)
class InlinedData:
    """The rows that a catalog keeps inline for one schema version of a table.

    Attributes:
        columns: Top-level columns of that version.
    """

    table_id: int
    schema_version: int
    columns: tuple[Column, ...]
    rows: tuple[InlinedRow, ...]


@dataclass(frozen=True, slots=True)
class InlinedDeletes:
    """The deletes of rows in data files that a catalog keeps inline for one table.

    Attributes:
        rows: (data file id, position in the file, snapshot of the delete).
    """

    table_id: int
    rows: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Parent:
    """The catalog from which another was forked, in a database that holds both.

    Attributes:
        root: Its own directory, ending in `/`.
        snapshot_id: Its newest snapshot at that time; None when it has none left of then.
    """

    root: str
    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class CatalogContents:
    """Everything one catalog says, as DuckLake 1.0 says it.

    Attributes:
        data_path: Full path that relative paths of schemas start from, ending in `/`.
        root: The directory that is the catalog's own, ending in `/`; mostly its data path.
        tables: The rows of every metadata table, columns in the order of the specification.
        parent: What it is a fork of, where its database says so.
    """

    data_path: str
    root: str
    tables: Tables
    inlined_data: tuple[InlinedData, ...] = field(default=())
    inlined_deletes: tuple[InlinedDeletes, ...] = field(default=())
    parent: Parent | None = None

    @property
    def identity(self) -> str:
        """The uuid of its first schema, which every copy of the catalog has, too."""
        schemas = self.tables["ducklake_schema"]
        pairs = zip(schemas.values("begin_snapshot"), schemas.values("schema_uuid"), strict=True)
        return str(min(pairs)[1]).lower()

    @property
    def newest_snapshot(self) -> int:
        """Id of the newest snapshot."""
        return max(int(value) for value in self.tables["ducklake_snapshot"].values("snapshot_id"))


def column_names(table: str) -> tuple[str, ...]:
    """Return the columns of a metadata table of DuckLake 1.0, in their order."""
    return tuple(name for name, _ in BY_NAME[table].columns)


def empty_tables() -> dict[str, Rows]:
    """Return every metadata table without rows."""
    return {table.name: Rows(column_names(table.name)) for table in METADATA_TABLES}
