"""An Airflow of the demo's own: its home, its settings, its metadata database."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from scripts.demo_support.catalogs import LakePlace

ROOT: Final = Path(__file__).resolve().parents[2]
DAGS: Final = ROOT / "dags"


def environment(home: Path, landing: Path, places: Iterable[LakePlace]) -> dict[str, str]:
    """Return the environment of a process that runs the DAGs.

    Args:
        home: Directory of everything the demo makes.
        landing: The landing zone.
        places: The lakes; each becomes an Airflow connection.
    """
    made = {
        # First, so that a caller who set the others may have them otherwise.
        "AIRFLOW_HOME": str(home / "airflow"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        **os.environ,
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[*]"}),
        "AIRFLOW_VAR_DUCKLAKE_LANDING": str(landing),
        # Work directories of Spark go where the demo's other things are.
        "SPARK_LOCAL_DIRS": str(home / "spark"),
    }
    # The interpreter's folder has spark-submit, the repository's root has the package.
    made["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), made.get("PATH", "")))
    python_path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    made["PYTHONPATH"] = os.pathsep.join(python_path)
    for place in places:
        made.update(place.environment)
    return made


def is_prepared(variables: Mapping[str, str]) -> bool:
    """Tell whether an earlier run has made the metadata database from these very DAGs."""
    marker = _marker(variables)
    return marker.is_file() and marker.read_text() == _version()


def prepare(variables: Mapping[str, str], log: Path) -> None:
    """Make Airflow's metadata database, with the tenants' pools and DAGs in it.

    Runs that start at the same time would else all insert the same DAGs, and only one of them may.

    Args:
        variables: The environment of the DAG runs.
        log: File for what Airflow prints.

    Raises:
        subprocess.CalledProcessError: Airflow could not do it; the log says why.
    """
    marker = _marker(variables)
    marker.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        for command in (
            ["db", "migrate"],
            ["pools", "import", str(DAGS / "pools.json")],
            ["dags", "reserialize"],
        ):
            subprocess.run(
                [sys.executable, "-m", "airflow", *command],
                env=dict(variables),
                stdout=output,
                stderr=subprocess.STDOUT,
                check=True,
            )
    marker.write_text(_version())


def _marker(variables: Mapping[str, str]) -> Path:
    return Path(variables["AIRFLOW_HOME"], "prepared-for-the-demo")


def _version() -> str:
    content = hashlib.sha256()
    for file in sorted(path for path in DAGS.iterdir() if path.is_file()):
        content.update(file.read_bytes())
    return f"{importlib.metadata.version('apache-airflow')} {content.hexdigest()}"
