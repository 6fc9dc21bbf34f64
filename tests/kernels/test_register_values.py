"""Whatever is accepted reads as it was written: any pair of types."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from airflow_provider_ducklake.kernels.register import inspect
from airflow_provider_ducklake.kernels.tasks import RegisterTask
from airflow_provider_ducklake.lake.columns import Column, parse_columns
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.model import WrittenFile
from airflow_provider_ducklake.lake.types import widens
from tests.kernels.registration import (
    SETTINGS,
    Files,
    inspect_file,
    plain_connection,
    statistics,
)


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    with plain_connection() as connection:
        yield connection


_DAYS: Final = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
FILE_TYPES: Final[dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]]] = {
    **{
        f"{sign}int{bits}": (
            getattr(pa, f"{sign}int{bits}")(),
            st.integers(0, 2**bits - 1)
            if sign
            else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1),
        )
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    "float16": (pa.float16(), st.floats(width=16)),
    "float32": (pa.float32(), st.floats(width=32)),
    "float64": (pa.float64(), st.floats()),
    "decimal(5,2)": (pa.decimal128(5, 2), st.decimals(-999, 999, places=2)),
    "decimal(38,0)": (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1)),
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), _DAYS.map(dt.datetime.date)),
    "time": (pa.time64("us"), st.times()),
    "timestamp_ms": (pa.timestamp("ms"), st.integers(-(10**12), 10**12)),
    "timestamp": (pa.timestamp("us"), _DAYS),
    # DuckDB's Python client cuts nanoseconds off: whole microseconds, to compare at all.
    "timestamp_ns": (pa.timestamp("ns"), st.integers(-(10**15), 10**15).map(lambda n: 1000 * n)),
    "timestamptz": (pa.timestamp("us", "UTC"), _DAYS),
    "varchar": (pa.string(), st.text()),
    "blob": (pa.binary(), st.binary()),
    "null": (pa.null(), st.none()),
}
TABLE_TYPES: Final = [
    "boolean", "int8", "int16", "int32", "int64", "int128", "uint8", "uint16", "uint32", "uint64",
    "float32", "float64", "decimal(5,2)", "decimal(9,0)", "decimal(20,0)", "decimal(38,10)", "date",
    "time", "timestamp_s", "timestamp_ms", "timestamp", "timestamp_ns", "timestamptz", "interval",
    "varchar", "blob", "json", "uuid",
]  # fmt: skip


SHAPES: Final = ("{}", "{}[]", "struct(a {})")


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[pa.Array, str]:
    """Return a column of a file and the type of the table's column, more often one that fits."""
    name = draw(st.sampled_from(sorted(FILE_TYPES)))
    kind, values = FILE_TYPES[name]
    likely = [t for t in TABLE_TYPES if name == "null" or widens(name.replace("16", "32"), t)]
    target = draw(st.sampled_from(likely or TABLE_TYPES) | st.sampled_from(TABLE_TYPES))
    items: st.SearchStrategy[Any] = st.none() | values
    shape = draw(st.sampled_from(["{}", *SHAPES]))
    if shape == "{}[]":
        kind, items = pa.list_(kind), st.none() | st.lists(items, max_size=3)
    elif shape == "struct(a {})":
        kind = pa.struct({"a": kind})
        items = st.none() | st.fixed_dictionaries({"a": items})
    array = pa.array(draw(st.lists(items, min_size=1, max_size=8)), kind)
    shape = draw(st.sampled_from([shape] * 9 + [*SHAPES]))
    return array, shape.format(target)


@settings(max_examples=100)
@given(_pairs(), st.integers(1, 8))
def test_whatever_is_accepted_reads_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    plain: duckdb.DuckDBPyConnection,
    pair: tuple[pa.Array, str],
    row_group_size: int,
) -> None:
    array, kind = pair
    path = str(tmp_path_factory.mktemp("p") / "f.parquet")
    pq.write_table(
        pa.table({"id": range(len(array)), "v": array}), path, row_group_size=row_group_size
    )
    columns = parse_columns(f"id int64, v {kind}")
    try:
        file = inspect(RegisterTask(path, "main.t", columns), SETTINGS)
    except BadInput:
        event("refused")
        return
    event("accepted")
    column = columns[1]
    source = "NULL" if len(file.name_map) == 1 else quote_identifier("v")
    rows = plain.execute(
        f"SELECT v FROM (SELECT id, CAST({source} AS {column.sql_type}) AS v "
        "FROM read_parquet(?)) ORDER BY id",
        [path],
    ).fetchall()
    read = [value for (value,) in rows]
    assert [_plainly(value) for value in read] == [_plainly(v) for v in array.to_pylist()]
    _check_statistics(plain, file, column, path)


def _plainly(value: Any) -> Any:
    """Return a value as it compares between Arrow and DuckDB, whatever holds it."""
    if isinstance(value, list):
        return [_plainly(item) for item in value]
    if isinstance(value, dict):
        return {key: _plainly(item) for key, item in value.items()}
    if isinstance(value, float):
        return "nan" if value != value else value
    if hasattr(value, "to_pydatetime"):  # pandas' timestamp
        value = value.to_pydatetime()
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.timezone.utc).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, int) and not isinstance(value, bool):
        return decimal.Decimal(value)
    return value


def _check_statistics(
    plain: duckdb.DuckDBPyConnection, file: WrittenFile, column: Column, path: str
) -> None:
    leaf = next(column.leaves())
    entry = statistics(file).get(leaf.column_id)
    if entry is None:
        return
    values = {"list": "unnest(v)", "struct": "v.a"}.get(column.type, "v")
    cast = f"SELECT CAST(v AS {column.sql_type}) AS v FROM read_parquet(?)"
    source = f"(SELECT {values} AS v FROM ({cast}))"
    low, high, count = plain.execute(
        f"SELECT min(v), max(v), count(v) FROM {source}", [path]
    ).fetchone() or (None, None, None)
    if entry.value_count is not None:
        assert (entry.value_count == 0) == (count == 0)
    if entry.min_value is not None:
        bounds = plain.execute(
            f"SELECT CAST(? AS {leaf.sql_type}), CAST(? AS {leaf.sql_type})",
            [_typed(leaf, entry.min_value), _typed(leaf, entry.max_value)],
        ).fetchone()
        assert bounds == (low, high)


def _typed(leaf: Column, text: str | None) -> object:
    return bytes.fromhex(text) if leaf.type == "blob" and text is not None else text


@pytest.mark.parametrize(
    ("values", "least"),
    [
        (("POINT (1 2)", "LINESTRING Z (0 0 0.5, 9 9 9)"), "0.000000"),
        (("POINT EMPTY", "POINT (7 7)"), "5.000000"),
        (("POINT (1 2)", "POINT (inf 3)"), None),
    ],
)
def test_the_box_of_a_geometry_is_what_all_row_groups_tell(
    tmp_path: Path, values: tuple[str, ...], least: str | None
) -> None:
    """DuckDB tells of no edge where one would be infinite."""
    rows = " UNION ALL ".join(f"SELECT '{value}'::GEOMETRY" for value in values)
    path = Files(tmp_path).sql(
        "SELECT 'POINT (5 5)'::GEOMETRY AS g FROM range(2048) UNION ALL SELECT NULL UNION ALL "
        + rows,
        options=", ROW_GROUP_SIZE 2048, GEOPARQUET_VERSION 'NONE'",
    )
    extra = inspect_file(path, "g geometry").statistics[0].extra_stats
    assert (extra is None) == (least is None)
    assert least is None or f'"xmin": {least}' in str(extra)
