"""An archive of Spark's Java classes, which halves what a Spark application costs to start.

Demo and tests start dozens of applications that live for seconds. Most of what one costs is Java
reading and checking Spark's classes; an archive of them (class data sharing) is mapped instead.
`python -m scripts.spark_classes` makes it, once for each Java and Spark.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import duckdb

# A quick compiler and a simple collector: neither pays for itself in seconds when it does more.
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_ROOT: Final = Path(__file__).resolve().parents[1]
_JOB: Final = _ROOT / "airflow_provider_ducklake" / "spark" / "entry" / "ducklake_job.py"


def archive_path(variables: Mapping[str, str]) -> Path:
    """Return where the archive belongs: beside the packages of this interpreter.

    It fits one Java and one Spark only, so its name tells them.

    Args:
        variables: The environment of Spark.

    Raises:
        LookupError: There is no Java.
    """
    java = Path(variables["JAVA_HOME"], "bin", "java") if variables.get("JAVA_HOME") else "java"
    try:
        asked = subprocess.run(
            [str(java), "-version"], env=dict(variables), capture_output=True, check=True
        )
    except FileNotFoundError:
        raise LookupError("there is no Java here, which Spark needs: use make") from None
    spark = importlib.metadata.version("pyspark").encode()
    digest = hashlib.sha256(asked.stderr + spark).hexdigest()[:12]
    return Path(sys.prefix) / f"spark-classes-{digest}.jsa"


def with_archive(variables: Mapping[str, str], archive: Path) -> dict[str, str]:
    """Return an environment whose Spark applications use the archive, if it is there."""
    options = f"{SHORT_LIVED} -XX:SharedArchiveFile={archive}" if archive.is_file() else SHORT_LIVED
    return {**variables, _OPTIONS: options, "SPARK_LAUNCHER_OPTS": SHORT_LIVED}


def make_archive(variables: Mapping[str, str], archive: Path, log: Path) -> None:
    """Run one small application of every kind of work, and keep the classes it has loaded.

    Args:
        variables: The environment of Spark.
        archive: The file to make.
        log: File for what is printed. Without an archive everything works too, only slower.
    """
    for old in archive.parent.glob("spark-classes-*.jsa"):
        old.unlink()
    # Under another name until it is whole: an interrupted run must not leave half of one.
    unfinished = archive.with_suffix(".unfinished")
    options = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={unfinished}"
    with tempfile.TemporaryDirectory() as scratch, log.open("wb") as output:
        source = f"{scratch}/source.parquet"
        with duckdb.connect() as session:
            rows = "SELECT a, a % 2 AS b, 'x' AS c, DATE '2013-01-01' AS d FROM range(10) t(a)"
            session.execute(f"COPY ({rows}) TO '{source}'")
        attach = ["--attach", f"ducklake:sqlite:{scratch}/catalog.sqlite"]
        made = [*attach, "--data-path", f"{scratch}/data/"]
        # A query takes in the classes of Spark SQL, a partition those of a shuffle.
        load = ["--table", "t", "--source", source, "--option", "create_table=true"]
        query = ["--sql", "SELECT * FROM source", "--option", "partition_by=b"]
        for command in (
            [sys.executable, "-m", "airflow_provider_ducklake.spark", "create_lake", *made],
            ["spark-submit", "--master", "local[*]", str(_JOB), "ingest", *attach, *load, *query],
        ):
            subprocess.run(
                command,
                cwd=_ROOT,
                env={**variables, _OPTIONS: options, "SPARK_LOCAL_IP": "127.0.0.1"},
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
    if unfinished.is_file():
        unfinished.replace(archive)


def main() -> None:
    """Make the archive, unless it is there already."""
    archive = archive_path(os.environ)
    if not archive.is_file():
        make_archive(os.environ, archive, archive.with_suffix(".log"))


if __name__ == "__main__":
    main()
