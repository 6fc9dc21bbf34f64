"""One DAG for the upkeep of all catalogs of a shared store: plan, then one application a batch."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG, Param

from airflow_provider_ducklake.operators.catalog import DuckLakePurgeCatalogsOperator
from airflow_provider_ducklake.operators.fleet import (
    DuckLakeFleetMaintenanceOperator,
    DuckLakeFleetPlanOperator,
)

AGE = r"^\d+ (seconds?|minutes?|hours?|days?|weeks?)$"
STORE = "ducklake_store"

with DAG(
    dag_id="fleet_maintenance",
    dag_display_name="Fleet maintenance",
    description="Compact, expire and clean up whatever catalog of the store needs it most",
    doc_md="""
### Fleet maintenance

One query over the store finds which catalogs have small files, deleted rows, old snapshots or
files to delete. They are ranked by what readers save for each byte rewritten; the best of them, up
to the limits below, are maintained in batches, each one Spark application, by the policy they were
planned by. What is left waits for the next run. The view `ducklake_api.maintenance` tells what was
done to each catalog, and `ducklake_api.health` what state all are in. Beside it, the files of
catalogs that were dropped are deleted after the same grace, unless a fork reads them.
""",
    schedule="0 * * * *",
    start_date=datetime(2024, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
    params={
        "max_catalogs": Param(
            1000, type="integer", minimum=1, title="At most so many catalogs", section="Budget"
        ),
        "max_gigabytes": Param(
            500, type="integer", minimum=1, title="At most so many GB rewritten", section="Budget"
        ),
        "batch_catalogs": Param(
            200, type="integer", minimum=1, title="Catalogs in one application", section="Budget"
        ),
        "delete_threshold": Param(
            0.1,
            type="number",
            minimum=0,
            maximum=1,
            title="Rewrite files with this share of their rows deleted",
            section="What to do",
        ),
        "older_than": Param(
            "30 days",
            type="string",
            pattern=AGE,
            title="Expire snapshots older than",
            section="Retention",
        ),
        "retain_last": Param(
            5, type="integer", minimum=1, title="But keep the newest", section="Retention"
        ),
        "grace": Param(
            "7 days",
            type="string",
            pattern=AGE,
            title="Delete files unused for",
            section="Retention",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Change nothing; the results say what would be done.",
            section="What to do",
        ),
    },
    tags=["ducklake", "maintenance", "fleet"],
) as dag:
    plan = DuckLakeFleetPlanOperator(
        task_id="plan",
        ducklake_conn_id=STORE,
        delete_threshold="{{ params.delete_threshold }}",
        expire_older_than="{{ params.older_than }}",
        retain_last="{{ params.retain_last }}",
        delete_older_than="{{ params.grace }}",
        max_catalogs="{{ params.max_catalogs }}",
        max_bytes="{{ params.max_gigabytes * 1000 ** 3 }}",
        batch_catalogs="{{ params.batch_catalogs }}",
    )
    DuckLakeFleetMaintenanceOperator.partial(
        task_id="maintain",
        pool="ducklake_fleet",
        ducklake_conn_id=STORE,
        dry_run="{{ params.dry_run }}",
    ).expand(work=plan.output)
    DuckLakePurgeCatalogsOperator(
        task_id="purge",
        ducklake_conn_id=STORE,
        older_than="{{ params.grace }}",
        dry_run="{{ params.dry_run }}",
    )
