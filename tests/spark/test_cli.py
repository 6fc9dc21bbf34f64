"""The command line: exit status, one clear line for bad input, results by file and as JSON."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.lake.tables import create_table
from airflow_provider_ducklake.spark.cli import main
from airflow_provider_ducklake.spark.operations import OPERATIONS, only_reads
from tests.support.lakes import LakeUnderTest, catalog_fingerprint

_WITH_PASSWORD = "host=127.0.0.1 port=1 user=x password=geheim"

Lakes = tuple[Lake, LakeUnderTest]


def test_help_names_every_operation(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in OPERATIONS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required"),
        (["info"], "--attach"),
        (["info", "--attach", "ducklake:x", "--colour"], "--colour"),
        (["info", "--attach", "ducklake:x", "--option", "novalue"], "NAME=VALUE"),
        (["infos", "--attach", "ducklake:x"], "did you mean 'info'"),
        (["info", "--attach", "ducklake:x", "--option", "verbose=1"], "unknown option"),
        (["info", "--attach", "ducklake:x", "--extra-info", "["], "JSON object"),
        (["info", "--attach", "ducklake:x", "--extra-info", "1"], "JSON object"),
        (["info", "--attach", "ducklake:oracle:x"], "catalog of type 'oracle'"),
        (["info", "--attach", "ducklake:sqlite:x", "--metadata-schema", "s"], "SQLite has no"),
        (["info", "--attach", "ducklake:x.db", "--memory-limit", "viel"], "memory limit 'viel'"),
        (["info", "--attach", f"ducklake:postgres:{_WITH_PASSWORD}"], "DUCKLAKE_CATALOG_PASSWORD"),
        (["info", "--attach", "ducklake:md:lake?motherduck_token=geheim"], "holds a password"),
    ],
)
def test_wrong_usage_ends_with_two(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown
    assert "geheim" not in shown


def test_wrong_usage_is_in_the_result_file_too(tmp_path: Path) -> None:
    """Operators raise what they find there, which says more than spark-submit's exit status."""
    result_file = tmp_path / "result.json"
    assert main(["infos", "--attach", "ducklake:x", "--result-file", str(result_file)]) == 2
    assert json.loads(result_file.read_text())["error"]["type"] == "ConfigurationError"


@pytest.mark.parametrize("flag", ["--result-file", "--report-file"])
def test_a_file_that_cannot_be_written_is_refused_before_any_work(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create = ["create_lake", "--attach", f"ducklake:sqlite:{tmp_path}/c.sqlite"]
    create += ["--data-path", f"{tmp_path}/data"]
    for path in (tmp_path / "nowhere" / "file", tmp_path, "/proc/file"):
        assert main([*create, flag, str(path)]) == 2
        assert f"wrong usage: {flag} {path} cannot be written (" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_at_the_end_does_not_change_the_status(tmp_path: Path) -> None:
    """What was asked for is done then, and a second try would do it again."""
    folder = tmp_path / "folder"
    folder.mkdir()
    attach = f"ducklake:sqlite:{tmp_path}/c.sqlite"
    script = f"""
import os, shutil, sys
from airflow_provider_ducklake.spark import cli
from airflow_provider_ducklake.spark.output import say, write_report, write_result
shutil.rmtree({str(folder)!r})
write_result({str(folder / "result")!r}, {{}})
write_report({str(folder / "report")!r}, [])
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
sys.exit(cli.main(["create_lake", "--attach", {attach!r}, "--data-path", {str(tmp_path)!r}]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    warned = [line for line in done.stderr.splitlines() if line.startswith("ducklake: WARNING: ")]
    told = [line.removeprefix("ducklake: WARNING: the ").partition(" ")[0] for line in warned]
    assert told == ["result", "report", "result"]
    assert "Traceback" not in done.stderr
    assert (tmp_path / "c.sqlite").exists()


def test_a_lake_and_a_table_are_created_and_described(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attach = ["--attach", f"ducklake:sqlite:{tmp_path}/c.sqlite"]
    assert main(["create_lake", *attach, "--data-path", f"{tmp_path}/data"]) == 0
    columns = "columns=id int64, tags varchar[]"
    options = ["--option", columns, "sorted_by=id", "--option", "if_not_exists=true"]
    assert main(["create_table", *attach, "--table", "t", *options]) == 0
    capsys.readouterr()
    result_file = tmp_path / "result.json"
    assert main(["info", *attach, "--json", "--result-file", str(result_file)]) == 0
    line = json.loads(capsys.readouterr().out)
    assert line == json.loads(result_file.read_text())
    result = OperationResult.from_dict(line)
    assert [table.table for table in result.tables] == ["main.t"]
    assert result.counts == {"snapshots": 2, "tables": 1, "files_scheduled_for_deletion": 0}
    assert main(["info", *attach]) == 0
    assert "main.t: 0 rows, 0 files of 0 B, 0 deleted rows" in capsys.readouterr().out


def test_under_spark_submit_every_operation_is_an_application(tmp_path: Path) -> None:
    """Secrets may be in Spark's configuration then, and a cluster waits for the application."""
    attach = ["--attach", f"ducklake:sqlite:{tmp_path}/c.sqlite"]
    assert main(["create_lake", *attach, "--data-path", f"{tmp_path}/data"]) == 0
    # A process of its own: in this one a test before may have left Spark running.
    done = subprocess.run(
        [sys.executable, "-m", "airflow_provider_ducklake.spark", "info", *attach],
        env={**os.environ, "PYSPARK_GATEWAY_PORT": "1", "PYSPARK_GATEWAY_SECRET": "x"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Spark does not start" in done.stderr


def test_a_dry_run_creates_nothing(tmp_path: Path) -> None:
    attach = ["--attach", f"ducklake:sqlite:{tmp_path}/c.sqlite", "--data-path", f"{tmp_path}/d"]
    assert main(["create_lake", *attach, "--dry-run"]) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("operation", "more", "kind", "message"),
    [
        ("info", ["--table", "main.ta"], "NotFound", "did you mean 'main.t'"),
        ("info", ["--table", "a.b.c"], "NotFound", "schema.table"),
        ("create_table", ["--table", "u"], "ConfigurationError", "--option columns"),
        (
            "create_table",
            ["--table", "u", "--option", "columns=id inet"],
            "BadInput",
            "no column type 'inet'",
        ),
        (
            "create_table",
            ["--table", "u", "--option", "columns=id int32", "sorted_by=nocol"],
            "BadInput",
            "nocol",
        ),
        (
            "create_table",
            ["--table", "t", "--option", "columns=a int32"],
            "ConfigurationError",
            "t",
        ),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(
    sqlite_lake: Lakes,
    capsys: pytest.CaptureFixture[str],
    operation: str,
    more: list[str],
    kind: str,
    message: str,
) -> None:
    lake, judge = sqlite_lake
    create_table(lake, "t", parse_columns("id int64"))
    before = catalog_fingerprint(judge)
    result_file = judge.directory / "result.json"
    arguments = [operation, "--attach", judge.attach_string, "--result-file", str(result_file)]
    assert main([*arguments, *more]) == 1
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("ducklake:")]
    assert line.startswith(f"ducklake: ERROR {kind}: ")
    assert message in line
    assert json.loads(result_file.read_text())["error"]["type"] == kind
    assert catalog_fingerprint(judge) == before


def failure(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command line that fails; return its one line."""
    assert main(arguments) == 1
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    (line,) = [x for x in shown.splitlines() if x.startswith("ducklake: ERROR")]
    return line


def test_catalogs_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.sqlite"
    text.write_text("no database at all, but long enough to be looked at " * 40)
    empty = tmp_path / "empty.sqlite"
    sqlite3.connect(empty).close()
    empty.touch()
    cases = {
        f"ducklake:sqlite:{tmp_path}/missing.sqlite": "NotFound: there is no",
        f"ducklake:duckdb:{tmp_path}/missing.db": "NotFound: there is no",
        f"ducklake:sqlite:{text}": "UnsupportedCatalog",
        f"ducklake:duckdb:{text}": "UnsupportedCatalog",
        f"ducklake:sqlite:{empty}": "UnsupportedCatalog",
        "ducklake:postgres:host=127.0.0.1 port=9 dbname=x": "CatalogUnavailable",
    }
    for attach, message in cases.items():
        assert message in failure(["info", "--attach", attach], capsys)
    assert not (tmp_path / "missing.sqlite").exists()


def test_a_password_is_never_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CT-03."""
    password = "p@ss w'or\\d=x&%41"
    monkeypatch.setenv("DUCKLAKE_CATALOG_PASSWORD", password)
    attach = "ducklake:postgres:host=127.0.0.1 port=9 dbname=x user=ann"
    line = failure(["info", "--attach", attach], capsys)
    assert "p@ss" not in line
    assert "127.0.0.1" in line


def test_a_locked_catalog_is_waited_for_and_named(
    sqlite_lake: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CC-05: SQLite with another writer holding the lock."""
    from airflow_provider_ducklake.lake.errors import CatalogUnavailable

    _, judge = sqlite_lake
    holder = sqlite3.connect(f"{judge.directory}/catalog.sqlite", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    impatient = Lake.open(judge.location, lock_timeout=0.1)
    with pytest.raises(CatalogUnavailable, match="stayed locked"):
        create_table(impatient, "t", parse_columns("id int64"))
    holder.execute("ROLLBACK")
    holder.close()
    create_table(impatient, "t", parse_columns("id int64"))


def test_which_operations_only_read() -> None:
    """A catalog in a bucket is put back only by what may have changed it."""
    reading = {name for name in OPERATIONS if only_reads(name, {}, dry_run=False)}
    assert reading == {"info", "fsck"}
    assert not only_reads("fsck", {"repair": "true"}, dry_run=False)
    assert all(only_reads(name, {}, dry_run=True) for name in OPERATIONS)
