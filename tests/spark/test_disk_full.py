"""A disk that takes no more bytes: one clear line, nothing committed, nothing left behind."""

from __future__ import annotations

import subprocess
import sys

from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.tables import create_table
from tests.support.lakes import LakeUnderTest, catalog_fingerprint

# A limit on the size of files is what a full disk looks like to a writer, without filling one.
_SCRIPT = """
import resource, signal, sys
import numpy, pyarrow
from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.spark.operations import ingest_batches

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
rows = pyarrow.array(numpy.random.default_rng(1).integers(0, 2**62, 500_000))
batch = pyarrow.RecordBatch.from_arrays([rows], ["id"])
try:
    ingest_batches(Lake.open(CatalogLocation.parse(sys.argv[1])), "t", [batch])
except LakeError as error:
    print(type(error).__name__, error)
"""


def test_a_full_disk_changes_nothing(sqlite_lake: tuple[Lake, LakeUnderTest]) -> None:
    lake, judge = sqlite_lake
    create_table(lake, "t", parse_columns("id int64"))
    before = catalog_fingerprint(judge)
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, judge.attach_string],
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    assert line.startswith(("StorageError", "LakeError"))
    assert "too large" in line.lower() or "full" in line.lower()
    assert "Traceback" not in done.stderr
    assert catalog_fingerprint(judge) == before
    assert judge.stored_files() == {}
