"""Loading Parquet files: ours both ways, the extension's INSERT, and Spark's own Parquet writer."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.spark.operations import run_operation
from airflow_provider_ducklake.spark.runner import SparkRunner
from airflow_provider_ducklake.spark.session import sql_session
from benchmarks.common import ROWS, Outcome, attached, best_of, one, report, spark_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(arguments: Sequence[str]) -> int:
    """Write source files, let each contender load them, print times and ratios.

    Returns:
        0, or 1 when a contender loaded other rows than there are.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks ingest", description=__doc__)
    parser.add_argument("--files", type=int, default=20, help="source files (20)")
    parser.add_argument("--rows", type=int, default=500_000, help="rows in each (500000)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each, the best counts (3)")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-ingest-") as scratch:
        source, target = Path(scratch, "source"), Path(scratch, "target")
        before = _make(source, given.files, given.rows)
        size = sum(path.stat().st_size for path in source.glob("*.parquet"))
        with spark_context() as context:
            spark = sql_session(context)
            print(
                f"\n{given.files} files, {size / 1e6:.0f} MB, {given.files * given.rows:,} rows of "
                f"8 columns; {os.cpu_count()} cores; best of {given.repeat}"
            )
            contenders: dict[str, Callable[[], None]] = {
                "Spark's Parquet writer": lambda: spark.read.parquet(str(source)).write.parquet(
                    f"{target}/data"
                ),
                "extension, 2 threads": lambda: _by_extension(source, target),
                "ours, through Spark": lambda: _by_us(spark, source, target, False),
                "ours, files as they are": lambda: _by_us(spark, source, target, True),
            }
            outcomes = [
                _measure(name, load, target, given.repeat) for name, load in contenders.items()
            ]
    return report(outcomes, before)


def _measure(name: str, load: Callable[[], None], target: Path, repeat: int) -> Outcome:
    def prepare() -> None:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()

    seconds = best_of(repeat, prepare, load)
    files = sorted(target.rglob("*.parquet"))
    return Outcome(name, seconds, len(files), _checksum(target))


def _by_extension(source: Path, target: Path) -> None:
    with attached(target, 2, f"DATA_PATH '{target}/data/'") as session:
        session.execute(f"CREATE TABLE sales AS FROM read_parquet('{source}/*.parquet')")


def _by_us(spark: SparkSession, source: Path, target: Path, as_they_are: bool) -> None:
    location = CatalogLocation("sqlite", f"{target}/catalog.sqlite")
    lake = Lake.create(replace(location, data_path=f"{target}/data/"))
    result = run_operation(
        "ingest",
        lake,
        {"create_table": "true"},
        runner=SparkRunner(spark.sparkContext),
        tables=["sales"],
        sources=[str(source)],
        as_they_are=as_they_are,
        data=lambda _: spark.read.parquet(str(source)),
        report=lambda _: None,
    )
    if result.is_failed:
        sys.exit(f"the ingest failed: {result}")


def _make(source: Path, files: int, rows: int) -> tuple[Any, ...]:
    """Write the source files and return the checksum of their rows."""
    source.mkdir()
    with duckdb.connect(":memory:") as session:
        for number in range(files):
            query = ROWS.replace("$rows", str(rows)).replace("$file", str(number))
            session.execute(f"COPY ({query}) TO '{source}/{number:04}.parquet'")
    return _checksum(source)


def _checksum(home: Path) -> tuple[Any, ...]:
    columns = 'id, customer, epoch_us("at"), day, price, quantity, product, token'
    with duckdb.connect(":memory:") as session:
        return one(
            session,
            f"SELECT count(*), sum(hash({columns})) FROM read_parquet('{home}/**/*.parquet', "
            "hive_partitioning = false)",
        )
