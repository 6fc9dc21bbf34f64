"""Parsing the example DAGs reads tenants.yaml and nothing else, and loads nothing heavy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
DAGS: Final = ROOT / "dags"
HEAVY: Final = frozenset({"duckdb", "obstore", "pandas", "psycopg", "pyarrow", "pyspark"})

# Runs in a process of its own: what is imported and opened there is the DAG file's doing.
_PARSE: Final = """
import json, runpy, sys
from pathlib import Path

from airflow.sdk import BaseHook
from scripts.demo_support.airflow_versions import dag_bag
from sqlalchemy import event
from sqlalchemy.engine import Engine

seen = {"statements": [], "connections": [], "opened": [], "connected": []}

@event.listens_for(Engine, "before_cursor_execute")
def note(connection, cursor, statement, *rest):
    seen["statements"].append(statement)

def look_up(conn_id):
    seen["connections"].append(conn_id)
    raise LookupError(conn_id)

BaseHook.get_connection = staticmethod(look_up)
bag = dag_bag(sys.argv[1])
seen["errors"] = bag.import_errors
seen["dags"] = {dag_id: sorted(dag.task_dict) for dag_id, dag in bag.dags.items()}

# A second time, now that everything it imports is there: only the file's own actions are left.
watching = True
def watch(name, arguments):
    if watching and name == "open" and isinstance(arguments[0], str):
        # Airflow 3.1 puts schedules into words with a library that reads its translations.
        if "site-packages" not in arguments[0]:
            seen["opened"].append(Path(arguments[0]).name)
    elif watching and name in ("socket.connect", "sqlite3.connect", "subprocess.Popen"):
        seen["connected"].append(f"{name} {arguments[1:]}")

sys.addaudithook(watch)
runpy.run_path(sys.argv[1] + "/tenant_dags.py")
watching = False
seen["modules"] = sorted(sys.modules)
print("PARSED" + json.dumps(seen))
"""


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What happened while the DAGs folder was parsed."""
    home = tmp_path_factory.mktemp("airflow")
    variables = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", _PARSE, str(DAGS)],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("PARSED"))
    found: dict[str, Any] = json.loads(line.removeprefix("PARSED"))
    return found


def test_every_tenant_has_its_dags(parsed: dict[str, Any]) -> None:
    """No file fails to import, and each tenant has two DAGs."""
    assert parsed["errors"] == {}
    assert set(parsed["dags"]) == {"ewr_new_flights", "fleet_maintenance"} | {
        f"{tenant}_{kind}" for tenant in ("ewr", "jfk", "lga") for kind in ("ingest", "maintenance")
    }


def test_nothing_heavy_is_imported(parsed: dict[str, Any]) -> None:
    """Engines and drivers stay out of the DAG processor."""
    assert HEAVY & set(parsed["modules"]) == set()


def test_nothing_is_asked(parsed: dict[str, Any]) -> None:
    """MT-03: no query, no connection looked up, no socket, no process."""
    assert parsed["statements"] == []
    assert parsed["connections"] == []
    assert parsed["connected"] == []


def test_only_the_tenants_are_read(parsed: dict[str, Any]) -> None:
    """The file itself and the YAML beside it are all that is opened."""
    assert set(parsed["opened"]) == {"tenant_dags.py", "tenants.yaml"}
