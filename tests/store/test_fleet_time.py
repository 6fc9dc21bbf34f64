"""max_seconds of a fleet: nothing is begun after it on any catalog, and the next plan has it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_provider_ducklake.spark.operations import _deadline
from tests.interop.interference import Watched
from tests.support.fleets import Fleet


def test_time_ends_the_whole_batch(
    postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(postgres_database, tmp_path)
    for name in ("a", "b", "c"):
        fleet.fill(name, 5)
    (batch,) = fleet.store.plan_fleet().batches
    assert set(batch.catalogs) == {"a", "b", "c"}
    clock = [0.0]
    monkeypatch.setattr(_deadline, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def pass_by(_: int) -> None:
        clock[0] += 40

    result = fleet.maintain(batch, runner=Watched(pass_by), threads=1, max_seconds=60)
    assert not result.is_failed, result.failures
    assert [table.table for table in result.tables] == ["a: main.t", "b: main.t"]
    assert result.counts["steps_left_for_the_next_run"] == 1
    (rest,) = fleet.store.plan_fleet().batches
    assert set(rest.catalogs) == {"c"}
    monkeypatch.undo()
    assert [table.table for table in fleet.maintain(rest).tables] == ["c: main.t"]
    assert {fleet.sum(name) for name in "abc"} == {(500, 124750)}
