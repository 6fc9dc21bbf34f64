"""Structs that a catalog holds as text are understood, in the reference's form and DuckDB's."""

from __future__ import annotations

import tempfile

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.flush import flush
from airflow_provider_ducklake.kernels.inlined_text import struct_from_sql
from airflow_provider_ducklake.kernels.tasks import FlushTask, ParquetOptions
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.inlined import InlinedRow
from airflow_provider_ducklake.storage import StorageOptions

SETTINGS = KernelSettings(StorageOptions({}))
STRUCT = parse_columns("s struct(a varchar, b varchar, n int32)")[0]


def _sql_literal(value: str | None) -> str:
    """Write a string as the reference does: an SQL literal, NUL by concatenation."""
    if value is None:
        return "NULL"
    quoted = "'" + value.replace("'", "''").replace("\0", "', chr(0), '") + "'"
    return f"CONCAT({quoted})" if "\0" in value else quoted


TEXTS = st.none() | st.text() | st.text("'\\{}[],: \"a\0") | st.sampled_from(["NULL", "", " "])
STRUCTS = st.lists(
    st.tuples(TEXTS, TEXTS, st.none() | st.integers(-(2**31), 2**31 - 1)), min_size=1
)


@settings(max_examples=30)
@given(STRUCTS)
def test_any_struct_is_understood_as_an_sql_literal(
    connection: duckdb.DuckDBPyConnection, values: list[tuple[str | None, str | None, int | None]]
) -> None:
    for a, b, n in values:
        number = "NULL" if n is None else str(n)
        stored = f"{{'a': {_sql_literal(a)}, 'b': {_sql_literal(b)}, 'n': {number}}}"
        text = struct_from_sql(stored, STRUCT)
        row = connection.execute(f"SELECT CAST(? AS {STRUCT.sql_type})", [text]).fetchone()
        assert row == ({"a": a, "b": b, "n": n},)


@settings(max_examples=10)
@given(STRUCTS)
def test_any_struct_is_understood_in_duckdbs_own_form(
    connection: duckdb.DuckDBPyConnection, values: list[tuple[str | None, str | None, int | None]]
) -> None:
    inserted = [{"a": a, "b": b, "n": n} for a, b, n in values]
    rows = [
        InlinedRow(
            row_id,
            1,
            None,
            connection.execute(
                f"SELECT CAST(CAST(? AS {STRUCT.sql_type}) AS VARCHAR)", [value]
            ).fetchone()
            or (),
        )
        for row_id, value in enumerate(inserted)
    ]
    with tempfile.TemporaryDirectory() as directory:
        task = FlushTask((STRUCT,), tuple(rows), f"{directory}/", ParquetOptions())
        [file] = flush(task, SETTINGS).files
        found = connection.execute("SELECT s FROM read_parquet(?)", [file.path]).fetchall()
    assert [value for (value,) in found] == inserted
