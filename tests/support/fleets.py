"""A store with some catalogs, and the upkeep of them in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.lake.store.fleet_policy import FleetBatch
from airflow_provider_ducklake.lake.store.store import CatalogStore
from airflow_provider_ducklake.spark.operations import run_operation
from airflow_provider_ducklake.spark.runner import LocalRunner, Runner
from tests.support.lakes import stock_client
from tests.support.reference import ReferenceClient


class Fleet:
    """A store of its own with some catalogs in different states."""

    def __init__(self, conninfo: str, directory: Path) -> None:
        self.conninfo = conninfo
        self.store = CatalogStore(conninfo)
        self.store.init(f"{directory}/lakes")

    def location(self, name: str | None) -> CatalogLocation:
        """Return the location of a catalog, or of the store."""
        return CatalogLocation.parse(f"ducklake:postgres:{self.conninfo}", catalog=name)

    def client(self, name: str) -> ReferenceClient:
        """Return a stock client."""
        return stock_client(self.conninfo, name)

    def fill(self, name: str, inserts: int, deletes: bool = False) -> None:
        """Create a catalog with a table of some small files."""
        self.store.create_catalog(name)
        client = self.client(name)
        client.sql("CREATE TABLE t (i INTEGER, s VARCHAR)")
        for start in range(inserts):
            rows = f"range({start * 100}, {start * 100 + 100}) r(i)"
            client.sql(f"INSERT INTO t SELECT i, 'r' || i FROM {rows}")
        if deletes:
            client.sql("DELETE FROM t WHERE i % 2 = 0")
        client.close()

    def sum(self, name: str) -> tuple[int, int]:
        """Return count and sum of a catalog's rows."""
        client = self.client(name)
        ((number, total),) = client.sql("SELECT count(*), sum(i)::BIGINT FROM t")
        client.close()
        return number, total

    def maintain(
        self,
        work: FleetBatch | Mapping[str, Sequence[str]],
        *,
        runner: Runner | None = None,
        threads: int = 4,
        dry_run: bool = False,
        max_seconds: float | None = None,
    ) -> OperationResult:
        """Run one batch; by the default policy where only its catalogs are given."""
        batch = work if isinstance(work, FleetBatch) else FleetBatch(work)
        return run_operation(
            "fleet_maintenance",
            Lake.open(self.location(None)),
            {
                "work": json.dumps(batch.to_dict()),
                "threads": str(threads),
                "max_seconds": str(max_seconds or ""),
            },
            runner=runner or LocalRunner(),
            dry_run=dry_run,
        )
