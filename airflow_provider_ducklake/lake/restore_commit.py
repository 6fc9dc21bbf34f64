"""Committing a restore: the new snapshot shows what an older one did, and no snapshot changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from airflow_provider_ducklake.lake.append import table_result_dict
from airflow_provider_ducklake.lake.changes import (
    Change,
    created_schema,
    created_table,
    dropped_schema,
    table_change,
)
from airflow_provider_ducklake.lake.columns import Column, leaves
from airflow_provider_ducklake.lake.commit import CommitInfo, Committed, SnapshotWriter
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.entries import EntryChanges, apply_entry_changes
from airflow_provider_ducklake.lake.errors import CommitConflict
from airflow_provider_ducklake.lake.file_rows import (
    NewDeleteFile,
    add_delete_files,
    end_files,
    schedule_objects,
)
from airflow_provider_ducklake.lake.files import read_live_files
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.inlined import (
    inlined_tables,
    remove_inlined_deletes,
    restore_inlined_rows,
)
from airflow_provider_ducklake.lake.lake import Lake, LakeView
from airflow_provider_ducklake.lake.model import DataFile, Table, WrittenDeleteFile
from airflow_provider_ducklake.lake.reader import column_versions, read_schemas
from airflow_provider_ducklake.lake.restore import (
    FileChange,
    RestorePlan,
    TableRestore,
    plan_lake_restore,
    plan_table_restore,
)
from airflow_provider_ducklake.lake.results import TableResult
from airflow_provider_ducklake.lake.table_stats import (
    add_rows,
    forget_bounds,
    read_file_statistics,
    read_table_statistics,
)
from airflow_provider_ducklake.lake.transfer.inlined_rows import data_columns

# Changes of these give a table a new shape, which new files and inlined rows have to be told by.
_SHAPES = ("ducklake_table", "ducklake_column", "ducklake_partition_info", "ducklake_sort_info")


@dataclass(frozen=True, slots=True)
class RestoredDeletes:
    """The delete files written for one data file, and how many of its rows come and go.

    Attributes:
        change: The planned change.
        now: Applies from the restore on; None when nothing is deleted.
        history: Applies until the restore; None when the delete files there are stay.
    """

    change: FileChange
    back: int
    gone: int
    now: WrittenDeleteFile | None = None
    history: WrittenDeleteFile | None = None

    @property
    def is_needed(self) -> bool:
        """Whether the file's rows differ at all."""
        return bool(self.back or self.gone or self.change.last.end_snapshot is not None)


Outputs = Mapping[int, tuple[RestoredDeletes, ...]]  # by table id


def commit_restore(
    lake: Lake,
    plan: RestorePlan,
    outputs: Outputs,
    *,
    name: str | None = None,
    info: CommitInfo | None = None,
) -> Committed[tuple[TableResult, ...]]:
    """Commit a restore.

    Args:
        lake: The lake.
        plan: As planned.
        outputs: Delete files written for the changed files, by table id.
        name: The table's name when the plan is of one table, None when it is of the lake.
        info: For the commit.

    Raises:
        CommitConflict: Another writer changed what the plan builds on.
    """

    def write(writer: SnapshotWriter) -> tuple[TableResult, ...]:
        _require_same(writer, plan, name, data_path)
        for restore in plan.tables:
            _restore_files(writer, restore, outputs.get(restore.table.table_id, ()), data_path)
        for table in plan.dropped:
            _end_all_files(writer, table.table_id)
        apply_entry_changes(writer, plan.entries)
        if plan.entries:
            writer.schema_changed(sorted(_reshaped(plan)))
        results = restore_results(plan, outputs, writer.snapshot_id)
        for restore, result in zip(plan.tables, results, strict=True):
            _restore_inlined(writer, restore, plan.target, lake)
            _refresh_statistics(writer, plan, restore, result)
        # A client that is attached keeps what it knows of a table's statistics and its next row
        # id as long as next_file_id stays (InvalidateTableStatsCache in ducklake_catalog.cpp).
        writer.new_file_id()
        writer.result = {"tables": [table_result_dict(result) for result in results[:100]]}
        return results

    def changes(writer: SnapshotWriter) -> list[Change]:
        return _changes(writer, plan, data_path)

    data_path = lake.data_path
    return lake.commit(base=plan.base, changes=changes, write=write, info=info)


def restore_results(
    plan: RestorePlan, outputs: Outputs, snapshot_id: int | None = None
) -> tuple[TableResult, ...]:
    """Return what a restore does, or would do, to each table."""
    results = []
    for restore in plan.tables:
        files = outputs.get(restore.table.table_id, ())
        reopened = [c for c in restore.changed if c.last.end_snapshot is not None]
        as_they_were = [c.last for c in restore.changed if c.same]
        results.append(
            TableResult(
                restore.table.full_name,
                files_before=restore.live,
                files_after=restore.live - len(restore.retired) + len(reopened),
                files_in=len(restore.retired),
                files_out=len(reopened),
                bytes_in=sum(file.file_size_bytes for file in restore.retired),
                bytes_out=sum(change.last.file_size_bytes for change in reopened),
                rows=_rows(as_they_were)
                + sum(file.back for file in files)
                + restore.inlined.rows_back,
                deleted_rows=_rows(restore.retired)
                + sum(file.gone for file in files)
                + restore.inlined.rows_gone,
                snapshot_id=snapshot_id,
            )
        )
    return tuple(results)


def _rows(files: Iterable[DataFile]) -> int:
    return sum(
        file.record_count
        - sum(delete.delete_count for delete in file.delete_files)
        - len(file.inlined_deletes)
        for file in files
    )


def _require_same(
    writer: SnapshotWriter, plan: RestorePlan, name: str | None, data_path: str
) -> None:
    kept = writer.session.value(
        "SELECT count(*) FROM {ducklake_snapshot} WHERE snapshot_id = ?", (plan.target,)
    )
    view = LakeView(writer.session, writer.options, writer.head, data_path)
    if kept:
        now = (
            plan_lake_restore(view, plan.target)
            if name is None
            else plan_table_restore(view, plan.target, name)
        )
        if now.is_same(plan):
            return
    raise CommitConflict(
        f"{name or 'the lake'} was changed, or snapshot {plan.target} expired, while the restore "
        "was made; plan again"
    )


def _restore_files(
    writer: SnapshotWriter,
    restore: TableRestore,
    outputs: Iterable[RestoredDeletes],
    data_path: str,
) -> None:
    session, new = writer.session, writer.snapshot_id
    end_files(writer, (file.data_file_id for file in restore.retired))
    for change in restore.changed:
        if change.same:
            _open(session, "ducklake_delete_file", change)
            _open(session, "ducklake_data_file", change)
    added: list[NewDeleteFile] = []
    for output in outputs:
        if not output.is_needed:
            continue
        change = output.change
        last, file_id = change.last, change.last.data_file_id
        if output.history is not None:
            added.append(NewDeleteFile(output.history, file_id, _first(output.history), new))
            _replace_deletes(writer, restore.table, change, data_path)
        else:
            session.execute(
                "UPDATE {ducklake_delete_file} SET end_snapshot = ? "
                "WHERE data_file_id = ? AND end_snapshot IS NULL",
                (last.end_snapshot or new, file_id),
            )
        if last.end_snapshot is not None:
            _open(session, "ducklake_data_file", change)
        if output.now is not None:
            added.append(NewDeleteFile(output.now, file_id, new))
    add_delete_files(writer, restore.table, added)


def _open(session: Session, table: str, change: FileChange) -> None:
    """Make a data file, or the delete files it had when it ended, live again."""
    column, ids = "data_file_id", [change.last.data_file_id]
    if table == "ducklake_delete_file":
        column, ids = "delete_file_id", [d.delete_file_id for d in change.last.delete_files]
    opened = session.execute_in(
        "UPDATE {files} SET end_snapshot = NULL WHERE " + column + " IN (??)", ids, files=table
    )
    if opened not in (-1, len(ids)):
        raise CommitConflict(
            f"file {change.last.path} was expired while it was restored; plan again"
        )


def _replace_deletes(
    writer: SnapshotWriter, table: Table, change: FileChange, data_path: str
) -> None:
    """Take out the deletes that the file of a file's past deletes holds too."""
    old = change.last.delete_files
    removed = writer.session.execute_in(
        "DELETE FROM {ducklake_delete_file} WHERE delete_file_id IN (??)",
        (delete.delete_file_id for delete in old),
    )
    if removed not in (-1, len(old)):
        raise CommitConflict(
            f"{table.full_name}: delete files went while the restore was made; plan again"
        )
    objects = [(delete.delete_file_id, delete.path) for delete in old]
    schedule_objects(writer.session, data_path, objects, writer.now)
    ids = [change.last.data_file_id]
    remove_inlined_deletes(writer.session, table.table_id, ids, writer.head.snapshot_id)


def _first(file: WrittenDeleteFile) -> int:
    assert file.first_snapshot is not None
    return file.first_snapshot


def _end_all_files(writer: SnapshotWriter, table_id: int) -> None:
    for files in ("ducklake_data_file", "ducklake_delete_file"):
        writer.session.execute(
            "UPDATE {files} SET end_snapshot = ? WHERE table_id = ? AND end_snapshot IS NULL",
            (writer.snapshot_id, table_id),
            files=files,
        )


def _reshaped(plan: RestorePlan) -> set[int]:
    """Return the tables of the older snapshot that get another shape, name or place."""
    ids = {i for change in plan.entries if change.table in _SHAPES for i in change.table_ids}
    return ids & {restore.table.table_id for restore in plan.tables}


def _restore_inlined(
    writer: SnapshotWriter, restore: TableRestore, target: int, lake: Lake
) -> None:
    session, table = writer.session, restore.table
    sources = [s for s in inlined_tables(session, table.table_id) if session.has_table(s.name)]
    columns = column_versions(session, table.table_id, (s.begin_snapshot for s in sources))
    shapes = {source.name: columns[source.begin_snapshot] for source in sources}
    restore_inlined_rows(writer, table.table_id, target, shapes)
    if not sources or _inlined_shape(shapes[sources[-1].name]) == _inlined_shape(table.columns):
        return
    # Clients put new rows into the newest of these tables, which has other columns.
    name = f"ducklake_inlined_data_{table.table_id}_{writer.schema_version}"
    stored = data_columns(table.columns, lake.location.kind)
    listed = ", ".join(f"{quote_identifier(column)} {kind}" for column, kind in stored)
    session.execute("CREATE TABLE {inlined} (" + listed + ")", inlined=name)
    session.insert("ducklake_inlined_data_tables", [(table.table_id, name, writer.schema_version)])


def _inlined_shape(columns: Iterable[Column]) -> list[tuple[int, str, str]]:
    """Return what an inlined table holds: clients find its columns by id, as they do in files."""
    return [(c.column_id, c.name, c.type) for column in columns for c in column.walk()]


def _refresh_statistics(
    writer: SnapshotWriter, plan: RestorePlan, restore: TableRestore, result: TableResult
) -> None:
    """Widen a table's statistics so that they hold for the rows that are back.

    They are never narrowed: clients apply them to older snapshots and to dead inlined rows too.
    The count of rows goes up as if the rows were new, for a client takes bounds for exact when
    it equals the count of visible rows.
    """
    session, table = writer.session, restore.table
    statistics = read_table_statistics(session, table.table_id)
    if not statistics.exists:
        return
    live = read_live_files(session, table, writer.snapshot_id)
    per_file = read_file_statistics(session, (file.data_file_id for file in live))
    parts = [per_file.get(file.data_file_id, []) for file in live]
    unknown = set(_retyped_columns(plan, table.table_id))
    if restore.inlined.back:
        unknown.update(column.column_id for column in leaves(table.columns))
    forget_bounds(session, table.table_id, unknown)
    add_rows(
        session,
        table,
        statistics,
        parts,
        rows=result.rows,
        new_row_ids=0,
        size=result.bytes_out,
    )


def _retyped_columns(plan: RestorePlan, table_id: int) -> Iterator[int]:
    """Yield the columns whose type changes back: their bounds may not be of that type."""
    for change in plan.entries:
        if change.table == "ducklake_column":
            types = {
                entry["column_id"]: entry["column_type"]
                for entry in change.gone
                if entry["table_id"] == table_id
            }
            for entry in change.back:
                column_id = entry["column_id"]
                if types.get(column_id, entry["column_type"]) != entry["column_type"]:
                    yield int(str(column_id))


def _changes(writer: SnapshotWriter, plan: RestorePlan, data_path: str) -> list[Change]:
    """Say what the snapshot changed, in words that make every client's concurrent work conflict."""
    session = writer.session
    described = {i for change in plan.entries for i in change.table_ids}
    found = []
    for restore in plan.tables:
        table = restore.table
        if not restore.is_live:
            found.append(created_table(table.schema.name, table.name))
            continue
        words = ["altered_table"] if table.table_id in described else []
        if restore.has_other_rows:
            words += ["inserted_into_table", "deleted_from_table", "inlined_delete"]
        found += [table_change(word, table.table_id) for word in words]
    found += [table_change("dropped_table", table.table_id) for table in plan.dropped]
    names = {
        schema.schema_id: schema.name
        for snapshot_id in (plan.target, writer.snapshot_id)
        for schema in read_schemas(session, snapshot_id, data_path)
    }
    for change in plan.entries:
        found += _words_of(session, change, names)
    return found


def _words_of(session: Session, change: EntryChanges, schemas: Mapping[int, str]) -> list[Change]:
    if change.table == "ducklake_schema":
        return [dropped_schema(int(str(entry["schema_id"]))) for entry in change.gone] + [
            created_schema(str(entry["schema_name"])) for entry in change.back
        ]
    kind = change.table.removeprefix("ducklake_")
    if kind not in ("view", "macro"):
        return []
    found = []
    gone = {int(str(entry[f"{kind}_id"])) for entry in change.gone}
    back = {int(str(entry[f"{kind}_id"])) for entry in change.back}
    for entry in change.back:
        entry_id = int(str(entry[f"{kind}_id"]))
        if kind == "view" and entry_id in gone:
            found.append(Change("altered_view", str(entry_id)))
            continue
        place = f"{quote_identifier(schemas[int(str(entry['schema_id']))])}"
        name = f"{place}.{quote_identifier(str(entry[f'{kind}_name']))}"
        found.append(Change(f"created_{_kind_of(session, kind, entry_id)}", name))
    for entry_id in sorted(gone - back if kind == "view" else gone):
        found.append(Change(f"dropped_{_kind_of(session, kind, entry_id)}", str(entry_id)))
    return found


def _kind_of(session: Session, kind: str, entry_id: int) -> str:
    if kind == "view":
        return kind
    of_macro = session.value(
        "SELECT type FROM {ducklake_macro_impl} WHERE macro_id = ?", (entry_id,)
    )
    return f"{of_macro}_macro"
