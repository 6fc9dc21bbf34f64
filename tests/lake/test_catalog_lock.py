"""Catalogs in one file: who comes second waits, and learns who is first."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.catalog_lock import Holder, Turn, holder_of, working_on
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.errors import CatalogUnavailable
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.tables import create_table
from tests.support.reference import ReferenceClient

KINDS = ("sqlite", "duckdb")
PROGRAM = Path(sys.executable).name

# Each holds a catalog in another process until its standard input ends.
_OURS = """
import sys
from airflow_provider_ducklake.lake.catalog_lock import working_on
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
lake = Lake.open(CatalogLocation.parse(sys.argv[1]))
with working_on("merge_adjacent_files"), lake.database.write() as session:
    session.rows("SELECT 1")
    print("held", flush=True)
    sys.stdin.read()
"""
_FOREIGN = """
import sys
kind, path = sys.argv[1].split(":")[1:]
if kind == "sqlite":
    import sqlite3
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
else:
    import duckdb
    holder = duckdb.connect(path)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(program: str, attach: str) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold a catalog; it lets go at the end."""
    command = [sys.executable, "-c", program, attach]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


@pytest.fixture(params=KINDS)
def attach(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The ATTACH string of a new lake in a file."""
    string = f"ducklake:{request.param}:{tmp_path}/catalog"
    Lake.create(replace(CatalogLocation.parse(string), data_path=f"{tmp_path}/data"))
    return string


def impatient(attach: str, seconds: float = 0.3) -> Lake:
    """Open a lake that waits for hardly anybody."""
    return Lake.open(CatalogLocation.parse(attach), lock_timeout=seconds)


def test_a_writer_names_the_job_it_waits_for(attach: str) -> None:
    with held(_OURS, attach) as holder, pytest.raises(CatalogUnavailable) as refused:
        create_table(impatient(attach), "t", parse_columns("id int64"))
    message = str(refused.value)
    assert "stayed locked by" in message
    assert f"process {holder.pid} on {socket.gethostname()} (merge_adjacent_files" in message
    assert "pool" in message
    create_table(impatient(attach), "t", parse_columns("id int64"))


def test_a_writer_names_a_client_of_another_kind(attach: str) -> None:
    with held(_FOREIGN, attach) as holder, pytest.raises(CatalogUnavailable) as refused:
        create_table(impatient(attach), "t", parse_columns("id int64"))
    assert str(holder.pid) in str(refused.value)
    assert PROGRAM in str(refused.value)
    create_table(impatient(attach), "t", parse_columns("id int64"))


def test_a_reader_names_who_has_a_duckdb_file_open(tmp_path: Path) -> None:
    string = f"ducklake:duckdb:{tmp_path}/catalog"
    Lake.create(replace(CatalogLocation.parse(string), data_path=f"{tmp_path}/data"))
    for program, told in ((_OURS, "merge_adjacent_files"), (_FOREIGN, PROGRAM)):
        with held(program, string) as holder, pytest.raises(CatalogUnavailable) as refused:
            impatient(string).head()
        assert str(holder.pid) in str(refused.value)
        assert told in str(refused.value)
    assert impatient(string).head().snapshot_id == 0


def test_a_reader_of_sqlite_waits_for_nobody(tmp_path: Path) -> None:
    string = f"ducklake:sqlite:{tmp_path}/catalog"
    Lake.create(replace(CatalogLocation.parse(string), data_path=f"{tmp_path}/data"))
    with held(_OURS, string):
        assert impatient(string, 0).head().snapshot_id == 0


@pytest.mark.parametrize("program", [_OURS, _FOREIGN])
def test_who_waits_long_enough_gets_its_turn(attach: str, program: str) -> None:
    with held(program, attach) as holder:
        assert holder.stdin is not None
        end = threading.Timer(0.5, holder.stdin.close)
        end.start()
        made = create_table(impatient(attach, 60), "t", parse_columns("id int64"))
        end.join()
    assert made is not None
    assert made.snapshot_id == 1


def test_a_killed_holder_is_no_holder(attach: str) -> None:
    lock = Path(CatalogLocation.parse(attach).target + ".lock")
    with held(_OURS, attach) as holder:
        assert lock.exists()
        holder.kill()
        holder.wait()
        assert lock.exists()
        assert holder_of(CatalogLocation.parse(attach).target) is None
        create_table(impatient(attach), "t", parse_columns("id int64"))
    assert not lock.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_of_this_process_is_named_as_that(kind: str, tmp_path: Path) -> None:
    string = f"ducklake:{kind}:{tmp_path}/catalog"
    client = ReferenceClient(string, data_path=f"{tmp_path}/data/")
    client.sql("CREATE TABLE t (id INTEGER)")
    client.sql("BEGIN")
    client.sql("INSERT INTO t SELECT range FROM range(100)")
    if kind == "duckdb":
        with pytest.raises(CatalogUnavailable, match=f"this very process.*{os.getpid()}"):
            impatient(string).head()
    client.sql("ROLLBACK")
    client.close()
    assert impatient(string).head().snapshot_id == 1


def test_writers_of_one_machine_all_get_their_turn(attach: str) -> None:
    """Threads and processes queue alike; none fails, none is lost, nothing is left behind."""
    create_table(impatient(attach, 60), "t", parse_columns("id int64"))

    def commit(number: int) -> None:
        name = f"t{number}"
        lake = impatient(attach, 60)
        create_table(lake, name, parse_columns("id int64"), info=CommitInfo(message=name))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(commit, range(12)))
    lake = impatient(attach)
    assert lake.head().snapshot_id == 13
    assert len(lake.tables()) == 13
    directory = Path(CatalogLocation.parse(attach).target).parent
    assert sorted(path.name for path in directory.iterdir()) == ["catalog", "data"]


def test_without_a_lock_file_the_database_still_keeps_writers_apart(attach: str) -> None:
    # No such file can be made where a directory has its name.
    Path(CatalogLocation.parse(attach).target + ".lock").mkdir()
    create_table(impatient(attach), "t", parse_columns("id int64"))
    with held(_FOREIGN, attach), pytest.raises(CatalogUnavailable, match="stayed locked"):
        create_table(impatient(attach), "u", parse_columns("id int64"))


def test_a_note_that_cannot_be_read_does_not_hide_the_lock(tmp_path: Path) -> None:
    location = CatalogLocation.parse(f"ducklake:sqlite:{tmp_path}/catalog")
    with Turn(location, 0).taken():
        (tmp_path / "catalog.lock").write_text("{")
        with (
            pytest.raises(CatalogUnavailable, match="another client"),
            Turn(location, 0.1).taken(),
        ):
            pytest.fail("two have their turn at once")


def test_a_holder_says_what_is_known() -> None:
    with working_on("ingest"):
        assert "(ingest, since " in str(Holder.here())
        assert str(Holder.here()).startswith(f"this very process, pid {os.getpid()} on ")
    assert str(Holder(7, "worker-2")) == "process 7 on worker-2"
