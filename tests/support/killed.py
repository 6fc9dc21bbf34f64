"""Our operations in processes of their own, which SIGKILL ends at a point that is named.

The processes are forked from one that has everything imported and has never done anything.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

import pyarrow as pa

from airflow_provider_ducklake.lake import fault_points
from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.fault_points import FaultPoint, Fuse
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.remote_catalog import checked_out
from airflow_provider_ducklake.lake.results import OperationResult, TableResult
from airflow_provider_ducklake.spark.operations import (
    _removal,
    cleanup,
    ingest_batches,
    orphans,
    run_operation,
    snapshots,
)
from airflow_provider_ducklake.spark.runner import LocalRunner

Result = OperationResult | TableResult
PROCESSES: Final = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])


@dataclass(frozen=True, slots=True)
class Work:
    """One job, as a retry of it would be too.

    Attributes:
        operation: Its name.
        tables: Names of tables.
        options: Options as text.
        sources: Files to bring in.
        rows: For `ingest`.
        key: Identity of the job.
        in_bucket: Work on a copy of the catalog that is put back, as if it were in a bucket.
    """

    operation: str
    tables: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    rows: pa.Table | None = None
    key: str = "run-1"
    in_bucket: bool = False

    def run(self, location: CatalogLocation) -> Result:
        """Do it in this process."""
        with self._lake(location) as lake:
            info = CommitInfo(key=self.key)
            if self.rows is not None:
                (table,) = self.tables
                return ingest_batches(lake, table, self.rows.to_batches(), info=info)
            return run_operation(
                self.operation,
                lake,
                self.options,
                runner=LocalRunner(),
                tables=self.tables,
                sources=self.sources,
                commit=info,
            )

    @contextmanager
    def _lake(self, location: CatalogLocation) -> Iterator[Lake]:
        if not self.in_bucket:
            yield Lake.open(location)
            return
        # Nobody waits for the lease of a job that was killed: tests of leases do.
        with checked_out(f"file://{location.target}", lease_seconds=0) as checkout:
            lake = Lake.open(checkout.location)
            lake.before_deleting = checkout.make_current
            yield lake


def passes_of(work: Work, location: CatalogLocation) -> tuple[Counter[FaultPoint], Result]:
    """Let a process do some work; return how often it passed each point, and the result."""
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_count, args=(work, location, theirs))
    process.start()
    theirs.close()
    try:
        told: tuple[Counter[FaultPoint], Result] = ours.recv()
    except EOFError:
        raise AssertionError(f"{work.operation} failed, see its traceback") from None
    finally:
        process.join(60)
    return told


def kill(work: Work, location: CatalogLocation, point: FaultPoint, time: int = 1) -> None:
    """Let a process do some work until it reaches a point for the n-th time, and dies there."""
    kill_in(partial(_work, work, location), point, time)


def kill_in(call: Callable[[], object], point: FaultPoint, time: int = 1) -> None:
    """Let a process call a function, which can be pickled, and die at a point."""
    fuse = f"{point.value}:{time}"
    process = PROCESSES.Process(target=_run_armed, args=(call, fuse))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL, f"{call} passed {fuse}"


def _work(work: Work, location: CatalogLocation) -> Result:
    _make_small_batches()
    return work.run(location)


def _run_armed(call: Callable[[], object], fuse: str) -> None:
    fault_points.on_reach = Fuse(fuse)
    call()


def _count(work: Work, location: CatalogLocation, answer: Connection) -> None:
    with counted() as passed:
        result: Any = _work(work, location)
    answer.send((passed, result))


@contextmanager
def counted() -> Iterator[Counter[FaultPoint]]:
    """Count how often this process passes each point."""
    passed: Counter[FaultPoint] = Counter()

    def count(point: FaultPoint) -> None:
        passed[point] += 1

    before, fault_points.on_reach = fault_points.on_reach, count
    yield passed
    fault_points.on_reach = before


def _make_small_batches() -> None:
    """Let a few files and snapshots be several batches."""
    snapshots.BATCH = 2
    _removal.BATCH, cleanup.ACKNOWLEDGED, orphans.ROUND = 1, 2, 2
