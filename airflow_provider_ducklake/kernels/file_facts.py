"""Facts about the rows of a file that is looked at: from its footer, else by scanning it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb

from airflow_provider_ducklake.kernels.column_match import ColumnMatch, PathValue
from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    detail,
    local_copy,
    local_path,
    translated,
)
from airflow_provider_ducklake.kernels.file_schema import ParquetField, scan_sql
from airflow_provider_ducklake.kernels.partitioning import PartitionKey
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal

_DATE_PARTS: Final = ("year", "month", "day", "hour")


@dataclass(frozen=True, slots=True)
class Constant:
    """The one value all rows have, as text; None is NULL."""

    text: str | None


@dataclass(slots=True)
class FileFacts:
    """Answers about the rows of one file, which is fetched only when its footer does not tell.

    Attributes:
        connection: From `open_connection`.
        path: Full path.
        match: How the table's columns are found in the file.
        settings: How a remote file is reached.
        staged: Ends the life of a fetched copy.
    """

    connection: duckdb.DuckDBPyConnection
    path: str
    match: ColumnMatch
    settings: KernelSettings
    staged: ExitStack
    _source: str | None = field(default=None, init=False)

    def probe(self) -> None:
        """Decode the first rows of a local file: broken pages are refused before they are ours.

        A remote file is not fetched for that.

        Raises:
            BadInput: They cannot be decoded.
        """
        local = local_path(self.path)
        names = [quote_identifier(source.name) for source in self.match.fields.values()]
        if local is None or not names:
            return
        with _reading(self.path):
            self._row(f"SELECT {', '.join(names)} FROM {scan_sql(local)} LIMIT 1")

    def null_count(self, column: Column) -> int:
        """Return how many rows have NULL in a top-level column that the file holds."""
        source = self.match.fields[column.column_id]
        if source.required:
            return 0
        if source.statistics is not None and source.statistics.null_count is not None:
            return source.statistics.null_count
        name = quote_identifier(source.name)
        return int(self._scan(f"count(*) - count({name})")[0])

    def outside(self, source: ParquetField, column: Column) -> str | None:
        """Return a value of a numeric leaf that a column's type cannot hold; None if it holds all.

        Where neither the footer tells nor the leaf can be scanned, it says so instead.
        """
        stats = source.statistics
        if stats is not None and stats.value_count == 0:
            return None
        if stats is not None and stats.min_value is not None:
            bounds: tuple[Any, ...] = (stats.min_value, stats.max_value)
        elif any(source is top_level for top_level in self.match.fields.values()):
            name = quote_identifier(source.name)
            bounds = self._scan(f"CAST(min({name}) AS VARCHAR), CAST(max({name}) AS VARCHAR)")
        else:
            return "values its footer does not tell"
        for bound in bounds:
            fits = f"{typed(bound, column, attempt=True)} IS NOT NULL"
            if bound is not None and not self._row(f"SELECT {fits}")[0]:
                return str(bound)
        return None

    def differing(self, source: ParquetField, column: Column, value: PathValue) -> str | None:
        """Return a value of a field that is not what the path says; None when all are.

        Args:
            source: The file's field; it may be of another type than the column.
            column: The column the path gives a value for.
            value: That value, known to convert to the column's type.
        """
        claimed = typed(value.value, column)
        constant = self._constant(source)
        # In the footer's statistics these are not written as a cast would write them.
        if constant is not None and source.duckdb_type not in ("BLOB", "BOOLEAN"):
            found = typed(constant.text, column, attempt=True)
            [same] = self._row(f"SELECT {found} IS NOT DISTINCT FROM {claimed}")
            return None if same else constant.text or "NULL"
        name = quote_identifier(source.name)
        converted = f"TRY_CAST({name} AS {column.sql_type})"
        # What does not convert at all is not the NULL that TRY_CAST makes of it.
        unread = f"{converted} IS NULL AND {name} IS NOT NULL"
        differs = f"{converted} IS DISTINCT FROM {claimed} OR ({unread})"
        shown = f"coalesce(CAST({name} AS VARCHAR), 'NULL')"
        return _text(self._scan(f"min({shown}) FILTER ({differs})")[0])

    def partition_value(self, key: PartitionKey) -> Constant | None:
        """Return the value of a partition key when all rows have the same one, else None."""
        column = key.column
        source = self.match.fields.get(column.column_id)
        name = quote_identifier(column.name)
        if source is None:
            [value] = self._row(f"SELECT {key.text} FROM (SELECT {self._absent(column)} AS {name})")
            return Constant(_text(value))
        cheap = self._from_bounds(key, source)
        if cheap is not None:
            return cheap
        value = f"CAST({quote_identifier(source.name)} AS {column.sql_type}) AS {name}"
        rows, known, lowest, highest = self._scan(
            "count(*), count(v), min(v), max(v)",
            f"SELECT {key.text} AS v FROM (SELECT {value} FROM %s)",
        )
        if not known:
            return Constant(None)
        return Constant(_text(lowest)) if known == rows and lowest == highest else None

    def _absent(self, column: Column) -> str:
        for given, value, _ in self.match.from_path:
            if given.column_id == column.column_id:
                return typed(value.value, column)
        return typed(column.initial_default, column)

    def _constant(self, source: ParquetField) -> Constant | None:
        """Return a field's only value if the footer tells, else None."""
        stats = source.statistics
        if stats is None or stats.null_count is None:
            return None
        if stats.value_count == 0:
            return Constant(None)
        if stats.null_count or stats.min_value is None or stats.min_value != stats.max_value:
            return None
        return Constant(stats.min_value)

    def _from_bounds(self, key: PartitionKey, source: ParquetField) -> Constant | None:
        stats, column = source.statistics, key.column
        if stats is None or stats.null_count is None or column.type == "blob":
            return None
        if stats.value_count == 0:
            return Constant(None)
        if stats.null_count or stats.min_value is None:
            return None
        name = quote_identifier(column.name)
        # All instants between two bounds in one year (or month, …) have its number.
        whole = name
        if key.transform in _DATE_PARTS:
            whole = f"date_trunc({quote_literal(key.transform)}, {name})"
        bounds = f"[{typed(stats.min_value, column)}, {typed(stats.max_value, column)}]"
        same, value = self._row(
            f"SELECT count(DISTINCT {whole}) = 1, any_value({key.text}) "
            f"FROM (SELECT unnest({bounds}) AS {name})"
        )
        return Constant(_text(value)) if same else None

    def _scan(self, aggregates: str, rows: str = "FROM %s") -> tuple[Any, ...]:
        if self._source is None:
            local = self.staged.enter_context(local_copy(self.path, self.settings))
            self._source = scan_sql(local)
        with _reading(self.path):
            return self._row(f"SELECT {aggregates} FROM ({rows.replace('%s', self._source)})")

    def _row(self, query: str) -> tuple[Any, ...]:
        row = self.connection.execute(query).fetchone()
        return tuple(row or ())


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turn what DuckDB says of bytes it cannot make sense of into one line about the file."""
    try:
        yield
    except (duckdb.OutOfMemoryException, duckdb.ProgrammingError) as error:
        raise translated(error, "read Parquet", path) from None
    except duckdb.Error as error:
        raise BadInput(f"{path} is broken: {detail(error)}") from None


def typed(text: str | None, column: Column, *, attempt: bool = False) -> str:
    """Return SQL for a text as a value of a scalar column's type.

    Args:
        attempt: NULL instead of an error for a text the type does not understand.
    """
    cast = "TRY_CAST" if attempt else "CAST"
    literal = "NULL" if text is None else quote_literal(text)
    return f"{cast}({literal} AS {column.sql_type})"


def _text(value: object) -> str | None:
    return None if value is None else str(value)
