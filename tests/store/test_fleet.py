"""Upkeep of many catalogs at once: what is found, how it is ranked, and what comes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import sql

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.results import MOST_TABLES
from airflow_provider_ducklake.lake.store.fleet import CatalogWork, FleetPlan, plan_fleet
from airflow_provider_ducklake.lake.store.fleet_policy import STEPS, FleetBatch, FleetPolicy
from airflow_provider_ducklake.lake.store.ledger import KEPT_DAYS, LedgerEntry
from airflow_provider_ducklake.spark.runner import LocalRunner
from tests.support.fleets import Fleet

WORK = st.lists(
    st.builds(
        CatalogWork,
        st.sampled_from([f"c{n}" for n in range(40)]),
        st.sets(st.sampled_from(STEPS), min_size=1).map(
            lambda some: tuple(step for step in STEPS if step in some)
        ),
        st.integers(1, 10_000),
        st.integers(0, 2**40),
    ),
    unique_by=lambda work: work.catalog,
)
POLICIES = st.builds(
    FleetPolicy,
    max_catalogs=st.integers(1, 50),
    max_bytes=st.integers(1, 2**42),
    max_share=st.floats(0.01, 1),
    batch_catalogs=st.integers(1, 20),
)


def planned(work: list[CatalogWork], policy: FleetPolicy) -> FleetPlan:
    """Rank work and plan, as the store does with what it finds."""
    ranked = sorted(work, key=lambda item: (-item.score, item.catalog))
    return plan_fleet([(len(work), item) for item in ranked], policy)


@given(work=WORK, policy=POLICIES)
def test_plans_keep_to_their_budget(work: list[CatalogWork], policy: FleetPolicy) -> None:
    plan = planned(work, policy)
    placed = [name for batch in plan.batches for name in batch.catalogs]
    assert len(placed) == len(set(placed)) == plan.catalogs <= policy.max_catalogs
    assert plan.catalogs + plan.left == len(work)
    assert plan.size <= policy.max_bytes
    assert all(0 < len(batch.catalogs) <= policy.batch_catalogs for batch in plan.batches)
    assert all(batch.policy == policy for batch in plan.batches)
    assert len(plan.batches) == -(-plan.catalogs // policy.batch_catalogs)
    wanted = {item.catalog: item.steps for item in work}
    for batch in plan.batches:
        for name, steps in batch.catalogs.items():
            assert steps == wanted[name]
    scores = [item.score for item in plan.work]
    assert scores == sorted(scores, reverse=True)
    if plan.catalogs < policy.max_catalogs:
        turned_down = [min(i.size, policy.catalog_bytes) for i in work if i not in plan.work]
        assert all(plan.size + cost > policy.max_bytes for cost in turned_down)


def test_many_small_files_go_before_few_large_ones() -> None:
    work = [
        CatalogWork("giant", ("merge_adjacent_files",), 100, 10**12),
        CatalogWork("small", ("merge_adjacent_files",), 100, 10**6),
        CatalogWork("idle", ("cleanup_old_files",), 1, 0),
    ]
    plan = planned(work, FleetPolicy())
    assert [work.catalog for work in plan.work] == ["small", "idle", "giant"]


def test_one_giant_does_not_take_it_all() -> None:
    work = [CatalogWork("giant", ("merge_adjacent_files",), 10**9, 10**15)]
    work += [CatalogWork(f"c{n}", ("merge_adjacent_files",), 9, 10**6) for n in range(100)]
    plan = planned(work, FleetPolicy(max_bytes=2 * 10**9, batch_catalogs=50))
    assert plan.catalogs == 101
    catalogs = [list(batch.catalogs) for batch in plan.batches]
    giant, *others = sorted(catalogs, key=lambda names: "giant" not in names)
    assert [len(names) for names in others] == [50, 50]
    assert giant == ["giant"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_share": 0},
        {"max_share": 2},
        {"max_catalogs": 0},
        {"delete_threshold": -1},
        {"delete_threshold": "0.5"},
        {"target_file_size": "128MB"},
        {"retain_last": True},
        {"expire_older_than": 30},
        {"retain_lasst": 5},
    ],
)
def test_policies_that_make_no_plan(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        FleetPolicy.from_dict(wrong)


@given(policy=POLICIES)
def test_a_batch_carries_its_policy(policy: FleetPolicy) -> None:
    batch = FleetBatch({"acme": ["merge_adjacent_files"]}, policy)
    assert FleetBatch.from_json(json.dumps(batch.to_dict())) == batch
    assert FleetBatch.from_json('{"catalogs": {}}').policy == FleetPolicy()


@pytest.fixture
def fleet(postgres_database: str, tmp_path: Path) -> Fleet:
    """A fleet."""
    fleet = Fleet(postgres_database, tmp_path)
    fleet.fill("small", 8)
    fleet.fill("deleted", 2, deletes=True)
    fleet.fill("tidy", 1)
    fleet.store.create_catalog("empty")
    return fleet


NOW = FleetPolicy(
    expire_older_than="0 seconds", delete_older_than="0 seconds", delete_threshold=0.1
)


def test_what_needs_work_is_found(fleet: Fleet) -> None:
    policy = FleetPolicy(delete_threshold=0.1)
    work = {"small": ("merge_adjacent_files",), "deleted": ("rewrite_data_files",)}
    assert fleet.store.plan_fleet(policy).batches == (FleetBatch(work, policy),)
    found = {work.catalog: work for work in fleet.store.plan_fleet(NOW).work}
    assert found.keys() == {"small", "deleted", "tidy"}
    assert found["tidy"].steps == ("expire_snapshots",)
    assert found["small"].files == 7 + 1
    assert fleet.store.plan_fleet(FleetPolicy(min_small_files=9)).catalogs == 0


def test_a_batch_is_maintained(fleet: Fleet) -> None:
    """All of it, until there is nothing left to do; rows stay, and the ledger tells of it."""
    before = {name: fleet.sum(name) for name in ("small", "deleted", "tidy")}
    now = datetime.now(timezone.utc)
    old = LedgerEntry("small", "flush_inlined_data", now - timedelta(days=KEPT_DAYS, hours=1), 0.0)
    fleet.store.write_ledger([old, replace(old, started_at=now - timedelta(days=KEPT_DAYS - 1))])
    for _ in range(3):
        (batch,) = fleet.store.plan_fleet(NOW).batches or (FleetBatch({}),)
        result = fleet.maintain(batch)
        assert not result.is_failed, result.failures
        assert result.counts["catalogs"] == len(batch.catalogs)
        with psycopg.connect(fleet.conninfo) as connection:
            connection.execute(
                "UPDATE ducklake.ducklake_files_scheduled_for_deletion "
                "SET schedule_start = schedule_start - interval '3 days'"
            )
    assert fleet.store.plan_fleet(NOW).catalogs == 0
    assert {name: fleet.sum(name) for name in before} == before
    with psycopg.connect(fleet.conninfo) as connection:
        ledger = connection.execute(
            "SELECT catalog_name, operation, files_in, files_out, error "
            "FROM ducklake_api.maintenance WHERE operation LIKE '%files' ORDER BY started_at"
        ).fetchall()
        health = connection.execute(
            "SELECT catalog_name, data_files, snapshots, files_scheduled, last_failed "
            "FROM ducklake_api.health ORDER BY 1"
        ).fetchall()
        (flushed,) = connection.execute(
            "SELECT count(*) FROM ducklake_api.maintenance WHERE operation LIKE 'flush%'"
        ).fetchall()
    assert flushed == (1,), "what is older goes with the next entry of its catalog"
    assert ("small", "merge_adjacent_files", 8, 1, None) in ledger
    assert ("small", "cleanup_old_files", 8, 0, None) in ledger
    assert health == [
        ("deleted", 1, 1, 0, None),
        ("empty", 0, 1, 0, None),
        ("small", 1, 1, 0, None),
        ("tidy", 1, 1, 0, None),
    ]


def test_one_that_fails_does_not_stop_the_others(fleet: Fleet, tmp_path: Path) -> None:
    broken = next((tmp_path / "lakes" / "deleted").rglob("*-delete.parquet"))
    broken.write_bytes(b"not Parquet")
    work = {
        "deleted": ["rewrite_data_files"],
        "gone": ["merge_adjacent_files", "cleanup_old_files"],
        "small": ["merge_adjacent_files"],
    }
    result = fleet.maintain(FleetBatch(work, FleetPolicy(delete_threshold=0.1)))
    assert result.is_failed
    assert result.counts["catalogs_failed"] == 2
    said = " ".join(failure.message for failure in result.failures)
    assert "deleted: rewrite_data_files: main.t" in said
    assert "gone: merge_adjacent_files: catalog gone of the store" in said
    assert "cleanup_old_files" not in said
    assert [table.table for table in result.tables] == ["small: main.t"]
    with psycopg.connect(fleet.conninfo) as connection:
        errors = connection.execute(
            "SELECT catalog_name, error IS NULL FROM ducklake_api.maintenance ORDER BY 1"
        ).fetchall()
    assert errors == [("deleted", False), ("small", True)]


SCHEDULED = (
    "INSERT INTO ducklake.ducklake_files_scheduled_for_deletion "
    "(catalog_id, data_file_id, path, path_is_relative, schedule_start) "
    "VALUES (2, %s, %s, true, %s)"
)
# Rows that make no sense in the catalog `deleted`, and what is said of them.
SENSELESS: list[tuple[str, tuple[object, ...], str]] = [
    (SCHEDULED, (None, "x", "2020-01-01"), "data_file_id None, path 'x'"),
    (SCHEDULED, (7, None, "2020-01-01"), "path None"),
    (SCHEDULED, (7, "x", None), "schedule_start None"),
    ("UPDATE ducklake.ducklake_data_file SET path = NULL WHERE catalog_id = %s", (2,), "path None"),
    (
        "UPDATE ducklake.ducklake_data_file SET table_id = %s WHERE catalog_id = 2",
        (9,),
        "a file of table 9",
    ),
    (
        "UPDATE ducklake.ducklake_table SET schema_id = %s WHERE catalog_id = 2",
        (9,),
        "in schema 9",
    ),
    # Nobody looks for this one.
    (
        "UPDATE ducklake.ducklake_snapshot SET schema_version = NULL WHERE catalog_id = %s",
        (2,),
        "an unexpected TypeError",
    ),
]


@pytest.mark.parametrize(("statement", "values", "said"), SENSELESS)
def test_rows_that_make_no_sense_are_their_catalogs_affair(
    fleet: Fleet, statement: str, values: tuple[object, ...], said: str
) -> None:
    with psycopg.connect(fleet.conninfo) as connection:
        connection.execute("SET session_replication_role = replica")
        for table, column in (
            ("ducklake_files_scheduled_for_deletion", "data_file_id"),
            ("ducklake_files_scheduled_for_deletion", "path"),
            ("ducklake_files_scheduled_for_deletion", "schedule_start"),
            ("ducklake_data_file", "path"),
        ):
            drop = sql.SQL("ALTER TABLE ducklake.{} ALTER {} DROP NOT NULL")
            connection.execute(drop.format(sql.Identifier(table), sql.Identifier(column)))
        connection.execute(statement, values)
    steps = ["merge_adjacent_files", "cleanup_old_files"]
    result = fleet.maintain({"deleted": steps, "small": steps})
    assert result.counts["catalogs_failed"] == 1
    assert [table.table for table in result.tables] == ["small: main.t"]
    assert any(said in failure.message for failure in result.failures)
    assert all(failure.message.startswith("deleted: ") for failure in result.failures)
    with psycopg.connect(fleet.conninfo) as connection:
        ledger = connection.execute(
            "SELECT catalog_name, operation, error FROM ducklake_api.maintenance ORDER BY 1, 2 DESC"
        ).fetchall()
    assert [row[:2] for row in ledger] == [
        (name, s) for name in ("deleted", "small") for s in steps
    ]
    assert any(said in str(error) for name, _, error in ledger if name == "deleted")
    assert all(error is None for name, _, error in ledger if name == "small")


class Killed(BaseException):
    """The end of the process."""


class DyingRunner(LocalRunner):
    """Dies with the whole job when files of `small` are to be rewritten."""

    def for_tenant(self, name: str) -> DyingRunner:
        return self

    def run(self, function: Any, tasks: Any, description: str = "") -> Any:
        raise Killed


def test_the_ledger_counts_tables_that_no_result_tells_of(fleet: Fleet) -> None:
    """A result tells of so many tables; of a catalog with more, the ledger adds up all."""
    fleet.store.create_catalog("wide")
    client = fleet.client("wide")
    client.sql("BEGIN")
    for number in range(MOST_TABLES + 1):
        client.sql(f"CREATE TABLE t{number} AS SELECT * FROM (VALUES (1), (2)) AS v(i)")
    client.sql("COMMIT")
    client.sql("BEGIN")
    for number in range(MOST_TABLES + 1):
        client.sql(f"DELETE FROM t{number} WHERE i = 1")
    client.sql("COMMIT")
    client.close()
    policy = FleetPolicy(delete_threshold=0.5)
    fleet.maintain(FleetBatch({"wide": ["rewrite_data_files"]}, policy))
    with psycopg.connect(fleet.conninfo) as connection:
        found = connection.execute("SELECT files_in, files_out FROM ducklake.maintenance_ledger")
        assert found.fetchall() == [(MOST_TABLES + 1, MOST_TABLES + 1)]


def test_a_job_that_is_killed_has_told_of_what_it_did(fleet: Fleet) -> None:
    with pytest.raises(Killed):
        fleet.maintain(
            {"tidy": ["cleanup_old_files"], "small": ["merge_adjacent_files"]},
            threads=1,
            runner=DyingRunner(),
        )
    with psycopg.connect(fleet.conninfo) as connection:
        told = connection.execute("SELECT catalog_name, operation FROM ducklake_api.maintenance")
        assert told.fetchall() == [("tidy", "cleanup_old_files")]


def test_a_dry_run_changes_nothing(fleet: Fleet) -> None:
    result = fleet.maintain({"small": ["merge_adjacent_files"]}, dry_run=True)
    assert [(t.table, t.files_in) for t in result.tables] == [("small: main.t", 8)]
    assert fleet.store.plan_fleet().catalogs == 1
    with psycopg.connect(fleet.conninfo) as connection:
        assert connection.execute("SELECT * FROM ducklake.maintenance_ledger").fetchall() == []


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ("", "must be a JSON object"),
        ("[]", "must be a JSON object"),
        ("{", "must be a JSON object"),
        ('{"acme": ["merge_adjacent_files"]}', "must be a JSON object"),
        ('{"catalogs": ["acme"]}', "must be a JSON object"),
        ('{"catalogs": {"a": "merge"}}', "must be a JSON object"),
        ('{"catalogs": {"a": ["frobnicate"]}}', "'frobnicate' is none of"),
        ('{"catalogs": {}, "policy": []}', "must be a JSON object"),
        ('{"catalogs": {}, "policy": {"max_bites": 1}}', "max_bytes"),
        ('{"catalogs": {}, "polisy": {}}', "must be a JSON object"),
    ],
)
def test_work_that_is_none(work: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        FleetBatch.from_json(work)
