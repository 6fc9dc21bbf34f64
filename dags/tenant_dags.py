"""An ingest and a maintenance DAG for each tenant of tenants.yaml."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import yaml
from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import DAG, Param, TaskGroup, chain, task

from airflow_provider_ducklake.operators.add_data_files import DuckLakeAddDataFilesOperator
from airflow_provider_ducklake.operators.checkpoint import DuckLakeCheckpointOperator
from airflow_provider_ducklake.operators.cleanup import (
    DuckLakeCleanupOldFilesOperator,
    DuckLakeDeleteOrphanedFilesOperator,
)
from airflow_provider_ducklake.operators.compaction import (
    DuckLakeFlushInlinedDataOperator,
    DuckLakeMergeAdjacentFilesOperator,
    DuckLakeRewriteDataFilesOperator,
)
from airflow_provider_ducklake.operators.ingest import DuckLakeIngestOperator
from airflow_provider_ducklake.operators.params import (
    ALL_TABLES,
    CHECKPOINT,
    EVERY_STEP,
    STEPS,
    maintenance_params,
)
from airflow_provider_ducklake.operators.snapshots import DuckLakeExpireSnapshotsOperator
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor

QUARTERS = ("Q1", "Q2", "Q3", "Q4")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a tenant keeps what; see the comments in tenants.yaml."""

    older_than: str
    retain_last: int
    grace: str
    delete_threshold: float


@dataclass(frozen=True, slots=True)
class Tenant:
    """One entry of tenants.yaml, completed by the defaults."""

    name: str
    title: str
    ducklake_conn_id: str
    spark_conn_id: str
    pool: str
    landing: str
    ingest_schedule: str | None
    maintenance_schedule: str | None
    dimensions: Mapping[str, str]
    retention: Retention

    @property
    def tables(self) -> list[str]:
        """The tenant's tables."""
        return ["flights", *self.dimensions]

    def landing_path(self, *parts: str) -> str:
        """A path in the tenant's landing folder, as a template."""
        return "/".join((self.landing, self.name, *parts))

    @property
    def job(self) -> dict[str, Any]:
        """What every Spark application of the tenant is given."""
        return {
            "ducklake_conn_id": self.ducklake_conn_id,
            "conn_id": self.spark_conn_id,
            "pool": self.pool,
        }


def read_tenants(path: Path) -> list[Tenant]:
    """Read tenants.yaml."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    defaults = content["defaults"]
    tenants = []
    for name, entry in content["tenants"].items():
        retention = Retention(**{**defaults["retention"], **entry.get("retention", {})})
        tenants.append(Tenant(**{**defaults, **entry, "name": name, "retention": retention}))
    return tenants


def only_if(chosen: Callable[[Mapping[str, Any]], bool]) -> Callable[[Any], None]:
    """Skip a task, before it starts anything, unless the run's parameters choose it."""

    def check(context: Any) -> None:
        if not chosen(context["params"]):
            raise AirflowSkipException("not chosen in this run's parameters")

    return check


def only_if_new(context: Any) -> None:
    """Skip the sensor when the month brought no snapshot: its files were all registered before."""
    task_instance = context["ti"]
    known = task_instance.xcom_pull(task_ids="newest_snapshot")
    registered = task_instance.xcom_pull(task_ids="register_month")
    if registered["snapshot_after"] <= known:
        raise AirflowSkipException("nothing new was registered, so there is nothing to wait for")


@task
def create_lake(ducklake_conn_id: str) -> int:
    """Create the tenant's lake unless it exists; return its newest snapshot."""
    from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
    from airflow_provider_ducklake.lake.lake import Lake

    hook = DuckLakeHook(ducklake_conn_id)
    lake = Lake.create(hook.location(), storage=hook.storage_options(), if_not_exists=True)
    return lake.head().snapshot_id


@task(trigger_rule="none_failed")
def newest_snapshot(ducklake_conn_id: str) -> int:
    """Return the lake's newest snapshot: what a sensor takes as known."""
    from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook

    return DuckLakeHook(ducklake_conn_id).lake().head().snapshot_id


def ingest_params(tenant: Tenant) -> dict[str, Param]:
    """Return the form of the ingest DAG."""
    dimensions, quarters = list(tenant.dimensions), list(QUARTERS)
    return {
        "dimensions": Param(
            dimensions,
            type=["array", "null"],
            title="Dimension tables",
            description="Loaded whole, replacing what is there. Empty: none.",
            examples=dimensions,
            items={"type": "string", "enum": dimensions},
            section="What to load",
        ),
        "quarters": Param(
            quarters,
            type=["array", "null"],
            title="Quarters of flights",
            description="Each is one Spark application and one snapshot. Empty: none.",
            examples=quarters,
            items={"type": "string", "enum": quarters},
            section="What to load",
        ),
        "mode": Param(
            "overwrite_partitions",
            type="string",
            title="How quarters are loaded",
            description="Replacing is safe to repeat; appending twice doubles the rows.",
            enum=["overwrite_partitions", "append"],
            values_display={
                "overwrite_partitions": "Replace the months that are in the data",
                "append": "Append",
            },
            section="What to load",
        ),
        "month": Param(
            "2013-12",
            type=["string", "null"],
            title="Month of existing Parquet",
            description="Registered where it lies, without a copy. Empty: none.",
            pattern=r"^(\d{4}-(0[1-9]|1[0-2]))?$",
            section="Existing files",
        ),
    }


def dimension_task(tenant: Tenant, table: str, file: str) -> DuckLakeIngestOperator:
    """Load one dimension table whole."""
    csv = {"header": True, "inferSchema": True, "nullValue": "NA"}
    is_csv = file.endswith(".csv")
    return DuckLakeIngestOperator(
        task_id=table,
        table=table,
        source=tenant.landing_path(file),
        format="csv" if is_csv else "parquet",
        reader_options=csv if is_csv else None,
        mode="overwrite",
        create_table=True,
        pre_execute=only_if(lambda params: table in (params["dimensions"] or ())),
        trigger_rule="none_failed",
        **tenant.job,
    )


def quarter_task(tenant: Tenant, quarter: str) -> DuckLakeIngestOperator:
    """Load one quarter of the flights."""
    return DuckLakeIngestOperator(
        task_id=quarter,
        table="flights",
        source=tenant.landing_path("flights", quarter),
        mode="{{ params.mode }}",
        create_table=True,
        partition_by=["month"],
        pre_execute=only_if(lambda params: quarter in (params["quarters"] or ())),
        trigger_rule="none_failed",
        **tenant.job,
    )


def ingest_dag(tenant: Tenant) -> DAG:
    """Build the DAG that loads a tenant's data and counts the rows when all of it is there."""
    with DAG(
        dag_id=f"{tenant.name.lower()}_ingest",
        dag_display_name=f"{tenant.name}: ingest",
        description=f"Load the data of {tenant.title} into its lake",
        doc_md=f"""
### {tenant.title}: ingest

Creates the lake on its first run, loads the dimension tables and the quarters of `flights` from
the landing folder, then registers a month of Parquet files that exist already. A sensor waits for
the snapshot of that month, if there was anything new to register; then the rows are counted.

Nothing is loaded twice: dimension tables are replaced whole, quarters replace their months, and
files that are registered already are skipped. A task that is retried after its commit returns
that commit's result.
""",
        schedule=tenant.ingest_schedule,
        start_date=datetime(2024, 1, 1, tzinfo=timezone.utc),
        catchup=False,
        max_active_runs=1,
        default_args={"retries": 1, "retry_delay": timedelta(minutes=1)},
        params=ingest_params(tenant),
        tags=["ducklake", tenant.name, "ingest"],
    ) as dag:
        created = create_lake(tenant.ducklake_conn_id)
        with TaskGroup("dimensions", tooltip="Small tables, loaded whole") as dimensions:
            for table, file in tenant.dimensions.items():
                dimension_task(tenant, table, file)
        with TaskGroup("flights", tooltip="One snapshot a quarter") as flights:
            chain(*(quarter_task(tenant, quarter) for quarter in QUARTERS))
        known = newest_snapshot(tenant.ducklake_conn_id)
        register = DuckLakeAddDataFilesOperator(
            task_id="register_month",
            table="flights",
            source=tenant.landing_path("flights", "{{ params.month }}", "*.parquet"),
            pre_execute=only_if(lambda params: bool(params["month"])),
            **tenant.job,
        )
        wait = DuckLakeSnapshotSensor(
            task_id="wait_for_month",
            ducklake_conn_id=tenant.ducklake_conn_id,
            tables=["flights"],
            baseline="{{ ti.xcom_pull(task_ids='newest_snapshot') }}",
            mode="reschedule",
            poke_interval=5,
            timeout=timedelta(hours=1),
            pre_execute=only_if_new,
        )
        count = SQLExecuteQueryOperator(
            task_id="count_rows",
            conn_id=tenant.ducklake_conn_id,
            sql="SELECT month, count(*) AS flights FROM flights GROUP BY month ORDER BY month",
            trigger_rule="none_failed",
        )
        chain(created, dimensions, flights, known, register, wait, count)
    return dag


def maintenance_tasks(tenant: Tenant) -> dict[str, Any]:
    """Return one operator a step, and the one that does all steps at once, by operation."""
    tables = "{{ '' if params.table == '" + ALL_TABLES + "' else params.table }}"

    def common(operation: str, *, part_of_all: bool = True) -> dict[str, Any]:
        chosen = (operation, EVERY_STEP) if part_of_all else (operation,)
        return {
            "task_id": operation,
            "dry_run": "{{ params.dry_run }}",
            "pre_execute": only_if(lambda params: params["operation"] in chosen),
            "trigger_rule": "none_failed",
            **tenant.job,
        }

    limit = "{{ params.max_compacted_files }}"
    threshold = "{{ params.delete_threshold }}"
    deletion = {"older_than": "{{ params.grace }}", "force": "{{ params.force }}"}
    return {
        "flush_inlined_data": DuckLakeFlushInlinedDataOperator(
            tables=tables, **common("flush_inlined_data")
        ),
        "merge_adjacent_files": DuckLakeMergeAdjacentFilesOperator(
            tables=tables,
            target_file_size="{{ params.target_file_size }}",
            max_compacted_files=limit,
            **common("merge_adjacent_files"),
        ),
        "rewrite_data_files": DuckLakeRewriteDataFilesOperator(
            tables=tables,
            delete_threshold=threshold,
            max_compacted_files=limit,
            **common("rewrite_data_files"),
        ),
        "expire_snapshots": DuckLakeExpireSnapshotsOperator(
            older_than="{{ params.older_than }}",
            retain_last="{{ params.retain_last }}",
            **common("expire_snapshots"),
        ),
        "cleanup_old_files": DuckLakeCleanupOldFilesOperator(
            **deletion, **common("cleanup_old_files")
        ),
        "delete_orphaned_files": DuckLakeDeleteOrphanedFilesOperator(
            **deletion, **common("delete_orphaned_files")
        ),
        CHECKPOINT: DuckLakeCheckpointOperator(
            tables=tables,
            expire_older_than="{{ params.older_than }}",
            retain_last="{{ params.retain_last }}",
            delete_older_than="{{ params.grace }}",
            delete_threshold=threshold,
            **common(CHECKPOINT, part_of_all=False),
        ),
    }


def maintenance_dag(tenant: Tenant) -> DAG:
    """Build the DAG that keeps a tenant's lake small and quick to read."""
    with DAG(
        dag_id=f"{tenant.name.lower()}_maintenance",
        dag_display_name=f"{tenant.name}: maintenance",
        description=f"Compact, expire and clean up the lake of {tenant.title}",
        doc_md=f"""
### {tenant.title}: maintenance

On schedule every step runs, with the retention of `tenants.yaml`. Trigger it by hand to run one
step, on one table, with other limits, or as a dry run: nothing is changed then, and the result
(XCom `return_value`) says what would be.

No kept snapshot ever shows other rows than before. Files are deleted only after the grace period,
which the lake's own setting (`delete_older_than`, 2 days at first) bounds from below.
""",
        schedule=tenant.maintenance_schedule,
        start_date=datetime(2024, 1, 1, tzinfo=timezone.utc),
        catchup=False,
        max_active_runs=1,
        default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
        params=maintenance_params(tenant.tables, **asdict(tenant.retention)),
        tags=["ducklake", tenant.name, "maintenance"],
    ) as dag:
        tasks = maintenance_tasks(tenant)
        chain(*(tasks[operation] for operation in STEPS))
    return dag


for _tenant in read_tenants(Path(__file__).with_name("tenants.yaml")):
    for _dag in (ingest_dag(_tenant), maintenance_dag(_tenant)):
        globals()[_dag.dag_id] = _dag
