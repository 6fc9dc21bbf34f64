"""A lake: its catalog database, where its files are, and the way to read and commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from airflow_provider_ducklake.lake import reader
from airflow_provider_ducklake.lake.changes import Change, created_schema
from airflow_provider_ducklake.lake.commit import (
    CommitInfo,
    Committed,
    SnapshotWriter,
    commit,
    find_commit,
)
from airflow_provider_ducklake.lake.database import Database, Session, open_database
from airflow_provider_ducklake.lake.errors import ConfigurationError, NotFound
from airflow_provider_ducklake.lake.files import read_live_files
from airflow_provider_ducklake.lake.inlined import newest_inlined_change
from airflow_provider_ducklake.lake.instants import format_instant, utc_now
from airflow_provider_ducklake.lake.jobs import read_job_snapshots
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.metadata_tables import FORMAT_VERSION
from airflow_provider_ducklake.lake.model import DataFile, Snapshot, Table
from airflow_provider_ducklake.lake.options import LakeOptions
from airflow_provider_ducklake.lake.paths import agreed_data_path, full_directory
from airflow_provider_ducklake.storage import StorageOptions, Store, open_store

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.database.kept_connections import KeptConnections

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LakeView:
    """The catalog inside one short read transaction."""

    session: Session
    options: LakeOptions
    head: Snapshot
    data_path: str

    def tables(self, at: int | None = None) -> list[Table]:
        """Return the tables at a snapshot, by default the newest."""
        snapshot_id = self.head.snapshot_id if at is None else at
        return reader.read_tables(self.session, snapshot_id, self.data_path)

    def table(self, name: str) -> Table:
        """Return one table of the newest snapshot.

        Raises:
            NotFound: There is none of that name.
        """
        return self.table_at(self.head.snapshot_id, name)

    def table_at(self, snapshot_id: int, name: str) -> Table:
        """Return one table at a snapshot, by the name it had then.

        Raises:
            NotFound: There is none of that name.
        """
        return reader.read_table(self.session, snapshot_id, self.data_path, name)

    def live_files(self, table: Table) -> list[DataFile]:
        """Return the data files of a table at the newest snapshot, with their deletes."""
        return read_live_files(self.session, table, self.head.snapshot_id)

    def newest_change(self, table: Table) -> int:
        """Return the newest snapshot that left a trace in a table's rows; -1 when none has.

        A merged file counts by the newest snapshot of its rows, a rewritten one by that of its
        rewrite. Files deleted as a whole leave no trace.
        """
        snapshots = [newest_inlined_change(self.session, table.table_id)]
        for file in self.live_files(table):
            snapshots.append(file.begin_snapshot if file.partial_max is None else file.partial_max)
            snapshots += [delete.begin_snapshot for delete in file.delete_files]
        return max(snapshots)

    def option(self, key: str, table: Table | None = None) -> str | None:
        """Return an option as it applies to a table, or to the whole lake."""
        if table is None:
            return self.options.get(key)
        return self.options.get(key, schema_id=table.schema.schema_id, table_id=table.table_id)


class Lake:
    """One DuckLake catalog and its data path. Opening changes nothing and connects to nothing."""

    def __init__(
        self, location: CatalogLocation, database: Database, storage: StorageOptions
    ) -> None:
        self.location = location
        self.database = database
        self.storage = storage
        # Called before objects are deleted: a catalog that is a copy may not be the newest one.
        self.before_deleting: Callable[[], object] = lambda: None

    @classmethod
    def open(
        cls,
        location: CatalogLocation,
        *,
        storage: StorageOptions | None = None,
        lock_timeout: float = 60.0,
        connections: KeptConnections | None = None,
    ) -> Lake:
        """Return the lake at a location.

        Args:
            location: The catalog.
            storage: How its files, and a catalog in a bucket, are reached; None is the default
                credential chain.
            lock_timeout: Seconds to wait for a catalog file that another client holds.
            connections: Kept ones, for a job that opens very many catalogs of one store.
        """
        database = open_database(
            location, storage=storage, lock_timeout=lock_timeout, connections=connections
        )
        return cls(location, database, storage or StorageOptions({}))

    @classmethod
    def create(
        cls,
        location: CatalogLocation,
        *,
        storage: StorageOptions | None = None,
        encrypted: bool = False,
        if_not_exists: bool = False,
        info: CommitInfo | None = None,
    ) -> Lake:
        """Create the metadata tables, snapshot 0 and schema `main`, as the reference does.

        Args:
            location: The catalog, with the data path; file databases are created too.
            storage: How the data path is reached.
            encrypted: Write every Parquet file encrypted.
            if_not_exists: An existing lake with the same data path is fine.
            info: Stands beside the first snapshot.

        Raises:
            ConfigurationError: There is no data path, or a lake exists already.
        """
        lake = cls.open(location, storage=storage)
        if location.catalog is not None:
            from airflow_provider_ducklake.lake.store.store import CatalogStore

            CatalogStore.at(location).create_catalog(
                location.catalog,
                root=location.data_path,
                encrypted=encrypted,
                if_not_exists=if_not_exists,
                info=info,
            )
            data_path = lake.data_path
            lake.store(data_path).ensure_writable(data_path)
            return lake
        data_path = _new_data_path(location)
        lake.store(data_path).ensure_writable(data_path)
        with lake.database.create() as session:
            if session.has_table("ducklake_metadata"):
                _refuse_existing(location, if_not_exists)
            else:
                _write_new_lake(session, data_path, encrypted, info or CommitInfo())
        lake.check()
        return lake

    @classmethod
    def plan_creation(
        cls,
        location: CatalogLocation,
        *,
        storage: StorageOptions | None = None,
        if_not_exists: bool = False,
    ) -> bool:
        """Tell whether `create` would make a lake, without making anything.

        Raises:
            ConfigurationError: What `create` would refuse.
        """
        lake = cls.open(location, storage=storage)
        exists = lake._exists()
        if exists:
            _refuse_existing(location, if_not_exists)
            lake.check()
        return not exists

    def __str__(self) -> str:
        return str(self.location)

    @contextmanager
    def view(self) -> Iterator[LakeView]:
        """Open a short read transaction that sees one state of the catalog.

        Raises:
            UnsupportedCatalog: It is no DuckLake, or of another format version.
            CatalogUnavailable: The database cannot be reached.
            ConfigurationError: The data path given differs from the catalog's.
        """
        with self.database.read() as session:
            options = reader.read_options(session)
            reader.check_format(options, self)
            yield LakeView(session, options, reader.read_head(session), self._data_path(options))

    def check(self) -> None:
        """Prove that the catalog can be reached and is of a format this package speaks."""
        with self.view():
            pass

    @property
    def data_path(self) -> str:
        """Full path of the data, ending in `/`; a relative local one is made absolute."""
        with self.view() as view:
            return view.data_path

    def head(self) -> Snapshot:
        """Return the newest snapshot."""
        with self.view() as view:
            return view.head

    def snapshots(self, after: int | None = None, *, limit: int | None = None) -> list[Snapshot]:
        """Return the kept snapshots, oldest first.

        Args:
            after: Only those with an id above.
            limit: At most so many: a lake may keep millions, and all are in memory at once.
        """
        with self.view() as view:
            after = -1 if after is None else after
            return reader.read_snapshots(view.session, after=after, limit=limit)

    def tables(self, at: int | None = None) -> list[Table]:
        """Return the tables at a snapshot, by default the newest."""
        with self.view() as view:
            return view.tables(at)

    def table(self, name: str) -> Table:
        """Return one table of the newest snapshot; raises NotFound."""
        with self.view() as view:
            return view.table(name)

    def find_job(self, key: str) -> Committed[object] | None:
        """Return the commit made under an idempotency key with the result stored beside it."""
        with self.view() as view:
            return find_commit(view.session, key)

    def snapshots_of_job(self, key: str) -> list[Snapshot]:
        """Return the kept snapshots of a job, oldest first; see `lake.jobs.read_job_snapshots`."""
        with self.view() as view:
            return read_job_snapshots(view.session, key)

    def commit(
        self,
        *,
        base: int | None,
        changes: Iterable[Change] | Callable[[SnapshotWriter], Iterable[Change]],
        write: Callable[[SnapshotWriter], T],
        info: CommitInfo | None = None,
    ) -> Committed[T]:
        """Commit a change as a new snapshot; see `lake.commit.commit`."""
        return commit(self.database, base=base, changes=changes, write=write, info=info, where=self)

    def store(self, path: str | None = None) -> Store:
        """Return the storage the data lies on."""
        return open_store(path or self.data_path, self.storage)

    def _exists(self) -> bool:
        name = self.location.catalog
        if name is None:
            _new_data_path(self.location)
            try:
                with self.database.read() as session:
                    return session.has_table("ducklake_metadata")
            except NotFound:
                return False
        from airflow_provider_ducklake.lake.store.store import CatalogStore

        store = CatalogStore.at(self.location)
        store.status()  # where there is no store, no catalog would be made
        try:
            return bool(store.catalog(name))
        except NotFound:
            return False

    def _data_path(self, options: LakeOptions) -> str:
        return agreed_data_path(options.get("data_path") or "", self.location.data_path, self)


def _new_data_path(location: CatalogLocation) -> str:
    """Return the data path of a new lake: no job's working directory may matter to the next."""
    if location.data_path is None:
        raise ConfigurationError(
            f"{location}: a new lake needs a data path (--data-path DIRECTORY or URL)"
        )
    return full_directory(location.data_path)


def _refuse_existing(location: CatalogLocation, may_exist: bool) -> None:
    if not may_exist:
        raise ConfigurationError(f"{location} holds a lake already")


def _write_new_lake(session: Session, data_path: str, encrypted: bool, info: CommitInfo) -> None:
    session.create_metadata_tables()
    session.insert("ducklake_snapshot", [(0, format_instant(utc_now()), 0, 1, 0)])
    told = info.text(info.key, uuid4().hex, None) if info.key else None
    made = str(created_schema("main"))
    session.insert("ducklake_snapshot_changes", [(0, made, info.author, info.message, told)])
    settings = {
        "version": FORMAT_VERSION,
        "created_by": "airflow-provider-ducklake-spark",
        "data_path": data_path,
        "encrypted": "true" if encrypted else "false",
    }
    session.insert(
        "ducklake_metadata", [(key, value, None, None) for key, value in settings.items()]
    )
    session.insert("ducklake_schema", [(0, str(uuid4()), 0, None, "main", "main/", True)])
