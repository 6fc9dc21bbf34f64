"""Workers of a soak: each a process of its own that works on one lake until a time is up."""

from __future__ import annotations

import random
import time
from collections import Counter
from multiprocessing.connection import Connection

import duckdb
import pyarrow as pa

from airflow_provider_ducklake.lake.errors import CatalogUnavailable, CommitConflict
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.spark.operations import ingest_batches, run_operation
from airflow_provider_ducklake.spark.runner import LocalRunner
from tests.support.reference import ReferenceClient

TABLE = "main.t"
RANGE = 1_000_000  # ids of one writer
Rows = dict[int, int]  # id -> v, as a writer knows it committed them
_FORCED = {"cleanup_all": "true", "force": "true"}
# A sweep keeps what is younger than a day: files of commits under way are.
_UPKEEP: tuple[tuple[str, dict[str, str]], ...] = (
    ("merge_adjacent_files", {}),
    ("flush_inlined_data", {}),
    ("rewrite_data_files", {"delete_threshold": "0.1"}),
    ("expire_snapshots", {"retain_last": "8"}),
    ("cleanup_old_files", _FORCED),
    ("delete_orphaned_files", {}),
)


def stock_writer(
    location: CatalogLocation, number: int, seconds: float, answer: Connection
) -> None:
    """Insert, delete and update rows of a range of ids by a stock client; tell what is there."""
    client = ReferenceClient(location.attach_string, metadata_schema=location.metadata_schema)
    chance, rows, following = random.Random(number), Rows(), number * RANGE
    statements: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        kind = chance.choice(("insert", "insert", "delete", "update"))
        mine = dict(rows)
        if kind == "insert":
            # Some stay in the catalog, others become a file.
            new = {following + i: chance.randrange(100) for i in range(chance.choice((1, 3, 30)))}
            following += len(new)
            mine |= new
            values = ", ".join(f"({key}, {value})" for key, value in new.items())
            statement = f"INSERT INTO {TABLE} VALUES {values}"
        else:
            rest = chance.randrange(5)
            chosen = [key for key in mine if key % 5 == rest]
            where = (
                f"id BETWEEN {number * RANGE} AND {number * RANGE + RANGE - 1} AND id % 5 = {rest}"
            )
            if kind == "delete":
                statement = f"DELETE FROM {TABLE} WHERE {where}"
                mine = {key: value for key, value in mine.items() if key not in chosen}
            else:
                statement = f"UPDATE {TABLE} SET v = v + 1000 WHERE {where}"
                mine |= {key: mine[key] + 1000 for key in chosen}
        try:
            client.sql(statement)
        except duckdb.Error:
            # Beaten by another commit, or by a clean-up of what it was reading: not done.
            statements["refused"] += 1
            client.forget()
            continue
        rows = mine
        statements[kind] += 1
    client.close()
    answer.send((rows, statements))


def our_writer(location: CatalogLocation, number: int, seconds: float, answer: Connection) -> None:
    """Append rows of a range of ids by our ingest; tell what is there."""
    lake, rows, following = Lake.open(location), Rows(), number * RANGE
    done: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        new = {following + i: i for i in range(20)}
        following += len(new)
        batch = pa.table({"id": pa.array(new, pa.int64()), "v": pa.array(new.values(), pa.int64())})
        try:
            ingest_batches(lake, TABLE, batch.to_batches())
        except (CommitConflict, CatalogUnavailable):
            done["ingest refused"] += 1
            continue
        rows |= new
        done["ingest"] += 1
    answer.send((rows, done))


def upkeep(location: CatalogLocation, number: int, seconds: float, answer: Connection) -> None:
    """Merge, flush, rewrite, expire, clean up and sweep in turn; tell what was done."""
    lake = Lake.open(location)
    done: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, options in _UPKEEP:
            try:
                result = run_operation(name, lake, options, runner=LocalRunner())
            except (CommitConflict, CatalogUnavailable):
                done[f"{name} refused"] += 1
                continue
            failed = [table.error or "" for table in result.failed_tables]
            assert all("plan again" in error or "race" in error for error in failed), failed
            assert not result.failures, result.failures
            done[name] += 1
    answer.send(({}, done))
