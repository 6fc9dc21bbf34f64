"""What a table says of the values of its columns, held against what its files say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from airflow_provider_ducklake.lake.columns import Column, leaf_paths, leaves
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.expiry import unreached
from airflow_provider_ducklake.lake.extra_statistics import EXTRA_TYPES, exceeds
from airflow_provider_ducklake.lake.fsck.findings import Finding
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.model import Table
from airflow_provider_ducklake.lake.reader import check_format, read_options
from airflow_provider_ducklake.lake.statistics import (
    ColumnStatistics,
    TableColumnStatistics,
    bound_of,
)
from airflow_provider_ducklake.lake.table_stats import (
    forget_bounds,
    read_column_statistics,
    read_file_statistics,
)
from airflow_provider_ducklake.lake.types import FLOATING

TABLE_STATISTICS: Final = "table_statistics"
FILE_NAN: Final = "file_nan"


def check_bounds(session: Session, table: Table) -> Iterator[Finding]:
    """Yield the columns of which a table says less than a file that is still read holds.

    Args:
        session: A transaction.
        table: The table at the newest snapshot.
    """
    said = read_column_statistics(session, table.table_id)
    files: dict[int, list[ColumnStatistics]] = {}
    for of_file in read_file_statistics(session, _files_still_read(session, table)).values():
        for statistics in of_file:
            files.setdefault(statistics.column_id, []).append(statistics)
    paths = leaf_paths(table.columns)
    for column in leaves(table.columns):
        known = said.get(column.column_id)
        if known is None:
            continue  # no row is unknown, and unknown is never wrong
        missing = _missing(column, known, files.get(column.column_id, ()))
        if missing:
            path = paths[column.column_id]
            message = f"{table.full_name} says of column {path}: {missing}"
            yield Finding(TABLE_STATISTICS, message, table.table_id, (column.column_id,))


def commit_unknown(lake: Lake, table: Table) -> int:
    """Forget what a table says of columns where that is too narrow; return of how many.

    Args:
        lake: The lake.
        table: The table at a snapshot that is the newest, or was lately.
    """
    with lake.database.write() as session:
        check_format(read_options(session), lake)
        wrong = [finding.ids[0] for finding in check_bounds(session, table)]
        forget_bounds(session, table.table_id, wrong)
        return len(wrong)


def commit_nan(lake: Lake, found: Iterable[Finding]) -> int:
    """Say that columns hold NaN, of their files and tables; return of how many files' columns.

    Args:
        lake: The lake.
        found: Findings of `file_nan`, which name data file and column. What a file holds never
            changes, so it does not matter what was committed since.
    """
    changed = 0
    with lake.database.write() as session:
        check_format(read_options(session), lake)
        for finding in found:
            file_id, column_id = finding.ids
            changed += session.execute(
                "UPDATE {ducklake_file_column_stats} SET contains_nan = ? "
                "WHERE data_file_id = ? AND column_id = ? AND contains_nan IS NOT NULL",
                (True, file_id, column_id),
            )
            session.execute(
                "UPDATE {ducklake_table_column_stats} SET contains_nan = ? "
                "WHERE table_id = ? AND column_id = ? AND contains_nan IS NOT NULL",
                (True, finding.table_id, column_id),
            )
    return changed


def _files_still_read(session: Session, table: Table) -> list[int]:
    query = (
        "SELECT f.data_file_id FROM {ducklake_data_file} f "
        f"WHERE f.table_id = ? AND NOT ({unreached('f')})"
    )
    return [int(file_id) for (file_id,) in session.rows(query, (table.table_id,))]


def _missing(
    column: Column, known: TableColumnStatistics, files: Sequence[ColumnStatistics]
) -> str | None:
    """Return what a table's statistics leave out; None when they hold for all the files."""
    if known.contains_null is False and any(file.null_count for file in files):
        return "no NULL, but a file holds one"
    if known.contains_nan is False and any(file.contains_nan for file in files):
        return "no NaN, but a file holds one"
    if column.type in EXTRA_TYPES:
        told = (exceeds(column, known.extra_stats, file.extra_stats) for file in files)
        return next(filter(None, told), None)
    if column.type in FLOATING and known.contains_nan is not False:
        # No client applies them (DuckLakeColumnStats::ToStats in ducklake_stats.cpp), and with a
        # file that holds nothing but NaN the reference forgets what they were.
        return None
    lows = [file.min_value for file in files if file.min_value is not None]
    highs = [file.max_value for file in files if file.max_value is not None]
    if known.min_value is None and known.max_value is None:
        return f"nothing but NULL, but a file holds {lows[0]!r}" if lows and highs else None
    for bound, texts, smallest in (
        (known.min_value, lows, True),
        (known.max_value, highs, False),
    ):
        widest = bound_of(column.type, [bound, *texts], smallest=smallest)
        if widest is not None and widest != bound:
            side = "at least" if smallest else "at most"
            return f"{side} {bound}, but a file's values reach to {widest}"
    return None
