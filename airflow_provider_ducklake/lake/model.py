"""What a catalog says at one snapshot: snapshots, tables, files, partitions, sort keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.identifiers import qualified_name
from airflow_provider_ducklake.lake.statistics import ColumnStatistics


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One row of `ducklake_snapshot` with what `ducklake_snapshot_changes` says of it."""

    snapshot_id: int
    time: datetime
    schema_version: int
    next_catalog_id: int
    next_file_id: int
    changes_made: str = ""
    author: str | None = None
    message: str | None = None
    extra_info: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One key of a partition spec: a top-level column and a transform such as `bucket(4)`."""

    key_index: int
    column_id: int
    transform: str


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """How new files of a table are partitioned."""

    partition_id: int
    fields: tuple[PartitionField, ...]


@dataclass(frozen=True, slots=True)
class MacroParameter:
    """A parameter of a macro; types are DuckLake's names, None where the macro leaves them open.

    Attributes:
        default: Value of a call that does not give one, as text; None where `default_type` is.
        default_type: None where every call gives a value.
    """

    name: str
    type: str | None = None
    default: str | None = None
    default_type: str | None = None


@dataclass(frozen=True, slots=True)
class MacroBody:
    """What a macro stands for, called with such parameters: an expression of DuckDB's dialect."""

    parameters: tuple[MacroParameter, ...]
    sql: str


@dataclass(frozen=True, slots=True)
class Macro:
    """A scalar macro of a lake; a call takes the body whose parameters fit."""

    schema: str
    name: str
    bodies: tuple[MacroBody, ...]


@dataclass(frozen=True, slots=True)
class SortKey:
    """One expression of a table's sort order, in DuckDB's dialect.

    Attributes:
        macros: What it may call of the lake's own; comes along with a key and is no part of it.
    """

    expression: str
    direction: str = "ASC"
    null_order: str = "NULLS_LAST"
    macros: tuple[Macro, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema of the lake; `data_path` is the full path its tables lie under."""

    schema_id: int
    name: str
    data_path: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table at one snapshot; `data_path` is the full path (ending in `/`) of its files."""

    table_id: int
    uuid: str
    schema: Schema
    name: str
    data_path: str
    columns: tuple[Column, ...]
    partition: PartitionSpec | None = None
    sort_keys: tuple[SortKey, ...] = ()

    @property
    def full_name(self) -> str:
        """`schema.table`, as messages show it and `--table` takes it: odd parts are quoted."""
        return qualified_name(self.schema.name, self.name)


@dataclass(frozen=True, slots=True)
class NameMapEntry:
    """How one field of a file without field ids maps to a column (`ducklake_name_mapping`)."""

    source_name: str
    target_field_id: int
    is_partition: bool = False
    children: tuple[NameMapEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file of one data file: Parquet positions or a puffin deletion vector."""

    delete_file_id: int
    data_file_id: int
    path: str
    format: str
    delete_count: int
    begin_snapshot: int
    end_snapshot: int | None = None
    encryption_key: str | None = None
    partial_max: int | None = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of one table with everything that decides which of its rows are visible.

    Attributes:
        path: Full path.
        partial_max: Newest snapshot of its rows where they came from several, else None.
        name_map: Mapping for files without field ids, else empty.
        delete_files: Delete files visible at the snapshot that was read.
        inlined_deletes: Positions deleted in the catalog itself, visible at that snapshot.
        touched: True when the catalog holds any delete for the file, of any snapshot.
    """

    data_file_id: int
    table_id: int
    path: str
    record_count: int
    file_size_bytes: int
    footer_size: int | None
    begin_snapshot: int
    end_snapshot: int | None = None
    row_id_start: int | None = None
    partition_id: int | None = None
    partition_values: tuple[str | None, ...] = ()
    encryption_key: str | None = None
    mapping_id: int | None = None
    partial_max: int | None = None
    name_map: tuple[NameMapEntry, ...] = ()
    delete_files: tuple[DeleteFile, ...] = ()
    inlined_deletes: tuple[int, ...] = ()
    touched: bool = False


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file that was just written or inspected and may be committed.

    Attributes:
        path: Full path.
        partition_values: One text (or None for NULL) a partition key, in key order.
        first_snapshot: Oldest snapshot of its rows; None when it has no snapshot column.
        last_snapshot: Newest snapshot of its rows, likewise.
        first_row_id: Smallest row id inside; None when it has no row-id column.
        encryption_key: Base64 key of an encrypted file.
        name_map: For files without field ids.
    """

    path: str
    record_count: int
    file_size_bytes: int
    footer_size: int | None
    statistics: tuple[ColumnStatistics, ...] = ()
    partition_values: tuple[str | None, ...] = ()
    first_snapshot: int | None = None
    last_snapshot: int | None = None
    first_row_id: int | None = None
    encryption_key: str | None = None
    name_map: tuple[NameMapEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenDeleteFile:
    """A delete file that was just written for one data file.

    Attributes:
        data_file_path: Full path of the data file whose positions it deletes.
        first_snapshot: Smallest snapshot id in it; None when it names positions only.
        last_snapshot: Largest snapshot id in it, likewise.
    """

    path: str
    data_file_path: str
    delete_count: int
    file_size_bytes: int
    footer_size: int
    first_snapshot: int | None
    last_snapshot: int | None
    encryption_key: str | None = None
