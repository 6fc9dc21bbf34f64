"""The hook for a DuckLake: an Airflow connection as a lake, a DuckDB session, storage options."""

from __future__ import annotations

import weakref
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from airflow.providers.common.compat.sdk import AirflowException
from airflow.providers.common.sql.hooks.sql import DbApiHook

from airflow_provider_ducklake.hooks._errors import airflow_error
from airflow_provider_ducklake.hooks._fields import LakeFields, parse_fields
from airflow_provider_ducklake.hooks._secrets import Redactor, spellings
from airflow_provider_ducklake.hooks._values import chosen
from airflow_provider_ducklake.hooks.connection_form import (
    conn_fields,
    form_widgets,
    ui_field_behaviour,
)
from airflow_provider_ducklake.lake.errors import (
    ConfigurationError,
    LakeError,
    NotFound,
    UnsupportedCatalog,
)
from airflow_provider_ducklake.version_compat import mask_secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from duckdb import DuckDBPyConnection

    from airflow_provider_ducklake.hooks._connection import LakeConnection
    from airflow_provider_ducklake.lake.lake import Lake
    from airflow_provider_ducklake.lake.location import CatalogLocation
    from airflow_provider_ducklake.lake.store.store import CatalogStore
    from airflow_provider_ducklake.storage import StorageOptions

LAKE: Final = "lake"


class DuckLakeHook(DbApiHook):
    """Work with a lake whose catalog and data an Airflow connection of type `ducklake` names.

    All operators of common-sql run on it. Connecting never changes a catalog: no lake is created,
    none is migrated, no option is set. The catalog's password and storage credentials reach DuckDB
    as bound parameters only, and are masked in every spelling in Airflow's logs.

    Storage credentials are handed to DuckDB for S3. For data on Google Cloud Storage or Azure,
    `get_conn()` uses the secrets DuckDB itself keeps; `lake()` and the operators need nothing more.

    A SQLite catalog in a bucket is fetched for every look at it, checked, and the copy removed
    again. Sessions attach such a copy for reading only: the operators are what changes the lake.
    """

    conn_name_attr = "ducklake_conn_id"
    default_conn_name = "ducklake_default"
    conn_type = "ducklake"
    hook_name = "DuckLake"
    supports_autocommit = True
    supports_executemany = True
    _placeholder = "?"
    _test_connection_sql = "SELECT 1"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make a hook; nothing is looked up or opened yet.

        A catalog that is given and is blank or "None" is refused, never the connection's.

        Args:
            *args: The connection id, at most.
            **kwargs: `ducklake_conn_id`, `schema` (the lake's schema to use instead of `main`),
                `catalog` (a catalog of the shared store, instead of the one the connection names),
                `catalog_url` (a SQLite catalog in a bucket, likewise) and `log_sql`. Common-sql
                passes the extra fields of the connection too; those are read from the connection
                itself.
        """
        known = (self.conn_name_attr, "schema", "log_sql")
        super().__init__(*args, **{name: kwargs[name] for name in known if name in kwargs})
        # Where SQLExecuteQueryOperator(database=…) puts its value.
        self.schema: str | None = kwargs.get("schema")
        self.catalog: str | None = kwargs.get("catalog")
        self.catalog_url: str | None = kwargs.get("catalog_url")

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Return the form's extra fields, for Airflow before 3.2; later ones read provider info."""
        return form_widgets(conn_fields())

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return labels and placeholders of the form, for Airflow before 3.2."""
        behaviour = ui_field_behaviour()
        return {name.replace("-", "_"): value for name, value in behaviour.items()}

    @cached_property
    def fields(self) -> LakeFields:
        """The connection's fields; from the first look on, Airflow masks what is secret in them.

        Raises:
            ConfigurationError: A field is missing, unknown, malformed or contradicts another.
        """
        # None leaves the choice to the connection. A template that came to nothing does not: it
        # would be another tenant's catalog that is worked on.
        # Common-sql hands over what the connection itself says, and a form leaves blanks there.
        own = self.connection.extra_dejson
        places = {"catalog": self.catalog, "catalog_url": self.catalog_url}
        named = {n: chosen(v, n) for n, v in places.items() if v is not None and v != own.get(n)}
        fields = parse_fields(self.connection, **named)
        for secret in fields.secrets:
            for spelling in spellings(secret):
                mask_secret(spelling)
        return fields

    @property
    def redact(self) -> Redactor:
        """A function that masks this connection's secrets in a text."""
        return Redactor(self.fields.secrets)

    def location(self) -> CatalogLocation:
        """Return where the catalog is; raises ConfigurationError for a wrong connection."""
        return self.fields.location

    def storage_options(self) -> StorageOptions:
        """Return how the data's storage is reached.

        Raises:
            ConfigurationError: An option is unknown; the message names the nearest one.
        """
        from airflow_provider_ducklake.storage import StorageOptions

        return StorageOptions(dict(self.fields.storage))

    def lake(self, lock_timeout: float = 60.0) -> Lake:
        """Return the lake itself, to read its snapshots, tables and options; nothing is opened yet.

        Args:
            lock_timeout: Seconds to wait for a catalog that another client holds.

        Example:
            >>> DuckLakeHook("ducklake_default").lake().head().snapshot_id  # doctest: +SKIP
            42

        Raises:
            UnsupportedCatalog: Only DuckDB itself can reach the metadata; see `get_conn`.
        """
        from airflow_provider_ducklake.lake.lake import Lake

        return Lake.open(self.location(), storage=self.storage_options(), lock_timeout=lock_timeout)

    def store(self) -> CatalogStore:
        """Return the shared store the connection's database holds: its catalogs come and go there.

        Example:
            >>> store = DuckLakeHook("ducklake_store").store()  # doctest: +SKIP
            >>> store.init("s3://bucket/lakes/")  # doctest: +SKIP
            >>> store.create_catalog("acme", if_not_exists=True).root  # doctest: +SKIP
            's3://bucket/lakes/acme/'

        Raises:
            ConfigurationError: The connection is not one to PostgreSQL.
        """
        from airflow_provider_ducklake.lake.store.store import CatalogStore

        return CatalogStore.at(self.location())

    def configure(
        self,
        connection: DuckDBPyConnection,
        alias: str = LAKE,
        *,
        read_only: bool | None = None,
        use: bool = False,
    ) -> None:
        """Attach this lake to a DuckDB connection of your own, beside whatever it has attached.

        Extensions, settings and secrets are seen to. Several hooks may do so with one connection,
        each under another alias, and one statement may then read from all of their lakes.

        Where the catalog is in a bucket, what is attached is a copy of this moment, for reading
        only; it is removed when `connection` is let go of.

        Args:
            connection: A DuckDB connection.
            alias: Name the lake gets there.
            read_only: Attach for reading only; None takes the Airflow connection's word.
            use: Make it the default database.

        Raises:
            AirflowFailException: The connection is wrong, or what is there is no lake of a format
                known here.
            AirflowException: The catalog cannot be reached, or is not there.
        """
        copy = self._attach(connection, alias, read_only=read_only, use=use)
        weakref.finalize(connection, copy.close)

    def _attach(
        self, session: DuckDBPyConnection, alias: str, *, read_only: bool | None, use: bool
    ) -> ExitStack:
        """Attach the lake; the stack that is returned removes what the session needs no longer."""
        from airflow_provider_ducklake.hooks._attach import attach, configure

        try:
            with ExitStack() as stack:
                fields = self._local(stack, read_only)
                data_path, encrypted = self._found(fields)
                configure(session, fields, alias=alias, data_path=data_path, encrypted=encrypted)
                attach(session, fields, alias, use=use)
                return stack.pop_all()
        except LakeError as error:
            raise airflow_error(error) from None

    def _local(self, stack: ExitStack, read_only: bool | None) -> LakeFields:
        """Return the fields for one session, of a copy where the catalog is in a bucket."""
        fields = self.fields if read_only is None else replace(self.fields, read_only=read_only)
        location = fields.location
        if not location.in_bucket:
            return fields
        if read_only is False:
            raise ConfigurationError(
                f"{location} can be attached for reading only: what is attached is a copy, and "
                "nothing written to it would reach the bucket. Change the lake with an operator"
            )
        from airflow_provider_ducklake.lake.remote_catalog import checked_out

        out = checked_out(
            location.target, self.storage_options(), data_path=location.data_path, read_only=True
        )
        return replace(fields, location=stack.enter_context(out).location, read_only=True)

    def _found(self, fields: LakeFields) -> tuple[str | None, bool]:
        """Return data path and encryption of the lake that is there, or is to be created.

        Our own look first: it tells a wrong place or version apart, creates nothing, and knows
        what DuckDB has to have at hand before it attaches.
        """
        from airflow_provider_ducklake.hooks._attach_options import may_create, overrides_data_path
        from airflow_provider_ducklake.lake.lake import Lake

        location, options = fields.location, fields.attach_options
        if may_create(options) and location.kind == "postgres":
            from airflow_provider_ducklake.lake.database.postgres import require_no_store

            require_no_store(location)
        if may_create(options) or location.kind in ("md", "secret"):
            return location.data_path, options.get("encrypted") == "true"
        given = location.data_path
        override = given is not None and overrides_data_path(options)
        if override:
            location = replace(location, data_path=None)
        with Lake.open(location, storage=self.storage_options()).view() as view:
            return given if override else view.data_path, view.option("encrypted") == "true"

    def get_conn(self) -> LakeConnection:
        """Return a new DuckDB session with the lake attached as `lake` and made the default.

        Raises:
            AirflowFailException: The connection is wrong, or what is there is no lake of a format
                known here; a retry cannot help.
            AirflowException: The catalog cannot be reached, or is not there.
        """
        import duckdb

        from airflow_provider_ducklake.hooks._connection import LakeConnection
        from airflow_provider_ducklake.lake.identifiers import quote_identifier

        with ExitStack() as stack:
            session = stack.enter_context(closing(duckdb.connect(":memory:")))
            copy = stack.enter_context(self._attach(session, LAKE, read_only=None, use=True))
            if self.schema:
                schema = f"{LAKE}.{quote_identifier(self.schema)}"
                session.execute("USE " + schema)
            stack.pop_all()
        return LakeConnection(session, self._told, copy.close)

    def _told(self, error: str) -> str:
        """Return DuckDB's error as a person may see it."""
        text = self.redact(error)
        if self.location().in_bucket and "read-only" in text:
            text += f" ({self.location()} is in a bucket: change it with an operator)"
        return text

    def get_uri(self) -> str:
        """Return the connection as a URI with the password masked and no credentials in it."""
        connection, location = self.connection, self.location()
        if location.in_bucket:
            return f"ducklake://?{urlencode({'catalog_url': location.target})}"
        if location.kind == "secret":
            return f"ducklake://?{urlencode({'attach': location.attach_string})}"
        if location.kind == "md":
            token = ":***@" if location.password else ""
            return f"ducklake://{token}/{quote(location.target, safe='')}?catalog_type=motherduck"
        if location.kind != "postgres":
            file = quote(location.target, safe="")
            return f"ducklake://{file}?{urlencode({'catalog_type': location.kind})}"
        user = quote(connection.login or "", safe="")
        secret = ":***" if location.password else ""
        port = f":{connection.port}" if connection.port else ""
        host = quote(connection.host or "", safe="")
        authority = f"{user}{secret}@{host}{port}" if user or secret else f"{host}{port}"
        database = quote(connection.schema or "", safe="")
        return f"ducklake://{authority}/{database}?{urlencode({'catalog_type': location.kind})}"

    def test_connection(self) -> tuple[bool, str]:  # type: ignore[override]
        """Prove that the catalog is reachable and of a known format, and the data path usable.

        The data path is listed, and unless the connection is read-only a probe object is written
        below it and removed, and beside a catalog in a bucket too. A connection that names no
        catalog of a store proves the same of the store. Where only DuckDB reaches the metadata, it
        attaches the lake and nothing more is looked at.

        Returns:
            Whether all of it worked, and what was found or what went wrong; never a secret.
        """
        try:
            return True, self._probe()
        except (LakeError, AirflowException) as error:
            return False, self._redacted(str(error))

    def _probe(self) -> str:
        location = self.location()
        if location.kind in ("md", "secret"):
            with self.get_conn() as connection:
                (head,) = connection.execute("FROM current_snapshot()").fetchall()[0]
            return f"{location}: snapshot {head}, seen by DuckDB"
        lake = self.lake()
        try:
            with lake.view() as view:
                found, data_path = f"{lake}: snapshot {view.head.snapshot_id}", view.data_path
        except (UnsupportedCatalog, ConfigurationError) as no_lake:
            found, data_path = self._found_store(location, no_lake)
        store = lake.store(data_path)
        next(iter(store.list(data_path)), None)
        if not self.fields.read_only:
            store.ensure_writable(data_path)
            if location.in_bucket:
                from airflow_provider_ducklake.lake.remote_catalog import prove_conditions

                prove_conditions(location.target, self.storage_options())
        rights = "readable" if self.fields.read_only else "readable and writable"
        return f"{found}, data path {data_path} {rights}"

    def _found_store(self, location: CatalogLocation, no_lake: LakeError) -> tuple[str, str]:
        """Return what is said of the store that operators of catalogs and fleets use, and its root.

        Raises:
            LakeError: `no_lake`, if the connection is not that of a store either.
        """
        if location.kind != "postgres" or location.catalog or location.metadata_schema:
            raise no_lake
        try:
            status = self.store().status()
        except NotFound:
            raise no_lake from None
        return f"{location}: store with {status.catalogs:,} catalogs", status.root

    def _redacted(self, text: str) -> str:
        try:
            return self.redact(text)
        except LakeError:
            # The connection cannot even be parsed; parse_fields' messages show no values.
            return text

    @cached_property
    def dialect_name(self) -> str:
        """The dialect of common-sql: the default one; SQLAlchemy has none for DuckLake."""
        return "default"

    @staticmethod
    def _serialize_cell(cell: object, conn: Any = None) -> Any:
        # DuckDB binds Python's values as they are; text would lose types.
        return cell

    def _get_pandas_df(
        self,
        sql: str | list[str],
        parameters: Iterable[Any] | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        if kwargs:
            return super()._get_pandas_df(sql, parameters, **kwargs)
        with self.get_conn() as connection:
            for statement in [sql] if isinstance(sql, str) else sql:
                connection.execute(statement, parameters)
            return connection.df()
