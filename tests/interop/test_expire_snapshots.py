"""expire_snapshots: exactly the snapshots asked for go, and nothing a kept one needs."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_provider_ducklake.lake.errors import LakeError
from tests.interop.aftermath import life_goes_on
from tests.interop.judge import Judge
from tests.interop.palette import pairs, write_parquet

EXPIRE = "expire_snapshots"


def _clean_up(judge: Judge) -> None:
    judge.upkeep("cleanup_old_files", cleanup_all=True, force=True)
    assert not judge.unreferenced_files()


def test_renamed_things(judge: Judge) -> None:
    """EX-01: a table that was renamed keeps its rows; only dead versions of its rows go."""
    judge.create_table("main.a", {"id": "INTEGER", "v": "VARCHAR"})
    judge.insert_values("main.a", *((i, "x") for i in range(20)))
    judge.create_table("main.gone", {"id": "INTEGER"})
    judge.insert_values("main.gone", *((i,) for i in range(20)))
    judge.delete("main.gone", "id < 5", lambda row: row["id"] < 5)
    judge.drop_table("main.gone")
    judge.rename_table("main.a", "b")
    judge.insert_values("main.b", *((i, "y") for i in range(20, 40)))
    judge.alter("main.b", "RENAME COLUMN v TO w", lambda t: t.rename_column("v", "w"))
    judge.insert_values("main.b", (40, "z"))
    planned = judge.dry_run(EXPIRE, older_than="0 seconds")
    result = judge.expire(judge.model.kept[:-1], older_than="0 seconds")
    assert planned.counts == result.counts, "a dry run tells what will be scheduled"
    assert result.counts["snapshots_expired"] == 10
    assert result.counts["data_files_scheduled"]
    assert result.counts["bytes_scheduled"]
    _clean_up(judge)
    life_goes_on(judge, "main.b")


def test_versions_kept_in_between(judge: Judge) -> None:
    """EX-01: a version in the middle keeps what it shows, however much around it goes."""
    judge.create_table("main.t", {"id": "INTEGER"})
    judge.insert_values("main.t", *((i,) for i in range(20)))
    judge.delete("main.t", "id < 15", lambda row: row["id"] < 15)
    judge.alter("main.t", "ADD COLUMN b INTEGER DEFAULT 1", lambda t: t.add_column("b", 1))
    judge.upkeep("rewrite_data_files", delete_threshold=0)
    judge.drop_table("main.t")
    judge.create_table("main.t", {"other": "INTEGER"})
    judge.insert_values("main.t", (1,))
    expired = [s for s in judge.model.kept[:-1] if s != 3]
    versions = ",".join(map(str, expired))
    planned = judge.dry_run(EXPIRE, versions=versions)
    done = judge.expire(expired, versions=versions)
    assert planned.counts == done.counts
    _clean_up(judge)
    life_goes_on(judge, "main.t")


def _with_times(judge: Judge, times: list[str]) -> None:
    """Make one snapshot a time, and store the times as some writer might have written them."""
    judge.create_table("main.t", {"id": "INTEGER"})
    for number in range(len(times) - 1):
        judge.insert_values("main.t", (number,))
    for snapshot, written in enumerate(times, start=1):
        judge.change_catalog(
            f"UPDATE ducklake_snapshot SET snapshot_time = '{written}' "
            f"WHERE snapshot_id = {snapshot}",
        )


TIMES = [
    "2026-01-05 19:29:09+05:30",  # 13:59:09 UTC
    "2026-01-05 14:00:00+00",
    "2026-01-05 14:00:00+00",
    "2026-01-05 08:30:01-05:30",  # 14:00:01 UTC
    "2026-01-05 15:00:00+00",
]


def test_times_are_instants(judge: Judge) -> None:
    """EX-02: times compare as instants whatever their offset; the newest snapshot stays."""
    _with_times(judge, TIMES)
    first = judge.model.kept[0]
    judge.change_catalog(
        "UPDATE ducklake_snapshot SET snapshot_time = '2027-01-01 00:00:00+00' "
        f"WHERE snapshot_id = {first}",
    )
    # Snapshot 0 is younger than all by its clock, and goes only when its time is passed.
    expired: dict[str, tuple[int, ...]] = {
        "2026-01-05 13:59:09+00": (),
        "2026-01-05 13:59:10+00": (1,),
        "2026-01-05T19:30:00+05:30": (1,),
        "2026-01-05 16:00:00+02:00": (1,),
        "2026-01-05 14:00:00.5Z": (1, 2, 3),
        "2999-01-01 00:00:00+00": (first, 1, 2, 3, 4),
    }
    for older_than, gone in expired.items():
        planned = judge.operations.run(EXPIRE, dry_run=True, older_than=older_than)
        assert planned.counts["snapshots_expired"] == len(gone), older_than
    for older_than, gone in expired.items():
        judge.expire(gone, older_than=older_than)


def test_session_zone_does_not_matter(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """EX-02: a worker in Kolkata expires the same snapshots as one in Greenwich."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        _with_times(judge, TIMES)
        judge.expire((1, 2, 3), older_than="2026-01-05 14:00:01+00")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_unclear_requests(judge: Judge) -> None:
    """EX-02: what cannot be understood stops the operation, and nothing is changed."""
    _with_times(judge, TIMES)
    before = judge.fingerprint()
    unclear: list[tuple[dict[str, Any], str]] = [
        ({"older_than": "2026-01-05 14:00:00"}, "offset"),
        ({"older_than": "yesterday"}, "yesterday"),
        ({"versions": "4711"}, "4711"),
        ({"versions": "all"}, "versions"),
        ({"retain_last": 0}, "retain_last"),
        ({}, "older_than"),
    ]
    for options, complaint in unclear:
        with pytest.raises(LakeError, match=complaint):
            judge.operations.run(EXPIRE, **options)
    assert judge.fingerprint() == before


def test_unreadable_time_in_the_catalog(judge: Judge) -> None:
    """EX-02: a snapshot time that cannot be read stops the expiry; it is not passed over."""
    if judge.lake.kind != "sqlite":
        # Elsewhere the column has a type, and cannot hold such a text.
        _with_times(judge, TIMES)
        judge.expire((1,), versions="1")
        return
    _with_times(judge, TIMES)
    judge.change_catalog(
        "UPDATE ducklake_snapshot SET snapshot_time = 'soon' WHERE snapshot_id = 2"
    )
    before = judge.fingerprint()
    with pytest.raises(LakeError, match="soon"):
        judge.operations.run(EXPIRE, older_than="1 second")
    assert judge.fingerprint() == before
    judge.change_catalog(
        f"UPDATE ducklake_snapshot SET snapshot_time = '{TIMES[1]}' WHERE snapshot_id = 2",
    )


def test_newest_and_last_n_stay(judge: Judge) -> None:
    """EX-02: neither an id list nor an age takes the newest, nor the last N asked for."""
    _with_times(judge, TIMES)
    newest = judge.model.head
    result = judge.expire((), versions=str(newest))
    assert result.counts["snapshots_expired"] == 0
    kept = judge.model.kept
    judge.expire(kept[:-3], older_than="2999-01-01 00:00:00+00", retain_last=3)
    judge.expire((), older_than="2999-01-01 00:00:00+00", retain_last=3)
    assert len(judge.model.kept) == 3


def test_option_of_the_lake(judge: Judge) -> None:
    """Without a request the lake's own expire_older_than decides."""
    _with_times(judge, TIMES)
    judge.client.set_option("expire_older_than", "1 day")
    bound = datetime.now(timezone.utc) - timedelta(days=1)
    found = judge.client.snapshots()
    old = [snapshot.snapshot_id for snapshot in found[:-1] if snapshot.time < bound]
    assert old, "the times above are in the past"
    judge.expire(old)


def test_nothing_is_left_behind(judge: Judge) -> None:
    """EX-06: rows of files and tables go with them, and ids are not given again."""
    judge.create_table("main.t", {"id": "INTEGER", "k": "INTEGER"})
    judge.alter("main.t", "SET PARTITIONED BY (k)")
    judge.insert_values("main.t", *((i, i % 2) for i in range(1000, 1030)))
    judge.create_table("main.small", {"id": "INTEGER"})
    judge.insert_values("main.small", (1,), (2,), (3,))
    judge.delete("main.small", "id = 2", lambda row: row["id"] == 2)
    old_ids = {row["data_file_id"] for row in judge.catalog()["ducklake_data_file"]}
    judge.drop_table("main.t")
    # Of younger ones it is told for a day what they changed: see test_expired_history.py.
    judge.change_catalog("UPDATE ducklake_snapshot SET snapshot_time = '2026-01-01 00:00:00+00'")
    judge.expire(judge.model.kept[:-1], retain_last=1)
    catalog = judge.catalog()
    tables = {row["table_id"] for row in catalog["ducklake_table"]}
    snapshots = {row["snapshot_id"] for row in catalog["ducklake_snapshot"]}
    assert len(tables) == 1
    for name, rows in catalog.items():
        for row in rows:
            if "table_id" in row:
                assert row["table_id"] in tables, f"{name} keeps {row}"
            if "snapshot_id" in row:
                assert row["snapshot_id"] in snapshots, f"{name} keeps {row}"
            if name.startswith("ducklake_file_"):
                assert row["data_file_id"] not in old_ids, f"{name} keeps {row}"
            if name.startswith("ducklake_inlined_data_") and "row_id" in row:
                assert row["end_snapshot"] is None, f"a dead inlined row stays: {row}"
            if name.startswith("ducklake_inlined_delete_"):
                assert row["file_id"] not in old_ids, f"{name} keeps {row}"
    _clean_up(judge)
    judge.create_table("main.t", {"id": "INTEGER", "k": "INTEGER"})
    judge.insert_values("main.t", *((i, 5) for i in range(30)))
    new_ids = {row["data_file_id"] for row in judge.catalog()["ducklake_data_file"]}
    assert not new_ids & old_ids
    judge.check_counts("main.t", {"id = 7": 1, "id >= 1000": 0})
    life_goes_on(judge, "main.t")


def test_mappings_of_live_files_stay(judge: Judge) -> None:
    """EX-06: a name mapping lives as long as a file that is read through it."""
    judge.create_table("main.t", {"id": "INTEGER"})
    path = judge.lake.directory / "raw" / "f.parquet"
    write_parquet(path, {"id": "INTEGER"}, pairs([(1,), (2,)]))
    judge.add_files("main.t", [str(path)], [(1,), (2,)])
    judge.alter("main.t", "RENAME COLUMN id TO number", lambda t: t.rename_column("id", "number"))
    judge.expire(judge.model.kept[:-1], retain_last=1)
    judge.check()
    judge.check_counts("main.t", {"number = 2": 1})
