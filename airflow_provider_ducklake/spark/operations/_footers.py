"""Reading the footers of many Parquet files on the executors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.register import inspect_all
from airflow_provider_ducklake.kernels.tasks import RegisterTask
from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.lake.model import WrittenFile
from airflow_provider_ducklake.spark.operations._job import Job


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
