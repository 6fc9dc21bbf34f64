"""Column definitions, types, and which type may hold which."""

from __future__ import annotations

import duckdb
import pytest

from airflow_provider_ducklake.lake.columns import leaf_paths, parse_columns
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.types import DUCKDB_NAMES, normalise, widens


def test_ids_are_given_parents_first() -> None:
    columns = parse_columns(
        'id int64 NOT NULL, "we,ird" STRUCT(a INT, b VARCHAR[]), m map(varchar, decimal(10, 2))'
    )
    assert [c.name for c in columns] == ["id", "we,ird", "m"]
    assert [x.column_id for c in columns for x in c.walk()] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert not columns[0].nulls_allowed
    assert columns[1].sql_type == 'STRUCT("a" INTEGER, "b" VARCHAR[])'
    assert columns[2].sql_type == "MAP(VARCHAR, DECIMAL(10,2))"


def test_scalar_columns_are_called_by_their_path() -> None:
    columns = parse_columns("id int64, s struct(a int, l struct(b int)[]), m map(varchar, int[])")
    assert leaf_paths(columns) == {
        1: "id",
        3: "s.a",
        6: "s.l.element.b",
        8: "m.key",
        10: "m.value.element",
    }
    assert leaf_paths(parse_columns("s struct(a int)")[0].children, "s.") == {2: "s.a"}


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("", "at least one column"),
        ("id", "a name and a type"),
        ("id int64, ID int32", "named twice"),
        ("id inet", "no column type 'inet'"),
        ('"id int64', "never closed"),
        ("m map(int32)", "key type and a value type"),
        ("d decimal(39,2)", "1 to 38 digits"),
        ("s struct(a int32, a int32)", "named twice"),
    ],
)
def test_bad_definitions_say_what_is_wrong(definition: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_columns(definition)


def test_int8_is_one_byte_wide_as_in_the_specification() -> None:
    assert (normalise("int8"), normalise("TINYINT"), normalise("BIGINT")) == (
        "int8",
        "int8",
        "int64",
    )


@pytest.mark.parametrize("name", sorted(set(DUCKDB_NAMES) - {"json", "geometry", "variant"}))
def test_duckdb_knows_every_type_by_the_name_we_use(name: str) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (c " + DUCKDB_NAMES[name] + ")")


# A value that survives the way there and back was held without loss; DuckDB itself is the judge.
_EXTREMES = {
    "int8": ["-128", "127"],
    "int16": ["-32768", "32767"],
    "int32": ["-2147483648", "2147483647"],
    "int64": ["-9223372036854775808", "9223372036854775807"],
    "uint8": ["255"],
    "uint16": ["65535"],
    "uint32": ["4294967295"],
    "uint64": ["18446744073709551615"],
    "float32": ["0.1", "3.4e38"],
    "float64": ["0.1", "1.7e308"],
    "decimal(10,2)": ["-99999999.99"],
    "decimal(12,1)": ["99999999999.9"],
    "decimal(38,0)": ["9" * 38],
    "timestamp_s": ["1960-01-01 00:00:01", "3000-01-01 00:00:00"],
    "timestamp_ms": ["3000-01-01 00:00:00.001"],
    "timestamp": ["3000-01-01 00:00:00.000001"],
    "timestamp_ns": ["2020-01-01 00:00:00.000000001"],
    "date": ["2020-01-01"],
    "varchar": ["x"],
    "boolean": ["true"],
}


@pytest.mark.parametrize("source", _EXTREMES)
@pytest.mark.parametrize("target", _EXTREMES)
def test_widening_never_loses_a_value(source: str, target: str) -> None:
    if not widens(source, target):
        return
    there, back = _sql(target), _sql(source)
    with duckdb.connect() as connection:
        for value in _EXTREMES[source]:
            start = f"CAST('{value}' AS {back})"
            query = f"SELECT CAST(CAST(CAST({start} AS {there}) AS VARCHAR) AS {back}) = {start}"
            assert connection.execute(query).fetchone() == (True,)


def _sql(name: str) -> str:
    return DUCKDB_NAMES.get(name, name.upper())


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("int64", "int32"),
        ("uint32", "int32"),
        ("int32", "uint32"),
        ("float64", "float32"),
        ("int64", "float64"),
        ("decimal(12,2)", "decimal(10,2)"),
        ("decimal(10,2)", "decimal(10,1)"),
        ("timestamp_ns", "timestamp"),
        ("timestamp", "date"),
        ("timestamptz", "timestamp"),
        ("timestamp", "timestamptz"),
        ("varchar", "uuid"),
        ("blob", "varchar"),
        ("date", "timestamp"),
    ],
)
def test_what_could_lose_a_value_is_no_widening(source: str, target: str) -> None:
    assert not widens(source, target)


def test_lossless_pairs_are_taken() -> None:
    pairs = [
        ("int16", "int32"),
        ("uint32", "int64"),
        ("float32", "float64"),
        ("decimal(10,1)", "decimal(11,2)"),
        ("int32", "decimal(12,2)"),
        ("timestamp_s", "timestamp"),
    ]
    assert all(widens(*pair) for pair in pairs)
