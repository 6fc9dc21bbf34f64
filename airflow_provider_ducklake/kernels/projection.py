"""Read a data file's own columns as the columns of a table, matched by id, never by position."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import duckdb

from airflow_provider_ducklake.kernels.exactness import integer_sql, is_rounded
from airflow_provider_ducklake.kernels.file_schema import ParquetField, read_file_schema, scan_sql
from airflow_provider_ducklake.kernels.parquet import ROW_ID_FIELD, SNAPSHOT_ID_FIELD
from airflow_provider_ducklake.kernels.partitioning import directory_values
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal
from airflow_provider_ducklake.lake.model import DataFile, NameMapEntry

POSITION: Final = "file_row_number"
FILE_INDEX: Final = "file_index"
FILE_STEP: Final = 1 << 40
# Columns DuckDB adds to every scan; a real one of that name would hide them.
_VIRTUAL: Final = frozenset({POSITION, FILE_INDEX, "filename"})

Entries = tuple[NameMapEntry, ...]


@dataclass(frozen=True, slots=True)
class Projection:
    """SQL that reads data files as a table's columns.

    Attributes:
        source: What to put behind FROM.
        columns: One expression a wanted column, `… AS "name"`, typed as the column is.
        row_id: Expression for the row id, BIGINT; None when nothing tells.
        snapshot_id: Expression for the snapshot a row came with, BIGINT.
        position: Expression for a row's position in its file, from 0, plus `FILE_STEP` times the
            place of its file where there are several.
        has_row_ids: The files themselves hold row ids.
        has_snapshot_ids: The files themselves hold snapshot ids.
    """

    source: str
    columns: tuple[str, ...]
    row_id: str | None
    snapshot_id: str
    position: str = POSITION
    has_row_ids: bool = False
    has_snapshot_ids: bool = False


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A data file with what is in it.

    Attributes:
        data_file: What the catalog says of it.
        local: Local path of its bytes: its own or a staged copy's.
        fields: Its own columns.
    """

    data_file: DataFile
    local: str
    fields: tuple[ParquetField, ...]

    def holds(self, field_id: int) -> bool:
        """Tell whether a top-level field of that id is in the file."""
        return any(field.field_id == field_id for field in self.fields)


def open_source(
    connection: duckdb.DuckDBPyConnection, data_file: DataFile, local: str
) -> SourceFile:
    """Read the footer of a data file.

    Raises:
        BadInput: The file is broken, or has neither field ids nor a name mapping.
        StorageError: The file cannot be read.
    """
    fields = read_file_schema(connection, local, data_file.encryption_key, path=data_file.path)
    if not data_file.name_map:
        _require_ids(fields, data_file.path)
    return SourceFile(data_file, local, fields)


def project(
    connection: duckdb.DuckDBPyConnection,
    data_file: DataFile,
    local: str,
    columns: Sequence[Column],
) -> Projection:
    """Say how to read one data file as the given columns.

    A field is found by its id, at every depth; in a file with a name mapping by what the mapping
    says. A field the file lacks reads as its initial default, a smaller type is widened.

    Args:
        connection: From `open_connection`; only the file's footer is read.
        data_file: The file: path, row ids, snapshot, key and name mapping.
        local: Local path of its bytes, the same as its path or a staged copy.
        columns: Top-level columns wanted.

    Returns:
        The expressions.

    Raises:
        BadInput: The file is broken, has no field ids and no mapping, or a column that is nested
            in one of file and table is not in the other.
        StorageError: The file cannot be read.

    Source: storage/ducklake_multi_file_reader.cpp, which falls back to positions where this raises.
    """
    return project_source(open_source(connection, data_file, local), columns)


def project_source(source: SourceFile, columns: Sequence[Column]) -> Projection:
    """Say how to read one opened data file as the given columns; see `project`."""
    data_file, fields = source.data_file, source.fields
    mapper = Mapper(data_file.path)
    places = {id(field): f"c{index}" for index, field in enumerate(fields)}
    entries = data_file.name_map or None
    wanted = tuple(
        f"{mapper.top_level(column, fields, places, entries)} AS {quote_identifier(column.name)}"
        for column in columns
    )
    names = ", ".join(f"c{index}" for index in range(len(fields)))
    row_ids = _place_of(ROW_ID_FIELD, fields, places)
    snapshot_ids = _place_of(SNAPSHOT_ID_FIELD, fields, places)
    start = data_file.row_id_start
    counted = None if start is None else f"CAST({start} + {POSITION} AS BIGINT)"
    return Projection(
        source=f"{scan_sql([source.local], data_file.encryption_key)} AS file({names})",
        columns=wanted,
        row_id=f"CAST({row_ids} AS BIGINT)" if row_ids else counted,
        snapshot_id=f"CAST({snapshot_ids or data_file.begin_snapshot} AS BIGINT)",
        has_row_ids=row_ids is not None,
        has_snapshot_ids=snapshot_ids is not None,
    )


def project_together(sources: Sequence[SourceFile], columns: Sequence[Column]) -> Projection | None:
    """Say how to read several data files in one scan, in order, or None where they differ too much.

    One scan keeps the order of the files; a UNION ALL does not when DuckDB writes it to a file.

    Args:
        sources: At least one file. They fit when what has one name has one id and type in all.
        columns: Top-level columns wanted.

    Raises:
        BadInput: As for `project`.
    """
    fields = _common_fields(sources)
    if fields is None:
        return None
    mapper = Mapper(sources[0].data_file.path)
    places = {id(field): quote_identifier(field.name) for field in fields}
    wanted = []
    for column in columns:
        expression = mapper.top_level(column, fields, places, None)
        lacking = [i for i, s in enumerate(sources) if not s.holds(column.column_id)]
        if column.initial_default is not None and 0 < len(lacking) < len(sources):
            files = ", ".join(map(str, lacking))
            expression = (
                f"CASE WHEN {FILE_INDEX} IN ({files}) THEN {default_sql(column)} "
                f"ELSE {expression} END"
            )
        wanted.append(f"{expression} AS {quote_identifier(column.name)}")
    starts = [source.data_file.row_id_start for source in sources]
    by_name = "" if len({source.fields for source in sources}) == 1 else "union_by_name = true"
    scan = scan_sql([source.local for source in sources], None, by_name)
    return Projection(
        source=scan,
        columns=tuple(wanted),
        row_id=_one_of_each(
            _place_of(ROW_ID_FIELD, fields, places),
            [s.holds(ROW_ID_FIELD) for s in sources],
            starts,
            f" + {POSITION}",
        ),
        snapshot_id=_one_of_each(
            _place_of(SNAPSHOT_ID_FIELD, fields, places),
            [s.holds(SNAPSHOT_ID_FIELD) for s in sources],
            [s.data_file.begin_snapshot for s in sources],
            "",
        )
        or "NULL",
        position=f"({FILE_INDEX}::BIGINT * {FILE_STEP} + {POSITION})",
        has_row_ids=any(s.holds(ROW_ID_FIELD) for s in sources),
        has_snapshot_ids=any(s.holds(SNAPSHOT_ID_FIELD) for s in sources),
    )


def _common_fields(sources: Sequence[SourceFile]) -> list[ParquetField] | None:
    """Return every top-level field once, or None unless each means the same in all files."""
    by_name: dict[str, ParquetField] = {}
    by_id: dict[int | None, ParquetField] = {}
    for source in sources:
        if source.data_file.name_map or source.data_file.encryption_key:
            return None
        names = [field.name.lower() for field in source.fields]
        if len(set(names)) < len(names) or _VIRTUAL.intersection(names):
            return None
        for field in source.fields:
            if by_name.setdefault(field.name.lower(), field) != field:
                return None
            if by_id.setdefault(field.field_id, field) != field:
                return None
    return list(by_name.values())


def _one_of_each(
    place: str | None, held: Sequence[bool], given: Sequence[int | None], offset: str
) -> str | None:
    """Return the value a file holds, or else the number the catalog gives for the file."""
    if all(held):
        return f"CAST({place} AS BIGINT)"
    if any(number is None and not h for number, h in zip(given, held, strict=True)):
        return None
    numbers = ", ".join(str(number or 0) for number in given)
    counted = f"(CAST([{numbers}] AS BIGINT[])[{FILE_INDEX}::BIGINT + 1]{offset})::BIGINT"
    return f"coalesce(CAST({place} AS BIGINT), {counted})" if place else counted


def default_sql(column: Column) -> str:
    """Return what a column reads as in a file that lacks it: its initial default, typed."""
    if column.initial_default is None or column.is_nested:
        return f"CAST(NULL AS {column.sql_type})"
    return f"CAST({quote_literal(column.initial_default)} AS {column.sql_type})"


class Mapper:
    """Builds the expressions of one file; its path is for messages and partition directories."""

    def __init__(self, path: str) -> None:
        self._path = path

    def top_level(
        self,
        column: Column,
        fields: Sequence[ParquetField],
        places: dict[int, str],
        entries: Entries | None,
    ) -> str:
        if entries is not None:
            entry = _entry_for(column, entries)
            if entry is not None and entry.is_partition:
                return self._from_directory(column, entry.source_name)
        field, inner = self._find(column, fields, entries)
        if field is None:
            return default_sql(column)
        return self._value(places[id(field)], field, column, inner, depth=0)

    def _value(
        self, value: str, field: ParquetField, column: Column, entries: Entries | None, depth: int
    ) -> str:
        """Return the expression that turns a field's value into the column's."""
        kind = column.type if column.is_nested else "leaf"
        if field.kind != kind:
            raise BadInput(
                f"{self._path}: column {column.name} is {column.sql_type} in the table, but field "
                f"{field.name} of the file is {field.duckdb_type}"
            )
        if is_rounded(field.duckdb_type, column):
            return integer_sql(value, column)
        if self._is_same(field, column, entries):
            return f"CAST({value} AS {column.sql_type})"
        if kind == "struct":
            return self._struct(value, field, column, entries, depth)
        variable = f"e{depth}"
        if kind == "list":
            item = self._inside(variable, field, column, 0, entries, depth)
            return f"list_transform({value}, lambda {variable}: {item})"
        key = self._inside(f"struct_extract_at({variable}, 1)", field, column, 0, entries, depth)
        item = self._inside(f"struct_extract_at({variable}, 2)", field, column, 1, entries, depth)
        pairs = f"list_transform(map_entries({value}), lambda {variable}: {{k: {key}, v: {item}}})"
        return f"CASE WHEN {value} IS NOT NULL THEN map_from_entries({pairs}) END"

    def _struct(
        self, value: str, field: ParquetField, column: Column, entries: Entries | None, depth: int
    ) -> str:
        parts = []
        for child in column.children:
            found, inner = self._find(child, field.children, entries)
            if found is None:
                part = default_sql(child)
            else:
                place = field.children.index(found) + 1
                part = self._value(
                    f"struct_extract_at({value}, {place})", found, child, inner, depth
                )
            parts.append(f"{quote_literal(child.name)}: {part}")
        return f"CASE WHEN {value} IS NOT NULL THEN {{{', '.join(parts)}}} END"

    def _inside(
        self,
        value: str,
        field: ParquetField,
        column: Column,
        place: int,
        entries: Entries | None,
        depth: int,
    ) -> str:
        """Map the element of a list, or the key or value of a map: there is no choice which."""
        child = column.children[place]
        inner = self._entries_below(child, entries)
        return self._value(value, field.children[place], child, inner, depth + 1)

    def _is_same(self, field: ParquetField, column: Column, entries: Entries | None) -> bool:
        """Tell whether only types may differ: fields, names and their order are all the same."""
        if not column.is_nested:
            return not is_rounded(field.duckdb_type, column)
        if len(field.children) != len(column.children):
            return False
        for found, child in zip(field.children, column.children, strict=True):
            if column.type == "struct":
                match, inner = self._find(child, field.children, entries)
                if match is not found or found.name != child.name:
                    return False
            else:
                inner = self._entries_below(child, entries)
            if found.kind != (child.type if child.is_nested else "leaf"):
                return False
            if not self._is_same(found, child, inner):
                return False
        return True

    def _find(
        self, column: Column, fields: Sequence[ParquetField], entries: Entries | None
    ) -> tuple[ParquetField | None, Entries | None]:
        """Return the field of a column among its siblings, and the mapping of what is inside."""
        if entries is None:
            matches = [field for field in fields if field.field_id == column.column_id]
            if len(matches) > 1:
                raise BadInput(f"{self._path}: field id {column.column_id} stands there twice")
            if not matches and fields and all(field.field_id is None for field in fields):
                raise BadInput(
                    f"{self._path}: the fields beside {fields[0].name} have no field ids, so "
                    f"column {column.name} cannot be told: register the file with a name mapping"
                )
            return (matches[0] if matches else None), None
        entry = _entry_for(column, entries)
        if entry is None:
            return None, None
        name = entry.source_name
        exact = [field for field in fields if field.name == name]
        alike = [field for field in fields if field.name.lower() == name.lower()]
        matches = exact or alike
        if len(matches) != 1:
            problem = "is not in the file" if not matches else "stands there twice"
            raise BadInput(
                f"{self._path}: column {column.name} is mapped to field {name!r}, which {problem}"
            )
        return matches[0], self._entries_below(column, entries)

    def _entries_below(self, column: Column, entries: Entries | None) -> Entries | None:
        if entries is None or not column.is_nested:
            return None
        entry = _entry_for(column, entries)
        if entry is None or not entry.children:
            raise BadInput(
                f"{self._path}: the name mapping says nothing about the inside of nested column "
                f"{column.name}: register the file anew"
            )
        return entry.children

    def _from_directory(self, column: Column, key: str) -> str:
        values = directory_values(self._path)
        matches = [k for k in values if k == key] or [k for k in values if k.lower() == key.lower()]
        if not matches:
            raise BadInput(
                f"{self._path}: column {column.name} is mapped to a directory {key}=…, which the "
                "path does not have"
            )
        value = values[matches[0]]
        if value is None or (not value and column.type not in ("varchar", "json")):
            return f"CAST(NULL AS {column.sql_type})"
        return f"CAST({quote_literal(value)} AS {column.sql_type})"


def _entry_for(column: Column, entries: Iterable[NameMapEntry]) -> NameMapEntry | None:
    return next((e for e in entries if e.target_field_id == column.column_id), None)


def _place_of(field_id: int, fields: Sequence[ParquetField], places: dict[int, str]) -> str | None:
    return next((places[id(field)] for field in fields if field.field_id == field_id), None)


def _require_ids(fields: Sequence[ParquetField], path: str) -> None:
    without = [field.name for field in fields if field.field_id is None]
    if without:
        raise BadInput(
            f"{path}: column {without[0]} has no field id and the catalog has no name mapping for "
            "the file: columns are never matched by name or position; register the file anew"
        )
