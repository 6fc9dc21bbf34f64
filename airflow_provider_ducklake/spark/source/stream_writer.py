"""Writing a stream: each batch is committed once, by its number and the name of the stream."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.spark.source.options import STREAM_OPTIONS
from airflow_provider_ducklake.spark.source.writer import FileWriter, WriteRequest


class DuckLakeStreamWriter(FileWriter, DataSourceStreamArrowWriter):
    """Commits each batch of a stream once: a batch that comes again adds nothing."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the files of all tasks under the name of the stream and the batch's number."""
        self.commit_files(messages, self.request.job(f"{stream_name(self.request)}/{batchId}"))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what was written in vain."""
        self.discard_files(messages)


def stream_name(request: WriteRequest) -> str:
    """Return what tells a stream from every other, whenever it is started again.

    Raises:
        ConfigurationError: Nothing does.
    """
    given = request.options()
    name = given.text("commit_key") or given.text("checkpointlocation")
    if name is None:
        raise ConfigurationError(
            "a stream needs the option checkpointLocation, or commit_key with a name of its own: "
            "by that and the batch's number a batch that comes again is told"
        )
    return name


def stream_writer(
    given: Mapping[str, str], schema: StructType, overwrite: bool, credentials_file: str | None
) -> DuckLakeStreamWriter:
    """Return the writer of a stream.

    Raises:
        ConfigurationError: Nothing tells this stream from another.
    """
    request = WriteRequest(dict(given), STREAM_OPTIONS, overwrite, credentials_file)
    stream_name(request)
    return DuckLakeStreamWriter(request, schema)
