"""The fields of a `ducklake` connection: where the catalog is, how storage is reached."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_ducklake.hooks._attach_options import (
    attach_literals,
    may_create,
    sensitive_values,
)
from airflow_provider_ducklake.hooks._values import (
    as_bool,
    as_object,
    as_setting,
    given,
    nearest,
)
from airflow_provider_ducklake.lake.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_ducklake.lake.location import CatalogLocation, Kind

_KINDS: Final[dict[str, Kind]] = {
    "postgres": "postgres",
    "postgresql": "postgres",
    "sqlite": "sqlite",
    "duckdb": "duckdb",
    "motherduck": "md",
}
CATALOG_TYPES: Final = ("postgres", "sqlite", "duckdb", "motherduck")
_OURS: Final = frozenset(
    {
        "attach",
        "attach_options",
        "catalog",
        "catalog_type",
        "catalog_url",
        "data_path",
        "duckdb_settings",
        "libpq_options",
        "metadata_schema",
        "path",
        "read_only",
        "secret",
        "storage_conn_id",
        "storage_options",
    }
)
# What common-sql's DbApiHook reads from any connection's extra.
_COMMON_SQL: Final = frozenset(
    {
        "dialect",
        "escape_column_names",
        "escape_word_format",
        "insert_statement_format",
        "placeholder",
        "replace_statement_format",
        "sqlalchemy_scheme",
    }
)
_FORM_PREFIX: Final = "extra__ducklake__"
_SECRET_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
# From where DuckDB takes the token when the connection has none.
_TOKEN_VARIABLES: Final = ("motherduck_token", "MOTHERDUCK_TOKEN")


@dataclass(frozen=True, slots=True)
class LakeFields:
    """What a `ducklake` connection says.

    Attributes:
        location: The catalog database, with its password kept apart.
        storage: Storage options by name, credentials among them.
        read_only: Nothing may be changed through this connection.
        duckdb_settings: DuckDB settings of the sessions `get_conn()` opens.
        attach_options: Options of its ATTACH, lower-case names to SQL literals.
        secret: Name of the DuckLake secret that such sessions are to have; None makes none.
        hidden: More values that must not be seen.
    """

    location: CatalogLocation
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    read_only: bool = False
    duckdb_settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    attach_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret: str | None = None
    hidden: tuple[str, ...] = field(default=(), repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value that must not be seen: password, storage options, settings that hide one."""
        from airflow_provider_ducklake.hooks._secrets import is_sensitive

        named = {**self.storage, **self.duckdb_settings}
        values = [value for name, value in named.items() if is_sensitive(name)]
        if self.location.kind == "md":
            values += [os.environ.get(name, "") for name in _TOKEN_VARIABLES]
        return tuple(value for value in (self.location.password, *values, *self.hidden) if value)


def parse_fields(
    connection: Connection, catalog: str | None = None, catalog_url: str | None = None
) -> LakeFields:
    """Read the fields of a `ducklake` connection, from a form, JSON or a URI alike.

    Args:
        connection: The Airflow connection.
        catalog: A catalog of the shared store, instead of the one the connection names.
        catalog_url: A SQLite catalog in a bucket, instead of the one the connection names.

    Raises:
        ConfigurationError: A field is missing, contradicts another, is unknown or malformed. The
            message names connection and field, never a value that may be secret.
    """
    try:
        return _parse(connection, {"catalog": catalog, "catalog_url": catalog_url})
    except ConfigurationError as error:
        # The message is ours; what it was raised from may quote the connection.
        raise type(error)(f"connection {connection.conn_id!r}: {error}") from None


def _parse(connection: Connection, instead: Mapping[str, str | None]) -> LakeFields:
    extra = _extra(connection)
    extra.update({name: value for name, value in instead.items() if value is not None})
    storage = _cloud(extra) | as_object(extra.get("storage_options", {}), "storage_options")
    settings = as_object(extra.get("duckdb_settings", {}), "duckdb_settings")
    options = as_object(extra.get("attach_options", {}), "attach_options")
    location, literals = _location(connection, extra), attach_literals(options)
    if location.in_bucket and may_create(literals):
        raise ConfigurationError(
            "attach_options: sessions attach a copy of the catalog in the bucket, in which nothing "
            "can be created or migrated; the first ingest creates the lake, or create_lake"
        )
    return LakeFields(
        location=location,
        storage={name: as_setting(value) for name, value in storage.items()},
        read_only=as_bool(extra.get("read_only", False), "read_only"),
        duckdb_settings={name: as_setting(value) for name, value in settings.items()},
        attach_options=literals,
        secret=_secret(extra, location),
        hidden=sensitive_values(options),
    )


def _cloud(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the storage options of the cloud's connection, if one is named."""
    if "storage_conn_id" not in extra:
        return {}
    from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

    from airflow_provider_ducklake.hooks._storage_connection import storage_from_connection

    name = str(extra["storage_conn_id"])
    try:
        connection = BaseHook.get_connection(name)
    except AirflowNotFoundException:
        raise ConfigurationError(f"storage_conn_id {name!r} is not defined in Airflow") from None
    return dict(storage_from_connection(connection))


def _extra(connection: Connection) -> dict[str, Any]:
    try:
        raw = json.loads(connection.extra or "{}")
    except ValueError:
        raise ConfigurationError("the extra field is not valid JSON") from None
    if not isinstance(raw, dict):
        raise ConfigurationError("the extra field must be a JSON object")
    # Its own parsing has Airflow mask what sensitive names hold.
    parsed = connection.extra_dejson
    extra = {name.removeprefix(_FORM_PREFIX): value for name, value in parsed.items()}
    for name in extra.keys() - _OURS - _COMMON_SQL:
        raise ConfigurationError(f"unknown extra field {name!r}: {nearest(name, _OURS)}")
    return {name: value for name, value in extra.items() if given(value)}


def _location(connection: Connection, extra: Mapping[str, Any]) -> CatalogLocation:
    from airflow_provider_ducklake.lake.location import CatalogLocation

    password = connection.password or None
    schema = extra.get("metadata_schema")
    data_path = extra.get("data_path")
    catalog = str(extra["catalog"]) if "catalog" in extra else None
    for whole in ("catalog_url", "attach"):
        if whole not in extra:
            continue
        places = ("catalog_url", "attach", "catalog_type", "path", "libpq_options")
        others = [n for n in places if n in extra and n != whole]
        others += [n for n in ("host", "port", "login", "schema") if getattr(connection, n)]
        # A form stores its dropdown's default along with them.
        if others not in ([], ["catalog_type"]):
            raise ConfigurationError(
                f"{whole} says where the catalog is; leave {', '.join(others)} empty then"
            )
        return CatalogLocation.parse(
            _in_bucket(extra[whole]) if whole == "catalog_url" else str(extra[whole]),
            metadata_schema=schema,
            data_path=data_path,
            password=password,
            catalog=catalog,
        )
    kind = _kind(connection, extra)
    if kind != "postgres":
        where = _database(connection, extra) if kind == "md" else _path(connection, extra, kind)
        return CatalogLocation.parse(
            f"ducklake:{kind}:{where}",
            metadata_schema=schema,
            data_path=data_path,
            password=password if kind == "md" else None,
            catalog=catalog,
        )
    target, inside = _libpq(connection, extra)
    # Parsed like the string the job is given: both then call the catalog by the same text.
    return CatalogLocation.parse(
        f"ducklake:postgres:{target}",
        metadata_schema=schema,
        data_path=data_path,
        password=password or inside,
        catalog=catalog,
    )


def _in_bucket(url: Any) -> str:
    text = str(url).strip()
    if "://" not in text:
        raise ConfigurationError(
            f"catalog_url {text!r} is no URL: write s3://bucket/lake/catalog.sqlite, gs://…, "
            "az://… or file:///…; a SQLite file worked on in place is catalog_type and path"
        )
    return f"ducklake:sqlite:{text}"


def _secret(extra: Mapping[str, Any], location: CatalogLocation) -> str | None:
    if "secret" not in extra:
        return None
    name = str(extra["secret"]).strip()
    if _SECRET_NAME.fullmatch(name) is None:
        raise ConfigurationError(f"secret {name!r}: a name has letters, digits and '_' only")
    if location.kind == "secret":
        raise ConfigurationError(
            "secret makes a DuckLake secret of what the connection says, and attach names one "
            f"that is there already, {location.target!r}: give one of them"
        )
    return name


def _kind(connection: Connection, extra: Mapping[str, Any]) -> Kind:
    named = str(extra.get("catalog_type", "")).strip().lower()
    if not named:
        if "path" in extra:
            raise ConfigurationError("a path needs its catalog_type: sqlite or duckdb")
        if not connection.host and not connection.schema and "libpq_options" not in extra:
            raise ConfigurationError(
                "it says nowhere where the catalog is: fill in catalog_type with host and schema "
                "(PostgreSQL), with schema (motherduck) or with path (sqlite, duckdb), or "
                "catalog_url, or attach"
            )
        return "postgres"
    if named not in _KINDS:
        raise ConfigurationError(f"catalog_type {named!r}: {nearest(named, CATALOG_TYPES)}")
    return _KINDS[named]


def _database(connection: Connection, extra: Mapping[str, Any]) -> str:
    others = [n for n in ("path", "libpq_options") if n in extra]
    others += [n for n in ("host", "port", "login") if getattr(connection, n)]
    if others or not connection.schema:
        raise ConfigurationError(
            "a motherduck catalog has the name of its metadata database as schema and the token as "
            f"password, and nothing else{': leave out ' if others else ''}{', '.join(others)}"
        )
    return str(connection.schema)


def _path(connection: Connection, extra: Mapping[str, Any], kind: str) -> str:
    path, host = extra.get("path"), connection.host
    if path and host and path != host:
        raise ConfigurationError("path and host both name a catalog file: leave host empty")
    if not (path or host):
        raise ConfigurationError(f"a {kind} catalog needs the path of its file")
    return os.path.expanduser(str(path or host))


def _libpq(connection: Connection, extra: Mapping[str, Any]) -> tuple[str, str | None]:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    if "path" in extra:
        raise ConfigurationError("path is for sqlite and duckdb; PostgreSQL takes host and schema")
    options = extra.get("libpq_options", {})
    try:
        if isinstance(options, str) and not options.lstrip().startswith("{"):
            parts: dict[str, Any] = dict(conninfo_to_dict(options))
        else:
            parts = as_object(options, "libpq_options")
        standard = {
            "host": connection.host,
            "port": connection.port,
            "dbname": connection.schema,
            "user": connection.login,
        }
        parts.update({name: value for name, value in standard.items() if value})
        inside = parts.pop("password", None)
        target = make_conninfo("", **{n: as_setting(v) for n, v in parts.items()})
    except ProgrammingError:
        # libpq's own message quotes what it was given.
        raise ConfigurationError(
            "libpq_options holds something that is no libpq option: write an object such as "
            '{"sslmode": "require", "connect_timeout": 10}'
        ) from None
    return target, None if inside is None else str(inside)
