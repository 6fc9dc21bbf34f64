"""Commits as a tenant makes them: one at a time, and as many a second as some writers manage."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier
from typing import Any, Final
from uuid import uuid4

from airflow_provider_ducklake.lake.append import append_files
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.model import WrittenFile
from airflow_provider_ducklake.lake.statistics import ColumnStatistics

_CATALOGS_A_WRITER: Final = 8
# Loaded once, not by each writer: DuckDB imports the last two with its first bound parameter.
_PRELOADED: Final = ("benchmarks.store_writers", "pandas", "pyarrow")


class Clock:
    """Times what runs in its block."""

    seconds = 0.0

    def __enter__(self) -> Clock:
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began


def open_lake(conninfo: str, catalog: str) -> Lake:
    """Return a catalog of a store as the role of a connection string opens it."""
    return Lake.open(CatalogLocation.parse(f"ducklake:postgres:{conninfo}", catalog=catalog))


def written_file(directory: str) -> WrittenFile:
    """Return the facts of a file of `events` as a kernel reports them; there is no such file."""
    bounds = (
        ("0", "999"),
        ("2026-01-01 00:00:00", "2026-01-01 00:16:39"),
        ("0.0", "142.7"),
        ("note 0", "note 999"),
    )
    columns = tuple(
        ColumnStatistics(column, 4096, 1000, 0, *pair, False if column == 3 else None)
        for column, pair in enumerate(bounds, start=1)
    )
    return WrittenFile(f"{directory}ducklake-{uuid4()}.parquet", 1000, 19459, 483, columns)


def shares(catalogs: Sequence[str], writers: int, *, together: bool) -> list[list[str]] | None:
    """Return the catalogs of each writer, the same one for all if `together`; None if too few."""
    if together:
        return [[catalogs[0]]] * writers
    each = min(_CATALOGS_A_WRITER, len(catalogs) // writers)
    return [list(catalogs[i * each : (i + 1) * each]) for i in range(writers)] if each else None


def commits_a_second(conninfo: str, catalogs: Sequence[Sequence[str]], seconds: float) -> float:
    """Return how many commits of one file some writers make, each a process of its own.

    Args:
        conninfo: libpq connection string of a role that may write.
        catalogs: For each writer those it commits to in turn.
        seconds: How long they go on.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOADED))
    barrier, results = context.Barrier(len(catalogs)), context.SimpleQueue()
    processes = [
        context.Process(target=_write, args=(conninfo, own, barrier, seconds, results))
        for own in catalogs
    ]
    for process in processes:
        process.start()
    rate = sum(results.get() for _ in processes)
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit("a writer failed, see above")
    return float(rate)


def _write(
    conninfo: str, catalogs: Sequence[str], barrier: Barrier, seconds: float, results: Any
) -> None:
    rate = 0.0
    try:
        lakes = [open_lake(conninfo, name) for name in catalogs]
        tables = [lake.table("events") for lake in lakes]
        # The first commit of a process does some work for all.
        append_files(lakes[0], tables[0], [written_file(tables[0].data_path)])
        barrier.wait(120)
        done = 0
        with Clock() as clock:
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                turn = done % len(lakes)
                append_files(lakes[turn], tables[turn], [written_file(tables[turn].data_path)])
                done += 1
        rate = done / clock.seconds
    finally:
        results.put(rate)
