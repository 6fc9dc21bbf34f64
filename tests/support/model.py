"""What every kept snapshot of a lake must show, kept by the test from the operations it issues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from tests.support.reference import Row, Rows, Value, normalise_row

# A row as the test sees it: column name -> value.
Record: TypeAlias = Mapping[str, Value]
Predicate: TypeAlias = Callable[[Record], bool]


@dataclass(frozen=True, slots=True)
class ModelTable:
    """A table at one snapshot: its columns in order and its rows by row id.

    Every method returns the table after one statement; the table itself never changes, so
    snapshots share what they have in common.

    Rows that a statement has just added have negative ids until `with_observed_ids` replaces
    them by those the lake gave; from then on a row keeps its id.

    Attributes:
        next_row_id: Smallest id a new row may get: ids are never given twice.
    """

    columns: tuple[str, ...]
    rows: Mapping[int, Row] = field(default_factory=dict)
    next_row_id: int = 0

    def record(self, row: Row) -> dict[str, Value]:
        """Return a row as column name -> value."""
        return dict(zip(self.columns, row, strict=True))

    def records(self) -> Iterable[tuple[int, dict[str, Value]]]:
        """Yield (row id, record) of every row."""
        return ((row_id, self.record(row)) for row_id, row in self.rows.items())

    def as_counter(self) -> Rows:
        """Return the rows as the reference client reports them: (row id, *values)."""
        return Counter((row_id, *row) for row_id, row in self.rows.items())

    def values(self) -> Rows:
        """Return the multiset of rows without their ids."""
        return Counter(self.rows.values())

    def insert(self, rows: Mapping[int, Iterable[Any]]) -> ModelTable:
        """Add rows under the ids the lake gave them.

        Raises:
            AssertionError: An id is in use: the lake gave it out twice.
        """
        added = {row_id: normalise_row(tuple(row)) for row_id, row in rows.items()}
        clash = self.rows.keys() & added.keys()
        assert not clash, f"row ids {sorted(clash)} belong to live rows already"
        assert all(len(row) == len(self.columns) for row in added.values())
        return replace(self, rows={**self.rows, **added})

    def delete(self, where: Predicate) -> ModelTable:
        """Remove the rows a predicate holds for."""
        kept = {i: row for i, row in self.rows.items() if not where(self.record(row))}
        return replace(self, rows=kept)

    def update(self, where: Predicate, changes: Callable[[Record], Record]) -> ModelTable:
        """Change columns of the rows a predicate holds for; they keep their row ids."""
        rows = dict(self.rows)
        for row_id, record in self.records():
            if where(record):
                changed = record | dict(changes(record))
                rows[row_id] = normalise_row(tuple(changed[name] for name in self.columns))
        return replace(self, rows=rows)

    def add_column(self, name: str, default: Any = None) -> ModelTable:
        """Append a column that existing rows read as its default."""
        value = normalise_row((default,))
        rows = {row_id: row + value for row_id, row in self.rows.items()}
        return replace(self, columns=(*self.columns, name), rows=rows)

    def drop_column(self, name: str) -> ModelTable:
        """Remove a column and its values."""
        at = self.columns.index(name)
        rows = {row_id: row[:at] + row[at + 1 :] for row_id, row in self.rows.items()}
        return replace(self, columns=self.columns[:at] + self.columns[at + 1 :], rows=rows)

    def rename_column(self, name: str, new_name: str) -> ModelTable:
        """Give a column another name."""
        columns = tuple(new_name if column == name else column for column in self.columns)
        return replace(self, columns=columns)

    def convert_column(self, name: str, convert: Callable[[Value], Any]) -> ModelTable:
        """Change the values of a column as a change of its type does."""
        at = self.columns.index(name)
        rows = {
            row_id: (*row[:at], *normalise_row((convert(row[at]),)), *row[at + 1 :])
            for row_id, row in self.rows.items()
        }
        return replace(self, rows=rows)

    def with_observed_ids(self, observed: Rows) -> ModelTable:
        """Give the rows that have a provisional id the ids that equal rows have in the lake.

        Args:
            observed: The rows the lake shows right after the statement.

        Raises:
            AssertionError: The lake shows other new rows, or gave them ids used before.
        """
        settled = {row_id: row for row_id, row in self.rows.items() if row_id >= 0}
        by_values: dict[Row, list[int]] = {}
        for row_id, *values in sorted(observed, key=lambda row: row[0], reverse=True):
            if row_id not in settled:
                assert row_id >= self.next_row_id, f"row id {row_id} was given before"
                by_values.setdefault(tuple(values), []).append(row_id)
        for row in (row for row_id, row in self.rows.items() if row_id < 0):
            assert by_values.get(row), f"the lake lacks the new row {row}: {by_values}"
            settled[by_values[row].pop()] = row
        left = [row for row, ids in by_values.items() if ids]
        assert not left, f"the lake shows rows nobody inserted: {left[:5]}"
        next_row_id = max(max(settled, default=-1) + 1, self.next_row_id)
        return replace(self, rows=settled, next_row_id=next_row_id)


class ModelLake:
    """The tables of a lake at every kept snapshot, by `schema.table`."""

    def __init__(self, snapshot_id: int = 0) -> None:
        """Begin with the empty lake of its first snapshot."""
        self._snapshots: dict[int, Mapping[str, ModelTable]] = {snapshot_id: MappingProxyType({})}

    def copy(self) -> ModelLake:
        """Return another one with the same snapshots."""
        other = ModelLake()
        other._snapshots = dict(self._snapshots)
        return other

    @property
    def head(self) -> int:
        """The newest snapshot."""
        return max(self._snapshots)

    @property
    def kept(self) -> tuple[int, ...]:
        """The kept snapshots, oldest first."""
        return tuple(sorted(self._snapshots))

    @property
    def tables(self) -> Mapping[str, ModelTable]:
        """The tables at the newest snapshot."""
        return self._snapshots[self.head]

    def tables_at(self, snapshot_id: int) -> Mapping[str, ModelTable]:
        """The tables at a kept snapshot."""
        return self._snapshots[snapshot_id]

    def commit(self, snapshot_id: int, changes: Mapping[str, ModelTable | None]) -> None:
        """Add a snapshot in which some tables have a new state; None means dropped.

        Raises:
            AssertionError: The snapshot is not newer than all others.
        """
        assert snapshot_id > self.head, f"snapshot {snapshot_id} is not newer than {self.head}"
        merged = {**self.tables, **changes}
        tables = {name: table for name, table in merged.items() if table is not None}
        self._snapshots[snapshot_id] = MappingProxyType(tables)

    def expire(self, snapshot_ids: Iterable[int]) -> None:
        """Forget snapshots.

        Raises:
            AssertionError: The newest one is among them; it never expires.
        """
        gone = set(snapshot_ids)
        assert self.head not in gone, f"the newest snapshot {self.head} was expired"
        for snapshot_id in gone & self._snapshots.keys():
            del self._snapshots[snapshot_id]
