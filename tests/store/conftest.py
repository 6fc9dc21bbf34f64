"""A store under siege: a victim whose every name is a secret, and a tenant who is after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.store.siege import Siege
from tests.support.lakes import stock_client
from tests.support.postgres import PostgresServer

# Far from any other number a database shows: microseconds since 1970 have 16 digits too.
_FIRST_CATALOG = 1_900_000
_ROLES = ("a_service", "a_tenant", 'an "odd" one', "a_bystander")


@pytest.fixture
def superuser(postgres_database: str, tmp_path: Path) -> Iterator[str]:
    """A fresh store, with a login of the service and three roles of nobody."""
    CatalogStore(postgres_database).init(f"{tmp_path}/lakes")
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        for role in _ROLES:
            quoted = sql.Identifier(role)
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(quoted))
        connection.execute("GRANT ducklake_service TO a_service")
        yield postgres_database
        for role in _ROLES:
            quoted = sql.Identifier(role)
            connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(quoted))
            connection.execute(sql.SQL("DROP ROLE {}").format(quoted))


@pytest.fixture(scope="module")
def siege(postgres_server: PostgresServer, scratch_directory: Path) -> Iterator[Siege]:
    """A store with an attacker's catalog, a victim's, one that was dropped and a public library.

    The attacker may read and write `burrow`, and read `library`.
    """
    mark = uuid4().hex[:8]
    database = f"siege_{mark}"
    superuser = postgres_server.create_database(database)
    attacker, victim = f"attacker_{mark}", f"victim_{mark}"
    store = CatalogStore(superuser)
    store.init(f"{scratch_directory}/{database}/")
    with psycopg.connect(superuser, autocommit=True) as connection:
        for role in (attacker, victim):
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        connection.execute(
            "SELECT setval(pg_get_serial_sequence('ducklake.ducklake_catalog', 'catalog_id'), %s)",
            (_FIRST_CATALOG,),
        )
    for name in ("marmot", "burrow", "dodo", "library"):
        store.create_catalog(name)
        store.grant(name, attacker if name == "burrow" else victim)
    store.grant("library", attacker, writable=False)
    as_victim = make_conninfo(superuser, user=victim)
    _fill_secret(as_victim, "marmot")
    _fill_secret(as_victim, "dodo")
    store.drop_catalog("dodo")
    _fill_plain(as_victim, "library")
    _fill_plain(make_conninfo(superuser, user=attacker), "burrow")
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO ducklake.maintenance_ledger "
            "(catalog_id, operation, started_at, seconds, author, changed, error) "
            "SELECT catalog_id, 'tamarin', now(), 48611, 'numbat', true, 'jerboa' "
            "FROM ducklake.ducklake_catalog WHERE catalog_name IN ('marmot', 'dodo')"
        )
        connection.execute("ANALYZE")  # so that there are statistics to look at
    with Siege.begin(superuser, attacker=attacker, victim=victim) as siege:
        yield siege
    postgres_server.drop_database(database)
    with psycopg.connect(postgres_server.conninfo("postgres"), autocommit=True) as connection:
        for role in (attacker, victim):
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def _fill_secret(conninfo: str, catalog: str) -> None:
    """Leave the victim's words in every table of a catalog that a stock client fills."""
    client = stock_client(conninfo, catalog)
    with client.transaction():
        client.sql("CREATE SCHEMA quokka")
        client.sql("CREATE TABLE quokka.narwhal (axolotl VARCHAR, tapir INTEGER DEFAULT 48611)")
        client.sql("ALTER TABLE quokka.narwhal SET PARTITIONED BY (axolotl)")
        client.sql("ALTER TABLE quokka.narwhal SET SORTED BY (tapir)")
        client.sql("COMMENT ON TABLE quokka.narwhal IS 'gharial'")
        client.sql("COMMENT ON COLUMN quokka.narwhal.axolotl IS 'gharial'")
        client.sql("CALL lake.set_commit_message('numbat', 'jerboa', extra_info => 'okapi')")
    client.sql(
        "INSERT INTO quokka.narwhal SELECT CASE i % 2 WHEN 0 THEN 'pangolin' ELSE 'ocelot' END, i "
        "FROM range(48611) r(i)"
    )
    client.sql("DELETE FROM quokka.narwhal WHERE tapir % 1000 = 7")
    client.sql("ALTER TABLE quokka.narwhal ADD COLUMN kakapo STRUCT(ibex INTEGER)")
    client.set_option("target_file_size", "48MB", table="quokka.narwhal")
    client.sql("CREATE MACRO quokka.tamarin(ibex) AS ibex || 'gharial'")
    client.sql("CREATE TABLE lemming AS SELECT 'pangolin' AS ibex")
    client.sql("DROP TABLE lemming")
    with_lemming = client.snapshot_ids()[-2]
    client.sql(f"CALL ducklake_expire_snapshots('lake', versions => [{with_lemming}])")
    client.sql("CREATE VIEW quokka.bandicoot AS SELECT axolotl FROM lake.quokka.narwhal")
    client.close()


def _fill_plain(conninfo: str, catalog: str) -> None:
    """Put something into every table the attacks touch."""
    client = stock_client(conninfo, catalog)
    client.sql("CREATE TABLE t (i INTEGER, s VARCHAR)")
    client.sql("ALTER TABLE t SET PARTITIONED BY (s)")
    client.sql("COMMENT ON TABLE t IS 'a table'")
    client.sql("INSERT INTO t SELECT i, 'k' || i % 2 FROM range(20) r(i)")
    client.sql("DELETE FROM t WHERE i = 3")
    client.sql("INSERT INTO t VALUES (100, 'k0')")
    client.close()
