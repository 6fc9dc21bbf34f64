"""Sources that cannot be read: one line that names them and says why, and no stack of Java's."""

from __future__ import annotations

import json
import subprocess
import sys

import duckdb
import pytest

from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.tables import create_table
from airflow_provider_ducklake.spark.failures import cause_of
from tests.support.lakes import LakeUnderTest, catalog_fingerprint

pytestmark = pytest.mark.spark

# One JVM for all of them: each run stops its application, and the next one starts in the same.
_SCRIPT = """
import json, sys
from airflow_provider_ducklake.spark.cli import main
for arguments in json.loads(sys.argv[1]):
    print("status", main(arguments), file=sys.stderr, flush=True)
"""


def test_each_is_told_in_one_line(sqlite_lake: tuple[Lake, LakeUnderTest]) -> None:
    lake, judge = sqlite_lake
    create_table(lake, "t", parse_columns("id int64"))
    before = catalog_fingerprint(judge)
    good, broken = judge.directory / "good.parquet", judge.directory / "broken.parquet"
    with duckdb.connect() as session:
        session.execute(f"COPY (SELECT range AS id FROM range(100)) TO '{good}'")
    whole = good.read_bytes()
    broken.write_bytes(whole[:20] + b"\xff" * 60 + whole[80:])
    (judge.directory / "short.parquet").write_bytes(b"hello")
    (judge.directory / "words.csv").write_text("id\n1\nfoo\n")
    cast = "SELECT cast(id AS bigint) AS id FROM source"
    cases = [
        (["broken.parquet"], [], ["broken.parquet", "FAILED_READ_FILE"]),
        (["short.parquet"], [], ["the source", "short.parquet cannot be", "not a Parquet file"]),
        (["missing.parquet"], [], ["missing.parquet cannot be read", "does not exist"]),
        (["good.parquet"], ["--format", "nosuch"], ["good.parquet", "data source: nosuch"]),
        (["good.parquet", "s3://b/x.parquet"], [], ["s3://b/x.parquet", 'scheme "s3"']),
        (["words.csv"], ["--sql", cast, "--option", "reader.header=true"], ["'foo'", "BIGINT"]),
        ([], ["--sql", "SELECT a FROM nowhere"], ["the query", "`nowhere` cannot be found"]),
        ([], ["--sql", "SELEC 1"], ["the query cannot be read", "PARSE_SYNTAX_ERROR"]),
    ]
    common = ["ingest", "--attach", judge.attach_string, "--table", "t", "--master", "local[1]"]
    commands = [
        [*common, *(x for name in sources for x in ("--source", place(judge, name))), *more]
        for sources, more, _ in cases
    ]
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps(commands)],
        capture_output=True,
        text=True,
        check=True,
    )
    told = [line for line in done.stderr.splitlines() if "incubator modules" not in line]
    errors = [line for line in told if line.startswith("ducklake: ERROR BadInput: ")]
    assert [line for line in told if line.startswith("status")] == ["status 1"] * len(cases)
    assert len(errors) == len(cases)
    for line, (_, _, parts) in zip(errors, cases, strict=True):
        assert [part for part in parts if part not in line] == [], line
    # What remains of stderr are lines of our own: no start of Spark, no stack, no log of it.
    others = [line for line in told if line not in errors and not line.startswith("status")]
    assert [line for line in others if not line.startswith("airflow_provider_ducklake: ")] == []
    assert catalog_fingerprint(judge) == before


def place(judge: LakeUnderTest, name: str) -> str:
    """Return the full path of a file, and a URL as it is."""
    return name if "://" in name else str(judge.directory / name)


def test_an_error_of_python_is_its_last_line() -> None:
    message = (
        "Job aborted: Lost task 0.0: org.apache.spark.api.python.PythonException: "
        'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    a / b\n'
        "ZeroDivisionError: division by zero\n\n\tat org.apache.spark.Some.java(1)\n"
    )
    assert cause_of(RuntimeError(message)) == "ZeroDivisionError: division by zero"
    assert cause_of(RuntimeError()) == "RuntimeError"
    assert cause_of(RuntimeError("first\nsecond SQLSTATE: 12345")) == "first"
