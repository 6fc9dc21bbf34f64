"""Write rows that come as Arrow batches into new data files, sorted and partitioned as asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    discard,
    duckdb_errors,
    open_connection,
)
from airflow_provider_ducklake.kernels.conversion import conversion_sql, match_names
from airflow_provider_ducklake.kernels.incoming import Incoming
from airflow_provider_ducklake.kernels.parquet import ROW_ID, write_parquet_files
from airflow_provider_ducklake.kernels.partitioning import (
    PartitionKey,
    partition_directory,
    partition_keys,
)
from airflow_provider_ducklake.kernels.sorting import order_by
from airflow_provider_ducklake.kernels.tasks import AppendTask
from airflow_provider_ducklake.kernels.variant import from_parts_sql, has_variant, is_variant
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal
from airflow_provider_ducklake.lake.model import WrittenFile

_ARRIVAL = "__ducklake_arrival"
_PARTITION = "__ducklake_partition"


def append(
    batches: Iterable[pa.RecordBatch], task: AppendTask, settings: KernelSettings
) -> tuple[WrittenFile, ...]:
    """Write the rows of some Arrow batches to new files of a table.

    Columns are matched by name: exactly, else without case. A value is converted only if nothing
    of it is lost. Rows of an unpartitioned, unsorted table stream; else they may spill to scratch.

    Args:
        batches: All of one schema, which holds every column of the table and no other.
        task: Columns, partitioning, order and Parquet options.
        settings: Memory, scratch and storage.

    Returns:
        The files: in the order of the rows, or of the partitions' first rows; none for no rows.

    Raises:
        BadInput: A column is missing or left over, a value does not fit, or a NULL stands where
            the table allows none; the message names the column.
        ConfigurationError: The partition spec, a sort key or an option is wrong.
        StorageError: A file cannot be written. Files of a failed call are removed.
    """
    incoming = Incoming.of(batches)
    if incoming is None:
        return ()
    with open_connection(settings) as connection:

        def write(negative_zeros: bool | None) -> tuple[WrittenFile, ...]:
            rows = converted(connection, task.columns, incoming.schema)
            return write_rows(connection, rows, task, settings, negative_zeros=negative_zeros)

        if task.partition is None:
            return incoming.write_in_parts(connection, write, settings)
        # Partitions are gathered in a table, which can be read again.
        with incoming.registered(connection):
            return write(None)


def write_rows(
    connection: duckdb.DuckDBPyConnection,
    rows: str,
    task: AppendTask,
    settings: KernelSettings,
    *,
    row_ids: bool = False,
    negative_zeros: bool | None = None,
) -> tuple[WrittenFile, ...]:
    """Write the rows of a query to new files of a table, sorted and partitioned as it asks.

    Args:
        connection: From `open_connection`.
        rows: Query that yields the table's columns, typed.
        task: Columns, partitioning, order and Parquet options.
        settings: Memory, scratch and storage.
        row_ids: The query ends in `_ducklake_internal_row_id`, which is written too.
        negative_zeros: Whether any row has one; None means the query can be run again if so.

    Raises:
        BadInput, ConfigurationError, StorageError: As for `append`.
    """
    if task.partition is None:
        return _write_whole(connection, rows, task, settings, row_ids, negative_zeros)
    keys = partition_keys(connection, task.partition, task.columns)
    return _write_partitions(connection, rows, keys, task, settings, row_ids)


def converted(
    connection: duckdb.DuckDBPyConnection,
    columns: Sequence[Column],
    schema: pa.Schema,
    *,
    flag: tuple[str, str] | None = None,
    aside: Collection[str] = (),
) -> str:
    """Return the query that yields the incoming rows as the table's columns, checked.

    Args:
        connection: One where `incoming` is registered.
        columns: Top-level columns of the table.
        schema: What the incoming rows have.
        flag: Name of a last column, and the SQL over the incoming columns that it holds.
        aside: Names of incoming columns that are for the flag alone.

    Raises:
        BadInput: A column is missing or left over, or has no type that fits.
    """
    mine = [index for index, name in enumerate(schema.names) if name not in aside]
    given = [schema.names[index] for index in mine]
    found = match_names(tuple(c.name for c in columns), given, "the input")
    places = [mine[place] for place in found]
    with duckdb_errors("take the input"):
        types = connection.sql("FROM incoming").types
    expressions = [
        f"{_checked(f'c{place}', types[place], column, schema.field(place))} "
        f"AS {quote_identifier(column.name)}"
        for column, place in zip(columns, places, strict=True)
    ]
    names, source = [f"c{index}" for index in range(len(schema))], "incoming"
    if flag is not None:
        source = f"(SELECT *, {flag[1]} FROM incoming)"
        names.append("flag")
        expressions.append(f"flag AS {flag[0]}")
    return f"SELECT {', '.join(expressions)} FROM {source} AS i({', '.join(names)})"


def _checked(value: str, kind: DuckDBPyType, column: Column, field: pa.Field) -> str:
    if pa.types.is_null(field.type):
        converted = f"CAST(NULL AS {column.sql_type})"
    elif has_variant(field.type):
        if not is_variant(field.type) or column.type != "variant":
            raise BadInput(
                f"column {column.name}: a VARIANT goes into a column of type VARIANT only, and not "
                f"inside of other types; the table wants {column.sql_type}: convert it before it "
                "is written"
            )
        converted = value = from_parts_sql(value)
    else:
        converted = conversion_sql(value, kind, column)
    if column.nulls_allowed:
        return converted
    message = quote_literal(f"column {column.name} is NOT NULL in the table, a row holds NULL")
    return f"CASE WHEN {value} IS NULL THEN error({message}) ELSE {converted} END"


def _write_whole(
    connection: duckdb.DuckDBPyConnection,
    rows: str,
    task: AppendTask,
    settings: KernelSettings,
    row_ids: bool,
    negative_zeros: bool | None,
) -> tuple[WrittenFile, ...]:
    if task.sort_keys:
        numbered = f"SELECT *, row_number() OVER () AS {_ARRIVAL} FROM ({rows})"
        order = order_by(connection, task.sort_keys, task.columns, _ARRIVAL)
        rows = f"SELECT * EXCLUDE ({_ARRIVAL}) FROM ({numbered}) ORDER BY {order}"
    return write_parquet_files(
        connection,
        rows,
        (),
        task.directory,
        task.columns,
        task.options,
        settings,
        write_row_ids=row_ids,
        negative_zeros=negative_zeros,
    )


@dataclass(frozen=True, slots=True)
class _Partition:
    number: int
    values: tuple[str | None, ...]


def _write_partitions(
    connection: duckdb.DuckDBPyConnection,
    rows: str,
    keys: Sequence[PartitionKey],
    task: AppendTask,
    settings: KernelSettings,
    row_ids: bool,
) -> tuple[WrittenFile, ...]:
    order = order_by(connection, task.sort_keys, task.columns, _ARRIVAL)
    with duckdb_errors("partition the rows"):
        partitions = _load(connection, rows, keys, order)
    files: list[WrittenFile] = []
    names = [quote_identifier(column.name) for column in task.columns]
    listed = ", ".join([*names, ROW_ID] if row_ids else names)
    select = f"SELECT {listed} FROM ordered WHERE {_PARTITION} = ?"
    try:
        for partition in partitions:
            directory = task.directory
            if task.options.hive_file_pattern:
                directory += partition_directory(keys, partition.values)
            written = write_parquet_files(
                connection,
                select,
                (partition.number,),
                directory,
                task.columns,
                task.options,
                settings,
                write_row_ids=row_ids,
            )
            files += (replace(file, partition_values=partition.values) for file in written)
    except BaseException:
        for file in files:
            discard(file.path, settings)
        raise
    return tuple(files)


def _load(
    connection: duckdb.DuckDBPyConnection, rows: str, keys: Sequence[PartitionKey], order: str
) -> list[_Partition]:
    """Fill the table `ordered`, one partition behind the other, and say which there are."""
    names = [f"{_PARTITION}_{index}" for index in range(len(keys))]
    texts = ", ".join(f"{key.text} AS {name}" for key, name in zip(keys, names, strict=True))
    listed = ", ".join(names)
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE arrived AS "
        f"SELECT *, {texts}, row_number() OVER () AS {_ARRIVAL} FROM ({rows})"
    )
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE partitions AS "
        f"SELECT row_number() OVER (ORDER BY min({_ARRIVAL})) AS {_PARTITION}, {listed} "
        f"FROM arrived GROUP BY {listed}"
    )
    same = " AND ".join(f"a.{name} IS NOT DISTINCT FROM p.{name}" for name in names)
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE ordered AS SELECT a.*, p.{_PARTITION} "
        f"FROM arrived a JOIN partitions p ON {same} ORDER BY p.{_PARTITION}, {order}"
    )
    connection.execute("DROP TABLE arrived")
    found = connection.execute(f"SELECT {_PARTITION}, {listed} FROM partitions ORDER BY 1")
    return [_Partition(number, tuple(values)) for number, *values in found.fetchall()]
