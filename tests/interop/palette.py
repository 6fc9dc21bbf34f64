"""Column types and values of the tests: SQL literals beside the Python values they mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timezone
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import UUID

import duckdb
import pyarrow as pa

from airflow_provider_ducklake.lake.columns import Column, parse_type
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal

# SQL literal and Python value of the same thing.
Pair: TypeAlias = tuple[str, Any]

_NULL: Final[Pair] = ("NULL", None)
_STRANGE: Final = 'it\'s "ünï"; {x: [1, NULL]} \\n 漢字'
_LONG: Final = "a" * 200  # more would not fit in the name of a partition directory

# Small pools on purpose: equal values in many rows, next to the values that break things.
VALUES: Final[Mapping[str, tuple[Pair, ...]]] = {
    "INTEGER": (("0", 0), ("-7", -7), ("2147483647", 2**31 - 1), _NULL, ("42", 42)),
    "BIGINT": (("0", 0), ("-9223372036854775808", -(2**63)), _NULL, ("1000000007", 1000000007)),
    "UTINYINT": (("0", 0), ("255", 255), _NULL),
    "VARCHAR": (
        ("''", ""),
        ("'plain'", "plain"),
        ("'" + _STRANGE.replace("'", "''") + "'", _STRANGE),
        _NULL,
        (f"repeat('a', {len(_LONG)})", _LONG),
        ("'NULL'", "NULL"),
    ),
    "DOUBLE": (
        ("1.5", 1.5),
        ("'nan'", float("nan")),
        _NULL,
        ("'inf'", float("inf")),
        ("-2.25e-300", -2.25e-300),
    ),
    "FLOAT": (("0.5", 0.5), ("'nan'", float("nan")), _NULL, ("-1024", -1024.0)),
    "DECIMAL(10,2)": (("1.10", Decimal("1.10")), ("-99999999.99", Decimal("-99999999.99")), _NULL),
    "BOOLEAN": (("true", True), ("false", False), _NULL),
    "DATE": (("'2024-02-29'", date(2024, 2, 29)), ("'1969-12-31'", date(1969, 12, 31)), _NULL),
    "TIME": (("'12:34:56.789'", time(12, 34, 56, 789000)), ("'00:00:00'", time(0, 0)), _NULL),
    "TIMESTAMP": (
        ("'2024-02-29 23:59:59.999999'", datetime(2024, 2, 29, 23, 59, 59, 999999)),
        ("'1969-12-31 00:00:00'", datetime(1969, 12, 31)),
        _NULL,
    ),
    "TIMESTAMPTZ": (
        ("'2024-03-31 02:30:00+05:30'", datetime(2024, 3, 30, 21, 0, tzinfo=timezone.utc)),
        ("'2000-01-01 00:00:00+00'", datetime(2000, 1, 1, tzinfo=timezone.utc)),
        _NULL,
    ),
    "BLOB": ((r"'\x00\xFF'::BLOB", b"\x00\xff"), ("''::BLOB", b""), _NULL),
    "UUID": (
        (f"'{UUID(int=7)}'", UUID(int=7)),
        (f"'{UUID(int=2**128 - 1)}'", UUID(int=2**128 - 1)),
        _NULL,
    ),
    "INTEGER[]": (("[1, NULL, 3]", [1, None, 3]), ("[]", []), _NULL),
    "STRUCT(a INTEGER, b VARCHAR)": (
        ("{'a': 1, 'b': 'x, y'}", {"a": 1, "b": "x, y"}),
        ("{'a': NULL, 'b': NULL}", {"a": None, "b": None}),
        _NULL,
    ),
    "MAP(VARCHAR, INTEGER)": (
        ("MAP {'k': 1, 'l': NULL}", {"k": 1, "l": None}),
        ("MAP {}", {}),
        _NULL,
    ),
}
TYPES: Final = tuple(VALUES)
# Fault of the reference: a struct inlined in SQLite or PostgreSQL loses quotes.
_PLAIN: Final[tuple[Pair, ...]] = (("'x, y'", "x, y"), ("'plain'", "plain"), _NULL)

# Changes of type that lose nothing; Python's value stays what it is.
WIDER: Final[Mapping[str, str]] = {"INTEGER": "BIGINT", "UTINYINT": "INTEGER", "FLOAT": "DOUBLE"}

# Partition keys that make a handful of partitions, by the type of the column.
TRANSFORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "INTEGER": ("{}", "bucket(3, {})"),
    "UTINYINT": ("{}",),
    "VARCHAR": ("{}", "bucket(2, {})"),
    "BOOLEAN": ("{}",),
    "DATE": ("{}", "year({})", "month({})"),
    "TIMESTAMP": ("year({})", "day({})"),
}


def pick(type_name: str, seed: int) -> Pair:
    """Return one value of a type, chosen by any integer: of its pool, or made of its parts."""
    pool = VALUES.get(type_name)
    return pool[seed % len(pool)] if pool else _nested(parse_type(type_name), seed)


def _nested(kind: Column, seed: int) -> Pair:
    if seed % 5 == 0:
        return _NULL
    if kind.type == "struct":
        parts = [(c.name, _nested(c, seed // 2 + at)) for at, c in enumerate(kind.children)]
        text = ", ".join(f"'{name}': {literal}" for name, (literal, _) in parts)
        return f"{{{text}}}", {name: value for name, (_, value) in parts}
    if kind.type == "list":
        text, value = _nested(kind.children[0], seed // 2)
        return (f"[{text}, NULL]", [value, None]) if seed % 3 else ("[]", [])
    if kind.type == "map":
        text, value = _nested(kind.children[1], seed // 2)
        return (f"MAP {{'k': {text}}}", {"k": value}) if seed % 3 else ("MAP {}", {})
    pool = _PLAIN if kind.sql_type == "VARCHAR" else VALUES[kind.sql_type]
    return pool[seed % len(pool)]


def literal(value: Any) -> str:
    """Return the SQL literal of a plain Python value."""
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | Decimal):
        return str(value)
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    if isinstance(value, float):
        return f"'{value}'::DOUBLE"
    return quote_literal(str(value))


def pair(value: Any) -> Pair:
    """Return a plain Python value with its SQL literal."""
    return literal(value), value


def pairs(rows: Iterable[Sequence[Any]]) -> list[list[Pair]]:
    """Return rows of plain Python values as pairs of SQL literal and value."""
    return [[pair(value) for value in row] for row in rows]


def arrow_table(types: Mapping[str, str], rows: Sequence[Sequence[Pair]]) -> pa.Table:
    """Return rows as an Arrow table with the given column names and DuckDB types."""
    with _session() as session:
        return session.sql(_select(types, rows)).to_arrow_table()


def write_parquet(path: Path, types: Mapping[str, str], rows: Sequence[Sequence[Pair]]) -> None:
    """Write rows to a Parquet file without field ids, as other software does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _session() as session:
        target = quote_literal(str(path))
        session.execute(f"COPY ({_select(types, rows)}) TO {target} (FORMAT parquet)")


@cache
def _instance() -> duckdb.DuckDBPyConnection:
    # To start one takes as long as a dozen statements.
    instance = duckdb.connect(":memory:", config={"threads": 1})
    instance.execute("SET GLOBAL TimeZone = 'UTC'")
    return instance


def _session() -> duckdb.DuckDBPyConnection:
    return _instance().cursor()


def _select(types: Mapping[str, str], rows: Sequence[Sequence[Pair]]) -> str:
    def line(row: Sequence[Pair]) -> str:
        cells = (f"({text})::{kind}" for (text, _), kind in zip(row, types.values(), strict=True))
        return f"({', '.join(cells)})"

    names = ", ".join(quote_identifier(name) for name in types)
    lines = ", ".join(line(row) for row in rows)
    return f"SELECT * FROM (VALUES {lines}) AS given({names})"
