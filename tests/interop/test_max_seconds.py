"""max_seconds of upkeep: what has begun is done and told, and the next run does the rest."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.expiry import commit_expiry
from airflow_provider_ducklake.spark.operations import (
    _deadline,
    _removal,
    cleanup,
    orphans,
    snapshots,
)
from tests.interop.interference import Watched
from tests.interop.judge import Judge

LIMIT: Final = 60
PIECE: Final = 40  # seconds each piece takes: two are begun

pytestmark = pytest.mark.parametrize("lake_factory", ["sqlite"], indirect=True)


class Clock:
    """A clock on which only pieces of work take time."""

    def __init__(self) -> None:
        self.now = 0.0

    def piece(self, *_: object) -> None:
        """Let one pass."""
        self.now += PIECE


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of deadlines."""
    clock = Clock()
    monkeypatch.setattr(_deadline, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def after(done: Callable[..., Any], clock: Clock) -> Callable[..., Any]:
    """Return a function that takes a piece's time."""

    def timed(*given: Any, **named: Any) -> Any:
        result = done(*given, **named)
        clock.piece()
        return result

    return timed


def test_expiry_ends_between_batches(
    judge: Judge, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "BATCH", 2)
    monkeypatch.setattr(snapshots, "commit_expiry", after(commit_expiry, clock))
    judge.create_table("main.t", {"id": "INTEGER"})
    for number in range(6):
        judge.insert_values("main.t", (number,))
    kept = judge.model.kept
    result = judge.expire(kept[:4], retain_last=1, max_seconds=LIMIT)
    assert result.counts["snapshots_expired"] == 4
    assert result.counts["snapshots_left_for_the_next_run"] == len(kept) - 5
    result = judge.expire(kept[4:-1], retain_last=1)
    assert "snapshots_left_for_the_next_run" not in result.counts


def test_cleanup_ends_between_batches(
    judge: Judge, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "ACKNOWLEDGED", 2)
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.create_table("main.t", {"id": "INTEGER"})
    for number in range(5):
        judge.insert_values("main.t", (number,))
    judge.upkeep("merge_adjacent_files")
    everything = {"cleanup_all": True, "force": True}
    runner = Watched(clock.piece)
    result = judge.upkeep("cleanup_old_files", runner=runner, max_seconds=LIMIT, **everything)
    assert (result.counts["files_deleted"], result.counts["files_left_for_the_next_run"]) == (4, 1)
    assert len(judge.catalog()["ducklake_files_scheduled_for_deletion"]) == 1
    result = judge.upkeep("cleanup_old_files", **everything)
    assert result.counts == {"files_deleted": 1, "files_forgotten": 0, "files_missing": 0}


@pytest.mark.parametrize("verb", ["deleted", "quarantined"])
def test_sweep_ends_between_rounds(
    judge: Judge, clock: Clock, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """What is left is listed and judged anew; bytes are those of what went."""
    monkeypatch.setattr(_removal, "BATCH", 1)
    monkeypatch.setattr(orphans, "ROUND", 2)
    judge.create_table("main.t", {"id": "INTEGER"})
    root = Path(judge.lake.data_path)
    root.mkdir(exist_ok=True)
    for size in range(1, 6):
        (root / f"lost{size}.parquet").write_bytes(b"x" * size)
        os.utime(root / f"lost{size}.parquet", (0, 0))
    options: dict[str, Any] = {"max_fraction": 1}
    if verb == "quarantined":
        options["quarantine"] = judge.lake.directory / "lost"
    runner = Watched(clock.piece)
    result = judge.upkeep("delete_orphaned_files", runner=runner, max_seconds=LIMIT, **options)
    assert result.counts == {
        f"files_{verb}": 4,
        f"bytes_{verb}": 1 + 2 + 3 + 4,
        "files_missing": 0,
        "files_left_for_the_next_run": 1,
    }
    result = judge.upkeep("delete_orphaned_files", **options)
    assert result.counts == {f"files_{verb}": 1, f"bytes_{verb}": 5, "files_missing": 0}


def fill(judge: Judge) -> None:
    """Make three tables with rows inlined in the catalog."""
    for name in "abc":
        judge.create_table(f"main.{name}", {"id": "INTEGER"})
        judge.insert_values(f"main.{name}", (1,), (2,))


def test_flush_ends_between_tables(judge: Judge, clock: Clock) -> None:
    fill(judge)

    def piece(_: int) -> None:
        judge.client.make_way()
        clock.piece()

    runner = Watched(piece)
    result = judge.upkeep("flush_inlined_data", runner=runner, max_seconds=LIMIT)
    assert [table.table for table in result.tables if table.is_changed] == ["main.a", "main.b"]
    assert result.counts == {"tables_left_for_the_next_run": 1}
    result = judge.upkeep("flush_inlined_data")
    assert [table.table for table in result.tables if table.is_changed] == ["main.c"]
    assert not result.counts


def test_checkpoint_hands_its_limit_down(judge: Judge, clock: Clock) -> None:
    """The time is that of all steps together: the flush uses it up, and no other step begins."""
    fill(judge)

    def piece(_: int) -> None:
        judge.client.make_way()
        clock.piece()

    result = judge.upkeep("checkpoint", runner=Watched(piece), max_seconds=LIMIT)
    assert result.counts == {
        "flush_inlined_data: tables_left_for_the_next_run": 1,
        "steps_left_for_the_next_run": 4,
    }
    assert result.messages[-1].startswith("not begun, as max_seconds are over: merge_adjacent_f")
    assert [table.table for table in result.tables] == ["main.a", "main.b"]
    result = judge.upkeep("checkpoint", max_seconds=LIMIT)
    assert [table.table for table in result.tables] == ["main.c"]
    assert not [name for name in result.counts if "next_run" in name]


@pytest.mark.parametrize(
    "operation",
    [
        "expire_snapshots",
        "cleanup_old_files",
        "delete_orphaned_files",
        "flush_inlined_data",
        "checkpoint",
    ],
)
def test_times_that_are_none(judge: Judge, operation: str) -> None:
    with pytest.raises(ConfigurationError, match=f"max_seconds of {operation} must be a number"):
        judge.operations.run(operation, max_seconds="0")
