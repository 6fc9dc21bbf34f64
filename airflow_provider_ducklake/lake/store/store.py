"""What administers a store: making it, and creating, forking and dropping catalogs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import psycopg

from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.database.kept_connections import KeptConnections, connect
from airflow_provider_ducklake.lake.errors import (
    CatalogUnavailable,
    ConfigurationError,
    LakeError,
    LostRace,
    NotFound,
)
from airflow_provider_ducklake.lake.fault_points import FaultPoint, reach
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.paths import as_directory
from airflow_provider_ducklake.lake.store.fleet import FleetPlan, plan_fleet
from airflow_provider_ducklake.lake.store.fleet_policy import FleetPolicy
from airflow_provider_ducklake.lake.store.fleet_work import ranked_work
from airflow_provider_ducklake.lake.store.install import (
    check_server,
    create_store,
    has_root,
    has_store,
    lock,
    upgrade_store,
)
from airflow_provider_ducklake.lake.store.ledger import LedgerEntry, write_entries
from airflow_provider_ducklake.lake.store.purge import PurgeResult, purge
from airflow_provider_ducklake.lake.store.refusals import refusal_of_store
from airflow_provider_ducklake.lake.store.registry import (
    CatalogEntry,
    StoreStatus,
    find_catalog,
    get_catalog,
    list_catalogs,
    read_status,
    sign_catalog,
)
from airflow_provider_ducklake.lake.store.same_catalog import lock_name, require_same
from airflow_provider_ducklake.storage import StorageOptions

Connection = psycopg.Connection[tuple[Any, ...]]


class CatalogStore:
    """A store in a PostgreSQL database, as the service role sees it.

    Every method is one short transaction, on a connection of its own. Whoever calls many keeps one
    open, for each thread that calls, in a `with` block: it costs more than most of what is asked.
    Roles are of the whole server: `ducklake_owner` owns the store's objects, members of
    `ducklake_service` may use all of it, members of `ducklake_tenant` only the catalogs they were
    granted.

    Example:
        >>> with CatalogStore("dbname=lakes user=admin") as store:  # doctest: +SKIP
        ...     for name in names:
        ...         store.create_catalog(name)
    """

    def __init__(self, conninfo: str) -> None:
        """Name a store; nothing is connected yet.

        Args:
            conninfo: libpq connection string of the database.
        """
        self._conninfo = conninfo
        self._kept: KeptConnections | None = None

    def __enter__(self) -> CatalogStore:
        """Keep connections open from the first call on; see the class."""
        self._kept = KeptConnections(self._conninfo)
        return self

    def __exit__(self, *_: object) -> None:
        """Close them; what is called later opens its own again."""
        if self._kept is not None:
            self._kept.close()
        self._kept = None

    @classmethod
    def at(
        cls, location: CatalogLocation, *, connections: KeptConnections | None = None
    ) -> CatalogStore:
        """Return the store in a location's database, whichever catalog of it that chooses.

        Args:
            location: The database.
            connections: Kept ones to it, for a job that has them anyway.

        Raises:
            ConfigurationError: The location is not in PostgreSQL.
        """
        if location.kind != "postgres":
            raise ConfigurationError(f"{location}: a store is kept in PostgreSQL only")
        store = cls(location.conninfo)
        store._kept = connections
        return store

    def init(self, root: str) -> StoreStatus:
        """Make the store, or bring the one that is there to the newest version; safe to repeat.

        Args:
            root: Directory or URL under which each catalog gets its own: a full one, without `.`
                or `..` in it.

        Raises:
            ConfigurationError: The root is none; there is a store with another one; or the role may
                not create a store.
            UnsupportedCatalog: The server is too old, or the store newer than this package.
        """
        root = as_directory(root)
        with self.transaction() as connection:
            check_server(connection)
            lock(connection)
            if has_store(connection):
                status = read_status(connection)
                if not has_root(connection, root):
                    raise ConfigurationError(
                        f"there is a store with the root {status.root}, not {root}: `upgrade` "
                        "brings that one to the newest version, another needs a database of its own"
                    )
                upgrade_store(connection, status.version)
            else:
                create_store(connection, root)
            return read_status(connection)

    def upgrade(self) -> StoreStatus:
        """Bring the store to the newest version.

        Raises:
            NotFound: There is no store.
            UnsupportedCatalog: It is newer than this package.
        """
        with self.transaction() as connection:
            lock(connection)
            upgrade_store(connection, read_status(connection).version)
            return read_status(connection)

    def status(self) -> StoreStatus:
        """Return what the store is; raises NotFound where there is none."""
        with self._reading() as connection:
            return read_status(connection)

    def create_catalog(
        self,
        name: str,
        *,
        root: str | None = None,
        encrypted: bool = False,
        inlining_row_limit: int | None = 0,
        if_not_exists: bool = False,
        info: CommitInfo | None = None,
    ) -> CatalogEntry:
        """Create a catalog with schema `main` and no table.

        Args:
            name: Up to 63 letters, digits, `_`, `-` and `.`.
            root: Where its files go; by default a directory of its name below the store's root.
            encrypted: Whether data files are to be encrypted.
            inlining_row_limit: Inserts of at most so many rows are kept in the catalog by clients.
                0, the default, is right where tenants have roles of their own: they may not
                create the tables this takes. None leaves it to each client.
            if_not_exists: Return the one that is there, if it is no fork and has the root and the
                encryption asked for; of several who create it at once, one does and all return it.
            info: Stands beside the first snapshot of a catalog that is created.

        Raises:
            ConfigurationError: The name is taken, by another kind of catalog, or not allowed.
            SafetyRefusal: The root lies in or around that of another catalog, or that one names
                files or directories there.
        """
        with self.transaction() as connection:
            lock_name(connection, name)
            found = find_catalog(connection, name) if if_not_exists else None
            if found is None:
                connection.execute(
                    "SELECT ducklake.create_catalog(%s, %s, %s, %s)",
                    (name, root, encrypted, inlining_row_limit),
                )
                found = get_catalog(connection, name)
                if info is not None:
                    sign_catalog(connection, found, info)
            else:
                require_same(connection, found, root=root, encrypted=encrypted)
            return found

    def fork_catalog(
        self,
        source: str,
        name: str,
        *,
        snapshot_id: int | None = None,
        root: str | None = None,
        if_not_exists: bool = False,
    ) -> CatalogEntry:
        """Create a catalog that begins where another stands; rows are copied, no file is touched.

        Args:
            source: Catalog to fork.
            name: Name of the new one.
            snapshot_id: A kept snapshot of the source; its newest by default.
            root: Where new files of the fork go.
            if_not_exists: Return the one that is there, if it is a fork of the same catalog, and at
                the snapshot and with the root, where those are given.

        Raises:
            NotFound: There is no such source, or it does not keep the snapshot.
            ConfigurationError: The name is taken; or the source cannot be forked there, and why.
            SafetyRefusal: The root belongs to another catalog, see `create_catalog`.
        """
        with self.transaction() as connection:
            lock_name(connection, name)
            found = find_catalog(connection, name) if if_not_exists else None
            if found is None:
                connection.execute(
                    "SELECT ducklake.fork_catalog(%s, %s, %s, %s)",
                    (source, name, snapshot_id, root),
                )
                found = get_catalog(connection, name)
            else:
                require_same(connection, found, root=root, source=source, snapshot_id=snapshot_id)
            return found

    def rename_catalog(self, name: str, new_name: str) -> CatalogEntry:
        """Give a catalog another name; its root and its sessions by id stay.

        Raises:
            NotFound: There is none of that name.
            ConfigurationError: The new name is taken or not allowed.
        """
        with self.transaction() as connection:
            lock_name(connection, new_name)
            connection.execute("SELECT ducklake.rename_catalog(%s, %s)", (name, new_name))
            return get_catalog(connection, new_name)

    def drop_catalog(
        self, name: str, *, if_exists: bool = False, dry_run: bool = False
    ) -> CatalogEntry | None:
        """Drop a catalog: its rows go, its files are scheduled unless a fork reads them.

        Args:
            name: Its name.
            if_exists: None of that name is fine.
            dry_run: Drop nothing; the result is what would be dropped.

        Returns:
            What it was; None when there was none and that is fine.

        Raises:
            NotFound: There is none of that name.
        """
        with self.transaction() as connection:
            found = find_catalog(connection, name)
            if found is None and dry_run and not if_exists:
                return get_catalog(connection, name)
            if not dry_run and (found is not None or not if_exists):
                connection.execute("SELECT ducklake.drop_catalog(%s)", (name,))
            return found

    def grant(self, name: str, role: str, *, writable: bool = True) -> None:
        """Let a role use a catalog; writing may be left out.

        Raises:
            NotFound: There is no such catalog or role.
        """
        with self.transaction() as connection:
            connection.execute("SELECT ducklake.grant_catalog(%s, %s, %s)", (name, role, writable))

    def revoke(self, name: str, role: str) -> bool:
        """Take a catalog away from a role; return whether it had been granted."""
        with self.transaction() as connection:
            found = connection.execute("SELECT ducklake.revoke_catalog(%s, %s)", (name, role))
            return found.fetchone() == (True,)

    def allow(self, name: str, place: str, *, allowed: bool = True) -> bool:
        """Let a catalog's tenants register files below a place outside its root, or no longer.

        Args:
            name: The catalog.
            place: Full path or URL of a directory, or of one file.
            allowed: False takes it back; what is registered there stays.

        Returns:
            Whether that changed anything.

        Raises:
            NotFound: There is no such catalog.
            ConfigurationError: The place is no full path or URL.
            SafetyRefusal: It lies in the root of another catalog or of the store, or around it.
        """
        with self.transaction() as connection:
            query = "SELECT ducklake.allow_prefix(%s, %s, %s)"
            return connection.execute(query, (name, place, allowed)).fetchone() == (True,)

    def catalog(self, name: str) -> CatalogEntry:
        """Return one catalog; raises NotFound."""
        with self._reading() as connection:
            return get_catalog(connection, name)

    def list_catalogs(self, pattern: str = "%", *, limit: int | None = None) -> list[CatalogEntry]:
        """Return the catalogs, by name.

        Args:
            pattern: SQL LIKE pattern the names match, whatever the case of their letters.
            limit: At most so many.
        """
        with self._reading() as connection:
            return list_catalogs(connection, pattern, limit)

    def plan_fleet(self, policy: FleetPolicy | None = None) -> FleetPlan:
        """Find which catalogs need upkeep, and put the best of it into batches.

        Args:
            policy: What counts as work, and the budget.
        """
        chosen = policy or FleetPolicy()
        with self._reading() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # Of a million catalogs the groups would go to disk, several times over.
            connection.execute("SET LOCAL work_mem = '128MB'")
            return plan_fleet(ranked_work(connection, chosen), chosen)

    def purge(
        self,
        storage: StorageOptions | None = None,
        *,
        older_than: str = "2 days",
        force: bool = False,
        dry_run: bool = False,
    ) -> PurgeResult:
        """Delete the files of dropped catalogs that were scheduled long enough ago.

        Args:
            storage: How they are reached; None is the default credential chain.
            older_than: How long ago, such as `7 days`, or before which instant.
            force: Allow less than two days.
            dry_run: Delete nothing; the result says what would be.

        Raises:
            ConfigurationError: `older_than` is neither an age nor an instant.
            SafetyRefusal: It is less than two days, without force.
        """
        options = storage or StorageOptions({})
        return purge(self.transaction, options, older_than, force=force, dry_run=dry_run)

    def write_ledger(self, entries: Iterable[LedgerEntry]) -> None:
        """Note what maintenance did; the views `ducklake_api.maintenance` and `.health` show it."""
        with self.transaction() as connection:
            write_entries(connection, entries)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction of the service role: committed at the end, rolled back on any error.

        Raises:
            LakeError: What the database refuses, as one of this package's kinds.
        """
        with self._reading() as connection:
            yield connection
            reach(FaultPoint.UNCOMMITTED)
            connection.commit()
            reach(FaultPoint.COMMITTED)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Open a transaction that is rolled back unless it was committed."""
        try:
            with self._connection() as connection:
                connection.execute("SET LOCAL TIME ZONE 'UTC'")
                yield connection
                connection.rollback()
        except psycopg.Error as error:
            raise store_error(error) from error

    def _connection(self) -> AbstractContextManager[Connection]:
        return self._kept.borrow() if self._kept else closing(connect(self._conninfo))


def store_error(error: psycopg.Error) -> LakeError:
    """Return an error of the database as one of this package's kinds."""
    text = str(error).strip().split("\n", 1)[0]
    if (refusal := refusal_of_store(error)) is not None:
        return refusal
    if isinstance(error, psycopg.errors.UniqueViolation | psycopg.errors.SerializationFailure):
        return LostRace(f"somebody else was first: {text}")
    if isinstance(error, psycopg.errors.InvalidSchemaName | psycopg.errors.UndefinedTable):
        return NotFound(f"there is no store in this database ({text}): run `store init` first")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return ConfigurationError(f"the database refuses: {text}")
    return CatalogUnavailable(f"the store cannot be reached or refused: {text}")
