"""cleanup_old_files: what was scheduled long enough ago goes, and nothing anybody reads."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.errors import SafetyRefusal, StorageError
from tests.interop.aftermath import life_goes_on
from tests.interop.catalog import live_files
from tests.interop.judge import Judge
from tests.interop.palette import pairs, write_parquet
from tests.support.model import ModelTable

CLEANUP = "cleanup_old_files"


def _merged(judge: Judge) -> list[Path]:
    """Merge two small files of a table and return the two, now scheduled."""
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.create_table("main.t", {"id": "INTEGER"})
    judge.insert_values("main.t", (1,))
    judge.insert_values("main.t", (2,))
    files = [Path(judge.lake.data_path) / name for name in judge.lake.stored_files()]
    judge.upkeep("merge_adjacent_files")
    return files


def test_grace_protects_readers(judge: Judge) -> None:
    """CL-03: defaults delete nothing that was scheduled just now; less needs a person's word."""
    files = _merged(judge)
    head = judge.model.head
    judge.expire(judge.model.kept[:-1], retain_last=1)
    assert judge.upkeep(CLEANUP).counts["files_deleted"] == 0
    for options in ({"older_than": "1 hour"}, {"cleanup_all": True}):
        with pytest.raises(SafetyRefusal, match="force"):
            judge.operations.run(CLEANUP, **options)
    assert all(file.is_file() for file in files)
    planned = judge.dry_run(CLEANUP, cleanup_all=True, force=True)
    result = judge.upkeep(CLEANUP, cleanup_all=True, force=True)
    assert planned.counts["files_deleted"] == result.counts["files_deleted"] == 2
    assert not any(file.exists() for file in files)
    assert judge.model.head == head, "a cleanup makes no snapshot"
    life_goes_on(judge, "main.t")


def test_missing_object_is_done(judge: Judge) -> None:
    """CL-01: an object that is gone already counts as done, and a second run finds nothing."""
    first, second = _merged(judge)
    first.unlink()
    result = judge.upkeep(CLEANUP, cleanup_all=True, force=True)
    assert result.counts["files_deleted"] == 1
    assert result.counts["files_missing"] == 1
    assert not second.exists()
    assert not judge.catalog()["ducklake_files_scheduled_for_deletion"]
    again = judge.upkeep(CLEANUP, cleanup_all=True, force=True)
    assert again.counts["files_deleted"] == 0


def test_relative_paths_of_schemas_and_tables(judge: Judge) -> None:
    """CL-01: a scheduled path is joined with the data path, in every schema."""
    judge.execute('CREATE SCHEMA "other one"', {})
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.execute('CREATE TABLE "other one".t (id INTEGER)', {"other one.t": ModelTable(("id",))})
    for number in (1, 2):
        judge.insert_by(f'INSERT INTO "other one".t VALUES ({number})', "other one.t", [(number,)])
    judge.upkeep("merge_adjacent_files")
    result = judge.upkeep(CLEANUP, cleanup_all=True, force=True)
    assert result.counts["files_deleted"] == 2
    assert len(judge.lake.stored_files()) == 1
    assert not judge.unreferenced_files()


@pytest.mark.parametrize("owned", [False, True])
def test_files_that_belong_to_somebody_else(judge: Judge, owned: bool) -> None:
    """CL-02: registered files outside the data path stay unless a person says otherwise."""
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.create_table("main.t", {"id": "INTEGER"})
    outside = judge.lake.directory / "raw" / "theirs.parquet"
    inside = Path(judge.lake.data_path) / "staging" / "ours.parquet"
    for number, path in enumerate((outside, inside)):
        write_parquet(path, {"id": "INTEGER"}, pairs([(number,)]))
        judge.add_files("main.t", [str(path)], [(number,)])
    judge.upkeep("merge_adjacent_files")
    judge.expire(judge.model.kept[:-1], retain_last=1)
    options = {"outside_data_path": True} if owned else {}
    planned = judge.dry_run(CLEANUP, cleanup_all=True, force=True, **options)
    assert planned.counts["files_forgotten"] == (0 if owned else 1)
    judge.upkeep(CLEANUP, cleanup_all=True, force=True, **options)
    assert outside.exists() is not owned
    assert not inside.exists()
    assert not judge.catalog()["ducklake_files_scheduled_for_deletion"]


def test_scheduled_file_that_is_live_again(judge: Judge) -> None:
    """A file that a table uses is not deleted, even if the schedule names it."""
    _merged(judge)
    (live,) = live_files(judge.catalog(), "t")
    file_id = live["data_file_id"]
    judge.change_catalog(
        "INSERT INTO ducklake_files_scheduled_for_deletion VALUES "
        f"({file_id}, 'main/t/{live['path']}', true, '2020-01-01 00:00:00+00')",
    )
    judge.operations.run(CLEANUP, cleanup_all=True, force=True)
    judge.check()
    judge.change_catalog(
        f"DELETE FROM ducklake_files_scheduled_for_deletion WHERE data_file_id = {file_id}",
    )


def test_one_file_that_cannot_be_deleted(judge: Judge) -> None:
    """CL-01: the rest is done first, what failed stays scheduled, is named, and fails the run."""
    first, second = _merged(judge)
    first.unlink()
    first.mkdir()
    (first / "in the way").write_text("a directory that is not empty cannot be unlinked")
    result = judge.operations.run(CLEANUP, cleanup_all=True, force=True, may_fail=True)
    (failure,) = result.failures
    assert failure.kind == StorageError.__name__
    assert first.name in failure.message
    assert {"files_deleted": 1, "files_failed": 1}.items() <= result.counts.items()
    assert not second.exists()
    scheduled = judge.catalog()["ducklake_files_scheduled_for_deletion"]
    assert [row["path"].rpartition("/")[2] for row in scheduled] == [first.name]
    shutil.rmtree(first)
    judge.upkeep(CLEANUP, cleanup_all=True, force=True)
    assert not judge.catalog()["ducklake_files_scheduled_for_deletion"]
