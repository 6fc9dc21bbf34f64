"""Merging small files: ours and the reference extension's merge_adjacent_files on equal lakes."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.spark.operations import run_operation
from airflow_provider_ducklake.spark.runner import LocalRunner, Runner, SparkRunner
from airflow_provider_ducklake.spark.session import open_context

if TYPE_CHECKING:
    from pyspark import SparkContext

# One row of many types: what a fact table looks like.
_ROWS = """
SELECT $file * $rows + i AS id, (i * 7919 + $file) % 1000 AS customer,
       TIMESTAMP '2026-01-01' + INTERVAL (i % 86400) SECOND AS at,
       DATE '2026-01-01' + ($file % 365)::INTEGER AS day,
       ((i * 31 + $file) % 100000) / 100.0 AS price, i % 17 AS quantity,
       'product ' || (i * 13 % 5000) AS product, md5((i * $file)::VARCHAR) AS token
FROM range($rows) t(i)
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One contender's run: its name, what it took, and the lake afterwards."""

    name: str
    seconds: float
    files: int
    checksum: tuple[Any, ...]


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
        with _spark() as context:
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
    return _report(outcomes, before)


@contextmanager
def _spark() -> Iterator[SparkContext]:
    """Yield an application whose Python workers have been started: neither is what is measured."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--conf spark.log.level=ERROR pyspark-shell")
    with open_context("benchmark", "local[2]") as context:
        context.parallelize(range(2), 2).map(str).collect()
        yield context


def _measure(
    name: str, merge: Callable[[Path], None], pristine: Path, lake: Path, repeat: int
) -> Outcome:
    times = []
    for _ in range(repeat):
        shutil.rmtree(lake, ignore_errors=True)
        shutil.copytree(pristine, lake)
        began = time.perf_counter()
        merge(lake)
        times.append(time.perf_counter() - began)
    with _attached(lake) as session:
        files = _one(session, "SELECT file_count FROM ducklake_table_info('lake')")[0]
        return Outcome(name, min(times), int(files), _checksum(session))


def _report(outcomes: Sequence[Outcome], before: tuple[Any, ...]) -> int:
    base = outcomes[0].seconds
    wrong = 0
    print(f"{'':28}{'seconds':>9}{'ratio':>8}{'files':>7}  rows")
    for outcome in outcomes:
        right = outcome.checksum == before
        wrong += not right
        print(
            f"{outcome.name:28}{outcome.seconds:9.2f}{outcome.seconds / base:8.2f}"
            f"{outcome.files:7}  {'unchanged' if right else 'CHANGED'}"
        )
    return 1 if wrong else 0


def _merge_by_extension(lake: Path, threads: int) -> None:
    with _attached(lake, threads) as session:
        session.execute("CALL ducklake_merge_adjacent_files('lake')")


def _merge_by_us(lake: Path, runner: Runner) -> None:
    opened = Lake.open(CatalogLocation("sqlite", f"{lake}/catalog.sqlite"))
    result = run_operation("merge_adjacent_files", opened, {}, runner=runner, report=lambda _: None)
    if result.failed_tables:
        sys.exit(f"the merge failed: {result.failed_tables[0].error}")


def _make(home: Path, files: int, rows: int) -> tuple[Any, ...]:
    """Make the lake with the extension, a file an insert; return its checksum."""
    home.mkdir()
    with _attached(home, 2, f"DATA_PATH '{home}/data/', DATA_INLINING_ROW_LIMIT 0") as session:
        query = _ROWS.replace("$rows", str(rows))
        session.execute(f"CREATE TABLE sales AS {query.replace('$file', '0')}")
        for number in range(1, files):
            session.execute(f"INSERT INTO sales {query.replace('$file', str(number))}")
        return _checksum(session)


@contextmanager
def _attached(
    lake: Path, threads: int = 2, options: str = ""
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a DuckDB session with the extension and one lake attached as the default."""
    with duckdb.connect(":memory:", config={"threads": threads}) as session:
        for name in ("sqlite_scanner", "ducklake"):
            session.load_extension(_extension(name))
        clause = f" ({options})" if options else ""
        session.execute(f"ATTACH 'ducklake:sqlite:{lake}/catalog.sqlite' AS lake{clause}; USE lake")
        yield session


def _extension(name: str) -> str:
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place, "extensions", f"v{duckdb.__version__}", f"{name}.duckdb_extension")
        if path.is_file():
            return str(path)
    sys.exit(f"duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__} is not installed")


def _one(session: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    row = session.execute(query).fetchone()
    assert row is not None
    return row


def _checksum(session: duckdb.DuckDBPyConnection) -> tuple[Any, ...]:
    return _one(session, "SELECT count(*), sum(hash(s)), sum(hash(rowid)) FROM sales s")
