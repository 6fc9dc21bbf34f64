"""Where a catalog lives, parsed from a DuckLake ATTACH string; a password is kept apart."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from airflow_provider_ducklake.lake.errors import ConfigurationError, UnsupportedCatalog

Kind = Literal["sqlite", "duckdb", "postgres"]
_SCHEMES: Final[dict[str, Kind]] = {
    "sqlite": "sqlite",
    "duckdb": "duckdb",
    "postgres": "postgres",
    "postgresql": "postgres",
}
# The libpq option by which a session of the shared store chooses its catalog, see lake/store.
_CHOICE: Final = re.compile(r"-c\s*ducklake\.catalog(_id)?=(\S+)")
CATALOG_NAME: Final = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
STORE_VIEWS: Final = "lake"
# From where command lines take the catalog's password.
PASSWORD_VARIABLE: Final = "DUCKLAKE_CATALOG_PASSWORD"
_PREFIX: Final = re.compile(r"^(\w{2,}):(?!//)")


@dataclass(frozen=True, slots=True)
class CatalogLocation:
    """The catalog database of one lake.

    Attributes:
        kind: Which database holds the metadata tables.
        target: Path of a SQLite or DuckDB file, or a libpq connection string without password.
        metadata_schema: Schema of the metadata tables; None is the database's default.
        data_path: Where the caller says the data lies; None takes the catalog's word.
        password: Database password, kept out of `target`, `repr` and every message.
    """

    kind: Kind
    target: str
    metadata_schema: str | None = None
    data_path: str | None = None
    password: str | None = field(default=None, repr=False)

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
        """Parse `ducklake:FILE`, or `ducklake:` with `duckdb:`, `sqlite:` or `postgres:` behind it.

        Args:
            attach: The text between the quotes of ATTACH; the `ducklake:` prefix may be left out.
            metadata_schema: The METADATA_SCHEMA parameter.
            data_path: The DATA_PATH parameter.
            password: Overrides a password inside the string.
            catalog: Name of a catalog in the shared store that the PostgreSQL database holds.

        Raises:
            ConfigurationError: The string names no database, or is no valid libpq string.
            UnsupportedCatalog: The database is one only DuckDB itself can reach.

        Source: docs/stable/duckdb/usage/connecting.md.
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
        if not text.strip():
            raise ConfigurationError(
                "the ATTACH string names no catalog: write e.g. ducklake:sqlite:/lake/cat.sqlite"
            )
        location = cls(kind, text, metadata_schema or None, data_path or None, password or None)
        if kind == "postgres":
            return location._normalised(catalog or None)
        if catalog:
            raise ConfigurationError(
                f"catalog {catalog!r}: only a store in PostgreSQL holds several catalogs, this is "
                f"a {kind} file"
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
    def attach_string(self) -> str:
        """The ATTACH string without password, fit for command lines and logs."""
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
        return f"{self.kind} catalog {self.target}{schema}"
