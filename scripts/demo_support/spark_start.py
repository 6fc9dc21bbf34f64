"""Making Spark start sooner: a Java class archive, which halves what each application costs.

The demo starts some forty Spark applications that live for seconds. Most of what one costs is Java
reading and checking Spark's classes; an archive of them (class data sharing) is mapped instead.
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

# A quick compiler and a simple collector: neither pays for itself in seconds when it does more.
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"


def archive_path(home: Path, variables: Mapping[str, str]) -> Path:
    """Return where the archive belongs; it fits one Java and one Spark only.

    Raises:
        LookupError: There is no Java.
    """
    java = Path(variables["JAVA_HOME"], "bin", "java") if variables.get("JAVA_HOME") else "java"
    try:
        asked = subprocess.run(
            [str(java), "-version"], env=dict(variables), capture_output=True, check=True
        )
    except FileNotFoundError:
        raise LookupError("there is no Java here, which Spark needs: use make demo") from None
    spark = importlib.metadata.version("pyspark").encode()
    return home / f"spark-classes-{hashlib.sha256(asked.stderr + spark).hexdigest()[:12]}.jsa"


def with_archive(variables: Mapping[str, str], archive: Path) -> dict[str, str]:
    """Return an environment whose Spark applications use the archive, if it is there."""
    options = f"{SHORT_LIVED} -XX:SharedArchiveFile={archive}" if archive.is_file() else SHORT_LIVED
    return {**variables, _OPTIONS: options, "SPARK_LAUNCHER_OPTS": SHORT_LIVED}


def make_archive(variables: Mapping[str, str], archive: Path, parquet: Path, log: Path) -> None:
    """Run one application of the kind the demo runs, and keep the classes it has loaded.

    Args:
        variables: The environment of Spark.
        archive: The file to make.
        parquet: A folder of Parquet to load into a lake that is thrown away.
        log: File for what is printed. Without an archive everything works too, only slower.
    """
    for old in archive.parent.glob("spark-classes-*.jsa"):
        old.unlink()
    # Under another name until it is whole: an interrupted run must not leave half of one.
    unfinished = archive.with_suffix(".unfinished")
    options = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={unfinished}"
    module = [sys.executable, "-m", "airflow_provider_ducklake.spark"]
    application = Path("airflow_provider_ducklake", "spark", "entry", "ducklake_job.py")
    with tempfile.TemporaryDirectory() as scratch, log.open("wb") as output:
        attach = ["--attach", f"ducklake:sqlite:{scratch}/catalog.sqlite"]
        load = ["--table", "flights", "--source", str(parquet), "--option", "create_table=true"]
        for command in (
            [*module, "create_lake", *attach, "--data-path", f"{scratch}/data/"],
            ["spark-submit", "--master", "local[*]", str(application), "ingest", *attach, *load],
        ):
            subprocess.run(
                command,
                cwd=variables["PYTHONPATH"].split(os.pathsep)[0],
                env={**variables, _OPTIONS: options},
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
    if unfinished.is_file():
        unfinished.replace(archive)
