"""Writing the rows of data files and delete files, retiring them, scheduling their objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_ducklake.lake.commit import SnapshotWriter
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.files import read_name_maps
from airflow_provider_ducklake.lake.instants import format_instant
from airflow_provider_ducklake.lake.model import (
    NameMapEntry,
    Table,
    WrittenDeleteFile,
    WrittenFile,
)
from airflow_provider_ducklake.lake.paths import relative_to
from airflow_provider_ducklake.lake.shredded import ShreddedField, from_json

# Everything that describes a data file and leaves with it.
_OF_A_DATA_FILE = (
    "ducklake_data_file",
    "ducklake_file_column_stats",
    "ducklake_file_variant_stats",
    "ducklake_file_partition_value",
)


@dataclass(frozen=True, slots=True)
class NewDataFile:
    """A written file and the place its rows take in the table's history.

    Attributes:
        begin_snapshot: First snapshot its oldest row is visible at.
        row_id_start: Row id of its first row; None when the file carries its row ids.
        partial_max: Newest snapshot of its rows when they come from several.
    """

    file: WrittenFile
    begin_snapshot: int
    row_id_start: int | None
    partition_id: int | None = None
    partial_max: int | None = None


@dataclass(frozen=True, slots=True)
class NewDeleteFile:
    """A written delete file and when it applies to which data file.

    Attributes:
        begin_snapshot: First snapshot it applies at.
        end_snapshot: First one it applies at no more; None for good.
    """

    file: WrittenDeleteFile
    data_file_id: int
    begin_snapshot: int
    end_snapshot: int | None = None

    @classmethod
    def since_its_first(cls, file: WrittenDeleteFile, data_file_id: int) -> NewDeleteFile:
        """Return one that begins with the oldest delete it tells of."""
        if file.first_snapshot is None:
            raise ValueError("this delete file does not say since when its rows are deleted")
        return cls(file, data_file_id, file.first_snapshot)


def add_data_files(writer: SnapshotWriter, table: Table, files: Sequence[NewDataFile]) -> list[int]:
    """Insert the rows of new data files; return their ids in the same order."""
    mappings = _mapping_ids(writer, table, [new.file.name_map for new in files])
    ids, data, stats, shredded, values = [], [], [], [], []
    for new, mapping_id in zip(files, mappings, strict=True):
        file, file_id = new.file, writer.new_file_id()
        ids.append(file_id)
        path, relative = relative_to(file.path, table.data_path)
        data.append(
            (
                file_id,
                table.table_id,
                new.begin_snapshot,
                None,
                None,
                path,
                relative,
                "parquet",
                file.record_count,
                file.file_size_bytes,
                file.footer_size,
                new.row_id_start,
                new.partition_id,
                file.encryption_key,
                mapping_id,
                new.partial_max,
            )
        )
        for s in file.statistics:
            counts = (s.size_bytes, s.value_count, s.null_count)
            bounds = (s.min_value, s.max_value, s.contains_nan, s.extra_stats)
            of_column = (file_id, table.table_id, s.column_id)
            stats.append((*of_column, *counts, *bounds))
            shredded += [(*of_column, *_shredded_row(f)) for f in from_json(s.extra_stats)]
        for index, value in enumerate(file.partition_values):
            values.append((file_id, table.table_id, index, value))
    writer.session.insert("ducklake_data_file", data)
    writer.session.insert("ducklake_file_column_stats", stats)
    writer.session.insert("ducklake_file_variant_stats", shredded)
    writer.session.insert("ducklake_file_partition_value", values)
    return ids


def _shredded_row(field: ShreddedField) -> tuple[str | int | bool | None, ...]:
    counts = (field.size_bytes, field.value_count, field.null_count)
    bounds = (field.min_value, field.max_value, field.contains_nan, None)
    return (field.path, field.shredded_type, *counts, *bounds)


def add_delete_files(writer: SnapshotWriter, table: Table, files: Sequence[NewDeleteFile]) -> None:
    """Insert the rows of new delete files."""
    rows = []
    for new in files:
        file = new.file
        path, relative = relative_to(file.path, table.data_path)
        rows.append(
            (
                writer.new_file_id(),
                table.table_id,
                new.begin_snapshot,
                new.end_snapshot,
                new.data_file_id,
                path,
                relative,
                "parquet",
                file.delete_count,
                file.file_size_bytes,
                file.footer_size,
                file.encryption_key,
                file.last_snapshot,
            )
        )
    writer.session.insert("ducklake_delete_file", rows)


def remove_data_files(session: Session, file_ids: Iterable[int]) -> int:
    """Remove data files and all that describes them; return how many there were."""
    ids = list(file_ids)
    removed = 0
    for table in _OF_A_DATA_FILE:
        count = session.execute_in("DELETE FROM {gone} WHERE data_file_id IN (??)", ids, gone=table)
        removed = count if table == "ducklake_data_file" else removed
    return removed


def end_files(writer: SnapshotWriter, data_file_ids: Iterable[int]) -> int:
    """End data files and their live delete files at the new snapshot; return how many ended.

    Older snapshots go on reading them; expiry frees them later.
    """
    ids = list(data_file_ids)
    for table in ("ducklake_delete_file", "ducklake_data_file"):
        ended = writer.session.execute_in(
            "UPDATE {files} SET end_snapshot = ? "
            "WHERE end_snapshot IS NULL AND data_file_id IN (??)",
            ids,
            (writer.snapshot_id,),
            files=table,
        )
    return ended


def schedule_objects(
    session: Session, data_path: str, objects: Iterable[tuple[int, str]], now: datetime
) -> None:
    """Schedule objects for deletion.

    Args:
        session: The transaction that also took the objects out of the catalog.
        data_path: The lake's data path; objects below it are stored relative to it.
        objects: (file id, full path).
        now: When the grace period begins.
    """
    rows = [
        (file_id, *relative_to(path, data_path), format_instant(now)) for file_id, path in objects
    ]
    session.insert("ducklake_files_scheduled_for_deletion", rows)


def _mapping_ids(
    writer: SnapshotWriter, table: Table, maps: Sequence[tuple[NameMapEntry, ...]]
) -> list[int | None]:
    """Return the mapping id of each name map, writing those the table does not have yet."""
    if not any(maps):
        return [None] * len(maps)
    known = _known_mappings(writer.session, table.table_id)
    result: list[int | None] = []
    for name_map in maps:
        if name_map and name_map not in known:
            known[name_map] = writer.new_file_id()
            _write_mapping(writer.session, table.table_id, known[name_map], name_map)
        result.append(known[name_map] if name_map else None)
    return result


def _known_mappings(session: Session, table_id: int) -> dict[tuple[NameMapEntry, ...], int]:
    rows = session.rows(
        "SELECT mapping_id FROM {ducklake_column_mapping} WHERE table_id = ?", (table_id,)
    )
    maps: Mapping[int, tuple[NameMapEntry, ...]] = read_name_maps(
        session, (int(mapping_id) for (mapping_id,) in rows)
    )
    return {entries: mapping_id for mapping_id, entries in maps.items()}


def _write_mapping(
    session: Session, table_id: int, mapping_id: int, entries: tuple[NameMapEntry, ...]
) -> None:
    rows: list[tuple[int, int, str, int, int | None, bool]] = []

    def add(entry: NameMapEntry, parent: int | None) -> None:
        index = len(rows)
        target = entry.target_field_id
        rows.append((mapping_id, index, entry.source_name, target, parent, entry.is_partition))
        for child in entry.children:
            add(child, index)

    for entry in entries:
        add(entry, None)
    session.insert("ducklake_column_mapping", [(mapping_id, table_id, "map_by_name")])
    session.insert("ducklake_name_mapping", rows)
