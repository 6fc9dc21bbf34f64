"""A catalog in a PostgreSQL schema."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Final

import psycopg
from psycopg import sql

from airflow_provider_ducklake.lake.database.base import (
    STREAMED,
    Parameter,
    Row,
    Session,
    Value,
    batches,
)
from airflow_provider_ducklake.lake.database.kept_connections import KeptConnections, connect
from airflow_provider_ducklake.lake.errors import (
    CatalogUnavailable,
    CommitStateUnknown,
    ConfigurationError,
    LakeError,
    LostRace,
    SafetyRefusal,
    UnsupportedCatalog,
)
from airflow_provider_ducklake.lake.fault_points import FaultPoint, reach
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.metadata_tables import BY_NAME, METADATA_TABLES
from airflow_provider_ducklake.lake.store.refusals import refusal_of_store

Connection = psycopg.Connection[Row]
_ROWS: Final = 10_000  # inserted by one statement
_RACES: Final = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
)
_NO_LAKE: Final = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.InvalidSchemaName,
)


class PostgresSession(Session):
    """One transaction on PostgreSQL."""

    in_ids = "= ANY(CAST(? AS bigint[]))"

    def __init__(self, connection: Connection, schema: str, in_store: bool) -> None:
        self._connection = connection
        self._in_store = in_store
        self.schema = schema

    def _run(self, statement: str, parameters: Sequence[Parameter]) -> tuple[list[Row], int]:
        cursor = self._connection.execute(_composed(statement), parameters)
        return (cursor.fetchall() if cursor.description else []), cursor.rowcount

    def _stream(self, query: str, parameters: Sequence[Parameter]) -> Generator[Row]:
        cursor = self._connection.cursor("ducklake_stream")
        cursor.itersize = STREAMED
        try:
            for row in cursor.execute(_composed(query), parameters):  # noqa: UP028
                yield row
        finally:
            # A stream nobody read to its end may outlive its connection.
            if not self._connection.closed:
                cursor.close()

    def insert(self, table: str, rows: Iterable[Sequence[Value]]) -> None:
        # An array for each column: a statement with a parameter for every value of hundreds of
        # rows takes longer to be parsed, here and by the server, than to be run.
        columns = BY_NAME[table].columns
        names = ", ".join(quote_identifier(name) for name, _ in columns)
        given = ", ".join(f"CAST(%s AS {kind}[])" for _, kind in columns)
        text = self._expand(f"INSERT INTO {{{table}}} ({names}) SELECT * FROM unnest({given})", {})
        for batch in batches(list(rows), _ROWS):
            arrays = [list(values) for values in zip(*batch, strict=True)]
            self._connection.execute(sql.SQL(text), arrays)

    def has_table(self, name: str) -> bool:
        query = sql.SQL("SELECT to_regclass({})").format(
            sql.Literal(sql.Identifier(self.schema or "public", name).as_string(None))
        )
        return self._connection.execute(query).fetchone() != (None,)

    def table_names(self) -> list[str]:
        if self._in_store:
            # What is there beside the views was made by clients that inline rows, one table for
            # each table of a lake; the ids in their names tell the catalogs apart. A tenant may not
            # ask which catalog it is in, but its ids tell.
            found = self._run(
                "SELECT relname FROM pg_class WHERE relnamespace = 'lake'::regnamespace "
                "AND relkind = 'r' AND CAST(substring(relname FROM ?) AS bigint) >> 32 "
                "= (SELECT max(id) >> 32 FROM ("
                "SELECT max(next_catalog_id) AS id FROM lake.ducklake_snapshot UNION ALL "
                "SELECT max(table_id) FROM lake.ducklake_table) AS ids) ORDER BY relname",
                ("^ducklake_inlined_(?:data|delete)_([0-9]+)",),
            )[0]
            return [table.name for table in METADATA_TABLES] + [name for (name,) in found]
        query = "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY tablename"
        return [name for (name,) in self._connection.execute(query, (self.schema,))]

    def inlined_text(self, column: str, stored_as_bytes: bool) -> str:
        return column if stored_as_bytes else f"CAST({column} AS VARCHAR)"

    def sibling_data_paths(self) -> list[tuple[str, str]]:
        if self._in_store:
            return []  # the store sees to it that no root lies in another
        schemas = self._run(
            "SELECT table_schema FROM information_schema.tables WHERE table_name = ? "
            "AND table_schema NOT IN ('ducklake', 'lake')",
            ("ducklake_metadata",),
        )[0]
        found = self._store_root()
        for (schema,) in schemas:
            if schema != self.schema:
                table = f"{quote_identifier(schema)}.ducklake_metadata"
                query = f'SELECT "value" FROM {table} WHERE "key" = ? AND "scope" IS NULL'
                found += [(schema, path) for (path,) in self._run(query, ("data_path",))[0]]
        return found

    def _store_root(self) -> list[tuple[str, str]]:
        """Return the directory of all catalogs of a store in this database, as one sibling."""
        query = sql.SQL("SELECT to_regclass('ducklake.store')")
        if self._connection.execute(query).fetchone() == (None,):
            return []
        allowed = self._run("SELECT has_table_privilege('ducklake.store', 'SELECT')", ())[0]
        if allowed != [(True,)]:
            raise SafetyRefusal(
                "the database holds a store of catalogs that this role cannot look into, so its "
                "files cannot be told from orphans"
            )
        return [
            ("ducklake", root) for (root,) in self._run("SELECT root FROM ducklake.store", ())[0]
        ]


def require_no_store(location: CatalogLocation) -> None:
    """Refuse a location that names no catalog of the store its database holds, and no schema.

    Raises:
        ConfigurationError: It is one; DuckDB would make a lake in the schema `public` of it.
        CatalogUnavailable: The database cannot be reached.
    """
    with PostgresDatabase(location, lock_timeout=60.0).read():
        pass


class PostgresDatabase:
    """A schema of a PostgreSQL database."""

    def __init__(
        self, location: CatalogLocation, lock_timeout: float, kept: KeptConnections | None = None
    ) -> None:
        """Name a database; nothing is connected yet.

        Args:
            location: The catalog.
            lock_timeout: Seconds to wait for a lock that another session holds.
            kept: Connections to use instead of a new one each time, to the store of which the
                location names a catalog.
        """
        self._location = location
        self._lock_timeout = lock_timeout
        self._kept = kept
        self._schema = location.metadata_schema or "public"
        self._in_store = location.in_store

    @contextmanager
    def read(self) -> Iterator[Session]:
        """See `Database.read`."""
        with self._connection() as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            with self._errors_named(connection):
                yield self._begin(connection)
                connection.rollback()

    @contextmanager
    def write(self) -> Iterator[Session]:
        """See `Database.write`."""
        with self._connection() as connection, self._errors_named(connection):
            yield self._begin(connection)
            self._commit(connection)

    @contextmanager
    def create(self) -> Iterator[Session]:
        """See `Database.create`."""
        with self._connection() as connection, self._errors_named(connection):
            session = self._begin(connection)
            connection.execute(
                sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self._schema))
            )
            yield session
            self._commit(connection)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        with ExitStack() as stack:
            try:
                if self._kept is None:
                    connection = stack.enter_context(closing(connect(self._location.conninfo)))
                else:
                    connection = stack.enter_context(self._kept.borrow())
            except psycopg.Error as error:
                raise CatalogUnavailable(
                    f"{self._location} cannot be reached: {_first_line(error)}"
                ) from None
            yield connection

    def _begin(self, connection: Connection) -> PostgresSession:
        """Begin a transaction, with settings that end with it: the connection may be kept."""
        settings = {"TimeZone": "UTC", "lock_timeout": str(int(self._lock_timeout * 1000))}
        if self._in_store:
            settings["ducklake.schedules_files"] = "on"
        if self._kept is not None:
            settings["ducklake.catalog"] = str(self._location.catalog)
        calls = sql.SQL(", ").join(
            sql.SQL("set_config({}, {}, true)").format(name, value)
            for name, value in settings.items()
        )
        connection.execute(sql.SQL("SELECT ") + calls)
        if self._location.metadata_schema is None:
            self._refuse_store(connection)
        return PostgresSession(connection, self._schema, self._in_store)

    def _refuse_store(self, connection: Connection) -> None:
        """Refuse the default schema of a database that holds a store: a catalog was forgotten."""
        # By name alone: a role without rights on the store's schema could not ask for the table.
        query = (
            "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'ducklake' AND c.relname = 'ducklake_catalog' "
            "AND EXISTS (SELECT FROM pg_namespace WHERE nspname = 'ducklake_api')"
        )
        if connection.execute(query).fetchone() is not None:
            raise ConfigurationError(
                f"{self._location} names no catalog, and the database holds a store of many: name "
                "one (catalog in Airflow, the libpq option -c ducklake.catalog=NAME elsewhere). A "
                "lake of its own in the schema public is reached by METADATA_SCHEMA 'public'"
            )

    def _commit(self, connection: Connection) -> None:
        reach(FaultPoint.UNCOMMITTED)
        try:
            connection.commit()
        except psycopg.OperationalError as error:
            if isinstance(error, _RACES):
                raise
            raise CommitStateUnknown(
                f"{self._location} went away during COMMIT, so the commit may or may not have "
                "happened: look at its newest snapshots before doing anything else"
            ) from error
        reach(FaultPoint.COMMITTED)

    @contextmanager
    def _errors_named(self, connection: Connection) -> Iterator[None]:
        try:
            yield
        except _RACES as error:
            raise LostRace(
                f"{self._location}: another commit was first ({_first_line(error)})"
            ) from error
        except psycopg.Error as error:
            raise self._named(error) from error

    def _named(self, error: psycopg.Error) -> LakeError:
        if (refusal := refusal_of_store(error, self._location)) is not None:
            return refusal
        if isinstance(error, _NO_LAKE):
            return UnsupportedCatalog(
                f"{self._location} holds no DuckLake 1.0 catalog ({_first_line(error)})"
            )
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return CatalogUnavailable(
                f"{self._location}: another session held a lock for {self._lock_timeout:g} s"
            )
        return CatalogUnavailable(f"{self._location} refused: {_first_line(error)}")


def _composed(statement: str) -> sql.SQL:
    # The text is composed in this package from fixed words and quoted names alone.
    return sql.SQL(statement.replace("%", "%%").replace("?", "%s"))


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().split("\n", 1)[0]
