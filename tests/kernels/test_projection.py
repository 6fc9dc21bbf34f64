"""Reading by column id, checked against a model: any tree of columns, any history of changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_ducklake.kernels.parquet import write_parquet
from airflow_provider_ducklake.kernels.projection import (
    project,
)
from airflow_provider_ducklake.kernels.tasks import ParquetOptions
from airflow_provider_ducklake.lake.columns import Column, parse_columns
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal
from airflow_provider_ducklake.lake.model import NameMapEntry
from tests.kernels.column_histories import default, entries_of, expected, histories, literal
from tests.kernels.reading import SETTINGS, data_file, read_columns, write_file


@given(history=histories(), mapped=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_change_of_columns(
    connection: duckdb.DuckDBPyConnection,
    tmp_path: Path,
    history: tuple[tuple[Column, ...], tuple[Column, ...], list[list[Any]]],
    mapped: bool,
) -> None:
    written, wanted, rows = history
    path = str(tmp_path / "f.parquet")
    selects = (
        "SELECT "
        + ", ".join(
            f"{literal(value, column)} AS {quote_identifier(column.name)}"
            for value, column in zip(row, written, strict=True)
        )
        for row in rows
    )
    query = " UNION ALL ".join(selects)
    if mapped:
        connection.execute(f"COPY ({query}) TO {quote_literal(path)} (FORMAT parquet)")
        file = data_file(path, name_map=entries_of(written))
    else:
        write_parquet(connection, query, (), path, written, ParquetOptions(), SETTINGS)
        file = data_file(path)
    projection = project(connection, file, path, wanted)
    by_id = {column.column_id: i for i, column in enumerate(written)}
    model = [
        tuple(
            expected(row[by_id[c.column_id]], written[by_id[c.column_id]], c)
            if c.column_id in by_id
            else default(c)
            for c in wanted
        )
        for row in rows
    ]
    assert read_columns(connection, projection) == model
    types = connection.execute(
        f"DESCRIBE SELECT {', '.join(projection.columns)} FROM {projection.source}"
    )
    assert [row[1] for row in types.fetchall()] == [
        str(duckdb.sqltype(column.sql_type)) for column in wanted
    ]


def test_a_name_used_again_does_not_bring_old_values_back(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "f.parquet"
    write_file(connection, path, "a int32, b int32", "SELECT 1::INTEGER AS a, 2::INTEGER AS b")
    renamed = Column(1, "b", "int64")
    again = Column(9, "a", "int32", initial_default="7")
    assert read_columns(
        connection, project(connection, data_file(path), str(path), (again, renamed))
    ) == [(7, 1)]


def test_types_that_rest_as_others_in_parquet(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "f.parquet"
    definition = (
        "a int128, b timestamp_s, c time_ns, d json, e uuid, f interval, g timestamp_ns, "
        "h geometry, i variant, j timestamp_ms, k blob"
    )
    columns = parse_columns(definition)
    texts = [
        "123456789012", "2024-01-01 00:00:01", "12:00:00.123456789", '{"a":1}',
        "f79c3e09-677c-4bbd-a479-3f349cb785e7", "1 day 00:00:01", "2024-01-01 00:00:00.000000001",
        "POINT (1 2)", "x", "2024-01-01 00:00:00.001", "\\x00",
    ]  # fmt: skip
    values = ", ".join(
        f"CAST({quote_literal(text)} AS {c.sql_type}) AS {c.name}"
        for text, c in zip(texts, columns, strict=True)
    )
    write_file(connection, path, definition, f"SELECT {values}")
    projection = project(connection, data_file(path), str(path), columns)
    read = ", ".join(f"CAST({c.name} AS VARCHAR)" for c in columns)
    select = f"SELECT {', '.join(projection.columns)} FROM {projection.source}"
    assert connection.execute(f"SELECT {read} FROM ({select})").fetchall() == [tuple(texts)]


def test_row_and_snapshot_ids(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    columns = parse_columns("a int32")
    write_file(connection, path, "a int32", "SELECT i::INTEGER AS a FROM range(2) t(i)")
    plain = project(connection, data_file(path), str(path), columns)
    assert read_columns(connection, plain, f"{plain.row_id}, {plain.snapshot_id}") == [
        (0, 100, 5),
        (1, 101, 5),
    ]
    assert (plain.has_row_ids, plain.has_snapshot_ids) == (False, False)
    unknown = project(connection, data_file(path, row_id_start=None), str(path), columns)
    assert unknown.row_id is None

    write_parquet(
        connection,
        "SELECT 1::INTEGER AS a, 77 AS _ducklake_internal_row_id, "
        "8 AS _ducklake_internal_snapshot_id",
        (),
        str(path),
        columns,
        ParquetOptions(),
        SETTINGS,
        write_row_ids=True,
        write_snapshot_ids=True,
    )
    kept = project(connection, data_file(path), str(path), columns)
    assert read_columns(connection, kept, f"{kept.row_id}, {kept.snapshot_id}") == [(1, 77, 8)]
    assert (kept.has_row_ids, kept.has_snapshot_ids) == (True, True)


def test_columns_named_like_duckdbs_own(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "f.parquet"
    definition = "file_row_number int32, filename varchar, c0 int32, file_index int32"
    query = (
        "SELECT 9::INTEGER AS file_row_number, 'x' AS filename, 3::INTEGER AS c0, "
        "4::INTEGER AS file_index"
    )
    write_file(connection, path, definition, query)
    projection = project(connection, data_file(path), str(path), parse_columns(definition))
    assert read_columns(connection, projection, projection.position) == [(9, "x", 3, 4, 0)]


def test_values_from_directories(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    directory = tmp_path / "year=2024" / "region=a%20b" / "n=__HIVE_DEFAULT_PARTITION__" / "m="
    directory.mkdir(parents=True)
    path = directory / "f.parquet"
    connection.execute(f"COPY (SELECT 1 AS v, 99 AS year) TO {quote_literal(str(path))}")
    columns = parse_columns("v int32, year int32, region varchar, n int32, m int32, other int32")
    entries = (
        NameMapEntry("v", 1),
        *(
            NameMapEntry(n, i + 2, is_partition=True)
            for i, n in enumerate(["year", "REGION", "n", "m"])
        ),
    )
    projection = project(connection, data_file(path, name_map=entries), str(path), columns)
    assert read_columns(connection, projection) == [(1, 2024, "a b", None, None, None)]
    lost = (NameMapEntry("day", 2, is_partition=True),)
    with pytest.raises(BadInput, match="column year is mapped to a directory day"):
        project(connection, data_file(path, name_map=lost), str(path), columns)


@pytest.mark.parametrize("ids", [False, True])
def test_without_ids_names_do_not_count(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, ids: bool
) -> None:
    path = tmp_path / "f.parquet"
    option = ", FIELD_IDS {a: 1, s: 2}" if ids else ""
    connection.execute(
        f"COPY (SELECT 1 AS a, {{'x': 1}} AS s) TO {quote_literal(str(path))} "
        f"(FORMAT parquet{option})"
    )
    with pytest.raises(BadInput, match="no field id"):
        project(connection, data_file(path), str(path), parse_columns("a int32, s struct(x int32)"))


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ((NameMapEntry("gone", 1),), "mapped to field 'gone', which is not in the file"),
        ((NameMapEntry("a", 1), NameMapEntry("s", 2)), "nothing about the inside"),
    ],
)
def test_mapping_that_does_not_fit(
    connection: duckdb.DuckDBPyConnection,
    tmp_path: Path,
    entries: tuple[NameMapEntry, ...],
    words: str,
) -> None:
    path = tmp_path / "f.parquet"
    connection.execute(f"COPY (SELECT 1 AS a, {{'x': 1}} AS s) TO {quote_literal(str(path))}")
    columns = parse_columns("a int32, s struct(x int32)")
    with pytest.raises(BadInput, match=words):
        project(connection, data_file(path, name_map=entries), str(path), columns)


def test_nested_in_one_of_file_and_table_only(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "f.parquet"
    write_file(connection, path, "a struct(b int32)", "SELECT {'b': 1::INTEGER} AS a")
    with pytest.raises(BadInput, match=r"column a is INTEGER in the table, but field a .* STRUCT"):
        project(connection, data_file(path), str(path), (Column(1, "a", "int32"),))
    inside = Column(
        1,
        "a",
        "struct",
        children=(Column(2, "b", "list", children=(Column(3, "element", "int32"),)),),
    )
    with pytest.raises(BadInput, match=r"column b is INTEGER\[\] in the table"):
        project(connection, data_file(path), str(path), (inside,))


def test_a_value_that_does_not_fit_names_the_file(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(b"PAR1 no")
    with pytest.raises(BadInput, match="s3://b/x"):
        project(connection, data_file("s3://b/x"), str(path), parse_columns("a int32"))


def test_files_of_others_with_arrow_ids(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "f.parquet"
    ids = [{b"PARQUET:field_id": str(number).encode()} for number in range(4)]
    item = pa.field("item", pa.int32(), metadata=ids[3])
    x, values = pa.field("x", pa.int32(), metadata=ids[1]), pa.list_(item)
    schema = pa.schema([x, pa.field("l", values, metadata=ids[2])])
    pq.write_table(pa.table([[1], [[1, None]]], schema=schema), path)
    columns = parse_columns("new_x int64, l int64[]")
    assert read_columns(connection, project(connection, data_file(path), str(path), columns)) == [
        (1, [1, None])
    ]
