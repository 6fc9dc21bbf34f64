"""The shapes a table has had, and of which of them data files may become one file.

A file is read and written, by every client, with the columns of the snapshot it begins at. So one
that holds a column added later would lose it when a client merges or rewrites it. Files from both
sides of such a change become one only where that one can begin behind the change: where no kept
snapshot sees any of them before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.model import DataFile
from airflow_provider_ducklake.lake.reader import column_versions

# An id and the type it has.
_Field = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Shape:
    """A table from one snapshot on, for as long as its first columns can hold all of its rows.

    Columns that were dropped or renamed meanwhile do not end it.

    Attributes:
        begin: The first snapshot.
        kept: The newest kept snapshot up to that one, itself included; -1 for none. Only files that
            begin later may become part of one that begins here: at that snapshot, a change feed
            would tell of all their rows.
    """

    begin: int
    kept: int


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes of one table, oldest first.

    Attributes:
        columns: Its columns from a snapshot on, oldest first.
        shapes: At least one.
        held: When the newest column was added that a file has values of, by file id, where that
            was after the first shape.
    """

    columns: tuple[tuple[int, tuple[Column, ...]], ...]
    shapes: tuple[Shape, ...]
    held: dict[int, int] = field(default_factory=dict)

    def columns_at(self, snapshot_id: int) -> tuple[Column, ...]:
        """Return the columns at a snapshot; none before the first."""
        at = bisect_right([begin for begin, _ in self.columns], snapshot_id)
        return self.columns[at - 1][1] if at else ()

    def index_of(self, file: DataFile) -> int:
        """Return the oldest shape that can hold what is in a file."""
        since = max(file.begin_snapshot, self.held.get(file.data_file_id, 0))
        return max(bisect_right([shape.begin for shape in self.shapes], since) - 1, 0)

    def can_hold(self, index: int, files: Iterable[DataFile]) -> bool:
        """Tell whether files, of this shape or older ones, may become one that begins in it."""
        shape = self.shapes[index]
        oldest = min(file.begin_snapshot for file in files)
        return oldest >= shape.begin or oldest > shape.kept

    def begin_of(self, files: Sequence[DataFile]) -> int:
        """Return where a file made of these begins: in the shape that can hold all of them."""
        shape = self.shapes[max(map(self.index_of, files))]
        return max(shape.begin, min(file.begin_snapshot for file in files))

    def why_not(self, index: int) -> str:
        """Return why older files may not become part of one that begins in a shape."""
        shape = self.shapes[index]
        return (
            f"schema changed at snapshot {shape.begin}: snapshot {shape.kept} is kept and needs "
            "the files from before as they are (expire_snapshots)"
        )


def read_shapes(session: Session, table_id: int) -> Shapes:
    """Read the shapes of a table.

    Args:
        session: A transaction on the catalog.
        table_id: The table, which has columns.
    """
    changed = session.rows(
        "SELECT begin_snapshot FROM {ducklake_column} WHERE table_id = ? UNION "
        "SELECT end_snapshot FROM {ducklake_column} WHERE table_id = ? "
        "AND end_snapshot IS NOT NULL",
        (table_id, table_id),
    )
    at = column_versions(session, table_id, [int(snapshot) for (snapshot,) in changed])
    columns = tuple(sorted(at.items()))
    # What was before, nobody knows: files from then are left alone.
    shapes = [Shape(columns[0][0], kept=columns[0][0])]
    for begin in shape_begins(columns):
        kept = session.value(
            "SELECT max(snapshot_id) FROM {ducklake_snapshot} WHERE snapshot_id <= ?", (begin,)
        )
        shapes.append(Shape(begin, -1 if kept is None else int(kept)))
    held = _held(session, table_id, shapes[0].begin) if len(shapes) > 1 else {}
    return Shapes(columns, tuple(shapes), held)


def shape_begins(columns: Sequence[tuple[int, tuple[Column, ...]]]) -> list[int]:
    """Return the snapshots, but for the first, from which the columns before cannot hold all rows.

    Args:
        columns: Columns from a snapshot on, oldest first.
    """
    return [begin for (_, before), (begin, after) in pairwise(columns) if not _hold(before, after)]


def _hold(before: Sequence[Column], after: Sequence[Column]) -> bool:
    """Tell whether rows of a newer shape can be written with the columns of an older one.

    A client refuses to write NULL to a column that was NOT NULL at the snapshot a file begins at.
    """
    required = _required(before)
    return _fields(after) <= _fields(before) and required <= _required(after)


def _fields(columns: Iterable[Column]) -> set[_Field]:
    return {(field.column_id, field.type) for column in columns for field in column.walk()}


def _required(columns: Iterable[Column]) -> set[int]:
    return {column.column_id for column in columns if not column.nulls_allowed}


def _held(session: Session, table_id: int, first: int) -> dict[int, int]:
    """Return when the newest column was added that a file has statistics of, by file id.

    Other clients may have written columns to a file that were added after the snapshot at which
    it begins.
    """
    rows = session.rows(
        "SELECT s.data_file_id, max(c.added) FROM {ducklake_file_column_stats} s JOIN "
        "(SELECT column_id, min(begin_snapshot) AS added FROM {ducklake_column} "
        "WHERE table_id = ? GROUP BY column_id HAVING min(begin_snapshot) > ?) c "
        "ON c.column_id = s.column_id WHERE s.table_id = ? GROUP BY s.data_file_id",
        (table_id, first, table_id),
    )
    return {int(file_id): int(added) for file_id, added in rows}
