"""What watches a store under attack: did a script see or change anything that is not its own?"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from airflow_provider_ducklake.lake.identifiers import quote_literal
from airflow_provider_ducklake.lake.metadata_tables import METADATA_TABLES
from tests.store.hostile import Attack
from tests.support.reference import extension_file

Connection = psycopg.Connection[tuple[Any, ...]]

# Words of the victim's data, metadata and large object.
_WORDS: Final = frozenset(
    {
        *("marmot", "quokka", "narwhal", "axolotl", "tapir", "pangolin", "ocelot", "gharial"),
        *("numbat", "jerboa", "okapi", "kakapo", "tamarin", "bandicoot", "lemming", "dodo"),
        "48611",
    }
)
# What nobody but the store's owner changes. Statistics and what is the attacker's are out.
_OURS: Final = "IN ('ducklake', 'lake', 'ducklake_api', 'public')"
_STRUCTURE: Final = {
    "relations": "SELECT c.oid, relname, relkind, relowner, relacl, reloptions, relrowsecurity, "
    "relhasrules, relhastriggers, relfilenode FROM pg_class c "
    f"WHERE relnamespace::regnamespace::text {_OURS}",
    "columns": "SELECT attrelid, attname, atttypid, attnotnull, attacl, atthasdef "
    "FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid "
    f"WHERE relnamespace::regnamespace::text {_OURS}",
    "defaults": "SELECT adrelid, adnum, adbin FROM pg_attrdef d JOIN pg_class c ON c.oid = adrelid "
    f"WHERE relnamespace::regnamespace::text {_OURS}",
    "views": "SELECT rulename, ev_class, ev_action FROM pg_rewrite r "
    f"JOIN pg_class c ON c.oid = ev_class WHERE relnamespace::regnamespace::text {_OURS}",
    "functions": f"SELECT * FROM pg_proc WHERE pronamespace::regnamespace::text {_OURS}",
    "triggers": "SELECT t.oid, tgrelid, tgname, tgenabled, tgfoid, tgtype, tgargs "
    "FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid "
    f"WHERE relnamespace::regnamespace::text {_OURS}",
    "constraints": "SELECT conname, conrelid, convalidated FROM pg_constraint "
    f"WHERE connamespace::regnamespace::text {_OURS}",
    "types": "SELECT typname, typowner, typacl FROM pg_type "
    f"WHERE typnamespace::regnamespace::text {_OURS}",
    "schemas": "SELECT * FROM pg_namespace WHERE nspname !~ '^pg_'",
    "roles": "SELECT oid, rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, "
    "rolreplication, rolbypassrls, rolpassword FROM pg_authid",
    "members": "SELECT * FROM pg_auth_members",
    "settings of roles": "SELECT * FROM pg_db_role_setting WHERE setrole <> {attacker}::regrole",
    # A GRANT that grants nothing writes out the default.
    "databases": "SELECT oid, datname, datdba, datallowconn, "
    "coalesce(datacl, acldefault('d', datdba)) FROM pg_database",
    "default rights": "SELECT * FROM pg_default_acl",
    "large objects": "SELECT m.oid, m.lomowner, m.lomacl, l.pageno, l.data "
    "FROM pg_largeobject_metadata m LEFT JOIN pg_largeobject l ON l.loid = m.oid "
    "WHERE m.lomowner <> {attacker}::regrole",
    "comments": "SELECT * FROM pg_description WHERE objoid >= 16384",
    "rest": "SELECT extname FROM pg_extension UNION ALL SELECT pubname FROM pg_publication "
    "UNION ALL SELECT subname FROM pg_subscription UNION ALL SELECT evtname FROM pg_event_trigger "
    "UNION ALL SELECT polname FROM pg_policy UNION ALL SELECT lanname FROM pg_language "
    "UNION ALL SELECT srvname FROM pg_foreign_server UNION ALL SELECT spcname FROM pg_tablespace "
    "UNION ALL SELECT slot_name FROM pg_replication_slots UNION ALL SELECT gid "
    "FROM pg_prepared_xacts UNION ALL SELECT pg_read_file('postgresql.auto.conf') "
    "UNION ALL SELECT castfunc::text FROM pg_cast "
    "UNION ALL SELECT stxname FROM pg_statistic_ext UNION ALL SELECT label FROM pg_seclabel",
    "catalog ids": "SELECT last_value FROM ducklake.ducklake_catalog_catalog_id_seq",
}


@dataclass(slots=True)
class Siege:
    """A store, an attacker with a catalog of its own, and what is to be kept from it.

    Attributes:
        superuser: libpq string of the owner of the database.
        attacker: Of the attacker, with its catalog `burrow` chosen.
        victim: Of the victim, whose catalog is `marmot`.
        known: What the attacker may have learnt: `@name@` in a script and what stands for it.
        secrets: Texts that only the victim has, in lower case.
        ids: The range of the victim's ids.
    """

    superuser: str
    attacker: str
    victim: str
    known: dict[str, str]
    secrets: frozenset[str]
    ids: range
    _watch: Connection
    _victims_session: Connection
    _duckdb: duckdb.DuckDBPyConnection
    # Queries by what they look at, and what they found in the beginning.
    _rows: dict[str, str] = field(default_factory=dict)
    _own: dict[str, str] = field(default_factory=dict)
    _structure: dict[str, str] = field(default_factory=dict)
    _baseline: dict[str, Any] = field(default_factory=dict)
    _saved: dict[str, Any] = field(default_factory=dict)
    _restore: str = ""

    @classmethod
    @contextmanager
    def begin(cls, superuser: str, *, attacker: str, victim: str) -> Iterator[Siege]:
        """Learn what there is to protect; yield the siege."""
        as_attacker = make_conninfo(
            superuser,
            user=attacker,
            options="-c ducklake.catalog=burrow -c lock_timeout=2s -c statement_timeout=20s",
        )
        as_victim = make_conninfo(superuser, user=victim, options="-c ducklake.catalog=marmot")
        session = duckdb.connect(":memory:", config={"threads": 1})
        session.load_extension(str(extension_file("postgres_scanner")))
        with (
            psycopg.connect(superuser, autocommit=True) as watch,
            psycopg.connect(as_victim, autocommit=True) as at_rest,
            session,
        ):
            large_object = _one(at_rest, "SELECT lo_from_bytea(0, 'pangolin'::bytea)")
            at_rest.execute("PREPARE jerboa AS SELECT 'pangolin'")
            known = _known(watch) | {
                "@own_role@": attacker,
                "@victim_role@": victim,
                "@superuser@": str(conninfo_to_dict(superuser)["user"]),
                "@database@": str(conninfo_to_dict(superuser)["dbname"]),
                "@victim_pid@": str(at_rest.info.backend_pid),
                "@large_object@": str(large_object),
            }
            first = int(known["@first_id@"])
            siege = cls(
                superuser,
                as_attacker,
                as_victim,
                known,
                _secrets(watch),
                range(first, first + 2**32),
                watch,
                at_rest,
                session,
            )
            siege._learn()
            yield siege

    def script(self, attack: Attack) -> list[str]:
        """Return the statements of an attack with what the attacker knows filled in."""
        return [self.filled(statement) for statement in attack.statements]

    def filled(self, text: str) -> str:
        """Return a text with what the attacker knows filled in."""
        return re.sub(r"@\w+@", lambda mark: self.known[mark[0]], text)

    def take_as_given(self) -> None:
        """Take what others have now for what has to be kept."""
        self._baseline = self._digests(self._rows | self._structure) | self._files()

    def assert_nothing_lost(self, *, with_structure: bool = False) -> None:
        """Fail if anything of another changed; put the attacker's own rows back.

        Args:
            with_structure: Look at roles, rights, views and functions, too.
        """
        self._victims_session.execute("SELECT 'pangolin'")  # still there, and still its query
        queries = self._rows | self._own | (self._structure if with_structure else {})
        now = self._digests(queries) | self._files()
        changed = [
            name
            for name, digest in now.items()
            if name not in self._own and self._baseline[name] != digest
        ]
        assert not changed, f"changed: {changed}"
        if any(now[name] != digest for name, digest in self._saved.items()):
            self._watch.execute(self._restore.encode())

    def leaks(self, seen: Iterable[str], statements: Iterable[str]) -> list[str]:
        """Return the victim's secrets in what was seen, but for those the statements name."""
        text, said = "\n".join(seen).lower(), "\n".join(statements).lower()
        numbers = set(re.findall(r"\d+", text))
        # A number is one as a whole: its digits turn up in the decimals of any statistics.
        found = {s for s in self.secrets if s in (numbers if s.isdigit() else text)}
        found |= {number for number in numbers if int(number) in self.ids}
        return sorted(secret for secret in found if secret not in said)

    def by_psycopg(self, statements: list[str], conninfo: str | None = None) -> list[str]:
        """Run a script through psycopg; return all that came back, errors and notices too."""
        seen: list[str] = []
        with psycopg.connect(conninfo or self.attacker, autocommit=True) as connection:
            connection.add_notice_handler(lambda notice: seen.extend(_diagnosis(notice)))
            connection.add_notify_handler(lambda notify: seen.append(notify.payload))
            for statement in statements:
                try:
                    _run(connection, statement, seen)
                except psycopg.Error as error:
                    seen.extend([str(error), *_diagnosis(error.diag)])
        return seen

    def by_duckdb(self, statements: list[str]) -> list[str]:
        """Run a script through DuckDB's postgres_query and postgres_execute."""
        seen: list[str] = []
        session = self._duckdb
        # Each call may else take another connection of the pool.
        together = len(statements) > 1
        try:
            session.execute(f"ATTACH {quote_literal(self.attacker)} AS pg (TYPE postgres)")
            if together:
                session.execute("BEGIN")
            for statement in statements:
                if not re.match(r"BEGIN|COMMIT|ROLLBACK$", statement):
                    seen.extend(_through_duckdb(session, statement))
            if together:
                session.execute("COMMIT")
        except duckdb.Error as error:
            seen.append(str(error))
            if together:
                session.execute("ROLLBACK")
        finally:
            session.execute("DETACH DATABASE IF EXISTS pg")
        return seen

    def _files(self) -> dict[str, Any]:
        root = self.known["@store_root@"]
        found = [
            (str(path), path.stat().st_size)
            for path in sorted(Path(root).rglob("*.*"))
            if path.is_file() and not path.is_relative_to(self.known["@own_root@"])
        ]
        return {"files": found}

    def _digests(self, queries: Mapping[str, str]) -> dict[str, Any]:
        query = " UNION ALL ".join(
            f"SELECT {quote_literal(name)}, md5(string_agg(x::text, E'\\n' ORDER BY x::text)) "
            f"FROM ({text}) x"
            for name, text in queries.items()
        )
        return dict(self._watch.execute(query.encode()).fetchall())

    def _learn(self) -> None:
        """Prepare what is looked at, and save the attacker's rows."""
        own, attacker = self.known["@own_id@"], quote_literal(self.known["@own_role@"])
        tables = _tables(self._watch)
        self._rows = {
            name: f"SELECT * FROM ducklake.{name} WHERE catalog_id <> {own}" for name in tables
        } | {name: f"TABLE ducklake.{name}" for name in ("shared_file", "store")}
        self._own = {
            f"own {name}": f"SELECT * FROM ducklake.{name} WHERE catalog_id = {own}"
            for name in tables
        }
        self._structure = {
            name: text.replace("{attacker}", attacker) for name, text in _STRUCTURE.items()
        }
        names = [table.name for table in METADATA_TABLES]
        for name in names:
            copy = f"CREATE TABLE public.{name} AS {self._own[f'own {name}']}"
            self._watch.execute(copy.encode())
        self._restore = "; ".join(
            [
                "BEGIN; SET LOCAL session_replication_role = replica",
                *(f"DELETE FROM ducklake.{name} WHERE catalog_id = {own}" for name in names),
                *(f"INSERT INTO ducklake.{name} TABLE public.{name}" for name in names),
                "COMMIT",
            ]
        )
        self._saved = self._digests(self._own)
        self.take_as_given()


def _known(watch: Connection) -> dict[str, str]:
    ids: dict[str, int] = dict(
        watch.execute("SELECT catalog_name, catalog_id FROM ducklake.ducklake_catalog").fetchall()
    )
    victim, own = ids["marmot"], ids["burrow"]
    of_victim = f"WHERE catalog_id = {victim}"
    values = {
        "victim": "marmot",
        "VICTIM": "MARMOT",
        "victim_id": victim,
        "own": "burrow",
        "own_id": own,
        "library": "library",
        "library_id": ids["library"],
        "dropped": "dodo",
        "dropped_id": ids["dodo"],
        "first_id": victim << 32,
        "last_id": (victim << 32) + 2**32 - 1,
        "own_first_id": own << 32,
        "table": "narwhal",
        "table_id": _one(watch, f"SELECT max(table_id) FROM ducklake.ducklake_table {of_victim}"),
        "file_id": _one(
            watch, f"SELECT max(data_file_id) FROM ducklake.ducklake_data_file {of_victim}"
        ),
        "victim_snapshot": _one(
            watch, f"SELECT max(snapshot_id) FROM ducklake.ducklake_snapshot {of_victim}"
        ),
        "victim_root": _one(watch, f"SELECT root FROM ducklake.ducklake_catalog {of_victim}"),
        "own_root": _one(
            watch, f"SELECT root FROM ducklake.ducklake_catalog WHERE catalog_id = {own}"
        ),
        "store_root": _one(watch, "SELECT root FROM ducklake.store"),
    }
    return {f"@{name}@": str(value) for name, value in values.items()}


def _secrets(watch: Connection) -> frozenset[str]:
    """The victim's words, uuids, ids and the names of its files."""
    rows = watch.execute(
        """
        SELECT c.catalog_id::text, c.catalog_uuid::text, s.schema_uuid::text, t.table_uuid::text,
            f.path, d.path, w.path
        FROM ducklake.ducklake_catalog c
        LEFT JOIN ducklake.ducklake_schema s USING (catalog_id)
        LEFT JOIN ducklake.ducklake_table t USING (catalog_id)
        LEFT JOIN ducklake.ducklake_data_file f USING (catalog_id)
        LEFT JOIN ducklake.ducklake_delete_file d USING (catalog_id)
        LEFT JOIN ducklake.ducklake_files_scheduled_for_deletion w USING (catalog_id)
        WHERE c.catalog_name IN ('marmot', 'dodo')
        """
    )
    texts = {os.path.basename(text).lower() for row in rows for text in row if text}
    return _WORDS | texts


def _tables(watch: Connection) -> list[str]:
    """Names of the tables of schema `ducklake` with the id of a catalog in them."""
    rows = watch.execute(
        "SELECT relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
        "WHERE relnamespace = 'ducklake'::regnamespace AND relkind = 'r' "
        "AND attname = 'catalog_id'"
    )
    return [str(name) for (name,) in rows]


def _run(connection: Connection, statement: str, seen: list[str]) -> None:
    cursor = connection.cursor()
    if "FROM STDIN\n" in statement:
        command, _, data = statement.partition("\n")
        with cursor.copy(command.encode()) as copy:
            copy.write(data + "\n")
        return
    if statement.endswith("TO STDOUT"):
        with cursor.copy(statement.encode()) as copy:
            seen.extend(bytes(row).decode() for row in copy)
        return
    cursor.execute(statement.encode())
    result = cursor.pgresult
    assert result is not None
    for column in range(result.nfields):
        seen.append((result.fname(column) or b"").decode())
        # As text: a value that Python has no type for must not go unseen.
        values = (result.get_value(row, column) for row in range(result.ntuples))
        for value in filter(None, values):
            text = value.decode()
            seen.append(text)
            if re.fullmatch(r"\\x([0-9a-f]{2})*", text):
                seen.append(bytes.fromhex(text[2:]).decode(errors="replace"))


def _through_duckdb(session: duckdb.DuckDBPyConnection, statement: str) -> list[str]:
    query = re.match(r"SELECT|WITH|TABLE|VALUES|EXPLAIN|SHOW", statement)
    function = "postgres_query" if query and " INTO " not in statement else "postgres_execute"
    result = session.execute(f"FROM {function}('pg', {quote_literal(statement)})")
    seen = [str(column[0]) for column in result.description or ()]
    for row in result.fetchall():
        for value in row:
            seen.append(value.decode(errors="replace") if isinstance(value, bytes) else str(value))
    return seen


def _diagnosis(of: psycopg.errors.Diagnostic) -> list[str]:
    return [
        str(text)
        for name in dir(of)
        if not name.startswith("_") and isinstance(text := getattr(of, name), str)
    ]


def _one(connection: Connection, query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]
