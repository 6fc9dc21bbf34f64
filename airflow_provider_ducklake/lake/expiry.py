"""Expiring snapshots: which go, and what no kept snapshot reaches any more."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.errors import CommitConflict, ConfigurationError, NotFound
from airflow_provider_ducklake.lake.file_rows import remove_data_files, schedule_objects
from airflow_provider_ducklake.lake.files import inlined_delete_table
from airflow_provider_ducklake.lake.inlined import drop_inlined_tables
from airflow_provider_ducklake.lake.instants import utc_now
from airflow_provider_ducklake.lake.lake import Lake, LakeView
from airflow_provider_ducklake.lake.model import Snapshot
from airflow_provider_ducklake.lake.reader import check_format, read_options
from airflow_provider_ducklake.lake.references import full_path, table_directories

BATCH: Final = 5_000  # snapshots a transaction

# What describes a table and goes with it (DeleteSnapshots in ducklake_metadata_manager.cpp).
_OF_A_TABLE: Final = (
    "ducklake_table",
    "ducklake_table_stats",
    "ducklake_table_column_stats",
    "ducklake_partition_info",
    "ducklake_partition_column",
    "ducklake_column",
    "ducklake_column_tag",
    "ducklake_sort_info",
    "ducklake_sort_expression",
    "ducklake_schema_versions",
    "ducklake_inlined_data_tables",
    "ducklake_column_mapping",
)


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """Which snapshots would go.

    Attributes:
        expired: Ids, ascending; the newest snapshot of the lake is never among them.
        kept: How many snapshots stay.
    """

    expired: tuple[int, ...]
    kept: int


@dataclass(frozen=True, slots=True)
class ExpiryOutcome:
    """What an expiry did: snapshots removed, objects scheduled for deletion, their bytes."""

    snapshots: int = 0
    data_files: int = 0
    delete_files: int = 0
    size: int = 0


def plan_expiry(
    snapshots: Sequence[Snapshot],
    *,
    older_than: datetime | None = None,
    versions: Collection[int] | None = None,
    retain_last: int | None = None,
) -> ExpiryPlan:
    """Choose the snapshots to expire; every condition given has to hold for each.

    Args:
        snapshots: All kept snapshots, oldest first.
        older_than: Only snapshots made before this instant.
        versions: Only these ids.
        retain_last: Never the newest N snapshots.

    Raises:
        ConfigurationError: No condition is given, or `retain_last` is less than one.
        NotFound: An id of `versions` has never been one of this lake.
    """
    if older_than is None and versions is None and retain_last is None:
        raise ConfigurationError(
            "expire_snapshots needs older_than, versions or retain_last, or the lake's option "
            "expire_older_than"
        )
    if retain_last is not None and retain_last < 1:
        raise ConfigurationError("retain_last must be at least 1: the newest snapshot always stays")
    # One that is gone was expired before, perhaps by an earlier try of the same job.
    newest = snapshots[-1].snapshot_id
    unknown = sorted(version for version in versions or () if not 0 <= version <= newest)
    if unknown:
        raise NotFound(
            f"this lake has had no snapshots {', '.join(map(str, unknown))}: the newest is {newest}"
        )
    # By id, not by time: ids never go back, clocks do.
    candidates = snapshots[: max(len(snapshots) - (retain_last or 1), 0)]
    expired = tuple(
        snapshot.snapshot_id
        for snapshot in candidates
        if (older_than is None or snapshot.time < older_than)
        and (versions is None or snapshot.snapshot_id in versions)
    )
    return ExpiryPlan(expired, len(snapshots) - len(expired))


def commit_expiry(lake: Lake, plan: ExpiryPlan, *, batch: int = BATCH) -> ExpiryOutcome:
    """Expire the planned snapshots, a bounded number a transaction; each leaves a valid catalog.

    Objects only those snapshots reached are scheduled for deletion, not deleted.

    Args:
        lake: The lake.
        plan: As planned; snapshots that are gone by now are passed over.
        batch: Snapshots a transaction.

    Raises:
        CommitConflict: Another maintenance run worked on the same rows at the same time.
    """
    total = ExpiryOutcome()
    for start in range(0, len(plan.expired), batch):
        done = _expire(lake, plan.expired[start : start + batch])
        total = ExpiryOutcome(
            total.snapshots + done.snapshots,
            total.data_files + done.data_files,
            total.delete_files + done.delete_files,
            total.size + done.size,
        )
    return total


def _expire(lake: Lake, ids: Sequence[int]) -> ExpiryOutcome:
    data_path = lake.data_path
    with lake.database.write() as session:
        options = read_options(session)
        check_format(options, lake)
        newest = session.value("SELECT max(snapshot_id) FROM {ducklake_snapshot}")
        if newest in ids:
            raise CommitConflict(f"{lake}: snapshot {newest} is the newest now and has to stay")
        found = session.rows_in(
            "SELECT snapshot_id FROM {ducklake_snapshot} WHERE snapshot_id IN (??)", ids
        )
        for table in ("ducklake_snapshot", "ducklake_snapshot_changes"):
            session.execute_in("DELETE FROM {gone} WHERE snapshot_id IN (??)", ids, gone=table)
        tables, data_files, delete_files = _reached_by_none(session, data_path)
        _remove(session, "ducklake_data_file", data_files)
        _remove(session, "ducklake_delete_file", delete_files)
        now = utc_now()
        for files in (data_files, delete_files):
            schedule_objects(session, data_path, ((i, path) for i, (path, _) in files.items()), now)
        _remove_tables(session, tables)
        _remove_entries(session)
        _remove_inlined(session, data_files)
        return _outcome(len(found), data_files, delete_files)


def predict_expiry(view: LakeView, plan: ExpiryPlan) -> ExpiryOutcome:
    """Return what `commit_expiry` would do, from a catalog in which nothing has happened yet."""
    if not plan.expired:
        return ExpiryOutcome()
    _, data_files, delete_files = _reached_by_none(view.session, view.data_path, plan.expired)
    return _outcome(len(plan.expired), data_files, delete_files)


Files = dict[int, tuple[str, int]]  # id -> (full path, bytes)


def _outcome(snapshots: int, data_files: Files, delete_files: Files) -> ExpiryOutcome:
    size = sum(size for files in (data_files, delete_files) for _, size in files.values())
    return ExpiryOutcome(snapshots, len(data_files), len(delete_files), size)


def _reached_by_none(
    session: Session, data_path: str, expiring: Sequence[int] = ()
) -> tuple[list[int], Files, Files]:
    """Return the tables, data files and delete files that no kept snapshot reaches.

    Args:
        session: A transaction on the catalog.
        data_path: The lake's data path.
        expiring: Snapshots that are still there but count as gone, ascending.
    """
    tables = _unreached_tables(session, expiring)
    data_files = _unreached_files(session, "data_file", tables, data_path, expiring)
    delete_files = _unreached_files(session, "delete_file", tables, data_path, expiring)
    return tables, data_files, delete_files | _deletes_of(session, data_files, data_path)


def unreached(alias: str, expiring: Sequence[int] = ()) -> str:
    """Return the condition that no kept snapshot sees the row of that alias."""
    return (
        f"{alias}.end_snapshot IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {{ducklake_snapshot}} s "
        f"WHERE s.snapshot_id >= {alias}.begin_snapshot AND s.snapshot_id < {alias}.end_snapshot"
        f"{_none_of(expiring)})"
    )


def _none_of(expiring: Sequence[int]) -> str:
    if not expiring:
        return ""
    first, last = int(expiring[0]), int(expiring[-1])
    if last - first + 1 == len(expiring):
        return f" AND s.snapshot_id NOT BETWEEN {first} AND {last}"
    return f" AND s.snapshot_id NOT IN ({', '.join(str(int(i)) for i in expiring)})"


def _unreached_tables(session: Session, expiring: Sequence[int]) -> list[int]:
    """Return the tables of which no version is visible at any kept snapshot."""
    rows = session.rows(
        f"SELECT DISTINCT t.table_id FROM {{ducklake_table}} t WHERE {unreached('t', expiring)} "
        "AND NOT EXISTS (SELECT 1 FROM {ducklake_table} o WHERE o.table_id = t.table_id "
        f"AND NOT ({unreached('o', expiring)}))"
    )
    return [int(table_id) for (table_id,) in rows]


def _unreached_files(
    session: Session,
    kind: str,
    tables: Collection[int],
    data_path: str,
    expiring: Sequence[int],
) -> Files:
    columns = f"f.{kind}_id, f.table_id, f.path, f.path_is_relative, f.file_size_bytes"
    select = f"SELECT {columns} FROM {{ducklake_{kind}}} f WHERE "
    rows = session.rows(select + unreached("f", expiring))
    rows += session.rows_in(select + "f.table_id IN (??)", tables)
    return _with_paths(session, rows, data_path)


def _deletes_of(session: Session, data_files: Files, data_path: str) -> Files:
    rows = session.rows_in(
        "SELECT f.delete_file_id, f.table_id, f.path, f.path_is_relative, f.file_size_bytes "
        "FROM {ducklake_delete_file} f WHERE f.data_file_id IN (??)",
        data_files,
    )
    return _with_paths(session, rows, data_path)


def _with_paths(session: Session, rows: Sequence[tuple[object, ...]], data_path: str) -> Files:
    directories = table_directories(session, data_path)
    files: Files = {}
    for file_id, table_id, path, relative, size in rows:
        full = full_path(directories, int(str(table_id)), str(path), relative)
        files[int(str(file_id))] = (full, int(str(size or 0)))
    return files


def _remove(session: Session, table: str, files: Files) -> None:
    """Remove file rows; every one has to be there, or somebody else is at it too."""
    if table == "ducklake_data_file":
        removed = remove_data_files(session, files)
    else:
        removed = session.execute_in(
            "DELETE FROM {ducklake_delete_file} WHERE delete_file_id IN (??)", files
        )
    if removed not in (-1, len(files)):
        raise CommitConflict("another maintenance run expires the same snapshots; try again later")


def _remove_tables(session: Session, tables: Sequence[int]) -> None:
    for table in _OF_A_TABLE:
        session.execute_in("DELETE FROM {gone} WHERE table_id IN (??)", tables, gone=table)
    drop_inlined_tables(session, tables)


def _remove_entries(session: Session) -> None:
    """Remove schemas, views, tags and macros no kept snapshot sees, and what hangs on them."""
    for table in ("ducklake_schema", "ducklake_view", "ducklake_tag", "ducklake_macro"):
        session.execute("DELETE FROM {gone} AS e WHERE " + unreached("e"), gone=table)
    for table in ("ducklake_macro_impl", "ducklake_macro_parameters"):
        session.execute(
            "DELETE FROM {gone} AS e WHERE NOT EXISTS "
            "(SELECT 1 FROM {ducklake_macro} m WHERE m.macro_id = e.macro_id)",
            gone=table,
        )
    session.execute(
        "DELETE FROM {ducklake_name_mapping} AS e WHERE NOT EXISTS "
        "(SELECT 1 FROM {ducklake_column_mapping} m WHERE m.mapping_id = e.mapping_id)"
    )


def _remove_inlined(session: Session, data_files: Files) -> None:
    """Remove inlined rows no kept snapshot sees, and inlined deletes of files that are gone."""
    of_deletes = inlined_delete_table(0).removesuffix("0")
    for (name,) in session.rows("SELECT table_name FROM {ducklake_inlined_data_tables}"):
        if session.has_table(name):
            session.execute("DELETE FROM {dead} AS e WHERE " + unreached("e"), dead=name)
    for name in session.table_names():
        if name.startswith(of_deletes):
            session.execute_in("DELETE FROM {dead} WHERE file_id IN (??)", data_files, dead=name)
