"""Planning and committing an upsert: rows that go and rows that come, as one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from airflow_provider_ducklake.lake.append import add_files, table_result_dict
from airflow_provider_ducklake.lake.changes import Change, table_change
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.commit import CommitInfo, Committed, SnapshotWriter
from airflow_provider_ducklake.lake.errors import CommitConflict, SnapshotTaken
from airflow_provider_ducklake.lake.file_rows import (
    NewDeleteFile,
    add_delete_files,
    end_files,
    schedule_objects,
)
from airflow_provider_ducklake.lake.files import read_live_files
from airflow_provider_ducklake.lake.inlined import end_some_inlined_rows, newest_inlined_change
from airflow_provider_ducklake.lake.lake import Lake, LakeView
from airflow_provider_ducklake.lake.model import (
    DataFile,
    DeleteFile,
    Table,
    WrittenDeleteFile,
    WrittenFile,
)
from airflow_provider_ducklake.lake.results import TableResult
from airflow_provider_ducklake.lake.scan import InlinedVersions, visible_rows
from airflow_provider_ducklake.lake.tables import (
    add_columns,
    add_table,
    creating,
    is_planned,
    require_unchanged,
)


@dataclass(frozen=True, slots=True)
class UpsertPlan:
    """The rows an upsert is matched against.

    Attributes:
        table: As it is, or as it will be created.
        base: The snapshot.
        live: Its data files at that snapshot.
        inlined: Its rows in the catalog, with the key columns alone.
    """

    table: Table
    base: int
    live: tuple[DataFile, ...]
    inlined: tuple[InlinedVersions, ...]


@dataclass(frozen=True, slots=True)
class FileDeletes:
    """What an upsert deletes from one data file.

    Attributes:
        ends: It has no other row, and ends as a whole.
        delete_file: Names the rows, and those that delete files deleted before; None when the file
            ends, or nothing is written.
    """

    data_file_id: int
    ends: bool = False
    delete_file: WrittenDeleteFile | None = None


@dataclass(frozen=True, slots=True)
class UpsertOutput:
    """What an upsert changes.

    Attributes:
        files: New data files: of updated rows, which hold their row ids, and of new rows.
        deletes: One entry a data file that loses rows.
        inlined: Row ids of the catalog's rows that go.
        updated_rows: Rows that are replaced by one of `files`.
        deleted_rows: Rows that are not.
    """

    files: tuple[WrittenFile, ...]
    deletes: tuple[FileDeletes, ...]
    inlined: tuple[int, ...]
    updated_rows: int
    deleted_rows: int

    @property
    def paths(self) -> Iterator[str]:
        """Full paths of everything that was written."""
        yield from (file.path for file in self.files)
        yield from (d.delete_file.path for d in self.deletes if d.delete_file is not None)


def plan_upsert(view: LakeView, table: Table, keys: Iterable[Column]) -> UpsertPlan:
    """Read what an upsert has to be matched against; nothing, for a table yet to be created."""
    base = view.head.snapshot_id
    if is_planned(table):
        return UpsertPlan(table, base, (), ())
    inlined = visible_rows(view, table, base, {key.column_id for key in keys})
    return UpsertPlan(table, base, tuple(view.live_files(table)), tuple(inlined))


def upsert_result(plan: UpsertPlan, output: UpsertOutput, rows: int) -> TableResult:
    """Return the figures of an upsert.

    Args:
        plan: As planned.
        output: What was, or would be, changed.
        rows: Rows that are written.
    """
    touched = {delete.data_file_id for delete in output.deletes}
    ended = sum(delete.ends for delete in output.deletes)
    return TableResult(
        plan.table.full_name,
        files_before=len(plan.live),
        files_after=len(plan.live) - ended + len(output.files),
        files_in=len(touched),
        files_out=len(output.files),
        bytes_in=sum(f.file_size_bytes for f in plan.live if f.data_file_id in touched),
        bytes_out=sum(file.file_size_bytes for file in output.files),
        rows=rows,
        updated_rows=output.updated_rows,
        deleted_rows=output.deleted_rows,
    )


def commit_upsert(
    lake: Lake,
    plan: UpsertPlan,
    output: UpsertOutput,
    *,
    new_columns: Sequence[Column] = (),
    info: CommitInfo | None = None,
) -> Committed[TableResult]:
    """Commit an upsert as one snapshot.

    Args:
        lake: The lake.
        plan: As planned.
        output: Files with rows, and deletes.
        new_columns: Columns to add in the same snapshot; the files have them already.
        info: For the commit.

    Raises:
        CommitConflict: Somebody changed rows or shape of the table, or created it: also a new row
            may have a key of the source.
        SnapshotTaken: Somebody committed something else; delete files that hold snapshots are to
            be written for the next one.
    """
    known, new = plan.table, is_planned(plan.table)

    def write(writer: SnapshotWriter) -> TableResult:
        nonlocal known
        if new:
            known = add_table(writer, plan.table)
        else:
            require_unchanged(writer, plan.table)
            _require_same_rows(writer, plan)
        _require_snapshot(writer, output)
        _end_rows(writer, plan, output, data_path)
        grown = add_columns(writer, known, new_columns) if new_columns else known
        add_files(writer, grown, output.files)
        rows = sum(file.record_count for file in output.files)
        result = replace(upsert_result(plan, output, rows), snapshot_id=writer.snapshot_id)
        writer.result = {"tables": [table_result_dict(result)]}
        return result

    def changes(_: SnapshotWriter) -> list[Change]:
        takes = bool(output.deletes or output.inlined)
        words = {
            "altered_table": bool(new_columns),
            "inserted_into_table": bool(output.files),
            # Both, so that a client that is deleting rows of this table, in whichever way, has to
            # look at it again: the row it deletes may be another one now.
            "deleted_from_table": takes,
            "inlined_delete": takes,
        }
        made = creating(plan.table) if new else []
        return made + [table_change(word, known.table_id) for word, said in words.items() if said]

    data_path = lake.data_path
    return lake.commit(base=plan.base, changes=changes, write=write, info=info)


def _require_same_rows(writer: SnapshotWriter, plan: UpsertPlan) -> None:
    """Refuse when any row came or went, or moved to another file, since the plan."""
    session, table = writer.session, plan.table
    live = tuple(read_live_files(session, table, writer.head.snapshot_id))
    if live != plan.live or newest_inlined_change(session, table.table_id) > plan.base:
        raise CommitConflict(
            f"somebody wrote to {table.full_name}, or compacted it, after snapshot {plan.base}, "
            "on which the merge began; nothing was changed: run it again"
        )


def _require_snapshot(writer: SnapshotWriter, output: UpsertOutput) -> None:
    for delete in output.deletes:
        stamp = delete.delete_file.last_snapshot if delete.delete_file is not None else None
        if stamp not in (None, writer.snapshot_id):
            raise SnapshotTaken(
                f"snapshot {stamp} was committed by somebody else before the merge could be; "
                "nothing was changed: run it again"
            )


def _end_rows(
    writer: SnapshotWriter, plan: UpsertPlan, output: UpsertOutput, data_path: str
) -> None:
    """Delete rows as the reference does: a file has one delete file, which tells of all times."""
    session, table = writer.session, plan.table
    end_files(writer, (d.data_file_id for d in output.deletes if d.ends))
    by_id = {file.data_file_id: file for file in plan.live}
    added: list[NewDeleteFile] = []
    replaced: list[DeleteFile] = []
    for delete in output.deletes:
        if delete.delete_file is None:
            continue
        old = by_id[delete.data_file_id].delete_files
        begin = min((d.begin_snapshot for d in old), default=writer.snapshot_id)
        added.append(NewDeleteFile(delete.delete_file, delete.data_file_id, begin))
        replaced += old
    session.execute_in(
        "DELETE FROM {ducklake_delete_file} WHERE delete_file_id IN (??)",
        (old.delete_file_id for old in replaced),
    )
    objects = [(old.delete_file_id, old.path) for old in replaced]
    schedule_objects(session, data_path, objects, writer.now)
    add_delete_files(writer, table, added)
    ended = end_some_inlined_rows(writer, table.table_id, output.inlined)
    if 0 <= ended != len(output.inlined):
        raise CommitConflict(f"rows of {table.full_name} in the catalog went; run it again")
