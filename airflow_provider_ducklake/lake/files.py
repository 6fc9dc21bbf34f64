"""Reading the data files of a table: paths, deletes of all kinds, mappings, partition values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.model import DataFile, DeleteFile, NameMapEntry, Table
from airflow_provider_ducklake.lake.paths import join

_COLUMNS = (
    "data_file_id, table_id, path, path_is_relative, record_count, file_size_bytes, footer_size, "
    "begin_snapshot, end_snapshot, row_id_start, partition_id, encryption_key, mapping_id, "
    "partial_max"
)


def inlined_delete_table(table_id: int) -> str:
    """Return the name of the table that holds a table's inlined deletes of data files."""
    return f"ducklake_inlined_delete_{table_id}"


def read_live_files(session: Session, table: Table, snapshot_id: int) -> list[DataFile]:
    """Return the data files of a table visible at a snapshot, with their deletes.

    Args:
        session: A transaction on the catalog.
        table: The table, for its id and path.
        snapshot_id: The snapshot.

    Returns:
        Files in the order the reference merges them: begin snapshot, first row id, file id.
    """
    query = (
        f"SELECT {_COLUMNS} FROM {{ducklake_data_file}} WHERE table_id = ? "
        "AND begin_snapshot <= ? AND (end_snapshot IS NULL OR end_snapshot > ?)"
    )
    rows = session.rows(query, (table.table_id, snapshot_id, snapshot_id))
    return _complete(session, table, [_file(table, row) for row in rows], snapshot_id)


def read_files(
    session: Session, table: Table, file_ids: Iterable[int], snapshot_id: int
) -> list[DataFile]:
    """Return some data files of a table with the deletes visible at a snapshot."""
    query = (
        f"SELECT {_COLUMNS} FROM {{ducklake_data_file}} WHERE table_id = ? AND data_file_id IN (??)"
    )
    rows = session.rows_in(query, file_ids, (table.table_id,))
    return _complete(session, table, [_file(table, row) for row in rows], snapshot_id)


def read_ended_files(session: Session, table: Table, file_ids: Iterable[int]) -> list[DataFile]:
    """Return some ended data files of a table with the deletes of their last snapshot."""
    query = (
        f"SELECT {_COLUMNS} FROM {{ducklake_data_file}} WHERE table_id = ? "
        "AND end_snapshot IS NOT NULL AND data_file_id IN (??)"
    )
    rows = session.rows_in(query, file_ids, (table.table_id,))
    return _complete(session, table, [_file(table, row) for row in rows], None)


def _file(table: Table, row: Any) -> DataFile:
    file_id, table_id, path, relative, records, size, footer, begin, *rest = row
    end, row_id, partition_id, key, mapping_id, partial_max = rest
    return DataFile(
        data_file_id=int(file_id),
        table_id=int(table_id),
        path=join(table.data_path, path) if relative else path,
        record_count=int(records),
        file_size_bytes=int(size),
        footer_size=footer,
        begin_snapshot=int(begin),
        end_snapshot=end,
        row_id_start=row_id,
        partition_id=partition_id,
        encryption_key=key,
        mapping_id=mapping_id,
        partial_max=partial_max,
    )


def _complete(
    session: Session, table: Table, files: list[DataFile], snapshot_id: int | None
) -> list[DataFile]:
    deletes = read_delete_files(session, table)
    inlined = read_inlined_deletes(session, table.table_id)
    values = _partition_values(session, table)
    name_maps = read_name_maps(session, (f.mapping_id for f in files if f.mapping_id is not None))
    complete = []
    for file in files:
        all_deletes, positions = deletes[file.data_file_id], inlined[file.data_file_id]
        at = _last_snapshot(file) if snapshot_id is None else snapshot_id
        visible = tuple(d for d in all_deletes if _is_visible(d, at))
        complete.append(
            replace(
                file,
                delete_files=visible,
                inlined_deletes=tuple(sorted(p for p, s in positions if s <= at)),
                touched=bool(all_deletes or positions),
                partition_values=values[file.data_file_id],
                name_map=() if file.mapping_id is None else name_maps.get(file.mapping_id, ()),
            )
        )
    return sorted(complete, key=_merge_order)


def _merge_order(file: DataFile) -> tuple[int, int, int]:
    start = -1 if file.row_id_start is None else file.row_id_start
    return file.begin_snapshot, start, file.data_file_id


def _last_snapshot(file: DataFile) -> int:
    assert file.end_snapshot is not None
    return file.end_snapshot - 1


def _is_visible(delete: DeleteFile, snapshot_id: int) -> bool:
    ended = delete.end_snapshot is not None and delete.end_snapshot <= snapshot_id
    return delete.begin_snapshot <= snapshot_id and not ended


def read_delete_files(session: Session, table: Table) -> dict[int, list[DeleteFile]]:
    """Return every delete file of a table, ended ones too, by data file id, oldest first."""
    query = (
        "SELECT delete_file_id, data_file_id, path, path_is_relative, format, delete_count, "
        "begin_snapshot, end_snapshot, encryption_key, partial_max "
        "FROM {ducklake_delete_file} WHERE table_id = ? ORDER BY delete_file_id"
    )
    found: dict[int, list[DeleteFile]] = defaultdict(list)
    for row in session.rows(query, (table.table_id,)):
        delete_id, file_id, path, relative, kind, count, begin, end, key, partial = row
        full = join(table.data_path, path) if relative else path
        found[int(file_id)].append(
            DeleteFile(
                int(delete_id), int(file_id), full, kind, int(count), begin, end, key, partial
            )
        )
    return found


def read_inlined_deletes(session: Session, table_id: int) -> dict[int, list[tuple[int, int]]]:
    """Return the deletes a catalog holds inline: file id -> (position, snapshot of the delete)."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    name = inlined_delete_table(table_id)
    if session.has_table(name):
        query = "SELECT file_id, row_id, begin_snapshot FROM {inlined}"
        for file_id, position, snapshot_id in session.rows(query, inlined=name):
            found[int(file_id)].append((int(position), int(snapshot_id)))
    return found


def read_ended_deletes(session: Session, table_id: int) -> dict[int, int]:
    """Return the newest end snapshot of each data file's ended delete files, by data file id."""
    query = (
        "SELECT data_file_id, max(end_snapshot) FROM {ducklake_delete_file} "
        "WHERE table_id = ? AND end_snapshot IS NOT NULL GROUP BY data_file_id"
    )
    return {int(file_id): int(end) for file_id, end in session.rows(query, (table_id,))}


def _partition_values(session: Session, table: Table) -> dict[int, tuple[str | None, ...]]:
    query = (
        "SELECT data_file_id, partition_value FROM {ducklake_file_partition_value} "
        "WHERE table_id = ? ORDER BY data_file_id, partition_key_index"
    )
    found: dict[int, tuple[str | None, ...]] = defaultdict(tuple)
    for file_id, value in session.rows(query, (table.table_id,)):
        found[int(file_id)] += (value,)
    return found


def read_name_maps(
    session: Session, mapping_ids: Iterable[int]
) -> dict[int, tuple[NameMapEntry, ...]]:
    """Return name mappings as trees, by mapping id."""
    query = (
        "SELECT mapping_id, column_id, source_name, target_field_id, parent_column, is_partition "
        "FROM {ducklake_name_mapping} WHERE mapping_id IN (??)"
    )
    rows = session.rows_in(query, mapping_ids)
    below: dict[tuple[int, int | None], list[Any]] = defaultdict(list)
    for row in rows:
        below[(int(row[0]), None if row[4] is None else int(row[4]))].append(row)

    def entries(mapping_id: int, parent: int | None) -> tuple[NameMapEntry, ...]:
        found = sorted(below.get((mapping_id, parent), []), key=lambda row: int(row[1]))
        return tuple(
            NameMapEntry(row[2], int(row[3]), bool(row[5]), entries(mapping_id, int(row[1])))
            for row in found
        )

    return {mapping_id: entries(mapping_id, None) for mapping_id in {int(r[0]) for r in rows}}
