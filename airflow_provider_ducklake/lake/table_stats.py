"""The statistics a catalog keeps of whole tables: rows, bytes, next row id, column bounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_provider_ducklake.lake.columns import leaves
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.extra_statistics import EXTRA_TYPES, merge_extra_into_table
from airflow_provider_ducklake.lake.model import Table
from airflow_provider_ducklake.lake.statistics import (
    ColumnStatistics,
    Growth,
    TableColumnStatistics,
    merge_into_table,
)


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Counters of a table: gross rows, the next free row id, bytes of its files."""

    record_count: int = 0
    next_row_id: int = 0
    file_size_bytes: int = 0
    exists: bool = False


def read_table_statistics(session: Session, table_id: int) -> TableStatistics:
    """Return a table's counters; zeroes with `exists=False` before its first row."""
    rows = session.rows(
        "SELECT record_count, next_row_id, file_size_bytes FROM {ducklake_table_stats} "
        "WHERE table_id = ?",
        (table_id,),
    )
    if not rows:
        return TableStatistics()
    record_count, next_row_id, size = (int(value or 0) for value in rows[0])
    return TableStatistics(record_count, next_row_id, size, exists=True)


def add_rows(
    session: Session,
    table: Table,
    statistics: TableStatistics,
    files: Sequence[Sequence[ColumnStatistics]],
    *,
    rows: int,
    new_row_ids: int,
    size: int,
) -> None:
    """Account for new files: counters go up, column bounds widen.

    Args:
        session: The commit transaction.
        table: The table.
        statistics: Its counters before.
        files: Column statistics of each new file that has rows.
        rows: Rows to add to the count.
        new_row_ids: Row ids that were given out.
        size: Bytes of the new files.
    """
    after = replace(
        statistics,
        record_count=statistics.record_count + rows,
        next_row_id=statistics.next_row_id + new_row_ids,
        file_size_bytes=statistics.file_size_bytes + size,
    )
    _write_counters(session, table.table_id, after)
    by_file = [{s.column_id: s for s in of_file} for of_file in files]
    current = read_column_statistics(session, table.table_id) if statistics.exists else {}
    merged, unknown, growths = [], [], []
    for column in leaves(table.columns):
        # A column added after the first rows has no row here: old rows hold its default.
        known = current.get(column.column_id)
        if statistics.exists and known is None:
            continue
        per_file = [of_file.get(column.column_id) for of_file in by_file]
        if column.type not in EXTRA_TYPES:
            growths.append(Growth(column, known, per_file))
            continue
        extra = merge_extra_into_table(column, known, per_file)
        if extra is None:
            unknown.append(column.column_id)
        else:
            merged.append(extra)
    first_values = {}
    for growth, result in zip(growths, merge_into_table(growths), strict=True):
        if growth.has_values and None in (result.min_value, result.max_value):
            unknown.append(result.column_id)
            continue
        merged.append(result)
        if growth.has_values and growth.current is not None and growth.current.is_only_null:
            bounded = [part for part in growth.files if part and part.min_value is not None]
            first_values[result.column_id] = len(bounded)
    unknown += _with_older_values(session, table.table_id, first_values)
    forget_bounds(session, table.table_id, unknown)
    _write_columns(session, table.table_id, merged, insert=not statistics.exists)


def _with_older_values(
    session: Session, table_id: int, new_files: Mapping[int, int]
) -> Iterator[int]:
    """Yield those of some columns, taken for NULL alone so far, of which older files hold values.

    A stock client leaves a table so when it inserts the first rows, into several partitions, and
    those of the first are NULL (1.5.5); its next insert narrows the bounds to the new rows.

    Args:
        session: The commit transaction.
        table_id: The table.
        new_files: Of each column, how many of the new files have bounds.
    """
    query = (
        "SELECT column_id, count(*) FROM {ducklake_file_column_stats} WHERE min_value IS NOT NULL "
        "AND table_id = ? AND column_id IN (??) GROUP BY column_id"
    )
    for column_id, files in session.rows_in(query, new_files, (table_id,)):
        if int(files) > new_files[int(column_id)]:
            yield int(column_id)


def forget_bounds(session: Session, table_id: int, column_ids: Iterable[int]) -> None:
    """Forget what a table says of the values of some columns, for good.

    No row at all is read as unknown and stays so. A row without bounds will not do: the reference
    takes the column for one of NULLs, and its next insert narrows it to the new rows.

    Source: DuckLakeColumnStats::MergeStats in storage/ducklake_stats.cpp.
    """
    session.execute_in(
        "DELETE FROM {ducklake_table_column_stats} WHERE table_id = ? AND column_id IN (??)",
        column_ids,
        (table_id,),
    )


def read_column_statistics(session: Session, table_id: int) -> Mapping[int, TableColumnStatistics]:
    """Return what a table says of its leaf columns, by column id; no entry is unknown."""
    query = (
        "SELECT column_id, contains_null, contains_nan, min_value, max_value, extra_stats "
        "FROM {ducklake_table_column_stats} WHERE table_id = ?"
    )
    rows = session.rows(query, (table_id,))
    return {
        int(column_id): TableColumnStatistics(
            int(column_id), _flag(null), _flag(nan), low, high, extra
        )
        for column_id, null, nan, low, high, extra in rows
    }


def read_file_statistics(
    session: Session, data_file_ids: Iterable[int]
) -> dict[int, list[ColumnStatistics]]:
    """Return the column statistics of some data files, by file id; files without any are absent."""
    query = (
        "SELECT data_file_id, column_id, column_size_bytes, value_count, null_count, min_value, "
        "max_value, contains_nan, extra_stats FROM {ducklake_file_column_stats} "
        "WHERE data_file_id IN (??)"
    )
    found: dict[int, list[ColumnStatistics]] = defaultdict(list)
    for file_id, column_id, size, values, nulls, low, high, nan, extra in session.rows_in(
        query, data_file_ids
    ):
        found[int(file_id)].append(
            ColumnStatistics(int(column_id), size, values, nulls, low, high, _flag(nan), extra)
        )
    return found


def _write_counters(session: Session, table_id: int, statistics: TableStatistics) -> None:
    values = (statistics.record_count, statistics.next_row_id, statistics.file_size_bytes)
    if statistics.exists:
        session.execute(
            "UPDATE {ducklake_table_stats} SET record_count = ?, next_row_id = ?, "
            "file_size_bytes = ? WHERE table_id = ?",
            (*values, table_id),
        )
    else:
        session.insert("ducklake_table_stats", [(table_id, *values)])


def _flag(value: object) -> bool | None:
    return None if value is None else bool(value)


def _write_columns(
    session: Session, table_id: int, columns: Sequence[TableColumnStatistics], *, insert: bool
) -> None:
    rows = [
        (c.contains_null, c.contains_nan, c.min_value, c.max_value, c.extra_stats, c.column_id)
        for c in columns
    ]
    if insert:
        session.insert(
            "ducklake_table_column_stats", [(table_id, row[5], *row[:5]) for row in rows]
        )
        return
    for row in rows:
        session.execute(
            "UPDATE {ducklake_table_column_stats} SET contains_null = ?, contains_nan = ?, "
            "min_value = ?, max_value = ?, extra_stats = ? WHERE column_id = ? AND table_id = ?",
            (*row, table_id),
        )
