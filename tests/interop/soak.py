"""Workers of a soak: each a process of its own that works on one lake until a time is up."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ducklake.lake.errors import CatalogUnavailable, CommitConflict, StorageError
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.spark.operations import ingest_batches, run_operation
from airflow_provider_ducklake.spark.runner import LocalRunner
from tests.interop.merges import merge_into
from tests.support.reference import ReferenceClient

TABLE = "main.t"
RANGE = 1_000_000  # ids of one writer
# A merge by key has to read the table, and to commit, between two rounds of upkeep.
PAUSE = 1.0  # seconds
# After each, the client leaves a connection to PostgreSQL open until its process ends, whatever
# becomes of the session; the server has a hundred for all. So another process goes on.
REFUSALS = 30
# Of a process that has only imported, and waits.
FORKS = multiprocessing.get_context("fork")
Rows = dict[int, int]  # id -> v, as a writer knows it committed them
# Another was first; or the clean-up, which waits for nobody here, removed what was being read.
_BEATEN = (CommitConflict, CatalogUnavailable, StorageError)
_WHY_BEATEN = ("again", "race", "No such file", "No files found")
_COMPACTION: tuple[tuple[str, dict[str, str]], ...] = (
    ("merge_adjacent_files", {}),
    ("flush_inlined_data", {}),
    ("rewrite_data_files", {"delete_threshold": "0.1"}),
)
_CLEANING: tuple[tuple[str, dict[str, str]], ...] = (
    # More than one statement lasts: a stock client reads in them what it conflicts with.
    ("expire_snapshots", {"retain_last": "50"}),
    ("cleanup_old_files", {"cleanup_all": "true", "force": "true"}),
)


@dataclass(slots=True)
class StockWriting:
    """What a stock writer hands on to its next process.

    Attributes:
        number: Which writer; says whose ids are its own.
        chance: Decides what is done.
        rows: What it committed.
        following: The next id.
        done: Statements by kind.
    """

    number: int
    chance: random.Random
    rows: Rows
    following: int
    done: Counter[str]

    @classmethod
    def beginning(cls, number: int) -> StockWriting:
        """Return what a writer knows that has done nothing."""
        return cls(number, random.Random(number), {}, number * RANGE, Counter())

    def statement(self) -> tuple[str, str, Rows]:
        """Return the kind of what is done next, its SQL, and what is there if it succeeds."""
        first, mine = self.number * RANGE, dict(self.rows)
        kind = self.chance.choice(("insert", "insert", "delete", "update"))
        if kind == "insert":
            # Some stay in the catalog, others become a file.
            number = self.chance.choice((1, 3, 30))
            new = {self.following + i: self.chance.randrange(100) for i in range(number)}
            self.following += number
            values = ", ".join(f"({key}, {value})" for key, value in new.items())
            return kind, f"INSERT INTO {TABLE} VALUES {values}", mine | new
        rest = self.chance.randrange(5)
        chosen = {key for key in mine if key % 5 == rest}
        where = f"id BETWEEN {first} AND {first + RANGE - 1} AND id % 5 = {rest}"
        if kind == "delete":
            left = {key: value for key, value in mine.items() if key not in chosen}
            return kind, f"DELETE FROM {TABLE} WHERE {where}", left
        changed = {key: mine[key] + 1000 for key in chosen}
        return kind, f"UPDATE {TABLE} SET v = v + 1000 WHERE {where}", mine | changed


def stock_writer(
    location: CatalogLocation, number: int, seconds: float, answer: Connection
) -> None:
    """Insert, delete and update rows of a range of ids by a stock client; tell what is there."""
    writing, end = StockWriting.beginning(number), time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        ours, theirs = FORKS.Pipe(duplex=False)
        process = FORKS.Process(target=_write_by_stock, args=(location, writing, left, theirs))
        process.start()
        theirs.close()
        writing = ours.recv()
        process.join(60)
    answer.send((writing.rows, writing.done))


def _write_by_stock(
    location: CatalogLocation, writing: StockWriting, seconds: float, answer: Connection
) -> None:
    client = ReferenceClient(location.attach_string, metadata_schema=location.metadata_schema)
    end, refused = time.monotonic() + seconds, 0
    while time.monotonic() < end and refused < REFUSALS:
        kind, statement, rows = writing.statement()
        try:
            client.sql(statement)
        except duckdb.Error:
            # Beaten by another commit, or by a clean-up of what it was reading: not done.
            refused += 1
            writing.done["refused"] += 1
            client.forget()
            continue
        writing.rows = rows
        writing.done[kind] += 1
    client.close()
    answer.send(writing)


def our_writer(location: CatalogLocation, number: int, seconds: float, answer: Connection) -> None:
    """Ingest, merge by key and register rows of a range of ids; tell what is there."""
    lake, rows, following = Lake.open(location), Rows(), number * RANGE
    chance, done = random.Random(number), Counter[str]()
    raw = Path(lake.data_path).parent / "raw"
    raw.mkdir(exist_ok=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        kind = chance.choice(("ingest", "merge", "register"))
        new = {following + i: i for i in range(20)}
        following += len(new)
        if kind == "merge" and rows:
            new |= {key: rows[key] + 7 for key in chance.sample(sorted(rows), 10)}
        data = pa.table({"id": pa.array(new, pa.int64()), "v": pa.array(new.values(), pa.int64())})
        try:
            if kind == "ingest":
                ingest_batches(lake, TABLE, data.to_batches())
            elif kind == "merge":
                merge_into(lake, TABLE, data.to_batches(), {"merge_keys": "id"})
            else:
                source = raw / f"{following}.parquet"
                pq.write_table(data, source)
                _run(lake, "add_data_files", sources=(str(source),), tables=(TABLE,))
        except _BEATEN:
            done[f"{kind} refused"] += 1
            continue
        rows |= new
        done[kind] += 1
    answer.send((rows, done))


def compactor(location: CatalogLocation, number: int, seconds: float, answer: Connection) -> None:
    """Merge, flush and rewrite in turn; tell what was done."""
    lake, done = Lake.open(location), Counter[str]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, options in _COMPACTION:
            _keep_up(lake, name, options, done)
        time.sleep(PAUSE)
    answer.send(({}, done))


def cleaner(location: CatalogLocation, number: int, seconds: float, answer: Connection) -> None:
    """Expire, clean up and sweep in turn; tell what was done.

    Before each sweep all files that are in use are made to look old, so that nothing but the
    catalog protects them, and one that nobody knows is put beside them.
    """
    lake, done = Lake.open(location), Counter[str]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, options in _CLEANING:
            _keep_up(lake, name, options, done)
        try:
            _let_age(lake)
        except CatalogUnavailable:
            continue
        orphan = Path(lake.data_path, f"orphan-{done.total()}.parquet")
        orphan.parent.mkdir(exist_ok=True)
        orphan.write_bytes(b"PAR1")
        os.utime(orphan, (0, 0))
        _keep_up(lake, "delete_orphaned_files", {"max_fraction": "1"}, done)
        done["orphans swept"] += not orphan.exists()
        orphan.unlink(missing_ok=True)
        time.sleep(PAUSE)
    answer.send(({}, done))


def _let_age(lake: Lake) -> None:
    with lake.view() as view:
        table = view.table(TABLE)
        files = view.live_files(table)
    paths = [file.path for file in files]
    paths += [delete.path for file in files for delete in file.delete_files]
    for path in paths:
        with suppress(FileNotFoundError):
            os.utime(path, (0, 0))


def _keep_up(lake: Lake, name: str, options: dict[str, str], done: Counter[str]) -> None:
    try:
        result = _run(lake, name, options)
    except _BEATEN:
        done[f"{name} refused"] += 1
        return
    failed = [table.error or "" for table in result.failed_tables]
    assert all(any(why in error for why in _WHY_BEATEN) for error in failed), failed
    assert not result.failures, result.failures
    done[name] += 1


def _run(
    lake: Lake,
    name: str,
    options: dict[str, str] | None = None,
    *,
    tables: Sequence[str] = (),
    sources: Sequence[str] = (),
) -> OperationResult:
    runner = LocalRunner()
    return run_operation(name, lake, options or {}, runner=runner, tables=tables, sources=sources)
