"""Rows that a catalog keeps inline as text, read as the types of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import duckdb
import pyarrow as pa

from airflow_provider_ducklake.kernels.connection import translated
from airflow_provider_ducklake.kernels.inlined_text import struct_from_sql
from airflow_provider_ducklake.kernels.parquet import ROW_ID, SNAPSHOT_ID
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.inlined import InlinedRow

INLINED: Final = "inlined_rows"
END: Final = "__ducklake_end"


def load_inlined_rows(
    connection: duckdb.DuckDBPyConnection, columns: Sequence[Column], rows: Sequence[InlinedRow]
) -> None:
    """Fill the table `INLINED` with typed rows, their ids and the snapshots they lived in.

    Args:
        connection: From `open_connection`; a table of that name is replaced.
        columns: What the values of the rows are, top-level columns of their schema version.
        rows: At least one.

    Raises:
        BadInput: A stored value cannot be read as its column's type; the message names both.
    """
    values = [_Stored(column, index, rows) for index, column in enumerate(columns)]
    arrays = {
        ROW_ID: pa.array([row.row_id for row in rows], pa.int64()),
        SNAPSHOT_ID: pa.array([row.begin_snapshot for row in rows], pa.int64()),
        END: pa.array([row.end_snapshot for row in rows], pa.int64()),
    }
    for value in values:
        arrays |= value.arrays()
    connection.register("stored", pa.table(arrays))
    typed = [f"{v.sql} AS {quote_identifier(v.column.name)}" for v in values]
    listed = ", ".join((*typed, ROW_ID, SNAPSHOT_ID, END))
    try:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {INLINED} AS SELECT {listed} FROM stored")
    except duckdb.Error as error:
        _refuse(connection, values, rows)
        raise translated(error, "read the inlined rows") from None
    finally:
        connection.unregister("stored")


def _refuse(
    connection: duckdb.DuckDBPyConnection, values: Iterable[_Stored], rows: Sequence[InlinedRow]
) -> None:
    """Name the first value that is none of its column's type."""
    for value in values:
        if _casts(connection, value, 0, len(rows)):
            continue
        start, end = 0, len(rows)
        while end - start > 1:
            middle = (start + end) // 2
            if _casts(connection, value, start, middle):
                start = middle
            else:
                end = middle
        raise _undecodable(value.column, rows[start].row_id)


def _casts(connection: duckdb.DuckDBPyConnection, value: _Stored, start: int, end: int) -> bool:
    # TRY_CAST would not do: inside a nested value it makes NULL of what it cannot read.
    try:
        connection.execute(
            f"SELECT count({value.sql}) FROM (FROM stored LIMIT {end - start} OFFSET {start})"
        )
    except duckdb.Error:
        return False
    return True


def _undecodable(column: Column, row_id: int) -> BadInput:
    return BadInput(
        f"inlined row {row_id}: what the catalog stores for column {column.name} is no value of "
        f"type {column.sql_type}; update or delete the row, then flush again"
    )


class _Stored:
    """The stored values of one column and the SQL that reads them as the column's type."""

    def __init__(self, column: Column, index: int, rows: Sequence[InlinedRow]) -> None:
        self.column = column
        self._name = f"__ducklake_v{index}"
        self._values = [_checked(column, row, index) for row in rows]

    def arrays(self) -> dict[str, pa.Array]:
        """Return the values as text, and where there are two ways to store them, both."""
        texts = [value if isinstance(value, str) else None for value in self._values]
        found = {self._name: pa.array(texts, pa.string())}
        if self.column.type == "blob":
            raw = [value if isinstance(value, bytes) else None for value in self._values]
            found[f"{self._name}_raw"] = pa.array(raw, pa.binary())
        elif self.column.type == "struct":
            literals = [None if t is None else struct_from_sql(t, self.column) for t in texts]
            found[f"{self._name}_sql"] = pa.array(literals, pa.string())
        return found

    @property
    def sql(self) -> str:
        """Expression of the value; it fails for a text that is none of the type."""
        name, kind = self._name, self.column.sql_type
        if self.column.type == "blob":
            return f"coalesce({name}_raw, CAST({name} AS BLOB))"
        if not self.column.is_nested:
            return f"CAST({name} AS {kind})"
        # DuckDB parses text on its way to JSON as JSON, and the nested value is none.
        plain = _without_json(self.column).sql_type
        text = name
        if self.column.type == "struct":
            # A text that comes back as it was is in DuckDB's own form, whatever else it may be.
            own = f"CAST(TRY_CAST({name} AS {plain}) AS VARCHAR) IS NOT DISTINCT FROM {name}"
            text = f"CASE WHEN {name}_sql IS NULL OR {own} THEN {name} ELSE {name}_sql END"
        value = f"CAST({text} AS {plain})"
        return value if plain == kind else f"CAST({value} AS {kind})"


def _checked(column: Column, row: InlinedRow, index: int) -> str | bytes | None:
    value = row.values[index]
    if value is None:
        return None
    if column.type == "variant" or any(leaf.type == "variant" for leaf in column.leaves()):
        raise BadInput(
            f"inlined row {row.row_id}: column {column.name} holds a VARIANT, whose types its "
            "text does not keep; flush it with DuckDB's ducklake_flush_inlined_data"
        )
    if isinstance(value, bytes) and column.type != "blob":
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise _undecodable(column, row.row_id) from None
    return value


def _without_json(column: Column) -> Column:
    if column.type == "json":
        return replace(column, type="varchar")
    return replace(column, children=tuple(_without_json(child) for child in column.children))
