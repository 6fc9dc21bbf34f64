"""Commits beside other writers: nobody loses a row, and no file or id is given twice."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.errors import CatalogUnavailable, CommitConflict
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.spark.operations import run_operation
from tests.interop.aftermath import life_goes_on
from tests.interop.catalog import live_files
from tests.interop.interference import Interference
from tests.interop.judge import Judge
from tests.interop.palette import arrow_table, pairs
from tests.support.lakes import LakeUnderTest, on_two_kinds

TYPES = {"id": "INTEGER"}
WORK: dict[str, dict[str, Any]] = {
    "merge_adjacent_files": {},
    "rewrite_data_files": {"delete_threshold": 0},
    "flush_inlined_data": {},
}


def _fill(judge: Judge, *, inlining: int = 0) -> None:
    """Make something to merge, to rewrite and to flush."""
    judge.client.set_option("data_inlining_row_limit", 0)
    with judge.without_checks():
        judge.create_table("main.t", TYPES)
        judge.insert_values("main.t", (1,), (2,), (3,))
        judge.insert_values("main.t", (4,), (5,), (6,))
        judge.insert_values("main.t", (7,), (8,), (9,))
        judge.delete("main.t", "id = 9", lambda row: row["id"] == 9)
        judge.client.set_option("data_inlining_row_limit", 5)
        judge.insert_values("main.t", (10,), (11,))
    judge.client.set_option("data_inlining_row_limit", inlining)


@pytest.mark.parametrize("operation", WORK)
def test_delete_while_files_are_written(judge: Judge, operation: str) -> None:
    """CC-01: a row deleted after the files were planned stays deleted."""
    _fill(judge, inlining=5)
    runner = Interference(judge, lambda: judge.delete("main.t", "id = 8", lambda r: r["id"] == 8))
    judge.upkeep(operation, runner=runner, **WORK[operation])
    assert runner.happened
    judge.check()
    assert not judge.unreferenced_files(), "the loser removes its files"
    if judge.lake.kind == "sqlite":
        life_goes_on(judge, "main.t")


@on_two_kinds
@pytest.mark.parametrize("operation", WORK)
def test_two_runs_of_the_same_upkeep(judge: Judge, operation: str) -> None:
    """CC-03: of two runs on one table one wins; the other ends clean and leaves nothing."""
    _fill(judge)
    runner = Interference(judge, lambda: judge.upkeep(operation, **WORK[operation]))
    judge.upkeep(operation, runner=runner, **WORK[operation])
    assert runner.happened
    judge.check()
    assert not judge.unreferenced_files()
    scheduled = judge.catalog()["ducklake_files_scheduled_for_deletion"]
    paths = [row["path"] for row in scheduled]
    assert len(paths) == len(set(paths)), "a file was retired twice"


def test_parallel_appenders(judge: Judge) -> None:
    """CC-03: ten appenders at once all commit, each once, with ids of their own."""
    judge.create_table("main.t", TYPES)
    judge.client.release()

    def append(start: int) -> int | None:
        rows = pairs([(number,) for number in range(start, start + 3)])
        return judge.operations.ingest("main.t", arrow_table(TYPES, rows).to_batches()).snapshot_id

    with ThreadPoolExecutor(10) as pool:
        made = list(pool.map(append, range(0, 30, 3)))
    assert len(set(made)) == 10
    judge.accept_appends("main.t", [(number,) for number in range(30)])


def test_stock_session_at_the_same_time(judge: Judge) -> None:
    """CC-04: our commits and a stock session's, at full speed, lose no row and share no id."""
    judge.create_table("main.t", TYPES)
    ours, theirs = 12, 12
    rows = [(number,) for number in (*range(ours), *range(1000, 1000 + theirs))]
    judge.client.release()
    lake = judge.lake
    command = [sys.executable, "-m", "tests.interop.stock_writer", lake.attach_string]
    command += [lake.location.metadata_schema or "", "main.t", "1000", str(theirs)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for number in range(ours):
            table = arrow_table(TYPES, pairs([(number,)]))
            judge.operations.ingest("main.t", table.to_batches())
        _, complaints = process.communicate(timeout=180)
    assert process.returncode == 0, complaints
    judge.accept_appends("main.t", rows)


def test_retry_returns_the_first_result(judge: Judge) -> None:
    """A job that is run again under its key finds its commit and does nothing."""
    _fill(judge)
    info = CommitInfo(author="somebody", message="nightly", extra_info={"a": 1}, key="run-1")
    first = judge.upkeep("merge_adjacent_files", commit=info)
    head = judge.model.head
    judge.insert_values("main.t", (50,))
    judge.insert_values("main.t", (51,))
    again = judge.upkeep("merge_adjacent_files", commit=info)
    assert again.tables[0].snapshot_id == first.tables[0].snapshot_id == head
    assert len(live_files(judge.catalog(), "t")) == 4
    made = {s.snapshot_id: s for s in judge.client.snapshots()}[head]
    assert (made.author, made.message) == ("somebody", "nightly")
    assert '"a": 1' in (made.extra_info or "")


def _is_unlocked(lake: LakeUnderTest) -> None:
    """Prove that nobody holds a transaction on the catalog."""
    if lake.kind == "sqlite":
        connection = sqlite3.connect(lake.location.target, timeout=0, isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("ROLLBACK")
        connection.close()
    elif lake.kind == "duckdb":
        # Another process gets the file only when nobody has it open.
        code = "import duckdb, sys; duckdb.connect(sys.argv[1]).close()"
        subprocess.run([sys.executable, "-c", code, lake.location.target], check=True)
    else:
        with psycopg.connect(lake.location.conninfo) as watcher:
            open_ones = watcher.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND state <> 'idle'"
            ).fetchone()
            assert open_ones == (0,)


@pytest.mark.parametrize("operation", WORK)
def test_no_transaction_while_files_are_written(judge: Judge, operation: str) -> None:
    """CC-05: the catalog is free while Parquet is read and written."""
    _fill(judge)
    runner = Interference(judge, lambda: _is_unlocked(judge.lake))
    judge.upkeep(operation, runner=runner, **WORK[operation])
    assert runner.happened


@pytest.mark.parametrize("lake_factory", ["sqlite"], indirect=True)
@pytest.mark.parametrize("operation", WORK)
def test_catalog_locked_at_commit(judge: Judge, operation: str) -> None:
    """CC-05: a SQLite catalog that stays locked gives one clear error and no left-overs."""
    _fill(judge)
    before = judge.fingerprint()
    holder = sqlite3.connect(judge.lake.location.target, isolation_level=None)
    runner = Interference(judge, lambda: holder.execute("BEGIN IMMEDIATE"))
    lake = Lake.open(judge.lake.location, lock_timeout=0.2)
    try:
        options = {name: str(value) for name, value in WORK[operation].items()}
        result = run_operation(operation, lake, options, runner=runner)
        errors = [table.error or "" for table in result.tables]
    except (CatalogUnavailable, CommitConflict) as error:
        errors = [str(error)]
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    assert any("lock" in error for error in errors), errors
    assert judge.fingerprint() == before
    assert not judge.unreferenced_files()
