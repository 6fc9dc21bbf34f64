"""Which Spark type holds each DuckLake type exactly, and Arrow batches made to fit it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.kernels.variant import as_pairs, is_variant, require_exact
from airflow_provider_ducklake.lake.columns import Column, find_column
from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.options import unknown_name
from airflow_provider_ducklake.lake.types import decimal_of, duckdb_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

# DuckLake type -> Spark type that holds every value, and DuckDB's name of that.
_EXACT: Final = {
    "boolean": ("boolean", "BOOLEAN"),
    "int8": ("tinyint", "TINYINT"),
    "int16": ("smallint", "SMALLINT"),
    "int32": ("int", "INTEGER"),
    "int64": ("bigint", "BIGINT"),
    "uint8": ("smallint", "SMALLINT"),
    "uint16": ("int", "INTEGER"),
    "uint32": ("bigint", "BIGINT"),
    "uint64": ("decimal(20,0)", "DECIMAL(20,0)"),
    "float32": ("float", "FLOAT"),
    "float64": ("double", "DOUBLE"),
    "varchar": ("string", "VARCHAR"),
    "json": ("string", "VARCHAR"),
    "blob": ("binary", "BLOB"),
    "date": ("date", "DATE"),
    "timestamp": ("timestamp_ntz", "TIMESTAMP"),
    "timestamp_us": ("timestamp_ntz", "TIMESTAMP"),
    "timestamp_ms": ("timestamp_ntz", "TIMESTAMP"),
    "timestamp_s": ("timestamp_ntz", "TIMESTAMP"),
    "timestamptz": ("timestamp", "TIMESTAMP WITH TIME ZONE"),
    "variant": ("variant", "VARIANT"),
}
# Spark lacks these, and a text says all of such a value.
_AS_TEXT: Final = frozenset(
    {"int128", "uint128", "uuid", "time", "time_ns", "timetz", "interval", "timestamp_ns"}
)
# What DuckDB's infinities are in Arrow: Spark would take them for days in the far future.
_INFINITE: Final = {"date": 2**31 - 1, "timestamp": 2**63 - 1}


@dataclass(frozen=True, slots=True)
class Field:
    """One column as Spark is to see it.

    Attributes:
        sql_type: DuckDB type its values are handed over as.
        data_type: Spark type, all of it nullable.
    """

    column: Column
    sql_type: str
    data_type: DataType


def fields_of(columns: Sequence[Column], *, as_text: bool) -> tuple[Field, ...]:
    """Return the columns as Spark is to see them.

    Args:
        columns: Top-level columns.
        as_text: Types that Spark lacks are text, where a text says all of a value.

    Raises:
        BadInput: Spark cannot hold a column exactly; the message names column and type.
    """
    return tuple(_field(column, as_text) for column in columns)


def chosen_columns(
    columns: Sequence[Column], names: Sequence[str] | None, table: str
) -> tuple[Column, ...]:
    """Return the columns of some names, in that order; all for None.

    Raises:
        ConfigurationError: There is none of a name, or it is named twice.
    """
    if names is None:
        return tuple(columns)
    chosen: list[Column] = []
    for name in names:
        column = find_column(columns, name)
        if column is None:
            raise unknown_name(f"column of {table}", name, (c.name for c in columns))
        if column in chosen:
            raise ConfigurationError(f"columns names {name!r} twice")
        chosen.append(column)
    if not chosen:
        raise ConfigurationError("columns names no column")
    return tuple(chosen)


def require_same(given: StructType, offered: StructType, table: str) -> None:
    """Refuse a schema a person gave that is not made of fields the source offers.

    Raises:
        BadInput: A field is not there, or of another type.
    """
    types = {field.name: field.dataType.simpleString() for field in offered.fields}
    for field in given.fields:
        wanted = field.dataType.simpleString()
        if field.name not in types:
            raise unknown_name(f"column of {table}", field.name, types)
        if types[field.name] != wanted:
            raise BadInput(
                f"column {field.name!r} of {table} is {types[field.name]} in Spark, the schema "
                f"says {wanted}: cast it in the query"
            )


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the very schema Spark expects.

    Raises:
        BadInput: It holds an infinite date or timestamp, which Spark has not.
    """
    arrays = []
    for field, array in zip(schema, batch.columns, strict=True):
        if is_variant(field.type):
            require_exact(array, field.name)
            arrays.append(as_pairs(array, field.type))
            continue
        _refuse_infinite(array, field.name)
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _field(column: Column, as_text: bool) -> Field:
    spark, sql = _types(column, column.name, as_text)
    return Field(column, sql, spark)


def _types(column: Column, path: str, as_text: bool) -> tuple[DataType, str]:
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if not column.is_nested:
        return _scalar(column, path, as_text)
    inner = [_types(child, f"{path}.{child.name}", as_text) for child in column.children]
    if column.type == "list":
        return ArrayType(inner[0][0]), f"{inner[0][1]}[]"
    if column.type == "map":
        return MapType(inner[0][0], inner[1][0]), f"MAP({inner[0][1]}, {inner[1][1]})"
    pairs = list(zip(column.children, inner, strict=True))
    fields = ", ".join(f"{quote_identifier(child.name)} {sql}" for child, (_, sql) in pairs)
    return (
        StructType([StructField(child.name, kind) for child, (kind, _) in pairs]),
        f"STRUCT({fields})",
    )


def _scalar(column: Column, path: str, as_text: bool) -> tuple[DataType, str]:
    if digits := decimal_of(column.type):
        return _spark(f"decimal({digits[0]},{digits[1]})"), duckdb_type(column.type)
    if column.type == "variant" and path != column.name:
        raise BadInput(
            f"column {path!r} is a variant inside another type, which no client of a lake can "
            "write: name the columns you want in the option columns"
        )
    if column.type in _EXACT:
        name, sql = _EXACT[column.type]
        return _spark(name), sql
    if column.type in _AS_TEXT:
        if as_text:
            return _spark("string"), "VARCHAR"
        advice = "read it as text with the option types=text, or"
    else:
        advice = "it has no text that says all of it;"
    raise BadInput(
        f"column {path!r} is {column.type}, which Spark has no exact type for: {advice} name the "
        "columns you want in the option columns"
    )


def _spark(name: str) -> DataType:
    from pyspark.sql import types

    simple: dict[str, Any] = {
        "boolean": types.BooleanType,
        "tinyint": types.ByteType,
        "smallint": types.ShortType,
        "int": types.IntegerType,
        "bigint": types.LongType,
        "float": types.FloatType,
        "double": types.DoubleType,
        "string": types.StringType,
        "binary": types.BinaryType,
        "date": types.DateType,
        "timestamp": types.TimestampType,
        "timestamp_ntz": types.TimestampNTZType,
        "variant": types.VariantType,
    }
    if digits := decimal_of(name):
        return types.DecimalType(*digits)
    made: DataType = simple[name]()
    return made


def _refuse_infinite(array: pa.Array, path: str) -> None:
    kind = array.type
    if pa.types.is_struct(kind):
        for index, field in enumerate(kind):
            _refuse_infinite(array.field(index), f"{path}.{field.name}")
    elif pa.types.is_list(kind):
        _refuse_infinite(array.flatten(), f"{path}.element")
    elif pa.types.is_map(kind):
        _refuse_infinite(array.keys, f"{path}.key")
        _refuse_infinite(array.items, f"{path}.value")
    elif pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        limit = _INFINITE["date" if pa.types.is_date32(kind) else "timestamp"]
        numbers = array.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
        found = pc.any(pc.is_in(numbers, pa.array([limit, -limit], numbers.type))).as_py()
        if found:
            raise BadInput(
                f"column {path!r} holds an infinite date or timestamp, which Spark has not: leave "
                "the rows out with the option filter (isfinite), or the column with columns"
            )
