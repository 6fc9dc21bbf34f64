"""PostgreSQL crashes and comes back while a COMMIT of ours is on its way."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psycopg
import pytest

from airflow_provider_ducklake.lake import fault_points
from airflow_provider_ducklake.lake.fault_points import FaultPoint
from tests.interop.judge import Judge
from tests.support.lakes import LakeFactory
from tests.support.postgres import running_postgres

TYPES = {"id": "INTEGER"}


def test_server_restarts_during_commit(
    scratch_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job waits until the server is back, finds that nothing happened, and commits once."""
    with running_postgres() as server:
        with psycopg.connect(server.conninfo("postgres"), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_commit = on")  # it has to survive
            connection.execute("SELECT pg_reload_conf()")
        factory = LakeFactory("postgres", scratch_directory, server.create_database("lake"))
        judge = Judge(factory.create())
        judge.client.set_option("data_inlining_row_limit", 0)
        judge.create_table("main.t", TYPES)
        judge.client.release()
        crashes: list[int] = []

        def crash(point: FaultPoint) -> None:
            if point is not FaultPoint.UNCOMMITTED or crashes:
                return
            with psycopg.connect(judge.lake.location.conninfo) as watcher:
                (pid,) = watcher.execute(
                    "SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'"
                ).fetchone() or (0,)
            crashes.append(pid)
            os.kill(pid, signal.SIGKILL)  # a server that loses a process so restarts all others

        monkeypatch.setattr(fault_points, "on_reach", crash)
        result = judge.ingest("main.t", TYPES, [[("1", 1)], [("2", 2)]])
        assert crashes[0] > 0
        assert (result.rows, result.snapshot_id) == (2, judge.model.head)
        judge.check()
        judge.check_catalog()
        assert not judge.unreferenced_files()
        judge.close()
        factory.remove(judge.lake)
