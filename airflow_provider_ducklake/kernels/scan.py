"""Read rows as a snapshot shows them, out of data files and of the catalog, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import duckdb
import pyarrow as pa

from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    duckdb_errors,
    local_copy,
    open_connection,
)
from airflow_provider_ducklake.kernels.deletes import deleted_positions
from airflow_provider_ducklake.kernels.file_schema import ParquetField
from airflow_provider_ducklake.kernels.inlined_rows import INLINED, load_inlined_rows
from airflow_provider_ducklake.kernels.parquet import ROW_ID, SNAPSHOT_ID
from airflow_provider_ducklake.kernels.projection import (
    Mapper,
    Projection,
    open_source,
    project_source,
)
from airflow_provider_ducklake.kernels.tasks import RowShape, ScanTask
from airflow_provider_ducklake.kernels.variant import to_parts_sql
from airflow_provider_ducklake.lake.columns import Column, leaves
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.model import DataFile
from airflow_provider_ducklake.lake.scan import InlinedVersions
from airflow_provider_ducklake.lake.types import FLOATING

BATCH_ROWS: Final = 50_000
_DELETED: Final = "deleted_positions"


def scan(task: ScanTask, settings: KernelSettings) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, file after file; nothing is kept in memory but a batch.

    Args:
        task: What to read.
        settings: Memory, scratch and storage.

    Raises:
        BadInput: A file is broken, or an inlined value is none of its column's type.
        StorageError: A file cannot be reached.
        LakeError: A delete names a position the file does not have.
    """
    with open_reader(task.shape, settings) as connection:
        for file in task.files:
            with local_copy(file.path, settings) as local:
                rows = _visible_rows(connection, task, file, local, settings)
                yield from batches(connection, shaped(rows, task.shape), file.path)
        for part in task.inlined:
            load_inlined_rows(connection, part.columns, part.rows)
            rows = inlined_rows(part, task.shape, f"{ROW_ID}, {SNAPSHOT_ID}")
            yield from batches(connection, shaped(rows, task.shape), "inlined rows")


@contextmanager
def open_reader(shape: RowShape, settings: KernelSettings) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection whose filters find every row they should."""
    with open_connection(settings) as connection:
        if shape.condition and any(leaf.type in FLOATING for leaf in leaves(shape.columns)):
            # Bounds in a footer leave NaN out, and DuckDB skips row groups by them: a filter such
            # as x > 5 would lose NaN, the largest value of all (tried on 1.5.5).
            names = "filter_pushdown,statistics_propagation"
            connection.execute(f"SET disabled_optimizers = '{names}'")
        yield connection


def file_rows(
    connection: duckdb.DuckDBPyConnection, file: DataFile, local: str, shape: RowShape
) -> tuple[Projection, str]:
    """Return how to read a file, and the list of what to select from it.

    The list has the columns of the shape, `ROW_ID` where it is asked for, and `SNAPSHOT_ID`.

    Raises:
        BadInput: The file is broken, or row ids are asked for and nothing tells them.
    """
    projection = project_source(open_source(connection, file, local), shape.columns)
    parts = [*projection.columns, f"{projection.snapshot_id} AS {SNAPSHOT_ID}"]
    if shape.row_id is not None:
        if projection.row_id is None:
            raise BadInput(
                f"{file.path}: neither the file nor the catalog says which row ids the rows have"
            )
        parts.append(f"{projection.row_id} AS {ROW_ID}")
    return projection, ", ".join(parts)


def _visible_rows(
    connection: duckdb.DuckDBPyConnection,
    task: ScanTask,
    file: DataFile,
    local: str,
    settings: KernelSettings,
) -> str:
    projection, selected = file_rows(connection, file, local, task.shape)
    conditions = []
    if file.partial_max is not None and file.partial_max > task.snapshot_id:
        conditions.append(f"{projection.snapshot_id} <= {task.snapshot_id}")
    if file.delete_files or file.inlined_deletes:
        deleted = deleted_positions(connection, file, settings, task.snapshot_id)
        connection.register(_DELETED, pa.table({"position": deleted}))
        conditions.append(f"{projection.position} NOT IN (FROM {_DELETED})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {selected} FROM {projection.source}{where}"


def inlined_rows(part: InlinedVersions, shape: RowShape, further: str) -> str:
    """Return the query that reads the loaded rows of a part as the columns of a shape.

    Args:
        part: Its rows are in the table `INLINED`.
        shape: The columns wanted; one that the part lacks reads as its initial default.
        further: What else to select from `INLINED`.
    """
    mapper = Mapper("inlined rows")
    fields = [_as_field(column) for column in part.columns]
    places = {id(field): quote_identifier(field.name) for field in fields}
    wanted = [
        f"{mapper.top_level(column, fields, places, None)} AS {quote_identifier(column.name)}"
        for column in shape.columns
    ]
    return f"SELECT {', '.join((*wanted, further))} FROM {INLINED}"


def shaped(rows: str, shape: RowShape, extra: Sequence[str] = ()) -> str:
    """Return the query that hands rows out: typed, named, and only those of the condition.

    Args:
        rows: A query with the columns of the shape, `ROW_ID` and `SNAPSHOT_ID`.
        shape: What to hand out.
        extra: Further columns of `rows`, taken as they are.
    """
    parts = [
        f"CAST({quote_identifier(column.name)} AS {kind}) AS {quote_identifier(column.name)}"
        for column, kind in zip(shape.columns, shape.types, strict=True)
    ]
    for name, source in ((shape.row_id, ROW_ID), (shape.snapshot_id, SNAPSHOT_ID)):
        if name is not None:
            parts.append(f"{source} AS {quote_identifier(name)}")
    parts += extra
    variants = {c.name for c in shape.columns if c.type == "variant"}
    outputs = ", ".join(_output(name, name in variants) for name in shape.outputs) or "0"
    where = f" WHERE ({shape.condition}\n)" if shape.condition else ""
    return f"SELECT {outputs} FROM (SELECT {', '.join(parts) or '0'} FROM ({rows})){where}"


def _output(name: str, is_variant: bool) -> str:
    quoted = quote_identifier(name)
    return f"{to_parts_sql(quoted)} AS {quoted}" if is_variant else quoted


def batches(
    connection: duckdb.DuckDBPyConnection, query: str, path: str
) -> Iterator[pa.RecordBatch]:
    """Yield the result of a query, naming the file in its errors."""
    with duckdb_errors("read rows", path):
        yield from connection.execute(query).to_arrow_reader(BATCH_ROWS)


def _as_field(column: Column) -> ParquetField:
    children = tuple(_as_field(child) for child in column.children)
    kind = column.type if column.is_nested else "leaf"
    return ParquetField(column.name, column.column_id, kind, column.sql_type, children)
