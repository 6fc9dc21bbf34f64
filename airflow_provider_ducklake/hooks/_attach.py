"""Attaching a lake to a DuckDB session: extensions, settings, secrets, and ATTACH itself."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_ducklake.hooks._secrets import Redactor
from airflow_provider_ducklake.hooks._values import as_bool
from airflow_provider_ducklake.lake.errors import (
    CatalogUnavailable,
    ConfigurationError,
    NotFound,
    UnsupportedCatalog,
)
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from airflow_provider_ducklake.hooks._fields import LakeFields

_CATALOG_EXTENSIONS: Final = {"sqlite": "sqlite_scanner", "postgres": "postgres_scanner"}
_CATALOG_SECRET: Final = "ducklake_catalog"
_STORAGE_SECRET: Final = "ducklake_storage"
_S3: Final = ("s3://", "s3a://", "s3n://")
# Parameters of DuckDB's S3 secret, with obstore's names of the same thing; the first given wins.
_S3_PARAMETERS: Final = {
    "KEY_ID": ("aws_access_key_id",),
    "SECRET": ("aws_secret_access_key",),
    "SESSION_TOKEN": ("aws_session_token", "aws_token"),
    "REGION": ("aws_region", "aws_default_region"),
}
_S3_ENDPOINTS: Final = ("aws_endpoint_url_s3", "aws_endpoint_url", "aws_endpoint")


def configure(session: DuckDBPyConnection, fields: LakeFields) -> None:
    """Prepare a DuckDB session for a lake: extensions, settings and secrets; nothing is attached.

    Extensions come from the `duckdb-extension-…` wheels where those are installed, else by name,
    which makes DuckDB look into its own extension directory and then try to download them.

    Raises:
        ConfigurationError: An extension does not load, or DuckDB refuses a setting.
    """
    import duckdb

    for name in _extensions(fields):
        _load(session, name)
    for name, value in {"TimeZone": "UTC", **fields.duckdb_settings}.items():
        statement = "SET " + quote_identifier(name) + " = $1"
        try:
            session.execute(statement, [value])
        except duckdb.Error as error:
            text = Redactor(fields.secrets)(first_line(error))
            raise ConfigurationError(f"duckdb_settings: DuckDB refuses {name}: {text}") from None
    # Bound, so that no secret is ever part of an SQL text that could be logged or quoted back.
    if fields.location.password is not None:
        _create_secret(
            session, _CATALOG_SECRET, "postgres", {"PASSWORD": fields.location.password}, fields
        )
    if s3 := _s3_parameters(fields):
        _create_secret(session, _STORAGE_SECRET, "s3", s3, fields)


def attach(session: DuckDBPyConnection, fields: LakeFields, alias: str) -> None:
    """Attach the lake to a configured session; never creates one.

    Args:
        session: A session that `configure` prepared.
        fields: The connection's fields.
        alias: Name the lake gets in the session.

    Raises:
        NotFound: There is no catalog at this place, or no lake in it.
        UnsupportedCatalog: The catalog is of another format version.
        ConfigurationError: The data path given is not the lake's, or DuckDB refuses otherwise.
        CatalogUnavailable: The catalog database cannot be reached, or is locked.
    """
    location = fields.location
    # DuckDB would create the file before it finds out that it must not create the lake.
    if location.kind != "postgres" and not os.path.isfile(location.target):
        raise NotFound(
            f"there is no catalog file {location.target}: check the path, or create the lake first"
        )
    options = ["CREATE_IF_NOT_EXISTS false"]
    if fields.read_only:
        options.append("READ_ONLY")
    if location.metadata_schema is not None:
        options.append(f"METADATA_SCHEMA {quote_literal(location.metadata_schema)}")
    if location.data_path is not None:
        options.append(f"DATA_PATH {quote_literal(location.data_path)}")
    if location.password is not None:
        options.append(f"META_SECRET {quote_literal(_CATALOG_SECRET)}")
    statement = (
        f"ATTACH {quote_literal(location.attach_string)} AS {quote_identifier(alias)} "
        f"({', '.join(options)})"
    )
    with _attach_errors(fields):
        session.execute(statement)
        session.execute("USE " + quote_identifier(alias))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, without the statement DuckDB may quote below."""
    return str(error).strip().split("\n", 1)[0]


def _extensions(fields: LakeFields) -> Iterator[str]:
    if catalog := _CATALOG_EXTENSIONS.get(fields.location.kind):
        yield catalog
    # For remote data, and for its OpenSSL, without which DuckDB writes no encrypted Parquet.
    if _wheel("httpfs") or _on_s3(fields):
        yield "httpfs"
    yield "ducklake"


def _on_s3(fields: LakeFields) -> bool:
    data_path = fields.location.data_path or ""
    return data_path.startswith(_S3) or any(name.startswith("aws_") for name in fields.storage)


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
    if not _on_s3(fields):
        return {}

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


@contextmanager
def _attach_errors(fields: LakeFields) -> Iterator[None]:
    import duckdb

    location = fields.location
    try:
        yield
    except duckdb.Error as error:
        text = Redactor(fields.secrets)(" ".join(str(error).split()))
        if "does not exist" in text and "explicitly disabled" in text:
            raise NotFound(
                f"{location} holds no DuckLake: check database and metadata_schema, or create the "
                "lake first"
            ) from None
        if "version mismatch" in text:
            raise UnsupportedCatalog(
                f"{location} is of a DuckLake format this DuckDB does not speak, and nothing is "
                f"migrated unasked: {text}"
            ) from None
        if "DATA_PATH parameter" in text:
            raise ConfigurationError(
                f"the connection's data_path {location.data_path} is not the one in the catalog: "
                "leave data_path empty to use the catalog's"
            ) from None
        if isinstance(error, duckdb.IOException) or "lock" in text.lower():
            raise CatalogUnavailable(f"{location} cannot be reached: {text}") from None
        raise ConfigurationError(f"DuckDB cannot attach {location}: {text}") from None
