"""The Parquet files a job is given: finding them, and reading their footers on the executors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.register import inspect_all
from airflow_provider_ducklake.kernels.tasks import RegisterTask
from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError, LakeError
from airflow_provider_ducklake.lake.model import WrittenFile
from airflow_provider_ducklake.spark.failures import hint_for
from airflow_provider_ducklake.spark.operations._job import Job
from airflow_provider_ducklake.storage import open_store


def find_files(job: Job) -> list[str]:
    """Return the full paths of a job's sources, patterns and folders resolved.

    Raises:
        BadInput: A source names no file.
        ConfigurationError: There are no sources.
        StorageError: The store refused.
    """
    if not job.sources:
        raise ConfigurationError(f"{job.operation} needs files: give --source PATH or PATTERN")
    paths: list[str] = []
    for source in job.sources:
        matches = open_store(source, job.settings.storage).glob(source)
        if not matches:
            raise BadInput(
                f"no Parquet file matches {source!r}: check the path{hint_for([source])}"
            )
        paths += matches
    return paths


def inspect_in_parallel(job: Job, tasks: Sequence[RegisterTask]) -> list[WrittenFile | LakeError]:
    """Return what each file is, or why it does not fit, in the order of the tasks.

    Raises:
        LakeError: The work could not be done at all.
    """
    # A footer takes a millisecond, a Spark task a hundred times that.
    count = min(len(tasks), 32, 1 + len(tasks) // 50)
    slices = [tasks[start::count] for start in range(count)]
    answers = job.runner.run(
        partial(_inspect_files, job.settings), slices, f"{job.operation}: reading footers"
    )
    found: dict[int, WrittenFile | LakeError] = {}
    for start, answer in enumerate(answers):
        if isinstance(answer, LakeError):
            raise answer
        found.update(zip(range(start, len(tasks), count), answer, strict=True))
    return [found[place] for place in range(len(tasks))]


def _inspect_files(
    settings: KernelSettings, tasks: Sequence[RegisterTask]
) -> list[WrittenFile | LakeError]:
    return list(inspect_all(tasks, settings))
