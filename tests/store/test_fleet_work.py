"""What the database finds and ranks over all catalogs is what a plain loop over the rows finds."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from airflow_provider_ducklake.lake.options import (
    LakeOptions,
    ScopedOption,
    parse_flag,
    parse_size,
)
from airflow_provider_ducklake.lake.store.fleet import CatalogWork, FleetPlan, plan_fleet
from airflow_provider_ducklake.lake.store.fleet_policy import STEPS, FleetPolicy
from airflow_provider_ducklake.lake.store.store import CatalogStore

MB = 1024**2
CATALOGS = range(1, 41)
POLICY = FleetPolicy(min_small_files=3, min_expired=2, small_file_size=9 * MB)
AUTO, TARGET, THRESHOLD = "auto_compact", "target_file_size", "rewrite_delete_threshold"
OPTIONS = {AUTO: ["true", "false"], TARGET: ["7MiB", "11MiB"], THRESHOLD: ["0.08", "0.99"]}


def table_id(catalog: int, number: int) -> int:
    """Return the id of a catalog's first or second table."""
    return (catalog << 32) + number


class Rows:
    """Rows of many catalogs: files, deletes, versions and options of tables, old snapshots, …"""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.files = [
            (catalog, (catalog << 32) + at, table_id(catalog, dice.randint(1, 2)),
             dice.choice([None, None, 1]), dice.randint(1, 9),
             dice.choice([None, None, None, 5]), dice.randint(1, 12) * MB, 100)
            for catalog in CATALOGS for at in range(dice.randint(0, 15))
        ]  # fmt: skip
        self.values = [
            (file[0], file[1], file[2], dice.choice(["a", "a", "b"]))
            for file in self.files if file[3]
        ]  # fmt: skip
        self.deletes = [
            (file[0], file[1] + 500, file[2], file[1], dice.choice([None, None, 6]),
             dice.choice([0, 5, 9, 20, 99]))
            for file in self.files if not dice.randint(0, 5)
        ]  # fmt: skip
        # One table in three was altered at snapshot 5.
        self.versions = [
            (catalog, table_id(catalog, table), begin, begin)
            for catalog in CATALOGS for table in (1, 2) for begin in dice.choice([[0], [0], [0, 5]])
        ]  # fmt: skip
        self.options = [
            (catalog, key, dice.choice(values), scope, scope_id)
            for catalog in CATALOGS for key, values in OPTIONS.items()
            for scope, scope_id in ((None, None), ("schema", 1), ("table", table_id(catalog, 1)))
            if not dice.randint(0, 6)
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
                "INSERT INTO ducklake.ducklake_table (catalog_id, table_id, schema_id, table_name, "
                "begin_snapshot, path, path_is_relative) VALUES (%s, %s, 1, 't', 0, 't/', true)",
                [(c, table_id(c, table)) for c in CATALOGS for table in (1, 2)],
            )
            cursor.executemany(
                "INSERT INTO ducklake.ducklake_data_file (catalog_id, data_file_id, table_id, "
                "partition_id, begin_snapshot, end_snapshot, file_size_bytes, record_count, "
                "path_is_relative, path) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, true, 'x')",
                self.files,
            )
            cursor.executemany(
                "INSERT INTO ducklake.ducklake_file_partition_value (catalog_id, data_file_id, "
                "table_id, partition_key_index, partition_value) VALUES (%s, %s, %s, 0, %s)",
                self.values,
            )
            cursor.executemany(
                "INSERT INTO ducklake.ducklake_delete_file (catalog_id, delete_file_id, table_id, "
                "data_file_id, end_snapshot, delete_count, path_is_relative, path, begin_snapshot) "
                "VALUES (%s, %s, %s, %s, %s, %s, true, 'x', 0)",
                self.deletes,
            )
            cursor.executemany(
                "INSERT INTO ducklake.ducklake_schema_versions "
                "(catalog_id, table_id, begin_snapshot, schema_version) VALUES (%s, %s, %s, %s)",
                self.versions,
            )
            cursor.executemany(
                "INSERT INTO ducklake.ducklake_metadata (catalog_id, key, value, scope, scope_id) "
                "VALUES (%s, %s, %s, %s, %s)",
                self.options,
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

    def option(self, table: int, key: str) -> str:
        """Return an option as maintenance finds it."""
        of_catalog = [ScopedOption(*row[1:]) for row in self.options if row[0] == table >> 32]
        return LakeOptions(tuple(of_catalog)).get(key, schema_id=1, table_id=table) or ""

    def work(self, policy: FleetPolicy) -> list[CatalogWork]:
        """Return what they need, found one by one."""
        found: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
        small = defaultdict(list)
        values = {file: value for _, file, _, value in self.values}
        touched = {row[3] for row in self.deletes}
        altered = {table for _, table, begin, _ in self.versions if begin == 5}
        live = {file[1]: file for file in self.files if file[5] is None}
        for catalog, file, table, partition, begin, _, size, _ in live.values():
            target = policy.target_file_size or parse_size(self.option(table, TARGET), TARGET)
            if file not in touched and size < min(policy.small_file_size, target):
                is_later = table in altered and begin >= 5
                small[catalog, table, partition, values.get(file), is_later].append(size)
        for (catalog, table, *_), sizes in small.items():
            is_wanted = parse_flag(self.option(table, AUTO), AUTO)
            if is_wanted and len(sizes) >= max(policy.min_small_files, 2):
                found[catalog].append(("merge_adjacent_files", len(sizes) - 1, sum(sizes)))
        for catalog, _, table, file, ended, deleted in self.deletes:
            threshold = policy.delete_threshold
            if threshold is None:
                threshold = float(self.option(table, THRESHOLD))
            is_wanted = parse_flag(self.option(table, AUTO), AUTO)
            if (
                ended is None
                and file in live
                and is_wanted
                and deleted
                and deleted / 100 >= threshold
            ):
                found[catalog].append(("rewrite_data_files", 1, live[file][6]))
        for catalog in CATALOGS:
            # A catalog begins with a snapshot, which is a moment old.
            ages = [0, *(age for owner, _, age in self.snapshots if owner == catalog)]
            old = [age > 30 for age in ages[: -policy.retain_last]]
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
        replace(POLICY, delete_threshold=0.1, target_file_size=6 * MB),
        replace(POLICY, retain_last=3, min_expired=1),
    ):
        wanted = expected(rows.work(policy), policy)
        assert store.plan_fleet(policy) == wanted
        assert wanted.catalogs > 5


def test_old_snapshots(store: CatalogStore, postgres_database: str) -> None:
    """The newest by their numbers stay, as an expiry keeps them, whatever the clock said."""
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
        (least, kept): {
            item.catalog
            for item in store.plan_fleet(FleetPolicy(min_expired=least, retain_last=kept)).work
        }
        for least, kept in ((1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (1, 9))
    }
    both = {"c2", "c3"}
    assert needing == {
        (1, 1): both, (2, 1): both, (3, 1): set(), (1, 2): both, (2, 2): set(), (1, 9): set()
    }  # fmt: skip


def test_dropped_catalogs_are_nobodys_work(store: CatalogStore, postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "INSERT INTO ducklake.ducklake_files_scheduled_for_deletion "
            "SELECT c, 1, 'x', true, now() - interval '9 days' FROM generate_series(1, 2) c"
        )
    store.drop_catalog("c1")
    assert [item.catalog for item in store.plan_fleet().work] == ["c2"]
