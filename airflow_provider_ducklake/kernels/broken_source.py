"""Which data file is the broken one, when what failed was writing the rows of many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb

from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    duckdb_errors,
    open_connection,
)
from airflow_provider_ducklake.kernels.projection import SourceFile, project_source
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import ConfigurationError, LakeError, StorageError


@contextmanager
def blamed_on_sources(
    sources: Sequence[SourceFile], columns: Sequence[Column], settings: KernelSettings
) -> Iterator[None]:
    """Have an error of the block name the source that cannot be read, if there is one.

    DuckDB reads while it writes, and tells of a damaged page as a failure of the output. So after
    a failure, and only then, each source is read alone, on a connection the error did not break.
    The block has closed its own by then, so that a task has the memory of one.

    Args:
        sources: Opened data files; the block may fill it in.
        columns: Columns of the table that are read from them.
        settings: For the connection.

    Raises:
        LakeError: What reading the first broken source fails with, else the error of the block.
    """
    try:
        yield
    except (StorageError, ConfigurationError):
        raise
    except LakeError:
        for source in sources:
            _read(source, columns, settings)
        raise


def _read(source: SourceFile, columns: Sequence[Column], settings: KernelSettings) -> None:
    projection = project_source(source, columns)
    # Not count(): where the footer says that nothing is NULL, it looks at no value. And as text:
    # what is inside a geometry is looked at by nothing else but the writer.
    reading = (
        f"SELECT bit_xor(hash(COLUMNS(*)::VARCHAR)) FROM "
        f"(SELECT {', '.join(projection.columns)} FROM {projection.source})"
    )
    with (
        duckdb_errors("read data file", source.data_file.path),
        open_connection(settings) as connection,
    ):
        try:
            connection.execute(reading).fetchall()
        except duckdb.OutOfMemoryException:
            return  # that says nothing about the file
