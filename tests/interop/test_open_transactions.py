"""Transactions that stay open in PostgreSQL: ours waits for a client's, and none of ours is one."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import duckdb
import psycopg
import pytest

from airflow_provider_ducklake.lake.errors import CommitConflict
from tests.interop.interference import Interference
from tests.interop.judge import Judge

TYPES = {"id": "INTEGER"}
pytestmark = pytest.mark.parametrize("lake_factory", ["postgres"], indirect=True)


def _while_open(judge: Judge, statement: str, ours: Callable[[], object]) -> Future[object]:
    """Let a stock client commit a statement while ours already waits for what it holds."""
    other = judge.lake.client()
    other.sql("BEGIN")
    other.sql(statement)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(judge.lake.location.conninfo) as watcher:
        future = pool.submit(ours)
        waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while watcher.execute(waits).fetchone() is None:
            assert not future.done(), "ours did not have to wait"
            watcher.rollback()
            time.sleep(0.01)
        try:
            other.sql("COMMIT")
            other.close()
        except duckdb.Error as error:
            assert "conflict" in str(error) or "deadlock" in str(error)  # noqa: PT017
            other.forget()
    return future


def test_a_restore_of_what_is_being_expired(judge: Judge) -> None:
    """What a stock client expires while we wait for it does not come back by half."""
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.create_table("main.t", TYPES)
    judge.insert_values("main.t", (1,), (2,))
    target = judge.model.head
    judge.delete("main.t", "id > 0", lambda row: row["id"] > 0)
    statement = f"CALL ducklake_expire_snapshots('lake', versions => [{target}])"
    restore = _while_open(
        judge, statement, lambda: judge.operations.run("restore", "main.t", snapshot=target)
    )
    with pytest.raises(AssertionError, match=f"snapshot {target} was expired"):
        restore.result()
    judge.model.expire({target})
    judge.check()
    assert not judge.unreferenced_files()


def test_an_overwrite_of_what_is_being_flushed(judge: Judge) -> None:
    """Of a stock flush and our overwrite one wins; rows that were replaced do not come back."""
    judge.client.set_option("data_inlining_row_limit", 5)
    judge.create_table("main.t", TYPES)
    judge.insert_values("main.t", (1,), (2,))
    overwrite = _while_open(
        judge,
        "CALL ducklake_flush_inlined_data('lake')",
        lambda: judge.operations.ingest("main.t", [], "overwrite"),
    )
    if overwrite.exception() is None:
        judge.accept({"main.t": judge.table("main.t").delete(lambda row: True)})
    else:
        assert isinstance(overwrite.exception(), CommitConflict)
        judge.accept({})
    judge.check()


def test_no_session_of_ours_is_idle_in_a_transaction(judge: Judge) -> None:
    """CC-05: work may take longer than the server lets a transaction be idle."""
    with psycopg.connect(judge.lake.location.conninfo, autocommit=True) as connection:
        connection.execute(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET "
            "idle_in_transaction_session_timeout = %L', current_database(), '1s'); END $$"
        )
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.create_table("main.t", TYPES)
    judge.insert_values("main.t", (1,), (2,))
    judge.insert_values("main.t", (3,), (4,))
    runner = Interference(judge, lambda: time.sleep(2))
    result = judge.upkeep("merge_adjacent_files", runner=runner)
    assert runner.happened
    assert result.tables[0].files_in == 2


@pytest.mark.parametrize(
    ("operation", "options"),
    [("merge_adjacent_files", {}), ("rewrite_data_files", {"delete_threshold": 0.01})],
)
def test_groups_are_planned_when_no_transaction_is_open(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, operation: str, options: dict[str, Any]
) -> None:
    """Directories and sort orders of groups are asked of one DuckDB, after the catalog was read."""
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.create_table("main.t", {"id": "INTEGER", "k": "INTEGER"})
    judge.alter("main.t", "SET PARTITIONED BY (k)")
    judge.alter("main.t", "SET SORTED BY (id DESC)")
    for start in (0, 10):
        judge.insert_values("main.t", *((start + number, number % 5) for number in range(10)))
    if operation == "rewrite_data_files":
        judge.delete("main.t", "id < 5", lambda row: row["id"] < 5)
    idle: list[int] = []
    connect = duckdb.connect

    def watched(*args: Any, **config: Any) -> duckdb.DuckDBPyConnection:
        idle.append(_idle_in_transaction(judge))
        return connect(*args, **config)

    with monkeypatch.context() as patch:
        patch.setattr(duckdb, "connect", watched)
        planned = judge.operations.run(operation, dry_run=True, **options)
    assert planned.tables[0].files_out == 5
    assert idle == [0]
    judge.upkeep(operation, **options)


def _idle_in_transaction(judge: Judge) -> int:
    with psycopg.connect(judge.lake.location.conninfo) as watcher:
        row = watcher.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE state = 'idle in transaction' AND pid <> pg_backend_pid()"
        ).fetchone()
    return 0 if row is None else int(row[0])
