"""The DB-API wrapper: one session for all cursors, transactions as PEP 249 has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from airflow_provider_ducklake.hooks._connection import LakeConnection
from airflow_provider_ducklake.hooks._secrets import Redactor


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A DuckDB file with a table `t(a)`."""
    path = str(tmp_path / "d.duckdb")
    with duckdb.connect(path) as session:
        session.execute("CREATE TABLE t (a INTEGER)")
    return path


@pytest.fixture
def connection(database: str) -> Iterator[LakeConnection]:
    """A wrapped session on that file."""
    wrapped = LakeConnection(duckdb.connect(database), Redactor(["geheim"]))
    yield wrapped
    wrapped.close()


def rows(database: str) -> list[int]:
    """Return what is committed, seen by another session."""
    with duckdb.connect(database) as session:
        return [a for (a,) in session.execute("SELECT a FROM t ORDER BY a").fetchall()]


def test_cursors_share_the_session(connection: LakeConnection) -> None:
    connection.execute("CREATE TEMP TABLE mine AS SELECT 1 AS x")
    with connection.cursor() as cursor:
        assert cursor.execute("SELECT x FROM mine").fetchone() == (1,)
        assert cursor.description[0][0] == "x"
    assert connection.cursor().execute("SELECT ? + ?", [1, 2]).fetchall() == [(3,)]


def test_rows_can_be_fetched_in_every_way(connection: LakeConnection) -> None:
    cursor = connection.cursor()
    assert cursor.execute("FROM range(5)").fetchmany() == [(0,)]
    assert cursor.fetchmany(2) == [(1,), (2,)]
    assert list(cursor) == [(3,), (4,)]
    assert cursor.fetchone() is None
    assert cursor.execute("FROM range(2)").df()["range"].tolist() == [0, 1]


def test_without_autocommit_nothing_is_kept_that_was_not_committed(
    connection: LakeConnection, database: str
) -> None:
    connection.autocommit = False
    connection.executemany("INSERT INTO t VALUES (?)", [[1], [2]])
    connection.rollback()
    connection.execute("INSERT INTO t VALUES (3)")
    connection.commit()
    connection.commit()
    connection.rollback()
    connection.sql("INSERT INTO t VALUES (4)")
    connection.close()
    assert rows(database) == [3]


def test_switching_autocommit_on_commits(connection: LakeConnection, database: str) -> None:
    connection.autocommit = False
    connection.execute("INSERT INTO t VALUES (1)")
    connection.autocommit = True
    connection.execute("INSERT INTO t VALUES (2)")
    connection.rollback()
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)


def test_own_transactions_are_respected(connection: LakeConnection, database: str) -> None:
    connection.autocommit = False
    for statement in ("BEGIN TRANSACTION;", "INSERT INTO t VALUES (1)", "COMMIT;"):
        connection.execute(statement)
    connection.commit()
    connection.execute("INSERT INTO t VALUES (2)")
    connection.execute(" rollback")
    connection.commit()
    connection.close()
    assert rows(database) == [1]


def test_a_failed_transaction_can_be_left(connection: LakeConnection, database: str) -> None:
    connection.autocommit = False
    connection.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(duckdb.ConversionException):
        connection.execute("INSERT INTO t VALUES ('x')")
    connection.rollback()
    connection.execute("INSERT INTO t VALUES (2)")
    connection.commit()
    connection.close()
    assert rows(database) == [2]


def test_a_with_block_commits_unless_it_fails(database: str) -> None:
    def wrapped() -> LakeConnection:
        made = LakeConnection(duckdb.connect(database), Redactor())
        made.autocommit = False
        return made

    with wrapped() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(duckdb.CatalogException), wrapped() as connection:
        connection.executemany("INSERT INTO t VALUES (2); INSERT INTO missing VALUES (?)", [[1]])
    assert rows(database) == [1]


def test_no_rows_are_no_statement(connection: LakeConnection, database: str) -> None:
    connection.cursor().executemany("INSERT INTO t VALUES (?)", [])
    connection.close()
    assert rows(database) == []


def test_errors_quote_no_secret(connection: LakeConnection) -> None:
    with pytest.raises(duckdb.ParserException, match=r"\*\*\*") as raised:
        connection.execute("SELEC 'geheim'")
    assert "geheim" not in str(raised.value)
    assert raised.value.__cause__ is None
