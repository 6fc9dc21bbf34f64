"""Which snapshot is restored, and which requests are refused before anything is read."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.database.sqlite import SqliteSession
from airflow_provider_ducklake.lake.errors import ConfigurationError, NotFound
from airflow_provider_ducklake.lake.expiry import commit_expiry
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.restore import (
    find_target,
    plan_lake_restore,
    plan_table_restore,
)
from airflow_provider_ducklake.lake.schemas import create_schema
from airflow_provider_ducklake.lake.tables import create_table, drop_table


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake whose snapshots are 0, 1 (create main.a), 2 (create main.b) and 3 (drop main.a)."""
    location = CatalogLocation.parse(
        f"ducklake:sqlite:{tmp_path}/catalog.sqlite", data_path=f"{tmp_path}/data/"
    )
    made = Lake.create(location)
    create_table(made, "a", parse_columns("id int64"))
    create_table(made, "b", parse_columns("id int64"))
    drop_table(made, "a")
    return made


def test_target_by_id(lake: Lake) -> None:
    """A kept snapshot is found; an expired one and one that is yet to come are told apart."""
    with lake.view() as view:
        assert find_target(view, snapshot_id=2).snapshot_id == 2
        with pytest.raises(NotFound, match="yet to come; the newest is 3"):
            find_target(view, snapshot_id=4)
    commit_expiry(lake, [1], settled=-1)
    with lake.view() as view, pytest.raises(NotFound, match="snapshot 1 was expired"):
        find_target(view, snapshot_id=1)


def test_target_by_time(lake: Lake) -> None:
    """An instant means the newest snapshot that was there by then."""
    times = [snapshot.time for snapshot in lake.snapshots()]
    with lake.view() as view:
        assert find_target(view, at=times[2]).snapshot_id == 2
        assert find_target(view, at=datetime.now(timezone.utc)).snapshot_id == 3
        with pytest.raises(NotFound, match="no kept snapshot is as old"):
            find_target(view, at=times[0] - timedelta(microseconds=1))


def test_target_is_required_once(lake: Lake) -> None:
    """Neither, or both, is no request."""
    with lake.view() as view:
        with pytest.raises(ConfigurationError, match="either snapshot=ID or at=TIME"):
            find_target(view)
        with pytest.raises(ConfigurationError, match="either snapshot=ID or at=TIME"):
            find_target(view, snapshot_id=1, at=datetime.now(timezone.utc))


def test_plans_name_what_comes_and_goes(lake: Lake) -> None:
    """A table comes back under its id; one that came later goes."""
    with lake.view() as view:
        plan = plan_lake_restore(view, 1)
        assert [(r.table.full_name, r.is_live) for r in plan.tables] == [("main.a", False)]
        assert [table.full_name for table in plan.dropped] == ["main.b"]
        alone = plan_table_restore(view, 2, "a")
        assert {change.table for change in alone.entries} == {"ducklake_table", "ducklake_column"}
        assert not plan_table_restore(view, 2, "b").is_needed
        assert not plan_lake_restore(view, 3).is_needed


def test_names_in_use(lake: Lake) -> None:
    """A table does not come back under the name of another one."""
    create_table(lake, "A", parse_columns("id int64"))
    with lake.view() as view:
        with pytest.raises(ConfigurationError, match="another table or view has that name"):
            plan_table_restore(view, 2, "a")
        with pytest.raises(NotFound, match="table"):
            plan_table_restore(view, 2, "c")


def test_plans_on_other_snapshots_are_compared(lake: Lake) -> None:
    """What others commit elsewhere leaves a table's plan as it is, but not the lake's."""
    with lake.view() as view:
        table, everything = plan_table_restore(view, 2, "a"), plan_lake_restore(view, 2)
    create_schema(lake, "other")
    with lake.view() as view:
        assert plan_table_restore(view, 2, "a").is_same(table)
        assert not plan_lake_restore(view, 2).is_same(everything)


def test_of_a_long_history_little_is_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-04: of millions of snapshots none is read but those that are needed."""
    with lake.database.write() as session:
        for table, values in (
            ("ducklake_snapshot", "i, '2020-01-01 00:00:00+00', 3, 3, 0"),
            ("ducklake_snapshot_changes", "i, 'x', NULL, NULL, NULL"),
        ):
            session.execute(
                f"INSERT INTO {{{table}}} WITH RECURSIVE n(i) AS (SELECT 4 UNION ALL "
                f"SELECT i + 1 FROM n WHERE i < 5000) SELECT {values} FROM n"
            )
    most = 0

    def counting(read: Any) -> Any:
        def run(session: SqliteSession, *given: Any) -> Any:
            nonlocal most
            rows, changed = read(session, *given)
            most = max(most, len(rows))
            return rows, changed

        return run

    monkeypatch.setattr(SqliteSession, "_run", counting(SqliteSession._run))
    with lake.view() as view:
        assert find_target(view, snapshot_id=2).snapshot_id == 2
        assert find_target(view, at=datetime.now(timezone.utc)).snapshot_id == 5000
        with pytest.raises(NotFound, match="yet to come"):
            find_target(view, snapshot_id=5001)
        with pytest.raises(NotFound, match="no kept snapshot is as old"):
            find_target(view, at=datetime(2019, 1, 1, tzinfo=timezone.utc))
        assert plan_table_restore(view, 2, "a").is_needed
        assert plan_lake_restore(view, 2).is_needed
    assert [s.snapshot_id for s in lake.snapshots(after=7, limit=2)] == [8, 9]
    assert 0 < most < 50


def test_snapshots_of_a_job(lake: Lake) -> None:
    """Those of its key and of its parts; a key that only begins like it is another job's."""
    for name, key in (("c", "run_1/main.c"), ("d", "run_1"), ("e", "run_10"), ("f", "runx1/g")):
        create_table(lake, name, parse_columns("id int64"), info=CommitInfo(key=key))
    assert [s.snapshot_id for s in lake.snapshots_of_job("run_1")] == [4, 5]
    assert lake.snapshots_of_job("run") == []
