"""A catalog's own retention and that of the fleet: the one that keeps more counts, for both."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.store.fleet_policy import FleetBatch, FleetPolicy
from airflow_provider_ducklake.lake.store.store import CatalogStore
from airflow_provider_ducklake.spark.operations import run_operation
from airflow_provider_ducklake.spark.runner import LocalRunner
from tests.support.lakes import stock_client

# Its own options, and how many of its snapshots of 5, 20 and 40 days and of its files scheduled
# for 5, 20 and 40 days stay where the fleet's are 30 and 7 days.
CATALOGS: dict[str, tuple[dict[str, str], int, int]] = {
    "none": ({}, 2, 1),
    "shorter": ({"expire_older_than": "1 day", "delete_older_than": "1 day"}, 2, 1),
    "longer": ({"expire_older_than": "60 days", "delete_older_than": "30 days"}, 3, 2),
    "longest": ({"expire_older_than": "99 days", "delete_older_than": "99 days"}, 3, 3),
}
POLICY = FleetPolicy(expire_older_than="30 days", delete_older_than="7 days")


@pytest.fixture
def store(postgres_database: str, tmp_path: Path) -> CatalogStore:
    """A store of catalogs with and without options of their own."""
    store = CatalogStore(postgres_database)
    store.init(f"{tmp_path}/lakes")
    for name, (options, _, _) in CATALOGS.items():
        Path(store.create_catalog(name).root).mkdir(parents=True)
        with closing(stock_client(postgres_database, name)) as client:
            for at in range(4):
                client.sql(f"CREATE SCHEMA s{at}")
            for key, value in options.items():
                client.set_option(key, value)
    with psycopg.connect(postgres_database) as connection:
        connection.execute("SET session_replication_role = replica")
        for snapshot, days in enumerate((40, 20, 5)):
            connection.execute(
                "UPDATE ducklake.ducklake_snapshot "
                "SET snapshot_time = now() - %s * interval '1 day' WHERE snapshot_id = %s",
                (days, snapshot),
            )
            connection.execute(
                "INSERT INTO ducklake.ducklake_files_scheduled_for_deletion "
                "SELECT catalog_id, %s, 'f' || %s::text || '.parquet', true, "
                "now() - %s * interval '1 day' FROM ducklake.ducklake_catalog",
                (snapshot, snapshot, days),
            )
    return store


def test_whichever_keeps_more(store: CatalogStore, postgres_database: str) -> None:
    steps = {work.catalog: work.steps for work in store.plan_fleet(POLICY).work}
    both = ("expire_snapshots", "cleanup_old_files")
    assert steps == {"none": both, "shorter": both, "longer": ("cleanup_old_files",)}
    # All of it is asked of all: what a plan leaves out must not happen either.
    result = run_operation(
        "fleet_maintenance",
        Lake.open(CatalogLocation.parse(f"ducklake:postgres:{postgres_database}")),
        {"work": json.dumps(FleetBatch(dict.fromkeys(CATALOGS, both), POLICY).to_dict())},
        runner=LocalRunner(),
    )
    assert not result.is_failed, result.failures
    with psycopg.connect(postgres_database) as connection:
        left = connection.execute(
            "SELECT c.catalog_name, (SELECT count(*) FROM ducklake.ducklake_snapshot s "
            "WHERE s.catalog_id = c.catalog_id AND s.snapshot_id < 3), (SELECT count(*) "
            "FROM ducklake.ducklake_files_scheduled_for_deletion f "
            "WHERE f.catalog_id = c.catalog_id) FROM ducklake.ducklake_catalog c"
        ).fetchall()
    assert {name: kept for name, *kept in left} == {
        name: [snapshots, files] for name, (_, snapshots, files) in CATALOGS.items()
    }
    assert store.plan_fleet(POLICY).catalogs == 0


def test_nothing_goes_before_the_grace_of_a_catalog_without_options(store: CatalogStore) -> None:
    """Which is two days, as maintenance takes it."""
    with store.transaction() as connection:
        connection.execute(
            "UPDATE ducklake.ducklake_files_scheduled_for_deletion "
            "SET schedule_start = now() - interval '30 hours'"
        )
    policy = FleetPolicy(delete_older_than="1 hour")
    planned = {work.catalog: work.steps for work in store.plan_fleet(policy).work}
    assert "cleanup_old_files" not in planned["none"]
    assert "cleanup_old_files" in planned["shorter"]


def test_an_age_that_is_none_breaks_no_plan(store: CatalogStore, postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE ducklake.ducklake_metadata SET value = 'bananas' "
            "WHERE key LIKE '%older_than' AND catalog_id = 3"
        )
    planned = {work.catalog for work in store.plan_fleet(POLICY).work}
    assert planned == {"none", "shorter"}
