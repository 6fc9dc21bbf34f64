"""Where a catalog lives, parsed from a DuckLake ATTACH string; a password is kept apart."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import parse_qsl, urlencode

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from airflow_provider_ducklake.lake.errors import ConfigurationError, UnsupportedCatalog
from airflow_provider_ducklake.storage.location import split_url

# The metadata of the last two only DuckDB itself can reach: MotherDuck, and whatever a DuckLake
# secret of DuckDB says.
Kind = Literal["sqlite", "duckdb", "postgres", "md", "secret"]
_SCHEMES: Final[dict[str, Kind]] = {
    "sqlite": "sqlite",
    "duckdb": "duckdb",
    "postgres": "postgres",
    "postgresql": "postgres",
    "md": "md",
    "motherduck": "md",
}
# The libpq option by which a session of the shared store chooses its catalog, see lake/store.
_CHOICE: Final = re.compile(r"-c\s*ducklake\.catalog(_id)?=(\S+)")
CATALOG_NAME: Final = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
STORE_VIEWS: Final = "lake"
# From where command lines take the catalog's password.
PASSWORD_VARIABLE: Final = "DUCKLAKE_CATALOG_PASSWORD"
_PREFIX: Final = re.compile(r"^(\w{2,}):(?!//)")
# What the extension takes for the name of a secret, never for a file.
_SECRET_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
_TOKEN: Final = "motherduck_token"
# libpq takes these as secrets too, but only the password has a way to a job outside its argv.
_OTHER_SECRETS: Final = (
    "sslpassword",
    "oauth_client_secret",
    "scram_client_key",
    "scram_server_key",
)


@dataclass(frozen=True, slots=True)
class CatalogLocation:
    """The catalog database of one lake.

    Attributes:
        kind: Which database holds the metadata tables; `md` is MotherDuck, and `secret` whatever
            a DuckLake secret of DuckDB says.
        target: Path of a SQLite or DuckDB file, URL of a SQLite catalog in a bucket, a libpq
            connection string without password, or the name of MotherDuck's database or the secret.
        metadata_schema: Schema of the metadata tables; None is the database's default.
        data_path: Where the caller says the data lies; None takes the catalog's word.
        password: Database password or MotherDuck token, kept out of `target`, `repr` and every
            message.
        shown_as: What people are told instead of the target, where that is a private copy.
    """

    kind: Kind
    target: str
    metadata_schema: str | None = None
    data_path: str | None = None
    password: str | None = field(default=None, repr=False)
    shown_as: str | None = None

    @classmethod
    def parse(
        cls,
        attach: str,
        *,
        metadata_schema: str | None = None,
        data_path: str | None = None,
        password: str | None = None,
        catalog: str | None = None,
    ) -> CatalogLocation:
        """Parse `ducklake:FILE`, `ducklake:SECRET`, or `ducklake:` with a kind and `:` behind it.

        Args:
            attach: The text between the quotes of ATTACH; the `ducklake:` prefix may be left out.
                A plain name is that of a DuckLake secret; a file of such a name is `duckdb:NAME`.
                A SQLite catalog in a bucket is `sqlite:s3://bucket/catalog.sqlite`.
            metadata_schema: The METADATA_SCHEMA parameter.
            data_path: The DATA_PATH parameter.
            password: Overrides a password inside the string.
            catalog: Name of a catalog in the shared store that the PostgreSQL database holds.

        Raises:
            ConfigurationError: The string names no database, or is no valid libpq string.
            UnsupportedCatalog: The database is none of these.

        Source: docs/stable/duckdb/usage/connecting.md; src/storage/ducklake_secret.cpp.
        """
        text = attach.strip()
        if text.lower().startswith("ducklake:"):
            text = text[len("ducklake:") :]
        kind: Kind = "duckdb"
        if text.lower().startswith(("postgres://", "postgresql://")):
            kind = "postgres"
        elif match := _PREFIX.match(text):
            scheme = match[1].lower()
            if scheme not in _SCHEMES:
                raise UnsupportedCatalog(
                    f"catalog of type {scheme!r}: this package reads catalogs in a DuckDB file, "
                    "a SQLite file or PostgreSQL (ducklake:FILE, ducklake:sqlite:FILE, "
                    "ducklake:postgres:CONNECTION)"
                )
            kind, text = _SCHEMES[scheme], text[match.end() :]
        elif _SECRET_NAME.fullmatch(text):
            kind = "secret"
        if not text.strip():
            raise ConfigurationError(
                "the ATTACH string names no catalog: write e.g. ducklake:sqlite:/lake/cat.sqlite"
            )
        if kind == "md":
            text, inside = _without_token(text)
            password = password or inside
        location = cls(kind, text, metadata_schema or None, data_path or None, password or None)
        if kind == "postgres":
            return location._normalised(catalog)
        if catalog is not None:
            raise ConfigurationError(
                f"catalog {catalog!r}: only a store in PostgreSQL holds several catalogs, this is "
                f"a {location}"
            )
        if location.in_bucket:
            split_url(text)  # refuses what it does not know, and credentials
        if kind == "sqlite" and metadata_schema not in (None, "", "main"):
            raise ConfigurationError(f"metadata schema {metadata_schema!r}: SQLite has no schemas")
        return location

    @classmethod
    def of_argument(
        cls,
        attach: str,
        *,
        argument: str = "--attach",
        variable: str = PASSWORD_VARIABLE,
        metadata_schema: str | None = None,
        data_path: str | None = None,
        catalog: str | None = None,
    ) -> CatalogLocation:
        """Parse an ATTACH string that stood on a command line, where it may hold no secret.

        Args:
            attach: As `parse` takes it.
            argument: What the command line calls it.
            variable: The variable of the environment that may hold the password instead.
            metadata_schema: The METADATA_SCHEMA parameter.
            data_path: The DATA_PATH parameter.
            catalog: Name of a catalog in a shared store.

        Raises:
            ConfigurationError: As `parse` says, or there is a password or token in it.
            UnsupportedCatalog: As `parse` says.
        """
        location = cls.parse(
            attach, metadata_schema=metadata_schema, data_path=data_path, catalog=catalog
        )
        if location.password is not None:
            others = (
                ", a libpq password file (passfile=… or ~/.pgpass)"
                if location.kind == "postgres"
                else ""
            )
            raise ConfigurationError(
                f"{argument} holds a password, which every user of this machine could read: take "
                f"it out, and put it into the environment variable {variable}{others}"
            )
        return location

    def _normalised(self, catalog: str | None) -> CatalogLocation:
        """Take the password out of the target, and put the choice of a catalog into it."""
        try:
            parts = conninfo_to_dict(self.target)
        except ProgrammingError:
            # libpq's own message may quote the string, password and all.
            raise ConfigurationError(
                "the part behind ducklake:postgres: is not a libpq connection string "
                "(key=value pairs, or postgresql://user@host/database)"
            ) from None
        for name in _OTHER_SECRETS:
            if name in parts:
                raise ConfigurationError(
                    f"libpq option {name} cannot be kept off command lines and out of messages: "
                    "put it into a libpq service file on the workers and name that with service=…"
                )
        inside = parts.pop("password", None)
        password = self.password or (str(inside) if inside is not None else None)
        options = str(parts.pop("options", "") or "")
        chosen = _CHOICE.search(options)
        if catalog is not None:
            if CATALOG_NAME.fullmatch(catalog) is None:
                raise ConfigurationError(
                    f"catalog {catalog!r}: a name has letters, digits, '_', '-' and '.' only, "
                    "up to 63 of them"
                )
            if chosen and (chosen[1] or chosen[2] != catalog):
                raise ConfigurationError(
                    f"catalog {catalog!r} is named, but the connection string chooses {chosen[2]}"
                )
            if not chosen:
                options = f"{options} -c ducklake.catalog={catalog}".strip()
        schema = self.metadata_schema
        if catalog is not None or chosen:
            if schema not in (None, STORE_VIEWS):
                raise ConfigurationError(
                    f"metadata schema {schema!r}: the catalogs of a store are seen in {STORE_VIEWS}"
                )
            schema = STORE_VIEWS
        target = make_conninfo("", **parts, **({"options": options} if options else {}))
        return replace(self, target=target, metadata_schema=schema, password=password)

    @property
    def catalog(self) -> str | None:
        """The chosen catalog of a store, by name or id; None for a lake that is not in one."""
        if self.kind != "postgres":
            return None
        chosen = _CHOICE.search(str(conninfo_to_dict(self.target).get("options") or ""))
        return chosen[2] if chosen else None

    @property
    def in_store(self) -> bool:
        """Whether this is a catalog of a shared store."""
        return self.catalog is not None

    @property
    def in_bucket(self) -> bool:
        """Whether this is a SQLite catalog that is fetched from a URL before it is opened."""
        return self.kind == "sqlite" and "://" in self.target

    def require_reach(self) -> None:
        """Refuse a catalog whose metadata only DuckDB can reach, and say what can be done.

        Raises:
            UnsupportedCatalog: It is one of MotherDuck, or behind a DuckLake secret.
        """
        if self.kind == "md":
            raise UnsupportedCatalog(
                f"{self}: only DuckDB reaches its metadata, so jobs and sensors cannot work on it. "
                "Leave the upkeep to MotherDuck, or run DuckLake's own functions in a session of "
                "DuckLakeHook.get_conn(), such as CALL ducklake_merge_adjacent_files('lake')"
            )
        if self.kind == "secret":
            raise UnsupportedCatalog(
                f"{self}: only DuckDB can read its secrets, so jobs and sensors do not know where "
                "the catalog is. Say it in the connection (catalog_type with host or path, or "
                f"attach), and let it make the secret: secret={self.target}. If a DuckDB file is "
                f"meant, write ducklake:duckdb:{self.target}"
            )

    @property
    def attach_string(self) -> str:
        """The ATTACH string without password, fit for command lines and logs."""
        if self.kind == "secret":
            return f"ducklake:{self.target}"
        return f"ducklake:{self.kind}:{self.target}"

    @property
    def conninfo(self) -> str:
        """The libpq string with the password: for the database driver only."""
        if self.password is None:
            return self.target
        return make_conninfo(self.target, password=self.password)

    def __str__(self) -> str:
        if self.in_store:
            parts = conninfo_to_dict(self.target)
            del parts["options"]
            return f"catalog {self.catalog} of the store in {make_conninfo('', **parts)}"
        schema = f" schema {self.metadata_schema}" if self.metadata_schema else ""
        if self.kind == "secret":
            return f"catalog of the DuckLake secret {self.target}{schema}"
        name = "MotherDuck" if self.kind == "md" else self.kind
        return f"{name} catalog {self.shown_as or self.target}{schema}"


def _without_token(text: str) -> tuple[str, str | None]:
    """Take the token out of the parameters behind the name of a MotherDuck database."""
    name, _, query = text.partition("?")
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    token = parameters.pop(_TOKEN, None)
    rest = f"?{urlencode(parameters)}" if parameters else ""
    return f"{name}{rest}", token
