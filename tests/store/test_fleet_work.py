"""What the database finds and ranks over all catalogs is what a plain loop over the rows finds."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from airflow_provider_ducklake.lake.store.fleet import (
    STEPS,
    CatalogWork,
    FleetPlan,
    FleetPolicy,
    plan_fleet,
)
from airflow_provider_ducklake.lake.store.store import CatalogStore

MB = 1024**2
CATALOGS = range(1, 41)
POLICY = FleetPolicy(min_small_files=3, min_expired=2, small_file_size=9 * MB)


class Rows:
    """Rows of many catalogs: live and ended files, deletes, old snapshots, files to clean up."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.files = [
            (catalog, (catalog << 32) + at, dice.randint(1, 2), dice.choice([None, 1]),
             dice.choice([None, None, None, 5]), dice.randint(1, 12) * MB, 100)
            for catalog in CATALOGS for at in range(dice.randint(0, 12))
        ]  # fmt: skip
        self.deletes = [
            (file[0], file[1] + 500, file[1], dice.choice([None, None, 6]), dice.randint(1, 20))
            for file in self.files if not dice.randint(0, 5)
        ]  # fmt: skip
        self.snapshots = [
            (catalog, at, dice.choice([1, 29, 31, 400]))
            for catalog in CATALOGS for at in range(1, dice.randint(1, 6))
        ]  # fmt: skip
        self.scheduled = [
            (dice.choice(CATALOGS), at, dice.choice([1, 3])) for at in range(30)
        ]  # fmt: skip

    def insert(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        """Put them into a store, past its triggers."""
        connection.execute("SET session_replication_role = replica")
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO ducklake.ducklake_data_file (catalog_id, data_file_id, table_id, "
                "partition_id, end_snapshot, file_size_bytes, record_count, path_is_relative, "
                "path, begin_snapshot) VALUES (%s, %s, %s, %s, %s, %s, %s, true, 'x', 0)",
                self.files,
            )
            cursor.executemany(
                "INSERT INTO ducklake.ducklake_delete_file (catalog_id, delete_file_id, "
                "data_file_id, end_snapshot, delete_count, path_is_relative, path, table_id, "
                "begin_snapshot) VALUES (%s, %s, %s, %s, %s, true, 'x', 1, 0)",
                self.deletes,
            )
            cursor.executemany(
                "INSERT INTO ducklake.ducklake_snapshot (catalog_id, snapshot_id, snapshot_time) "
                "VALUES (%s, %s, now() - %s * interval '1 day')",
                self.snapshots,
            )
            cursor.executemany(
                "INSERT INTO ducklake.ducklake_files_scheduled_for_deletion (catalog_id, "
                "data_file_id, schedule_start, path_is_relative, path) "
                "VALUES (%s, %s, now() - %s * interval '1 day', true, 'x')",
                self.scheduled,
            )

    def work(self, policy: FleetPolicy) -> list[CatalogWork]:
        """Return what they need, found one by one."""
        found: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
        small = defaultdict(list)
        for catalog, _, table, partition, ended, size, _ in self.files:
            if ended is None and size < policy.small_file_size:
                small[catalog, table, partition].append(size)
        for (catalog, *_), sizes in small.items():
            if len(sizes) >= policy.min_small_files:
                found[catalog].append(("merge_adjacent_files", len(sizes) - 1, sum(sizes)))
        live = {file[1]: file for file in self.files if file[4] is None}
        for catalog, _, file, ended, deleted in self.deletes:
            if ended is None and file in live and deleted >= 100 * policy.delete_threshold:
                found[catalog].append(("rewrite_data_files", 1, live[file][5]))
        for catalog in CATALOGS:
            # A catalog begins with a snapshot, which is a moment old.
            old = [age > 30 for owner, _, age in self.snapshots if owner == catalog]
            if sum(old) >= policy.min_expired:
                found[catalog].append(("expire_snapshots", 1, 0))
        due = Counter(catalog for catalog, _, age in self.scheduled if age > 2)
        for catalog, number in due.items():
            found[catalog].append(("cleanup_old_files", number, 0))
        return [
            CatalogWork(
                f"c{catalog}",
                tuple(step for step in STEPS if any(step == f[0] for f in own)),
                sum(f[1] for f in own),
                sum(f[2] for f in own),
            )
            for catalog, own in found.items()
        ]


def expected(work: list[CatalogWork], policy: FleetPolicy) -> FleetPlan:
    """Rank in Python."""
    ranked = sorted(work, key=lambda item: (-item.score, item.catalog))
    return plan_fleet([(len(work), item) for item in ranked], policy)


@pytest.fixture
def store(postgres_database: str, tmp_path: Path) -> CatalogStore:
    """A store of many catalogs without anything in them, and one that was dropped."""
    store = CatalogStore(postgres_database)
    store.init(f"{tmp_path}/lakes")
    with store:
        for number in CATALOGS:
            store.create_catalog(f"c{number}")
    return store


def test_what_is_found_and_in_which_order(store: CatalogStore, postgres_database: str) -> None:
    rows = Rows(7)
    with psycopg.connect(postgres_database) as connection:
        rows.insert(connection)
    work = rows.work(POLICY)
    assert {step for item in work for step in item.steps} == set(STEPS) - {"flush_inlined_data"}
    assert len(work) > 20
    for policy in (
        POLICY,
        replace(POLICY, max_catalogs=7, batch_catalogs=3),
        # The budget turns down many of those that rank first.
        replace(POLICY, max_catalogs=7, max_bytes=60 * MB, max_share=1),
        replace(POLICY, max_catalogs=30, max_bytes=20 * MB),
        replace(POLICY, max_catalogs=len(work), min_small_files=1, delete_threshold=0.0),
    ):
        assert store.plan_fleet(policy) == expected(rows.work(policy), policy)


def test_old_snapshots(store: CatalogStore, postgres_database: str) -> None:
    """The newest stays, so a catalog of old ones alone has one less to expire."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "INSERT INTO ducklake.ducklake_snapshot (catalog_id, snapshot_id, snapshot_time) "
            "SELECT c, s, now() - interval '40 days' FROM generate_series(1, 3) c, "
            "generate_series(1, c) s"
        )
        connection.execute(
            "UPDATE ducklake.ducklake_snapshot SET snapshot_time = now() - interval '50 days' "
            "WHERE catalog_id IN (2, 4) AND snapshot_id = 0"
        )
        connection.execute("DELETE FROM ducklake.ducklake_snapshot WHERE catalog_id = 5")
    needing = {
        least: {item.catalog for item in store.plan_fleet(FleetPolicy(min_expired=least)).work}
        for least in (0, 1, 2, 3)
    }
    assert needing == {0: {"c1", "c2", "c3"}, 1: {"c1", "c2", "c3"}, 2: {"c2", "c3"}, 3: {"c3"}}


def test_dropped_catalogs_are_nobodys_work(store: CatalogStore, postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "INSERT INTO ducklake.ducklake_files_scheduled_for_deletion "
            "SELECT c, 1, 'x', true, now() - interval '9 days' FROM generate_series(1, 2) c"
        )
    store.drop_catalog("c1")
    assert [item.catalog for item in store.plan_fleet().work] == ["c2"]
