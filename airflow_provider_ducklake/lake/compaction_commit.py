"""Committing the files that replace merged or rewritten ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_ducklake.lake.append import table_result_dict
from airflow_provider_ducklake.lake.changes import compaction_changes
from airflow_provider_ducklake.lake.commit import CommitInfo, Committed, SnapshotWriter
from airflow_provider_ducklake.lake.compaction import CompactionPlan, FileGroup
from airflow_provider_ducklake.lake.errors import CommitConflict
from airflow_provider_ducklake.lake.file_rows import (
    NewDataFile,
    add_data_files,
    end_files,
    remove_data_files,
    schedule_objects,
)
from airflow_provider_ducklake.lake.files import read_files
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.model import DataFile, Table, WrittenFile
from airflow_provider_ducklake.lake.results import TableResult
from airflow_provider_ducklake.lake.tables import require_unchanged


def commit_merge(
    lake: Lake,
    plan: CompactionPlan,
    outputs: Sequence[tuple[FileGroup, WrittenFile]],
    info: CommitInfo | None = None,
) -> Committed[TableResult]:
    """Replace merged files: inputs leave the catalog and are scheduled, outputs take their place.

    The output's rows keep the snapshots they appeared at, so every kept snapshot reads as before.

    Raises:
        CommitConflict: An input is no longer live, or has deletes now.
    """

    def write(writer: SnapshotWriter) -> TableResult:
        require_unchanged(writer, plan.table)
        inputs = [file for group, _ in outputs for file in group.files]
        _require_same(writer, plan.table, inputs)
        removed = remove_data_files(writer.session, (file.data_file_id for file in inputs))
        if removed not in (-1, len(inputs)):
            raise CommitConflict(
                f"{plan.table.full_name}: inputs of the merge went meanwhile; plan again"
            )
        objects = [(file.data_file_id, file.path) for file in inputs]
        schedule_objects(writer.session, data_path, objects, writer.now)
        new = [_merged(group, output) for group, output in outputs]
        add_data_files(writer, plan.table, _with_values(new, outputs))
        return _finished(writer, plan, [output for _, output in outputs])

    data_path = lake.data_path
    changes = compaction_changes("merge_adjacent", plan.table.table_id)
    return lake.commit(base=plan.base, changes=changes, write=write, info=info)


def commit_rewrite(
    lake: Lake,
    plan: CompactionPlan,
    outputs: Sequence[tuple[FileGroup, WrittenFile | None]],
    info: CommitInfo | None = None,
) -> Committed[TableResult]:
    """Replace files by copies without their deleted rows, visible from the new snapshot on.

    The old files and their deletes end at that snapshot; older snapshots go on reading them.

    Raises:
        CommitConflict: An input is no longer live, or its deletes are other ones now.
    """

    def write(writer: SnapshotWriter) -> TableResult:
        require_unchanged(writer, plan.table)
        inputs = [file for group, _ in outputs for file in group.files]
        _require_same(writer, plan.table, inputs)
        end_files(writer, (file.data_file_id for file in inputs))
        written = [(group, output) for group, output in outputs if output is not None]
        new = [
            NewDataFile(output, writer.snapshot_id, None, group.files[0].partition_id)
            for group, output in written
        ]
        add_data_files(writer, plan.table, _with_values(new, written))
        return _finished(writer, plan, [output for _, output in written])

    changes = compaction_changes("rewrite_delete", plan.table.table_id)
    return lake.commit(base=plan.base, changes=changes, write=write, info=info)


def _merged(group: FileGroup, output: WrittenFile) -> NewDataFile:
    begin = group.begin_snapshot
    assert begin is not None
    newest = max(file.partial_max or file.begin_snapshot for file in group.files)
    return NewDataFile(
        file=output,
        begin_snapshot=begin,
        row_id_start=_first_row_id(group, output),
        partition_id=group.files[0].partition_id,
        partial_max=max(begin, newest),
    )


def _first_row_id(group: FileGroup, output: WrittenFile) -> int | None:
    """Return where an output's row ids begin; None when it carries them in a column."""
    if group.with_row_ids or output.first_row_id is not None:
        return None
    return group.files[0].row_id_start


def _require_same(writer: SnapshotWriter, table: Table, planned: Sequence[DataFile]) -> None:
    ids = [file.data_file_id for file in planned]
    now = {
        f.data_file_id: f for f in read_files(writer.session, table, ids, writer.head.snapshot_id)
    }
    for file in planned:
        if now.get(file.data_file_id) != file:
            raise CommitConflict(
                f"data file {file.data_file_id} of {table.full_name} was replaced, or rows of it "
                "were deleted, while the job ran; plan again"
            )


def _with_values(
    new: Sequence[NewDataFile], outputs: Sequence[tuple[FileGroup, WrittenFile]]
) -> list[NewDataFile]:
    """Give each output the partition values of the files it was made from."""
    return [
        replace(one, file=replace(one.file, partition_values=group.files[0].partition_values))
        for one, (group, _) in zip(new, outputs, strict=True)
    ]


def _finished(
    writer: SnapshotWriter, plan: CompactionPlan, outputs: Sequence[WrittenFile]
) -> TableResult:
    result = replace(plan.result(outputs), snapshot_id=writer.snapshot_id)
    writer.result = {"tables": [table_result_dict(result)]}
    return result
