"""checkpoint: all upkeep in one go leaves a lean lake that shows what it showed before."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.errors import SafetyRefusal
from tests.interop.aftermath import life_goes_on
from tests.interop.catalog import live_files
from tests.interop.judge import Judge


def _busy(judge: Judge) -> None:
    judge.create_table("main.t", {"id": "INTEGER", "k": "INTEGER"})
    judge.alter("main.t", "SET PARTITIONED BY (k)")
    for start in range(0, 100, 20):
        judge.insert_values("main.t", *((i, i % 2) for i in range(start, start + 20)))
        judge.insert_values("main.t", (start + 1000, 0))
    judge.delete("main.t", "id % 4 = 0", lambda row: row["id"] % 4 == 0)
    judge.create_table("main.u", {"id": "INTEGER"})
    judge.insert_values("main.u", (1,), (2,))


def test_all_of_it(judge: Judge) -> None:
    """Without expiry every version stays; inlined rows and small files are gone."""
    _busy(judge)
    judge.dry_run("checkpoint", delete_threshold=0.1)
    judge.upkeep("checkpoint", delete_threshold=0.1)
    catalog = judge.catalog()
    for name, rows in catalog.items():
        if name.startswith("ducklake_inlined") and name != "ducklake_inlined_data_tables":
            assert not rows
    assert len(live_files(catalog, "u")) == 1
    assert not [row for row in catalog["ducklake_delete_file"] if row["end_snapshot"] is None]
    life_goes_on(judge, "main.t")


def test_with_expiry(judge: Judge) -> None:
    """With retain_last old versions go, their files are scheduled, and wait their time."""
    _busy(judge)
    judge.checkpoint(retain_last=2, delete_threshold=0.1)
    assert not judge.unreferenced_files(), "what was retired just now is still scheduled"
    head = judge.model.head
    judge.upkeep("checkpoint", delete_threshold=0.1)
    assert judge.model.head == head, "a second checkpoint finds nothing to do"
    life_goes_on(judge, "main.t")


def test_tables_that_opt_out(judge: Judge) -> None:
    """A table with auto_compact false is left alone unless it is named."""
    _busy(judge)
    judge.client.set_option("auto_compact", False, table="main.u")
    judge.upkeep("checkpoint")
    assert not live_files(judge.catalog(), "u")
    judge.upkeep("flush_inlined_data", "main.u")
    assert len(live_files(judge.catalog(), "u")) == 1


def test_a_step_that_fails(judge: Judge) -> None:
    """The steps after it run, and the result tells both what failed and what was done."""
    _busy(judge)
    judge.upkeep("checkpoint")
    judge.change_catalog(
        "UPDATE ducklake_files_scheduled_for_deletion SET schedule_start = '2020-01-01 00:00:00+00'"
    )
    scheduled = [row["path"] for row in judge.catalog()["ducklake_files_scheduled_for_deletion"]]
    stuck = Path(judge.lake.data_path, scheduled[0])
    stuck.unlink()
    stuck.mkdir()
    (stuck / "in the way").touch()
    judge.insert_values("main.u", (3,))
    result = judge.operations.run("checkpoint", may_fail=True)
    judge.accept({})
    (failure,) = result.failures
    assert failure.message.startswith("cleanup_old_files: 1 files could not be deleted")
    assert result.counts["cleanup_old_files: files_deleted"] == len(scheduled) - 1
    assert [table.table for table in result.tables] == ["main.u", "main.u"], "flushed, then merged"
    shutil.rmtree(stuck)
    judge.upkeep("checkpoint")


@pytest.mark.parametrize("lake_factory", ["sqlite", "store"], indirect=True)
def test_durations_a_stock_client_stored(judge: Judge) -> None:
    """Months are taken, and a grace shorter than orphans get refuses nobody who named no age."""
    judge.create_table("main.t", {"id": "INTEGER"})
    judge.insert_values("main.t", (1,))
    old, younger = (Path(judge.lake.data_path, name) for name in ("old.parquet", "new.parquet"))
    for file, hours in ((old, 25), (younger, 13)):
        file.parent.mkdir(exist_ok=True)
        file.touch()
        os.utime(file, (time.time() - hours * 3_600,) * 2)
    for expiry, grace in (("1 month", "12 hours"), ("1 year 2 months", "1 month")):
        judge.client.set_option("expire_older_than", expiry)
        judge.client.set_option("delete_older_than", grace)
        judge.operations.run("checkpoint")
        judge.operations.run("cleanup_old_files")
        judge.operations.run("expire_snapshots")
        assert (old.exists(), younger.exists()) == (False, True)
    with pytest.raises(SafetyRefusal, match="younger than"):
        judge.operations.run("cleanup_old_files", older_than="10 days")
    judge.operations.run("cleanup_old_files", older_than="40 days")
    with pytest.raises(SafetyRefusal, match="younger than 24 hours"):
        judge.operations.run("delete_orphaned_files", older_than="23 hours")
    younger.unlink()
    judge.accept({})
