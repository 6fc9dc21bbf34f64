"""One tenant end to end: its DAGs run by Airflow, each step a spark-submit, on a SQLite catalog."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest

from scripts.demo_support.airflow_home import environment, prepare
from scripts.demo_support.catalogs import LakePlace, lake_places
from scripts.demo_support.tenant_run import Orders
from tests.support.reference import ReferenceClient

ROOT: Final = Path(__file__).resolve().parents[2]
# As few Spark applications as show all of it: two loads, a registration, a checkpoint.
INGEST: Final = {"dimensions": ["airlines"], "quarters": ["Q1"], "month": "2013-12"}
MAINTENANCE: Final = {
    "operation": "checkpoint",
    "older_than": "0 seconds",
    "retain_last": 1,
    "delete_threshold": 0.1,
}
# Ten flights a day on three days of each month, every other one cancelled. The correction takes the
# cancelled ones of two days in February out.
FLIGHTS: Final = """
SELECT {month}::BIGINT AS month, d AS day, d * 10 + n AS flight, n AS hour,
       CASE WHEN n % 2 = 0 THEN n * 100 END AS dep_time
FROM range(7, 10) days(d), range(10) numbers(n)
"""


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """A landing zone with a little of everything the ingest DAG looks for."""
    home = tmp_path / "landing"
    tenant = home / "EWR"
    (tenant / "flights" / "Q1").mkdir(parents=True)
    (tenant / "flights" / "2013-12").mkdir()
    (tenant / "airlines.csv").write_text("carrier,name\nUA,United\nB6,JetBlue\n")
    with duckdb.connect() as session:
        for month in (1, 2, 3):
            _write(session, FLIGHTS.format(month=month), tenant / f"flights/Q1/{month}.parquet")
        for day in (7, 8, 9):
            rows = f"FROM ({FLIGHTS.format(month=12)}) WHERE day = {day}"
            _write(session, rows, tenant / f"flights/2013-12/{day}.parquet")
    return home


def _write(session: duckdb.DuckDBPyConnection, rows: str, path: Path) -> None:
    session.execute(f"COPY ({rows}) TO '{path}'")


def run_tenant(place: LakePlace, landing: Path, home: Path) -> list[dict[str, Any]]:
    """Run a tenant's DAGs in a process of their own, and return what it told."""
    variables = {**environment(home, landing, [place]), "AIRFLOW_HOME": str(home / "airflow")}
    prepare(variables, home / "airflow.log")
    reader, writer = os.pipe()
    log = home / "run.log"
    orders = Orders(place, INGEST, MAINTENANCE).to_json()
    with os.fdopen(reader, encoding="utf-8") as lines, log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "scripts.demo_support.tenant_run", str(writer), orders],
            cwd=ROOT,
            env=variables,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[writer],
        )
        os.close(writer)
        events = [json.loads(line) for line in lines]
        process.wait()
    assert process.returncode == 0, f"{events[-3:]}\n{log.read_text()[-5000:]}"
    return events


@pytest.mark.airflow
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_tenant_from_ingest_to_maintenance(tmp_path: Path, landing: Path) -> None:
    """Rows are right at every kept snapshot, and every step has done what it is for."""
    with lake_places("sqlite", tmp_path / "lakes") as places:
        place = places["EWR"]
        events = run_tenant(place, landing, tmp_path)
        client = ReferenceClient(place.attach_string)
        try:
            snapshots = client.snapshot_ids()
            flights = [client.sql(f"FROM flights AT (VERSION => {s})") for s in snapshots]
            airlines = client.sql("FROM airlines")
            commits = client.snapshots()
        finally:
            client.close()
    finished = {event["task"]: event for event in events if event["event"] == "finished"}
    skipped = {event["task"] for event in events if event["event"] == "skipped"}

    # What was chosen ran, what was not did not, and nothing failed.
    assert {"dimensions.planes", "flights.Q2", "merge_adjacent_files"} <= skipped
    assert {"dimensions.airlines", "flights.Q1", "register_month", "checkpoint"} <= set(finished)
    assert not [event for event in events if event["event"] == "failed"]

    # The sensor returned the snapshot of the registered month, and the count came after it.
    registered = finished["register_month"]["result"]["snapshot_after"]
    assert finished["wait_for_month"]["result"] == registered
    assert finished["count_rows"]["result"] == [[1, 30], [2, 30], [3, 30], [12, 30]]

    # What is kept are the last insert and the snapshots of the checkpoint, and all show the same.
    expected = Counter(
        (month, day, day * 10 + number, number, None if number % 2 else number * 100)
        for month in (1, 2, 3, 12)
        for day in (7, 8, 9)
        for number in range(10)
        if not (month == 2 and day in (8, 9) and number % 2)
    )
    assert len(snapshots) > 2
    assert [Counter(rows) for rows in flights] == [expected] * len(snapshots)
    assert sorted(airlines) == [("B6", "JetBlue"), ("UA", "United")]

    # Fewer files are left, and the commits say who made them.
    before, after = finished["left_behind"]["measure"], finished["checkpoint"]["measure"]
    assert after["live"] < before["live"]
    assert before["rows"] == after["rows"] == sum(expected.values()) + 2
    for commit in commits[1:]:
        assert commit.author == "airflow"
        assert json.loads(commit.extra_info or "{}")["dag_id"] == "ewr_maintenance"
