"""Attaching a lake to a DuckDB session: extensions, settings, secrets, and ATTACH itself."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_ducklake.hooks._attach_options import (
    may_create,
    overrides_data_path,
    shows_one_snapshot,
)
from airflow_provider_ducklake.hooks._secrets import Redactor
from airflow_provider_ducklake.hooks._values import as_bool
from airflow_provider_ducklake.lake.errors import CatalogUnavailable, ConfigurationError
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from airflow_provider_ducklake.hooks._fields import LakeFields

_CATALOG_EXTENSIONS: Final = {
    "sqlite": "sqlite_scanner",
    "postgres": "postgres_scanner",
    "md": "motherduck",
}
# DuckDB itself gives up after half a second of being asked to slow down; this is half a minute.
_PATIENCE: Final = {"http_retries": "8", "http_retry_wait_ms": "100", "http_retry_backoff": "2"}
_S3: Final = ("s3://", "s3a://", "s3n://")
# Parameters of DuckDB's S3 secret, with obstore's names of the same thing; the first given wins.
_S3_PARAMETERS: Final = {
    "KEY_ID": ("aws_access_key_id",),
    "SECRET": ("aws_secret_access_key",),
    "SESSION_TOKEN": ("aws_session_token", "aws_token"),
    "REGION": ("aws_region", "aws_default_region"),
}
_S3_ENDPOINTS: Final = ("aws_endpoint_url_s3", "aws_endpoint_url", "aws_endpoint")


def configure(
    session: DuckDBPyConnection,
    fields: LakeFields,
    *,
    alias: str,
    data_path: str | None = None,
    encrypted: bool = False,
) -> None:
    """Prepare a DuckDB session for a lake: extensions, settings and secrets; nothing is attached.

    Extensions come from the `duckdb-extension-…` wheels where those are installed, else by name,
    which makes DuckDB look into its own extension directory and then try to download them. Only
    those needed are loaded, since DuckDB takes a quarter of a second to check the signature of one.

    Args:
        session: The session.
        fields: The connection's fields.
        alias: Name the lake will get in the session; its secrets are named after it.
        data_path: Where the lake's data is, as its catalog says.
        encrypted: Whether the lake's files are encrypted.

    Raises:
        ConfigurationError: An extension does not load, or DuckDB refuses a setting.
    """
    location = fields.location
    path = data_path or location.data_path or ""
    on_s3 = path.startswith(_S3) or any(name.startswith("aws_") for name in fields.storage)
    if catalog := _CATALOG_EXTENSIONS.get(location.kind):
        _load(session, catalog)
    # Not only for what is remote: without its OpenSSL, DuckDB writes no encrypted Parquet.
    settings = {"TimeZone": "UTC"}
    if on_s3 or encrypted or "://" in path:
        _load(session, "httpfs")
        settings |= _PATIENCE
    _load(session, "ducklake")
    for name, value in {**settings, **fields.duckdb_settings}.items():
        _set(session, name, value, fields)
    # Bound, so that no secret is ever part of an SQL text that could be logged or quoted back.
    if password := location.password:
        if location.kind == "md":
            _set(session, "motherduck_token", password, fields)
        elif location.kind == "postgres":
            secret = _catalog_secret(alias)
            _create_secret(session, secret, "postgres", {"PASSWORD": password}, fields)
    if location.kind == "secret":
        _load_what_a_secret_needs(session, location.target)
    if fields.secret is not None:
        _create_secret(session, fields.secret, "ducklake", _own_parameters(fields, alias), fields)
    if on_s3 and (parameters := _s3_parameters(fields)):
        if path.startswith(_S3):
            # Another lake of the session may lie in another account.
            parameters["SCOPE"] = path
            if parameters.get("URL_STYLE") == "vhost":
                # obstore takes such an endpoint with the bucket, DuckDB puts it in front itself.
                bucket = path.partition("://")[2].partition("/")[0]
                parameters["ENDPOINT"] = parameters["ENDPOINT"].removeprefix(f"{bucket}.")
        _create_secret(session, f"ducklake_storage_{_plain(alias)}", "s3", parameters, fields)


def attach(
    session: DuckDBPyConnection, fields: LakeFields, alias: str, *, use: bool = True
) -> None:
    """Attach a lake to a configured session.

    DuckDB creates a missing catalog file even where it must not create a lake: see that the lake
    exists before.

    Args:
        session: A session that `configure` prepared under the same alias.
        fields: The connection's fields. The data path is the catalog's own, unless they say that
            it is to be overridden or that a lake may be created.
        alias: Name the lake gets in the session.
        use: Make it the default database.

    Raises:
        CatalogUnavailable: The catalog database cannot be reached, or is locked.
        ConfigurationError: DuckDB refuses otherwise.
    """
    import duckdb

    location = fields.location
    try:
        session.execute(attach_statement(fields, alias))
        if use:
            session.execute("USE " + quote_identifier(alias))
    except duckdb.Error as error:
        text = Redactor(fields.secrets)(" ".join(str(error).split()))
        if isinstance(error, duckdb.IOException) or "lock" in text.lower():
            raise CatalogUnavailable(f"{location} cannot be reached: {text}") from None
        raise ConfigurationError(f"DuckDB cannot attach {location}: {text}") from None


def attach_statement(fields: LakeFields, alias: str) -> str:
    """Return the ATTACH statement of a lake; it never holds the password.

    Args:
        fields: The connection's fields.
        alias: Name the lake gets in the session.
    """
    location = fields.location
    named = {"create_if_not_exists": "false", **fields.attach_options}
    options = [f"{name.upper()} {literal}" for name, literal in named.items()]
    if fields.read_only and not shows_one_snapshot(named):
        options.append("READ_ONLY")
    if fields.secret is not None:
        place = f"ducklake:{fields.secret}"
    else:
        place = location.attach_string
        options += [
            f"{name} {quote_literal(value)}" for name, value in _place(fields, alias).items()
        ]
    return f"ATTACH {quote_literal(place)} AS {quote_identifier(alias)} ({', '.join(options)})"


def _place(fields: LakeFields, alias: str) -> dict[str, str]:
    """Return the parameters of ATTACH that say where metadata and data are."""
    location, named = fields.location, fields.attach_options
    found: dict[str, str] = {}
    if location.data_path is not None and (
        may_create(named)
        or overrides_data_path(named)
        # What our own look found out for the others is for DuckDB alone to know.
        or location.kind in ("md", "secret")
    ):
        found["DATA_PATH"] = location.data_path
    if location.metadata_schema is not None:
        found["METADATA_SCHEMA"] = location.metadata_schema
    if location.password is not None and location.kind == "postgres":
        found["META_SECRET"] = _catalog_secret(alias)
    return found


def _own_parameters(fields: LakeFields, alias: str) -> dict[str, Any]:
    """Return the parameters of a DuckLake secret of the connection's own."""
    found: dict[str, Any] = _place(fields, alias)
    if secret := found.pop("META_SECRET", None):
        found["METADATA_PARAMETERS"] = {"SECRET": secret}
    return {"METADATA_PATH": fields.location.attach_string.removeprefix("ducklake:"), **found}


def _set(session: DuckDBPyConnection, name: str, value: str, fields: LakeFields) -> None:
    import duckdb

    statement = "SET " + quote_identifier(name) + " = $1"
    try:
        session.execute(statement, [value])
    except duckdb.Error as error:
        text = Redactor(fields.secrets)(first_line(error))
        raise ConfigurationError(f"duckdb_settings: DuckDB refuses {name}: {text}") from None


def _load_what_a_secret_needs(session: DuckDBPyConnection, name: str) -> None:
    """Load the extensions that a DuckLake secret of the session, or a stored one, asks for."""
    found = session.execute(
        "SELECT secret_string FROM duckdb_secrets() WHERE name = $1 AND type = 'ducklake'",
        [name.lower()],
    ).fetchone()
    text = str(found[0]).lower() if found else ""
    for word, extension in (("sqlite", "sqlite_scanner"), ("postgres", "postgres_scanner")):
        if f"{word}:" in text or f"type={word}" in text:
            _load(session, extension)
    if "://" in text:
        _load(session, "httpfs")


def _plain(alias: str) -> str:
    return re.sub(r"\W", "_", alias).lower()


def _catalog_secret(alias: str) -> str:
    return f"ducklake_catalog_{_plain(alias)}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, without the statement DuckDB may quote below."""
    return str(error).strip().split("\n", 1)[0]


def _wheel(name: str) -> Path | None:
    import duckdb

    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place, "extensions", f"v{duckdb.__version__}", f"{name}.duckdb_extension")
        if path.is_file():
            return path
    return None


def _load(session: DuckDBPyConnection, name: str) -> None:
    import duckdb

    wheel = _wheel(name)
    try:
        session.load_extension(str(wheel) if wheel else name)
    except duckdb.Error as error:
        package = f"duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__}"
        raise ConfigurationError(
            f"DuckDB's extension {name} does not load ({first_line(error)}): install {package} "
            "beside duckdb, or give the worker access to DuckDB's extension repository"
        ) from None


def _create_secret(
    session: DuckDBPyConnection,
    name: str,
    kind: str,
    parameters: Mapping[str, Any],
    fields: LakeFields,
) -> None:
    import duckdb

    values = ", ".join(f"{parameter} ${n}" for n, parameter in enumerate(parameters, start=1))
    statement = f"CREATE OR REPLACE TEMPORARY SECRET {name} (TYPE {kind}, {values})"
    try:
        session.execute(statement, list(parameters.values()))
    except duckdb.Error as error:
        text = Redactor(fields.secrets)(first_line(error))
        raise ConfigurationError(f"DuckDB takes no {kind} secret from this: {text}") from None


def _s3_parameters(fields: LakeFields) -> dict[str, Any]:
    """Return the S3 secret's parameters; like obstore, from the environment where not given."""

    def option(*names: str) -> str | None:
        values = (fields.storage.get(name) or os.environ.get(name.upper()) for name in names)
        return next((value for value in values if value), None)

    found = {name: option(*aliases) for name, aliases in _S3_PARAMETERS.items()}
    parameters: dict[str, Any] = {name: value for name, value in found.items() if value}
    if endpoint := option(*_S3_ENDPOINTS):
        scheme, separator, host = endpoint.rpartition("://")
        parameters["ENDPOINT"] = host.rstrip("/")
        parameters["USE_SSL"] = not (separator and scheme.lower() == "http")
        virtual = option("aws_virtual_hosted_style_request") or "false"
        hosted = as_bool(virtual, "aws_virtual_hosted_style_request")
        parameters["URL_STYLE"] = "vhost" if hosted else "path"
    return parameters
