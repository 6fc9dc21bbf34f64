"""Writing rows from Spark tasks to data files, and committing what they wrote as one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from airflow_provider_ducklake.kernels.append import append
from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.tasks import AppendTask
from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.model import WrittenFile
from airflow_provider_ducklake.lake.options import OperationOptions
from airflow_provider_ducklake.spark.credentials import receive
from airflow_provider_ducklake.spark.operations._job import Job, discard
from airflow_provider_ducklake.spark.operations._write_plan import (
    INGEST_OPTIONS,
    PlannedWrite,
    plan_write,
)
from airflow_provider_ducklake.spark.operations.ingest import commit_write
from airflow_provider_ducklake.spark.runner import LocalRunner
from airflow_provider_ducklake.spark.schema import ColumnMatch, columns_of
from airflow_provider_ducklake.spark.source.options import (
    TARGET,
    WRITE_OPTIONS,
    checked,
    open_lake,
    required,
)


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """What a write was asked for; it goes to the tasks, so it holds no lake and no password.

    Attributes:
        given: The options as Spark has them.
        known: The names there may be among them.
        overwrite: All rows there are now go.
        credentials_file: From `credentials.hand_over`.
    """

    given: Mapping[str, str]
    known: tuple[str, ...]
    overwrite: bool
    credentials_file: str | None

    def options(self) -> OperationOptions:
        """Return the options, checked."""
        return checked(self.given, self.known)

    def lake(self) -> Lake:
        """Return the lake; for the driver alone."""
        return open_lake(self.options(), receive(self.credentials_file))

    def job(self, key: str | None = None) -> Job:
        """Return the job of `ingest` this amounts to.

        Args:
            key: Identity of the work; None takes the option `commit_key`.
        """
        given, lake = self.options(), self.lake()
        mode = "append"
        if self.overwrite:
            mode = given.choice("overwrite", ("table", "partitions"), "table")
            mode = "overwrite" if mode == "table" else "overwrite_partitions"
        target = {name: value for name in TARGET if (value := given.text(name)) is not None}
        return Job(
            operation="spark_write",
            lake=lake,
            runner=LocalRunner(),
            options=OperationOptions("spark_write", target | {"mode": mode}, INGEST_OPTIONS),
            settings=KernelSettings(lake.storage, given.text("memory_limit") or "1GB"),
            tables=(required(given, "table"),),
            info=CommitInfo(
                given.text("author"), given.text("message"), {}, key or given.text("commit_key")
            ),
        )


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What one task tells the committer: its files, and the table they were written for."""

    planned: PlannedWrite
    files: tuple[WrittenFile, ...]


class FileWriter:
    """What both writers share: each task writes its own files, the driver commits them."""

    def __init__(self, request: WriteRequest, schema: StructType) -> None:
        """Find out where the rows go.

        Raises:
            LakeError: One of its kinds: a wrong option, no such table, columns that do not match.
        """
        self.request = request
        job = request.job()
        planned = plan_write(job, columns_of(schema))
        size = request.options().size("target_file_size")
        if size is not None:
            options = replace(planned.task.options, target_file_size=size)
            task = replace(planned.task, options=options)
            planned = replace(planned, task=task)
        self._planned = planned
        self._settings = job.settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a task's rows; nothing of it is live before the commit."""
        match, task = self._planned.match, self._planned.task
        rows = (table_rows(batch, match, task) for batch in iterator if batch.num_rows)
        return Written(self._planned, append(rows, task, self._settings))

    def commit_files(self, messages: Iterable[WriterCommitMessage | None], job: Job) -> None:
        """Commit the files of all tasks as one snapshot, once under the job's key."""
        written = [message for message in messages if isinstance(message, Written)]
        planned = written[0].planned if written else self._planned
        commit_write(job, planned, [file for message in written for file in message.files])

    def discard_files(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the files of a write some task of which failed.

        Where every task has answered it was the commit that failed. Then it has removed the files
        itself, or does not know whether they are live: they stay, and if no catalog names them
        delete_orphaned_files takes them.
        """
        if all(message is not None for message in messages):
            return
        written = (message for message in messages if isinstance(message, Written))
        discard(self.request.lake(), (file.path for one in written for file in one.files))


class DuckLakeWriter(FileWriter, DataSourceArrowWriter):
    """Appends the rows of a DataFrame to a table, or replaces its rows by them."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of all tasks as one snapshot."""
        self.commit_files(messages, self.request.job())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what was written in vain."""
        self.discard_files(messages)


def batch_writer(
    given: Mapping[str, str], schema: StructType, overwrite: bool, credentials_file: str | None
) -> DuckLakeWriter:
    """Return the writer of a DataFrame."""
    request = WriteRequest(dict(given), WRITE_OPTIONS, overwrite, credentials_file)
    return DuckLakeWriter(request, schema)


def table_rows(batch: pa.RecordBatch, match: ColumnMatch, task: AppendTask) -> pa.RecordBatch:
    """Return a batch under the names of the table's columns; one it lacks gets its default."""
    extra = {column.name for column in match.extra}
    arrays = {}
    for column in task.columns:
        given = match.given.get(column.column_id, column.name if column.name in extra else None)
        if given is not None:
            arrays[column.name] = batch.column(batch.schema.get_field_index(given))
        elif column.is_nested or column.default_value is None:
            arrays[column.name] = pa.nulls(batch.num_rows)
        else:
            # As text: the kernel reads it as the column's own type.
            arrays[column.name] = pa.repeat(column.default_value, batch.num_rows)
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
