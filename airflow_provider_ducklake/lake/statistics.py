"""Column statistics of files and tables: absent or right, never guessed."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import duckdb

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.types import (
    FLOATING,
    TEXT_ORDERED,
    WITHOUT_BOUNDS,
    duckdb_type,
)


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of one leaf column in one data file; None is unknown.

    Attributes:
        column_id: Id of the leaf column.
        size_bytes: Compressed bytes of the column in the file.
        value_count: Values that are not NULL.
        null_count: Values that are NULL.
        min_value: A lower bound in the text form of data_types.md; None also when all is NULL.
        max_value: An upper bound, likewise.
        contains_nan: Whether any value is NaN; only for floating-point columns.
        extra_stats: JSON for geometry and variant columns.
    """

    column_id: int
    size_bytes: int | None = None
    value_count: int | None = None
    null_count: int | None = None
    min_value: str | None = None
    max_value: str | None = None
    contains_nan: bool | None = None
    extra_stats: str | None = None

    @property
    def is_only_null(self) -> bool:
        """Whether the column holds nothing but NULL.

        DuckDB counts the NULLs of structs in lists twice: counts alone do not tell.
        """
        bounds = (self.min_value, self.max_value)
        return self.value_count == 0 and bool(self.null_count) and bounds == (None, None)


@dataclass(frozen=True, slots=True)
class TableColumnStatistics:
    """What a table says of one leaf column.

    Without bounds the column has held only NULL so far, as the reference reads it; what is not
    known has no row at all. The flags may be None for unknown.
    """

    column_id: int
    contains_null: bool | None = None
    contains_nan: bool | None = None
    min_value: str | None = None
    max_value: str | None = None
    extra_stats: str | None = None

    @property
    def is_only_null(self) -> bool:
        """Whether the column is taken for one of nothing but NULL."""
        return self.min_value is None and self.max_value is None


@dataclass(frozen=True, slots=True)
class Growth:
    """What new files bring to what a table says of one leaf column.

    Attributes:
        column: The column, for its type.
        current: What the table says now; None when it has said nothing yet (no rows so far).
        files: One entry a new file with rows; None where a file has no statistics for it.
    """

    column: Column
    current: TableColumnStatistics | None
    files: Sequence[ColumnStatistics | None]

    @property
    def has_values(self) -> bool:
        """Whether any of the files may hold something else than NULL."""
        return any(part is None or not part.is_only_null for part in self.files)


def merge_into_table(growths: Sequence[Growth]) -> list[TableColumnStatistics]:
    """Widen a table's column statistics so that they hold for the rows of more files too.

    All columns are compared at once: a table may have thousands, and the commit waits.
    """
    parts = [_parts(growth) for growth in growths]
    bounded = [[part for part in of if part is None or not part.only_null] for of in parts]
    lows = [[part.min_value if part else None for part in of] for of in bounded]
    highs = [[part.max_value if part else None for part in of] for of in bounded]
    kinds = [growth.column.type for growth in growths]
    lower = bounds_of(zip(kinds, lows, strict=True), smallest=True)
    upper = bounds_of(zip(kinds, highs, strict=True), smallest=False)
    return [_merged(*one) for one in zip(growths, parts, lower, upper, strict=True)]


def _parts(growth: Growth) -> list[_Part | None]:
    parts = [_of_file(s) if s else None for s in growth.files]
    return parts if growth.current is None else [_of_table(growth.current), *parts]


def _merged(
    growth: Growth, parts: Sequence[_Part | None], lower: str | None, upper: str | None
) -> TableColumnStatistics:
    current = growth.current
    if current is not None and not growth.has_values:
        # Also where it is not for us to say: a stock client gives a BLOB bounds.
        lower, upper = current.min_value, current.max_value
    contains_nan = None
    if growth.column.type in FLOATING:
        contains_nan = _any([part.contains_nan if part else None for part in parts])
    contains_null = contains_null_of(current, growth.files)
    return TableColumnStatistics(growth.column.column_id, contains_null, contains_nan, lower, upper)


def contains_null_of(
    current: TableColumnStatistics | None, files: Sequence[ColumnStatistics | None]
) -> bool | None:
    """Tell whether a table and more files hold any NULL of a column; None is unknown."""
    parts = [_of_file(s).contains_null if s else None for s in files]
    return _any([current.contains_null, *parts] if current is not None else parts)


def bound_of(type_name: str, values: Iterable[str | None], *, smallest: bool) -> str | None:
    """Return the smallest or largest of some bounds in text form; None when any is unknown."""
    return bounds_of([(type_name, values)], smallest=smallest)[0]


def bounds_of(
    groups: Iterable[tuple[str, Iterable[str | None]]], *, smallest: bool
) -> list[str | None]:
    """Return the same of several groups of bounds, each of one type.

    The values are compared as their type: by DuckDB itself, which knows infinities, years
    before Christ and decimals of 38 digits.
    """
    found: list[str | None] = []
    questions: dict[str, dict[int, list[str]]] = defaultdict(dict)
    for place, (type_name, values) in enumerate(groups):
        texts = list(values)
        known = [text for text in texts if text is not None]
        found.append(None)
        if not known or len(known) < len(texts) or type_name in WITHOUT_BOUNDS:
            continue
        if type_name in TEXT_ORDERED:
            found[place] = min(known) if smallest else max(known)
        elif len(set(known)) == 1:
            found[place] = known[0]
        else:
            questions[type_name][place] = known
    for type_name, of_type in questions.items():
        for place, bound in _by_value(type_name, of_type, "arg_min" if smallest else "arg_max"):
            found[place] = bound
    return found


def _by_value(
    type_name: str, groups: Mapping[int, Sequence[str]], pick: str
) -> Iterable[tuple[int, str]]:
    # The type comes from a closed table and `pick` from the two words above.
    query = (
        f"SELECT place, {pick}(v, CAST(v AS {duckdb_type(type_name)})) "
        "FROM (SELECT unnest(?::INTEGER[]) place, unnest(?::VARCHAR[]) v) GROUP BY place"
    )
    places = [place for place, texts in groups.items() for _ in texts]
    values = [text for texts in groups.values() for text in texts]
    with _instance(os.getpid()).cursor() as connection:
        try:
            return connection.execute(query, [places, values]).fetchall()
        except duckdb.ConversionException:
            pass
    if len(groups) == 1:
        return []  # a bound this type cannot read is no bound
    return [row for group in groups.items() for row in _by_value(type_name, dict([group]), pick)]


@cache
def _instance(process: int) -> duckdb.DuckDBPyConnection:
    # To start one takes twenty milliseconds, and a commit compares bounds of each type. Each thread
    # has a cursor of its own. A forked process starts another and leaves its parent's alone:
    # some thread of the parent may have been in the middle of a query.
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return connection


@dataclass(frozen=True, slots=True)
class _Part:
    contains_null: bool | None
    contains_nan: bool | None
    min_value: str | None
    max_value: str | None
    only_null: bool


def _of_file(stats: ColumnStatistics) -> _Part:
    nulls = None if stats.null_count is None else stats.null_count > 0
    low, high = stats.min_value, stats.max_value
    return _Part(nulls, stats.contains_nan, low, high, stats.is_only_null)


def _of_table(stats: TableColumnStatistics) -> _Part:
    low, high = stats.min_value, stats.max_value
    return _Part(stats.contains_null, stats.contains_nan, low, high, stats.is_only_null)


def _any(flags: Sequence[bool | None]) -> bool | None:
    if any(flags):
        return True
    return None if None in flags else False
