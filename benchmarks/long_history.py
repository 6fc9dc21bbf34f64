"""Catalogs with very many snapshots and files, made by a few statements and not by writers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.tables import create_table

COLUMNS: Final = "id int64, customer int64, price float64, product varchar, token varchar"
_NUMBERS: Final = (
    "WITH RECURSIVE n(i) AS (SELECT CAST(0 AS BIGINT) "
    "UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) "
)
_FIRST: Final = 2  # snapshot: 0 is the lake's and 1 the table's


@dataclass(frozen=True, slots=True)
class LongHistory:
    """A table whose data files were added and ended evenly over many snapshots.

    Attributes:
        snapshots: Of the table, from the third of the lake on.
        files: Data files, each of which lived as long as three of them were added; those of the
            last snapshots live. Every tenth has a delete file, which began with the next snapshot.
    """

    snapshots: int
    files: int

    @property
    def newest(self) -> int:
        """The last snapshot."""
        return _FIRST + self.snapshots - 1

    def lifetimes(self) -> Iterator[tuple[int, int]]:
        """Yield the first snapshot of each data file, and the first one without it."""
        life = max(3 * self.snapshots // self.files, 1)
        for number in range(self.files):
            begin = _FIRST + number * self.snapshots // self.files
            yield begin, begin + life

    def freed(self, first_kept: int) -> tuple[int, int]:
        """Return how many data files and delete files no snapshot from that one on reaches."""
        gone = [end <= min(first_kept, self.newest) for _, end in self.lifetimes()]
        return sum(gone), sum(gone[::10])

    def fill(self, lake: Lake) -> None:
        """Put it into an empty lake."""
        create_table(lake, "t", parse_columns(COLUMNS))
        with lake.database.write() as session:
            self.fill_snapshots(session)
            self._fill_files(session)

    def fill_snapshots(self, session: Session) -> None:
        """Put its snapshots into a lake that has one table."""
        ids = (self.snapshots, _FIRST)
        session.execute(
            "INSERT INTO {ducklake_snapshot} " + _NUMBERS + "SELECT i + ?, "
            "'2020-01-01 00:00:00+00', 1, 2, ? FROM n",
            (*ids, 2 * self.files),
        )
        session.execute(
            "INSERT INTO {ducklake_snapshot_changes} " + _NUMBERS + "SELECT i + ?, "
            "'inserted_into_table:1', NULL, NULL, NULL FROM n",
            ids,
        )

    def _fill_files(self, session: Session) -> None:
        life = max(3 * self.snapshots // self.files, 1)
        begin = f"{_FIRST} + i * {int(self.snapshots)} / {int(self.files)}"
        end = f"CASE WHEN {begin} + {life} <= {self.newest} THEN {begin} + {life} END"
        session.execute(
            "INSERT INTO {ducklake_data_file} " + _NUMBERS + f"SELECT i, 1, {begin}, {end}, NULL, "
            "'ducklake-' || CAST(i AS VARCHAR) || '.parquet', CAST(1 AS BOOLEAN), 'parquet', 100, "
            "5000, 500, i * 100, NULL, NULL, NULL, NULL FROM n",
            (self.files,),
        )
        session.execute(
            "INSERT INTO {ducklake_delete_file} " + _NUMBERS + f"SELECT {int(self.files)} + i, 1, "
            f"{begin} + 1, {end}, i, 'ducklake-' || CAST(i AS VARCHAR) || '-delete.parquet', "
            "CAST(1 AS BOOLEAN), 'parquet', 5, 500, 100, NULL, NULL FROM n WHERE i % 10 = 0",
            (self.files,),
        )
        session.execute(
            "INSERT INTO {ducklake_file_column_stats} SELECT f.data_file_id, 1, c.column_id, "
            "1000, 100, 0, '0', '99', CAST(0 AS BOOLEAN), NULL "
            "FROM {ducklake_data_file} f CROSS JOIN {ducklake_column} c"
        )
