"""Choosing snapshots to expire and objects to sweep."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.errors import ConfigurationError, NotFound, SafetyRefusal
from airflow_provider_ducklake.lake.expiry import plan_expiry
from airflow_provider_ducklake.lake.model import Snapshot
from airflow_provider_ducklake.lake.orphans import plan_orphans
from airflow_provider_ducklake.lake.paths import Location
from airflow_provider_ducklake.lake.references import References
from airflow_provider_ducklake.storage import ObjectInfo

NOW = datetime(2026, 8, 5, tzinfo=timezone.utc)


def snapshot(number: int, age: int = 0) -> Snapshot:
    """Return a snapshot that is so many days old."""
    return Snapshot(number, NOW - timedelta(days=age), 1, 1, 1)


HISTORY = [snapshot(n, age=10 - n) for n in range(10)]


def test_conditions_hold_together() -> None:
    assert plan_expiry(HISTORY, older_than=NOW - timedelta(days=6)).expired == (0, 1, 2, 3)
    assert plan_expiry(HISTORY, retain_last=3).expired == tuple(range(7))
    assert plan_expiry(HISTORY, versions=[2, 8, 9]).expired == (2, 8)
    both = plan_expiry(HISTORY, older_than=NOW - timedelta(days=2), retain_last=4)
    assert both.expired == tuple(range(6))
    assert both.kept == 4


@given(
    st.lists(st.integers(-5, 20), min_size=1, max_size=30),
    st.integers(-400, 400),
    st.one_of(st.none(), st.integers(1, 40)),
)
def test_the_newest_snapshot_stays_whatever_is_asked(
    ages: list[int], days: int, retain: int | None
) -> None:
    """EX-02: also with a bound in the future and clocks that went back."""
    history = [snapshot(n, age) for n, age in enumerate(ages)]
    plan = plan_expiry(history, older_than=NOW + timedelta(days=days), retain_last=retain)
    assert history[-1].snapshot_id not in plan.expired
    assert plan.kept >= min(retain or 1, len(history))
    assert len(plan.expired) + plan.kept == len(history)


def test_no_condition_is_an_error_not_a_wish() -> None:
    with pytest.raises(ConfigurationError, match="older_than, versions or retain_last"):
        plan_expiry(HISTORY)
    with pytest.raises(ConfigurationError, match="at least 1"):
        plan_expiry(HISTORY, retain_last=0)
    with pytest.raises(NotFound, match="77, 99"):
        plan_expiry(HISTORY, versions=[99, 77, 1])


ROOT = Location.parse("/lake/data")


def listed(name: str, days: float = 10) -> ObjectInfo:
    """Return an object under the root, so many days old."""
    return ObjectInfo(Location.parse(f"/lake/data/{name}"), 5, NOW - timedelta(days=days), None)


def references(files: list[str], scheduled: list[str]) -> References:
    """Return references to some names under the root."""
    return References(
        frozenset(Location.parse(f"/lake/data/{name}") for name in files),
        frozenset(Location.parse(f"/lake/data/{name}") for name in scheduled),
    )


def test_only_old_unreferenced_data_files_are_orphans() -> None:
    """OR-01, OR-04, OR-05."""
    found = [
        listed("t/live.parquet"),
        listed("t/waiting.parquet"),
        listed("t/young.parquet", days=1),
        listed("t/lost.parquet"),
        listed("t/lost.puffin"),
        listed("catalog.sqlite"),
        listed("_SUCCESS"),
        listed("t/part.parquet.crc"),
    ]
    known = references(["t//./live.parquet"], ["t/x/../waiting.parquet"])
    plan = plan_orphans(found, known, ROOT, NOW - timedelta(days=2))
    assert [o.location.name for o in plan.orphans] == ["lost.parquet", "lost.puffin"]
    assert plan.size == 10
    assert sum(skipped.count for skipped in plan.skipped) == 6


def test_an_unusual_share_stops_the_sweep() -> None:
    many = [listed(f"t/{n}.parquet") for n in range(100)]
    known = references([f"t/{n}.parquet" for n in range(40)], [])
    with pytest.raises(SafetyRefusal, match="60 of 100"):
        plan_orphans(many, known, ROOT, NOW)
    assert len(plan_orphans(many, known, ROOT, NOW, max_fraction=0.7).orphans) == 60


def test_an_object_outside_the_root_stops_the_sweep() -> None:
    stray = ObjectInfo(Location.parse("/lake/data2/x.parquet"), 5, NOW, None)
    with pytest.raises(SafetyRefusal, match="does not lie under it"):
        plan_orphans([stray], references([], []), ROOT, NOW)
