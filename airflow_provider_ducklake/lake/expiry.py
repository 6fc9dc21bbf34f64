"""Expiring snapshots: which go, and what no kept snapshot reaches any more."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import merge
from typing import Final

from airflow_provider_ducklake.lake.changes import told_without_files
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.errors import CommitConflict, ConfigurationError, NotFound
from airflow_provider_ducklake.lake.file_rows import remove_data_files, schedule_objects
from airflow_provider_ducklake.lake.files import inlined_delete_table
from airflow_provider_ducklake.lake.inlined import drop_inlined_tables
from airflow_provider_ducklake.lake.instants import utc_now
from airflow_provider_ducklake.lake.lake import Lake, LakeView
from airflow_provider_ducklake.lake.reader import check_format, read_options
from airflow_provider_ducklake.lake.references import full_path, table_directories

FILES: Final = 20_000  # file rows in memory
# So long a client's transaction may have been open when it looks for what it is in conflict with.
LOOK_BACK: Final = timedelta(days=1)

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
    """Which snapshots would go, and which stay: ids, ascending, eight bytes each.

    Attributes:
        expired: The newest snapshot of the lake is never among them.
        kept: All others.
        settled: No transaction that is still open began before this snapshot; -1 if there is none.
    """

    expired: Sequence[int]
    kept: Sequence[int]
    settled: int = -1


@dataclass(frozen=True, slots=True)
class ExpiryOutcome:
    """What an expiry did: snapshots removed, objects scheduled for deletion, their bytes."""

    snapshots: int = 0
    data_files: int = 0
    delete_files: int = 0
    size: int = 0

    def __add__(self, other: ExpiryOutcome) -> ExpiryOutcome:
        return ExpiryOutcome(
            self.snapshots + other.snapshots,
            self.data_files + other.data_files,
            self.delete_files + other.delete_files,
            self.size + other.size,
        )


def plan_expiry(
    snapshots: Iterable[tuple[int, datetime]],
    *,
    now: datetime,
    older_than: datetime | None = None,
    versions: Sequence[range] | None = None,
    retain_last: int | None = None,
) -> ExpiryPlan:
    """Choose the snapshots to expire; every condition given has to hold for each.

    Args:
        snapshots: Id and time of all kept snapshots, oldest first.
        now: The current instant.
        older_than: Only snapshots made before this instant.
        versions: Only these ids, ascending ranges of which none meets another.
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
    expired, kept, settled = array("q"), array("q"), -1
    last: deque[int] = deque(maxlen=retain_last or 1)
    firsts = [ids.start for ids in versions or ()]
    for snapshot_id, made in snapshots:
        last.append(snapshot_id)
        if made < now - LOOK_BACK:
            settled = snapshot_id
        place = bisect_right(firsts, snapshot_id) - 1
        wanted = versions is None or (place >= 0 and snapshot_id in versions[place])
        goes = wanted and (older_than is None or made < older_than)
        (expired if goes else kept).append(snapshot_id)
    newest = last[-1]
    # One that is gone was expired before, perhaps by an earlier try of the same job.
    unknown = [ids for ids in versions or () if ids[0] < 0 or ids[-1] > newest]
    if unknown:
        raise NotFound(
            f"this lake has had no snapshots {', '.join(map(_shown, unknown))}: the newest is "
            f"{newest}"
        )
    # By id, not by time: ids never go back, clocks do.
    stay = expired[bisect_left(expired, last[0]) :]
    del expired[len(expired) - len(stay) :]
    return ExpiryPlan(expired, array("q", merge(kept, stay)), settled)


def _shown(ids: range) -> str:
    return str(ids[0]) if len(ids) == 1 else f"{ids[0]}..{ids[-1]}"


def commit_expiry(
    lake: Lake, ids: Sequence[int], *, settled: int, sweep: bool = True
) -> ExpiryOutcome:
    """Expire some snapshots in one transaction, which leaves a valid catalog.

    Objects only those snapshots reached are scheduled for deletion, not deleted. What they changed
    stays in `ducklake_snapshot_changes` while an open transaction may look there, and goes with a
    later expiry.

    Args:
        lake: The lake.
        ids: Snapshots, ascending; those that are gone by now are passed over.
        settled: See `ExpiryPlan`.
        sweep: Look at everything no kept snapshot reaches. Without it only at what these snapshots
            reached: enough for all but the first of several calls.

    Raises:
        CommitConflict: Another maintenance run worked on the same rows at the same time, or one of
            the snapshots is the newest now.
    """
    data_path = lake.data_path
    span = None if sweep else (ids[0], ids[-1])
    with lake.database.write() as session:
        options = read_options(session)
        check_format(options, lake)
        newest = session.value("SELECT max(snapshot_id) FROM {ducklake_snapshot}")
        if newest in ids:
            raise CommitConflict(
                f"{lake}: snapshot {newest} is the newest now and has to stay; plan again"
            )
        found = session.rows_in(
            "SELECT snapshot_id FROM {ducklake_snapshot} WHERE snapshot_id IN (??)", ids
        )
        session.execute_in("DELETE FROM {ducklake_snapshot} WHERE snapshot_id IN (??)", ids)
        _remove_changes(session, ids, settled, sweep=sweep)
        tables = _unreached_tables(session, span)
        files = _Files(session, data_path, tables, unreached("f", span))
        done = files.remove_all()
        _remove_tables(session, tables)
        _remove_entries(session, span)
        _remove_inlined_rows(session, span)
        return done + ExpiryOutcome(snapshots=len(found))


def _remove_changes(session: Session, ids: Sequence[int], settled: int, *, sweep: bool) -> None:
    """Remove what settled snapshots changed; let others say what a client has to know of them.

    The reference reads it without asking for the snapshots (GetSnapshotAndStatsAndChangesQuery in
    ducklake_metadata_manager.cpp): without it the delete of an open transaction, of rows in a file
    that was merged, would be lost without a word.
    """
    young = bisect_right(ids, settled)
    session.execute_in(
        "DELETE FROM {ducklake_snapshot_changes} WHERE snapshot_id IN (??)", ids[:young]
    )
    for snapshot_id, text in session.rows_in(
        "SELECT snapshot_id, changes_made FROM {ducklake_snapshot_changes} "
        "WHERE snapshot_id IN (??)",
        ids[young:],
    ):
        if (told := told_without_files(text or "")) != text:
            session.execute(
                "UPDATE {ducklake_snapshot_changes} SET changes_made = ? WHERE snapshot_id = ?",
                (told, snapshot_id),
            )
    if sweep:
        session.execute(
            "DELETE FROM {ducklake_snapshot_changes} AS e WHERE e.snapshot_id <= ? AND NOT EXISTS "
            "(SELECT 1 FROM {ducklake_snapshot} s WHERE s.snapshot_id = e.snapshot_id)",
            (settled,),
        )


def unreached(alias: str, span: tuple[int, int] | None = None) -> str:
    """Return the condition that no kept snapshot sees the row of that alias.

    Args:
        alias: Of a row with a begin and an end snapshot.
        span: Only rows that some snapshot from the first to the last of these could see.
    """
    near = ""
    if span is not None:
        first, last = map(int, span)
        near = f" AND {alias}.begin_snapshot <= {last} AND {alias}.end_snapshot > {first}"
    return (
        f"{alias}.end_snapshot IS NOT NULL{near} AND NOT EXISTS ("
        f"SELECT 1 FROM {{ducklake_snapshot}} s WHERE s.snapshot_id >= {alias}.begin_snapshot "
        f"AND s.snapshot_id < {alias}.end_snapshot)"
    )


def _unreached_tables(session: Session, span: tuple[int, int] | None) -> list[int]:
    """Return the tables of which no version is visible at any kept snapshot."""
    rows = session.rows(
        f"SELECT DISTINCT t.table_id FROM {{ducklake_table}} t WHERE {unreached('t', span)} "
        "AND NOT EXISTS (SELECT 1 FROM {ducklake_table} o WHERE o.table_id = t.table_id "
        f"AND NOT ({unreached('o')}))"
    )
    return [int(table_id) for (table_id,) in rows]


@dataclass(frozen=True, slots=True)
class _File:
    """An object that leaves the catalog."""

    file_id: int
    path: str
    size: int


class _Files:
    """The data and delete files nothing reaches, taken out a bounded number at a time.

    Args:
        session: The transaction in which the snapshots went.
        data_path: The lake's data path.
        tables: Tables that go, with all their files.
        condition: What else goes, of a file row called `f`.
    """

    def __init__(
        self, session: Session, data_path: str, tables: Sequence[int], condition: str
    ) -> None:
        self._session = session
        self._data_path = data_path
        self._tables = tables
        self._condition = condition
        self._directories = table_directories(session, data_path)
        prefix = inlined_delete_table(0).removesuffix("0")
        self._inlined = [name for name in session.table_names() if name.startswith(prefix)]
        self._now = utc_now()

    def remove_all(self) -> ExpiryOutcome:
        """Take the files out of the catalog and schedule their objects."""
        total = ExpiryOutcome()
        while files := self._some("data_file"):
            ids = [file.file_id for file in files]
            deletes = self._read("delete_file", "f.data_file_id IN (??)", ids)
            for name in self._inlined:
                self._session.execute_in("DELETE FROM {dead} WHERE file_id IN (??)", ids, dead=name)
            _require_all(remove_data_files(self._session, ids), files)
            total += self._retired(files, deletes)
        while deletes := self._some("delete_file"):
            total += self._retired([], deletes)
        return total

    def _retired(self, files: Sequence[_File], deletes: Sequence[_File]) -> ExpiryOutcome:
        removed = self._session.execute_in(
            "DELETE FROM {ducklake_delete_file} WHERE delete_file_id IN (??)",
            [file.file_id for file in deletes],
        )
        _require_all(removed, deletes)
        both = [*files, *deletes]
        objects = ((file.file_id, file.path) for file in both)
        schedule_objects(self._session, self._data_path, objects, self._now)
        return ExpiryOutcome(0, len(files), len(deletes), sum(file.size for file in both))

    def _some(self, kind: str) -> list[_File]:
        found = self._read(kind, f"{self._condition} LIMIT {FILES}")
        if not found and self._tables:
            found = self._read(kind, f"f.table_id IN (??) LIMIT {FILES}", self._tables)
        return found

    def _read(self, kind: str, where: str, ids: Sequence[int] | None = None) -> list[_File]:
        query = (
            f"SELECT f.{kind}_id, f.table_id, f.path, f.path_is_relative, f.file_size_bytes "
            f"FROM {{ducklake_{kind}}} f WHERE {where}"
        )
        rows = self._session.rows(query) if ids is None else self._session.rows_in(query, ids)
        return [
            _File(
                int(file_id),
                full_path(self._directories, int(table_id), path, relative),
                int(size or 0),
            )
            for file_id, table_id, path, relative, size in rows
        ]


def _require_all(removed: int, files: Sequence[_File]) -> None:
    """Refuse when a row was not there any more: somebody else is at it too."""
    if removed not in (-1, len(files)):
        raise CommitConflict("another maintenance run expires the same snapshots; try again later")


def predict_expiry(view: LakeView, plan: ExpiryPlan) -> ExpiryOutcome:
    """Return what `commit_expiry` would do, from a catalog in which nothing has happened yet."""
    if not plan.expired:
        return ExpiryOutcome()
    session = view.session

    def goes(begin: int, end: int | None) -> bool:
        place = bisect_left(plan.kept, begin)
        return end is not None and (place == len(plan.kept) or plan.kept[place] >= end)

    stay: dict[int, bool] = {}
    for table_id, begin, end in session.rows(
        "SELECT table_id, begin_snapshot, end_snapshot FROM {ducklake_table}"
    ):
        stay[int(table_id)] = stay.get(int(table_id), False) or not goes(begin, end)
    total, gone = ExpiryOutcome(snapshots=len(plan.expired)), array("q")
    for file_id, table_id, begin, end, size in session.stream(
        "SELECT data_file_id, table_id, begin_snapshot, end_snapshot, file_size_bytes "
        "FROM {ducklake_data_file} ORDER BY data_file_id"
    ):
        if goes(begin, end) or not stay.get(table_id, True):
            gone.append(file_id)
            total += ExpiryOutcome(data_files=1, size=size or 0)
    for file_id, table_id, begin, end, size in session.stream(
        "SELECT data_file_id, table_id, begin_snapshot, end_snapshot, file_size_bytes "
        "FROM {ducklake_delete_file}"
    ):
        place = bisect_left(gone, file_id)
        of_gone = place < len(gone) and gone[place] == file_id
        if of_gone or goes(begin, end) or not stay.get(table_id, True):
            total += ExpiryOutcome(delete_files=1, size=size or 0)
    return total


def _remove_tables(session: Session, tables: Sequence[int]) -> None:
    for table in _OF_A_TABLE:
        session.execute_in("DELETE FROM {gone} WHERE table_id IN (??)", tables, gone=table)
    drop_inlined_tables(session, tables)


def _remove_entries(session: Session, span: tuple[int, int] | None) -> None:
    """Remove schemas, views, tags and macros no kept snapshot sees, and what hangs on them."""
    for table in ("ducklake_schema", "ducklake_view", "ducklake_tag", "ducklake_macro"):
        session.execute("DELETE FROM {gone} AS e WHERE " + unreached("e", span), gone=table)
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


def _remove_inlined_rows(session: Session, span: tuple[int, int] | None) -> None:
    """Remove inlined rows no kept snapshot sees."""
    for (name,) in session.rows("SELECT table_name FROM {ducklake_inlined_data_tables}"):
        if session.has_table(name):
            session.execute("DELETE FROM {dead} AS e WHERE " + unreached("e", span), dead=name)
