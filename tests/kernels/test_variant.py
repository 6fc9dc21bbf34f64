"""VARIANT values go into files and come out of them as what they were, or are refused."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ducklake.kernels.append import append
from airflow_provider_ducklake.kernels.file_schema import scan_sql
from airflow_provider_ducklake.kernels.footer import read_footer
from airflow_provider_ducklake.kernels.tasks import AppendTask, ParquetOptions
from airflow_provider_ducklake.kernels.variant import as_pairs, from_parts_sql, to_parts_sql
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.errors import BadInput
from tests.kernels.appender import Appender
from tests.kernels.registration import SETTINGS, plain_connection
from tests.support.variants import PAIR, Typed, decode, encode, pairs


def _integers(bits: int, kind: str) -> st.SearchStrategy[Typed]:
    limit = 2 ** (bits - 1)
    return st.builds(Typed, st.just(kind), st.integers(-limit, limit - 1))


def _decimals(kind: str, digits: int) -> st.SearchStrategy[Typed]:
    whole = st.integers(-(10**digits) + 1, 10**digits - 1)
    return st.builds(Typed, st.just(kind), st.tuples(whole, st.integers(0, digits)))


def _times(kind: str, limit: int) -> st.SearchStrategy[Typed]:
    return st.builds(Typed, st.just(kind), st.integers(-limit, limit))


SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.text(), st.text(min_size=64), st.binary(),
    _integers(8, "int8"), _integers(16, "int16"), _integers(32, "int32"), _integers(64, "int64"),
    _decimals("decimal4", 9), _decimals("decimal8", 18), _decimals("decimal16", 38),
    st.builds(Typed, st.just("double"), st.floats() | st.just(-0.0)),
    st.builds(Typed, st.just("float"), st.floats(width=32) | st.just(-0.0)),
    _times("date", 10**6), _times("timestamp", 10**17), _times("timestamp_ntz", 10**17),
    _times("timestamp_ntz_ns", 10**18),
    st.builds(Typed, st.just("time"), st.integers(0, 86_399_999_999)),
    st.builds(Typed, st.just("uuid"), st.binary(min_size=16, max_size=16)),
)  # fmt: skip
# Names that differ in case only, or are those of Parquet's own parts.
NAMES = st.sampled_from(["a", "A", "b", "value", "typed_value", "x.y", 'q"'])


def _objects(items: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(NAMES, items, max_size=3).filter(
        lambda found: len({name.lower() for name in found}) == len(found)
    )


VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | _objects(inner), max_leaves=8
)


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    with plain_connection() as connection:
        yield connection


def _known(value: Any) -> Any:
    """Return a value as it compares: NaN equals NaN, and a decimal is what its digits mean."""
    if isinstance(value, list):
        return [_known(item) for item in value]
    if isinstance(value, dict):
        return {name: _known(item) for name, item in value.items()}
    if not isinstance(value, Typed):
        return value
    if value.kind in ("double", "float"):
        kept = "nan" if math.isnan(value.value) else struct.pack("<d", value.value)
        return (value.kind, kept)
    return ("decimal", value.value) if value.kind.startswith("decimal") else tuple(value)


def _holds_64_bytes(value: Any) -> bool:
    if isinstance(value, list | dict):
        return any(map(_holds_64_bytes, value if isinstance(value, list) else value.values()))
    return isinstance(value, str) and len(value.encode()) == 64


def _stored(plain: duckdb.DuckDBPyConnection, path: str) -> list[Any]:
    """Return the values of a file; the null of a VARIANT is SQL's NULL to DuckDB."""
    query = f"SELECT {to_parts_sql('v')} AS p FROM read_parquet(?)"
    read = plain.execute(query, [path]).to_arrow_table()["p"].combine_chunks()
    found = as_pairs(read, PAIR).to_pylist()
    return [decode(p["metadata"], p["value"]) if p is not None else None for p in found]


@settings(max_examples=60)
@given(st.lists(VALUES | st.just(...), min_size=1, max_size=6))
def test_whatever_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    plain: duckdb.DuckDBPyConnection,
    values: list[Any],
) -> None:
    directory = str(tmp_path_factory.mktemp("v"))
    task = AppendTask(parse_columns("v variant"), directory, ParquetOptions())
    batch = pa.RecordBatch.from_arrays([pairs(values)], names=["v"])
    try:
        [file] = append([batch], task, SETTINGS)
    except BadInput:
        if any(_holds_64_bytes(value) for value in values if isinstance(value, list | dict)):
            return
        raise
    expected = [None if value is ... else _known(value) for value in values]
    assert [_known(value) for value in _stored(plain, file.path)] == expected


FATAL = Typed("decimal8", (-601, 16))


@pytest.mark.parametrize(
    "value",
    [
        FATAL,
        Typed("decimal8", (0, 18)),
        Typed("decimal8", (9999, 17)),
        Typed("decimal8", (10000, 16)),
        [FATAL, {"a": [FATAL], "b": "q" * 65, "c": None}],
        {"a": " \x10", "b": FATAL, "c": Typed("decimal4", (601, 9))},
    ],
)
def test_decimals_whose_text_would_end_the_process(
    add: Appender, plain: duckdb.DuckDBPyConnection, value: Any
) -> None:
    """Written alone and among others; every client can show what comes back."""
    for values in ([value], ["x", ..., value, None, value, {}]):
        batch = pa.RecordBatch.from_arrays([pairs(values)], names=["v"])
        [file] = add("v variant", [batch])
        expected = [None if item is ... else _known(item) for item in values]
        assert [_known(item) for item in _stored(plain, file.path)] == expected
        shown = plain.execute("SELECT CAST(v AS VARCHAR) FROM read_parquet(?)", [file.path])
        assert len(shown.fetchall()) == len(values)


def test_a_file_with_a_column_of_them(plain: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """DuckDB writes one, and ends where it reads the bounds in the footer."""
    path = str(tmp_path / "fatal.parquet")
    rows = pa.table({"v": pairs([{"a": FATAL}])})
    plain.register("rows", rows)
    plain.execute(
        f"COPY (SELECT {from_parts_sql('v')} AS v FROM rows) TO '{path}' (FORMAT parquet)"
    )
    plain.unregister("rows")
    with pytest.raises(BadInput, match=re.escape("has a DECIMAL(3,16) in typed_value")):
        read_footer(plain, path, path)


def test_such_a_decimal_beside_a_text_of_64_bytes(
    add: Appender, plain: duckdb.DuckDBPyConnection
) -> None:
    """The way of a value to its bytes and back loses neither."""
    value = {"a": FATAL, "b": "q" * 64}
    [file] = add("v variant", [pa.RecordBatch.from_arrays([pairs([value])], names=["v"])])
    assert [_known(item) for item in _stored(plain, file.path)] == [_known(value)]


REFUSED = [
    (encode([Typed("timestamp_ns", 1)]), "nanoseconds"),
    (encode({"a": Typed("date", 2**31 - 1)}), "infinite"),
    (encode([Typed("timestamp", -(2**63) + 1)]), "infinite"),
    (encode([Typed("timestamp_ntz", 2**63 - 1)]), "infinite"),
    (encode({"a": True, "A": True}), "duplicate name"),
    ((b"\x01\x00\x00\x00", b"\x0c\x01"), "broken VARIANT"),
    ((b"", b"\x0c\x01"), "broken VARIANT"),
    ((b"\x01\x00\x00", b""), "orrupt"),
    ((b"\x01\x00\x00", b"\x03\x05\x00H"), "broken VARIANT"),
    ((b"\x01\x00\x00", b"\xfc"), "not supported"),
    ((b"\x11\x01\x05\x00", b"\x0c\x01"), "basic_string|broken VARIANT"),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "words"), REFUSED)
def test_what_would_be_another_value_is_refused(
    add: Appender, parts: tuple[bytes, bytes], words: str
) -> None:
    pair = pa.array([{"metadata": parts[0], "value": parts[1]}], PAIR)
    with pytest.raises(BadInput, match=words) as refusal:
        add("v variant", pa.table({"v": pair}))
    assert "\n" not in str(refusal.value)
    assert add.stored() == []


def test_a_text_that_looks_like_one_is_taken(
    add: Appender, plain: duckdb.DuckDBPyConnection
) -> None:
    """What nanoseconds and infinities begin with may stand in a text or a number as well."""
    values = ["H" * 100, "HHH", [Typed("int32", 2**31 - 1)], Typed("int64", 2**63 - 1), b"H\x00"]
    [file] = add("v variant", pa.table({"v": pairs(values)}))
    assert _stored(plain, file.path) == values


def test_null_where_none_is_allowed(add: Appender) -> None:
    for value in (None, ...):
        with pytest.raises(BadInput, match="column v is NOT NULL"):
            add("v variant NOT NULL", pa.table({"v": pairs([True, value])}))


INSIDE = pa.array([[{"value": b"\x00", "metadata": b"\x01\x00\x00"}]], pa.list_(PAIR))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("struct(value blob, metadata blob)", pairs([True])),
        ("varchar", pairs([True])),
        ("variant[]", INSIDE),
        ("variant", INSIDE),
    ],
)
def test_only_a_variant_takes_it_and_only_whole(add: Appender, kind: str, values: pa.Array) -> None:
    with pytest.raises(BadInput, match="column v: a VARIANT goes into a column of type VARIANT"):
        add(f"v {kind}", pa.table({"v": values}))


def test_other_values_become_variants_too(add: Appender, plain: duckdb.DuckDBPyConnection) -> None:
    """A struct without Spark's mark is an object."""
    rows = [{"value": b"\x00", "metadata": None}, None]
    [file] = add("v variant", pa.table({"v": rows}))
    assert _stored(plain, file.path) == rows


# What DuckDB 1.5.5 loses without a word when it writes these by itself.
LOST_BY_DUCKDB: list[list[Any]] = [
    [{"A": True}, {"a": False}],
    [{"x": Typed("double", 0.0)}, {"x": Typed("double", -0.0)}] * 300,
    ["x" * 64, True, False],
    [{"h": "x" * 64, "n": True}] * 3,
]


@pytest.mark.parametrize("values", LOST_BY_DUCKDB)
@pytest.mark.parametrize("options", [{}, {"row_group_size_bytes": 10_000}, {"encrypted": True}])
def test_what_duckdb_would_lose(
    add: Appender, connection: duckdb.DuckDBPyConnection, values: list[Any], options: dict[str, Any]
) -> None:
    [file] = add("v variant", pa.table({"v": pairs(values)}), options=ParquetOptions(**options))
    source = scan_sql(file.path, file.encryption_key)
    read = connection.execute(f"SELECT {to_parts_sql('v')} AS p FROM {source}").to_arrow_table()
    found = as_pairs(read["p"].combine_chunks(), PAIR).to_pylist()
    assert [_known(decode(**p)) for p in found] == [_known(value) for value in values]


def test_a_text_of_64_bytes_is_refused_where_it_has_no_column(add: Appender) -> None:
    values = [{"h": "x" * 64}, {"h": True}, {"h": False}, [True]]
    with pytest.raises(BadInput, match="column v holds a VARIANT that DuckDB writes as another"):
        add("v variant", pa.table({"v": pairs(values)}))
    assert add.stored() == []
    add("v variant", pa.table({"v": pairs([{"h": "x" * 63}, {"h": "x" * 65}, {"h": True}])}))
