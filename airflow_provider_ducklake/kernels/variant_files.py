"""Write VARIANT columns to files, and look whether the files hold what was written.

DuckDB 1.5 makes columns of the fields of a VARIANT ("shredding"). It takes fields whose names
differ in case for one, so that the value of the second is lost; its dictionaries take -0.0 for 0.0
there too; and a text of exactly 64 bytes that it makes no column of becomes an empty one (all tried
on 1.5.5). Nothing of this is said, so a file is read again before anybody hears of it. Before that,
decimals that it cannot write out as text are stored in another width.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import duckdb

from airflow_provider_ducklake.kernels.file_schema import scan_sql
from airflow_provider_ducklake.kernels.variant import (
    fatal_decimal_sql,
    from_parts_sql,
    to_parts_sql,
    with_wide_decimals,
)
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.identifiers import quote_identifier

# Writes the rows of a query with parameters to files, under further options of COPY, each with a
# comma before it; returns a row a file that begins with its path.
Copy: TypeAlias = Callable[[str, Sequence[object], str], list[tuple[Any, ...]]]


def has_variants(columns: Iterable[Column]) -> bool:
    """Tell whether any column is a VARIANT.

    Raises:
        BadInput: One is inside another type, where DuckDB cannot write it.
    """
    found = False
    for column in columns:
        if column.type == "variant":
            found = True
        elif any(leaf.type == "variant" for leaf in column.leaves()):
            raise BadInput(
                f"column {column.name} is {column.sql_type}: DuckDB writes no VARIANT inside of "
                "another type; make the column a VARIANT as a whole"
            )
    return found


def copy_variants(
    connection: duckdb.DuckDBPyConnection,
    select_sql: str,
    parameters: Sequence[object],
    columns: Sequence[Column],
    encryption_key: str | None,
    copy: Copy,
) -> list[tuple[Any, ...]]:
    """Write rows with VARIANT columns to files that read as the rows do.

    The rows go through a table, which may spill, to be compared with what was written. Where they
    differ they are written once more, without columns for the fields.

    Args:
        connection: From `open_connection`.
        select_sql: The rows.
        parameters: Values of its `?`.
        columns: Top-level columns.
        encryption_key: Base64 key of the files.
        copy: Writes rows.

    Raises:
        BadInput: Neither way keeps a value; the message names its column. No file is left.
    """
    names = [column.name for column in columns if column.type == "variant"]
    # Whole values that are texts have a column: of those nothing can be lost.
    kinds = ", ".join(f"{quote_identifier(name)}: VARCHAR" for name in names)
    plain = f", SHREDDING {{{kinds}}}"
    table = f"variants_{uuid.uuid4().hex}"
    connection.execute(f"CREATE TEMP TABLE {table} AS {select_sql}", list(parameters))
    name = value = ""
    try:
        for name in names:
            _widen_decimals(connection, table, quote_identifier(name))
        for further in ("", plain):
            written = copy(f"FROM {table}", (), further)
            paths = [str(path) for path, *_ in written]
            changed = _changed(connection, table, names, paths, encryption_key)
            if changed is None:
                return written
            name, value = changed
            for path in paths:
                os.unlink(path)
        raise BadInput(
            f"column {name} holds a VARIANT that DuckDB writes as another value, as it does a text "
            "of exactly 64 bytes inside of values of many shapes: keep it in a column of its own; "
            f"value {value[:100]}"
        )
    finally:
        connection.execute(f"DROP TABLE {table}")


def _widen_decimals(connection: duckdb.DuckDBPyConnection, table: str, column: str) -> None:
    """Change decimals in a table that would end the process of whoever asks for their text."""
    query = (
        f"SELECT rowid AS place, {to_parts_sql(column)} AS pair FROM {table} "
        f"WHERE {fatal_decimal_sql(column)}"
    )
    found = connection.execute(query).to_arrow_table()
    if found.num_rows == 0:
        return
    pairs = with_wide_decimals(found["pair"].combine_chunks())
    connection.register("widened", found.set_column(1, "pair", pairs))
    value = f"CASE WHEN w.place IS NULL THEN t.{column} ELSE {from_parts_sql('w.pair')} END"
    connection.execute(
        f"CREATE TEMP TABLE {table}_widened AS SELECT t.* REPLACE ({value} AS {column}) "
        f"FROM {table} t LEFT JOIN widened w ON w.place = t.rowid ORDER BY t.rowid"
    )
    connection.unregister("widened")
    connection.execute(f"DROP TABLE {table}")
    connection.execute(f"ALTER TABLE {table}_widened RENAME TO {table}")


def _changed(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    names: Sequence[str],
    paths: Sequence[str],
    encryption_key: str | None,
) -> tuple[str, str] | None:
    """Return column and text of a value that the files, read in order, hold another one for."""
    if not paths:
        return None
    for name in names:
        text = (
            f"CAST(variant_normalize({quote_identifier(name)}) AS VARCHAR)"  # fields in one order
        )
        row = connection.execute(
            f"SELECT a FROM (SELECT {text} AS a FROM {table}) POSITIONAL JOIN "
            f"(SELECT {text} AS b FROM {scan_sql(paths, encryption_key)}) "
            "WHERE a IS DISTINCT FROM b LIMIT 1"
        ).fetchone()
        if row is not None:
            return name, str(row[0])
    return None
