"""Reading sources as DataFrames, and writing a DataFrame's rows to data files by the kernels."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ducklake.kernels.append import append
from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.tasks import AppendTask, StageTask
from airflow_provider_ducklake.kernels.upsert_source import stage
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError, LakeError
from airflow_provider_ducklake.lake.fault_points import FaultPoint, reach
from airflow_provider_ducklake.lake.model import WrittenFile
from airflow_provider_ducklake.spark.failures import cause_of, hint_for
from airflow_provider_ducklake.spark.runner import error_named
from airflow_provider_ducklake.spark.schema import ColumnMatch, quote_name, spark_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame, SparkSession

_NAMED = 3  # sources an error names
_BY_ENDING = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".orc": "orc", ".avro": "avro"}


def read_source(
    spark: SparkSession,
    sources: Sequence[str],
    *,
    source_format: str | None = None,
    options: Mapping[str, str] | None = None,
    sql: str | None = None,
) -> DataFrame:
    """Return the rows of some files or of a table Spark knows, through a query if there is one.

    Args:
        spark: The session.
        sources: Paths or patterns, or with format `table` one table name; may be empty when
            `sql` names its own tables.
        source_format: A Spark format, or `table`; None decides by the file ending.
        options: Options of Spark's reader.
        sql: A query over the source under the name `source`.

    Raises:
        BadInput: The source is not there or cannot be read.
        ConfigurationError: There is nothing to read.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        data = _load(spark, sources, source_format, options or {})
        if sql is None:
            if data is None:
                raise ConfigurationError("ingest needs a source: give --source PATH or --sql QUERY")
            return data
        if data is not None:
            data.createOrReplaceTempView("source")
        return spark.sql(sql)
    except (PySparkException, Py4JJavaError) as error:
        raise BadInput(
            f"{_named(sources)} cannot be read: {cause_of(error)}{hint_for(sources)}"
        ) from error


def _named(sources: Sequence[str]) -> str:
    more = len(sources) - _NAMED
    shown = ", ".join(sources[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"the source {shown}" if sources else "the query"


def format_of(sources: Sequence[str], source_format: str | None) -> str:
    """Return the Spark format of some files: the one given, or what the first one's ending says."""
    ending = os.path.splitext(sources[0].rstrip("/*"))[1] if sources else ""
    return source_format or _BY_ENDING.get(ending, "parquet")


def _load(
    spark: SparkSession,
    sources: Sequence[str],
    source_format: str | None,
    options: Mapping[str, str],
) -> DataFrame | None:
    if not sources:
        return None
    if source_format == "table":
        if len(sources) != 1:
            raise ConfigurationError("format table takes one table name as --source")
        return spark.table(sources[0])
    reader = spark.read.format(format_of(sources, source_format))
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(list(sources))


def write_files(
    data: DataFrame,
    match: ColumnMatch,
    task: AppendTask | StageTask,
    settings: KernelSettings,
    description: str,
) -> list[WrittenFile]:
    """Write a DataFrame's rows to files, each task its own, and return what was written.

    Only files named in the answers of tasks that succeeded are returned; those of retried or
    speculative tasks stay behind as orphans.

    Raises:
        BadInput: A value does not fit its column, or the source broke while it was read.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql import functions

    spark = data.sparkSession
    rows, aside = (task.rows, task.aside) if isinstance(task, StageTask) else (task, ())
    spark.sparkContext.setJobDescription(f"{description}: writing {rows.directory}")
    more = (functions.col(quote_name(name)) for name in aside)
    chosen = _gathered(data.select(*_selected(match, rows), *more), rows)
    answers = chosen.mapInArrow(_Writer(task, settings), "kind string, payload binary")
    try:
        answered = answers.collect()
    except (PySparkException, Py4JJavaError) as error:
        raise BadInput(f"the rows could not be read or written: {cause_of(error)}") from error
    files: list[WrittenFile] = []
    failure: LakeError | None = None
    for kind, payload in answered:
        if kind == "files":
            files += pickle.loads(bytes(payload))
        else:
            failure = failure or error_named(kind, bytes(payload).decode())
        reach(FaultPoint.TASK_DONE)
    if failure is not None:
        from airflow_provider_ducklake.storage import open_store

        open_store(rows.directory, settings.storage).delete(file.path for file in files)
        raise failure
    return files


def _selected(match: ColumnMatch, task: AppendTask) -> Iterator[Expression]:
    """Name every column as the table does; one the data lacks gets its default."""
    from pyspark.sql import functions

    extra = {column.name for column in match.extra}
    for column in task.columns:
        given = match.given.get(column.column_id, column.name if column.name in extra else None)
        if given is not None:
            yield functions.col(quote_name(given)).alias(column.name)
        elif column.is_nested:
            yield functions.lit(None).cast(spark_type(column)).alias(column.name)
        else:
            # As text: the kernel reads it as the column's own type, which Spark may not have.
            yield functions.lit(column.default_value).cast("string").alias(column.name)


def _gathered(data: DataFrame, task: AppendTask) -> DataFrame:
    """Bring rows of one partition together, so that a partition is not scattered over files.

    This only decides which task writes a row; its partition value is computed by the kernel.
    """
    if task.partition is None:
        return data
    by_id = {column.column_id: column for column in task.columns}
    keys = [
        expression
        for field in task.partition.fields
        for expression in _keys(by_id[field.column_id], field.transform)
    ]
    return data.repartition(*keys)


def _keys(column: Column, transform: str) -> list[Expression]:
    from pyspark.sql import functions

    value = functions.col(quote_name(column.name))
    parts = {"year": functions.year, "month": functions.month, "day": functions.day}
    if transform in parts:
        return [parts[transform](value)]
    if transform == "hour":
        return [functions.hour(value)]
    if transform.startswith("bucket("):
        buckets = int(transform[len("bucket(") : -1])
        return [functions.abs(functions.hash(value)) % buckets]
    return [value]


class _Writer:
    """What a Spark task does with its rows: hand them to a kernel."""

    def __init__(self, task: AppendTask | StageTask, settings: KernelSettings) -> None:
        self._task = task
        self._settings = settings

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        try:
            if isinstance(self._task, StageTask):
                files = stage(batches, self._task, self._settings)
            else:
                files = append(batches, self._task, self._settings)
            kind, payload = "files", pickle.dumps(files)
        except LakeError as error:
            kind, payload = type(error).__name__, str(error).encode()
        yield pa.RecordBatch.from_pydict({"kind": [kind], "payload": [payload]})
