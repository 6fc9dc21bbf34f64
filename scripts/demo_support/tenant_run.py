"""Runs one tenant's DAGs through Airflow, in a process of its own, and tells what happens.

Usage: python -m scripts.demo_support.tenant_run EVENTS_FD PLACE_JSON

Events go to a file descriptor, one JSON object a line; all else this process and Airflow print is a log.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from scripts.demo_support.catalogs import LakePlace
from scripts.demo_support.reference import ReferenceLake
from scripts.demo_support.truth import CORRECTION

# What a person would choose in the form. No grace at all, so that files go while one watches: on a lake
# that somebody uses this would take files away from running readers, hence `force`.
MAINTENANCE: Final[dict[str, Any]] = {
    "older_than": "0 seconds",
    "retain_last": 6,
    "grace": "0 seconds",
    "force": True,
    "delete_threshold": 0.05,
}
STRAY: Final = "main/flights/left-behind-by-a-job-that-died.parquet"


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
        """A task has succeeded; what it returned goes along."""
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
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    dag = bag.dags[dag_id]
    for task in dag.tasks:
        # What fails here fails again, and somebody is waiting.
        task.retries = 0
    run = dag.test(run_conf=dict(conf))
    if run.state != "success":
        raise SystemExit(f"{dag_id}: the run ended {run.state}")


def correct(place: LakePlace, events: Events) -> None:
    """Take two days out of the flights, with the stock extension and the hook's connection."""
    from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook

    events.started("correction")
    hook = DuckLakeHook(f"ducklake_{place.tenant.lower()}")
    hook.run(f"DELETE FROM flights WHERE {CORRECTION}")
    events.finished("correction")


def leave_stray(place: LakePlace) -> None:
    """Put a data file where no catalog knows of it, as a job does that dies before its commit."""
    stray = Path(place.data_path, STRAY)
    some_file = next(path for path in Path(place.data_path).rglob("*.parquet"))
    stray.write_bytes(some_file.read_bytes())


def main(descriptor: str, place_json: str) -> None:
    """Run everything of one tenant: ingest, a person's correction, maintenance."""
    from airflow.sdk.listener import get_listener_manager

    place = LakePlace(**json.loads(place_json))
    events = Events(int(descriptor), ReferenceLake(place))
    get_listener_manager().add_listener(Listener(events).hooks())
    run_dag(f"{place.tenant.lower()}_ingest", {})
    correct(place, events)
    leave_stray(place)
    run_dag(f"{place.tenant.lower()}_maintenance", MAINTENANCE)


if __name__ == "__main__":
    main(*sys.argv[1:])
