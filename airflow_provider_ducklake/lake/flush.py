"""Planning and committing the flush of inlined rows and inlined deletes to Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_provider_ducklake.lake.append import table_result_dict
from airflow_provider_ducklake.lake.changes import compaction_changes, table_change
from airflow_provider_ducklake.lake.commit import CommitInfo, Committed, SnapshotWriter
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.errors import CommitConflict
from airflow_provider_ducklake.lake.file_rows import (
    NewDataFile,
    NewDeleteFile,
    add_data_files,
    add_delete_files,
    schedule_objects,
)
from airflow_provider_ducklake.lake.files import (
    read_ended_deletes,
    read_files,
    read_inlined_deletes,
    read_live_files,
)
from airflow_provider_ducklake.lake.inlined import (
    InlinedRow,
    InlinedTable,
    inlined_tables,
    lives,
    read_inlined_rows,
    remove_inlined_deletes,
    remove_inlined_rows,
    retire_superseded,
)
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.model import DataFile, Table, WrittenDeleteFile, WrittenFile
from airflow_provider_ducklake.lake.reader import read_tables
from airflow_provider_ducklake.lake.results import Skipped, TableResult
from airflow_provider_ducklake.lake.table_stats import add_rows, read_table_statistics


@dataclass(frozen=True, slots=True)
class InlinedRows:
    """The row versions of one inlined-data table, with the lake table as it was for them."""

    source: InlinedTable
    table: Table
    rows: tuple[InlinedRow, ...]


@dataclass(frozen=True, slots=True)
class InlinedDeletes:
    """The deletes kept inline for one data file: (position, snapshot of the delete)."""

    data_file: DataFile
    deletes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """What a flush would write for one table."""

    table: Table
    base: int
    live: int
    rows: tuple[InlinedRows, ...]
    deletes: tuple[InlinedDeletes, ...]
    skipped: tuple[Skipped, ...] = ()

    @property
    def row_count(self) -> int:
        """Row versions to flush."""
        return sum(len(part.rows) for part in self.rows)

    def result(self) -> TableResult:
        """Return the plan's figures as a result, outputs predicted."""
        return TableResult(
            table=self.table.full_name,
            files_before=self.live,
            files_after=self.live + len(self.rows),
            files_out=len(self.rows),
            rows=self.row_count,
            skipped=self.skipped,
        )


@dataclass(frozen=True, slots=True)
class FlushOutput:
    """Files written for one inlined-data table."""

    part: InlinedRows
    files: tuple[WrittenFile, ...]
    delete_files: tuple[WrittenDeleteFile, ...]


def plan_flush(session: Session, table: Table, base: int, data_path: str) -> FlushPlan:
    """Read what a table has inline.

    Args:
        session: A read transaction.
        table: The table at the newest snapshot.
        base: That snapshot.
        data_path: The lake's data path.
    """
    parts = []
    for source in inlined_tables(session, table.table_id):
        then = read_tables(session, source.begin_snapshot, data_path, table_ids=[table.table_id])
        if not then:
            continue
        rows = read_inlined_rows(session, source, then[0].columns, base)
        if rows:
            shape = replace(then[0], sort_keys=table.sort_keys, data_path=table.data_path)
            parts.append(InlinedRows(source, shape, tuple(rows)))
    live = read_live_files(session, table, base)
    deletes, skipped = _plan_deletes(session, table, base, live)
    return FlushPlan(table, base, len(live), tuple(parts), deletes, skipped)


def _plan_deletes(
    session: Session, table: Table, base: int, live: Sequence[DataFile]
) -> tuple[tuple[InlinedDeletes, ...], tuple[Skipped, ...]]:
    inlined = read_inlined_deletes(session, table.table_id)
    ended = read_ended_deletes(session, table.table_id)
    chosen, left = [], 0
    for file in live:
        deletes = tuple(sorted(d for d in inlined.get(file.data_file_id, []) if d[1] <= base))
        if not deletes:
            continue
        # One delete file a data file and snapshot is all a reader expects. A new one reaches
        # back to its oldest delete, where an older delete file may still be in force.
        if ended.get(file.data_file_id, 0) > min(snapshot for _, snapshot in deletes):
            left += 1
        else:
            chosen.append(InlinedDeletes(file, deletes))
    reason = "inlined deletes overlap an older delete file that kept snapshots still read"
    return tuple(chosen), ((Skipped(reason, left),) if left else ())


def commit_flush(
    lake: Lake, plan: FlushPlan, outputs: Sequence[FlushOutput], info: CommitInfo | None = None
) -> Committed[TableResult]:
    """Put the written files in the place of the inlined rows; row ids and snapshots stay.

    Raises:
        CommitConflict: Some of the rows were deleted or flushed meanwhile.
    """

    def write(writer: SnapshotWriter) -> TableResult:
        for output in outputs:
            _replace_rows(writer, plan, output)
        retire_superseded(writer.session, plan.table.table_id)
        files = [file for output in outputs for file in output.files]
        result = replace(
            plan.result(),
            files_after=plan.live + len(files),
            files_out=len(files),
            bytes_out=sum(file.file_size_bytes for file in files),
            snapshot_id=writer.snapshot_id,
        )
        writer.result = {"tables": [table_result_dict(result)]}
        return result

    changes = [table_change("inline_flush", plan.table.table_id)]
    return lake.commit(base=plan.base, changes=changes, write=write, info=info)


def _replace_rows(writer: SnapshotWriter, plan: FlushPlan, output: FlushOutput) -> None:
    session, part = writer.session, output.part
    planned = {row.life for row in part.rows}
    if lives(session, part.source, plan.base) != planned:
        raise CommitConflict(
            f"inlined rows of {plan.table.full_name} were deleted or flushed while the job ran; "
            "plan again"
        )
    partition_id = part.table.partition.partition_id if part.table.partition else None
    new = [
        NewDataFile(
            file=file,
            begin_snapshot=_known(file.first_snapshot),
            row_id_start=file.first_row_id,
            partition_id=partition_id,
            partial_max=file.last_snapshot,
        )
        for file in output.files
    ]
    ids = add_data_files(writer, plan.table, new)
    by_path = {file.path: file_id for file, file_id in zip(output.files, ids, strict=True)}
    deletes = [
        NewDeleteFile.since_its_first(delete, by_path[delete.data_file_path])
        for delete in output.delete_files
    ]
    add_delete_files(writer, plan.table, deletes)
    remove_inlined_rows(session, part.source, plan.base)
    # The rows were counted when they were inlined; only their bytes and bounds are new.
    add_rows(
        session,
        part.table,
        read_table_statistics(session, plan.table.table_id),
        [file.statistics for file in output.files],
        rows=0,
        new_row_ids=0,
        size=sum(file.file_size_bytes for file in output.files),
    )


def commit_flushed_deletes(
    lake: Lake,
    plan: FlushPlan,
    outputs: Sequence[tuple[InlinedDeletes, WrittenDeleteFile]],
    info: CommitInfo | None = None,
) -> Committed[TableResult]:
    """Put written delete files in the place of inlined deletes and of the files they merged.

    This is a commit of its own, told as `rewrite_delete`: that word makes a reference client
    that is deleting from the same table plan again instead of writing a second delete file.

    Raises:
        CommitConflict: A data file was replaced, or its deletes are other ones now.
    """

    def write(writer: SnapshotWriter) -> TableResult:
        session, table = writer.session, plan.table
        planned = {part.data_file.data_file_id: part.data_file for part, _ in outputs}
        for file in read_files(session, table, planned, writer.head.snapshot_id):
            if planned.pop(file.data_file_id) != file:
                raise CommitConflict(
                    f"deletes of {table.full_name} changed while the job ran; plan again"
                )
        if planned:
            raise CommitConflict(
                f"data files of {table.full_name} were replaced meanwhile; plan again"
            )
        merged = [old for part, _ in outputs for old in part.data_file.delete_files]
        session.execute_in(
            "DELETE FROM {ducklake_delete_file} WHERE delete_file_id IN (??)",
            (old.delete_file_id for old in merged),
        )
        objects = [(old.delete_file_id, old.path) for old in merged]
        schedule_objects(session, data_path, objects, writer.now)
        new = [
            NewDeleteFile.since_its_first(delete, part.data_file.data_file_id)
            for part, delete in outputs
        ]
        add_delete_files(writer, table, new)
        ids = (one.data_file_id for one in new)
        remove_inlined_deletes(session, table.table_id, ids, plan.base)
        result = TableResult(
            table=table.full_name,
            files_before=plan.live,
            files_after=plan.live,
            files_in=len(merged),
            files_out=len(new),
            rows=sum(delete.delete_count for _, delete in outputs),
            snapshot_id=writer.snapshot_id,
        )
        writer.result = {"tables": [table_result_dict(result)]}
        return result

    data_path = lake.data_path
    changes = compaction_changes("rewrite_delete", plan.table.table_id)
    return lake.commit(base=plan.base, changes=changes, write=write, info=info)


def _known(value: int | None) -> int:
    if value is None:
        raise ValueError("a flushed file always says which snapshots its rows are of")
    return value
