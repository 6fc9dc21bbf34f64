"""Importing a catalog into a store: one transaction, no file touched, the source not changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql

from airflow_provider_ducklake.lake.errors import ConfigurationError, UnsupportedCatalog
from airflow_provider_ducklake.lake.files import inlined_delete_table
from airflow_provider_ducklake.lake.location import STORE_VIEWS, CatalogLocation
from airflow_provider_ducklake.lake.metadata_tables import FORMAT_VERSION, METADATA_TABLES
from airflow_provider_ducklake.lake.paths import full_directory
from airflow_provider_ducklake.lake.store.layout import SERVICE
from airflow_provider_ducklake.lake.store.registry import CatalogEntry
from airflow_provider_ducklake.lake.store.same_catalog import lock_name
from airflow_provider_ducklake.lake.store.store import CatalogStore
from airflow_provider_ducklake.lake.transfer.inlined_rows import (
    DELETE_COLUMNS,
    data_columns,
    stored_values,
)
from airflow_provider_ducklake.lake.transfer.read_source import read_catalog
from airflow_provider_ducklake.lake.transfer.rebase import rebased
from airflow_provider_ducklake.lake.transfer.renumber import (
    inlined_data_table,
    plan_numbering,
    renumbered,
)
from airflow_provider_ducklake.lake.transfer.rows import CatalogContents, Parent, Rows
from airflow_provider_ducklake.lake.transfer.sharing import join_readers
from airflow_provider_ducklake.storage import StorageOptions

Connection = psycopg.Connection[tuple[Any, ...]]


def import_catalog(
    store: CatalogStore,
    source: CatalogLocation,
    name: str,
    *,
    source_catalog: str | None = None,
    root: str | None = None,
    inlining_row_limit: int | None = 0,
    if_not_exists: bool = False,
    storage: StorageOptions | None = None,
    lock_timeout: float = 60.0,
) -> CatalogEntry:
    """Make a lake that lives elsewhere a catalog of a store, with its history and its files.

    The files stay where they are and belong to the new catalog from then on: retire the source, or
    its clients and those of the store delete files under each other's feet.

    Args:
        store: Where it goes.
        source: A lake of DuckLake 0.1 to 1.0 in a DuckDB file, a SQLite file or a PostgreSQL
            schema, a catalog of another store, or a database of `thedatamates/ducklake`. Its
            `data_path` has to be given where the catalog does not hold it.
        name: Name of the new catalog.
        source_catalog: Which catalog of such a database; needed where it holds several.
        root: Directory of the new catalog; its own data path by default. With another one, files
            outside are named by their full paths, and shared with the catalog whose root they are
            in.
        inlining_row_limit: What the new catalog says of inlining where the source says nothing.
            None leaves it to each client; see `CatalogStore.create_catalog`.
        if_not_exists: Return the catalog that is there, if it was imported from this source.
        storage: How a source that is a SQLite file in a bucket is reached.
        lock_timeout: Seconds to wait for a source file that another client holds.

    Returns:
        The new catalog.

    Raises:
        UnsupportedCatalog: The source is of another version or has content that cannot move.
        ConfigurationError: The name is taken, by another catalog, or not allowed; the source has to
            be named better.
        SafetyRefusal: Its directory lies in or around that of another catalog, or that one names
            files there; or files of it belong to a catalog that no longer has them.
        LostRace: Somebody took the name at the same moment.
    """
    contents = read_catalog(
        source, catalog=source_catalog, storage=storage, lock_timeout=lock_timeout
    )
    place = contents.root if root is None else full_directory(root)
    with store.transaction() as connection:
        lock_name(connection, name)
        if not (if_not_exists and _is_there(connection, name, place, contents.identity)):
            catalog_id, stored_root = _registered(connection, name, place, contents.parent)
            moved = rebased(contents, stored_root)
            shared = join_readers(connection, catalog_id, moved.tables)
            (first,) = _one(connection, "SELECT ducklake.first_id(%s)", catalog_id)
            moved = renumbered(moved, plan_numbering(moved.tables, first, shared))
            moved = _with_settings(moved, inlining_row_limit)
            try:
                _write(connection, catalog_id, moved)
            except psycopg.DataError as error:
                raise UnsupportedCatalog(
                    f"{source} holds a value that PostgreSQL does not take: "
                    f"{str(error).strip().splitlines()[0]}"
                ) from error
    return store.catalog(name)


def _is_there(connection: Connection, name: str, root: str, identity: str) -> bool:
    """Tell whether a catalog of that name is the one to import; another one is refused."""
    found = connection.execute(
        "SELECT c.root, ducklake.place(c.root) = ducklake.place(%s) AND EXISTS (SELECT "
        "FROM ducklake.ducklake_schema s WHERE s.catalog_id = c.catalog_id AND s.schema_uuid = %s) "
        "FROM ducklake.ducklake_catalog c "
        "WHERE lower(c.catalog_name) = lower(%s) AND c.state = 'live'",
        (f"{root.rstrip('/')}/", identity, name),
    ).fetchone()
    if found is not None and not found[1]:
        raise ConfigurationError(
            f"catalog {name!r} exists already, with the root {found[0]}, and is another one"
        )
    return found is not None


def _registered(
    connection: Connection, name: str, root: str, parent: Parent | None
) -> tuple[int, str]:
    found = (
        parent
        and connection.execute(
            "SELECT catalog_id FROM ducklake.ducklake_catalog "
            "WHERE ducklake.place(root) = ducklake.place(%s) AND state = 'live'",
            (parent.root,),
        ).fetchone()
    )
    origin = (found[0], parent.snapshot_id) if parent and found else (None, None)
    query = "SELECT ducklake.register_catalog(%s, %s, %s, %s)"
    (catalog_id,) = _one(connection, query, name, root, *origin)
    query = "SELECT root FROM ducklake.ducklake_catalog WHERE catalog_id = %s"
    (stored_root,) = _one(connection, query, catalog_id)
    return int(catalog_id), str(stored_root)


def _one(connection: Connection, query: str, *parameters: Any) -> tuple[Any, ...]:
    found = connection.execute(query.encode(), parameters).fetchone()
    assert found is not None
    return found


def _with_settings(contents: CatalogContents, inlining_row_limit: int | None) -> CatalogContents:
    """Return a catalog with the options of a catalog of the store."""
    fixed = {"version": FORMAT_VERSION, "data_path": contents.root}
    options = contents.tables["ducklake_metadata"].filtered(
        lambda option: option["scope"] is not None or option["key"] not in fixed
    )
    rows = [(key, value, None, None) for key, value in fixed.items()] + list(options.rows)
    said = {option["key"] for option in options.records() if option["scope"] is None}
    if inlining_row_limit is not None and "data_inlining_row_limit" not in said:
        rows.append(("data_inlining_row_limit", str(inlining_row_limit), None, None))
    if "encrypted" not in said:
        rows.append(("encrypted", "false", None, None))
    tables = {**contents.tables, "ducklake_metadata": Rows(options.columns, rows)}
    return replace(contents, tables=tables)


def _write(connection: Connection, catalog_id: int, contents: CatalogContents) -> None:
    for table in METADATA_TABLES:
        rows = contents.tables[table.name]
        _copy(
            connection,
            sql.Identifier("ducklake", table.name),
            ("catalog_id", *rows.columns),
            ((catalog_id, *row) for row in rows.rows),
        )
    for data in contents.inlined_data:
        place = sql.Identifier(STORE_VIEWS, inlined_data_table(data.table_id, data.schema_version))
        columns = data_columns(data.columns, "postgres")
        _create(connection, place, columns)
        values = (stored_values(row, data.columns, "postgres") for row in data.rows)
        _copy(connection, place, [name for name, _ in columns], values)
    for deletes in contents.inlined_deletes:
        place = sql.Identifier(STORE_VIEWS, inlined_delete_table(deletes.table_id))
        _create(connection, place, DELETE_COLUMNS)
        _copy(connection, place, [name for name, _ in DELETE_COLUMNS], deletes.rows)


def _create(
    connection: Connection, place: sql.Identifier, columns: Iterable[tuple[str, str]]
) -> None:
    # The types are words of this package.
    listed = [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns
    ]
    statement = sql.SQL("CREATE TABLE {} ({})").format(place, sql.SQL(", ").join(listed))
    connection.execute(statement)
    # Whoever of the service's logins connects next is to use it as the one that made it.
    connection.execute(sql.SQL("GRANT ALL ON {} TO {}").format(place, sql.Identifier(SERVICE)))


def _copy(
    connection: Connection,
    place: sql.Identifier,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(place, names)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)
