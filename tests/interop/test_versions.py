"""CT-01: a catalog of another format version is refused, named, and left alone."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_ducklake.lake.errors import UnsupportedCatalog
from tests.interop.interference import Interference
from tests.interop.judge import Judge
from tests.interop.palette import arrow_table, pairs

OTHERS = {
    "0.3": "UPDATE ducklake_metadata SET value = '0.3' WHERE key = 'version'",
    "0.4": "UPDATE ducklake_metadata SET value = '0.4' WHERE key = 'version'",
    "1.1": "UPDATE ducklake_metadata SET value = '1.1' WHERE key = 'version'",
    "2.0": "UPDATE ducklake_metadata SET value = '2.0' WHERE key = 'version'",
    "no version": "DELETE FROM ducklake_metadata WHERE key = 'version'",
    "1.0 and 1.0": (
        "INSERT INTO ducklake_metadata (key, value) "
        "SELECT key, value FROM ducklake_metadata WHERE key = 'version'"
    ),
}
RESTORE = (
    "DELETE FROM ducklake_metadata WHERE key = 'version'",
    "INSERT INTO ducklake_metadata (key, value) VALUES ('version', '1.0')",
)
OPERATIONS: dict[str, dict[str, Any]] = {
    "merge_adjacent_files": {},
    "rewrite_data_files": {},
    "flush_inlined_data": {},
    "expire_snapshots": {"retain_last": 1},
    "cleanup_old_files": {},
    "delete_orphaned_files": {},
    "checkpoint": {},
    "info": {},
}


def _fill(judge: Judge) -> None:
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.create_table("main.t", {"id": "INTEGER"})
    judge.insert_values("main.t", (1,))
    judge.insert_values("main.t", (2,))


def _restore(judge: Judge) -> None:
    for statement in RESTORE:
        judge.change_catalog(statement)


def test_other_versions(judge: Judge) -> None:
    """CT-01: every operation says what it found and what it supports, and writes nothing."""
    _fill(judge)
    for version in OTHERS:
        # A store keeps one row for each option.
        if judge.lake.kind != "store" or version != "1.0 and 1.0":
            judge.change_catalog(OTHERS[version])
            _refused(judge, version)
            _restore(judge)


def _refused(judge: Judge, version: str) -> None:
    before = judge.fingerprint(), judge.lake.stored_files()
    for operation, options in OPERATIONS.items():
        with pytest.raises(UnsupportedCatalog) as refusal:
            judge.operations.run(operation, **options)
        assert version in str(refusal.value)
        assert "1.0" in str(refusal.value)
    with pytest.raises(UnsupportedCatalog):
        judge.operations.ingest(
            "main.t", arrow_table({"id": "INTEGER"}, pairs([(3,)])).to_batches()
        )
    assert (judge.fingerprint(), judge.lake.stored_files()) == before


def test_upgraded_while_we_work(judge: Judge) -> None:
    """CT-01: the version is looked at again in the commit, so an upgrade in between is seen."""
    _fill(judge)

    def upgrade() -> None:
        judge.change_catalog(OTHERS["2.0"])

    runner = Interference(judge, upgrade)
    with pytest.raises((UnsupportedCatalog, AssertionError), match=r"2\.0"):
        judge.operations.run("merge_adjacent_files", runner=runner)
    assert runner.happened
    _restore(judge)
    assert not judge.unreferenced_files()
    judge.upkeep("merge_adjacent_files")
