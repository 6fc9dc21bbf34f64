"""Operators for the catalogs of a shared store: each a few statements, without Spark."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider_ducklake.hooks._errors import airflow_error
from airflow_provider_ducklake.hooks._values import as_bool, as_int, chosen, given
from airflow_provider_ducklake.lake.errors import LakeError

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_ducklake.lake.store.store import CatalogStore


class DuckLakeCatalogOperator(BaseOperator):
    """What the operators on catalogs share; use one of those below.

    The connection names the store's database, with a login of the role `ducklake_service`. All
    arguments are templated; one that renders to nothing or to `None` counts as not given.

    Args:
        catalog: Name of the catalog.
        ducklake_conn_id: Connection of the store.
        **kwargs: See `BaseOperator`.
    """

    template_fields: Sequence[str] = ("ducklake_conn_id", "catalog")
    ui_color = "#e8e3f5"

    def __init__(
        self, *, catalog: str, ducklake_conn_id: str = "ducklake_default", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.catalog = catalog
        self.ducklake_conn_id = ducklake_conn_id

    def execute(self, context: Context) -> Any:
        """Do it, and return the catalog as it is then: name, id, uuid, parent, root, size.

        Args:
            context: Airflow's execution context.

        Raises:
            AirflowFailException: No retry can help: a name that is taken, a catalog that is not.
            AirflowException: The database cannot be reached, or somebody else was first.
        """
        from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook

        try:
            self.catalog = chosen(self.catalog, "catalog")
            with DuckLakeHook(self.ducklake_conn_id).store() as store:
                result = self.run_on(store)
        except LakeError as error:
            raise airflow_error(error) from None
        self.log.info("%s", result)
        return result

    @abstractmethod
    def run_on(self, store: CatalogStore) -> dict[str, Any] | None:
        """Do the operator's work on the store."""

    def _text(self, name: str) -> str | None:
        value = getattr(self, name)
        return str(value) if given(value) else None

    def _flag(self, name: str) -> bool:
        value = getattr(self, name)
        return given(value) and as_bool(value, name)


class DuckLakeCreateCatalogOperator(DuckLakeCatalogOperator):
    """Create a catalog, with schema `main` and no table.

    Args:
        catalog: Name: up to 63 letters, digits, `_`, `-` and `.`, unique whatever their case.
        root: Where its files go; a directory of its name below the store's root when not given.
        encrypted: Encrypt its data files.
        if_not_exists: One that is there is fine.
        role: A database role that may use it from then on.
        **kwargs: See `DuckLakeCatalogOperator`.
    """

    template_fields: Sequence[str] = (
        *DuckLakeCatalogOperator.template_fields,
        "root",
        "encrypted",
        "if_not_exists",
        "role",
    )

    def __init__(
        self,
        *,
        root: str | None = None,
        encrypted: bool | str = False,
        if_not_exists: bool | str = True,
        role: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.root = root
        self.encrypted = encrypted
        self.if_not_exists = if_not_exists
        self.role = role

    def run_on(self, store: CatalogStore) -> dict[str, Any]:
        """Create it."""
        made = store.create_catalog(
            self.catalog,
            root=self._text("root"),
            encrypted=self._flag("encrypted"),
            if_not_exists=self._flag("if_not_exists"),
        )
        if role := self._text("role"):
            store.grant(self.catalog, role)
        return made.to_dict()


class DuckLakeForkCatalogOperator(DuckLakeCatalogOperator):
    """Create a catalog that begins where another stands; no data file is touched.

    Args:
        catalog: Name of the new one.
        source: Catalog to fork.
        snapshot_id: A kept snapshot of the source; its newest when not given.
        root: Where new files of the fork go.
        if_not_exists: One that is there is fine, if it is a fork of the same catalog.
        role: A database role that may use it from then on.
        **kwargs: See `DuckLakeCatalogOperator`.
    """

    template_fields: Sequence[str] = (
        *DuckLakeCatalogOperator.template_fields,
        "source",
        "snapshot_id",
        "root",
        "if_not_exists",
        "role",
    )

    def __init__(
        self,
        *,
        source: str,
        snapshot_id: int | str | None = None,
        root: str | None = None,
        if_not_exists: bool | str = True,
        role: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.snapshot_id = snapshot_id
        self.root = root
        self.if_not_exists = if_not_exists
        self.role = role

    def run_on(self, store: CatalogStore) -> dict[str, Any]:
        """Fork it."""
        snapshot = self.snapshot_id
        made = store.fork_catalog(
            self.source,
            self.catalog,
            snapshot_id=as_int(snapshot, "snapshot_id") if given(snapshot) else None,
            root=self._text("root"),
            if_not_exists=self._flag("if_not_exists"),
        )
        if role := self._text("role"):
            store.grant(self.catalog, role)
        return made.to_dict()


class DuckLakeRenameCatalogOperator(DuckLakeCatalogOperator):
    """Give a catalog another name; its files stay where they are.

    Args:
        new_name: The new name.
        **kwargs: See `DuckLakeCatalogOperator`.
    """

    template_fields: Sequence[str] = (*DuckLakeCatalogOperator.template_fields, "new_name")

    def __init__(self, *, new_name: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.new_name = new_name

    def run_on(self, store: CatalogStore) -> dict[str, Any]:
        """Rename it."""
        return store.rename_catalog(self.catalog, self.new_name).to_dict()


class DuckLakeDropCatalogOperator(DuckLakeCatalogOperator):
    """Drop a catalog: its rows go at once, its files are scheduled unless a fork reads them.

    Args:
        if_exists: None of that name is fine.
        **kwargs: See `DuckLakeCatalogOperator`.
    """

    template_fields: Sequence[str] = (*DuckLakeCatalogOperator.template_fields, "if_exists")

    def __init__(self, *, if_exists: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.if_exists = if_exists

    def run_on(self, store: CatalogStore) -> dict[str, Any] | None:
        """Drop it."""
        dropped = store.drop_catalog(self.catalog, if_exists=self._flag("if_exists"))
        return dropped.to_dict() if dropped else None
