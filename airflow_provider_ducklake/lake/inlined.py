"""Rows and deletes that a catalog keeps inline, read as text and taken out when flushed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.commit import SnapshotWriter
from airflow_provider_ducklake.lake.database import Session, Value
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.files import inlined_delete_table
from airflow_provider_ducklake.lake.identifiers import quote_identifier

_INLINED: Final = re.compile(r"ducklake_inlined_(data|delete)_(?P<table_id>\d+)(_\d+)?")
_BYTES: Final = frozenset({"varchar", "json", "blob"})  # PostgreSQL keeps these as bytea


# An inlined-data table and (row id, begin snapshot) of some of its rows.
InlinedLives: TypeAlias = tuple[str, tuple[tuple[int, int], ...]]


@dataclass(frozen=True, slots=True)
class InlinedTable:
    """A table in the catalog that holds inlined rows of one schema version of a lake table."""

    name: str
    schema_version: int
    begin_snapshot: int


@dataclass(frozen=True, slots=True)
class InlinedRow:
    """One version of an inlined row: ids, the snapshots it lived in, stored values.

    `values` hold text in DuckDB's form, bytes for blobs, or None, one a top-level column.
    """

    row_id: int
    begin_snapshot: int
    end_snapshot: int | None
    values: tuple[str | bytes | None, ...]

    @property
    def life(self) -> tuple[int, int, int | None]:
        """What identifies this version of the row."""
        return self.row_id, self.begin_snapshot, self.end_snapshot


@dataclass(frozen=True, slots=True)
class InlinedRestore:
    """Inlined row versions that differ between an older snapshot and the newest: (id, begin).

    Attributes:
        back: Versions only the older snapshot shows, by the table that holds them.
        gone: Versions only the newest shows, likewise.
    """

    back: tuple[InlinedLives, ...] = ()
    gone: tuple[InlinedLives, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether any version differs."""
        return bool(self.back or self.gone)

    @property
    def rows_back(self) -> int:
        """How many come back."""
        return sum(len(lives) for _, lives in self.back)

    @property
    def rows_gone(self) -> int:
        """How many go."""
        return sum(len(lives) for _, lives in self.gone)


def inlined_tables(session: Session, table_id: int) -> list[InlinedTable]:
    """Return the inlined-data tables of a lake table, oldest schema version first."""
    names = session.rows(
        "SELECT table_name, schema_version FROM {ducklake_inlined_data_tables} WHERE table_id = ?",
        (table_id,),
    )
    versions = session.rows(
        "SELECT schema_version, begin_snapshot FROM {ducklake_schema_versions} WHERE table_id = ?",
        (table_id,),
    )
    created = session.value(
        "SELECT min(begin_snapshot) FROM {ducklake_table} WHERE table_id = ?", (table_id,)
    )
    found = []
    for name, version in names:
        begins = [int(begin) for v, begin in versions if int(v) <= int(version)]
        found.append(InlinedTable(name, int(version), max(begins, default=int(created or 0))))
    return sorted(found, key=lambda table: table.schema_version)


def count_live_rows(session: Session, table_id: int) -> int:
    """Return how many inlined rows of a table are visible now."""
    total = 0
    for table in inlined_tables(session, table_id):
        if session.has_table(table.name):
            query = "SELECT count(*) FROM {inlined} WHERE end_snapshot IS NULL"
            total += int(session.value(query, inlined=table.name))
    return total


def newest_inlined_change(session: Session, table_id: int) -> int:
    """Return the newest snapshot that inlined a row or a delete of a table; -1 when none has."""
    queries = {
        table.name: "SELECT max(coalesce(end_snapshot, begin_snapshot)) FROM {inlined}"
        for table in inlined_tables(session, table_id)
    }
    queries[inlined_delete_table(table_id)] = "SELECT max(begin_snapshot) FROM {inlined}"
    found = [
        session.value(query, inlined=name)
        for name, query in queries.items()
        if session.has_table(name)
    ]
    return max((int(snapshot) for snapshot in found if snapshot is not None), default=-1)


def read_inlined_rows(
    session: Session, table: InlinedTable, columns: Sequence[Column], up_to: int
) -> list[InlinedRow]:
    """Return every version of the rows inlined up to a snapshot, by row id and begin.

    Args:
        session: A transaction on the catalog.
        table: The inlined-data table.
        columns: Top-level columns of its schema version.
        up_to: Newest snapshot whose rows are wanted.

    Raises:
        BadInput: A stored value is not valid UTF-8 where text belongs.
    """
    if not session.has_table(table.name):
        return []
    values = [session.inlined_text(quote_identifier(c.name), c.type in _BYTES) for c in columns]
    query = (
        f"SELECT {', '.join(['row_id', 'begin_snapshot', 'end_snapshot', *values])} "
        "FROM {inlined} WHERE begin_snapshot <= ? ORDER BY row_id, begin_snapshot"
    )
    return [
        InlinedRow(int(row[0]), int(row[1]), row[2], _decoded(table, columns, row))
        for row in session.rows(query, (up_to,), inlined=table.name)
    ]


def lives(session: Session, table: InlinedTable, up_to: int) -> set[tuple[int, int, int | None]]:
    """Return what identifies each row version inlined up to a snapshot."""
    query = "SELECT row_id, begin_snapshot, end_snapshot FROM {inlined} WHERE begin_snapshot <= ?"
    return {(int(r), int(b), e) for r, b, e in session.rows(query, (up_to,), inlined=table.name)}


def remove_inlined_rows(session: Session, table: InlinedTable, up_to: int) -> int:
    """Remove the row versions inlined up to a snapshot; return how many there were."""
    statement = "DELETE FROM {inlined} WHERE begin_snapshot <= ?"
    return session.execute(statement, (up_to,), inlined=table.name)


def retire_superseded(session: Session, table_id: int) -> None:
    """Take the inlined-data tables of older schema versions that hold no row off the list.

    Clients that attach from now on do not look into them. The empty tables stay until the lake
    table is gone: a client that is attached remembers the list it once read, and fails at every
    snapshot when one of them is missing (the reference drops them, and so breaks its neighbours).

    Source: DropEmptySupersededInlinedTables in ducklake_transaction_state.cpp.
    """
    for table in inlined_tables(session, table_id)[:-1]:
        if session.has_table(table.name) and session.value(
            "SELECT count(*) FROM {inlined}", inlined=table.name
        ):
            continue
        session.execute(
            "DELETE FROM {ducklake_inlined_data_tables} WHERE table_id = ? AND schema_version = ?",
            (table_id, table.schema_version),
        )


def drop_inlined_tables(session: Session, table_ids: Iterable[int]) -> None:
    """Drop what held inlined rows and deletes of lake tables that are gone, retired ones too."""
    gone = set(table_ids)
    for name in session.table_names():
        match = _INLINED.fullmatch(name)
        if match and int(match["table_id"]) in gone:
            session.execute("DROP TABLE {inlined}", inlined=name)


def end_inlined_rows(writer: SnapshotWriter, table_id: int) -> None:
    """End every live inlined row of a table at the new snapshot."""
    for table in inlined_tables(writer.session, table_id):
        if writer.session.has_table(table.name):
            writer.session.execute(
                "UPDATE {inlined} SET end_snapshot = ? WHERE end_snapshot IS NULL",
                (writer.snapshot_id,),
                inlined=table.name,
            )


def end_some_inlined_rows(writer: SnapshotWriter, table_id: int, row_ids: Sequence[int]) -> int:
    """End some live inlined rows of a table at the new snapshot; return how many ended."""
    return sum(
        writer.session.execute_in(
            "UPDATE {inlined} SET end_snapshot = ? WHERE end_snapshot IS NULL AND row_id IN (??)",
            row_ids,
            (writer.snapshot_id,),
            inlined=table.name,
        )
        for table in inlined_tables(writer.session, table_id)
        if row_ids and writer.session.has_table(table.name)
    )


def read_inlined_restore(session: Session, table_id: int, target: int) -> InlinedRestore:
    """Return which inlined rows of a table a snapshot shows and the newest not, and vice versa."""
    names = [t.name for t in inlined_tables(session, table_id) if session.has_table(t.name)]

    def found(condition: str, parameters: Sequence[Value]) -> tuple[InlinedLives, ...]:
        query = "SELECT row_id, begin_snapshot FROM {inlined} WHERE " + condition
        lives_of = ((name, session.rows(query, parameters, inlined=name)) for name in names)
        return tuple(
            (name, tuple(sorted((int(row_id), int(begin)) for row_id, begin in rows)))
            for name, rows in lives_of
            if rows
        )

    return InlinedRestore(
        found("begin_snapshot <= ? AND end_snapshot > ?", (target, target)),
        found("begin_snapshot > ? AND end_snapshot IS NULL", (target,)),
    )


def restore_inlined_rows(
    writer: SnapshotWriter, table_id: int, target: int, columns: Mapping[str, Sequence[Column]]
) -> None:
    """End the inlined rows that came after a snapshot and begin those that ended since anew.

    Args:
        writer: The commit.
        table_id: The table.
        target: The older snapshot.
        columns: Top-level columns of each inlined-data table, by its name.
    """
    session = writer.session
    for name, of_table in columns.items():
        session.execute(
            "UPDATE {inlined} SET end_snapshot = ? "
            "WHERE begin_snapshot > ? AND end_snapshot IS NULL",
            (writer.snapshot_id, target),
            inlined=name,
        )
        names = "".join(f", {quote_identifier(column.name)}" for column in of_table)
        statement = (
            f"INSERT INTO {{inlined}} (row_id, begin_snapshot, end_snapshot{names}) "
            f"SELECT row_id, CAST(? AS BIGINT), CAST(NULL AS BIGINT){names} FROM {{inlined}} "
            "WHERE begin_snapshot <= ? AND end_snapshot > ? AND end_snapshot < ?"
        )
        new = writer.snapshot_id
        session.execute(statement, (new, target, target, new), inlined=name)


def remove_inlined_deletes(
    session: Session, table_id: int, file_ids: Iterable[int], up_to: int
) -> int:
    """Remove the inlined deletes of some data files up to a snapshot; return how many."""
    name = inlined_delete_table(table_id)
    if not session.has_table(name):
        return 0
    statement = "DELETE FROM {inlined} WHERE begin_snapshot <= ? AND file_id IN (??)"
    return session.execute_in(statement, file_ids, (up_to,), inlined=name)


def _decoded(
    table: InlinedTable, columns: Sequence[Column], row: Any
) -> tuple[str | bytes | None, ...]:
    return tuple(
        _text(value, column, f"{table.name} row {row[0]}")
        for value, column in zip(row[3:], columns, strict=True)
    )


def _text(value: Value, column: Column, where: str) -> str | bytes | None:
    if value is None or (isinstance(value, bytes | memoryview) and column.type == "blob"):
        return None if value is None else bytes(value)
    if isinstance(value, bytes | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise BadInput(
                f"inlined value of column {column.name!r} in {where} is not valid UTF-8"
            ) from None
    return str(value)
