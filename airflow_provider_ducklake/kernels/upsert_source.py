"""The source of an upsert: its rows kept in files, typed as the table's, and its keys gathered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import duckdb
import pyarrow as pa

from airflow_provider_ducklake.kernels.append import converted
from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    duckdb_errors,
    local_copy,
    open_connection,
)
from airflow_provider_ducklake.kernels.incoming import Incoming
from airflow_provider_ducklake.kernels.parquet import (
    new_file_name,
    write_parquet,
    write_parquet_files,
)
from airflow_provider_ducklake.kernels.projection import POSITION, project
from airflow_provider_ducklake.kernels.tasks import KeysTask, StageTask
from airflow_provider_ducklake.kernels.variant import is_variant
from airflow_provider_ducklake.lake.columns import Column, parse_type
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.model import DataFile, WrittenFile

# Columns of the files that are only for this, under ids no column of a table has.
GOES: Final = Column(2147480001, "_ducklake_internal_goes", "boolean")
PLACE: Final = Column(2147480002, "_ducklake_internal_place", "int64")
SOURCE_POSITION: Final = Column(2147480003, "_ducklake_internal_position", "int64")


def as_data_file(file: WrittenFile, number: int) -> DataFile:
    """Return a file that only this upsert knows as one that can be read."""
    return DataFile(
        data_file_id=number,
        table_id=0,
        path=file.path,
        record_count=file.record_count,
        file_size_bytes=file.file_size_bytes,
        footer_size=file.footer_size,
        begin_snapshot=0,
        encryption_key=file.encryption_key,
    )


def incoming_columns(schema: pa.Schema) -> tuple[Column, ...]:
    """Return the columns of Arrow batches as DuckDB reads them, without ids.

    Raises:
        BadInput: A type has no counterpart.
    """
    with duckdb.connect(":memory:") as connection:
        relation = connection.from_arrow(schema.empty_table())
        return tuple(
            parse_type("variant" if is_variant(field.type) else str(kind), name)
            for field, name, kind in zip(schema, relation.columns, relation.types, strict=True)
        )


def stage(
    batches: Iterable[pa.RecordBatch], task: StageTask, settings: KernelSettings
) -> tuple[WrittenFile, ...]:
    """Keep source rows in files, converted to the table's types, with what becomes of them.

    Args:
        batches: All of one schema, with every column of the table and those only the condition has.
        task: Columns, and when a row deletes.
        settings: Memory, scratch and storage.

    Raises:
        BadInput: A column is missing or left over, or a value does not fit.
        StorageError: A file cannot be written. Files of a failed call are removed.
    """
    incoming = Incoming.of(batches)
    if incoming is None:
        return ()
    goes = f"coalesce(({task.delete_when}\n), false)" if task.delete_when else "false"
    columns = task.rows.columns
    with open_connection(settings) as connection:

        def write(negative_zeros: bool) -> tuple[WrittenFile, ...]:
            flag = (GOES.name, goes)
            rows = converted(connection, columns, incoming.schema, flag=flag, aside=task.aside)
            return write_parquet_files(
                connection,
                rows,
                (),
                task.rows.directory,
                (*columns, GOES),
                task.rows.options,
                settings,
                negative_zeros=negative_zeros,
            )

        return incoming.write_in_parts(connection, write, settings)


def gather_keys(task: KeysTask, settings: KernelSettings) -> WrittenFile:
    """Write the keys of staged rows to one file, with where each row is.

    Args:
        task: The staged files, or files of their keys.
        settings: Memory, scratch and storage. The keys may spill to scratch.

    Returns:
        The file; its statistics bound the keys.

    Raises:
        BadInput: A key is NULL, or stands there twice; the message names it.
        StorageError: A file cannot be read or written.
    """
    columns = (*task.keys, GOES, PLACE, SOURCE_POSITION)
    with open_connection(settings) as connection:
        for source in task.sources:
            verb = "CREATE TEMP TABLE keys AS" if source is task.sources[0] else "INSERT INTO keys"
            with local_copy(source.path, settings) as local:
                wanted = columns if task.are_gathered else columns[:-2]
                found = project(connection, source, local, wanted)
                parts = list(found.columns)
                if not task.are_gathered:
                    parts.append(f"CAST({source.data_file_id} AS BIGINT) AS {PLACE.name}")
                    parts.append(f"CAST({POSITION} AS BIGINT) AS {SOURCE_POSITION.name}")
                with duckdb_errors("read the keys of the source", source.path):
                    connection.execute(f"{verb} SELECT {', '.join(parts)} FROM {found.source}")
        _refuse_nulls(connection, task.keys)
        _refuse_doubles(connection, task.keys)
        return write_parquet(
            connection,
            "FROM keys",
            (),
            task.directory + new_file_name(),
            columns,
            task.options,
            settings,
        )


def _listed(columns: Sequence[Column]) -> str:
    return ", ".join(quote_identifier(column.name) for column in columns)


def _refuse_nulls(connection: duckdb.DuckDBPyConnection, keys: Sequence[Column]) -> None:
    for key in keys:
        name = quote_identifier(key.name)
        found = connection.execute(f"SELECT count(*) FROM keys WHERE {name} IS NULL").fetchone()
        if found is not None and found[0]:
            raise BadInput(
                f"{found[0]:,} rows of the source hold NULL in the merge key {key.name!r}: NULL "
                "equals nothing, so every run would insert them again; leave them out in --sql"
            )


def _refuse_doubles(connection: duckdb.DuckDBPyConnection, keys: Sequence[Column]) -> None:
    names = _listed(keys)
    shown = ", ".join(f"left(CAST({quote_identifier(key.name)} AS VARCHAR), 100)" for key in keys)
    doubled = connection.execute(
        f"SELECT {shown}, count(*) FROM keys GROUP BY {names} HAVING count(*) > 1 LIMIT 1"
    ).fetchone()
    if doubled is not None:
        pairs = zip(keys, doubled, strict=False)
        key = ", ".join(f"{column.name} = {value}" for column, value in pairs)
        raise BadInput(
            f"the source has {doubled[-1]:,} rows with the merge key {key}, so which of them "
            "counts is not known: keep one of each key in --sql"
        )
