"""Reading all of a catalog, whatever its database, version and layout; it is not changed."""

from __future__ import annotations

from typing import Any, Final

from airflow_provider_ducklake.lake.database import Session, open_database
from airflow_provider_ducklake.lake.errors import ConfigurationError, UnsupportedCatalog
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.location import CatalogLocation, Kind
from airflow_provider_ducklake.lake.metadata_tables import BY_NAME
from airflow_provider_ducklake.lake.paths import agreed_data_path
from airflow_provider_ducklake.lake.transfer import fork_layouts
from airflow_provider_ducklake.lake.transfer.inlined_rows import (
    read_inlined_data,
    read_inlined_deletes,
)
from airflow_provider_ducklake.lake.transfer.migrate import OLD_NAMES, VERSIONS, to_current
from airflow_provider_ducklake.lake.transfer.rows import CatalogContents, Rows, Tables
from airflow_provider_ducklake.storage import StorageOptions

# Read as text: drivers have types of their own for these, and one text form fits every database.
_AS_TEXT: Final = ("UUID", "TIMESTAMPTZ")
_NEVER_NEGATIVE: Final = ("schema_id", "table_id", "data_file_id")
_LAYOUT: Final = {
    "sqlite": "SELECT name FROM pragma_table_info(?)",
    "duckdb": "SELECT column_name FROM duckdb_columns() WHERE database_name = current_database() "
    "AND table_name = ? AND schema_name = ? ORDER BY column_index",
    "postgres": "SELECT attname FROM pg_attribute WHERE attrelid = CAST(? AS regclass) "
    "AND attnum > 0 AND NOT attisdropped AND attname <> 'ctid' ORDER BY attnum",
}


def read_catalog(
    location: CatalogLocation,
    *,
    catalog: str | None = None,
    storage: StorageOptions | None = None,
    lock_timeout: float = 60.0,
) -> CatalogContents:
    """Read a catalog as DuckLake 1.0 would hold it.

    Args:
        location: The catalog, of DuckLake 0.1 to 1.0, or in a layout of `thedatamates/ducklake`.
            Its `data_path` is needed where the catalog does not say where its files are.
        catalog: Which of the catalogs of such a layout; may be left out where there is one.
        storage: How a SQLite catalog in a bucket is reached.
        lock_timeout: Seconds to wait for a file that another client holds.

    Raises:
        UnsupportedCatalog: It is no DuckLake, of a version or with content that is not known.
        ConfigurationError: The data path or the catalog has to be named, or is another one.
    """
    database = open_database(location, storage=storage, lock_timeout=lock_timeout)
    with database.read() as session:
        return read_contents(session, location, catalog=catalog)


def read_contents(
    session: Session, location: CatalogLocation, *, catalog: str | None = None
) -> CatalogContents:
    """Read a catalog inside a transaction; see `read_catalog`."""
    raw = _read_tables(session, location.kind)
    version = _version(raw, location)
    data_path = _data_path(raw, location)
    shared: frozenset[str] = frozenset()
    root, parent = data_path, None
    if fork_layouts.is_fork(raw):
        chosen = fork_layouts.choose(raw, catalog, location)
        shared = fork_layouts.shared_inlined_tables(raw)
        parent = fork_layouts.parent(raw, chosen, data_path)
        data_path, root = fork_layouts.places(raw, chosen, data_path)
        raw = fork_layouts.only(raw, chosen)
    elif catalog is not None:
        raise ConfigurationError(f"{location} holds one lake only, not a catalog {catalog!r}")
    tables = to_current(raw, version, location)
    if not len(tables["ducklake_snapshot"]):
        raise UnsupportedCatalog(f"{location} has no snapshot: it is not a usable DuckLake")
    inlined = read_inlined_data(session, tables)
    deletes = read_inlined_deletes(session, tables)
    names = {f"ducklake_inlined_data_{d.table_id}_{d.schema_version}" for d in inlined if d.rows}
    if names & shared:
        raise UnsupportedCatalog(
            f"{location}: catalog {catalog!r} and a fork of it keep inlined rows in one table, and "
            "nobody can tell whose they are: run ducklake_flush_inlined_data on both first"
        )
    return CatalogContents(data_path, root, tables, inlined, deletes, parent)


def _read_tables(session: Session, kind: Kind) -> Tables:
    there = set(session.table_names())
    wanted = (*BY_NAME, *OLD_NAMES, fork_layouts.REGISTRY)
    return {name: _read_table(session, kind, name) for name in wanted if name in there}


def _read_table(session: Session, kind: Kind, name: str) -> Rows:
    columns = _columns(session, kind, name)
    types = dict(BY_NAME[name].columns) if name in BY_NAME else {}
    selected = ", ".join(_selected(column, types.get(column, "")) for column in columns)
    rows = Rows(columns, session.rows(f"SELECT {selected} FROM {{source}}", source=name))
    flags = [column for column in columns if types.get(column) == "BOOLEAN"]
    # Rows a store keeps for its forks are of a table that no snapshot shows.
    ids = [columns.index(column) for column in _NEVER_NEGATIVE if column in columns]
    kept = [row for row in rows.rows if not any((row[i] or 0) < 0 for i in ids)]
    return Rows(columns, kept).mapped(dict.fromkeys(flags, _flag))


def _columns(session: Session, kind: Kind, name: str) -> tuple[str, ...]:
    parameters: list[str] = [name]
    if kind == "postgres":
        parameters = [f"{quote_identifier(session.schema or 'public')}.{quote_identifier(name)}"]
    elif kind == "duckdb":
        parameters.append(session.schema or "main")
    return tuple(str(column) for (column,) in session.rows(_LAYOUT[kind], parameters))


def _selected(column: str, kind: str) -> str:
    name = quote_identifier(column)
    as_text = kind in _AS_TEXT or column in fork_layouts.READ_AS_TEXT
    return f"CAST({name} AS VARCHAR)" if as_text else name


def _flag(value: Any) -> bool | None:
    # SQLite has no type for it.
    return None if value is None else value in (True, 1, "1", "true", "t")


def _settings(raw: Tables, where: object) -> dict[str, list[str]]:
    """Return the values of each global option."""
    if "ducklake_metadata" not in raw or "ducklake_snapshot" not in raw:
        raise UnsupportedCatalog(f"{where} holds no DuckLake catalog")
    found: dict[str, list[str]] = {}
    for record in raw["ducklake_metadata"].records():
        if record.get("scope") is None:
            found.setdefault(record["key"], []).append(record["value"])
    return found


def _version(raw: Tables, where: object) -> str:
    found = sorted(set(_settings(raw, where).get("version", [])))
    known = fork_layouts.VERSIONS if fork_layouts.is_fork(raw) else VERSIONS
    if len(found) != 1 or found[0] not in known:
        raise UnsupportedCatalog(
            f"{where} is of DuckLake format {' and '.join(found) or 'no version at all'}; "
            f"catalogs of {', '.join(known)} can be taken over"
        )
    return found[0] if not fork_layouts.is_fork(raw) else fork_layouts.BASE_VERSION


def _data_path(raw: Tables, location: CatalogLocation) -> str:
    stored = next(iter(_settings(raw, location).get("data_path", [])), None)
    given = location.data_path
    if stored is None and given is None:
        raise ConfigurationError(
            f"{location} does not say where its files are: give the data path (DATA_PATH)"
        )
    return agreed_data_path(stored or given or "", given, location)
