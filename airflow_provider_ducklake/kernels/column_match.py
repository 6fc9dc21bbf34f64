"""Which column each field of somebody else's Parquet file feeds, or why it cannot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from airflow_provider_ducklake.kernels.file_schema import ParquetField
from airflow_provider_ducklake.kernels.tasks import RegisterTask
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.model import NameMapEntry
from airflow_provider_ducklake.lake.types import decimal_of, normalise, widens

_PLAIN_TIMESTAMPS: Final = ("timestamp_s", "timestamp_ms", "timestamp", "timestamp_us")
# Names of the repeated group that readers take for a list's element; any other keeps its own.
_LIST_NAMES: Final = ("list", "array", "element")


@dataclass(frozen=True, slots=True)
class PathValue:
    """What a `key=value` directory says: the key as it is spelled, the value or None for NULL."""

    key: str
    value: str | None


@dataclass(slots=True)
class ColumnMatch:
    """How the columns of a table are found in one file.

    Attributes:
        entries: The name map, in the file's order; columns from the path come last.
        fields: Top-level columns read from the file, by column id.
        leaves: Leaf columns with the file's field for each.
        from_path: Columns whose value the path gives, with the file's field if it has one too.
        absent: Columns that read as their default.
        unproven: Leaves of which not every value would fit, by type; with the name for messages.
    """

    entries: list[NameMapEntry] = field(default_factory=list)
    fields: dict[int, ParquetField] = field(default_factory=dict)
    leaves: list[tuple[Column, ParquetField]] = field(default_factory=list)
    from_path: list[tuple[Column, PathValue, ParquetField | None]] = field(default_factory=list)
    absent: list[Column] = field(default_factory=list)
    unproven: list[tuple[Column, ParquetField, str]] = field(default_factory=list)


def match_columns(
    task: RegisterTask, fields: Sequence[ParquetField], path_values: Mapping[str, PathValue]
) -> ColumnMatch:
    """Match a file's fields with a table's columns by name, case ignored, types lossless.

    Args:
        task: The table and what may be missing or extra.
        fields: Top-level fields of the file.
        path_values: Values the path gives, by lower-case column name.

    Raises:
        BadInput: A column does not match; the message names file, column and both types.

    Source: the reference's functions/ducklake_add_data_files.cpp, which takes more than is safe.
    """
    matcher = _Matcher(task)
    result = matcher.result
    by_name = matcher.by_name(fields, "")
    for column_field in fields:
        column = matcher.find(task.columns, column_field, "")
        if column is None or column.name.lower() in path_values:
            continue
        matched = matcher.match(column_field, column, column_field.name)
        if matched is not None:
            result.entries.append(matched)
            result.fields[column.column_id] = column_field
    for column in task.columns:
        name = column.name.lower()
        if name in path_values:
            matcher.take_from_path(column, path_values[name], by_name.get(name))
        elif name not in by_name:
            matcher.check_absence(column, column.name)
            result.absent.append(column)
        elif column.column_id not in result.fields:
            result.absent.append(column)
    if not result.entries:
        raise BadInput(f"{task.path} has no column in common with table {task.table_name}")
    return result


@dataclass(slots=True)
class _Matcher:
    task: RegisterTask
    result: ColumnMatch = field(default_factory=ColumnMatch)

    def by_name(self, fields: Iterable[ParquetField], prefix: str) -> dict[str, ParquetField]:
        found: dict[str, ParquetField] = {}
        for candidate in fields:
            other = found.setdefault(candidate.name.lower(), candidate)
            if other is not candidate:
                raise BadInput(
                    f"{self.task.path} has the columns {prefix}{other.name} and "
                    f"{prefix}{candidate.name}: names ignore case, so neither is certain"
                )
        return found

    def find(
        self, columns: Iterable[Column], candidate: ParquetField, prefix: str
    ) -> Column | None:
        name = candidate.name.lower()
        column = next((c for c in columns if c.name.lower() == name), None)
        if column is None and not self.task.ignore_extra_columns:
            raise BadInput(
                f"{self.task.path} has a column {prefix}{candidate.name} "
                f"({candidate.duckdb_type}) that table {self.task.table_name} lacks: add it to "
                "the table, or set ignore_extra_columns"
            )
        return column

    def check_absence(self, column: Column, name: str) -> None:
        if not self.task.allow_missing:
            raise BadInput(
                f"{self.task.path} lacks column {name} ({column.sql_type}) of table "
                f"{self.task.table_name}: set allow_missing to read its default instead"
            )
        if not column.nulls_allowed and column.initial_default is None:
            raise BadInput(
                f"{self.task.path} lacks column {name} of table {self.task.table_name}, which is "
                "NOT NULL and has no default"
            )

    def take_from_path(
        self, column: Column, given: PathValue, present: ParquetField | None
    ) -> None:
        if column.is_nested or (present is not None and present.kind != "leaf"):
            raise BadInput(
                f"{self.task.path}: directory {given.key}=… names column {column.name} "
                f"({column.sql_type}), and a nested value cannot stand in a path: set "
                "hive_partitioning to false"
            )
        # The client looks the directory up by this name when it reads the file.
        self.result.entries.append(NameMapEntry(given.key, column.column_id, is_partition=True))
        self.result.from_path.append((column, given, present))

    def match(self, source: ParquetField, column: Column, name: str) -> NameMapEntry | None:
        """Return the entry for one field; None when reading the column's default is the same."""
        if self.task.as_spark_reads and source.physical_type == "INT96":
            source = replace(source, duckdb_type="TIMESTAMP WITH TIME ZONE")
        if source.duckdb_type == '"NULL"':
            return self._match_untyped(source, column, name)
        if column.is_nested:
            if source.kind != column.type:
                self._refuse(source, column, name, "a nested column takes only its own kind")
            children = self._match_children(source, column, name)
            return NameMapEntry(source.name, column.column_id, children=children)
        if source.kind != "leaf":
            self._refuse(source, column, name, "it is nested")
        reason = _unfit(source, column.type)
        if reason is not None and _may_fit(source, column.type):
            self.result.unproven.append((column, source, name))
        elif reason is not None:
            self._refuse(source, column, name, reason)
        self.result.leaves.append((column, source))
        return NameMapEntry(source.name, column.column_id)

    def _match_untyped(
        self, source: ParquetField, column: Column, name: str
    ) -> NameMapEntry | None:
        # Parquet's type of columns that hold nothing but NULL; DuckDB reads it as INTEGER.
        if widens("int32", column.type):
            return NameMapEntry(source.name, column.column_id)
        if not column.nulls_allowed:
            self._refuse(source, column, name, "it holds only NULL, and the column is NOT NULL")
        if column.initial_default is not None:
            self._refuse(source, column, name, "it holds only NULL, and the default is another")
        return None

    def _match_children(
        self, source: ParquetField, column: Column, name: str
    ) -> tuple[NameMapEntry, ...]:
        if column.type == "struct":
            return self._match_struct(source, column, name)
        if source.ambiguous:
            self._refuse(
                source, column, name, "it is a list in an old layout that engines read in two ways"
            )
        if column.type == "list":
            [element] = source.children
            written = "list" if element.name in _LIST_NAMES else element.name
            names: tuple[str, ...] = (written,)
        else:
            names = ("key", "value")
            if tuple(child.name.lower() for child in source.children) != names:
                self._refuse(source, column, name, "its fields are not named key and value")
        return tuple(
            self._inner(child, inner, f"{name}.{inner.name}", written)
            for child, inner, written in zip(source.children, column.children, names, strict=True)
        )

    def _inner(self, source: ParquetField, column: Column, name: str, written: str) -> NameMapEntry:
        entry = self.match(source, column, name)
        if entry is None:
            self._refuse(source, column, name, "it holds only NULL")
        return NameMapEntry(written, entry.target_field_id, children=entry.children)

    def _match_struct(
        self, source: ParquetField, column: Column, name: str
    ) -> tuple[NameMapEntry, ...]:
        prefix = f"{name}."
        by_name = self.by_name(source.children, prefix)
        entries = []
        for child in source.children:
            inner = self.find(column.children, child, prefix)
            if inner is not None:
                entry = self.match(child, inner, prefix + child.name)
                entries += [] if entry is None else [entry]
        for inner in column.children:
            if inner.name.lower() not in by_name:
                self.check_absence(inner, prefix + inner.name)
        if not entries:
            self._refuse(source, column, name, "they have no field in common")
        return tuple(entries)

    def _refuse(self, source: ParquetField, column: Column, name: str, reason: str) -> NoReturn:
        raise BadInput(
            f"{self.task.path}: column {name} is {column.sql_type} in table "
            f"{self.task.table_name} and {source.duckdb_type} in the file: {reason}"
        )


def _unfit(source: ParquetField, target: str) -> str | None:
    """Tell why a leaf of a file cannot go into a column of some type; None when it can."""
    if source.duckdb_type == "VARIANT":
        return (
            "no client finds the parts of a VARIANT in a file that no lake wrote: load the data "
            "with ingest"
        )
    held = _held_type(source)
    if held is None or target == "variant":
        return _unreadable(source) or "this type cannot be registered, load the data with ingest"
    if widens(held, target):
        return None
    if held.startswith("timestamp") and target.startswith("timestamp"):
        if "timestamptz" in (held, target):
            return (
                "timestamps with and without time zone do not mix: write the file with the kind "
                "the column has, converted at time zone UTC"
            )
        if held == "timestamp_ns":
            return (
                "the nanoseconds would be cut off: make the column timestamp_ns, or write the "
                "file with microseconds"
            )
    return "only a type whose every value the column can hold is taken"


def _may_fit(source: ParquetField, target: str) -> bool:
    """Tell whether a decimal has no more digits than the column, if fewer before the point."""
    into, given = decimal_of(target), decimal_of(_held_type(source) or "")
    return into is not None and given is not None and given[0] <= into[0] and given[1] <= into[1]


def _held_type(source: ParquetField) -> str | None:
    """Return the DuckLake type whose values a leaf holds; None when DuckDB changes the values."""
    read_as, annotation = source.duckdb_type, source.annotation
    if _unreadable(source) is not None:
        return None
    if read_as.startswith("GEOMETRY"):
        return "geometry"
    if read_as == "TIMESTAMP" and ("MilliSeconds" in annotation or annotation.endswith("MILLIS")):
        return "timestamp_ms"
    try:
        return normalise(read_as)
    except BadInput:
        return None


def _unreadable(source: ParquetField) -> str | None:
    """Tell what DuckDB would lose of a leaf's values by merely reading them."""
    read_as, annotation = source.duckdb_type, source.annotation
    if "NanoSeconds" in annotation and read_as != "TIMESTAMP_NS":
        return "DuckDB would cut off its nanoseconds: write the file with microseconds"
    if annotation.upper().startswith("DECIMAL") and not read_as.startswith("DECIMAL"):
        return f"DuckDB has no exact decimal of {source.precision} digits, 38 are the most"
    if annotation.startswith("Geography"):
        return "the lake has no GEOGRAPHY type"
    if read_as.startswith("GEOMETRY") and not annotation.startswith("Geometry"):
        return "it is GeoParquet 1: only Parquet's own GEOMETRY type is taken"
    return None
