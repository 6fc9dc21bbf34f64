"""fleet_maintenance on Spark: many catalogs at a time, each with its part of the slots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.store.store import CatalogStore
from airflow_provider_ducklake.spark.operations import run_operation
from airflow_provider_ducklake.spark.runner import SparkRunner
from tests.support.lakes import stock_client

pytestmark = pytest.mark.spark


def test_a_batch_of_catalogs(postgres_database: str, tmp_path: Path, runner: SparkRunner) -> None:
    store = CatalogStore(postgres_database)
    store.init(f"{tmp_path}/lakes")
    names = [f"c{number}" for number in range(12)]
    store.create_catalog("first")
    client = stock_client(postgres_database, "first")
    client.sql("CREATE TABLE t (i INTEGER)")
    for start in range(0, 600, 100):
        client.sql(f"INSERT INTO t SELECT i FROM range({start}, {start + 100}) r(i)")
    client.close()
    for name in names:
        store.fork_catalog("first", name)
    (batch,) = store.plan_fleet().batches
    assert set(batch.catalogs) == {"first", *names}
    result = run_operation(
        "fleet_maintenance",
        Lake.open(CatalogLocation.parse(f"ducklake:postgres:{postgres_database}")),
        {"work": json.dumps(batch.to_dict()), "threads": "4"},
        runner=runner,
    )
    assert not result.is_failed, result.failures
    assert result.counts["catalogs"] == len(result.tables) == 13
    assert {(t.files_in, t.files_out, t.rows) for t in result.tables} == {(6, 1, 600)}
    assert store.plan_fleet().catalogs == 0
    for name in ("first", *names):
        reader = stock_client(postgres_database, name)
        assert reader.sql("SELECT count(*), sum(i)::INTEGER FROM t") == [(600, 179700)]
        reader.close()
