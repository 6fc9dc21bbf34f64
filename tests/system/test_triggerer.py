"""A deferred sensor and an asset watcher in a real triggerer."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from airflow_provider_ducklake.version_compat import AIRFLOW_V_3_3_PLUS
from tests.airflow.conftest import wait_for
from tests.airflow.test_sensor import MANY, change, with_tables
from tests.support.lakes import LakeFactory

ROOT: Final = Path(__file__).resolve().parents[2]


def environment(home: Path) -> dict[str, str]:
    """Return the environment of an Airflow of its own, without the lake's connection."""
    return {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "PYTHONPATH": str(ROOT),
    }


@contextmanager
def triggerer(home: Path) -> Iterator[Path]:
    """Run Airflow's triggerer; gives its log."""
    log = home / "triggerer.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow", "triggerer", "--skip-serve-logs"],
            env=environment(home),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield log
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def rows(home: Path, query: str) -> list[Any]:
    """Return the first column of a query on Airflow's database."""
    with closing(sqlite3.connect(home / "airflow.db", timeout=60)) as connection:
        return [value for (value, *_) in connection.execute(query).fetchall()]


def reported(home: Path) -> list[dict[str, int]]:
    """Return what the asset's events say."""
    extras = rows(home, "SELECT extra FROM asset_event ORDER BY id")
    return [json.loads(extra)["payload"] for extra in extras]


@pytest.mark.airflow
@pytest.mark.slow
def test_a_sensor_and_a_watcher_in_the_triggerer(tmp_path: Path) -> None:
    """SE-02: each gets its one event, by a connection that is in Airflow's database alone."""
    lake = LakeFactory("sqlite", tmp_path).create()
    with_tables(lake)
    home = tmp_path / "airflow"
    home.mkdir()
    connection = {"conn_type": "ducklake", "extra": {"attach": lake.attach_string}}
    made = subprocess.run(
        [sys.executable, "-m", "tests.system.triggerer_home", json.dumps(connection)],
        env=environment(home),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr[-5000:]

    kept = "SELECT value FROM asset_state_store"
    resumed = "SELECT next_kwargs FROM task_instance WHERE state = 'scheduled'"
    with triggerer(home) as log:
        if AIRFLOW_V_3_3_PLUS:
            wait_for(lambda: rows(home, kept) == ["2"], "the first poll")
            before = []
        else:
            wait_for(lambda: reported(home), "the event of the start")
            before = [{"first_snapshot": 1, "last_snapshot": 1}]
        change(lake, f"INSERT INTO other {MANY}", f"INSERT INTO ours {MANY}")
        wait_for(lambda: len(reported(home)) > len(before), "the event of the new snapshot")
        wait_for(lambda: rows(home, resumed), "the event of the sensor")
        if AIRFLOW_V_3_3_PLUS:
            wait_for(lambda: rows(home, kept) == ["4"], "the poll after the event")
    assert reported(home) == [*before, {"first_snapshot": 4, "last_snapshot": 4}]
    assert '"snapshot_id": 4' in rows(home, resumed)[0]
    assert "Traceback" not in log.read_text()
