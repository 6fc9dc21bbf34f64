"""Committing new data files to a table: append, overwrite, overwrite of partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_provider_ducklake.lake.changes import Change, table_change
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.commit import CommitInfo, Committed, SnapshotWriter
from airflow_provider_ducklake.lake.errors import CommitConflict
from airflow_provider_ducklake.lake.file_rows import NewDataFile, add_data_files, end_files
from airflow_provider_ducklake.lake.files import read_live_files
from airflow_provider_ducklake.lake.inlined import (
    count_live_rows,
    end_inlined_rows,
    newest_inlined_change,
)
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.model import DataFile, Table, WrittenFile
from airflow_provider_ducklake.lake.results import TableResult
from airflow_provider_ducklake.lake.table_stats import add_rows, read_table_statistics
from airflow_provider_ducklake.lake.tables import (
    add_columns,
    add_table,
    creating,
    is_planned,
    require_unchanged,
)

PartitionKey = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Which live rows a commit replaces: everything, or the partitions with these values."""

    partitions: frozenset[PartitionKey] | None = None

    def takes(self, file: DataFile) -> bool:
        """Tell whether a live data file is replaced."""
        return self.partitions is None or file.partition_values in self.partitions


def append_files(
    lake: Lake,
    table: Table,
    files: Sequence[WrittenFile],
    *,
    base: int | None = None,
    new_columns: Sequence[Column] = (),
    overwrite: Overwrite | None = None,
    validate: Callable[[SnapshotWriter], None] | None = None,
    info: CommitInfo | None = None,
) -> Committed[TableResult]:
    """Commit written files to a table as one snapshot.

    Args:
        lake: The lake.
        table: The table as it was when the files were written, without `new_columns`; or one from
            `plan_table`, which is created in the same snapshot.
        files: Files with rows; those with none are left out.
        base: Snapshot the data was computed from. None where it depends on nothing in the lake:
            then only the table's shape has to be as it was. With `overwrite`, what goes is what
            this snapshot shows, so it has to be given.
        new_columns: Columns to add in the same snapshot; the files already have them under the
            ids that `add_columns` gives out.
        overwrite: What goes at the new snapshot; None appends.
        validate: Checks further conditions inside the commit transaction.
        info: For the commit.

    Raises:
        CommitConflict: The table changed shape, or rows to be replaced changed meanwhile; or one
            of that name was created.
    """
    files = [file for file in files if file.record_count > 0]
    if base is None and overwrite is not None:
        raise ValueError("an overwrite needs the snapshot whose rows it replaces")
    new = is_planned(table)
    known = table

    def write(writer: SnapshotWriter) -> TableResult:
        nonlocal known
        if new:
            known = add_table(writer, table)
        else:
            require_unchanged(writer, table)
        if validate is not None:
            validate(writer)
        live = read_live_files(writer.session, known, writer.head.snapshot_id)
        ended = [file for file in live if overwrite is not None and overwrite.takes(file)]
        if overwrite is not None and base is not None:
            _require_same_rows(writer, known, overwrite, ended, base)
            _end(writer, known, overwrite, ended)
        grown = add_columns(writer, known, new_columns) if new_columns else known
        add_files(writer, grown, files)
        result = _result(known, live, ended, files, writer.snapshot_id)
        writer.result = {"tables": [table_result_dict(result)]}
        return result

    def changes(_: SnapshotWriter) -> list[Change]:
        words = {
            "altered_table": bool(new_columns),
            # Both, as a client that flushes, or deletes inline, looks for the second alone: what
            # it brings back, or deletes once more, would be rows that are gone.
            "deleted_from_table": overwrite is not None,
            "inlined_delete": overwrite is not None,
            "inserted_into_table": bool(files),
        }
        made = creating(table) if new else []
        return made + [table_change(word, known.table_id) for word, said in words.items() if said]

    return lake.commit(base=base, changes=changes, write=write, info=info)


def _require_same_rows(
    writer: SnapshotWriter,
    table: Table,
    overwrite: Overwrite,
    ended: Sequence[DataFile],
    base: int,
) -> None:
    """Refuse to replace rows that nobody knew of when the overwrite began."""
    seen = read_live_files(writer.session, table, base)
    same = [file for file in seen if overwrite.takes(file)] == list(ended)
    if not same or newest_inlined_change(writer.session, table.table_id) > base:
        raise CommitConflict(
            f"somebody wrote to the rows of {table.full_name} that were to be replaced, after "
            f"snapshot {base}, on which the overwrite began; nothing was changed: look at what "
            "came, and run it again to replace that too"
        )


def _end(
    writer: SnapshotWriter, table: Table, overwrite: Overwrite, ended: Sequence[DataFile]
) -> None:
    end_files(writer, (file.data_file_id for file in ended))
    if overwrite.partitions is None:
        end_inlined_rows(writer, table.table_id)
    elif count_live_rows(writer.session, table.table_id):
        raise CommitConflict(
            f"{table.full_name} has rows inlined in the catalog whose partition is not known; "
            "flush them first (flush_inlined_data), then overwrite partitions again"
        )


def add_files(writer: SnapshotWriter, table: Table, files: Sequence[WrittenFile]) -> None:
    """Add written files to a table at the new snapshot, with ids for their rows."""
    if not files:
        return
    statistics = read_table_statistics(writer.session, table.table_id)
    partition_id = table.partition.partition_id if table.partition else None
    next_row_id, new = statistics.next_row_id, []
    for file in files:
        new.append(NewDataFile(file, writer.snapshot_id, next_row_id, partition_id))
        next_row_id += file.record_count
    add_data_files(writer, table, new)
    rows = sum(file.record_count for file in files)
    add_rows(
        writer.session,
        table,
        statistics,
        [file.statistics for file in files],
        rows=rows,
        new_row_ids=rows,
        size=sum(file.file_size_bytes for file in files),
    )


def _result(
    table: Table,
    live: Sequence[DataFile],
    ended: Sequence[DataFile],
    files: Sequence[WrittenFile],
    snapshot_id: int,
) -> TableResult:
    return TableResult(
        table=table.full_name,
        files_before=len(live),
        files_after=len(live) - len(ended) + len(files),
        files_in=len(ended),
        files_out=len(files),
        bytes_in=sum(file.file_size_bytes for file in ended),
        bytes_out=sum(file.file_size_bytes for file in files),
        rows=sum(file.record_count for file in files),
        snapshot_id=snapshot_id,
    )


def table_result_dict(result: TableResult) -> dict[str, object]:
    """Return the part of a table's result worth keeping beside a commit: what is not default."""
    default = TableResult(table=result.table)
    kept = {
        name: getattr(result, name)
        for name in TableResult.__dataclass_fields__
        if name not in ("skipped", "error") and getattr(result, name) != getattr(default, name)
    }
    return {"table": result.table, **kept}
