"""The files of dropped catalogs: deleted after their grace, never while a fork reads them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from airflow_provider_ducklake.lake.errors import ConfigurationError, NotFound, SafetyRefusal
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.store.cli import main
from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.support.lakes import stock_client
from tests.support.reference import ReferenceClient


class Dropped:
    """A store with a catalog, `gone`, and a fork of it."""

    def __init__(self, conninfo: str, directory: Path) -> None:
        self.conninfo = conninfo
        self.root = directory / "lakes"
        self.store = CatalogStore(conninfo)
        self.store.init(str(self.root))
        self.store.create_catalog("gone")
        self.landing = directory / "landing.parquet"
        client = self.client("gone")
        client.sql(f"COPY (SELECT 7 AS i) TO '{self.landing}'")
        client.sql("CREATE TABLE t AS SELECT i FROM range(100) r(i)")
        client.sql("DELETE FROM t WHERE i < 10")
        client.close()
        self.store.fork_catalog("gone", "fork")
        client = self.client("gone")
        client.sql("INSERT INTO t SELECT i FROM range(100, 200) r(i)")
        client.sql(f"CALL ducklake_add_data_files('lake', 't', '{self.landing}')")
        client.close()
        self.store.drop_catalog("gone")

    def client(self, name: str) -> ReferenceClient:
        """Return a stock client."""
        return stock_client(self.conninfo, name)

    def drop_with_scheduled(self, path: str, *, relative: bool, times: int = 1) -> None:
        """Drop another catalog, `odd`, whose tenant wrote a path into its schedule."""
        self.store.create_catalog("odd")
        location = CatalogLocation.parse(f"ducklake:postgres:{self.conninfo}", catalog="odd")
        with psycopg.connect(location.conninfo) as connection:
            connection.execute(
                "INSERT INTO lake.ducklake_files_scheduled_for_deletion "
                "SELECT next_file_id + n, %s, %s, now() "
                "FROM lake.ducklake_snapshot, generate_series(1, %s) n",
                (path, relative, times),
            )
        self.store.drop_catalog("odd")

    def files(self) -> int:
        """Return how many Parquet files lie under the dropped catalog's root."""
        return len(list((self.root / "gone").rglob("*.parquet")))


@pytest.fixture
def dropped(postgres_database: str, tmp_path: Path) -> Dropped:
    """A dropped catalog."""
    return Dropped(postgres_database, tmp_path)


def test_after_the_grace_and_not_before(dropped: Dropped) -> None:
    assert dropped.files() == 3
    assert dropped.store.purge().files_deleted == 0
    done = dropped.store.purge(older_than="0 seconds", force=True)
    assert (done.files_deleted, done.files_forgotten, done.catalogs) == (1, 1, 0)
    assert dropped.landing.exists(), "what lies outside the root is somebody else's"
    client = dropped.client("fork")
    assert client.sql("SELECT count(*) FROM t") == [(90,)]
    client.close()
    assert dropped.store.purge(older_than="0 seconds", force=True).files_deleted == 0
    dropped.store.drop_catalog("fork")
    done = dropped.store.purge(older_than="0 seconds", force=True)
    assert (done.files_deleted, done.catalogs) == (2, 2)
    assert dropped.files() == 0
    root = dropped.store.create_catalog("gone").root
    assert root == f"{dropped.root}/gone/", "its root is free again"


def test_files_that_are_gone_are_done(dropped: Dropped) -> None:
    dropped.store.drop_catalog("fork")
    for path in (dropped.root / "gone").rglob("*.parquet"):
        path.unlink()
    done = dropped.store.purge(older_than="0 seconds", force=True)
    assert (done.files_deleted, done.files_missing, done.catalogs) == (0, 3, 2)


def test_a_file_that_cannot_be_deleted_stays_scheduled(
    dropped: Dropped, capsys: pytest.CaptureFixture[str]
) -> None:
    dropped.store.drop_catalog("fork")
    stuck = next(p for p in (dropped.root / "gone").rglob("*.parquet") if "-delete" not in p.name)
    stuck.unlink()
    (stuck / "in the way").mkdir(parents=True)
    attach = f"--attach=ducklake:postgres:{dropped.conninfo}"
    assert main(["purge", attach, "--older-than", "0 seconds", "--force"]) == 1
    assert stuck.name in capsys.readouterr().err
    with psycopg.connect(dropped.conninfo) as connection:
        (left,) = connection.execute(
            "SELECT path FROM ducklake.ducklake_files_scheduled_for_deletion"
        ).fetchone() or ("",)
    assert left == str(stuck)
    (stuck / "in the way").rmdir()
    stuck.rmdir()
    assert main(["purge", attach, "--older-than", "0 seconds", "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["catalogs"] == 1


def test_one_tenant_does_not_stop_the_purge(dropped: Dropped) -> None:
    """Whatever a tenant wrote into its schedule, nothing outside its root is touched by it."""
    dropped.drop_with_scheduled("https://example.org/x", relative=False, times=2)
    dropped.store.drop_catalog("fork")
    done = dropped.store.purge(older_than="0 seconds", force=True)
    assert (done.files_deleted, done.files_forgotten, done.catalogs) == (3, 3, 3)


def test_a_link_below_the_root_leads_nowhere(dropped: Dropped, tmp_path: Path) -> None:
    """What it leads to is not the dropped catalog's, whatever its rows say."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "f.parquet").write_bytes(b"PAR1")
    (dropped.root / "odd").mkdir()
    (dropped.root / "odd" / "link").symlink_to(theirs)
    dropped.drop_with_scheduled("link/f.parquet", relative=True)
    done = dropped.store.purge(older_than="0 seconds", force=True)
    assert (done.files_deleted, done.files_forgotten) == (1, 2)
    assert (theirs / "f.parquet").exists()


def test_a_shorter_wait_needs_force(dropped: Dropped) -> None:
    for soon in ("0 seconds", "47 hours", "2999-01-01 00:00:00+00"):
        with pytest.raises(SafetyRefusal, match=r"dropped less than 2 days ago.*force"):
            dropped.store.purge(older_than=soon)
        with pytest.raises(SafetyRefusal, match="force"):
            dropped.store.purge(older_than=soon, dry_run=True)
    for wrong in ("-100 days", "bananas", "2026-01-01", ""):
        with pytest.raises(ConfigurationError):
            dropped.store.purge(older_than=wrong, force=True)
    assert dropped.store.purge(older_than="2020-01-01 00:00:00+00").files_deleted == 0
    assert dropped.files() == 3


def test_a_dry_run_says_what_would_go(dropped: Dropped) -> None:
    """What it counts is what the purge then does, and it does nothing."""
    for turn in range(2):
        expected = dropped.store.purge(older_than="0 seconds", force=True, dry_run=True)
        before = dropped.files()
        assert dropped.store.purge(older_than="2 days", dry_run=True).files_deleted == 0
        assert dropped.files() == before
        done = dropped.store.purge(older_than="0 seconds", force=True)
        assert (expected.dry_run, done.dry_run) == (True, False)
        assert replace(expected, dry_run=False) == done
        assert done.files_deleted > 0
        if turn == 0:
            assert dropped.store.drop_catalog("fork", dry_run=True) is not None
            assert dropped.store.catalog("fork").name == "fork"
            dropped.store.drop_catalog("fork")
    with pytest.raises(NotFound):
        dropped.store.drop_catalog("fork", dry_run=True)
    assert dropped.store.drop_catalog("fork", dry_run=True, if_exists=True) is None
