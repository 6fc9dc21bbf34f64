"""Ingest of Parquet files as they are: the kernels read them, and no row passes through the JVM.

Spark has decided already which files there are and which columns they have. What is left, moving
the rows into files of the table, is what a compaction does too, and needs no DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from airflow_provider_ducklake.kernels.partitioning import directory_values
from airflow_provider_ducklake.kernels.rewrite import rewrite
from airflow_provider_ducklake.kernels.tasks import AppendTask, RegisterTask, RewriteTask
from airflow_provider_ducklake.lake.columns import leaves
from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.lake.model import DataFile, WrittenFile
from airflow_provider_ducklake.lake.paths import Location
from airflow_provider_ducklake.spark.operations._job import Job, discard, first_error
from airflow_provider_ducklake.spark.operations._source_files import (
    find_files,
    inspect_in_parallel,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Below this a task of its own costs more than it saves, and makes a file too small to keep.
SMALLEST_GROUP: Final = 64 * 1024 * 1024
# With any other value Spark does not take dates and timestamps for what the file says.
_READ_AS_WRITTEN: Final = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "corrected",
    "spark.sql.parquet.int96RebaseModeInRead": "corrected",
    "spark.sql.parquet.int96TimestampConversion": "false",
}


def copy_files(
    job: Job, data: DataFrame, task: AppendTask, table_name: str
) -> list[WrittenFile] | None:
    """Write the rows of the job's Parquet files to data files of a table, if that can be exact.

    Args:
        job: Its sources are Parquet files, taken as they are.
        data: The same files as Spark reads them.
        task: The table's columns and how files are written.
        table_name: For messages.

    Returns:
        What was written; None where the rows have to go through Spark: for its partitions, for a
        sort order, a VARIANT, where files do not have exactly the table's columns, or are too few
        and large to keep all cores busy.

    Raises:
        StorageError: A file cannot be read or written; what others wrote is removed.
    """
    try:
        groups = _groups(job, data, task, table_name)
    except LakeError as error:
        job.report(f"the rows go through Spark: {error}")
        return None
    orders = [RewriteTask(task.columns, g, task.directory, task.options, (), False) for g in groups]
    answers = job.runner.run(
        partial(rewrite, settings=job.settings), orders, f"{job.operation}: copying files"
    )
    written = [file for answer in answers if not isinstance(answer, LakeError) for file in answer]
    if failure := first_error(answers):
        discard(job.lake, (file.path for file in written))
        raise failure
    return written


def _groups(
    job: Job, data: DataFrame, task: AppendTask, table_name: str
) -> list[tuple[DataFile, ...]]:
    """Return the files to copy, a group for each file to write.

    Raises:
        LakeError: The rows have to go through Spark; the message says why.
    """
    if task.partition is not None or task.sort_keys:
        raise LakeError(f"{table_name} is partitioned or sorted")
    if any(column.type == "variant" for column in leaves(task.columns)):
        # Some that others wrote bring DuckDB down: not only the query, the whole instance.
        raise LakeError(f"{table_name} has a VARIANT column, of which Spark reads more layouts")
    for name, as_written in _READ_AS_WRITTEN.items():
        if str(data.sparkSession.conf.get(name, as_written)).lower() != as_written:
            raise LakeError(f"{name} changes dates or timestamps")
    files = _inspect(job, _paths(job, data), task, table_name)
    parallelism = data.sparkSession.sparkContext.defaultParallelism
    groups = group_files(files, task.options.target_file_size, parallelism)
    if not groups:
        raise LakeError("the files have no rows")
    if len(groups) < min(parallelism, _size(files) // (2 * SMALLEST_GROUP)):
        raise LakeError(f"{len(files)} large files do not keep {parallelism} cores busy")
    return groups


def group_files(
    files: Iterable[WrittenFile], target_file_size: int, parallelism: int
) -> list[tuple[DataFile, ...]]:
    """Put files together, in their order, so that each group becomes one file of a fitting size.

    Args:
        files: Inspected files; those without rows are left out.
        target_file_size: Bytes a group should not exceed, unless it is a single file.
        parallelism: Groups that can be worked on at once.
    """
    files = [file for file in files if file.record_count]
    share = max(_size(files) // max(parallelism, 1), SMALLEST_GROUP)
    limit = min(share, target_file_size)
    groups: list[list[WrittenFile]] = []
    for file in files:
        if not groups or _size(groups[-1]) + file.file_size_bytes > limit:
            groups.append([])
        groups[-1].append(file)
    return [tuple(_as_data_files(group)) for group in groups]


def _as_data_files(files: Iterable[WrittenFile]) -> Iterable[DataFile]:
    start = 0
    for number, file in enumerate(files):
        # Row ids that follow each other need not be written; the commit gives out the real ones.
        yield DataFile(
            data_file_id=number,
            table_id=-1,
            path=file.path,
            record_count=file.record_count,
            file_size_bytes=file.file_size_bytes,
            footer_size=file.footer_size,
            begin_snapshot=0,
            row_id_start=start,
            name_map=file.name_map,
        )
        start += file.record_count


def _paths(job: Job, data: DataFrame) -> list[str]:
    """Return the files; refuse when Spark sees others, or columns in their directories."""
    found = find_files(job)
    by_us = sorted(Location.parse(path).url for path in found)
    by_spark = sorted(Location.from_uri(path).url for path in data.inputFiles())
    if by_us != by_spark:
        raise LakeError("Spark reads other files than those that end in .parquet")
    if any(directory_values(path) for path in found):
        raise LakeError("directories of the files give columns their values")
    return found


def _inspect(
    job: Job, paths: Sequence[str], task: AppendTask, table_name: str
) -> list[WrittenFile]:
    orders = [
        RegisterTask(path, table_name, task.columns, hive_partitioning=False, as_spark_reads=True)
        for path in paths
    ]
    answers = inspect_in_parallel(job, orders)
    if error := first_error(answers):
        raise error
    return [file for file in answers if not isinstance(file, LakeError)]


def _size(files: Iterable[WrittenFile]) -> int:
    return sum(file.file_size_bytes for file in files)
