"""A lake that is put back to where it was, as often as a test wants to begin there again."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import psycopg
from psycopg import sql

from tests.interop.judge import Judge


class Rewind:
    """Remembers a lake in SQLite or PostgreSQL, its files and its model."""

    def __init__(self, judge: Judge) -> None:
        """Remember what the lake is now."""
        self.judge = judge
        self._model = judge.model
        self._directory = judge.lake.directory
        self._backup = self._directory.with_name(f"{self._directory.name}-backup")
        judge.client.release()
        shutil.copytree(self._directory, self._backup)
        if judge.lake.kind == "postgres":
            schema = str(judge.lake.location.metadata_schema)
            _copy_schema(judge.lake.location.conninfo, schema, f"{schema}_backup", _kept)

    def back(self) -> None:
        """Put the lake back; nobody may be attached."""
        judge = self.judge
        judge.client.release()
        shutil.rmtree(self._directory)
        shutil.copytree(self._backup, self._directory)
        if judge.lake.kind == "postgres":
            schema = str(judge.lake.location.metadata_schema)
            _copy_schema(judge.lake.location.conninfo, f"{schema}_backup", schema, _not_kept)
        judge.model = self._model.copy()
        judge.log[:] = []

    def close(self) -> None:
        """Forget it."""
        shutil.rmtree(self._backup)


def _kept(name: str) -> str:
    """Return another name for a table: two lakes with one data path would refuse to be swept."""
    return f"kept_{name}"


def _not_kept(name: str) -> str:
    return name.removeprefix("kept_")


def _copy_schema(conninfo: str, source: str, target: str, named: Callable[[str], str]) -> None:
    with psycopg.connect(conninfo) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s", (source,)
        ).fetchall()
        copy = sql.SQL(
            "CREATE TABLE {target} (LIKE {source} INCLUDING ALL); "
            "INSERT INTO {target} SELECT * FROM {source}"
        )
        steps = [
            sql.SQL("DROP SCHEMA IF EXISTS {0} CASCADE; CREATE SCHEMA {0}").format(
                sql.Identifier(target)
            ),
            *(
                copy.format(
                    target=sql.Identifier(target, named(name)), source=sql.Identifier(source, name)
                )
                for (name,) in tables
            ),
        ]
        connection.execute(sql.SQL("; ").join(steps))
