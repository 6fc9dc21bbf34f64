"""What describes a lake beside its rows, at two snapshots: what differs, and how to put it back.

Schemas, tables, columns, views, macros, tags, partition specs and sort orders are rows with a
first and a last snapshot. To put one back, a copy of its row begins anew; the old one stays for
the snapshots that see it. Only a schema is opened again as it was: its id is a key, and tables
that were in it are looked up under that id for as long as they live.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from airflow_provider_ducklake.lake.commit import SnapshotWriter
from airflow_provider_ducklake.lake.database import Session, Value
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.metadata_tables import BY_NAME

# What tells apart the rows of each table that are visible at one snapshot.
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "ducklake_schema": ("schema_id",),
    "ducklake_table": ("table_id",),
    "ducklake_column": ("table_id", "column_id"),
    "ducklake_column_tag": ("table_id", "column_id", "key"),
    "ducklake_partition_info": ("table_id", "partition_id"),
    "ducklake_sort_info": ("table_id", "sort_id"),
    "ducklake_tag": ("object_id", "key"),
    "ducklake_view": ("view_id",),
    "ducklake_macro": ("macro_id",),
}
# Those of one table, with the column that holds its id.
_OF_A_TABLE: Final[Mapping[str, str]] = {
    "ducklake_table": "table_id",
    "ducklake_column": "table_id",
    "ducklake_column_tag": "table_id",
    "ducklake_partition_info": "table_id",
    "ducklake_sort_info": "table_id",
    "ducklake_tag": "object_id",
}
_LIFE: Final = ("begin_snapshot", "end_snapshot")

Entry = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class EntryChanges:
    """The rows of one metadata table that differ between an older snapshot and the newest.

    Attributes:
        table: The metadata table.
        gone: Rows the older snapshot does not have, by column name, without their snapshots.
        back: Rows only the older snapshot has.
    """

    table: str
    gone: tuple[Entry, ...] = ()
    back: tuple[Entry, ...] = ()

    @property
    def table_ids(self) -> set[int]:
        """Ids of the tables that the rows describe; those of commented views are among them."""
        column = _OF_A_TABLE.get(self.table)
        if column is None:
            return set()
        return {int(str(entry[column])) for entry in (*self.gone, *self.back)}


def read_entry_changes(
    session: Session, snapshot_id: int, *, table_id: int | None = None
) -> tuple[EntryChanges, ...]:
    """Compare what describes the lake, or one table, at a snapshot with what does now.

    Args:
        session: A transaction on the catalog.
        snapshot_id: The older snapshot.
        table_id: Only this table; None compares everything, schemas first.
    """
    found = []
    for table in _KEYS if table_id is None else _OF_A_TABLE:
        column = _OF_A_TABLE[table] if table_id is not None else None
        now = _visible(session, table, None, column, table_id)
        then = _visible(session, table, snapshot_id, column, table_id)
        found.append(EntryChanges(table, _not_in(now, then), _not_in(then, now)))
    return tuple(change for change in found if change.gone or change.back)


def apply_entry_changes(writer: SnapshotWriter, changes: Sequence[EntryChanges]) -> None:
    """End what the older snapshot does not have, and begin again what only it has."""
    for change in changes:
        keys = _KEYS[change.table]
        condition = " AND ".join(f"{quote_identifier(key)} = ?" for key in keys)
        statement = "UPDATE {ended} SET end_snapshot = ? WHERE end_snapshot IS NULL AND "
        for entry in change.gone:
            parameters = (writer.snapshot_id, *(entry[key] for key in keys))
            writer.session.execute(statement + condition, parameters, ended=change.table)
        if change.table == "ducklake_schema":
            writer.session.execute_in(
                "UPDATE {ducklake_schema} SET end_snapshot = NULL WHERE schema_id IN (??)",
                (int(str(entry["schema_id"])) for entry in change.back),
            )
            continue
        writer.session.insert(
            change.table, [_row(change.table, entry, writer.snapshot_id) for entry in change.back]
        )


def _visible(
    session: Session, table: str, snapshot_id: int | None, column: str | None, value: int | None
) -> list[dict[str, Value]]:
    """Return the rows of a metadata table at a snapshot, or the newest, without their snapshots."""
    names = [name for name, _ in BY_NAME[table].columns if name not in _LIFE]
    listed = ", ".join(quote_identifier(name) for name in names)
    parameters: list[Value] = []
    if snapshot_id is None:
        condition = "end_snapshot IS NULL"
    else:
        condition = "begin_snapshot <= ? AND (end_snapshot IS NULL OR end_snapshot > ?)"
        parameters += [snapshot_id, snapshot_id]
    if column is not None:
        condition += f" AND {column} = ?"
        parameters.append(value)
    query = f"SELECT {listed} FROM {{entries}} WHERE {condition}"
    rows = session.rows(query, parameters, entries=table)
    return [dict(zip(names, map(_plain, row), strict=True)) for row in rows]


def _not_in(some: Sequence[Entry], others: Sequence[Entry]) -> tuple[Entry, ...]:
    known = {tuple(entry.values()) for entry in others}
    return tuple(entry for entry in some if tuple(entry.values()) not in known)


def _plain(value: object) -> Value:
    if isinstance(value, UUID):
        return str(value)
    assert value is None or isinstance(value, str | bytes | int | float | bool)
    return value


def _row(table: str, entry: Entry, snapshot_id: int) -> list[Value]:
    values = {**entry, "begin_snapshot": snapshot_id, "end_snapshot": None}
    return [values[name] for name, _ in BY_NAME[table].columns]
