"""Makes an Airflow in which a sensor is deferred and an asset is watched; runs as a program."""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from scripts.demo_support.airflow_versions import dag_bag

DAG_FILE: Final = """
from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from airflow_provider_ducklake.triggers.watcher import DuckLakeSnapshotEventTrigger

LAKE = {"ducklake_conn_id": "lake_in_airflow", "tables": "ours"}

with DAG("waiting", schedule=None):
    DuckLakeSnapshotSensor(task_id="wait", deferrable=True, poke_interval=1, **LAKE)

watchers = [
    AssetWatcher(name="ours", trigger=DuckLakeSnapshotEventTrigger(poll_interval=1, **LAKE))
]
with DAG("woken", schedule=[Asset("ours", watchers=watchers)]):
    @task
    def read():
        pass
    read()
"""


def airflow(*command: str) -> None:
    """Run a command of Airflow's in this process: each start takes seconds."""
    from airflow.cli import cli_parser

    arguments = cli_parser.get_parser().parse_args(list(command))
    arguments.func(arguments)


def defer(dag_id: str, task_id: str) -> None:
    """Put a run into the database whose task is deferred, as a worker leaves it."""
    from airflow.models import Trigger
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.providers.common.compat.sdk import TaskDeferred
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState, TaskInstanceState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    now = datetime.now(timezone.utc)
    bag = dag_bag(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    sensor: Any = bag.dags[dag_id].get_task(task_id)
    try:
        sensor.execute({"ti": None})
    except TaskDeferred as deferred:
        trigger: Any = Trigger.from_object(deferred.trigger)
        method = deferred.method_name
    with create_session() as session:
        dag: Any = SerializedDagModel.get_dag(dag_id, session=session)
        run = dag.create_dagrun(
            run_id="by_hand",
            run_after=now,
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.TEST,
            state=DagRunState.RUNNING,
            session=session,
        )
        session.add(trigger)
        session.flush()
        task = run.get_task_instance(task_id, session=session)
        task.state, task.trigger_id = TaskInstanceState.DEFERRED, trigger.id
        task.next_method, task.next_kwargs = method, {}


def main(connection: str) -> None:
    """Make the database, with the DAGs and the connection in it.

    Args:
        connection: Fields of the lake's connection, as JSON.
    """
    folder = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    folder.mkdir()
    (folder / "triggers.py").write_text(DAG_FILE)
    airflow("db", "migrate")
    airflow("connections", "add", "lake_in_airflow", "--conn-json", connection)
    airflow("dags", "reserialize")
    os.environ["AIRFLOW_CONN_LAKE_IN_AIRFLOW"] = connection
    defer("waiting", "wait")


if __name__ == "__main__":
    main(json.dumps(json.loads(sys.argv[1])))
