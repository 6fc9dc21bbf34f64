"""Decide whether a Parquet file somebody else wrote may become a data file of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

import duckdb

from airflow_provider_ducklake.kernels.column_match import ColumnMatch, PathValue, match_columns
from airflow_provider_ducklake.kernels.connection import KernelSettings, open_connection
from airflow_provider_ducklake.kernels.conversion import conversion_sql
from airflow_provider_ducklake.kernels.file_facts import Constant, FileFacts, typed
from airflow_provider_ducklake.kernels.footer import Footer, footer_file, read_footer
from airflow_provider_ducklake.kernels.parquet import ROW_ID_FIELD, SNAPSHOT_ID_FIELD
from airflow_provider_ducklake.kernels.partitioning import (
    PartitionKey,
    directory_values,
    partition_keys,
)
from airflow_provider_ducklake.kernels.tasks import RegisterTask
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import BadInput, LakeError
from airflow_provider_ducklake.lake.identifiers import quote_literal
from airflow_provider_ducklake.lake.model import WrittenFile
from airflow_provider_ducklake.lake.statistics import ColumnStatistics
from airflow_provider_ducklake.lake.types import FLOATING, WITHOUT_BOUNDS

_TEXT: Final = ("varchar", "json")


def inspect(task: RegisterTask, settings: KernelSettings) -> WrittenFile:
    """Look at one file and say how it becomes a data file, or why it must not.

    Only the footer is read where it tells enough; the rows are scanned for NULLs, partition
    values and the values of directories that it does not tell.

    Args:
        task: The file, the table, and what may be missing or extra.
        settings: Memory, scratch and storage.

    Returns:
        The file with name map, statistics and partition values. One without rows has
        `record_count` 0 and neither statistics nor partition values: it is not to be registered.

    Raises:
        BadInput: The file is broken or encrypted, a column does not fit without loss, a NOT NULL
            column holds NULL, or path and content disagree.
        StorageError: The file cannot be read.

    Source: docs/stable/duckdb/metadata/adding_files.md and the reference's
    functions/ducklake_add_data_files.cpp, which is less strict.
    """
    with open_connection(settings) as connection:
        return _inspect(connection, task, settings)


def inspect_all(
    tasks: Iterable[RegisterTask], settings: KernelSettings
) -> Iterator[WrittenFile | LakeError]:
    """Look at many files with one connection; a bad one does not stop the others.

    Yields:
        For each task in order what `inspect` returns, or the error it raises.
    """
    remaining = iter(tasks)
    task = next(remaining, None)
    while task is not None:
        with open_connection(settings) as connection:
            while task is not None:
                try:
                    yield _inspect(connection, task, settings)
                except LakeError as error:
                    yield error
                    task = next(remaining, None)
                    break  # a broken file can break the DuckDB instance that read it
                task = next(remaining, None)


def _inspect(
    connection: duckdb.DuckDBPyConnection, task: RegisterTask, settings: KernelSettings
) -> WrittenFile:
    with ExitStack() as staged:
        footer_path = staged.enter_context(footer_file(task.path, settings))
        footer = read_footer(connection, footer_path, task.path)
        _refuse_internal_columns(footer, task)
        _refuse_old_calendar(footer, task)
        keys = partition_keys(connection, task.partition, task.columns) if task.partition else ()
        in_path = {} if task.hive_partitioning is False else _path_values(task)
        match = match_columns(task, footer.fields, _column_values(task, keys, in_path))
        result = WrittenFile(
            path=task.path,
            record_count=footer.record_count,
            file_size_bytes=footer.file_size_bytes,
            footer_size=footer.footer_size,
            name_map=tuple(match.entries),
        )
        if not footer.record_count:
            return result
        facts = FileFacts(connection, task.path, match, settings, staged)
        facts.probe()
        _check_path_values(connection, task, facts)
        _check_unproven(task, facts)
        _check_nulls(task, facts)
        return replace(
            result,
            statistics=(*_leaf_statistics(match), *_path_statistics(connection, match, footer)),
            partition_values=tuple(_partition_value(task, k, keys, in_path, facts) for k in keys),
        )


def _refuse_internal_columns(footer: Footer, task: RegisterTask) -> None:
    # Clients look for these ids in every file, and would take another lake's row ids for ours.
    reserved = (ROW_ID_FIELD, SNAPSHOT_ID_FIELD)
    name = next((f.name for f in footer.fields if f.field_id in reserved), None)
    if name is not None:
        raise BadInput(
            f"{task.path} was written by a lake's own maintenance and carries its row or snapshot "
            f"ids ({name}), which would be taken for those of {task.table_name}: load it with "
            "ingest instead"
        )


def _refuse_old_calendar(footer: Footer, task: RegisterTask) -> None:
    leaves = (leaf for column in task.columns for leaf in column.leaves())
    has_dates = any(leaf.type.startswith(("date", "timestamp")) for leaf in leaves)
    if task.as_spark_reads and footer.old_calendar and has_dates:
        raise BadInput(f"{task.path} has dates of the Julian calendar, which only Spark converts")


def _path_values(task: RegisterTask) -> dict[str, PathValue]:
    """Return what the directories say by lower-case key; the first spelling of a key counts."""
    found: dict[str, PathValue] = {}
    for key, value in directory_values(task.path).items():
        found.setdefault(key.lower(), PathValue(key, value))
    return found


def _column_values(
    task: RegisterTask, keys: tuple[PartitionKey, ...], in_path: Mapping[str, PathValue]
) -> dict[str, PathValue]:
    """Return the values that directories give to columns, by lower-case column name."""
    of_transforms = {key.name.lower() for key in keys if key.transform != "identity"}
    of_columns = {key.column.name.lower() for key in keys if key.transform == "identity"}
    found = {}
    for column in task.columns:
        name = column.name.lower()
        value = in_path.get(name)
        if value is None or name in of_transforms:
            continue
        if keys and name not in of_columns:
            raise BadInput(
                f"{task.path}: directory {value.key}=… names column {column.name} of "
                f"{task.table_name}, which is not one of its partition keys "
                f"({', '.join(key.name for key in keys)}): set hive_partitioning to false to take "
                "the column from the file"
            )
        empty = not value.value and column.type not in _TEXT
        found[name] = PathValue(value.key, None if empty else value.value)
    return found


def _check_path_values(
    connection: duckdb.DuckDBPyConnection, task: RegisterTask, facts: FileFacts
) -> None:
    for column, value, source in facts.match.from_path:
        _require_value(connection, task, value, column)
        if value.value is None and not column.nulls_allowed:
            raise BadInput(
                f"{task.path}: directory {value.key}=… says NULL, but column {column.name} of "
                f"{task.table_name} is NOT NULL"
            )
        if source is not None:
            found = facts.differing(source, column, value)
            if found is not None:
                raise _disagreement(task, value, f"column {source.name} holds {found}")


def _require_value(
    connection: duckdb.DuckDBPyConnection, task: RegisterTask, value: PathValue, column: Column
) -> str | None:
    """Return a path's value as its type is cast to text; refuse what is none, or would be cut."""
    if value.value is None:
        return None
    literal = f"CAST({quote_literal(value.value)} AS VARCHAR)"
    try:
        converted = conversion_sql(literal, duckdb.sqltype("VARCHAR"), column)
        row = connection.execute(f"SELECT CAST({converted} AS VARCHAR)").fetchone()
    except (BadInput, duckdb.Error):
        raise BadInput(
            f"{task.path}: directory {value.key}={value.value} is no value of type "
            f"{column.sql_type} for {column.name} of {task.table_name}"
        ) from None
    return None if row is None else row[0]


def _check_unproven(task: RegisterTask, facts: FileFacts) -> None:
    for column, source, name in facts.match.unproven:
        beyond = facts.outside(source, column)
        if beyond is not None:
            raise BadInput(
                f"{task.path}: column {name} is {column.sql_type} in table {task.table_name} and "
                f"{source.duckdb_type} in the file, which holds {beyond}: that does not fit"
            )


def _check_nulls(task: RegisterTask, facts: FileFacts) -> None:
    for column in task.columns:
        if column.nulls_allowed or column.column_id not in facts.match.fields:
            continue
        nulls = facts.null_count(column)
        if nulls:
            raise BadInput(
                f"{task.path} holds {nulls} NULL in column {column.name}, which is NOT NULL in "
                f"{task.table_name}"
            )


def _partition_value(
    task: RegisterTask,
    key: PartitionKey,
    keys: tuple[PartitionKey, ...],
    in_path: Mapping[str, PathValue],
    facts: FileFacts,
) -> str | None:
    found = facts.partition_value(key)
    given = in_path.get(key.name.lower())
    if given is None:
        if found is None:
            expected = "/".join(f"{k.name}=…" for k in keys)
            raise BadInput(
                f"{task.path} holds several values of partition key {key.name} of "
                f"{task.table_name}, and its path names none: split it, one file a partition, in "
                f"directories {expected}"
            )
        return found.text
    claimed = _claimed(task, key, given, facts)
    if found is None or found.text != claimed.text:
        inside = "several values" if found is None else found.text or "NULL"
        raise _disagreement(task, given, f"the rows give partition key {key.name} {inside}")
    return found.text


def _claimed(task: RegisterTask, key: PartitionKey, given: PathValue, facts: FileFacts) -> Constant:
    """Return what the path says of a partition key, written as the catalog writes it."""
    column = key.column
    if key.transform != "identity":
        column = Column(0, key.name, "int64")
    if not given.value and column.type not in _TEXT:
        return Constant(None)
    return Constant(_require_value(facts.connection, task, given, column))


def _disagreement(task: RegisterTask, given: PathValue, inside: str) -> BadInput:
    return BadInput(
        f"{task.path}: path and content disagree: the directory says {given.key}="
        f"{given.value or 'NULL'}, {inside}"
    )


def _leaf_statistics(match: ColumnMatch) -> tuple[ColumnStatistics, ...]:
    found = []
    for column, source in match.leaves:
        stats = source.statistics
        if stats is None:
            continue
        bounded = column.type not in WITHOUT_BOUNDS
        found.append(
            ColumnStatistics(
                column_id=column.column_id,
                size_bytes=stats.size_bytes,
                value_count=stats.value_count,
                null_count=stats.null_count,
                min_value=stats.min_value if bounded else None,
                max_value=stats.max_value if bounded else None,
                extra_stats=stats.extra_stats,
            )
        )
    return tuple(found)


def _path_statistics(
    connection: duckdb.DuckDBPyConnection, match: ColumnMatch, footer: Footer
) -> tuple[ColumnStatistics, ...]:
    """Return the statistics of columns whose only value the path gives: exact ones."""
    found = []
    for column, value, _ in match.from_path:
        rows, known = footer.record_count, value.value is not None
        text = _catalog_text(connection, column, value) if known else None
        is_nan = text == "nan"
        found.append(
            ColumnStatistics(
                column_id=column.column_id,
                value_count=rows if known else 0,
                null_count=0 if known else rows,
                min_value=None if is_nan else text,
                max_value=None if is_nan else text,
                contains_nan=is_nan if column.type in FLOATING else None,
            )
        )
    return tuple(found)


def _catalog_text(
    connection: duckdb.DuckDBPyConnection, column: Column, value: PathValue
) -> str | None:
    if column.type in WITHOUT_BOUNDS:
        return None
    sql = typed(value.value, column)
    shown = f"CAST({sql} AS INTEGER)" if column.type == "boolean" else sql
    row = connection.execute(f"SELECT CAST({shown} AS VARCHAR)").fetchone()
    return None if row is None else row[0]
