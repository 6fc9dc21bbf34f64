"""An Airflow of the demo's own: its home, its settings, its metadata database."""

from __future__ import annotations

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
    """Tell whether an earlier run has made the metadata database and the pools."""
    marker = _marker(variables)
    return marker.is_file() and marker.read_text() == _version()


def prepare(variables: Mapping[str, str], log: Path) -> None:
    """Make Airflow's metadata database and the tenants' pools.

    Args:
        variables: The environment of the DAG runs.
        log: File for what Airflow prints.

    Raises:
        subprocess.CalledProcessError: Airflow could not do it; the log says why.
    """
    marker = _marker(variables)
    marker.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        for command in (["db", "migrate"], ["pools", "import", str(DAGS / "pools.json")]):
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
    return importlib.metadata.version("apache-airflow") + "\n" + (DAGS / "pools.json").read_text()
