"""Write a query's rows to Parquet the way the lake wants it, and say what is in the file."""

from __future__ import annotations

import base64
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import duckdb

from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    duckdb_errors,
    encryption_sql,
    load_openssl,
    local_path,
    scratch,
    upload,
)
from airflow_provider_ducklake.kernels.exactness import (
    NEGATIVE_ZERO,
    guard_exactness,
    guard_zeros,
)
from airflow_provider_ducklake.kernels.tasks import ParquetOptions
from airflow_provider_ducklake.kernels.variant_files import copy_variants, has_variants
from airflow_provider_ducklake.kernels.written_statistics import parse_statistics
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import ConfigurationError, StorageError
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal
from airflow_provider_ducklake.lake.model import WrittenFile

ROW_ID: Final = "_ducklake_internal_row_id"
ROW_ID_FIELD: Final = 2147483540
SNAPSHOT_ID: Final = "_ducklake_internal_snapshot_id"
SNAPSHOT_ID_FIELD: Final = 2147483539

_Written = TypeVar("_Written")

_CODECS: Final = ("uncompressed", "brotli", "gzip", "snappy", "lz4", "lz4_raw", "zstd")


def write_parquet(
    connection: duckdb.DuckDBPyConnection,
    select_sql: str,
    parameters: Sequence[object],
    path: str,
    columns: Sequence[Column],
    options: ParquetOptions,
    settings: KernelSettings,
    *,
    write_row_ids: bool = False,
    write_snapshot_ids: bool = False,
) -> WrittenFile:
    """Write the rows of a query to one Parquet file, in the query's order.

    A UNION ALL has no order here: DuckDB writes full row groups of each part first.

    Args:
        connection: From `open_connection`.
        select_sql: A query that yields `columns` by name and type, then the internal columns asked
            for (row id first), each BIGINT.
        parameters: Values of its `?`.
        path: Full path of the file; directories are made, remote files are uploaded.
        columns: Top-level columns; their ids become field ids.
        options: Compression, row groups and encryption; `target_file_size` is not looked at.
        write_row_ids: The query ends in `_ducklake_internal_row_id`.
        write_snapshot_ids: The query ends in `_ducklake_internal_snapshot_id`.

    Returns:
        The file; a query without rows leaves a file without rows.

    Raises:
        BadInput: A value does not convert or cannot be stored exactly.
        ConfigurationError: An option is wrong, or encryption is not possible here.
        StorageError: The file cannot be written. Nothing is left of a file that failed.
    """

    def write(plan: _Plan) -> WrittenFile:
        with _target(path, settings) as local:
            [row] = _copy(connection, select_sql, parameters, local, plan, ("USE_TMP_FILE false",))
            return plan.describe(row, path)

    return _true_to_zeros(write, _Plan(columns, options, write_row_ids, write_snapshot_ids))


def write_parquet_files(
    connection: duckdb.DuckDBPyConnection,
    select_sql: str,
    parameters: Sequence[object],
    directory: str,
    columns: Sequence[Column],
    options: ParquetOptions,
    settings: KernelSettings,
    *,
    write_row_ids: bool = False,
    negative_zeros: bool | None = None,
) -> tuple[WrittenFile, ...]:
    """Write the rows of a query to as many files as `target_file_size` asks for, in order.

    A file is closed behind the row group that reaches the size, so it may be one row group larger.

    Args:
        directory: Full path of the directory, with or without a slash at its end.
        write_row_ids: The query ends in `_ducklake_internal_row_id`.
        negative_zeros: Whether any row has one; None means the query can be run again if so.

    Returns:
        The files in the order of their rows; none when the query has no rows.

    Raises:
        BadInput, ConfigurationError, StorageError: As for `write_parquet`.
    """
    stem = f"ducklake-{uuid7()}"
    extra = (
        f"FILE_SIZE_BYTES {max(1, options.target_file_size)}",
        f"FILENAME_PATTERN {quote_literal(stem + '-{i}')}",
        "OVERWRITE_OR_IGNORE true",
        "WRITE_EMPTY_FILE false",
    )
    directory = directory.rstrip("/") + "/"

    def write(plan: _Plan) -> tuple[WrittenFile, ...]:
        final = local_path(directory)
        if final is not None:
            _make_directory(final)
            try:
                rows = _copy(connection, select_sql, parameters, final, plan, extra)
            except BaseException:
                _remove_all(final, stem)
                raise
            return tuple(plan.describe(row, directory + os.path.basename(row[0])) for row in rows)
        with scratch(settings) as local:
            rows = _copy(connection, select_sql, parameters, local, plan, extra)
            files = []
            for row in rows:
                written = plan.describe(row, directory + os.path.basename(row[0]))
                upload(row[0], written.path, settings)
                files.append(written)
            return tuple(files)

    return _true_to_zeros(
        write, _Plan(columns, options, write_row_ids, negative_zeros=negative_zeros)
    )


def new_file_name() -> str:
    """Return a fresh data file name, `ducklake-<uuid7>.parquet`: unique, in the order of time."""
    return f"ducklake-{uuid7()}.parquet"


def uuid7() -> uuid.UUID:
    """Return a UUID of version 7 (RFC 9562): 48 bits of milliseconds, then random bits."""
    random = int.from_bytes(os.urandom(10), "big")
    value = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80 | random
    value = value & ~(0xF << 76) | 0x7 << 76
    return uuid.UUID(int=value & ~(0x3 << 62) | 0x2 << 62)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Everything about a file that is known before it is written."""

    columns: Sequence[Column]
    options: ParquetOptions
    write_row_ids: bool = False
    write_snapshot_ids: bool = False
    negative_zeros: bool | None = None
    encryption_key: str | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        if self.options.encrypted:
            key = base64.b64encode(os.urandom(16)).decode()
            object.__setattr__(self, "encryption_key", key)

    def internal_columns(self) -> Iterator[tuple[str, int]]:
        if self.write_row_ids:
            yield ROW_ID, ROW_ID_FIELD
        if self.write_snapshot_ids:
            yield SNAPSHOT_ID, SNAPSHOT_ID_FIELD

    def copy_options(self) -> Iterator[str]:
        ids = [f"{quote_identifier(c.name)}: {_field_ids(c)}" for c in self.columns]
        ids += [f"{name}: {field_id}" for name, field_id in self.internal_columns()]
        yield "FORMAT parquet"
        yield "RETURN_STATS"
        yield f"FIELD_IDS {{{', '.join(ids)}}}"
        yield "GEOPARQUET_VERSION 'NONE'"
        yield from _tuning(self.options)
        if self.negative_zeros:
            yield "DICTIONARY_SIZE_LIMIT 0"
        if self.encryption_key is not None:
            yield f"ENCRYPTION_CONFIG {encryption_sql(self.encryption_key)}"

    def describe(self, row: tuple[Any, ...], path: str) -> WrittenFile:
        """Make a WrittenFile of a row that RETURN_STATS returned."""
        _, record_count, file_size, footer_size, found = row[:5]
        row_ids = found.get(f'"{ROW_ID}"', {}) if self.write_row_ids else {}
        snapshots = found.get(f'"{SNAPSHOT_ID}"', {}) if self.write_snapshot_ids else {}
        return WrittenFile(
            path=path,
            record_count=record_count,
            file_size_bytes=file_size,
            footer_size=footer_size,
            statistics=parse_statistics(self.columns, found),
            first_snapshot=_integer(snapshots.get("min")),
            last_snapshot=_integer(snapshots.get("max")),
            first_row_id=_integer(row_ids.get("min")),
            encryption_key=self.encryption_key,
        )


class _NegativeZeroError(Exception):
    """Rows have negative zeros, which dictionaries would take for 0.0."""


def _true_to_zeros(write: Callable[[_Plan], _Written], plan: _Plan) -> _Written:
    """Write by a plan, and without dictionaries when negative zeros turn up on the way."""
    try:
        return write(plan)
    except _NegativeZeroError:
        return write(replace(plan, negative_zeros=True))


def _copy(
    connection: duckdb.DuckDBPyConnection,
    select_sql: str,
    parameters: Sequence[object],
    target: str,
    plan: _Plan,
    extra: Iterable[str],
) -> list[tuple[Any, ...]]:
    options = ", ".join((*plan.copy_options(), *extra))
    if plan.encryption_key is not None:
        load_openssl(connection)
    guards = [guard_exactness(plan.columns)]
    if plan.negative_zeros is None:
        guards.append(guard_zeros(plan.columns))
    internal = "".join(f", {name}" for name, _ in plan.internal_columns())
    for guarded in guards:
        if guarded is not None:
            select_sql = f"SELECT {guarded}{internal} FROM ({select_sql})"
    with duckdb_errors("write Parquet", target):
        try:

            def copy(rows: str, values: Sequence[object], further: str) -> list[tuple[Any, ...]]:
                if plan.options.row_group_size_bytes is not None:
                    return _copy_by_size(connection, rows, values, target, options + further)
                statement = f"COPY ({rows}) TO {quote_literal(target)} ({options}{further})"
                return connection.execute(statement, list(values)).fetchall()

            if has_variants(plan.columns):
                return copy_variants(
                    connection, select_sql, parameters, plan.columns, plan.encryption_key, copy
                )
            return copy(select_sql, parameters, "")
        except duckdb.Error as error:
            if NEGATIVE_ZERO in str(error):
                raise _NegativeZeroError from None
            raise


def _copy_by_size(
    connection: duckdb.DuckDBPyConnection,
    select_sql: str,
    parameters: Sequence[object],
    target: str,
    options: str,
) -> list[tuple[Any, ...]]:
    # DuckDB cuts row groups by bytes only where it need not keep the order of rows. One thread
    # scanning one table keeps it all the same, so the rows go through a table (which may spill).
    table = f"row_groups_{uuid.uuid4().hex}"
    connection.execute(f"CREATE TEMP TABLE {table} AS {select_sql}", list(parameters))
    connection.execute("SET preserve_insertion_order = false")
    try:
        statement = f"COPY (FROM {table}) TO {quote_literal(target)} ({options})"
        return connection.execute(statement).fetchall()
    finally:
        connection.execute("SET preserve_insertion_order = true")
        connection.execute(f"DROP TABLE {table}")


def _tuning(options: ParquetOptions) -> Iterator[str]:
    codec = options.compression.lower() if options.compression else None
    if codec is not None:
        if codec not in _CODECS:
            raise ConfigurationError(
                f"parquet_compression {options.compression!r} is not one of {', '.join(_CODECS)}"
            )
        yield f"COMPRESSION {codec}"
    if options.compression_level is not None:
        if codec != "zstd":
            raise ConfigurationError(
                "parquet_compression_level works only with parquet_compression zstd: "
                "set that too, or unset the level"
            )
        yield f"COMPRESSION_LEVEL {options.compression_level:d}"
    if options.version is not None:
        if options.version not in (1, 2):
            raise ConfigurationError(f"parquet_version {options.version} is not 1 or 2")
        yield f"PARQUET_VERSION V{options.version}"
    if options.row_group_size is not None:
        yield f"ROW_GROUP_SIZE {options.row_group_size:d}"
    if options.row_group_size_bytes is not None:
        yield f"ROW_GROUP_SIZE_BYTES '{options.row_group_size_bytes:d} bytes'"


def _field_ids(column: Column) -> str:
    if not column.children:
        return str(column.column_id)
    names = [child.name for child in column.children]
    if column.type != "struct":
        names = ["element"] if column.type == "list" else ["key", "value"]
    parts = [f"__duckdb_field_id: {column.column_id}"]
    parts += [
        f"{quote_identifier(name)}: {_field_ids(child)}"
        for name, child in zip(names, column.children, strict=True)
    ]
    return f"{{{', '.join(parts)}}}"


def _integer(text: str | None) -> int | None:
    return None if text is None else int(text)


@contextmanager
def _target(path: str, settings: KernelSettings) -> Iterator[str]:
    """Yield the local path to write to; upload at success, remove at failure."""
    final = local_path(path)
    if final is None:
        with scratch(settings) as directory:
            local = os.path.join(directory, os.path.basename(path))
            yield local
            upload(local, path, settings)
        return
    _make_directory(os.path.dirname(final))
    try:
        yield final
    except BaseException:
        _remove(final)
        raise


def _make_directory(directory: str) -> None:
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make directory {directory}: {error.strerror}") from None


def _remove_all(directory: str, stem: str) -> None:
    for name in os.listdir(directory):
        if name.startswith(stem):
            _remove(os.path.join(directory, name))


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"cannot remove the failed file {path}: {error.strerror}") from None
