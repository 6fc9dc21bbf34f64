"""A DAG that new snapshots of a tenant's flights wake: it reads what changed since its last run."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, Variable, task

from airflow_provider_ducklake.triggers.watcher import DuckLakeSnapshotEventTrigger

CONNECTION = "ducklake_ewr"
READ_UP_TO = "ewr_flights_read_up_to"
FLIGHTS = Asset(
    "ewr_flights",
    watchers=[
        AssetWatcher(
            name="ewr_flights",
            trigger=DuckLakeSnapshotEventTrigger(ducklake_conn_id=CONNECTION, tables="flights"),
        )
    ],
)


@task
def count_changes(triggering_asset_events: Any = None) -> dict[str, int]:
    """Count what was inserted, updated and deleted since the last run; events only wake it."""
    from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook

    events = triggering_asset_events.get(FLIGHTS, ())  # none where a person starts the run
    before = min((event.extra["payload"]["first_snapshot"] for event in events), default=1) - 1
    known = int(Variable.get(READ_UP_TO, default=before))
    hook = DuckLakeHook(CONNECTION)
    # What has expired meanwhile cannot be read as changes any more.
    snapshots = hook.lake().snapshots(after=known)
    if not snapshots:
        return {}
    first, last = snapshots[0].snapshot_id, snapshots[-1].snapshot_id
    changes = hook.get_records(
        "SELECT change_type, count(*) FROM ducklake_table_changes('lake', 'main', 'flights', ?, ?) "
        "GROUP BY change_type",
        (first, last),
    )
    Variable.set(READ_UP_TO, str(last))
    return dict(changes)


with DAG(
    dag_id="ewr_new_flights",
    dag_display_name="EWR: new flights",
    description="Read what changed in the flights of Newark, as soon as it has",
    doc_md="""
### New flights

Woken by the asset `ewr_flights`, whose watcher looks for new snapshots of the table once a minute.
Several snapshots may be one event, and several events one run: what is read is everything from the
snapshot after the last one read (variable `ewr_flights_read_up_to`) to the newest.
""",
    schedule=[FLIGHTS],
    start_date=datetime(2024, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    tags=["ducklake", "EWR"],
) as dag:
    count_changes()
