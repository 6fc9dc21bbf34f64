"""Very long histories: snapshots expire, small files are merged, a bucket is swept and cleaned."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import duckdb

from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.expiry import commit_expiry
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.tables import create_table
from airflow_provider_ducklake.spark.operations import (
    _removal,
    orphans,
    run_operation,
    snapshots,
)
from airflow_provider_ducklake.spark.runner import LocalRunner
from airflow_provider_ducklake.storage import DeleteOutcome, Location, ObjectInfo
from benchmarks.child import Cost, in_child
from benchmarks.common import attached, made_directory, one
from benchmarks.long_history import COLUMNS, LongHistory
from benchmarks.store_filling import running_server

KEPT: Final = 100
_ROOT: Final = "s3://bucket/lake/"
_KILLED_AFTER: Final = 3  # transactions
_LINKS: Final = 20_000  # of one file; a file system has a limit
_ROWS: Final = 80  # a file, which makes about 5 kB


def main(arguments: Sequence[str]) -> int:
    """Run each part at full size and at a tenth of it.

    Returns:
        0, or 1 when something is not as it has to be afterwards.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks limits", description=__doc__)
    parser.add_argument("--snapshots", type=int, default=1_000_000, help="to expire (1000000)")
    parser.add_argument("--files", type=int, default=200_000, help="of these snapshots (200000)")
    parser.add_argument("--merged", type=int, default=100_000, help="small files (100000)")
    parser.add_argument("--objects", type=int, default=1_000_000, help="to sweep (1000000)")
    parser.add_argument("--target", default="512MB", help="size of merged files (512MB)")
    parser.add_argument("--directory", type=made_directory, help="where everything goes meanwhile")
    parser.add_argument("--only", choices=("expiry", "merge", "sweep", "cleanup"), help="one part")
    given = parser.parse_args(arguments)
    print(f"{os.cpu_count()} cores; memory before the work and at its peak")
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="bench-limits-", dir=given.directory) as home:
        if given.only in (None, "expiry"):
            for part in (10, 1):
                history = LongHistory(given.snapshots // part, given.files // part)
                wrong += _expire_on_each(Path(home, f"expiry-{part}"), history)
        if given.only in (None, "merge"):
            for part in (10, 1):
                wrong += _merge(Path(home, f"merge-{part}"), given.merged // part, given.target)
        if given.only in (None, "sweep"):
            for part in (10, 1):
                wrong += _sweep(Path(home, f"sweep-{part}"), given.objects // part)
        if given.only in (None, "cleanup"):
            for part in (10, 1):
                wrong += _clean(Path(home, f"cleanup-{part}"), given.objects // part)
    return 1 if wrong else 0


def _sqlite(home: Path) -> CatalogLocation:
    return CatalogLocation.parse(
        f"ducklake:sqlite:{home}/catalog.sqlite", data_path=f"{home}/data/"
    )


def _expire_on_each(home: Path, history: LongHistory) -> int:
    home.mkdir()
    wrong = _expire(
        _sqlite(home),
        history,
    )
    with running_server(home, []) as server:
        location = CatalogLocation.parse(
            f"ducklake:postgres:{server} dbname=postgres", data_path=f"{home}/data/"
        )
        return wrong + _expire(location, history)


def _expire(location: CatalogLocation, history: LongHistory) -> int:
    """Expire all but the last snapshots, killed once on the way; return 1 when something is off."""
    history.fill(Lake.create(location))
    print(f"\nexpire {history.snapshots:,} snapshots, {history.files:,} files: {location.kind}")
    print("  dry run      ", planned := in_child(_expiry, location, True))
    in_child(_expiry_until_killed, location)
    with Lake.open(location).database.read() as session:
        left = session.value("SELECT count(*) FROM {ducklake_snapshot}")
        scheduled = session.value("SELECT count(*) FROM {ducklake_files_scheduled_for_deletion}")
    expired = history.snapshots + 2 - left
    print(f"  killed after {_KILLED_AFTER} transactions: {expired:,} snapshots are gone, valid")
    print("  the next run ", rest := in_child(_expiry, location, False))
    print("               ", ", ".join(f"{v:,} {k}" for k, v in rest.answer[1].items()))
    freed = history.freed(history.newest - KEPT + 1)
    counts = rest.answer[0]
    return int(
        expired != _KILLED_AFTER * snapshots.BATCH
        or counts["snapshots_expired"] + expired != planned.answer[0]["snapshots_expired"]
        or counts["data_files_scheduled"] + counts["delete_files_scheduled"] + scheduled
        != sum(freed)
        or freed[0] != planned.answer[0]["data_files_scheduled"]
    )


def _expiry(location: CatalogLocation, dry_run: bool) -> tuple[dict[str, int], dict[str, int]]:
    Lake.open(location)  # the database's module is loaded
    with _counted() as calls:
        counts = _run("expire_snapshots", location, {"retain_last": str(KEPT)}, dry_run=dry_run)
    return counts, dict(calls)


def _expiry_until_killed(location: CatalogLocation) -> None:
    batches = iter(range(_KILLED_AFTER))

    def expire(*given: Any, **named: Any) -> Any:
        if next(batches, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return commit_expiry(*given, **named)

    snapshots.commit_expiry = expire  # type: ignore[attr-defined]
    _run("expire_snapshots", location, {"retain_last": str(KEPT)})


@contextmanager
def _counted() -> Iterator[Counter[str]]:
    """Count the statements on the catalog, and the transactions that write."""
    calls: Counter[str] = Counter()

    def count(kind: type[Session], name: str) -> Callable[..., Any]:
        real = getattr(kind, name)

        def counted(session: Session, *given: Any) -> Any:
            calls["statements"] += 1
            return real(session, *given)

        return counted

    for kind in Session.__subclasses__():
        for name in {"_run", "_stream", "insert"} & set(vars(kind)):
            setattr(kind, name, count(kind, name))

    def expire(*given: Any, **named: Any) -> Any:
        calls["transactions"] += 1
        return commit_expiry(*given, **named)

    snapshots.commit_expiry = expire  # type: ignore[attr-defined]
    yield calls


def _run(
    name: str,
    location: CatalogLocation,
    options: Mapping[str, str],
    *,
    runner: LocalRunner | None = None,
    dry_run: bool = False,
) -> dict[str, int]:
    result = run_operation(
        name,
        Lake.open(location),
        options,
        runner=runner or LocalRunner(),
        dry_run=dry_run,
        report=lambda _: None,
    )
    if result.is_failed:
        sys.exit(f"{name} failed: {[*result.failures, *result.failed_tables]}")
    parts = {
        f"{table.table}: {key}": value
        for table in result.tables
        for key, value in (
            ("in", table.files_in),
            ("out", table.files_out),
            ("remaining", table.remaining),
        )
    }
    return {**result.counts, **parts, "snapshot": result.snapshot_after or 0}


@dataclass
class _Apart(LocalRunner):
    """Runs each task in a process of its own, and keeps what the largest took."""

    largest: Cost | None = None
    parts: int = 0

    def run(self, function: Any, tasks: Sequence[Any], description: str = "") -> list[Any]:
        """See `Runner.run`."""
        self.parts += 1
        costs = [in_child(function, task) for task in tasks]
        self.largest = max([*costs, *filter(None, [self.largest])], key=lambda cost: cost.peak)
        return [cost.answer for cost in costs]


def _merge(home: Path, number: int, target: str) -> int:
    """Merge very many small files; return 1 when the rows are not what they were."""
    location = _small_files(home, number)
    print(f"\nmerge {number:,} files of {_size(home):,} bytes to {target}, max_commits 8")
    cost = in_child(_merged, location, target)
    counts, largest, parts = cost.answer
    print("  driver       ", cost)
    print("  largest task ", largest)
    print(f"                {counts['main.t: in']:,} files in, {counts['main.t: out']:,} out")
    print(f"                {parts} parts, each its own commit")
    with attached(home) as session:
        found = one(session, "SELECT count(*), count(DISTINCT rowid), sum(price) FROM t")
    return int(found[:2] != (number * _ROWS,) * 2 or round(found[2], 2) != round(_sum(number), 2))


def _merged(location: CatalogLocation, target: str) -> tuple[dict[str, int], Cost | None, int]:
    runner = _Apart()
    options = {"target_file_size": target, "max_commits": "8"}
    counts = _run("merge_adjacent_files", location, options, runner=runner)
    return counts, runner.largest, runner.parts


def _sum(number: int) -> float:
    return number * sum(i / 100 for i in range(_ROWS))


def _size(home: Path) -> int:
    return Path(home, "file-0.parquet").stat().st_size


def _small_files(home: Path, number: int) -> CatalogLocation:
    """Make a lake of so many data files, each of a snapshot of its own, by linking a few."""
    home.mkdir()
    directory = home / "data" / "main" / "t"
    directory.mkdir(parents=True)
    for start in range(0, number, _LINKS):
        source = home / f"file-{start}.parquet"
        _write_file(source)
        for n in range(start, min(start + _LINKS, number)):
            os.link(source, directory / f"ducklake-{n:020}.parquet")
    location = _sqlite(home)
    lake = Lake.create(location)
    create_table(lake, "t", parse_columns(COLUMNS))
    size = _size(home)
    footer = int.from_bytes(Path(home, "file-0.parquet").read_bytes()[-8:-4], "little")
    facts, end = ("parquet", _ROWS, size, footer), (None,) * 4
    with lake.database.write() as session:
        history = LongHistory(number, number)
        history.fill_snapshots(session)
        session.insert(
            "ducklake_data_file",
            (
                (n, 1, n + 2, None, None, f"ducklake-{n:020}.parquet", 1, *facts, n * _ROWS, *end)
                for n in range(number)
            ),
        )
        session.execute(
            "UPDATE {ducklake_table_stats} SET record_count = ?, next_row_id = ?, "
            "file_size_bytes = ?",
            (number * _ROWS, number * _ROWS, number * size),
        )
    return location


def _write_file(path: Path) -> None:
    with duckdb.connect(":memory:") as session:
        session.execute(
            "COPY (SELECT i AS id, i * 7919 % 1000 AS customer, i / 100 AS price, "
            f"'product ' || i AS product, md5(i::VARCHAR) AS token FROM range({_ROWS}) t(i)) "
            f"TO '{path}' (FORMAT parquet, FIELD_IDS {{id: 1, customer: 2, price: 3, product: 4, "
            "token: 5})"
        )


class _Bucket:
    """A store that has nothing but names, and costs nothing to ask."""

    def __init__(self, root: str, number: int, is_listed: bool) -> None:
        self._root = root
        self._number = number
        self._is_listed = is_listed

    def list(self, _: str) -> Iterator[ObjectInfo]:
        """Yield the objects."""
        for n in range(self._number):
            location = Location.parse(f"{self._root}main/t/ducklake-{n:020}.parquet")
            yield ObjectInfo(location, 5_000, datetime(2020, 1, 1, tzinfo=timezone.utc), None)

    def delete(self, paths: Sequence[str], *, listed: bool) -> DeleteOutcome:
        """Say that they are gone, unless it is told something else of them than is so."""
        return DeleteOutcome(deleted=tuple(paths) if listed == self._is_listed else ())


def _sweep(home: Path, number: int) -> int:
    """Sweep a bucket of very many objects, of which half are orphans."""
    _lake_in_a_bucket(home, number // 2)
    print(f"\nsweep {number:,} objects, half of them orphans")
    print("  driver       ", cost := in_child(_swept, home, number))
    return int(cost.answer["files_deleted"] != number // 2)


def _clean(home: Path, number: int) -> int:
    """Delete very many scheduled files of a lake that has as many in use."""
    lake = _lake_in_a_bucket(home, number // 2)
    with lake.database.write() as session:
        session.execute(
            "INSERT INTO {ducklake_files_scheduled_for_deletion} SELECT data_file_id, "
            "'main/t/old-' || data_file_id || '.parquet', 1, '2020-01-01 00:00:00+00' "
            "FROM {ducklake_data_file}"
        )
    print(f"\nclean up {number // 2:,} scheduled files, as many are in use")
    print("  driver       ", cost := in_child(_cleaned, home, number))
    return int(cost.answer["files_deleted"] != number // 2)


def _lake_in_a_bucket(home: Path, files: int) -> Lake:
    home.mkdir()
    lake = Lake.create(_sqlite(home))
    LongHistory(files, files).fill(lake)
    with lake.database.write() as session:
        session.execute(
            "UPDATE {ducklake_data_file} SET path = "
            "printf('ducklake-%020d.parquet', 2 * data_file_id)"
        )
        session.execute("DELETE FROM {ducklake_delete_file}")
        session.execute(
            'UPDATE {ducklake_metadata} SET "value" = ? WHERE "key" = ?', (_ROOT, "data_path")
        )
    return lake


def _cleaned(home: Path, number: int) -> dict[str, int]:
    return _in_a_bucket("cleanup_old_files", home, number, {"cleanup_all": "true", "force": "true"})


def _swept(home: Path, number: int) -> dict[str, int]:
    options = {"cleanup_all": "true", "force": "true", "max_fraction": "0.6"}
    return _in_a_bucket("delete_orphaned_files", home, number, options)


def _in_a_bucket(name: str, home: Path, number: int, options: Mapping[str, str]) -> dict[str, int]:
    bucket = _Bucket(_ROOT, number, name == "delete_orphaned_files")
    for module in (orphans, _removal):
        setattr(module, "open_store", lambda *_: bucket)  # noqa: B010
    return _run(name, CatalogLocation("sqlite", f"{home}/catalog.sqlite"), options)
