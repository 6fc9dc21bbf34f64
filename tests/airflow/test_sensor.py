"""The snapshot sensor: which snapshot counts (cases SE-03), and where it begins to look."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
)
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.errors import UnsupportedCatalog
from airflow_provider_ducklake.lake.model import Snapshot
from airflow_provider_ducklake.sensors._changes import Found, Watched, find_change
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from tests.airflow.conftest import Connect, FakeStateStore, task_context
from tests.support.lakes import LakeFactory, LakeUnderTest
from tests.support.reference import ReferenceClient

pytestmark = pytest.mark.airflow
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
OURS = Watched(frozenset({1}), frozenset({"main.ours"}))


def history(changes: dict[int, str], time: datetime = NOON) -> list[Snapshot]:
    """Return snapshots with these changes, all of the same time."""
    return [Snapshot(number, time, 1, 1, 1, text) for number, text in changes.items()]


@pytest.mark.parametrize(
    ("changes", "counts", "with_maintenance"),
    [
        ("inserted_into_table:1", True, True),
        ("inlined_insert:1", True, True),
        ("deleted_from_table:1", True, True),
        ("inlined_delete:1", True, True),
        ("altered_table:1", True, True),
        ("dropped_table:1", True, True),
        ('created_table:"main"."ours"', True, True),
        ('created_table:"main"."OURS",inserted_into_table:9', True, True),
        ("inserted_into_table:2", False, False),
        ("inserted_into_table:11", False, False),
        ("inserted_into_table:2,inserted_into_table:1", True, True),
        ('created_table:"main"."other"', False, False),
        ('created_schema:"s"', False, False),
        ("merge_adjacent:1", False, True),
        ("rewrite_delete:1", False, True),
        ("inline_flush:1", False, True),
        ("merge_adjacent:2", False, False),
        ("merge_adjacent:1,inserted_into_table:2", False, True),
        ("merge_adjacent:2,inserted_into_table:1", True, True),
        ("", False, False),
    ],
)
def test_what_counts_for_a_table(changes: str, counts: bool, with_maintenance: bool) -> None:
    snapshots = history({11: changes})
    all_of_it = Watched(OURS.table_ids, OURS.names, include_maintenance=True)
    assert find_change(snapshots, 10, OURS).snapshot_id == (11 if counts else None)
    assert find_change(snapshots, 10, all_of_it).snapshot_id == (11 if with_maintenance else None)


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ("inserted_into_table:2", True),
        ('created_schema:"s"', True),
        ("dropped_view:3", True),
        ("merge_adjacent:1,inline_flush:2", False),
        ("", False),
    ],
)
def test_what_counts_for_the_whole_lake(changes: str, counts: bool) -> None:
    assert find_change(history({11: changes}), 10, Watched()).snapshot_id == (
        11 if counts else None
    )


SE_03 = {
    10: "inserted_into_table:1",
    11: "inserted_into_table:1",
    12: "merge_adjacent:1",
    13: "inserted_into_table:2",
    15: "inserted_into_table:1",
}


def test_ties_in_time_are_told_apart_by_id() -> None:
    """SE-03: snapshots 10 and 11 have the same time; what is waited for comes after 10."""
    assert find_change(history({10: SE_03[10]}), 10, OURS).snapshot_id is None
    assert find_change(history({n: SE_03[n] for n in (10, 11)}), 10, OURS).snapshot_id == 11


def test_the_newest_that_counts_is_the_answer() -> None:
    assert find_change(history(SE_03), 10, OURS) == Found(15, 15, 1, first=11)
    assert find_change(history({n: SE_03[n] for n in (11, 12, 13)}), 10, OURS).snapshot_id == 11


def test_maintenance_and_other_tables_wake_nobody() -> None:
    later = {n: SE_03[n] for n in (12, 13)}
    assert find_change(history(later), 11, OURS) == Found(None, 13, 0)


def test_expired_snapshots_are_counted() -> None:
    assert find_change(history({15: SE_03[15]}), 10, OURS) == Found(15, 15, 4, first=15)
    assert find_change(history({15: SE_03[13]}), 10, OURS) == Found(None, 15, 4)
    assert find_change([], 10, OURS) == Found(None, 10, 0)


def test_a_change_of_an_unknown_kind_is_not_guessed_at() -> None:
    with pytest.raises(UnsupportedCatalog, match="shuffled_table"):
        find_change(history({11: "shuffled_table:1"}), 10, OURS)


@given(
    st.dictionaries(st.integers(0, 30), st.sampled_from(sorted(set(SE_03.values())))),
    st.integers(0, 30),
    st.randoms(use_true_random=False),
)
def test_the_answer_follows_from_ids_alone(
    changes: dict[int, str], baseline: int, order: Any
) -> None:
    snapshots = history(changes)
    order.shuffle(snapshots)
    found = find_change(snapshots, baseline, OURS)
    newer = [number for number in changes if number > baseline]
    ours = [number for number in newer if changes[number] == "inserted_into_table:1"]
    assert found.snapshot_id == max(ours, default=None)
    assert found.looked_at == max(newer, default=baseline)
    assert found.expired == found.looked_at - baseline - len(newer)


@pytest.fixture
def lake(lake_under_test: LakeUnderTest, connect_lake: Callable[..., None]) -> LakeUnderTest:
    """A lake of each kind with tables `ours` (snapshot 1) and `other` (2), and its connection."""
    connect_lake(lake_under_test)
    return with_tables(lake_under_test)


@pytest.fixture
def some_lake(tmp_path: Path, connect_lake: Callable[..., None]) -> LakeUnderTest:
    """The same in SQLite, for what does not depend on the catalog's kind."""
    made = LakeFactory("sqlite", tmp_path).create()
    connect_lake(made)
    return with_tables(made)


def with_tables(lake: LakeUnderTest) -> LakeUnderTest:
    """Create a lake with two empty tables."""
    change(lake, "CREATE TABLE ours (a INTEGER)", "CREATE TABLE other (a INTEGER)")
    return lake


def change(lake: LakeUnderTest, *statements: str) -> None:
    """Run statements through the reference client, a snapshot each."""
    client: ReferenceClient = lake.client()
    for statement in statements:
        client.sql(statement)
    client.close()


def sensor(**given_arguments: Any) -> DuckLakeSnapshotSensor:
    """Return a sensor for table `ours`."""
    return DuckLakeSnapshotSensor(
        **{"task_id": "wait", "tables": "ours", "poke_interval": 0.0, **given_arguments}
    )


def poke(waiting: DuckLakeSnapshotSensor, context: Any = None) -> int | None:
    """Look once and return the snapshot found, None when the sensor goes on waiting."""
    value = waiting.poke(context or task_context())
    assert value.is_done == (value.xcom_value is not None)
    found: int | None = value.xcom_value
    return found


MANY = "SELECT range FROM range(100)"  # too many to be kept in the catalog


def test_it_waits_for_data_in_its_table(lake: LakeUnderTest) -> None:
    waiting = sensor(tables=["main.ours"])
    assert poke(waiting) is None
    change(lake, f"INSERT INTO other {MANY}")
    assert poke(waiting) is None
    change(lake, f"INSERT INTO ours {MANY}", f"INSERT INTO ours {MANY}")
    assert poke(waiting) == 5


def test_maintenance_alone_does_not_wake_it(lake: LakeUnderTest) -> None:
    change(lake, f"INSERT INTO ours {MANY}", f"INSERT INTO ours {MANY}")
    waiting, all_of_it = sensor(), sensor(include_maintenance=True)
    assert (poke(waiting), poke(all_of_it)) == (None, None)
    change(lake, "CALL ducklake_merge_adjacent_files('lake')")
    assert (poke(waiting), poke(all_of_it)) == (None, 5)


def test_expired_changes_are_seen_in_the_files(lake: LakeUnderTest) -> None:
    """SE-03: 11 to 14 are gone before anybody looked; live state tells."""
    expire = "CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 DAY)"
    change(lake, f"INSERT INTO ours {MANY}", f"INSERT INTO other {MANY}", expire)
    assert poke(sensor(baseline=2)) == 4
    assert poke(sensor(baseline=2, tables=None)) == 4
    assert poke(sensor(baseline=3)) is None
    change(lake, f"INSERT INTO other {MANY}", f"INSERT INTO other {MANY}", expire)
    assert poke(sensor(baseline=4)) is None
    assert poke(sensor(baseline=4, tables=None)) == 6


def test_expired_changes_are_seen_in_inlined_rows(lake: LakeUnderTest) -> None:
    expire = "CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 DAY)"
    change(lake, "INSERT INTO ours VALUES (1)", f"INSERT INTO other {MANY}", expire)
    assert poke(sensor(baseline=2)) == 4
    assert poke(sensor(baseline=3)) is None


def test_expired_changes_are_seen_in_inlined_deletes(lake: LakeUnderTest) -> None:
    expire = "CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 DAY)"
    change(lake, f"INSERT INTO ours {MANY}", "DELETE FROM ours WHERE a = 7")
    change(lake, f"INSERT INTO other {MANY}", expire)
    assert poke(sensor(baseline=3)) == 5
    assert poke(sensor(baseline=4)) is None


def test_merging_expired_snapshots_is_no_new_data(lake: LakeUnderTest) -> None:
    expire = "CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 DAY)"
    merge = "CALL ducklake_merge_adjacent_files('lake')"
    change(lake, f"INSERT INTO ours {MANY}", f"INSERT INTO ours {MANY}", merge)
    change(lake, f"INSERT INTO other {MANY}", expire)
    assert poke(sensor(baseline=4)) is None
    assert poke(sensor(baseline=3)) == 6


def test_a_table_that_does_not_exist_yet_is_waited_for(some_lake: LakeUnderTest) -> None:
    waiting = sensor(tables=["s.later", "ours"])
    assert poke(waiting) is None
    change(some_lake, "CREATE SCHEMA s")
    assert poke(waiting) is None
    change(some_lake, "CREATE TABLE s.later (a INTEGER)")
    assert poke(waiting) == 4


def test_it_runs_to_its_end_and_returns_the_id(some_lake: LakeUnderTest) -> None:
    change(some_lake, f"INSERT INTO ours {MANY}")
    assert sensor(baseline=2).execute(task_context()) == 3
    with pytest.raises(AirflowSensorTimeout):
        sensor(timeout=0.0).execute(task_context())


def test_a_baseline_may_be_a_template(some_lake: LakeUnderTest) -> None:
    from airflow.providers.common.compat.sdk import DAG

    change(some_lake, f"INSERT INTO ours {MANY}")
    with DAG("d"):
        waiting = sensor(baseline="{{ n }}", tables="{{ t }}", include_maintenance="{{ no }}")
    waiting.render_template_fields(task_context({"n": 2, "t": ["ours"], "no": False}))
    assert poke(waiting) == 3
    with DAG("d"):
        waiting = sensor(baseline="{{ n }}")
    waiting.render_template_fields(task_context({"n": None}))
    assert poke(waiting) is None


def test_a_reschedule_keeps_the_baseline_in_the_state_store(some_lake: LakeUnderTest) -> None:
    """Each look is a new process with a new operator; Airflow 3.3 keeps what it knew."""
    context = task_context({"task_state_store": FakeStateStore()})
    with pytest.raises(AirflowRescheduleException):
        sensor(mode="reschedule").execute(context)
    change(some_lake, f"INSERT INTO other {MANY}")
    with pytest.raises(AirflowRescheduleException):
        sensor(mode="reschedule").execute(context)
    assert list(context["task_state_store"].values.values()) == [3]
    change(some_lake, f"INSERT INTO ours {MANY}")
    assert sensor(mode="reschedule").execute(context) == 4


def test_a_given_baseline_is_not_overruled_by_what_was_kept(some_lake: LakeUnderTest) -> None:
    store = FakeStateStore()
    context = task_context({"task_state_store": store})
    change(some_lake, f"INSERT INTO ours {MANY}")
    assert poke(sensor(baseline=3), context) is None
    assert store.values == {}
    assert poke(sensor(baseline=2), context) == 3


def test_without_a_state_store_the_first_look_is_found_again_by_its_time(
    some_lake: LakeUnderTest,
) -> None:
    """Before Airflow 3.3."""
    first_look = datetime.now(timezone.utc)
    assert poke(sensor(mode="reschedule")) is None
    later = task_context(first_reschedule=first_look)
    assert poke(sensor(mode="reschedule"), later) is None
    change(some_lake, f"INSERT INTO ours {MANY}")
    assert poke(sensor(mode="reschedule"), later) == 3
    before_all = task_context(first_reschedule=first_look - timedelta(days=1))
    assert poke(sensor(mode="reschedule"), before_all) == 3


def test_a_baseline_from_the_future_waits(some_lake: LakeUnderTest) -> None:
    assert poke(sensor(baseline=99)) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"baseline": "soon"}, "baseline must be a whole number"),
        ({"include_maintenance": "often"}, "include_maintenance must be true or false"),
        ({"tables": 7}, "tables must be a name or a list"),
    ],
)
def test_wrong_arguments_fail_for_good(
    some_lake: LakeUnderTest, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(AirflowFailException, match=message):
        poke(sensor(**arguments))


def test_a_catalog_that_is_not_there(connect: Connect, tmp_path: Path) -> None:
    attach = f"ducklake:sqlite:{tmp_path}/none.sqlite"
    connect("ducklake_default", conn_type="ducklake", extra=json.loads(f'{{"attach": "{attach}"}}'))
    with pytest.raises(AirflowFailException, match="NotFound: there is no sqlite catalog"):
        poke(sensor())
