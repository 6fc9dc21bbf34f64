"""Operators that bring lakes into a shared store and take catalogs out of it, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.hooks._values import as_int, given
from airflow_provider_ducklake.operators.catalog import DuckLakeCatalogOperator

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.store.store import CatalogStore


class DuckLakeImportCatalogOperator(DuckLakeCatalogOperator):
    """Make a lake that lives elsewhere a catalog of the store; its files stay where they are.

    The source is not changed. Retire it afterwards: two catalogs of the same files would delete
    them under each other's feet. Returns the catalog: name, id, uuid, parent, root, size.

    Args:
        catalog: Name of the new one.
        source_conn_id: Connection of the lake: a DuckDB file, a SQLite file, a PostgreSQL schema, a
            catalog of another store, or a database of `thedatamates/ducklake`.
        source_catalog: Which catalog of such a database; needed where it holds several.
        root: Where new files go; the lake's data path when not given.
        if_not_exists: One that is there is fine, if it was imported from the same lake.
        role: A database role that may use it from then on.
        **kwargs: See `DuckLakeCatalogOperator`.
    """

    template_fields: Sequence[str] = (
        *DuckLakeCatalogOperator.template_fields,
        "source_conn_id",
        "source_catalog",
        "root",
        "if_not_exists",
        "role",
    )

    def __init__(
        self,
        *,
        source_conn_id: str,
        source_catalog: str | None = None,
        root: str | None = None,
        if_not_exists: bool | str = True,
        role: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source_conn_id = source_conn_id
        self.source_catalog = source_catalog
        self.root = root
        self.if_not_exists = if_not_exists
        self.role = role

    def run_on(self, store: CatalogStore) -> dict[str, Any]:
        """Import it."""
        from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
        from airflow_provider_ducklake.lake.transfer.into_store import import_catalog

        source = DuckLakeHook(self.source_conn_id)
        made = import_catalog(
            store,
            source.location(),
            self.catalog,
            source_catalog=self._text("source_catalog"),
            root=self._text("root"),
            if_not_exists=self._flag("if_not_exists"),
            storage=source.storage_options(),
        )
        if role := self._text("role"):
            store.grant(self.catalog, role)
        return made.to_dict()


class DuckLakeExportCatalogOperator(DuckLakeCatalogOperator):
    """Write a catalog into a DuckDB or SQLite file of its own, for reading without the store.

    Clients attach the file READ_ONLY; it reads as long as the store keeps the data files. Returns
    what it holds: snapshots, tables, files. A retry that finds the file complete returns the same.

    Args:
        target: ATTACH string of the file, on a disk the worker sees: `ducklake:duckdb:/exports/…`.
        snapshot_id: Freeze it at this kept snapshot; all of them when not given.
        replace_older: Replace a file that is an older export of the catalog.
        **kwargs: See `DuckLakeCatalogOperator`.
    """

    template_fields: Sequence[str] = (
        *DuckLakeCatalogOperator.template_fields,
        "target",
        "snapshot_id",
        "replace_older",
    )

    def __init__(
        self,
        *,
        target: str,
        snapshot_id: int | str | None = None,
        replace_older: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.target = target
        self.snapshot_id = snapshot_id
        self.replace_older = replace_older

    def run_on(self, store: CatalogStore) -> dict[str, Any]:
        """Export it."""
        from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
        from airflow_provider_ducklake.lake.location import CatalogLocation
        from airflow_provider_ducklake.lake.transfer.export import export_catalog

        snapshot = self.snapshot_id
        return export_catalog(
            DuckLakeHook(self.ducklake_conn_id, catalog=self.catalog).lake(),
            CatalogLocation.parse(self.target),
            snapshot_id=as_int(snapshot, "snapshot_id") if given(snapshot) else None,
            replace_older=self._flag("replace_older"),
        ).to_dict()
