"""Rows and deletes the catalog holds itself: their tables, their row ids, what nobody reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.expiry import unreached
from airflow_provider_ducklake.lake.files import inlined_delete_table
from airflow_provider_ducklake.lake.fsck.counters import LIVE_ROWS, TRANSACTION_LOCAL
from airflow_provider_ducklake.lake.fsck.findings import Finding

_NAME: Final = re.compile(r"ducklake_inlined_(data|delete)_(\d+)(?:_\d+)?")
OF_NO_FILE: Final = (
    "NOT EXISTS (SELECT 1 FROM {ducklake_data_file} d WHERE d.data_file_id = e.file_id)"
)
DUPLICATES: Final = (
    "SELECT file_id, row_id, min(begin_snapshot), count(*) FROM {inlined} "
    "GROUP BY file_id, row_id HAVING count(*) > 1"
)


@dataclass(frozen=True, slots=True)
class InlinedTables:
    """The tables of inlined rows and deletes there are, and those the catalog lists.

    Attributes:
        data: (lake table's id, name) of each table of rows.
        deletes: Likewise of deletes.
        listed: Likewise of those the catalog lists, there or not.
        known: Ids of the lake tables there are.
    """

    data: tuple[tuple[int, str], ...]
    deletes: tuple[tuple[int, str], ...]
    listed: tuple[tuple[int, str], ...]
    known: frozenset[int]

    def strays(self) -> Iterator[tuple[int, str]]:
        """Yield the tables of lake tables that are not there."""
        for table_id, name in (*self.data, *self.deletes):
            if table_id not in self.known:
                yield table_id, name

    def read(self) -> Iterator[tuple[int, str]]:
        """Yield the listed tables of rows that are there."""
        there = {name for _, name in self.data}
        for table_id, name in self.listed:
            if name in there and table_id in self.known:
                yield table_id, name

    def live_deletes(self) -> Iterator[tuple[int, str]]:
        """Yield the tables of deletes of lake tables that are there."""
        for table_id, name in self.deletes:
            if table_id in self.known:
                yield table_id, name


def read_inlined_tables(session: Session) -> InlinedTables:
    """Return which tables of inlined rows and deletes there are."""
    found: dict[str, list[tuple[int, str]]] = {"data": [], "delete": []}
    for name in session.table_names():
        if match := _NAME.fullmatch(name):
            found[match[1]].append((int(match[2]), name))
    listed = session.rows("SELECT table_id, table_name FROM {ducklake_inlined_data_tables}")
    known = session.rows("SELECT DISTINCT table_id FROM {ducklake_table}")
    return InlinedTables(
        tuple(found["data"]),
        tuple(found["delete"]),
        tuple((int(table_id), name) for table_id, name in listed),
        frozenset(int(table_id) for (table_id,) in known),
    )


def check_inlined(session: Session) -> Iterator[Finding]:
    """Yield what is wrong with inlined rows and deletes."""
    tables = read_inlined_tables(session)
    yield from _tables(session, tables)
    head = int(session.value("SELECT max(snapshot_id) FROM {ducklake_snapshot}"))
    for table_id, name in tables.read():
        yield from _rows(session, table_id, name, head)
    for table_id, name in tables.live_deletes():
        yield from _deletes(session, table_id, name, head)
    yield from _too_many_rows(session, {name for _, name in tables.deletes})


def _tables(session: Session, tables: InlinedTables) -> Iterator[Finding]:
    there, listed = {name for _, name in tables.data}, set(tables.listed)
    for table_id, name in tables.listed:
        if table_id in tables.known and name not in there:
            message = f"{name} is listed in ducklake_inlined_data_tables and is not there"
            yield Finding("inlined_table_missing", message, table_id)
    for table_id, name in tables.strays():
        count = _count(session, name)
        message = f"{name} has {count} rows, and table {table_id} is not there"
        yield Finding("stray_inlined_table", message, table_id)
    for table_id, name in tables.data:
        if (table_id, name) in listed or table_id not in tables.known:
            continue
        if count := _count(session, name):
            message = f"{name} has {count} rows and is not in ducklake_inlined_data_tables"
            yield Finding("unlisted_inlined_rows", message, table_id)


def _rows(session: Session, table_id: int, name: str, head: int) -> Iterator[Finding]:
    dead = session.value("SELECT count(*) FROM {inlined} e WHERE " + unreached("e"), inlined=name)
    if dead:
        yield Finding("dead_inlined_rows", f"{name} has {dead} rows nobody reads", table_id)
    newer = session.value(
        "SELECT count(*) FROM {inlined} WHERE begin_snapshot > ? OR end_snapshot > ?",
        (head, head),
        inlined=name,
    )
    if newer:
        message = f"{name} has {newer} rows of snapshots after {head}, the newest"
        yield Finding("future_row", message, table_id)
    largest = _largest(session, name)
    following = session.value(
        "SELECT max(next_row_id) FROM {ducklake_table_stats} WHERE table_id = ?", (table_id,)
    )
    if largest is not None and (following is None or int(following) <= int(largest)):
        message = f"next_row_id is {following}, but {name} has row id {largest}"
        yield Finding("next_row_id", message, table_id)


def _deletes(session: Session, table_id: int, name: str, head: int) -> Iterator[Finding]:
    for file_id, count in session.rows(
        "SELECT e.file_id, count(*) FROM {inlined} e WHERE "
        + OF_NO_FILE
        + " GROUP BY e.file_id ORDER BY e.file_id",
        inlined=name,
    ):
        message = f"{name} has {count} deletes of data file {file_id}, which is not there"
        yield Finding("description_of_no_file", message, table_id, (int(file_id),))
    for file_id, position, _, count in session.rows(
        DUPLICATES + " ORDER BY file_id, row_id", inlined=name
    ):
        message = f"{name} deletes position {position} of data file {file_id} {count} times"
        yield Finding("inlined_delete_twice", message, table_id, (int(file_id),))
    for file_id, position, rows in session.rows(
        "SELECT e.file_id, e.row_id, d.record_count FROM {inlined} e JOIN {ducklake_data_file} d "
        "ON d.data_file_id = e.file_id WHERE e.row_id < 0 OR e.row_id >= d.record_count "
        "ORDER BY e.file_id, e.row_id",
        inlined=name,
    ):
        message = f"{name} deletes position {position} of data file {file_id}, which has {rows}"
        yield Finding("inlined_delete_position", message, table_id, (int(file_id),))
    newer = session.value(
        "SELECT count(*) FROM {inlined} WHERE begin_snapshot > ?", (head,), inlined=name
    )
    if newer:
        message = f"{name} has {newer} deletes of snapshots after {head}, the newest"
        yield Finding("future_row", message, table_id)


def _too_many_rows(session: Session, delete_tables: set[str]) -> Iterator[Finding]:
    """Yield the tables with more rows that are not deleted than row ids were given out."""
    for table_id, live, following in session.rows(
        "SELECT l.table_id, l.live, s.next_row_id FROM (" + LIVE_ROWS + ") AS l "
        "JOIN {ducklake_table_stats} s ON s.table_id = l.table_id WHERE l.live > s.next_row_id "
        "ORDER BY 1"
    ):
        rows, name = int(live), inlined_delete_table(int(table_id))
        if name in delete_tables:
            rows -= int(
                session.value(
                    "SELECT count(*) FROM {inlined} e JOIN {ducklake_data_file} d "
                    "ON d.data_file_id = e.file_id WHERE d.end_snapshot IS NULL",
                    inlined=name,
                )
            )
        if rows > int(following):
            message = f"next_row_id is {following}, but there are {rows} rows, each with its own id"
            yield Finding("next_row_id", message, int(table_id))


def largest_row_id(session: Session, table_id: int) -> int:
    """Return the largest row id the catalog knows of a table, -1 when it knows none.

    Files that hold their row ids themselves may have larger ones.
    """
    ids = [
        _largest(session, name)
        for of_table, name in read_inlined_tables(session).read()
        if of_table == table_id
    ]
    ids.append(
        session.value(
            "SELECT max(row_id_start + record_count) - 1 FROM {ducklake_data_file} "
            "WHERE table_id = ? AND row_id_start < ?",
            (table_id, TRANSACTION_LOCAL),
        )
    )
    return max((int(row_id) for row_id in ids if row_id is not None), default=-1)


def _largest(session: Session, name: str) -> Any:
    return session.value(
        "SELECT max(row_id) FROM {inlined} WHERE row_id < ?", (TRANSACTION_LOCAL,), inlined=name
    )


def _count(session: Session, name: str) -> int:
    return int(session.value("SELECT count(*) FROM {inlined}", inlined=name))
