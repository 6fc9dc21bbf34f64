"""Inlined rows and deletes: read from any database, and stored in another as its clients do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.database import Session, Value
from airflow_provider_ducklake.lake.errors import UnsupportedCatalog
from airflow_provider_ducklake.lake.files import inlined_delete_table
from airflow_provider_ducklake.lake.inlined import InlinedRow, InlinedTable, read_inlined_rows
from airflow_provider_ducklake.lake.location import Kind
from airflow_provider_ducklake.lake.reader import column_trees
from airflow_provider_ducklake.lake.transfer.rows import InlinedData, InlinedDeletes, Tables
from airflow_provider_ducklake.lake.types import duckdb_type

_HEX: Final = re.compile(rb"\\x([0-9A-Fa-f]{2})")
_ALL: Final = 1 << 62  # above every snapshot
_COLUMN: Final = (
    "table_id",
    "column_id",
    "column_name",
    "column_type",
    "nulls_allowed",
    "initial_default",
    "default_value",
    "default_value_type",
    "parent_column",
    "column_order",
)
# How the reference stores a column of inlined rows; what is not here is text.
_POSTGRES: Final = {
    "boolean": "boolean",
    "int8": "smallint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "uint8": "integer",
    "uint16": "integer",
    "uint32": "bigint",
    "float32": "real",
    "float64": "double precision",
    "time": "time",
    "timetz": "time with time zone",
    "interval": "interval",
    "uuid": "uuid",
    "varchar": "bytea",
    "json": "bytea",
    "blob": "bytea",
}
_SQLITE_INTEGERS: Final = frozenset(
    {"boolean", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"}
)


def read_inlined_data(session: Session, tables: Tables) -> tuple[InlinedData, ...]:
    """Return the inlined rows that a catalog lists, by table and schema version.

    Args:
        session: A transaction on the catalog.
        tables: Its metadata, as 1.0 has it.

    Raises:
        UnsupportedCatalog: A value is of a type that its stored form does not keep.
    """
    there = set(session.table_names())
    found = []
    for record in tables["ducklake_inlined_data_tables"].records():
        table_id, version = int(record["table_id"]), int(record["schema_version"])
        name = str(record["table_name"])
        if name not in there:
            continue
        begin = _begin_of(tables, table_id, version)
        columns = columns_at(tables, table_id, begin)
        rows = read_inlined_rows(session, InlinedTable(name, version, begin), columns, _ALL)
        _refuse_variant(name, columns, rows)
        found.append(InlinedData(table_id, version, columns, tuple(rows)))
    return tuple(found)


def _begin_of(tables: Tables, table_id: int, schema_version: int) -> int:
    """Return where the columns of a schema version began: with it, or with one before it."""
    begins = [
        int(record["begin_snapshot"])
        for record in tables["ducklake_schema_versions"].records()
        if record["table_id"] == table_id and record["schema_version"] <= schema_version
    ]
    created = tables["ducklake_table"].where("table_id", {table_id}).values("begin_snapshot")
    return max(begins, default=min(map(int, created), default=0))


def read_inlined_deletes(session: Session, tables: Tables) -> tuple[InlinedDeletes, ...]:
    """Return the inlined deletes of every table that has some."""
    there = set(session.table_names())
    found = []
    for table_id in sorted({int(value) for value in tables["ducklake_table"].values("table_id")}):
        name = inlined_delete_table(table_id)
        if name in there:
            query = "SELECT file_id, row_id, begin_snapshot FROM {inlined}"
            rows = [(int(f), int(r), int(s)) for f, r, s in session.rows(query, inlined=name)]
            found.append(InlinedDeletes(table_id, tuple(rows)))
    return tuple(found)


def columns_at(tables: Tables, table_id: int, snapshot_id: int) -> tuple[Column, ...]:
    """Return the columns a table had at a snapshot."""
    visible = [
        tuple(record[name] for name in _COLUMN)
        for record in tables["ducklake_column"].records()
        if record["table_id"] == table_id
        and record["begin_snapshot"] <= snapshot_id
        and (record["end_snapshot"] is None or record["end_snapshot"] > snapshot_id)
    ]
    return column_trees(visible).get(table_id, ())


# The columns of a table that holds inlined deletes.
DELETE_COLUMNS: Final = (
    ("file_id", "BIGINT"),
    ("row_id", "BIGINT"),
    ("begin_snapshot", "BIGINT"),
)


def data_columns(columns: Sequence[Column], kind: Kind) -> list[tuple[str, str]]:
    """Return the columns of a table that holds inlined rows, with their types in a database."""
    ids = [(name, "BIGINT") for name in ("row_id", "begin_snapshot", "end_snapshot")]
    return ids + [(column.name, storage_type(column, kind)) for column in columns]


def storage_type(column: Column, kind: Kind) -> str:
    """Return the type in which a database stores the inlined values of a column."""
    if kind == "duckdb":
        return column.sql_type
    if kind == "sqlite":
        if column.type in _SQLITE_INTEGERS:
            return "BIGINT"
        return "BLOB" if column.type == "blob" else "VARCHAR"
    if column.type.startswith("decimal"):
        return duckdb_type(column.type)
    return _POSTGRES.get(column.type, "varchar")


def stored_values(row: InlinedRow, columns: tuple[Column, ...], kind: Kind) -> list[Value]:
    """Return what a database stores for one inlined row: its ids, then its values."""
    values: list[Value] = [row.row_id, row.begin_snapshot, row.end_snapshot]
    for value, column in zip(row.values, columns, strict=True):
        if column.type == "blob" and isinstance(value, str):
            values.append(_blob(value))
        elif (
            kind == "postgres" and isinstance(value, str) and _POSTGRES.get(column.type) == "bytea"
        ):
            values.append(value.encode())
        elif kind == "sqlite" and value is not None and column.type in _SQLITE_INTEGERS:
            values.append(_integer(value))
        else:
            values.append(value)
    return values


def _blob(text: str) -> bytes:
    """Return the bytes that DuckDB writes as text with `\\x..` for what cannot be printed."""
    return _HEX.sub(lambda match: bytes.fromhex(match[1].decode()), text.encode())


def _integer(value: Any) -> int:
    flags = {"true": 1, "false": 0, "t": 1, "f": 0}
    return flags[value] if value in flags else int(value)


def _refuse_variant(name: str, columns: tuple[Column, ...], rows: list[InlinedRow]) -> None:
    for column in columns:
        if rows and any(leaf.type == "variant" for leaf in column.leaves()):
            raise UnsupportedCatalog(
                f"{name} holds inlined values of column {column.name!r}, a VARIANT, whose types "
                "their text does not keep: flush them with ducklake_flush_inlined_data first"
            )
