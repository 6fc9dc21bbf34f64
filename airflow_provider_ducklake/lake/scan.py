"""Planning reads: which files, deletes and inlined rows make up a table at a snapshot or a feed."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.errors import NotFound
from airflow_provider_ducklake.lake.files import (
    read_delete_files,
    read_files,
    read_inlined_deletes,
)
from airflow_provider_ducklake.lake.inlined import InlinedRow, inlined_tables, read_inlined_rows
from airflow_provider_ducklake.lake.instants import format_instant, parse_instant
from airflow_provider_ducklake.lake.lake import LakeView
from airflow_provider_ducklake.lake.model import DataFile, Table
from airflow_provider_ducklake.lake.reader import read_snapshot, read_tables

# What opening a file costs beside its bytes, as Spark reckons it.
OPEN_COST: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class InlinedVersions:
    """Row versions inlined under one schema version, with the columns their values are of."""

    columns: tuple[Column, ...]
    rows: tuple[InlinedRow, ...]


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """Data files some rows of which came or went, and the deletes inlined for each, by file id.

    Every file has all its delete files, of whatever time.
    """

    files: tuple[DataFile, ...]
    deletes: dict[int, tuple[tuple[int, int], ...]]

    def spans(self, file: DataFile) -> list[tuple[int, int]]:
        """Return the ranges of snapshots, both ends included, in which rows may come or go."""
        found = [(file.begin_snapshot, file.partial_max or file.begin_snapshot)]
        if file.end_snapshot is not None:
            found.append((file.end_snapshot, file.end_snapshot))
        for delete in file.delete_files:
            found.append((delete.begin_snapshot, delete.partial_max or delete.begin_snapshot))
        found += [(snapshot, snapshot) for _, snapshot in self.deletes.get(file.data_file_id, ())]
        return found


def snapshot_at(session: Session, instant: datetime) -> int:
    """Return the newest snapshot that was there at an instant.

    Raises:
        NotFound: Every kept snapshot is younger.
    """
    query = "SELECT snapshot_id, CAST(snapshot_time AS VARCHAR) FROM {ducklake_snapshot}"
    there = [int(number) for number, time in session.rows(query) if parse_instant(time) <= instant]
    if not there:
        raise NotFound(f"no snapshot that is kept was there at {format_instant(instant)}")
    return max(there)


def table_at(view: LakeView, name: str, snapshot_id: int) -> Table:
    """Return a table as it was at a kept snapshot.

    Raises:
        NotFound: The snapshot is not kept, or has no table of that name.
    """
    read_snapshot(view.session, snapshot_id)
    return view.table_at(snapshot_id, name)


def visible_rows(
    view: LakeView, table: Table, snapshot_id: int, columns: Collection[int]
) -> list[InlinedVersions]:
    """Return the inlined rows that live at a snapshot.

    Args:
        view: The lake.
        table: The table.
        snapshot_id: The snapshot.
        columns: Ids of the top-level columns whose values are wanted.
    """
    found = _inlined(view, table, snapshot_id, columns)
    return _with_rows(
        (
            part,
            (r for r in part.rows if r.end_snapshot is None or r.end_snapshot > snapshot_id),
        )
        for part in found
    )


def changed_rows(
    view: LakeView, table: Table, first: int, last: int, columns: Collection[int]
) -> list[InlinedVersions]:
    """Return the inlined rows that came or went in a range of snapshots."""
    return _with_rows(
        (part, (row for row in part.rows if _is_within(first, last, row)))
        for part in _inlined(view, table, last, columns)
    )


def changed_files(view: LakeView, table: Table, first: int, last: int) -> ChangedFiles:
    """Return the data files of which rows came or went in a range of snapshots, both included."""
    deletes = read_delete_files(view.session, table)
    query = (
        "SELECT data_file_id FROM {ducklake_data_file} WHERE table_id = ? AND begin_snapshot <= ?"
    )
    ids = [int(row[0]) for row in view.session.rows(query, (table.table_id, last))]
    inlined = read_inlined_deletes(view.session, table.table_id)
    files = [
        replace(
            file,
            delete_files=tuple(
                d for d in deletes.get(file.data_file_id, ()) if d.begin_snapshot <= last
            ),
        )
        for file in read_files(view.session, table, ids, last)
    ]
    all_of_them = ChangedFiles(tuple(files), {i: tuple(inlined.get(i, ())) for i in ids})
    touched = (f for f in files if any(a <= last and b >= first for a, b in all_of_them.spans(f)))
    return replace(all_of_them, files=tuple(touched))


def shares(files: Iterable[DataFile], size: int) -> list[tuple[DataFile, ...]]:
    """Put files together so that each share has about as many bytes, and about `size` of them."""
    costs = sorted(((f.file_size_bytes + OPEN_COST, f) for f in files), key=lambda pair: -pair[0])
    count = -(-sum(cost for cost, _ in costs) // max(size, OPEN_COST))
    bins: list[tuple[int, int, list[DataFile]]] = [
        (0, i, []) for i in range(min(count, len(costs)))
    ]
    for cost, file in costs:
        load, index, members = heapq.heappop(bins)
        heapq.heappush(bins, (load + cost, index, [*members, file]))
    return [tuple(members) for _, _, members in sorted(bins, key=lambda share: share[1])]


def _inlined(
    view: LakeView, table: Table, up_to: int, wanted: Collection[int]
) -> list[InlinedVersions]:
    parts = []
    for source in inlined_tables(view.session, table.table_id):
        then = read_tables(
            view.session, source.begin_snapshot, view.data_path, table_ids=[table.table_id]
        )
        if not then or source.begin_snapshot > up_to:
            continue
        columns = tuple(column for column in then[0].columns if column.column_id in wanted)
        rows = read_inlined_rows(view.session, source, columns, up_to)
        parts.append(InlinedVersions(columns, tuple(rows)))
    return parts


def _with_rows(
    parts: Iterable[tuple[InlinedVersions, Iterable[InlinedRow]]],
) -> list[InlinedVersions]:
    chosen = [replace(part, rows=tuple(rows)) for part, rows in parts]
    return [part for part in chosen if part.rows]


def _is_within(first: int, last: int, row: InlinedRow) -> bool:
    return any(
        snapshot is not None and first <= snapshot <= last
        for snapshot in (row.begin_snapshot, row.end_snapshot)
    )
