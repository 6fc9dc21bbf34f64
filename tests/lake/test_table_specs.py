"""Partition and sort specs are bound to a table's columns before anything is created."""

from __future__ import annotations

import pytest

from airflow_provider_ducklake.lake.columns import number_columns, parse_columns
from airflow_provider_ducklake.lake.errors import BadInput, NotFound
from airflow_provider_ducklake.lake.model import SortKey
from airflow_provider_ducklake.lake.table_specs import parse_partition_spec, parse_sort_spec
from airflow_provider_ducklake.lake.types import DUCKDB_NAMES

COLUMNS = parse_columns('id int64, Name varchar, "a, ""b" varchar, st struct(x int32)')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id", [SortKey("id")]),
        (
            "name DESC, id NULLS FIRST",
            [SortKey("name", "DESC"), SortKey("id", "ASC", "NULLS_FIRST")],
        ),
        ("lower(NAME), id % 7", [SortKey("lower(NAME)"), SortKey("id % 7")]),
        ("replace(name, ',', ' ') DESC", [SortKey("replace(name, ',', ' ')", "DESC")]),
        ('"a, ""b" DESC', [SortKey('"a, ""b"', "DESC")]),
        ("st.x", [SortKey("st.x")]),
        ("", []),
    ],
)
def test_sort_keys(text: str, expected: list[SortKey]) -> None:
    assert list(parse_sort_spec(text, COLUMNS)) == expected


@pytest.mark.parametrize(
    "text",
    ["nocol", "id, lower(nocol)", "lower(id)", "sum(id)", "row_number() OVER ()", "(id", "id; x"],
)
def test_what_no_client_could_sort_by(text: str) -> None:
    with pytest.raises(BadInput, match="sort key"):
        parse_sort_spec(text, COLUMNS)


def test_columns_of_every_type_may_stand_beside_a_sort_key() -> None:
    columns = parse_columns(", ".join(f"c_{name} {name}" for name in DUCKDB_NAMES))
    assert parse_sort_spec("c_varchar", columns)


def test_partition_keys_may_be_quoted() -> None:
    (field,) = parse_partition_spec('bucket(4, "a, ""b")', COLUMNS)
    assert (field.column_id, field.transform) == (3, "bucket(4)")
    with pytest.raises(NotFound, match="nocol"):
        parse_partition_spec("nocol", COLUMNS)


@pytest.mark.parametrize("name", ["_ducklake_internal_row_id", "_DuckLake_Internal_x"])
def test_names_the_format_keeps_for_itself(name: str) -> None:
    columns = parse_columns("id int64")
    with pytest.raises(BadInput, match="_ducklake_internal_"):
        number_columns([*columns, *parse_columns(f"{name} int64")])
