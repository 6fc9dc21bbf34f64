"""Tens of thousands of snapshots and thousands of files: batches, statements, and a death."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.expiry import commit_expiry
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.spark.operations import run_operation, snapshots
from airflow_provider_ducklake.spark.runner import LocalRunner
from benchmarks.long_history import LongHistory
from tests.support.lakes import LakeFactory

HISTORY: Final = LongHistory(20_000, 2_000)
BATCH: Final = 1_000
KEPT: Final = 100
FIRST_KEPT: Final = HISTORY.newest - KEPT + 1

pytestmark = pytest.mark.parametrize("lake_factory", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def lake(lake_factory: LakeFactory) -> Iterator[Lake]:
    """A lake with a long history."""
    made = lake_factory.create()
    lake = Lake.create(replace(made.location, data_path=made.data_path))
    HISTORY.fill(lake)
    yield lake
    lake_factory.remove(made)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[Counter[str]]:
    """The statements of each transaction that expires snapshots, by kind."""
    transactions: list[Counter[str]] = []

    def expire(*given: Any, **named: Any) -> Any:
        transactions.append(Counter())
        return commit_expiry(*given, **named)

    def count(kind: type[Session], name: str) -> Callable[..., Any]:
        real = getattr(kind, name)

        def counted(session: Session, *given: Any) -> Any:
            if transactions:
                transactions[-1][name] += 1
            return real(session, *given)

        return counted

    monkeypatch.setattr(snapshots, "BATCH", BATCH)
    monkeypatch.setattr(snapshots, "commit_expiry", expire)
    for kind in Session.__subclasses__():
        for name in ("_run", "insert"):
            monkeypatch.setattr(kind, name, count(kind, name))
    return transactions


def expire(lake: Lake, *, dry_run: bool = False) -> OperationResult:
    """Expire all but the last snapshots."""
    return run_operation(
        "expire_snapshots",
        lake,
        {"retain_last": str(KEPT)},
        runner=LocalRunner(),
        dry_run=dry_run,
        report=lambda _: None,
    )


def left(lake: Lake) -> dict[str, Any]:
    """Return what a catalog holds: numbers of rows, and the first snapshot."""
    names = [name for name in expected(0) if name != "first"]
    with lake.database.read() as session:
        found = {
            name: session.value("SELECT count(*) FROM {counted}", counted=f"ducklake_{name}")
            for name in names
        }
        first = session.value("SELECT min(snapshot_id) FROM {ducklake_snapshot}")
        return {**found, "first": first}


def expected(first_kept: int) -> dict[str, Any]:
    """Return what has to be there when the snapshots before one are gone."""
    files, deletes = HISTORY.freed(first_kept)
    kept = HISTORY.newest - first_kept + 1
    return {
        "snapshot": kept,
        "snapshot_changes": kept,
        "data_file": HISTORY.files - files,
        "delete_file": HISTORY.files // 10 - deletes,
        "file_column_stats": 5 * (HISTORY.files - files),
        "files_scheduled_for_deletion": files + deletes,
        "first": first_kept,
    }


def test_who_dies_between_batches_is_finished_by_the_next(
    lake: Lake, sizes: list[Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """EX-05: each batch is a transaction that leaves a valid catalog."""
    planned = expire(lake, dry_run=True)
    assert left(lake) == expected(0)
    counting = vars(snapshots)["commit_expiry"]

    def die(*given: Any, **named: Any) -> Any:
        if len(sizes) == 3:
            raise KeyboardInterrupt
        return counting(*given, **named)

    with monkeypatch.context() as dying:
        dying.setattr(snapshots, "commit_expiry", die)
        with pytest.raises(KeyboardInterrupt):
            expire(lake)
    assert left(lake) == expected(3 * BATCH)
    result = expire(lake)
    assert len(sizes) == -(-FIRST_KEPT // BATCH)
    assert left(lake) == expected(FIRST_KEPT)
    files, deletes = HISTORY.freed(FIRST_KEPT)
    earlier = HISTORY.freed(3 * BATCH)
    assert result.counts == {
        "snapshots_expired": FIRST_KEPT - 3 * BATCH,
        "snapshots_kept": KEPT,
        "data_files_scheduled": files - earlier[0],
        "delete_files_scheduled": deletes - earlier[1],
        "bytes_scheduled": 5_000 * (files - earlier[0]) + 500 * (deletes - earlier[1]),
    }
    assert planned.counts["snapshots_expired"] == FIRST_KEPT
    assert planned.counts["data_files_scheduled"] == files
    assert planned.counts["delete_files_scheduled"] == deletes
    assert expire(lake).counts["snapshots_expired"] == 0


def test_statements_do_not_grow_with_the_rows_of_a_batch(
    lake: Lake, sizes: list[Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch eight times as large takes no more statements, and few at that."""
    run_operation(
        "expire_snapshots",
        lake,
        {"versions": f"0..{2 * BATCH - 1}"},
        runner=LocalRunner(),
        report=lambda _: None,
    )
    small = sizes[0]
    monkeypatch.setattr(snapshots, "BATCH", 8 * BATCH)
    sizes.clear()
    expire(lake)
    assert sizes[0] == small
    assert small.total() < 60
    assert left(lake) == expected(FIRST_KEPT)
