"""Planning a restore: what an older kept snapshot showed and the newest does not.

A data file keeps its one row in the catalog: a second row with the same path would be a trap, as
the reference deletes a file once the first of them expires. A file that was retired since is
opened again, and a delete file of all its rows hides it from the snapshots in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.entries import EntryChanges, read_entry_changes
from airflow_provider_ducklake.lake.errors import ConfigurationError, NotFound, SafetyRefusal
from airflow_provider_ducklake.lake.files import (
    read_delete_files,
    read_ended_files,
    read_inlined_deletes,
    read_live_files,
)
from airflow_provider_ducklake.lake.inlined import InlinedRestore, read_inlined_restore
from airflow_provider_ducklake.lake.lake import LakeView
from airflow_provider_ducklake.lake.model import DataFile, DeleteFile, Snapshot, Table
from airflow_provider_ducklake.lake.reader import (
    newest_by,
    read_chosen_snapshots,
    read_snapshots,
)


@dataclass(frozen=True, slots=True)
class FileChange:
    """A data file the older snapshot shows, and the newest not, or with other deletes.

    Attributes:
        then: The file with the deletes of the older snapshot.
        last: The file with the deletes of the newest snapshot it was in.
        inlined: (position, snapshot id) of all its inlined deletes.
        hidden_since: First snapshot without the file, when kept snapshots of its table follow.
        same: The file and its deletes only have to be opened again, as they were.
    """

    then: DataFile
    last: DataFile
    inlined: tuple[tuple[int, int], ...] = ()
    hidden_since: int | None = None
    same: bool = False

    @property
    def rewrites_history(self) -> bool:
        """Whether the deletes up to now have to go into one file that ends with the restore."""
        return bool(self.inlined) or self.hidden_since is not None


@dataclass(frozen=True, slots=True)
class TableRestore:
    """What a restore would do to one table.

    Attributes:
        table: The table as the older snapshot shows it.
        is_live: The newest snapshot shows it too, under whatever name.
        live: How many data files the newest snapshot has of it.
        retired: Files that came later and go.
        changed: Files that come back, or get their older deletes back.
        inlined: Inlined rows that come and go.
        entries: What describes the table and differs; empty when the whole lake is restored.
    """

    table: Table
    is_live: bool
    live: int
    retired: tuple[DataFile, ...]
    changed: tuple[FileChange, ...]
    inlined: InlinedRestore
    entries: tuple[EntryChanges, ...] = ()

    @property
    def has_other_rows(self) -> bool:
        """Whether the rows of the table may differ."""
        return bool(self.retired or self.changed or self.inlined.is_needed)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore would do.

    Attributes:
        base: Snapshot it was planned on, the newest then.
        target: The older snapshot.
        tables: Tables the older snapshot shows.
        dropped: Tables only the newest shows; they go.
        entries: What describes the lake and differs, all of it or of the one table.
    """

    base: int
    target: int
    tables: tuple[TableRestore, ...]
    dropped: tuple[Table, ...] = ()
    entries: tuple[EntryChanges, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to restore."""
        return bool(self.entries or any(table.has_other_rows for table in self.tables))

    def is_same(self, other: RestorePlan) -> bool:
        """Tell whether two plans do the same, on whatever snapshot they were made."""
        return replace(self, base=0) == replace(other, base=0)


def find_target(
    view: LakeView, *, snapshot_id: int | None = None, at: datetime | None = None
) -> Snapshot:
    """Return the snapshot to restore.

    Args:
        view: The lake.
        snapshot_id: The snapshot, or
        at: an instant: the newest snapshot that was there by then.

    Raises:
        NotFound: It was expired, is yet to come, or there is none so old.
        ConfigurationError: Neither or both are given.
    """
    if (snapshot_id is None) == (at is None):
        raise ConfigurationError("say which snapshot to restore: either snapshot=ID or at=TIME")
    session = view.session
    chosen = newest_by(session, at) if at is not None else snapshot_id
    found = [] if chosen is None else read_chosen_snapshots(session, [chosen])
    if found:
        return found[0]
    if snapshot_id is not None and snapshot_id > view.head.snapshot_id:
        raise NotFound(
            f"snapshot {snapshot_id} is yet to come; the newest is {view.head.snapshot_id}"
        )
    [oldest] = read_snapshots(session, limit=1)
    if at is not None:
        raise NotFound(
            f"no kept snapshot is as old as {at.isoformat()}; the oldest, "
            f"{oldest.snapshot_id}, is of {oldest.time.isoformat()}"
        )
    kept = session.value("SELECT count(*) FROM {ducklake_snapshot}")
    raise NotFound(
        f"snapshot {snapshot_id} was expired, so it cannot be restored; kept are "
        f"{oldest.snapshot_id} to {view.head.snapshot_id}, {kept} of them"
    )


def plan_table_restore(view: LakeView, target: int, name: str) -> RestorePlan:
    """Plan to put one table back to what a snapshot shows.

    Args:
        view: The lake.
        target: A kept snapshot.
        name: The table's name at that snapshot.

    Raises:
        NotFound: The snapshot has no such table.
        ConfigurationError: Its schema is gone, or its name is another table's now.
        SafetyRefusal: Its deletes are of a shape that cannot be restored safely.
    """
    table = view.table_at(target, name)
    entries = read_entry_changes(view.session, target, table_id=table.table_id)
    _require_place(view, table, entries)
    restore = _table_restore(view, target, table)
    if not restore.has_other_rows and not entries:
        return RestorePlan(view.head.snapshot_id, target, ())
    return RestorePlan(view.head.snapshot_id, target, (restore,), entries=entries)


def plan_lake_restore(view: LakeView, target: int) -> RestorePlan:
    """Plan to put the whole lake back to what a snapshot shows.

    Args:
        view: The lake.
        target: A kept snapshot.

    Raises:
        SafetyRefusal: A schema, or deletes of a table, cannot be restored safely.
    """
    entries = read_entry_changes(view.session, target)
    _require_schemas(view, entries)
    then, now = view.tables(target), view.tables()
    known = {table.table_id for table in then}
    described = {table_id for change in entries for table_id in change.table_ids}
    restores = (_table_restore(view, target, table) for table in then)
    return RestorePlan(
        view.head.snapshot_id,
        target,
        tuple(r for r in restores if r.has_other_rows or r.table.table_id in described),
        tuple(table for table in now if table.table_id not in known),
        entries,
    )


def _require_place(view: LakeView, table: Table, entries: Sequence[EntryChanges]) -> None:
    """Refuse a table that would come back into a schema that is gone, or under a name in use."""
    rows = [
        entry for change in entries if change.table == "ducklake_table" for entry in change.back
    ]
    if not rows:
        return
    [row] = rows
    parameters = (row["schema_id"],)
    if not view.session.value(
        "SELECT count(*) FROM {ducklake_schema} WHERE schema_id = ? AND end_snapshot IS NULL",
        parameters,
    ):
        raise ConfigurationError(
            f"{table.full_name} cannot come back alone: its schema was dropped since. Restore the "
            "whole lake (without --table)"
        )
    names = view.session.rows(
        "SELECT table_name FROM {ducklake_table} WHERE schema_id = ? AND end_snapshot IS NULL "
        "AND table_id <> ? UNION ALL "
        "SELECT view_name FROM {ducklake_view} WHERE schema_id = ? AND end_snapshot IS NULL",
        (*parameters, table.table_id, *parameters),
    )
    if any(name.lower() == table.name.lower() for (name,) in names):
        raise ConfigurationError(
            f"{table.full_name} cannot come back: another table or view has that name now. Rename "
            "it first, or restore the whole lake (without --table)"
        )


def _require_schemas(view: LakeView, entries: Sequence[EntryChanges]) -> None:
    """Refuse a schema that comes back while kept snapshots show another one of its name.

    It is opened again, so those snapshots will show it too, empty.
    """
    back = [
        entry for change in entries if change.table == "ducklake_schema" for entry in change.back
    ]
    for entry in back:
        rows = view.session.rows(
            "SELECT DISTINCT o.schema_name FROM {ducklake_schema} o JOIN {ducklake_schema} s "
            "ON s.schema_id = ? AND o.schema_id <> s.schema_id "
            "JOIN {ducklake_snapshot} k ON k.snapshot_id >= s.end_snapshot AND k.snapshot_id <= ? "
            "AND k.snapshot_id >= o.begin_snapshot "
            "AND (o.end_snapshot IS NULL OR k.snapshot_id < o.end_snapshot)",
            (entry["schema_id"], view.head.snapshot_id),
        )
        name = str(entry["schema_name"])
        if any(other.lower() == name.lower() for (other,) in rows):
            raise SafetyRefusal(
                f"schema {name} cannot come back: kept snapshots show another schema of that name, "
                "and would show two. Drop that one and expire the snapshots that show it first"
            )


def _table_restore(view: LakeView, target: int, table: Table) -> TableRestore:
    session, head = view.session, view.head.snapshot_id
    before = read_live_files(session, table, target)
    now = {file.data_file_id: file for file in read_live_files(session, table, head)}
    ended_ids = [file.data_file_id for file in before if file.data_file_id not in now]
    ended = {f.data_file_id: f for f in read_ended_files(session, table, ended_ids)}
    deletes = read_delete_files(session, table)
    inlined = read_inlined_deletes(session, table.table_id)
    last_seen = _last_seen(session, table.table_id, target, head)
    changed = []
    for file in before:
        last = now.get(file.data_file_id) or ended[file.data_file_id]
        positions = tuple(sorted(inlined.get(file.data_file_id, ())))
        change = _file_change(target, file, last, positions, last_seen)
        if change is not None:
            _require_safe(table, change, deletes.get(file.data_file_id, []))
            changed.append(change)
    older = {file.data_file_id for file in before}
    live = session.value(
        "SELECT count(*) FROM {ducklake_table} WHERE table_id = ? AND end_snapshot IS NULL",
        (table.table_id,),
    )
    return TableRestore(
        table,
        bool(live),
        len(now),
        tuple(file for file_id, file in now.items() if file_id not in older),
        tuple(changed),
        read_inlined_restore(session, table.table_id, target),
    )


def _file_change(
    target: int,
    then: DataFile,
    last: DataFile,
    inlined: tuple[tuple[int, int], ...],
    last_seen: int,
) -> FileChange | None:
    same = _has_same_deletes(target, then, last)
    end = last.end_snapshot
    if end is None:
        return None if same else FileChange(then, last, inlined)
    # Where no kept snapshot shows the table without the file, there is nobody to hide it from.
    hidden_since = end if last_seen >= end else None
    if same and hidden_since is None:
        return FileChange(then, last, same=True)
    return FileChange(then, last, inlined, hidden_since)


def _has_same_deletes(target: int, then: DataFile, last: DataFile) -> bool:
    newest = [then.partial_max, *(delete.partial_max for delete in then.delete_files)]
    return (
        (then.delete_files, then.inlined_deletes) == (last.delete_files, last.inlined_deletes)
    ) and all(snapshot is None or snapshot <= target for snapshot in newest)


def _require_safe(table: Table, change: FileChange, deletes: Sequence[DeleteFile]) -> None:
    """Refuse a file whose delete files overlap, or would once its inlined deletes are in one.

    A reader expects one delete file a data file and snapshot.
    """
    spans = [(d.begin_snapshot, d.end_snapshot, d.delete_file_id) for d in deletes]
    replaced = {delete.delete_file_id for delete in change.last.delete_files}
    if change.rewrites_history and not change.same:
        begins = [snapshot for _, snapshot in change.inlined]
        begins += [begin for begin, _, file_id in spans if file_id in replaced]
        if change.hidden_since is not None:
            begins.append(change.hidden_since)
        spans = [span for span in spans if span[2] not in replaced] + [(min(begins), None, -1)]
    spans.sort(key=lambda span: span[0])
    for (_, end, _), (begin, _, _) in pairwise(spans):
        if end is None or end > begin:
            raise SafetyRefusal(
                f"{table.full_name}: deletes of data file {change.then.path} overlap in a way that "
                "no restore keeps readable for every client; copy the rows instead: INSERT INTO "
                "… SELECT … FROM … AT (VERSION => …)"
            )


def _last_seen(session: Session, table_id: int, target: int, head: int) -> int:
    """Return the last kept snapshot after another that shows a table; -1 when there is none."""
    found = session.value(
        "SELECT max(s.snapshot_id) FROM {ducklake_table} t JOIN {ducklake_snapshot} s "
        "ON s.snapshot_id >= t.begin_snapshot "
        "AND (t.end_snapshot IS NULL OR s.snapshot_id < t.end_snapshot) "
        "WHERE t.table_id = ? AND s.snapshot_id > ? AND s.snapshot_id <= ?",
        (table_id, target, head),
    )
    return -1 if found is None else int(found)
