"""The 32-bit Murmur3 hash behind `bucket(n)` partitions, as DuckDB functions.

Source: the Iceberg spec, appendix B, and the reference's ducklake_murmur3.cpp, which differs:
what is neither a number of at most 64 signed bits nor bytes is hashed as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import duckdb
import mmh3
import pyarrow as pa
from duckdb.func import PythonUDFType

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import UnsupportedCatalog
from airflow_provider_ducklake.lake.types import decimal_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Hash = Callable[[pa.Array | pa.ChunkedArray], pa.Array]

_INTEGER: Final = "murmur3_integer"
_FLOAT: Final = "murmur3_float"
_BYTES: Final = "murmur3_bytes"
_LARGEST_TIMETZ_OFFSET: Final = 16 * 3600 - 1  # DuckDB stores offsets as the distance from here

_AS_INTEGER: Final[dict[str, str]] = {
    **dict.fromkeys(("boolean", "int8", "int16", "int32", "int64"), "CAST({0} AS BIGINT)"),
    "date": "{0} - DATE '1970-01-01'",
    "time": "epoch_us({0})",
    "time_ns": "epoch_ns({0})",
    "timetz": (
        f"((epoch_us({{0}}) << 24) | ({_LARGEST_TIMETZ_OFFSET} - date_part('timezone', {{0}})))"
    ),
    "timestamp": "epoch_us({0})",
    "timestamp_us": "epoch_us({0})",
    "timestamptz": "epoch_us({0})",
    "timestamp_s": "epoch_us({0}) // 1000000",
    "timestamp_ms": "epoch_ms({0})",
    "timestamp_ns": "epoch_ns({0})",
}
_INFINITE: Final = frozenset(
    {"timestamp", "timestamp_us", "timestamptz", "timestamp_s", "timestamp_ms", "timestamp_ns"}
)
_AS_TEXT: Final = frozenset(
    {"uint8", "uint16", "uint32", "uint64", "int128", "uint128", "uuid", "interval"}
)


def register_murmur3(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the functions that `murmur3_sql` uses known to a connection; doing so twice is fine."""
    known = connection.execute(
        "SELECT count(*) FROM duckdb_functions() WHERE function_name = ?", [_BYTES]
    ).fetchone()
    if known is not None and known[0]:
        return
    for name, kind, function in (
        (_INTEGER, "BIGINT", _hash_eight_bytes),
        (_FLOAT, "DOUBLE", _hash_eight_bytes),
        (_BYTES, "BLOB", _hash_bytes),
    ):
        connection.create_function(
            name,
            function,
            [connection.type(kind)],
            connection.type("INTEGER"),
            type=PythonUDFType.ARROW,
        )


def murmur3_sql(value: str, column: Column) -> str:
    """Return SQL for the signed 32-bit hash of a value; NULL stays NULL.

    Args:
        value: SQL expression of the column's type.
        column: For the type, which decides what is hashed.

    Raises:
        UnsupportedCatalog: The type cannot be hashed.
    """
    value, kind = f"({value})", column.type
    decimal = decimal_of(kind)
    if decimal is not None and decimal[0] <= 18:
        return f"{_INTEGER}(CAST(replace(CAST({value} AS VARCHAR), '.', '') AS BIGINT))"
    if kind in _AS_INTEGER:
        number = _AS_INTEGER[kind].format(value)
        if kind in _INFINITE:
            largest = "9223372036854775807"
            number = (
                f"CASE WHEN isfinite({value}) THEN {number} "
                f"WHEN {value} > CAST('epoch' AS {column.sql_type}) THEN {largest} "
                f"WHEN {value} IS NOT NULL THEN -{largest} END"
            )
        return f"{_INTEGER}({number})"
    if kind in ("float32", "float64"):
        # Adding zero turns -0.0 into 0.0.
        return f"{_FLOAT}(CAST({value} AS DOUBLE) + 0.0::DOUBLE)"
    if kind in ("varchar", "json"):
        return f"{_BYTES}(encode(CAST({value} AS VARCHAR)))"
    if kind == "blob":
        return f"{_BYTES}({value})"
    if decimal is not None or kind in _AS_TEXT:
        return f"{_BYTES}(encode(CAST({value} AS VARCHAR)))"
    raise UnsupportedCatalog(f"column {column.name}: bucket() of a {kind} is not supported")


def _hash_eight_bytes(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return _hash_bytes(array.view(pa.binary(8)))


def _hash_bytes(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    hashes = [None if value is None else mmh3.hash(value) for value in values.to_pylist()]
    return pa.array(hashes, pa.int32())
