"""The deferred sensor: the same answers as in mode poke, and a triggerer that is never blocked."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import sqlite3
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)

from airflow_provider_ducklake.lake.errors import CatalogUnavailable
from airflow_provider_ducklake.lake.lake import LakeView
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from airflow_provider_ducklake.triggers import _poll
from airflow_provider_ducklake.triggers._poll import PolledLake, answers, pause_after
from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger
from tests.airflow.conftest import ODD_PASSWORD, Connect, FakeStateStore, task_context
from tests.airflow.event_loop import Pauses, Stopped, Supervisor, nothing
from tests.airflow.test_sensor import MANY, change, lake, sensor, some_lake, with_tables
from tests.support.lakes import LakeFactory, LakeUnderTest, on_every_kind

__all__ = ["lake", "some_lake"]
pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("unblocked")]
EXPIRE = "CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 DAY)"
MERGE = "CALL ducklake_merge_adjacent_files('lake')"


def deferred(waiting: DuckLakeSnapshotSensor, context: Any = None) -> TaskDeferred:
    """Run a sensor until it gives its slot back."""
    with pytest.raises(TaskDeferred) as raised:
        waiting.execute(context or task_context())
    return raised.value


def made_again(trigger: Any) -> Any:
    """Return a trigger as the triggerer makes it: from what went through the database."""
    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)(**json.loads(json.dumps(arguments)))


def waits(waiting: DuckLakeSnapshotSensor, pauses: Pauses, *steps: Any) -> tuple[int, int | None]:
    """Wait deferred; return how many steps that took, and what the sensor returned."""
    trigger = made_again(deferred(waiting).trigger)
    told = pauses.run(trigger, *steps)
    if not told:
        return len(steps), None
    ((taken, payload),) = told
    return taken, waiting.execute_complete(task_context(), payload)


def pokes(waiting: DuckLakeSnapshotSensor, pauses: Pauses, *steps: Any) -> tuple[int, int | None]:
    """Wait in mode poke; return the same."""
    context = task_context()
    for taken, step in enumerate([nothing, *steps]):
        step()
        if done := waiting.poke(context):
            return taken, done.xcom_value
    return len(steps), None


def test_what_is_kept_of_a_trigger_makes_it_again_and_holds_no_secret(default_lake: None) -> None:
    waiting = sensor(tables=["ours", "s.theirs"], poke_interval=timedelta(seconds=7))
    waiting._seen = 41
    waiting._named = (*waiting._named, "catalog")
    waiting.catalog = "acme"
    with pytest.raises(TaskDeferred) as raised:
        waiting._wait_in_triggerer(waiting._wanted(), 41, {"catalog": "acme"})
    path, arguments = raised.value.trigger.serialize()
    assert path == "airflow_provider_ducklake.triggers.snapshot.DuckLakeSnapshotTrigger"
    assert arguments == {
        "ducklake_conn_id": "ducklake_default",
        "baseline": 41,
        "catalog": "acme",
        "catalog_url": None,
        "tables": ["ours", "s.theirs"],
        "include_maintenance": False,
        "poll_interval": 7.0,
    }
    assert made_again(raised.value.trigger).serialize() == (path, arguments)
    assert not any(piece in json.dumps(arguments) for piece in (ODD_PASSWORD[:4], "qu1et"))


def test_it_waits_in_the_triggerer(
    lake: LakeUnderTest, lake_factory: LakeFactory, pauses: Pauses
) -> None:
    """Writers get at the catalog between two looks; what is done to another lake wakes nobody."""
    neighbour = with_tables(lake_factory.create())
    waiting = sensor(deferrable=True, timeout=90)
    assert deferred(waiting).timeout == timedelta(seconds=90)
    taken, found = waits(
        waiting,
        pauses,
        lambda: change(lake, f"INSERT INTO other {MANY}"),
        lambda: change(neighbour, f"INSERT INTO ours {MANY}"),
        lambda: change(lake, f"INSERT INTO ours {MANY}", f"INSERT INTO ours {MANY}"),
    )
    assert (taken, found) == (3, 5)
    lake_factory.remove(neighbour)


def test_what_is_there_at_the_first_look_needs_no_triggerer(some_lake: LakeUnderTest) -> None:
    change(some_lake, f"INSERT INTO ours {MANY}")
    assert sensor(deferrable=True, baseline=2).execute(task_context()) == 3


@pytest.mark.parametrize("wait", [pokes, waits])
@on_every_kind(
    ("arguments", "expected"),
    [
        ({"tables": "ours"}, (4, 9)),
        ({"tables": "ours", "include_maintenance": True}, (2, 6)),
        ({"tables": ["other", "later"]}, (1, 5)),
        ({"tables": "later"}, (5, 10)),
        ({"tables": "never"}, (5, None)),
        ({}, (1, 5)),
    ],
    everywhere=({"tables": "ours"}, (4, 9)),
)
def test_both_ways_of_waiting_find_the_same(
    lake: LakeUnderTest,
    pauses: Pauses,
    wait: Callable[..., tuple[int, int | None]],
    arguments: dict[str, Any],
    expected: tuple[int, int | None],
) -> None:
    """SE-03: ties, another table, a merge, snapshots that were expired before anybody looked."""
    change(lake, f"INSERT INTO ours {MANY}", f"INSERT INTO ours {MANY}")
    waiting = sensor(**{"tables": None, **arguments}, deferrable=wait is waits)
    steps = (
        lambda: change(lake, f"INSERT INTO other {MANY}"),  # 5
        lambda: change(lake, MERGE),  # 6
        nothing,
        lambda: change(  # 7, 8, 9: what changed `ours` is expired at once
            lake, f"INSERT INTO ours {MANY}", f"INSERT INTO other {MANY}", MERGE, EXPIRE
        ),
        lambda: change(lake, "CREATE TABLE later (a INTEGER)"),
    )
    assert wait(waiting, pauses, *steps) == expected


@pytest.mark.parametrize("wait", [pokes, waits])
def test_a_rewrite_that_was_seen_is_no_change_when_it_has_expired(
    some_lake: LakeUnderTest, pauses: Pauses, wait: Callable[..., tuple[int, int | None]]
) -> None:
    """Its files are new, and begin after the first look, but not after the second."""
    change(some_lake, f"INSERT INTO ours {MANY}", "DELETE FROM ours WHERE a < 99")
    steps = (
        lambda: change(some_lake, "CALL ducklake_rewrite_data_files('lake')"),
        lambda: change(some_lake, f"INSERT INTO other {MANY}", EXPIRE),
    )
    assert wait(sensor(deferrable=wait is waits), pauses, *steps) == (2, None)


def test_a_given_baseline_decides(some_lake: LakeUnderTest, pauses: Pauses) -> None:
    insert = f"INSERT INTO ours {MANY}"
    change(some_lake, insert, insert)
    waiting = sensor(deferrable=True, baseline=4)
    assert waits(waiting, pauses, lambda: change(some_lake, insert)) == (1, 5)
    assert waits(sensor(deferrable=True, baseline=5), pauses, nothing) == (1, None)


def test_a_retry_begins_where_the_first_try_did(some_lake: LakeUnderTest, pauses: Pauses) -> None:
    context = task_context({"task_state_store": FakeStateStore()})
    deferred(sensor(deferrable=True), context)
    change(some_lake, f"INSERT INTO ours {MANY}")
    assert sensor(deferrable=True).execute(context) == 3


def test_airflow_may_make_it_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
    from airflow_provider_ducklake.sensors import snapshot

    try:
        assert importlib.reload(snapshot).DuckLakeSnapshotSensor(task_id="a").deferrable
    finally:
        monkeypatch.undo()
        assert not importlib.reload(snapshot).DuckLakeSnapshotSensor(task_id="a").deferrable


def ended(waiting: DuckLakeSnapshotSensor, **reason: Any) -> Any:
    """Resume a sensor as a worker does."""
    return waiting.resume_execution("execute_complete", reason, task_context())


def test_a_timeout_is_the_timeout_of_a_sensor(some_lake: LakeUnderTest) -> None:
    for soft_fail, error in ((False, AirflowSensorTimeout), (True, AirflowSkipException)):
        waiting = sensor(deferrable=True, soft_fail=soft_fail)
        with pytest.raises(error):
            waiting.resume_execution("__fail__", {"error": "Trigger timeout"}, task_context())


@pytest.mark.parametrize(
    ("connection", "pauses_taken", "message"),
    [
        (None, 2, "ConfigurationError: connection 'ducklake_default' is not defined in Airflow"),
        ({"catalog_type": "sqlite", "path": "/none"}, 0, "NotFound: there is no sqlite catalog"),
        ({"catalog_type": "sqlite", "pth": "/none"}, 2, "unknown extra field 'pth'"),
        (
            {"catalog_type": "sqlite", "path": "/none", "storage_conn_id": "cloud"},
            2,
            "storage_conn_id 'cloud' is not defined",
        ),
    ],
)
def test_what_no_other_look_can_mend_is_told_once(
    connect: Connect, pauses: Pauses, connection: Any, pauses_taken: int, message: str
) -> None:
    if connection:
        connect("ducklake_default", conn_type="ducklake", extra=connection)
    trigger = DuckLakeSnapshotTrigger(ducklake_conn_id="ducklake_default", baseline=0)
    ((taken, event),) = pauses.run(trigger, nothing, nothing, nothing)
    # A connection seems to be missing also where Airflow only fails to look it up.
    assert taken == pauses_taken
    with pytest.raises(AirflowFailException, match=message) as raised:
        ended(sensor(), event=event)
    assert "\n" not in str(raised.value)
    with pytest.raises(AirflowSkipException):
        ended(sensor(soft_fail=True), event=event)


def test_a_connection_that_airflow_cannot_look_up_for_a_moment_is_waited_for(
    some_lake: LakeUnderTest, pauses: Pauses, supervisor: Supervisor, connect: Connect
) -> None:
    change(some_lake, f"INSERT INTO ours {MANY}")
    trigger = DuckLakeSnapshotTrigger(ducklake_conn_id="in_airflow", baseline=2)
    extra = json.dumps({"attach": some_lake.attach_string})
    told = pauses.run(
        trigger, nothing, lambda: supervisor.knows("in_airflow", conn_type="ducklake", extra=extra)
    )
    assert told == [(2, {"snapshot_id": 3})]


def test_a_locked_catalog_is_waited_for(
    some_lake: LakeUnderTest,
    pauses: Pauses,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is asked less and less often, the log says so once, and nothing is missed."""
    monkeypatch.setattr(_poll, "LOCK", 0.01)
    waiting = sensor(deferrable=True, poke_interval=10)
    trigger = made_again(deferred(waiting).trigger)
    change(some_lake, f"INSERT INTO ours {MANY}")
    other = sqlite3.connect(
        some_lake.location.target, isolation_level=None, check_same_thread=False
    )
    other.execute("BEGIN EXCLUSIVE")
    with caplog.at_level(logging.WARNING):
        told = pauses.run(trigger, nothing, nothing, lambda: other.execute("ROLLBACK"))
    other.close()
    assert told == [(3, {"snapshot_id": 3})]
    assert pauses.seconds == [20, 40, 80]
    warnings = [record.getMessage() for record in caplog.records]
    assert len([text for text in warnings if "stayed locked by" in text]) == 1


def test_pauses_grow_and_end_with_the_trouble(pauses: Pauses) -> None:
    gone = CatalogUnavailable("gone")
    outcomes: list[int | CatalogUnavailable] = [*[gone] * 7, 1, gone, 2]
    pauses.steps = [nothing] * 9
    got = []

    async def ask() -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def run() -> None:
        async for answer in answers(ask, 5):
            got.append(answer)

    with pytest.raises(Stopped):
        asyncio.run(run())
    assert got == [1, 2]
    assert pauses.seconds == [10, 20, 40, 80, 160, 300, 300, 5, 10, 5]
    # Never sooner than asked for, and never a busy loop.
    assert (pause_after(9, 900), pause_after(1, 0.0)) == (900, 2)


def test_a_catalog_that_hangs_is_given_up(
    some_lake: LakeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop goes on, no second look is begun beside it, and it may answer again."""
    hangs = threading.Event()

    async def run() -> int:
        polled = PolledLake("ducklake_default")
        # A busy machine may take longer to look up the connection than the catalog is given.
        hook = asyncio.get_running_loop().create_future()
        hook.set_result(await polled._hook())
        monkeypatch.setattr(polled, "_hook", lambda: hook)
        monkeypatch.setattr(_poll, "LOOK", 0.05)

        def hang(view: LakeView) -> None:
            hangs.wait(60)

        with pytest.raises(CatalogUnavailable, match="did not answer within"):
            await polled.look(hang)
        with pytest.raises(CatalogUnavailable, match="has not answered an earlier look"):
            await polled.look(hang)
        hangs.set()
        assert polled._hanging is not None
        await asyncio.to_thread(polled._hanging.join)
        monkeypatch.setattr(_poll, "LOOK", 60.0)
        return await polled.look(lambda view: view.head.snapshot_id)

    assert asyncio.run(run()) == 2


def test_a_connection_whose_look_up_hangs_is_given_up(
    some_lake: LakeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_poll, "LOOK", 0.05)
    hangs = threading.Event()

    async def run() -> None:
        polled = PolledLake("ducklake_default")
        monkeypatch.setattr(polled, "_read", lambda: hangs.wait(60))
        with pytest.raises(CatalogUnavailable, match=r"cannot be looked up now \(TimeoutError\)"):
            await polled.look(lambda view: None)
        assert not hangs.is_set()
        hangs.set()

    asyncio.run(run())


def test_many_look_at_the_same_time_but_not_all_of_them(
    some_lake: LakeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_poll, "AT_ONCE", 2)
    inside: list[LakeView] = []
    go_on = threading.Event()

    def wait(view: LakeView) -> int:
        inside.append(view)
        go_on.wait(60)
        return view.head.snapshot_id

    async def run() -> None:
        looks = asyncio.gather(*(PolledLake("ducklake_default").look(wait) for _ in range(6)))
        while len(inside) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # in which others could begin
        assert len(inside) == 2
        go_on.set()
        assert await looks == [2] * 6

    asyncio.run(run())


def test_a_trigger_that_is_cancelled_ends(some_lake: LakeUnderTest) -> None:
    async def run() -> None:
        trigger = DuckLakeSnapshotTrigger(ducklake_conn_id="ducklake_default", baseline=2)
        task = asyncio.ensure_future(anext(trigger.run()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def test_a_connection_that_only_airflow_knows(
    some_lake: LakeUnderTest,
    pauses: Pauses,
    unblocked: list[str],
    supervisor: Supervisor,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """SE-02: in the triggerer a connection comes from the supervisor, over the loop itself."""
    monkeypatch.delenv("AIRFLOW_CONN_DUCKLAKE_DEFAULT")
    extra = {"attach": some_lake.attach_string, "storage_conn_id": "cloud"}
    supervisor.knows("in_airflow", conn_type="ducklake", extra=json.dumps(extra))
    supervisor.knows("cloud", conn_type="aws", login="AKIA", password="s3cret-key")
    change(some_lake, f"INSERT INTO ours {MANY}")
    trigger = DuckLakeSnapshotTrigger(ducklake_conn_id="in_airflow", baseline=2, tables=["ours"])
    assert pauses.run(trigger) == [(0, {"snapshot_id": 3})]
    assert set(supervisor.asked) == {"in_airflow", "cloud"}
    assert "sqlite3.connect" in unblocked
    assert "s3cret-key" in supervisor.masked
