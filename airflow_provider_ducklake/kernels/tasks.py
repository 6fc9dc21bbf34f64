"""The work orders a driver sends to executors: plain frozen data, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.inlined import InlinedRow
from airflow_provider_ducklake.lake.model import (
    DataFile,
    PartitionSpec,
    SortKey,
    WrittenDeleteFile,
)
from airflow_provider_ducklake.lake.scan import InlinedVersions

__all__ = [
    "AppendTask",
    "ChangedFile",
    "ChangesTask",
    "FlushDeletesTask",
    "FlushTask",
    "InlinedRow",
    "KeysTask",
    "MatchTask",
    "ParquetOptions",
    "RegisterTask",
    "RestoreTask",
    "RewriteTask",
    "RowShape",
    "ScanTask",
    "StageTask",
    "StampTask",
    "UpsertTask",
]


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    """How Parquet files of a table are written; None leaves DuckDB's default.

    Attributes:
        target_file_size: Bytes a file should reach before the next is begun.
        hive_file_pattern: Partition directories named `key=value/` below the table's path.
        encrypted: Each file gets a fresh key.
    """

    compression: str | None = None
    compression_level: int | None = None
    row_group_size: int | None = None
    row_group_size_bytes: int | None = None
    version: int | None = None
    target_file_size: int = 512 * 1024 * 1024
    hive_file_pattern: bool = True
    encrypted: bool = False


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Read some data files, apply their deletes, and write the surviving rows as one file.

    Attributes:
        columns: Columns to write; values are found by column id in every source.
        sources: Files to read, in the order their rows are written when nothing is sorted.
        directory: Full path (ending in `/`) of the directory the output goes to.
        sort_keys: Order of the output rows; empty keeps the order of the sources.
        write_row_ids: Write `_ducklake_internal_row_id`.
        write_snapshot_ids: Write `_ducklake_internal_snapshot_id`.
    """

    columns: tuple[Column, ...]
    sources: tuple[DataFile, ...]
    directory: str
    options: ParquetOptions
    sort_keys: tuple[SortKey, ...] = ()
    write_row_ids: bool = True
    write_snapshot_ids: bool = False


@dataclass(frozen=True, slots=True)
class AppendTask:
    """Write rows that come as Arrow batches into new data files of a table.

    Attributes:
        columns: Top-level columns of the table; every one is written.
        partition: Spec to partition by, or None.
        directory: Full path (ending in `/`) of the table's files.
    """

    columns: tuple[Column, ...]
    directory: str
    options: ParquetOptions
    partition: PartitionSpec | None = None
    sort_keys: tuple[SortKey, ...] = ()


@dataclass(frozen=True, slots=True)
class FlushTask:
    """Write rows inlined in the catalog to Parquet, deleted versions with a delete file.

    Attributes:
        columns: Top-level columns of the schema version the rows were inlined under.
        rows: All row versions of one inlined table that are old enough to flush.
    """

    columns: tuple[Column, ...]
    rows: tuple[InlinedRow, ...]
    directory: str
    options: ParquetOptions
    partition: PartitionSpec | None = None
    sort_keys: tuple[SortKey, ...] = ()


@dataclass(frozen=True, slots=True)
class FlushDeletesTask:
    """Write the deletes a catalog holds inline for one data file to one delete file.

    Attributes:
        data_file: The file; its `delete_files` are merged into the new one.
        deletes: (position, snapshot id of the delete), one a deleted row.
        directory: Full path (ending in `/`) the delete file goes to.
    """

    data_file: DataFile
    deletes: tuple[tuple[int, int], ...]
    directory: str
    encrypted: bool = False


@dataclass(frozen=True, slots=True)
class RestoreTask:
    """Find which rows of a data file an older snapshot showed, and write the deletes of the others.

    Attributes:
        then: The file with the deletes visible at that snapshot.
        last: The file with the deletes visible at the newest snapshot it was in.
        snapshot_id: The older snapshot.
        inlined: (position, snapshot id) of all its inlined deletes.
        hidden_since: First snapshot the file was not in, when kept ones have to go on without it.
        rewrite_history: Write the deletes up to now into one file, inlined ones included.
        directory: Full path (ending in `/`) the delete files go to; None only counts.
    """

    then: DataFile
    last: DataFile
    snapshot_id: int
    inlined: tuple[tuple[int, int], ...]
    hidden_since: int | None
    rewrite_history: bool
    directory: str | None
    encrypted: bool = False


@dataclass(frozen=True, slots=True)
class RegisterTask:
    """Inspect one Parquet file somebody else wrote, so that it can be registered.

    Attributes:
        path: Full path.
        allow_missing: Columns the file lacks read as their default.
        ignore_extra_columns: Columns the table lacks are left alone.
        hive_partitioning: Take column values from `key=value` directories; None decides by file.
        as_spark_reads: Only rows are wanted, those that Spark sees: INT96 holds instants, and a
            file whose old dates Spark would convert is refused.
    """

    path: str
    table_name: str
    columns: tuple[Column, ...]
    partition: PartitionSpec | None = None
    allow_missing: bool = False
    ignore_extra_columns: bool = False
    hive_partitioning: bool | None = None
    as_spark_reads: bool = False


@dataclass(frozen=True, slots=True)
class RowShape:
    """Which columns rows are read with, and what is handed out of them.

    Attributes:
        columns: Top-level columns to read.
        types: DuckDB type each of these is handed on as.
        outputs: Names of what is handed out, in order: columns, or what row id and snapshot are
            called.
        row_id: What the row id is called, None where it is not asked for.
        snapshot_id: What the snapshot a row came with is called, likewise.
        condition: SQL over all of these, columns not handed out too; None takes every row.
    """

    columns: tuple[Column, ...]
    types: tuple[str, ...]
    outputs: tuple[str, ...]
    row_id: str | None = None
    snapshot_id: str | None = None
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Read the rows that one snapshot shows of some data files and of the catalog.

    Attributes:
        files: Data files with the deletes visible at the snapshot.
        inlined: Rows that live at the snapshot.
    """

    shape: RowShape
    snapshot_id: int
    files: tuple[DataFile, ...]
    inlined: tuple[InlinedVersions, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A data file some rows of which came or went.

    Attributes:
        data_file: The file with every delete file there was, of whatever time.
        deletes: (position, snapshot of the delete) of the deletes inlined in the catalog.
    """

    data_file: DataFile
    deletes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ChangesTask:
    """Read the rows that came or went in some consecutive snapshots.

    Attributes:
        change_type: What the kind of a change is called among the outputs.
        first: Oldest snapshot whose changes are wanted.
        last: Newest one.
    """

    shape: RowShape
    change_type: str
    first: int
    last: int
    files: tuple[ChangedFile, ...]
    inlined: tuple[InlinedVersions, ...] = ()


@dataclass(frozen=True, slots=True)
class StageTask:
    """Keep the source rows of an upsert in files of their own until they are matched.

    Attributes:
        rows: How they are to be written in the end; here, partitions and order do not matter.
        delete_when: SQL over the incoming columns; NULL counts as false.
        aside: Names of incoming columns that `delete_when` alone needs.
    """

    rows: AppendTask
    delete_when: str | None = None
    aside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeysTask:
    """Gather the keys of staged rows in one file, each once.

    Attributes:
        keys: The key columns.
        sources: Staged files, whose ids are their places; or files of such tasks.
        directory: Full path (ending in `/`) the file goes to.
        are_gathered: The sources are files of such tasks.
    """

    keys: tuple[Column, ...]
    sources: tuple[DataFile, ...]
    directory: str
    options: ParquetOptions
    are_gathered: bool = False


@dataclass(frozen=True, slots=True)
class MatchTask:
    """Find the rows of some data files that staged rows match, and write their deletes.

    Attributes:
        keys: The key columns.
        source_keys: The file of a `KeysTask`.
        files: Data files with the deletes visible now.
        inlined: Live rows of the catalog, with the key columns.
        snapshot_id: Snapshot the deletes are expected to be committed as.
        directory: Full path (ending in `/`) the outputs go to; None only counts.
    """

    keys: tuple[Column, ...]
    source_keys: DataFile
    files: tuple[DataFile, ...]
    inlined: tuple[InlinedVersions, ...]
    snapshot_id: int
    directory: str | None
    options: ParquetOptions


@dataclass(frozen=True, slots=True)
class UpsertTask:
    """Write the rows of one staged file to data files: updated and new ones apart.

    Attributes:
        source: The staged file; its id is its place among all.
        matches: Files that say which staged rows matched which row ids.
        rows: Columns, partitioning, order and options of the files.
    """

    source: DataFile
    matches: tuple[DataFile, ...]
    rows: AppendTask


@dataclass(frozen=True, slots=True)
class StampTask:
    """Write a delete file anew for another snapshot than the one that was expected.

    Attributes:
        written: A partial delete file; its newest deletes are those of the upsert.
        snapshot_id: The snapshot they are of instead.
        directory: Full path (ending in `/`) the new file goes to.
    """

    written: WrittenDeleteFile
    snapshot_id: int
    directory: str
    encrypted: bool
