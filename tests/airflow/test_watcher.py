"""The asset watcher: which snapshots wake a DAG, how often, and what a restart does."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime, timezone
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetWatcher
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.model import Snapshot
from airflow_provider_ducklake.sensors._changes import Found, Wanted
from airflow_provider_ducklake.triggers._glance import Glance
from airflow_provider_ducklake.triggers._poll import PolledLake
from airflow_provider_ducklake.triggers.watcher import DuckLakeSnapshotEventTrigger
from airflow_provider_ducklake.version_compat import AIRFLOW_V_3_3_PLUS
from tests.airflow.conftest import Connect
from tests.airflow.event_loop import Pauses, Stopped, nothing
from tests.airflow.test_deferred_sensor import EXPIRE, MERGE, made_again
from tests.airflow.test_sensor import MANY, change, lake, some_lake
from tests.support.lakes import LakeUnderTest

__all__ = ["lake", "some_lake"]
pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("unblocked")]
OURS, OTHER = f"INSERT INTO ours {MANY}", f"INSERT INTO other {MANY}"


class FakeAssetStore:
    """Airflow 3.3's asset state store of some assets, in memory."""

    def __init__(self, *assets: str) -> None:
        self._by_name = {name: FakeAsset() for name in assets or ("orders",)}

    @property
    def values(self) -> list[Any]:
        """What is kept, of each asset."""
        return [value for one in self._by_name.values() for value in one.values.values()]


class FakeAsset:
    """The store of one asset."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.away = False

    def goes_away(self) -> None:
        """Answer no more."""
        self.away = True

    def comes_back(self) -> None:
        """Answer again."""
        self.away = False

    async def aget(self, key: str, default: Any = None) -> Any:
        """Return a value."""
        self._answer()
        return self.values.get(key, default)

    async def aset(self, key: str, value: Any) -> None:
        """Keep a value, as JSON."""
        self._answer()
        self.values[key] = json.loads(json.dumps(value))

    def _answer(self) -> None:
        if self.away:
            raise ConnectionError("away")


def watcher(store: Any = None, **arguments: Any) -> DuckLakeSnapshotEventTrigger:
    """Return a watcher of table `ours`, as the triggerer makes it."""
    trigger = made_again(DuckLakeSnapshotEventTrigger(**{"tables": "ours", **arguments}))
    assert isinstance(trigger, DuckLakeSnapshotEventTrigger)
    trigger.asset_state_store = store
    return trigger


def event(first: int, last: int) -> dict[str, int]:
    """Return an event's payload."""
    return {"first_snapshot": first, "last_snapshot": last}


def test_each_change_wakes_once_however_many_there_were(
    lake: LakeUnderTest, pauses: Pauses
) -> None:
    """A burst between two polls is one event; upkeep and other tables are none."""
    told = pauses.run(
        watcher(FakeAssetStore(), poll_interval=5),
        nothing,
        lambda: change(lake, OURS, OTHER, OURS),  # 3, 4, 5
        lambda: change(lake, OTHER, MERGE),  # 6, 7
        lambda: change(lake, OURS),  # 8
    )
    assert told == [(2, event(3, 5)), (4, event(8, 8))]
    assert set(pauses.seconds) == {5}


def test_upkeep_wakes_those_who_ask_for_it(some_lake: LakeUnderTest, pauses: Pauses) -> None:
    change(some_lake, OURS, OURS)
    asking = watcher(FakeAssetStore(), include_maintenance=True)
    assert pauses.run(asking, lambda: change(some_lake, MERGE)) == [(1, event(5, 5))]


def test_what_was_expired_before_the_poll_wakes_too(
    some_lake: LakeUnderTest, pauses: Pauses
) -> None:
    """SE-03: the files tell; and that other tables changed is told from theirs."""
    told = pauses.run(
        watcher(FakeAssetStore()),
        lambda: change(some_lake, OTHER, OTHER, EXPIRE),
        lambda: change(some_lake, OURS, OTHER, EXPIRE),
    )
    assert told == [(2, event(5, 6))]


def test_a_table_that_does_not_exist_yet_is_watched(
    some_lake: LakeUnderTest, pauses: Pauses
) -> None:
    told = pauses.run(
        watcher(FakeAssetStore(), tables=["s.later"]),
        lambda: change(some_lake, "CREATE SCHEMA s"),
        lambda: change(some_lake, "CREATE TABLE s.later (a INTEGER)"),
    )
    assert told == [(2, event(4, 4))]


def test_a_restart_misses_nothing(some_lake: LakeUnderTest, pauses: Pauses) -> None:
    """SE-02: what was committed while no triggerer ran is reported when it is back, and only it."""
    store = FakeAssetStore()
    assert pauses.run(watcher(store)) == []
    change(some_lake, OURS)
    assert pauses.run(watcher(store), nothing) == [(0, event(3, 3))]
    assert pauses.run(watcher(store), nothing) == []
    change(some_lake, OTHER)
    assert pauses.run(watcher(store), nothing) == []
    change(some_lake, OURS, OURS)
    assert pauses.run(watcher(store), nothing) == [(0, event(5, 6))]
    assert store.values == [6]


def test_a_crash_before_airflow_has_the_event_repeats_it(
    some_lake: LakeUnderTest, pauses: Pauses
) -> None:
    """Only at the next poll is a snapshot taken for reported."""
    store = FakeAssetStore()
    told = pauses.run(watcher(store), lambda: change(some_lake, OURS))
    assert told == [(1, event(3, 3))]
    assert store.values == [2]
    assert pauses.run(watcher(store), nothing) == [(0, event(3, 3))]
    assert store.values == [3]


def test_a_store_that_does_not_answer_is_waited_for(
    some_lake: LakeUnderTest, pauses: Pauses, caplog: pytest.LogCaptureFixture
) -> None:
    """Airflow would start a trigger that fails again at once; nothing is lost, and it is told."""
    store = FakeAssetStore()
    (asset,) = store._by_name.values()
    pauses.run(watcher(store), nothing)
    change(some_lake, OURS)
    told = pauses.run(
        watcher(store),
        asset.goes_away,
        lambda: change(some_lake, OURS),
        asset.comes_back,
        nothing,
    )
    assert told == [(0, event(3, 3)), (3, event(4, 4))]
    assert store.values == [4]
    asset.goes_away()
    change(some_lake, OURS)
    caplog.clear()
    caplog.set_level(logging.INFO)
    assert pauses.run(watcher(store), nothing, asset.comes_back, nothing) == [(2, event(5, 5))]
    lines = [line for line in caplog.messages if "asset state store" in line]
    assert len(lines) == 2, "once that it is away, once that it is back"


def test_without_a_store_a_start_reports_the_newest(
    some_lake: LakeUnderTest, pauses: Pauses
) -> None:
    """Before Airflow 3.3 nobody knows what was reported: once too often, never too seldom."""
    change(some_lake, OURS, OTHER, MERGE)
    told = pauses.run(watcher(), nothing, lambda: change(some_lake, OURS))
    assert told == [(0, event(1, 3)), (2, event(5, 5))]
    assert pauses.run(watcher(tables="never"), nothing) == []


def test_watchers_of_one_asset_keep_their_own_place(
    some_lake: LakeUnderTest, pauses: Pauses
) -> None:
    store = FakeAssetStore()
    pauses.run(watcher(store), nothing)
    change(some_lake, OTHER)
    pauses.run(watcher(store, tables="other"), nothing)
    assert sorted(store.values) == [2, 3]


def test_assets_of_one_watcher_keep_the_same_place(
    some_lake: LakeUnderTest, pauses: Pauses
) -> None:
    """SE-02: Airflow makes one trigger of equal watchers; the asset furthest behind counts."""
    store = FakeAssetStore("a", "b")
    pauses.run(watcher(store), nothing)
    change(some_lake, OURS)
    assert pauses.run(watcher(store), nothing) == [(0, event(3, 3))]
    assert store.values == [3, 3]
    behind = next(iter(store._by_name.values())).values
    behind[next(iter(behind))] = 2
    assert pauses.run(watcher(store), nothing) == [(0, event(3, 3))]


def test_a_lake_put_back_from_a_copy_is_noticed(some_lake: LakeUnderTest, pauses: Pauses) -> None:
    """Its ids begin again at an older one; what it holds then is reported."""
    path, store = some_lake.directory / "catalog.sqlite", FakeAssetStore()
    copy = path.read_bytes()
    change(some_lake, OURS, OURS, OURS)
    pauses.run(watcher(store), nothing)
    assert store.values == [5]
    told = pauses.run(
        watcher(store),
        lambda: path.write_bytes(copy),
        lambda: change(some_lake, OURS),
        nothing,
    )
    assert told == [(1, event(1, 1)), (2, event(3, 3))]
    assert store.values == [3]


def test_what_is_wrong_is_told_once_and_waited_out(
    some_lake: LakeUnderTest, connect: Connect, pauses: Pauses, caplog: pytest.LogCaptureFixture
) -> None:
    """Airflow starts a trigger that fails again at once, and would do so for ever."""
    right = json.loads(os.environ["AIRFLOW_CONN_DUCKLAKE_DEFAULT"])
    connect("ducklake_default", conn_type="ducklake", extra={"atach": "x"})
    store = FakeAssetStore()
    with caplog.at_level(logging.ERROR):
        told = pauses.run(
            watcher(store, poll_interval=100),
            nothing,
            nothing,
            lambda: connect("ducklake_default", **right),
            lambda: change(some_lake, OURS),
        )
    assert told == [(4, event(3, 3))]
    assert pauses.seconds == [200, 300, 300, 100, 100]
    (line,) = (record.getMessage() for record in caplog.records)
    assert "unknown extra field 'atach'" in line
    assert "\n" not in line


def test_what_is_kept_of_it_makes_it_again(default_lake: None) -> None:
    trigger = DuckLakeSnapshotEventTrigger(catalog="acme", tables="ours", poll_interval=7)
    path, arguments = trigger.serialize()
    assert path == "airflow_provider_ducklake.triggers.watcher.DuckLakeSnapshotEventTrigger"
    assert arguments == {
        "ducklake_conn_id": "ducklake_default",
        "catalog": "acme",
        "catalog_url": None,
        "tables": ["ours"],
        "include_maintenance": False,
        "poll_interval": 7.0,
    }
    assert made_again(trigger).serialize() == trigger.serialize()


def test_airflow_makes_one_trigger_of_equal_watchers() -> None:
    """By the hash of what is kept of them; and a DAG may be scheduled on the asset."""
    with DAG("d", schedule=[Asset("a", watchers=[AssetWatcher(name="w", trigger=watcher())])]):
        pass
    kept = [watcher(tables=tables).serialize() for tables in ("ours", ["ours"], "other")]
    same, again, another = (DuckLakeSnapshotEventTrigger.hash(*one) for one in kept)
    assert same == again != another


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tables": []}, "names none"),
        ({"tables": ""}, "names none"),
        ({"tables": 7}, "a name or a list"),
        ({"poll_interval": 0}, "above 0"),
        ({"poll_interval": "often"}, "must be a number"),
    ],
)
def test_wrong_arguments_are_refused_in_the_dag_file(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        DuckLakeSnapshotEventTrigger(**arguments)


def test_who_shares_a_poll() -> None:
    """Watchers of one lake with one interval, whatever tables they watch."""
    key = watcher().shared_stream_key()
    assert key == watcher(tables="other", include_maintenance=True).shared_stream_key()
    for other in ({"catalog": "acme"}, {"catalog_url": "s3://b/c"}, {"poll_interval": 7}):
        assert watcher(**other).shared_stream_key() != key


@pytest.mark.skipif(not AIRFLOW_V_3_3_PLUS, reason="shared polls came with Airflow 3.3")
def test_watchers_of_one_lake_share_one_poll(
    some_lake: LakeUnderTest, pauses: Pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through Airflow's own manager of shared streams: one look a poll, whoever watches what."""
    from airflow.triggers.shared_stream import SharedStreamManager

    looks = 0
    original = PolledLake.look

    async def counted(polled: PolledLake, question: Callable[..., Any]) -> Any:
        nonlocal looks
        looks += 1
        return await original(polled, question)

    monkeypatch.setattr(PolledLake, "look", counted)
    watchers = [watcher(FakeAssetStore(), tables=name) for name in ("ours", "other", None)]
    told: list[list[Any]] = [[] for _ in watchers]

    async def follow(number: int, stream: AsyncIterator[Any]) -> None:
        with contextlib.suppress(Stopped):
            async for one in watchers[number].filter_shared_stream(stream):
                told[number].append(one.payload)

    async def run() -> None:
        manager = SharedStreamManager()
        streams = [
            manager.subscribe(trigger_id=number, trigger=one, key=one.shared_stream_key())
            for number, one in enumerate(watchers)
        ]
        await asyncio.gather(*(follow(number, stream) for number, stream in enumerate(streams)))
        await manager.stop_all()

    pauses.steps = [
        lambda: change(some_lake, OURS),
        lambda: change(some_lake, OTHER, MERGE, OURS),
        nothing,
    ]
    asyncio.run(run())
    assert told == [[event(3, 3), event(5, 5)], [event(4, 4)], [event(3, 3), event(4, 5)]]
    assert looks == 4


@pytest.mark.skipif(not AIRFLOW_V_3_3_PLUS, reason="the store came with Airflow 3.3")
def test_airflows_own_store_of_several_assets_is_understood(
    some_lake: LakeUnderTest, pauses: Pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.execution_time import context

    kept: dict[str, Any] = {}

    async def aget(asset: Any, key: str, default: Any = None) -> Any:
        return kept.get(asset._name, default)

    async def aset(asset: Any, key: str, value: Any) -> None:
        kept[asset._name] = value

    monkeypatch.setattr(context.AssetStateStoreAccessor, "aget", aget)
    monkeypatch.setattr(context.AssetStateStoreAccessor, "aset", aset)
    store = context.AssetStateStoreAccessors(inlets=[Asset("a"), Asset("b")])
    told = pauses.run(watcher(store), lambda: change(some_lake, OURS), nothing)
    assert told == [(1, event(3, 3))]
    assert kept == {"a": 3, "b": 3}


NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def history(upkeep: Iterable[int]) -> list[Snapshot]:
    """Return snapshots 0 to 20, of which some are upkeep."""
    changes = dict.fromkeys(upkeep, "merge_adjacent:1")
    return [
        Snapshot(number, NOON, 1, 1, 1, changes.get(number, "inserted_into_table:1"))
        for number in range(21)
    ]


@given(st.sets(st.integers(0, 20)), st.lists(st.integers(0, 20), min_size=1).map(sorted))
def test_polls_miss_nothing_and_repeat_nothing(upkeep: set[int], heads: list[int]) -> None:
    """Whenever the polls come: where no snapshot is missing, they alone tell each change once."""
    seen = heads[0]
    told, expected = [], []
    for after, head in itertools.pairwise(heads):
        new = tuple(one for one in history(upkeep) if after < one.snapshot_id <= head)
        found = Glance(after, head, new).find(Wanted(), seen)
        assert found is not None
        seen = found.looked_at
        told.append((found.first, found.snapshot_id))
        changes = [number for number in range(after + 1, head + 1) if number not in upkeep]
        expected.append((min(changes, default=None), max(changes, default=None)))
    assert told == expected
    assert seen == heads[-1]


def test_a_poll_says_when_it_cannot_tell() -> None:
    """To who is behind it or ahead of it, and of what was expired."""
    merge, insert = history([9])[9], history([])[9]
    assert Glance(5, 9, (merge,)).find(Wanted(), 4) is None
    assert Glance(5, 9, (merge,)).find(Wanted(), 10) is None
    assert Glance(5, 9, (merge,)).find(Wanted(), 9) == Found(None, 9, 0)
    assert Glance(5, 9, (merge,)).find(Wanted(), 5) is None
    assert Glance(5, 9, (insert,)).find(Wanted(), 5) == Found(9, 9, 3, first=9)
