"""Runs one tenant's DAGs through Airflow, in a process of its own, and tells what happens.

Usage: python -m scripts.demo_support.tenant_run EVENTS_FD ORDERS_JSON

Events go to a file descriptor, one JSON object a line; all else that is printed here is a log.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from scripts.demo_support.airflow_versions import dag_bag, listener_manager
from scripts.demo_support.catalogs import LakePlace
from scripts.demo_support.reference import ReferenceLake
from scripts.demo_support.truth import BLIZZARD, TOOK_OFF

# What a person would choose in the form. No grace at all, so that files go while one watches: on a
# lake that somebody uses this would take files away from running readers, hence `force`.
MAINTENANCE: Final[dict[str, Any]] = {
    "older_than": "0 seconds",
    "retain_last": 8,
    "grace": "0 seconds",
    "force": True,
    "delete_threshold": 0.05,
}
STRAY: Final = "main/flights/left-behind-by-a-job-that-died.parquet"


@dataclass(frozen=True, slots=True)
class Orders:
    """What to run.

    Attributes:
        place: The tenant's lake.
        ingest: Parameters of the run of the ingest DAG.
        maintenance: Parameters of the run of the maintenance DAG.
    """

    place: LakePlace
    ingest: dict[str, Any]
    maintenance: dict[str, Any]

    def to_json(self) -> str:
        """Return it as the text the command line takes."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Orders:
        """Rebuild it from that text."""
        orders = json.loads(text)
        return cls(LakePlace(**orders["place"]), orders["ingest"], orders["maintenance"])


class Events:
    """Writes events, and measures the lake after each step."""

    def __init__(self, descriptor: int, reference: ReferenceLake) -> None:
        """Take the descriptor events go to, and the lake."""
        self._file = os.fdopen(descriptor, "w", buffering=1, encoding="utf-8")
        self._reference = reference
        self._started: dict[str, float] = {}
        self._looks: dict[str, int] = {}

    def started(self, task: str) -> None:
        """A task runs; a sensor that looks again does so too."""
        self._looks[task] = self._looks.get(task, 0) + 1
        if self._looks[task] == 1:
            self._started[task] = time.monotonic()
        self._send("started", task)

    def finished(self, task: str, result: Any = None) -> None:
        """A task has succeeded; what it returned goes along, and the lake's figures."""
        seconds = time.monotonic() - self._started[task]
        measure = asdict(self._reference.measure())
        looks = self._looks[task]
        self._send("finished", task, seconds=seconds, measure=measure, result=result, looks=looks)

    def skipped(self, task: str) -> None:
        """A task was not chosen."""
        self._send("skipped", task)

    def failed(self, task: str, error: object) -> None:
        """A task has failed."""
        self._send("failed", task, error=" ".join(str(error).split()))

    def _send(self, event: str, task: str, **more: Any) -> None:
        self._file.write(json.dumps({"event": event, "task": task, **more}, default=str) + "\n")


class Listener:
    """What Airflow calls when a task's state changes."""

    def __init__(self, events: Events) -> None:
        """Pass everything on to the events."""
        self._events = events

    def hooks(self) -> Any:
        """Return the object to register: its methods are marked as Airflow's hooks."""
        from airflow.listeners import hookimpl

        events = self._events

        class Hooks:
            @hookimpl
            def on_task_instance_running(self, task_instance: Any) -> None:
                events.started(task_instance.task_id)

            @hookimpl
            def on_task_instance_success(self, task_instance: Any) -> None:
                result = task_instance.xcom_pull(task_ids=task_instance.task_id)
                events.finished(task_instance.task_id, result)

            @hookimpl
            def on_task_instance_skipped(self, task_instance: Any) -> None:
                events.skipped(task_instance.task_id)

            @hookimpl
            def on_task_instance_failed(self, task_instance: Any, error: Any) -> None:
                events.failed(task_instance.task_id, error)

        return Hooks()


def run_dag(dag_id: str, conf: Mapping[str, Any]) -> None:
    """Run one DAG of the DAGs folder to its end.

    Raises:
        SystemExit: A task failed.
    """
    bag = dag_bag(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    dag = bag.dags[dag_id]
    for task in dag.tasks:
        # What fails here fails again, and somebody is waiting.
        task.retries = 0
    run = dag.test(run_conf=dict(conf))
    if run.state != "success":
        raise SystemExit(f"{dag_id}: the run ended {run.state}")


def correct(place: LakePlace, landing: str, events: Events) -> None:
    """Do what a person does with the stock extension: a DELETE, then many small INSERTs.

    Each statement is a snapshot. Inserts of a few rows stay in the catalog, others are small files.
    """
    from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook

    hook = DuckLakeHook(f"ducklake_{place.tenant.lower()}")
    events.started("correction")
    hook.run(f"DELETE FROM flights WHERE {BLIZZARD}", autocommit=True)
    events.finished("correction")
    events.started("trickle")
    source = f"read_parquet('{landing}/{place.tenant}/flights/Q1/*.parquet')"
    commits = {}
    with hook.get_conn() as connection:
        for hour in range(24):
            rows = f"FROM {source} WHERE {TOOK_OFF} AND hour = {hour}"
            connection.execute(f"INSERT INTO flights BY NAME {rows}")
            newest = "SELECT max(snapshot_id) FROM ducklake_snapshots('lake')"
            commits[hour] = connection.execute(newest).fetchone()[0]
    events.finished("trickle", commits)


def leave_stray(place: LakePlace, events: Events) -> None:
    """Put a data file where no catalog knows of it, as a job does that dies before its commit."""
    events.started("left_behind")
    stray = Path(place.data_path, STRAY)
    some_file = next(path for path in Path(place.data_path).rglob("*.parquet"))
    stray.write_bytes(some_file.read_bytes())
    events.finished("left_behind")


def main(descriptor: str, orders_json: str) -> None:
    """Run everything of one tenant: ingest, a person's correction, maintenance."""
    orders = Orders.from_json(orders_json)
    place = orders.place
    events = Events(int(descriptor), ReferenceLake(place))
    listener_manager().add_listener(Listener(events).hooks())
    run_dag(f"{place.tenant.lower()}_ingest", orders.ingest)
    correct(place, os.environ["AIRFLOW_VAR_DUCKLAKE_LANDING"], events)
    leave_stray(place, events)
    run_dag(f"{place.tenant.lower()}_maintenance", orders.maintenance)


if __name__ == "__main__":
    main(*sys.argv[1:])
