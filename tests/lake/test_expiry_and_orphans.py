"""Choosing snapshots to expire and objects to sweep."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.errors import (
    ConfigurationError,
    NotFound,
    SafetyRefusal,
    StorageError,
)
from airflow_provider_ducklake.lake.expiry import plan_expiry
from airflow_provider_ducklake.lake.orphans import Listing, open_listing
from airflow_provider_ducklake.lake.paths import Location
from airflow_provider_ducklake.spark.operations.snapshots import parse_versions
from airflow_provider_ducklake.storage import ObjectInfo

NOW = datetime(2026, 8, 5, tzinfo=timezone.utc)


def snapshot(number: int, age: int = 0) -> tuple[int, datetime]:
    """Return id and time of a snapshot that is so many days old."""
    return number, NOW - timedelta(days=age)


def these(*ids: int) -> list[range]:
    """Return some ids as the planner takes them."""
    return [range(number, number + 1) for number in ids]


HISTORY = [snapshot(n, age=10 - n) for n in range(10)]


def test_conditions_hold_together() -> None:
    old = plan_expiry(HISTORY, now=NOW, older_than=NOW - timedelta(days=6))
    assert [*old.expired] == [0, 1, 2, 3]
    assert [*plan_expiry(HISTORY, now=NOW, retain_last=3).expired] == [*range(7)]
    assert [*plan_expiry(HISTORY, now=NOW, versions=these(2, 8, 9)).expired] == [2, 8]
    between = plan_expiry(HISTORY, now=NOW, versions=[range(1, 4), range(7, 9)])
    assert [*between.kept] == [0, 4, 5, 6, 9]
    both = plan_expiry(HISTORY, now=NOW, older_than=NOW - timedelta(days=2), retain_last=4)
    assert [*both.expired] == [*range(6)]
    assert [*both.kept] == [6, 7, 8, 9]


@pytest.mark.parametrize(
    ("ages", "settled"), [([9, 5, 2, 1, 0], 2), ([2, 0, 2, 0], 2), ([1, 0], -1), ([3], 0)]
)
def test_what_is_more_than_a_day_old_is_settled(ages: list[int], settled: int) -> None:
    """Ids never go back, clocks do: what has an older snapshot behind it is as old."""
    history = [snapshot(n, age) for n, age in enumerate(ages)]
    assert plan_expiry(history, now=NOW, retain_last=1).settled == settled


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
    plan = plan_expiry(history, now=NOW, older_than=NOW + timedelta(days=days), retain_last=retain)
    assert history[-1][0] not in plan.expired
    assert {number for number, _ in history[-(retain or 1) :]} <= set(plan.kept)
    assert sorted([*plan.expired, *plan.kept]) == [*range(len(history))]
    assert [*plan.kept] == sorted(plan.kept)


def test_no_condition_is_an_error_not_a_wish() -> None:
    with pytest.raises(ConfigurationError, match="older_than, versions or retain_last"):
        plan_expiry(HISTORY, now=NOW)
    with pytest.raises(ConfigurationError, match="at least 1"):
        plan_expiry(HISTORY, now=NOW, retain_last=0)
    with pytest.raises(NotFound, match=r"77, 99\.\.101"):
        plan_expiry(HISTORY, now=NOW, versions=[*these(1, 77), range(99, 102)])


def test_versions_become_ranges() -> None:
    """However they are written; none meets another, or one of them would be passed over."""
    assert parse_versions("9, 3,4,1..2,7..8,20..22,21") == [
        range(1, 5),
        range(7, 10),
        range(20, 23),
    ]
    assert parse_versions("5..3") == []
    assert parse_versions(None) is None
    assert [*plan_expiry(HISTORY, now=NOW, versions=parse_versions("5..3")).expired] == []


ROOT = Location.parse("/lake/data")


def listed(name: str, days: float = 10) -> ObjectInfo:
    """Return an object under the root, so many days old."""
    return ObjectInfo(Location.parse(f"/lake/data/{name}"), 5, NOW - timedelta(days=days), None)


def locations(*names: str) -> list[Location]:
    """Return locations of some names under the root."""
    return [Location.parse(f"/lake/data/{name}") for name in names]


@pytest.fixture
def listing(tmp_path: Path) -> Iterator[Listing]:
    """An empty listing."""
    with open_listing(str(tmp_path)) as opened:
        yield opened


def test_only_old_unreferenced_data_files_are_orphans(listing: Listing) -> None:
    """OR-01, OR-04, OR-05."""
    found = [
        listed("t/live.parquet"),
        listed("t/waiting.parquet"),
        listed("t/both.parquet"),
        listed("t/young.parquet", days=1),
        listed("t/young and live.parquet", days=1),
        listed("t/lost.parquet"),
        listed("t/lost.puffin"),
        listed("catalog.sqlite"),
        listed("_SUCCESS"),
        listed("t/part.parquet.crc"),
    ]
    listing.add(found, ROOT, NOW - timedelta(days=2))
    live = locations("t//./live.parquet", "t/both.parquet", "t/young and live.parquet", "gone")
    for _ in range(2):  # looked up again before anything goes
        listing.strike_out(live, locations("t/x/../waiting.parquet", "t/both.parquet"))
    (orphans,) = listing.batches(5)
    assert [o.path for o in orphans] == ["/lake/data/t/lost.parquet", "/lake/data/t/lost.puffin"]
    assert orphans[0].last_modified == NOW - timedelta(days=10)
    assert listing.orphans() == (2, 10)
    assert {skipped.reason: skipped.count for skipped in listing.skipped()} == {
        "in use": 3,
        "not a data file": 3,
        "scheduled (cleanup_old_files deletes it)": 1,
        "too young": 1,
    }


def test_orphans_come_in_batches(listing: Listing) -> None:
    listing.add((listed(f"t/{n}.parquet") for n in range(25)), ROOT, NOW)
    found = [[orphan.path for orphan in batch] for batch in listing.batches(10)]
    assert [len(batch) for batch in found] == [10, 10, 5]
    assert len({path for batch in found for path in batch}) == 25


def test_an_unusual_share_stops_the_sweep(listing: Listing) -> None:
    listing.add((listed(f"t/{n}.parquet") for n in range(100)), ROOT, NOW)
    listing.strike_out(locations(*(f"t/{n}.parquet" for n in range(40))), [])
    with pytest.raises(SafetyRefusal, match="60 of 100"):
        listing.require_share(ROOT, 0.5)
    listing.require_share(ROOT, 0.7)
    assert listing.orphans()[0] == 60


def test_an_object_outside_the_root_stops_the_sweep(listing: Listing) -> None:
    stray = ObjectInfo(Location.parse("/lake/data2/x.parquet"), 5, NOW, None)
    with pytest.raises(SafetyRefusal, match="does not lie under it"):
        listing.add([stray], ROOT, NOW)


def test_links_to_a_young_file_are_young(tmp_path: Path) -> None:
    """Two names of one object: it is not deleted by the older one."""
    (tmp_path / "new.parquet").touch()
    (tmp_path / "link.parquet").symlink_to(tmp_path / "new.parquet")
    names = {"new.parquet": NOW, "link.parquet": NOW - timedelta(days=9)}
    for order in (names, reversed(names)):
        with (
            tempfile.TemporaryDirectory() as place,
            open_listing(place) as listing,
        ):
            found = [
                ObjectInfo(Location.parse(f"{tmp_path}/{n}"), 5, names[n], None) for n in order
            ]
            listing.add(found, Location.parse(str(tmp_path)).real(), NOW)
            assert listing.orphans() == (0, 0)


def test_a_listing_the_disk_does_not_take(tmp_path: Path) -> None:
    """Nothing is deleted by half a listing."""
    with pytest.raises(StorageError, match="cannot be kept"), open_listing(f"{tmp_path}/nowhere"):
        pass
