"""Operators for the catalogs of a shared store: each a few statements, without Spark."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider_ducklake.hooks._errors import airflow_error
from airflow_provider_ducklake.hooks._values import (
    as_bool,
    as_count,
    as_int,
    chosen,
    given,
)
from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.operators._options import instant

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_ducklake.lake.store.store import CatalogStore


class DuckLakeStoreOperator(BaseOperator):
    """What the operators on a store share; use one of those below.

    The connection names the store's database, with a login of the role `ducklake_service`. All
    arguments are templated; one that renders to nothing or to `None` counts as not given.

    Args:
        ducklake_conn_id: Connection of the store.
        **kwargs: See `BaseOperator`.
    """

    template_fields: Sequence[str] = ("ducklake_conn_id",)
    ui_color = "#e8e3f5"

    def __init__(self, *, ducklake_conn_id: str = "ducklake_default", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ducklake_conn_id = ducklake_conn_id

    def execute(self, context: Context) -> Any:
        """Do it, and return what `run_on` does, which becomes the task's XCom.

        Args:
            context: Airflow's execution context.

        Raises:
            AirflowFailException: No retry can help: a name that is taken, a catalog that is not.
            AirflowException: The database cannot be reached, or somebody else was first.
        """
        from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook

        try:
            self._check()
            with DuckLakeHook(self.ducklake_conn_id).store() as store:
                result = self.run_on(store)
        except LakeError as error:
            raise airflow_error(error) from None
        self.log.info("%s", result)
        return result

    def _check(self) -> None:
        """Refuse arguments that are wrong whatever the store holds."""

    @abstractmethod
    def run_on(self, store: CatalogStore) -> dict[str, Any] | None:
        """Do the operator's work on the store."""

    def _text(self, name: str) -> str | None:
        value = getattr(self, name)
        return str(value) if given(value) else None

    def _flag(self, name: str) -> bool:
        value = getattr(self, name)
        return given(value) and as_bool(value, name)


class DuckLakeCatalogOperator(DuckLakeStoreOperator):
    """What the operators on one catalog share; use one of those below.

    They return the catalog: name, id, uuid, parent, root, size.

    Args:
        catalog: Name of the catalog; one that renders to nothing is refused.
        **kwargs: See `DuckLakeStoreOperator`.
    """

    template_fields: Sequence[str] = (*DuckLakeStoreOperator.template_fields, "catalog")

    def __init__(self, *, catalog: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.catalog = catalog

    def _check(self) -> None:
        self.catalog = chosen(self.catalog, "catalog")


class DuckLakeCreateCatalogOperator(DuckLakeCatalogOperator):
    """Create a catalog, with schema `main` and no table.

    Args:
        catalog: Name: up to 63 letters, digits, `_`, `-` and `.`, unique whatever their case.
        root: Where its files go; a directory of its name below the store's root when not given.
        encrypted: Encrypt its data files.
        inlining_row_limit: Inserts of at most so many rows are kept in the catalog by clients; 0,
            none, is right where tenants have roles of their own.
        if_not_exists: One that is there is fine, if it has this root and encryption.
        role: A database role that may use it from then on.
        **kwargs: See `DuckLakeCatalogOperator`.
    """

    template_fields: Sequence[str] = (
        *DuckLakeCatalogOperator.template_fields,
        "root",
        "encrypted",
        "inlining_row_limit",
        "if_not_exists",
        "role",
    )

    def __init__(
        self,
        *,
        root: str | None = None,
        encrypted: bool | str = False,
        inlining_row_limit: int | str = 0,
        if_not_exists: bool | str = True,
        role: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.root = root
        self.encrypted = encrypted
        self.inlining_row_limit = inlining_row_limit
        self.if_not_exists = if_not_exists
        self.role = role

    def run_on(self, store: CatalogStore) -> dict[str, Any]:
        """Create it."""
        limit = self.inlining_row_limit
        made = store.create_catalog(
            self.catalog,
            root=self._text("root"),
            encrypted=self._flag("encrypted"),
            inlining_row_limit=as_count(limit, "inlining_row_limit") if given(limit) else 0,
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
            chosen(self.source, "source"),
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
        new_name: The new name; one that renders to nothing is refused.
        **kwargs: See `DuckLakeCatalogOperator`.
    """

    template_fields: Sequence[str] = (*DuckLakeCatalogOperator.template_fields, "new_name")

    def __init__(self, *, new_name: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.new_name = new_name

    def run_on(self, store: CatalogStore) -> dict[str, Any]:
        """Rename it."""
        return store.rename_catalog(self.catalog, chosen(self.new_name, "new_name")).to_dict()


class DuckLakeDropCatalogOperator(DuckLakeCatalogOperator):
    """Drop a catalog: its rows go at once, its files are scheduled unless a fork reads them.

    Args:
        if_exists: None of that name is fine.
        dry_run: Drop nothing; the result is what would be dropped.
        **kwargs: See `DuckLakeCatalogOperator`.
    """

    template_fields: Sequence[str] = (
        *DuckLakeCatalogOperator.template_fields,
        "if_exists",
        "dry_run",
    )

    def __init__(
        self, *, if_exists: bool | str = False, dry_run: bool | str = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.if_exists = if_exists
        # BaseOperator's method of this name renders templates for a command that is gone.
        self.dry_run = dry_run  # type: ignore[assignment,method-assign]

    def run_on(self, store: CatalogStore) -> dict[str, Any] | None:
        """Drop it."""
        dropped = store.drop_catalog(
            self.catalog, if_exists=self._flag("if_exists"), dry_run=self._flag("dry_run")
        )
        return dropped.to_dict() if dropped else None


class DuckLakeGrantCatalogOperator(DuckLakeCatalogOperator):
    """Let a database role use a catalog; granting again changes what it may.

    Returns name, role and whether the role may write.

    Args:
        role: The database role.
        read_only: It may read only.
        **kwargs: See `DuckLakeCatalogOperator`.
    """

    template_fields: Sequence[str] = (*DuckLakeCatalogOperator.template_fields, "role", "read_only")

    def __init__(self, *, role: str, read_only: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.role = role
        self.read_only = read_only

    def run_on(self, store: CatalogStore) -> dict[str, Any]:
        """Grant it."""
        role = chosen(self.role, "role")
        # Left empty by a template, it would let the role do more.
        writable = not as_bool(self.read_only, "read_only")
        store.grant(self.catalog, role, writable=writable)
        return {"name": self.catalog, "role": role, "writable": writable}


class DuckLakeRevokeCatalogOperator(DuckLakeCatalogOperator):
    """Take a catalog away from a database role; sessions of it are refused from then on.

    Returns name, role and whether the role had it.

    Args:
        role: The database role.
        **kwargs: See `DuckLakeCatalogOperator`.
    """

    template_fields: Sequence[str] = (*DuckLakeCatalogOperator.template_fields, "role")

    def __init__(self, *, role: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.role = role

    def run_on(self, store: CatalogStore) -> dict[str, Any]:
        """Revoke it."""
        role = chosen(self.role, "role")
        return {"name": self.catalog, "role": role, "was": store.revoke(self.catalog, role)}


class DuckLakePurgeCatalogsOperator(DuckLakeStoreOperator):
    """Delete the files of dropped catalogs, once their grace has passed and no fork reads them.

    Returns counts: catalogs of which nothing is left, files deleted, missing and forgotten. Files
    that cannot be deleted stay scheduled, and fail the task after the others are done.

    Args:
        older_than: How long ago they were dropped, such as `7 days`, or before which instant; one
            that renders to nothing is refused.
        force: Allow less than two days.
        dry_run: Delete nothing; the result says what would be.
        **kwargs: See `DuckLakeStoreOperator`.
    """

    template_fields: Sequence[str] = (
        *DuckLakeStoreOperator.template_fields,
        "older_than",
        "force",
        "dry_run",
    )

    def __init__(
        self,
        *,
        older_than: timedelta | datetime | str = "2 days",
        force: bool | str = False,
        dry_run: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.older_than = older_than
        self.force = force
        # BaseOperator's method of this name renders templates for a command that is gone.
        self.dry_run = dry_run  # type: ignore[assignment,method-assign]

    def run_on(self, store: CatalogStore) -> dict[str, Any]:
        """Purge."""
        from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook

        result = store.purge(
            DuckLakeHook(self.ducklake_conn_id).storage_options(),
            older_than=chosen(instant(self.older_than, "older_than"), "older_than"),
            force=self._flag("force"),
            dry_run=self._flag("dry_run"),
        )
        result.require_all()
        return result.to_dict()
