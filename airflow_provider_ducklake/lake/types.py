"""DuckLake's column types: names, their DuckDB spelling, and which type may hold which.

Source: docs/stable/specification/data_types.md (names) and the reference's type table.
"""

from __future__ import annotations

import re
from typing import Final

from airflow_provider_ducklake.lake.errors import BadInput

# DuckLake name -> DuckDB name. `timestamp_us` and `time_ns` are written by the reference too.
DUCKDB_NAMES: Final[dict[str, str]] = {
    "boolean": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "int128": "HUGEINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "uint128": "UHUGEINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "time": "TIME",
    "time_ns": "TIME_NS",
    "timetz": "TIME WITH TIME ZONE",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_us": "TIMESTAMP",
    "timestamp_ms": "TIMESTAMP_MS",
    "timestamp_ns": "TIMESTAMP_NS",
    "timestamp_s": "TIMESTAMP_S",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "interval": "INTERVAL",
    "varchar": "VARCHAR",
    "blob": "BLOB",
    "json": "JSON",
    "uuid": "UUID",
    "variant": "VARIANT",
    "geometry": "GEOMETRY",
}
NESTED: Final = frozenset({"struct", "list", "map"})

# Spellings people bring along. `int8` is not here on purpose: in DuckLake it is one byte wide.
_ALIASES: Final[dict[str, str]] = {
    **{duckdb.lower(): name for name, duckdb in reversed(DUCKDB_NAMES.items())},
    "bool": "boolean",
    "byte": "int8",
    "short": "int16",
    "int": "int32",
    "signed": "int32",
    "long": "int64",
    "real": "float32",
    "float4": "float32",
    "float8": "float64",
    "numeric": "decimal",
    "string": "varchar",
    "text": "varchar",
    "char": "varchar",
    "bytea": "blob",
    "binary": "blob",
    "varbinary": "blob",
    "datetime": "timestamp",
}
_DECIMAL: Final = re.compile(r"^decimal\((\d+),\s*(\d+)\)$")
_SIGNED: Final = ("int8", "int16", "int32", "int64", "int128")
_UNSIGNED: Final = ("uint8", "uint16", "uint32", "uint64", "uint128")
_PLAIN_TIMESTAMPS: Final = ("timestamp_s", "timestamp_ms", "timestamp", "timestamp_ns")

# min/max of these are text whose byte order is the value order.
TEXT_ORDERED: Final = frozenset({"varchar", "json"})
# Parquet keeps no min/max for these, so a catalog must not either. The reference writes bounds of a
# blob in two spellings, hex digits and escapes, and misses rows where it takes one for the other.
WITHOUT_BOUNDS: Final = frozenset(
    {"int128", "uint128", "timetz", "interval", "blob", "variant", "geometry", *NESTED}
)
# DuckDB 1.5 counts no values and no NULLs of these, although there are some, and the reference puts
# down what it says.
UNCOUNTED: Final = frozenset({"interval", "timetz", "variant"})
FLOATING: Final = frozenset({"float32", "float64"})


def normalise(name: str) -> str:
    """Return the DuckLake name of a scalar type written in DuckLake's or DuckDB's words.

    Raises:
        BadInput: No such type; the message lists what there is.
    """
    text = " ".join(name.strip().lower().split())
    if text in ("decimal", "numeric"):
        return "decimal(18,3)"
    compact = text.replace("numeric(", "decimal(").replace(" (", "(").replace("( ", "(")
    if match := _DECIMAL.match(compact.replace(" )", ")").replace(" ,", ",")):
        precision, scale = int(match[1]), int(match[2])
        if not 1 <= precision <= 38 or scale > precision:
            raise BadInput(f"type {name}: a decimal has 1 to 38 digits and no larger scale")
        return f"decimal({precision},{scale})"
    if text in DUCKDB_NAMES:
        return text
    if text in _ALIASES:
        return _ALIASES[text]
    raise BadInput(
        f"there is no column type {name!r}; DuckLake has {', '.join(DUCKDB_NAMES)}, "
        "decimal(p,s), T[], STRUCT(name T, …) and MAP(K, V)"
    )


def duckdb_type(name: str) -> str:
    """Return DuckDB's spelling of a scalar DuckLake type, e.g. `int32` -> `INTEGER`."""
    if _DECIMAL.match(name):
        return name.upper()
    return DUCKDB_NAMES[name]


def decimal_of(name: str) -> tuple[int, int] | None:
    """Return (precision, scale) of a decimal type, None for any other type."""
    match = _DECIMAL.match(name)
    return (int(match[1]), int(match[2])) if match else None


def widens(source: str, target: str) -> bool:
    """Tell whether every value of one scalar type is a value of another, nothing lost.

    Args:
        source: DuckLake type of the data that comes in.
        target: DuckLake type of the column that is to hold it.
    """
    if source == target or {source, target} == {"timestamp", "timestamp_us"}:
        return True
    if source in _SIGNED and target in _SIGNED:
        return _SIGNED.index(source) < _SIGNED.index(target)
    if source in _UNSIGNED and target in _UNSIGNED:
        return _UNSIGNED.index(source) < _UNSIGNED.index(target)
    if source in _UNSIGNED and target in _SIGNED:
        return _UNSIGNED.index(source) < _SIGNED.index(target)
    if (source, target) == ("float32", "float64"):
        return True
    if source in _PLAIN_TIMESTAMPS and target in _PLAIN_TIMESTAMPS:
        # Nanoseconds have a shorter range than the others: 1677 to 2262.
        return target != "timestamp_ns" and _PLAIN_TIMESTAMPS.index(
            source
        ) < _PLAIN_TIMESTAMPS.index(target)
    return _decimal_widens(source, target)


def _decimal_widens(source: str, target: str) -> bool:
    into = decimal_of(target)
    if into is None:
        return False
    digits = {"int8": 3, "int16": 5, "int32": 10, "int64": 19, "uint8": 3, "uint16": 5}
    digits |= {"uint32": 10, "uint64": 20}
    if source in digits:
        return into[0] - into[1] >= digits[source]
    given = decimal_of(source)
    return given is not None and given[1] <= into[1] and given[0] - given[1] <= into[0] - into[1]
