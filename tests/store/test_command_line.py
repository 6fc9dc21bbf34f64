"""The store's command line: one line a fault, JSON for programs, a table for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_provider_ducklake.lake.store.cli import VERBS, main
from tests.support.reference import ReferenceClient


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the command line; return status, output, errors."""
    status = main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_life_of_a_catalog(
    postgres_database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attach = f"--attach=ducklake:postgres:{postgres_database}"

    def done(*arguments: str) -> Any:
        status, out, err = run(capsys, *arguments, attach, "--json")
        assert (status, err) == (0, "")
        return json.loads(out)

    assert done("init", f"--root={tmp_path}/lakes")["version"] == 1
    assert done("create", "acme")["root"] == f"{tmp_path}/lakes/acme/"
    assert done("create", "acme", "--if-not-exists")["name"] == "acme"
    assert done("fork", "acme", "copy", "--snapshot", "0")["parent"] == "acme"
    assert done("rename", "copy", "other")["name"] == "other"
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE ROLE cli_tenant LOGIN")
        try:
            assert done("grant", "acme", "cli_tenant", "--read-only")["writable"] is False
            assert done("revoke", "acme", "cli_tenant")["was"] is True
        finally:
            connection.execute("DROP ROLE cli_tenant")
    assert done("allow", "acme", "s3://landing/acme")["changed"] is True
    assert done("allow", "acme", "s3a://landing//acme/", "--revoke")["changed"] is True
    assert [entry["name"] for entry in done("list")] == ["acme", "other"]
    assert [entry["name"] for entry in done("list", "o%")] == ["other"]
    assert done("drop", "other", "--dry-run")["name"] == "other"
    assert done("drop", "other")["parent"] == "acme"
    assert done("purge", "--dry-run") == {**done("purge"), "dry_run": True, "catalogs": 1}
    assert done("drop", "other", "--if-exists") is None
    assert (done("status")["catalogs"], done("upgrade")["dropped"]) == (1, 0)
    status, out, _ = run(capsys, "list", attach)
    assert status == 0
    head, row = out.splitlines()
    assert head.split() == ["name", "catalog_id", "parent", "lineage", "size", "root"]
    assert row.split() == ["acme", "1", "acme", "0", f"{tmp_path}/lakes/acme/"]
    status, out, _ = run(capsys, "status", attach)
    assert f"root            {tmp_path}/lakes/" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("status",), "ERROR NotFound: there is no store in this database"),
        (("init", "--root=lakes"), "ERROR ConfigurationError: the root 'lakes/' of a store"),
    ],
)
def test_what_is_wrong_is_one_line(
    postgres_database: str,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    attach = f"--attach=ducklake:postgres:{postgres_database}"
    status, out, err = run(capsys, *arguments, attach)
    assert (status, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


def test_only_postgres_holds_a_store(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "status", "--attach=ducklake:sqlite:/c.db")
    assert status == 1
    assert "kept in PostgreSQL only" in err


def test_a_password_does_not_show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DUCKLAKE_CATALOG_PASSWORD", "geheim")
    attach = "--attach=ducklake:postgres:host=/nowhere dbname=x user=y"
    status, _, err = run(capsys, "status", attach)
    assert status == 1
    assert "CatalogUnavailable" in err
    assert "geheim" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("status", "--attach=ducklake:postgres:host=h password=geheim"), "--attach holds a pass"),
        (
            ("import", "a", "postgres:host=h password=geheim", "--attach=ducklake:postgres:host=h"),
            "the source holds a password",
        ),
    ],
)
def test_a_password_is_no_argument(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    status, _, err = run(capsys, *arguments)
    assert status in (1, 2)
    assert message in err
    assert "geheim" not in err


@pytest.mark.parametrize("arguments", [(), ("frobnicate",), ("create",), ("init", "--attach=x")])
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert run(capsys, *arguments)[0] == 2


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert all(verb in out for verb in VERBS)


def test_in_and_out(
    postgres_database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attach = f"--attach=ducklake:postgres:{postgres_database}"
    source = f"ducklake:sqlite:{tmp_path}/source.sqlite"
    client = ReferenceClient(source, data_path=f"{tmp_path}/data/")
    client.sql("CREATE TABLE t AS SELECT i FROM range(50) r(i)")
    client.sql("DELETE FROM t WHERE i < 5")
    client.close()
    assert run(capsys, "init", attach, f"--root={tmp_path}/lakes")[0] == 0
    status, out, err = run(capsys, "import", "acme", source, attach, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["root"] == f"{tmp_path}/data/"
    target = f"ducklake:duckdb:{tmp_path}/out.ducklake"
    status, out, err = run(capsys, "export", "acme", target, attach, "--json")
    assert (status, err) == (0, "")
    assert (json.loads(out)["snapshots"], json.loads(out)["tables"]) == (3, 1)
    reader = ReferenceClient(target, options={"READ_ONLY": "true"})
    assert reader.sql("SELECT count(*) FROM t") == [(45,)]
    assert reader.sql("SELECT count(*) FROM t AT (VERSION => 1)") == [(50,)]
    reader.close()
    assert run(capsys, "export", "acme", target, attach, "--json") == (0, out, "")
    status, _, err = run(capsys, "export", "acme", target, attach, "--snapshot", "1")
    assert (status, "exists already" in err) == (1, True)
