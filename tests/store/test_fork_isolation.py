"""A fork keeps the files it shares, and neither it nor its parent can take one from the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.store.siege import Siege
from tests.support.lakes import stock_client

pytestmark = pytest.mark.interop

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(scope="module")
def heir(siege: Siege) -> Iterator[str]:
    """A login that may write `cub`, a fork of the victim's catalog."""
    role = f"heir_{siege.known['@database@']}"
    store = CatalogStore(siege.superuser)
    with psycopg.connect(siege.superuser, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
    store.fork_catalog("marmot", "cub")
    store.grant("cub", role)
    # Not in the fork: a file that came later.
    client = stock_client(make_conninfo(siege.victim, options=""), "marmot")
    client.sql("INSERT INTO quokka.narwhal BY NAME SELECT 'okapi' AS axolotl FROM range(50)")
    client.close()
    siege.take_as_given()
    yield make_conninfo(siege.superuser, user=role, options="-c ducklake.catalog=cub")
    with psycopg.connect(siege.superuser, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(role)))


def shared_files(connection: Connection) -> list[tuple[int, str]]:
    """Return the files of a fork that lie under another root."""
    return [
        (int(number), str(path))
        for number, path in connection.execute(
            "SELECT data_file_id, path FROM lake.ducklake_data_file WHERE NOT path_is_relative "
            "UNION ALL SELECT delete_file_id, path FROM lake.ducklake_delete_file "
            "WHERE NOT path_is_relative ORDER BY 1"
        )
    ]


def test_a_fork_keeps_what_it_shares(siege: Siege, heir: str) -> None:
    client = stock_client(make_conninfo(heir, options=""), "cub")
    ((before,),) = client.sql("SELECT count(*) FROM quokka.narwhal")
    client.sql("DELETE FROM quokka.narwhal WHERE tapir < 5")
    client.sql("UPDATE quokka.narwhal SET tapir = 0 WHERE tapir = 10")
    assert client.sql("SELECT count(*) FROM quokka.narwhal") == [(before - 5,)]
    client.close()
    with psycopg.connect(heir) as connection:
        assert len(shared_files(connection)) >= 2
        for path in ("path", "'file://' || path"):
            connection.execute(
                f"UPDATE lake.ducklake_data_file SET path = {path}, end_snapshot = NULL "
                "WHERE NOT path_is_relative".encode()
            )
        connection.rollback()
    siege.take_as_given()


def test_a_fork_names_no_more_than_it_shares(siege: Siege, heir: str) -> None:
    """Not what its parent wrote later, not one shared file for another; a stranger names none."""
    beside = f"{siege.known['@victim_root@']}quokka/narwhal/x.parquet"
    with psycopg.connect(siege.superuser) as connection:
        (later,) = connection.execute(
            "SELECT max(data_file_id) FROM ducklake.ducklake_data_file WHERE catalog_id = %s",
            (siege.known["@victim_id@"],),
        ).fetchone() or (0,)
    for table, columns, values in (
        ("ducklake_data_file", "table_id, begin_snapshot", "1, 1"),
        ("ducklake_files_scheduled_for_deletion", "schedule_start", "now()"),
    ):
        statement = sql.SQL(
            "WITH file (id) AS (SELECT %s::bigint) "
            "INSERT INTO {} (data_file_id, path, path_is_relative, {}) SELECT id, %s, false, {} "
            "FROM file"
        ).format(sql.Identifier("lake", table), sql.SQL(columns), sql.SQL(values))
        with psycopg.connect(heir) as connection:
            (one, path), (_, other_path) = shared_files(connection)[:2]
            connection.execute("DELETE FROM lake.ducklake_data_file")
            for number, name in (
                (one, other_path),
                (one, beside),
                (one, f"{path}/../x.parquet"),
                (later, path),
                (later, beside),
                (int(siege.known["@own_first_id@"]), path),
            ):
                with (
                    pytest.raises(psycopg.Error) as refused,
                    connection.transaction(force_rollback=True),
                ):
                    connection.execute(statement, (number, name))
                assert refused.value.sqlstate == "DL003", (table, number, name)
            with connection.transaction(force_rollback=True):
                connection.execute(statement, (one, path))
            connection.rollback()
        with psycopg.connect(siege.attacker) as connection:
            with pytest.raises(psycopg.Error) as refused:
                connection.execute(statement, (one, path))
            assert refused.value.sqlstate == "DL003"
            connection.rollback()
    siege.assert_nothing_lost()


_SCHEDULE = (
    "INSERT INTO lake.ducklake_files_scheduled_for_deletion "
    "(data_file_id, path, path_is_relative, schedule_start) VALUES "
)
_LETTING_GO = {
    "once": [_SCHEDULE + "{row}"],
    "three times at once": [_SCHEDULE + "{row}, {row}, {row}"],
    "again": [_SCHEDULE + "{row}", _SCHEDULE + "{row}"],
    "by another row": [
        _SCHEDULE + "(0, 'mine.parquet', true, now())",
        "UPDATE lake.ducklake_files_scheduled_for_deletion SET (data_file_id, path, "
        "path_is_relative, schedule_start) = {row} WHERE data_file_id = 0",
    ],
}


@pytest.mark.parametrize("way", _LETTING_GO)
@pytest.mark.parametrize("who", ["fork", "parent"])
def test_what_others_read_is_never_scheduled(siege: Siege, heir: str, who: str, way: str) -> None:
    """However often one lets go of a file, it lets go for itself alone."""
    store, role = CatalogStore(siege.superuser), str(conninfo_to_dict(heir)["user"])
    parent, fork = f"{who}.{way}.parent".replace(" ", "-"), f"{who}.{way}.fork".replace(" ", "-")
    store.create_catalog(parent)
    store.grant(parent, role)
    client = stock_client(make_conninfo(heir, options=""), parent)
    client.sql("CREATE TABLE t AS SELECT * FROM range(20) r(i)")
    client.close()
    store.fork_catalog(parent, fork)
    store.grant(fork, role)
    lets_go, reads = (fork, parent) if who == "fork" else (parent, fork)
    with psycopg.connect(heir, autocommit=True) as connection:
        connection.execute("SELECT set_config('ducklake.catalog', %s, false)", (fork,))
        ((file, path),) = shared_files(connection)
        connection.execute("SELECT set_config('ducklake.catalog', %s, false)", (lets_go,))
        for number, statement in enumerate(_LETTING_GO[way]):
            # The second time a fork has no right to the path any more.
            too_late = (who, way, number) == ("fork", "again", 1)
            with pytest.raises(psycopg.Error, match="lies under") if too_late else nullcontext():
                connection.execute(
                    statement.format(row=f"({file}, '{path}', false, now())").encode()
                )
    with psycopg.connect(siege.superuser) as connection:
        assert connection.execute(
            "SELECT catalog_name, path FROM ducklake.ducklake_files_scheduled_for_deletion "
            "JOIN ducklake.ducklake_catalog USING (catalog_id) WHERE data_file_id = %s",
            (file,),
        ).fetchall() == []  # fmt: skip
        assert connection.execute(
            "SELECT s.readers, array_agg(c.catalog_name) FROM ducklake.shared_file s "
            "JOIN ducklake.file_reader USING (file_id) "
            "JOIN ducklake.ducklake_catalog c USING (catalog_id) WHERE file_id = %s GROUP BY 1",
            (file,),
        ).fetchall() == [(1, [reads])]  # fmt: skip
    client = stock_client(make_conninfo(heir, options=""), reads)
    client.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert len(client.sql("FROM t")) == 20
    client.close()
    siege.take_as_given()


def test_one_file_under_two_ids(siege: Siege, heir: str) -> None:
    """A file that was registered twice is kept, though the fork reads it under one id only."""
    store, role = CatalogStore(siege.superuser), str(conninfo_to_dict(heir)["user"])
    root = store.create_catalog("twice").root
    store.grant("twice", role)
    client = stock_client(make_conninfo(heir, options=""), "twice")
    client.sql("CREATE TABLE t AS SELECT i::INTEGER AS i FROM range(20) r(i)")
    (file,) = Path(root).rglob("*.parquet")
    store.fork_catalog("twice", "twice.fork")
    store.grant("twice.fork", role)
    client.sql("CALL ducklake_add_data_files('lake', 't', ?)", [str(file)])
    client.close()
    store.drop_catalog("twice")
    store.purge(older_than="0 seconds", force=True)
    client = stock_client(make_conninfo(heir, options=""), "twice.fork")
    assert len(client.sql("FROM t")) == 20
    client.sql("DROP TABLE t")
    client.sql("CALL ducklake_expire_snapshots('lake', older_than => now())")
    client.close()
    store.purge(older_than="0 seconds", force=True)
    assert not file.exists()
    siege.take_as_given()
