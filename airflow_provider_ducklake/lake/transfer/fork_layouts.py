"""Catalogs of the fork `thedatamates/ducklake`: one of the many that its metadata tables hold.

The fork went through three layouts, told apart here by their columns, since its version text does
not (0.4-dev1 and 0.5-dev1 were each written for two of them):

- `catalog_id VARCHAR`, the catalog's name itself, in some or all tables; no table of catalogs; the
  first rows of a database have an empty one and belong to every catalog;
- `catalog_id BIGINT` in the tables of named objects, and a table `ducklake_catalog`;
- `catalog_id BIGINT` in every table but that of the snapshots. Forks copy rows and keep ids, so
  that an id alone says nothing.

Snapshots are counted through all catalogs; those of one catalog are the ones that changed it. In
the first two layouts paths begin at `<data path>/<catalog>/`, in the last at the data path.

Source: ducklake_metadata_manager.cpp and ducklake_initializer.cpp of that repository, at bb44047,
bc5b70f, 3699931, e39b7ed and 4ccee75.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_ducklake.lake.errors import ConfigurationError, UnsupportedCatalog
from airflow_provider_ducklake.lake.options import unknown_name
from airflow_provider_ducklake.lake.paths import as_directory
from airflow_provider_ducklake.lake.transfer.rows import Parent, Rows, Tables

REGISTRY: Final = "ducklake_catalog"
VERSIONS: Final = ("0.4-dev1", "0.5-dev1")
BASE_VERSION: Final = "0.4-dev1"  # of the reference, from which all layouts come
_ID: Final = "catalog_id"
READ_AS_TEXT: Final = frozenset({_ID, "parent_catalog_id", "catalog_uuid"})


@dataclass(frozen=True, slots=True)
class ForkCatalog:
    """One catalog of such a database.

    Attributes:
        name: Its name; empty for what was there before catalogs had one.
        ids: The values of `catalog_id` in its rows.
    """

    name: str
    ids: frozenset[str]


def is_fork(raw: Tables) -> bool:
    """Tell whether metadata tables are laid out as the fork lays them out."""
    return "ducklake_schema" in raw and _ID in raw["ducklake_schema"].columns


def choose(raw: Tables, name: str | None, where: object) -> ForkCatalog:
    """Return the catalog of a name; without one, the only catalog.

    Raises:
        ConfigurationError: There is none of that name, or one has to be named.
    """
    found = _catalogs(raw)
    names = ", ".join(sorted(found)) or "none"
    if name is None:
        if len(found) != 1:
            raise ConfigurationError(f"{where} holds several catalogs, name one of: {names}")
        return next(iter(found.values()))
    if name not in found:
        raise unknown_name(f"catalog of {where}", name, found)
    return found[name]


def _catalogs(raw: Tables) -> dict[str, ForkCatalog]:
    if REGISTRY in raw:
        return {
            record["catalog_name"]: ForkCatalog(record["catalog_name"], frozenset({record[_ID]}))
            for record in raw[REGISTRY].records()
            if record.get("end_snapshot") is None
        }
    names = {str(value or "") for value in raw["ducklake_schema"].values(_ID)}
    for table in ("ducklake_table", "ducklake_snapshot_changes"):
        names |= {str(value or "") for value in raw[table].values(_ID)}
    named = names - {""} or {""}
    return {name: ForkCatalog(name, frozenset({name, ""})) for name in named}


def places(raw: Tables, catalog: ForkCatalog, data_path: str) -> tuple[str, str]:
    """Return where relative paths of a catalog begin, and the directory that is its own.

    Args:
        raw: The rows of all catalogs.
        catalog: The chosen one.
        data_path: Full data path of the database.
    """
    if not catalog.name:
        return data_path, data_path
    if REGISTRY not in raw:
        # The first layout stored the directory of the catalog that was created first.
        for name in _catalogs(raw):
            if data_path.endswith(f"/{name}/"):
                data_path = data_path[: -len(name) - 1]
                break
    own = as_directory(data_path + catalog.name)
    is_last = REGISTRY in raw and _ID in raw["ducklake_data_file"].columns
    return (data_path if is_last else own), own


def parent(raw: Tables, catalog: ForkCatalog, data_path: str) -> Parent | None:
    """Return what a catalog was forked from, where the database says so and still has it."""
    if REGISTRY not in raw or "parent_catalog_id" not in raw[REGISTRY].columns:
        return None
    (own,) = raw[REGISTRY].filtered(lambda entry: entry[_ID] in catalog.ids).records()
    found = [c for c in _catalogs(raw).values() if own["parent_catalog_id"] in c.ids]
    if not found:
        return None
    changes = raw["ducklake_snapshot_changes"].filtered(
        lambda change: change[_ID] in found[0].ids and change["snapshot_id"] < own["begin_snapshot"]
    )
    _, root = places(raw, found[0], data_path)
    return Parent(root, max(changes.values("snapshot_id"), default=None))


def shared_inlined_tables(raw: Tables) -> frozenset[str]:
    """Return the tables of inlined rows that a catalog and its forks write to alike."""
    rows = raw.get("ducklake_inlined_data_tables")
    if rows is None or _ID not in rows.columns:
        return frozenset()
    counts = Counter(rows.values("table_name"))
    return frozenset(name for name, count in counts.items() if count > 1)


def only(raw: Tables, catalog: ForkCatalog) -> Tables:
    """Return the rows of one catalog, in the layout of the reference of that time.

    Raises:
        UnsupportedCatalog: The catalog has no snapshot left.
    """
    found = {name: _of_catalog(rows, catalog) for name, rows in raw.items() if name != REGISTRY}
    if "next_entry_id" in found["ducklake_snapshot"].columns:
        found["ducklake_snapshot"] = found["ducklake_snapshot"].renamed(
            "next_entry_id", "next_catalog_id"
        )
    snapshots = set(found["ducklake_snapshot_changes"].values("snapshot_id"))
    found["ducklake_snapshot"] = found["ducklake_snapshot"].where("snapshot_id", snapshots)
    if not len(found["ducklake_snapshot"]):
        raise UnsupportedCatalog(f"catalog {catalog.name!r} has no snapshot left")
    _keep_reachable(found)
    found["ducklake_snapshot_changes"] = found["ducklake_snapshot_changes"].mapped(
        {"changes_made": _changes}
    )
    found["ducklake_snapshot"] = _with_free_ids(found)
    return found


def _of_catalog(rows: Rows, catalog: ForkCatalog) -> Rows:
    if _ID not in rows.columns:
        return rows
    at = rows.columns.index(_ID)
    return Rows(
        rows.columns[:at] + rows.columns[at + 1 :],
        [row[:at] + row[at + 1 :] for row in rows.rows if (row[at] or "") in catalog.ids],
    )


def _keep_reachable(found: dict[str, Rows]) -> None:
    """Keep, of the tables that do not say whose a row is, what belongs to kept objects."""

    def ids(table: str, column: str) -> set[Any]:
        return set(found[table].values(column)) if table in found else set()

    tables, views = ids("ducklake_table", "table_id"), ids("ducklake_view", "view_id")
    schemas, macros = ids("ducklake_schema", "schema_id"), ids("ducklake_macro", "macro_id")
    for name, rows in list(found.items()):
        if "table_id" in rows.columns and name != "ducklake_table":
            found[name] = rows.where("table_id", tables)
    files = ids("ducklake_data_file", "data_file_id")
    mappings = ids("ducklake_column_mapping", "mapping_id")
    narrowed: Mapping[str, tuple[str, set[Any]]] = {
        "ducklake_tag": ("object_id", tables | views),
        "ducklake_file_column_stats": ("data_file_id", files),
        "ducklake_file_variant_stats": ("data_file_id", files),
        "ducklake_file_partition_value": ("data_file_id", files),
        "ducklake_name_mapping": ("mapping_id", mappings),
        "ducklake_macro_impl": ("macro_id", macros),
        "ducklake_macro_parameters": ("macro_id", macros),
    }
    for name, (column, wanted) in narrowed.items():
        if name in found:
            found[name] = found[name].where(column, wanted)
    scopes: Mapping[Any, set[Any]] = {"table": tables, "schema": schemas, None: {None}}
    found["ducklake_metadata"] = found["ducklake_metadata"].filtered(
        lambda record: record.get("scope_id") in scopes.get(record.get("scope"), set())
    )


def _changes(text: str | None) -> str | None:
    """Write in the reference's words what the fork says in its own."""
    if text is None or text.startswith("forked_from:"):
        return ""
    if text.startswith("schemas_created=["):
        return 'created_schema:"main"'
    return text


def _with_free_ids(found: Mapping[str, Rows]) -> Rows:
    """Return the snapshots, the newest with next ids above every id that is in use.

    Ids are counted through all catalogs, and two that commit at once may each have written the
    smaller one.
    """
    used = {"next_catalog_id": -1, "next_file_id": -1}
    kinds = {
        "schema_id": "next_catalog_id",
        "table_id": "next_catalog_id",
        "view_id": "next_catalog_id",
        "macro_id": "next_catalog_id",
        "partition_id": "next_catalog_id",
        "data_file_id": "next_file_id",
        "delete_file_id": "next_file_id",
        "mapping_id": "next_file_id",
    }
    for rows in found.values():
        for column in set(rows.columns) & kinds.keys():
            values = [int(value) for value in rows.values(column) if value is not None]
            used[kinds[column]] = max(used[kinds[column]], *values, -1)
    snapshots = found["ducklake_snapshot"]
    newest = max(snapshots.values("snapshot_id"))
    at = snapshots.columns.index("snapshot_id")

    def raised(row: tuple[Any, ...]) -> tuple[Any, ...]:
        if row[at] != newest:
            return row
        return tuple(
            max(int(value), used[name] + 1) if name in used else value
            for name, value in zip(snapshots.columns, row, strict=True)
        )

    return Rows(snapshots.columns, [raised(row) for row in snapshots.rows])
