"""Looking for NaN in columns of a data file of which the catalog says that there is none."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final

import duckdb

from airflow_provider_ducklake.kernels.connection import duckdb_errors
from airflow_provider_ducklake.kernels.projection import project
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal
from airflow_provider_ducklake.lake.model import DataFile

_FLOATS: Final = frozenset({"float32", "float64"})


def columns_with_nan(
    connection: duckdb.DuckDBPyConnection,
    file: DataFile,
    local: str,
    columns: Sequence[Column],
    suspects: Container[int],
) -> list[Column]:
    """Return those of some columns that hold NaN, by reading them: no footer tells.

    Args:
        connection: From `open_connection`.
        file: The file.
        local: Local path of its bytes.
        columns: Top-level columns of its table.
        suspects: Ids of leaf columns to look at.

    Raises:
        BadInput: The file is broken, or is not of such columns.
        StorageError: The file cannot be read.
    """
    wanted = [c for c in columns if any(found.column_id in suspects for found, _ in _floats(c))]
    if not wanted:
        return []
    asked = [(c, sql) for top in wanted for c, sql in _floats(top) if c.column_id in suspects]
    projection = project(connection, file, local, wanted)
    # An aggregate: DuckDB's filters on Parquet files lose rows with NaN.
    answers = ", ".join(f"bool_or(isnan({sql}))" for _, sql in asked)
    with duckdb_errors("read Parquet", file.path):
        row = connection.execute(
            f"SELECT {answers} FROM (SELECT {', '.join(projection.columns)} "
            f"FROM {projection.source})"
        ).fetchone()
    return [column for (column, _), has in zip(asked, row or (), strict=True) if has]


def float_columns(columns: Sequence[Column]) -> set[int]:
    """Return the ids of the columns that can be looked at: not those in lists and maps."""
    return {found.column_id for column in columns for found, _ in _floats(column)}


def _floats(column: Column, within: str | None = None) -> Iterator[tuple[Column, str]]:
    """Yield the floating-point columns at or below one, with the SQL that reads them."""
    if within is None:
        expression = quote_identifier(column.name)
    else:
        expression = f"struct_extract({within}, {quote_literal(column.name)})"
    if column.type in _FLOATS:
        yield column, expression
    elif column.type == "struct":
        for child in column.children:
            yield from _floats(child, expression)
