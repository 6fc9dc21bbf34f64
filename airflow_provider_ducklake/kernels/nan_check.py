"""Looking for NaN in columns of a data file of which the catalog says that there is none."""

from __future__ import annotations

from collections.abc import Container, Sequence

import duckdb

from airflow_provider_ducklake.kernels.any_value import any_value
from airflow_provider_ducklake.kernels.connection import duckdb_errors
from airflow_provider_ducklake.kernels.projection import project
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.model import DataFile


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
        suspects: Ids of floating-point columns at or below those, inside lists and maps too.

    Raises:
        BadInput: The file is broken, or is not of such columns.
        StorageError: The file cannot be read.
    """
    asked = [(top, leaf) for top in columns for leaf in top.leaves() if leaf.column_id in suspects]
    read = list(dict.fromkeys(top for top, _ in asked))
    projection = project(connection, file, local, read)
    # An aggregate: DuckDB's filters on Parquet files lose rows with NaN.
    answers = ", ".join(f"bool_or({_has_nan(top, leaf)})" for top, leaf in asked)
    with duckdb_errors("read Parquet", file.path):
        row = connection.execute(
            f"SELECT {answers} FROM (SELECT {', '.join(projection.columns)} "
            f"FROM {projection.source})"
        ).fetchone()
    return [leaf for (_, leaf), has in zip(asked, row or (), strict=True) if has]


def _has_nan(top: Column, leaf: Column) -> str | None:
    def is_nan(value: str, column: Column) -> str | None:
        return f"isnan({value})" if column is leaf else None

    return any_value(quote_identifier(top.name), top, is_nan)
