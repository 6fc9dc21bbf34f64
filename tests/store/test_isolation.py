"""Tenants are kept apart by the database, whatever SQL they run and through whichever client."""

from __future__ import annotations

import re
from collections import Counter

import psycopg
import pytest
from psycopg import sql

from airflow_provider_ducklake.lake.metadata_tables import METADATA_TABLES
from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.store.hostile import ATTACKS, Attack
from tests.store.hostile.database import DATABASE
from tests.store.siege import Siege
from tests.support.lakes import stock_client

pytestmark = pytest.mark.interop

_NUMBERS: Counter[str] = Counter()
_CHOOSE_LIBRARY = "SET ducklake.catalog = 'library'"


def _label(attack: Attack) -> str:
    _NUMBERS[attack.category] += 1
    return f"{attack.category} {_NUMBERS[attack.category]}"


_ATTACKS = [pytest.param(attack, id=_label(attack)) for attack in ATTACKS]
# DuckDB gives no way to send or take the rows of a COPY.
_FOR_DUCKDB = [
    parameter
    for parameter, attack in zip(_ATTACKS, ATTACKS, strict=True)
    if not re.search("STDIN|STDOUT", attack.script)
]


def test_there_are_enough_of_them(siege: Siege) -> None:
    assert len({attack.script for attack in ATTACKS}) == len(ATTACKS) >= 200
    with psycopg.connect(siege.superuser) as connection:
        functions = connection.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'ducklake'::regnamespace"
        ).fetchall()
    everything = " ".join(attack.script for attack in ATTACKS)
    assert [name for (name,) in functions if f"ducklake.{name}(" not in everything] == []


@pytest.mark.parametrize("attack", _ATTACKS)
def test_by_psycopg(siege: Siege, attack: Attack) -> None:
    statements = siege.script(attack)
    seen = siege.by_psycopg(statements)
    assert siege.leaks(seen, statements) == []
    siege.assert_nothing_lost(with_structure=attack.category in DATABASE)


@pytest.mark.parametrize("attack", _FOR_DUCKDB)
def test_by_duckdb(siege: Siege, attack: Attack, capfd: pytest.CaptureFixture[str]) -> None:
    statements = siege.script(attack)
    seen = siege.by_duckdb(statements)
    seen.extend(capfd.readouterr())  # libpq writes notices there
    assert siege.leaks(seen, statements) == []
    siege.assert_nothing_lost()


def test_the_store_stands_as_it_did(siege: Siege) -> None:
    """Behind all of them: what DuckDB's attacks did to the database's objects shows up here."""
    siege.assert_nothing_lost(with_structure=True)


def test_the_watch_sees_leaks(siege: Siege) -> None:
    """What the victim itself sees would be reported, from every table and in every form."""
    for table in ("schema", "table", "data_file", "delete_file", "column", "tag", "column_tag",
                  "file_column_stats", "snapshot_changes", "macro", "sort_expression",
                  "file_partition_value", "files_scheduled_for_deletion"):  # fmt: skip
        statements = [f"TABLE lake.ducklake_{table}"]
        assert siege.leaks(siege.by_psycopg(statements, siege.victim), statements), table
    for statement in (
        siege.filled("SELECT lo_get(@large_object@)"),
        "SELECT query FROM pg_stat_activity",
        "COPY (SELECT path FROM lake.ducklake_data_file) TO STDOUT",
        "SELECT table_name::integer FROM lake.ducklake_table",
        "DO $$ BEGIN RAISE NOTICE '%', (SELECT min(path) FROM lake.ducklake_data_file); END $$",
        "SELECT table_id FROM lake.ducklake_table",
        "SELECT * FROM ducklake_api.catalogs",
        "SELECT * FROM ducklake_api.maintenance",
    ):
        assert siege.leaks(siege.by_psycopg([statement], siege.victim), [statement]), statement


def test_the_watch_sees_changes(siege: Siege) -> None:
    """Each change of the victim's own is noticed, and so is one of the store's objects."""
    changes = {
        "UPDATE lake.ducklake_tag SET value = value || 'x' WHERE key = 'comment'": "ducklake_tag",
        "INSERT INTO lake.ducklake_metadata VALUES ('quota', '1', NULL, NULL)": "ducklake_metadata",
        siege.filled("SELECT lo_put(@large_object@, 0, 'evil')"): "large objects",
    }
    for statement, name in changes.items():
        siege.by_psycopg([statement], siege.victim)
        with pytest.raises(AssertionError, match=name):
            siege.assert_nothing_lost(with_structure=True)
        siege.take_as_given()
    siege.by_psycopg(["CREATE VIEW lake.intruder AS SELECT 1"], siege.superuser)
    with pytest.raises(AssertionError, match="relations"):
        siege.assert_nothing_lost(with_structure=True)
    siege.by_psycopg(["DROP VIEW lake.intruder"], siege.superuser)
    siege.assert_nothing_lost(with_structure=True)


def test_every_view(siege: Siege) -> None:
    """Read, changed and emptied one by one, with the own catalog chosen."""
    for table in METADATA_TABLES:
        column = table.columns[0][0]
        statements = [
            f"TABLE lake.{table.name}",
            f"UPDATE lake.{table.name} SET {column} = {column} RETURNING *",
            f"DELETE FROM lake.{table.name} RETURNING *",
            f"SET ducklake.catalog = '{siege.known['@victim@']}'",
            f"DELETE FROM lake.{table.name}",
        ]
        assert siege.leaks(siege.by_psycopg(statements), statements) == [], table.name
        siege.assert_nothing_lost()


def test_one_refusal_for_all(siege: Siege) -> None:
    """What is another's, what was dropped and what never was are refused in the same words."""
    refusals = set()
    for name, number in (("marmot", "@victim_id@"), ("dodo", "@dropped_id@"), ("nobody", "77")):
        for choice in (
            f"SET ducklake.catalog = '{name}'",
            f"SET ducklake.catalog = ''; SET ducklake.catalog_id = {siege.filled(number)}",
        ):
            with psycopg.connect(siege.attacker, autocommit=True) as connection:
                connection.execute(choice.encode())
                with pytest.raises(psycopg.Error) as refused:
                    connection.execute("TABLE lake.ducklake_table")
            diagnosis = refused.value.diag
            text = re.sub('"[^"]*"', '"…"', str(diagnosis.message_primary), count=1)
            refusals.add((text, diagnosis.sqlstate, diagnosis.context, diagnosis.source_line))
    assert len(refusals) == 1


def test_one_answer_about_taken_ids(siege: Siege) -> None:
    """The key of another's row is as free as one that nobody has."""
    query = "INSERT INTO lake.ducklake_snapshot (snapshot_id) VALUES ({})"
    for number in (siege.known["@victim_snapshot@"], "987654"):
        assert siege.by_psycopg([query.format(number)]) == []
    assert "duplicate key" in siege.by_psycopg([query.format(1)])[0]
    siege.assert_nothing_lost()


def test_ids_of_another(siege: Siege) -> None:
    """They stand for files and inlined rows when a catalog is forked, flushed or dropped."""
    number = siege.known["@first_id@"]
    refusals = {
        f"INSERT INTO lake.ducklake_data_file (data_file_id, path, path_is_relative) "
        f"VALUES ({number}, 'x', true)": "DL003",
        f"UPDATE lake.ducklake_data_file SET data_file_id = {number}": "DL003",
        f"INSERT INTO lake.ducklake_delete_file (delete_file_id, path, path_is_relative) "
        f"VALUES (-{number}, 'x', true)": "DL003",
        f"INSERT INTO lake.ducklake_table "
        f"(table_id, begin_snapshot, schema_id, table_name, path, path_is_relative) "
        f"VALUES ({number}, 1, 1, 'x', 'x/', true)": "23514",
        f"UPDATE lake.ducklake_table SET table_id = {number}": "23514",
        f"INSERT INTO lake.ducklake_inlined_data_tables "
        f"VALUES ({number}, 'ducklake_inlined_data_{number}_1', 1)": "23514",
        "INSERT INTO lake.ducklake_inlined_data_tables SELECT table_id, "
        f"'ducklake_inlined_data_{number}_1', 1 FROM lake.ducklake_table": "23514",
    }
    for statement, sqlstate in refusals.items():
        with psycopg.connect(siege.attacker) as connection:
            with pytest.raises(psycopg.Error) as refused:
                connection.execute(statement.encode())
            assert refused.value.sqlstate == sqlstate, statement
            connection.rollback()
    siege.assert_nothing_lost()


def test_the_api_shows_ones_own(siege: Siege) -> None:
    """Every view of it answers a tenant, with the rows of the catalogs it was granted."""
    with psycopg.connect(siege.superuser) as connection:
        views = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'ducklake_api'::regnamespace "
            "AND relkind = 'v'"
        ).fetchall()
    everything = " ".join(attack.script for attack in ATTACKS)
    with psycopg.connect(siege.attacker) as connection:
        for (view,) in views:
            assert f"ducklake_api.{view} WHERE catalog_name = '@victim@'" in everything
            found = connection.execute(f"SELECT catalog_name FROM ducklake_api.{view}".encode())
            expected = set() if view == "maintenance" else {("burrow",), ("library",)}
            assert set(found) == expected, view


def test_a_choice_by_default(siege: Siege) -> None:
    """A wrong default of the role, which only an administrator can set, opens nothing either."""
    role = sql.Identifier(siege.known["@own_role@"])
    with psycopg.connect(siege.superuser, autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER ROLE {} SET ducklake.catalog = 'marmot'").format(role))
    without_options = psycopg.conninfo.make_conninfo(siege.attacker, options="")
    statements = ["TABLE lake.ducklake_table", "TABLE lake.ducklake_snapshot"]
    seen = siege.by_psycopg(statements, without_options)
    assert 'catalog "marmot" does not exist' in seen[0]
    with psycopg.connect(siege.superuser, autocommit=True) as connection:
        connection.execute(sql.SQL("ALTER ROLE {} RESET ALL").format(role))
    siege.assert_nothing_lost()


def test_a_stock_client_attaches_to_its_own_only(siege: Siege) -> None:
    own = stock_client(_without_choice(siege), "burrow")
    assert own.tables() == {"main.t"}
    own.close()
    for name in ("marmot", "dodo"):
        other = stock_client(_without_choice(siege), name)
        with pytest.raises(Exception, match=r"does not exist, or role .* was not granted it"):
            other.tables()
        other.forget()
    siege.assert_nothing_lost(with_structure=True)


def test_reading_only(siege: Siege) -> None:
    """A grant for reading shows everything and changes nothing."""
    client = stock_client(_without_choice(siege), "library")
    assert len(client.sql("FROM t")) == 20
    for statement in (
        "INSERT INTO t SELECT i, 'k0' FROM range(20) r(i)",
        "DELETE FROM t WHERE i < 10",
        "DROP TABLE t",
        "CREATE TABLE u (i INTEGER)",
        "CALL ducklake_expire_snapshots('lake', older_than => now())",
        "CALL lake.set_option('target_file_size', '1MB')",
    ):
        with pytest.raises(Exception, match="was granted this catalog for reading only"):
            client.sql(statement)
    client.forget()
    siege.assert_nothing_lost()


def test_reading_only_by_sql(siege: Siege) -> None:
    """Each table with rows refuses to lose or change them, each view to take one."""
    with psycopg.connect(siege.attacker, autocommit=True) as connection:
        connection.execute(_CHOOSE_LIBRARY)
        for table in METADATA_TABLES:
            column = table.columns[0][0]
            values = {"VARCHAR": "'x/'", "BOOLEAN": "true", "TIMESTAMPTZ": "now()", "UUID": "NULL"}
            row = ", ".join(values.get(kind.upper(), "'999'") for _, kind in table.columns)
            statements = [f"INSERT INTO lake.{table.name} VALUES ({row})"]
            if connection.execute(f"TABLE lake.{table.name}".encode()).rowcount:
                statements += [
                    f"UPDATE lake.{table.name} SET {column} = {column}",
                    f"DELETE FROM lake.{table.name}",
                ]
            for statement in statements:
                with pytest.raises(psycopg.Error) as refused:
                    connection.execute(statement.encode())
                # The ids and settings of a catalog are guarded on top.
                allowed = {"DL002", "DL003", "23514"}
                assert refused.value.sqlstate in allowed, statement
    siege.assert_nothing_lost()


def test_a_grant_that_was_taken_back(siege: Siege) -> None:
    """Statements prepared before, and settings chosen before, are refused from then on."""
    store, role = CatalogStore(siege.superuser), siege.known["@own_role@"]
    with psycopg.connect(siege.attacker, autocommit=True) as connection:
        connection.execute(_CHOOSE_LIBRARY)
        connection.execute("PREPARE p AS SELECT * FROM lake.ducklake_table")
        assert connection.execute("EXECUTE p").fetchall()
        assert store.revoke("library", role)
        try:
            for statement in ("EXECUTE p", "TABLE lake.ducklake_table"):
                with pytest.raises(psycopg.Error, match="was not granted it"):
                    connection.execute(statement.encode())
            assert connection.execute("TABLE ducklake_api.catalogs").rowcount == 1
        finally:
            store.grant("library", role, writable=False)
    siege.take_as_given()


def _without_choice(siege: Siege) -> str:
    """The attacker's connection string with no catalog chosen in it."""
    return psycopg.conninfo.make_conninfo(siege.attacker, options="-c lock_timeout=2s")
