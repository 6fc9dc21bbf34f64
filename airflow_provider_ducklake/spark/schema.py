"""Spark's schemas in DuckLake's words, and which of them a table's columns can take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_provider_ducklake.lake.columns import Column, find_column
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.model import Table
from airflow_provider_ducklake.lake.types import decimal_of, widens

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

_SCALARS: Final = {
    "boolean": "boolean",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "string": "varchar",
    "binary": "blob",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
    "variant": "variant",
}
_SPARK_NAMES: Final = {name: spark for spark, name in _SCALARS.items()}
# Spark has no such types, so their values come as something wider and are checked one by one:
# a value that does not fit fails the job, it is never changed.
_FROM_TEXT: Final = frozenset(
    {"uuid", "json", "time", "timetz", "time_ns", "interval", "timestamp_ns", "int128", "uint128"}
)
_INTEGERS: Final = ("int8", "int16", "int32", "int64")
_UNSIGNED: Final = ("uint8", "uint16", "uint32", "uint64", "uint128")


@dataclass(frozen=True, slots=True)
class ColumnMatch:
    """How the columns of some data meet those of a table.

    Attributes:
        given: Name in the data of each table column that the data has, by column id.
        missing: Table columns the data lacks.
        extra: Columns of the data the table lacks, with ids yet to be given.
    """

    given: dict[int, str]
    missing: tuple[Column, ...]
    extra: tuple[Column, ...]


def columns_of(schema: StructType) -> tuple[Column, ...]:
    """Return a Spark schema as DuckLake columns without ids.

    Raises:
        BadInput: A type has no exact counterpart; the message names column and type.
    """
    return tuple(_column(field, field.name) for field in schema.fields)


def match_columns(columns: Sequence[Column], table: Table) -> ColumnMatch:
    """Match columns of some data with a table's by name, without case, and check their types.

    Raises:
        BadInput: Two columns differ in case only, or values could be lost on the way.
    """
    given: dict[int, str] = {}
    extra = []
    for column in columns:
        target = find_column(table.columns, column.name)
        if target is None:
            extra.append(column)
            continue
        if target.column_id in given:
            raise BadInput(
                f"columns {given[target.column_id]!r} and {column.name!r} of the source are one "
                f"column of {table.full_name}: names ignore case"
            )
        _check(column, target, column.name, table.full_name)
        given[target.column_id] = column.name
    missing = tuple(column for column in table.columns if column.column_id not in given)
    return ColumnMatch(given, missing, tuple(extra))


def spark_type(column: Column) -> str:
    """Return the Spark type, as DDL, in which a column's values are handed to the kernels.

    What Spark has no type for is text, at any depth.
    """
    if column.type == "struct":
        fields = (f"{quote_name(c.name)}: {spark_type(c)}" for c in column.children)
        return f"struct<{', '.join(fields)}>"
    if column.type == "list":
        return f"array<{spark_type(column.children[0])}>"
    if column.type == "map":
        return f"map<{spark_type(column.children[0])}, {spark_type(column.children[1])}>"
    if decimal_of(column.type):
        return column.type
    return _SPARK_NAMES.get(column.type, "string")


def quote_name(name: str) -> str:
    """Return a column name as Spark quotes it."""
    return "`" + name.replace("`", "``") + "`"


def _column(field: StructField, path: str) -> Column:
    return _of_type(field.dataType, field.name, path)


def _of_type(data_type: DataType, name: str, path: str) -> Column:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    if isinstance(data_type, StructType):
        fields = tuple(_column(field, f"{path}.{field.name}") for field in data_type.fields)
        return Column(0, name, "struct", children=fields, default_value_type="")
    if isinstance(data_type, ArrayType):
        element = _of_type(data_type.elementType, "element", f"{path}[]")
        return Column(0, name, "list", children=(element,), default_value_type="")
    if isinstance(data_type, MapType):
        key = _of_type(data_type.keyType, "key", f"{path}.key")
        value = _of_type(data_type.valueType, "value", f"{path}.value")
        return Column(0, name, "map", children=(key, value), default_value_type="")
    if isinstance(data_type, DecimalType):
        return Column(0, name, f"decimal({data_type.precision},{data_type.scale})")
    spelled = data_type.simpleString()
    if spelled not in _SCALARS:
        raise BadInput(
            f"column {path!r} is of Spark type {spelled}, which has no exact DuckLake counterpart; "
            "convert it in the query (--sql), e.g. to string"
        )
    return Column(0, name, _SCALARS[spelled])


def _check(source: Column, target: Column, path: str, table: str) -> None:
    if source.is_nested or target.is_nested:
        if source.type != target.type:
            raise _refused(source, target, path, table)
        _check_inside(source, target, path, table)
    elif not (widens(source.type, target.type) or _is_checked(source.type, target.type)):
        raise _refused(source, target, path, table)


def _check_inside(source: Column, target: Column, path: str, table: str) -> None:
    if source.type != "struct":
        for given, wanted in zip(source.children, target.children, strict=True):
            _check(given, wanted, f"{path}.{wanted.name}", table)
        return
    names = [{child.name.lower() for child in side.children} for side in (source, target)]
    if names[0] != names[1]:
        raise _refused(source, target, path, table)
    for given in source.children:
        wanted_field = find_column(target.children, given.name)
        if wanted_field is not None:
            _check(given, wanted_field, f"{path}.{given.name}", table)


def _is_checked(source: str, target: str) -> bool:
    """Tell whether each value is checked when it is converted, because Spark lacks the type."""
    if source == "varchar":
        return target in _FROM_TEXT or target in ("uint64",)
    if source in _INTEGERS:
        return target in _UNSIGNED or target == "int128"
    if (source, target) == ("timestamp", "timestamp_ns"):
        return True
    digits = decimal_of(source)
    return bool(digits and digits[1] == 0 and target in ("uint64", "int128", "uint128"))


def _refused(source: Column, target: Column, path: str, table: str) -> BadInput:
    hint = ""
    zoned = {source.type, target.type} & {"timestamptz"}
    plain = {source.type, target.type} & {"timestamp", "timestamp_s", "timestamp_ms"}
    if zoned and plain:
        hint = " (one has a time zone and the other has not: convert it in --sql, naming the zone)"
    return BadInput(
        f"column {path!r} of the source is {source.sql_type}, column {target.name!r} of {table} is "
        f"{target.sql_type}: values could be lost, nothing was written{hint}"
    )
