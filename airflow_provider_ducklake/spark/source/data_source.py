"""The data source as Spark registers it."""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.options import OperationOptions
from airflow_provider_ducklake.lake.scan import table_at
from airflow_provider_ducklake.spark.credentials import receive
from airflow_provider_ducklake.spark.source.options import (
    READ_OPTIONS,
    ReadOptions,
    checked,
    open_lake,
)
from airflow_provider_ducklake.spark.source.planning import Span, offered, resolve
from airflow_provider_ducklake.spark.source.reader import DuckLakeReader, PushdownReader
from airflow_provider_ducklake.spark.source.writer import batch_writer

MEMORY_LIMIT = "1GB"


class DuckLakeDataSource(DataSource):
    """A table of a DuckLake lake, read at a snapshot or written as one."""

    credentials_file: ClassVar[str | None] = None
    _span: Span | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ducklake"

    def schema(self) -> StructType:
        """Return the table's columns as Spark holds them; the snapshot is fixed from now on.

        Raises:
            LakeError: One of its kinds; see `planning.resolve` and `planning.offered`.
        """
        given, lake = self._given()
        options = ReadOptions.of(given)
        with lake.view() as view:
            self._span = resolve(view, options)
            return offered(table_at(view, options.table, self._span.last), options)[1]

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a schema."""
        given, lake = self._given()
        options = ReadOptions.of(given)
        kind = PushdownReader if options.pushdown else DuckLakeReader
        memory = given.text("memory_limit") or MEMORY_LIMIT
        return kind(options, lake, self._span, schema, memory)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a DataFrame of a schema."""
        return batch_writer(self.options, schema, overwrite, self.credentials_file)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream of a schema.

        Raises:
            ConfigurationError: This PySpark has no such writer; see `stream_writer` for others.
        """
        try:
            from airflow_provider_ducklake.spark.source.stream_writer import stream_writer
        except ImportError:
            raise ConfigurationError("writing streams needs PySpark 4.1 or newer") from None
        return stream_writer(self.options, schema, overwrite, self.credentials_file)

    def _given(self) -> tuple[OperationOptions, Lake]:
        given = checked(dict(self.options), READ_OPTIONS)
        return given, open_lake(given, receive(self.credentials_file))


def source_class(credentials_file: str | None) -> type[DuckLakeDataSource]:
    """Return the class to register: one that knows where credentials are handed over.

    Args:
        credentials_file: From `credentials.hand_over`; None leaves workers their environment.
    """
    if credentials_file is None:
        return DuckLakeDataSource

    class WithCredentials(DuckLakeDataSource):
        """Spark sends it to its workers by value."""

    WithCredentials.credentials_file = credentials_file
    return WithCredentials
