"""Merging small files: ours and the reference extension's merge_adjacent_files on equal lakes."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb

from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.spark.operations import run_operation
from airflow_provider_ducklake.spark.runner import LocalRunner, Runner, SparkRunner
from benchmarks.common import ROWS, Outcome, attached, best_of, one, report, spark_context


def main(arguments: Sequence[str]) -> int:
    """Make a lake, give each contender a copy of it, print times and ratios.

    Returns:
        0, or 1 when a contender changed the rows.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks compaction", description=__doc__)
    parser.add_argument("--files", type=int, default=200, help="small files (200)")
    parser.add_argument("--rows", type=int, default=20_000, help="rows in each (20000)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each, the best counts (3)")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-compaction-") as scratch:
        # A catalog knows where its data is, so every copy is put where the first was.
        lake, pristine = Path(scratch, "lake"), Path(scratch, "pristine")
        before = _make(lake, given.files, given.rows)
        lake.rename(pristine)
        size = sum(path.stat().st_size for path in pristine.rglob("*.parquet"))
        with spark_context() as context:
            print(
                f"\n{given.files} files, {size / 1e6:.0f} MB, {given.files * given.rows:,} rows of "
                f"8 columns; {os.cpu_count()} cores; best of {given.repeat}"
            )
            contenders: dict[str, Callable[[Path], None]] = {
                "extension, 1 thread": lambda lake: _merge_by_extension(lake, 1),
                "extension, 2 threads": lambda lake: _merge_by_extension(lake, 2),
                "ours, in this process": lambda lake: _merge_by_us(lake, LocalRunner()),
                "ours, on Spark local[2]": lambda lake: _merge_by_us(lake, SparkRunner(context)),
            }
            outcomes = [
                _measure(name, merge, pristine, lake, given.repeat)
                for name, merge in contenders.items()
            ]
    return report(outcomes, before)


def _measure(
    name: str, merge: Callable[[Path], None], pristine: Path, lake: Path, repeat: int
) -> Outcome:
    def prepare() -> None:
        shutil.rmtree(lake, ignore_errors=True)
        shutil.copytree(pristine, lake)

    seconds = best_of(repeat, prepare, lambda: merge(lake))
    with attached(lake) as session:
        files = one(session, "SELECT file_count FROM ducklake_table_info('lake')")[0]
        return Outcome(name, seconds, int(files), _checksum(session))


def _merge_by_extension(lake: Path, threads: int) -> None:
    with attached(lake, threads) as session:
        session.execute("CALL ducklake_merge_adjacent_files('lake')")


def _merge_by_us(lake: Path, runner: Runner) -> None:
    opened = Lake.open(CatalogLocation("sqlite", f"{lake}/catalog.sqlite"))
    result = run_operation("merge_adjacent_files", opened, {}, runner=runner, report=lambda _: None)
    if result.failed_tables:
        sys.exit(f"the merge failed: {result.failed_tables[0].error}")


def _make(home: Path, files: int, rows: int) -> tuple[Any, ...]:
    """Make the lake with the extension, a file an insert; return its checksum."""
    home.mkdir()
    with attached(home, 2, f"DATA_PATH '{home}/data/', DATA_INLINING_ROW_LIMIT 0") as session:
        query = ROWS.replace("$rows", str(rows))
        session.execute(f"CREATE TABLE sales AS {query.replace('$file', '0')}")
        for number in range(1, files):
            session.execute(f"INSERT INTO sales {query.replace('$file', str(number))}")
        return _checksum(session)


def _checksum(session: duckdb.DuckDBPyConnection) -> tuple[Any, ...]:
    return one(session, "SELECT count(*), sum(hash(s)), sum(hash(rowid)) FROM sales s")
