"""What the benchmarks share: data, sessions, and the table of what each contender took."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb

from airflow_provider_ducklake.spark.session import open_context

if TYPE_CHECKING:
    from pyspark import SparkContext

# One row of many types: what a fact table looks like.
ROWS: Final = """
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


@contextmanager
def spark_context() -> Iterator[SparkContext]:
    """Yield an application whose Python workers have been started: neither is what is measured."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--conf spark.log.level=ERROR pyspark-shell")
    with open_context("benchmark", "local[2]") as context:
        context.parallelize(range(2), 2).map(str).collect()
        yield context


def best_of(repeat: int, prepare: Callable[[], object], run: Callable[[], object]) -> float:
    """Return the seconds of the quickest of some runs, each prepared anew."""
    times = []
    for _ in range(repeat):
        prepare()
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def report(outcomes: Sequence[Outcome], before: tuple[Any, ...]) -> int:
    """Print what each took, in seconds and against the first; return 1 when rows differ, else 0."""
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


@contextmanager
def attached(
    lake: Path, threads: int = 2, options: str = ""
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a DuckDB session with the extension and one lake attached as the default."""
    with duckdb.connect(":memory:", config={"threads": threads}) as session:
        session.execute("SET enable_progress_bar = false")
        for name in ("sqlite_scanner", "ducklake"):
            session.load_extension(extension(name))
        clause = f" ({options})" if options else ""
        session.execute(f"ATTACH 'ducklake:sqlite:{lake}/catalog.sqlite' AS lake{clause}; USE lake")
        yield session


def extension(name: str) -> str:
    """Return the loadable file of an extension that was installed as a wheel."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place, "extensions", f"v{duckdb.__version__}", f"{name}.duckdb_extension")
        if path.is_file():
            return str(path)
    sys.exit(f"duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__} is not installed")


def one(session: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    """Return the one row of a query."""
    row = session.execute(query).fetchone()
    assert row is not None
    return row


def made_directory(text: str) -> Path:
    """Return a directory given as an argument, made if it is not there."""
    try:
        Path(text).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentTypeError(f"{text}: {error.strerror}") from None
    return Path(text)
