"""Holding what a catalog says of data files against what their footers say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import duckdb

from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    duckdb_errors,
    local_copy,
    open_connection,
)
from airflow_provider_ducklake.kernels.file_facts import typed
from airflow_provider_ducklake.kernels.file_schema import ParquetField, read_file_schema, scan_sql
from airflow_provider_ducklake.kernels.footer import footer_file, read_footer
from airflow_provider_ducklake.kernels.nan_check import columns_with_nan
from airflow_provider_ducklake.kernels.parquet import ROW_ID, ROW_ID_FIELD
from airflow_provider_ducklake.kernels.partitioning import partition_keys
from airflow_provider_ducklake.lake.columns import Column, leaf_paths, leaves
from airflow_provider_ducklake.lake.errors import BadInput, LakeError
from airflow_provider_ducklake.lake.fsck.bounds import FILE_NAN
from airflow_provider_ducklake.lake.fsck.findings import Finding
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.model import DataFile, NameMapEntry, PartitionSpec
from airflow_provider_ducklake.lake.statistics import ColumnStatistics
from airflow_provider_ducklake.lake.types import FLOATING, WITHOUT_BOUNDS
from airflow_provider_ducklake.storage import ObjectNotFound

# The catalog's text of these is not what a cast understands.
_NOT_COMPARED: Final = frozenset({"json"}) | WITHOUT_BOUNDS


@dataclass(frozen=True, slots=True)
class InspectTask:
    """A data file and what the catalog says of it.

    Attributes:
        columns: Top-level columns of its table.
        statistics: Of the file's leaf columns.
        partition: Spec it was written under.
    """

    file: DataFile
    columns: tuple[Column, ...]
    statistics: tuple[ColumnStatistics, ...] = ()
    partition: PartitionSpec | None = None


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a look at one file gave.

    Attributes:
        findings: Where catalog and footer contradict each other.
        largest_row_id: Of the file's rows; None when it cannot be told.
    """

    findings: tuple[Finding, ...] = ()
    largest_row_id: int | None = None


def inspect_files(tasks: Sequence[InspectTask], settings: KernelSettings) -> tuple[Inspection, ...]:
    """Look at some files one after the other; an object that is gone gives no finding here.

    Raises:
        StorageError: Storage refused, so that nothing can be said of the file.
    """
    with open_connection(settings) as connection:
        return tuple(_inspect(connection, task, settings) for task in tasks)


def _inspect(
    connection: duckdb.DuckDBPyConnection, task: InspectTask, settings: KernelSettings
) -> Inspection:
    file = task.file
    try:
        if file.encryption_key is not None:
            return _inspect_encrypted(connection, task, settings)
        with footer_file(file.path, settings) as local:
            footer = read_footer(connection, local, file.path)
    except ObjectNotFound:
        return Inspection()
    except BadInput as error:
        return Inspection((_finding(file, "unreadable_footer", str(error)),))
    findings = list(_counts(file, footer.record_count, footer.footer_size))
    findings += _nan(connection, task, settings)
    found = dict(_leaves(footer.fields, file.name_map))
    findings += _statistics(connection, task, found)
    findings += _partition_values(connection, task, found)
    ids = found[ROW_ID_FIELD].statistics if ROW_ID_FIELD in found else None
    if ids is not None and ids.max_value is not None:
        return Inspection(tuple(findings), int(ids.max_value))
    largest = _largest_row_id(connection, file, settings, footer.fields, footer.record_count)
    return Inspection(tuple(findings), largest)


def _inspect_encrypted(
    connection: duckdb.DuckDBPyConnection, task: InspectTask, settings: KernelSettings
) -> Inspection:
    """Look at a file whose footer no SQL function shows: its rows are counted by a scan."""
    file = task.file
    with local_copy(file.path, settings) as local:
        fields = read_file_schema(connection, local, file.encryption_key, path=file.path)
        with duckdb_errors("read Parquet", file.path):
            row = connection.execute(
                f"SELECT count(*) FROM {scan_sql(local, file.encryption_key)}"
            ).fetchone()
        records = int((row or (0,))[0])
        largest = _largest_row_id(connection, file, settings, fields, records)
    findings = (*_counts(file, records, None), *_nan(connection, task, settings))
    return Inspection(findings, largest)


def _nan(
    connection: duckdb.DuckDBPyConnection, task: InspectTask, settings: KernelSettings
) -> Iterator[Finding]:
    said = {s.column_id for s in task.statistics if s.contains_nan is False}
    suspects = said & {leaf.column_id for leaf in leaves(task.columns) if leaf.type in FLOATING}
    if not suspects:
        return
    file = task.file
    try:
        with local_copy(file.path, settings) as local:
            found = columns_with_nan(connection, file, local, task.columns, suspects)
    except (BadInput, ObjectNotFound):
        return  # other checks tell of such a file
    paths = leaf_paths(task.columns)
    for column in found:
        message = f"column {paths[column.column_id]} has NaN, the catalog says none"
        finding = _finding(file, FILE_NAN, message)
        yield replace(finding, ids=(*finding.ids, column.column_id))


def _largest_row_id(
    connection: duckdb.DuckDBPyConnection,
    file: DataFile,
    settings: KernelSettings,
    fields: Sequence[ParquetField],
    records: int,
) -> int | None:
    if not any(field.field_id == ROW_ID_FIELD for field in fields):
        start = file.row_id_start
        return None if start is None else start + max(file.record_count, records, 1) - 1
    with local_copy(file.path, settings) as local, duckdb_errors("read Parquet", file.path):
        row = connection.execute(
            f"SELECT max({ROW_ID}) FROM {scan_sql(local, file.encryption_key)}"
        ).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def _counts(file: DataFile, records: int, footer_size: int | None) -> Iterator[Finding]:
    if records != file.record_count:
        message = f"it has {records} rows, the catalog says {file.record_count}"
        yield _finding(file, "file_record_count", message)
    if footer_size is not None and file.footer_size not in (None, 0, footer_size):
        message = f"its footer has {footer_size} bytes, the catalog says {file.footer_size}"
        yield _finding(file, "footer_size", message)


def _leaves(
    fields: Sequence[ParquetField], entries: Sequence[NameMapEntry], mapped: bool | None = None
) -> Iterator[tuple[int, ParquetField]]:
    """Yield (column id, leaf) of a file, by field ids or by a name mapping."""
    by_name = {entry.source_name.lower(): entry for entry in entries}
    mapped = bool(entries) if mapped is None else mapped
    for field in fields:
        entry = by_name.get(field.name.lower())
        if mapped and entry is None:
            continue
        column_id = entry.target_field_id if entry is not None else field.field_id
        if field.kind == "leaf" and column_id is not None:
            yield column_id, field
        elif field.kind == "struct" or not mapped:
            yield from _leaves(field.children, entry.children if entry else (), mapped)


def _statistics(
    connection: duckdb.DuckDBPyConnection, task: InspectTask, found: Mapping[int, ParquetField]
) -> Iterator[Finding]:
    told = {statistics.column_id: statistics for statistics in task.statistics}
    top_level = {column.column_id for column in task.columns}
    paths = leaf_paths(task.columns)
    for column in leaves(task.columns):
        said, field = told.get(column.column_id), found.get(column.column_id)
        if said is None or field is None or field.statistics is None:
            continue
        truth, where = field.statistics, f"column {paths[column.column_id]}"
        # Below a struct, footers and catalogs count the NULLs of parents differently.
        if column.column_id in top_level and said.null_count == 0 and truth.null_count:
            message = f"{where} has {truth.null_count} NULLs, the catalog says none"
            yield _finding(task.file, "file_statistics", message)
        if column.column_id in top_level and said.value_count == 0 and truth.value_count:
            message = f"{where} has {truth.value_count} values, the catalog says none"
            yield _finding(task.file, "file_statistics", message)
        if column.type in _NOT_COMPARED:
            continue
        for bound, actual, beyond in (
            (said.min_value, truth.min_value, ">"),
            (said.max_value, truth.max_value, "<"),
        ):
            if _is(connection, column, bound, beyond, actual):
                message = f"{where} has {actual}, outside of what the catalog says ({bound})"
                yield _finding(task.file, "file_statistics", message)


def _is(
    connection: duckdb.DuckDBPyConnection,
    column: Column,
    left: str | None,
    operator: str,
    right: str | None,
) -> bool:
    """Compare two values in text form as those of a column; what is unknown compares false."""
    if left is None or right is None or left == right:
        return False
    parts = (typed(text, column, attempt=True) for text in (left, right))
    row = connection.execute(f"SELECT {f' {operator} '.join(parts)}").fetchone()
    return row == (True,)


def _partition_values(
    connection: duckdb.DuckDBPyConnection, task: InspectTask, found: Mapping[int, ParquetField]
) -> Iterator[Finding]:
    """Yield the partition values that the smallest or largest value of the file contradicts."""
    if task.partition is None:
        return
    try:
        keys = partition_keys(connection, task.partition, task.columns)
    except LakeError:
        return  # the key's column is gone, and nobody filters by it
    for key, value in zip(keys, task.file.partition_values, strict=False):
        field = found.get(key.column.column_id)
        # A wider type since then may go into another bucket.
        if field is None or field.statistics is None or key.column.type in _NOT_COMPARED:
            continue
        truth = field.statistics
        if field.duckdb_type != key.column.sql_type or truth.min_value is None:
            continue
        bounds = ", ".join(typed(bound, key.column) for bound in (truth.min_value, truth.max_value))
        name = quote_identifier(key.column.name)
        for (actual,) in connection.execute(
            f"SELECT DISTINCT {key.text} FROM (SELECT unnest([{bounds}]) AS {name})"
        ).fetchall():
            if actual != value and (
                value is None or not _equal(connection, key.column, actual, value)
            ):
                message = f"it has rows of partition {key.name}={actual}, the catalog says {value}"
                yield _finding(task.file, "partition_values", message)


def _equal(
    connection: duckdb.DuckDBPyConnection, column: Column, actual: str | None, value: str
) -> bool:
    """Tell whether two texts are one value: writers spell dates and decimals in several ways."""
    parts = (typed(text, column, attempt=True) for text in (actual, value))
    row = connection.execute(f"SELECT {' = '.join(parts)}").fetchone()
    return row == (True,)


def _finding(file: DataFile, damage: str, message: str) -> Finding:
    text = message if file.path in message else f"{file.path}: {message}"
    return Finding(
        damage, f"data file {file.data_file_id}: {text}", file.table_id, (file.data_file_id,)
    )
