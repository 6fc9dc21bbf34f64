"""What the footer of a Parquet file says: its schema as DuckDB reads it, sizes, statistics."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import duckdb

from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    detail,
    local_path,
    scratch,
    translated,
)
from airflow_provider_ducklake.kernels.file_schema import (
    ELEMENT,
    LeafStatistics,
    ParquetField,
    fields_of,
    scan_sql,
)
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.extra_statistics import EDGES, Extent, common_extent
from airflow_provider_ducklake.storage import open_store

# Only what is used, so that a footer of many row groups does not become many Python objects.
_QUERY: Final = f"""
SELECT
    list_transform(parquet_file_metadata, lambda x: struct_pack(
        num_rows := x.num_rows, footer_size := x.footer_size,
        encryption := x.encryption_algorithm, orders := x.column_orders)),
    list_transform(parquet_schema, lambda x: {ELEMENT}),
    list_transform(parquet_metadata, lambda x: struct_pack(
        row_group := x.row_group_id, group_rows := x.row_group_num_rows, leaf := x.column_id,
        num_values := x.num_values, null_count := x.stats_null_count,
        min := x.stats_min_value, max := x.stats_max_value,
        min_exact := x.min_is_exact, max_exact := x.max_is_exact,
        box := x.geo_bbox, geometries := x.geo_types,
        codec := x.compression, type := x.type, size := x.total_compressed_size,
        data := x.data_page_offset, dictionary := x.dictionary_page_offset)),
    list_transform(
        list_filter(parquet_kv_metadata, lambda x: x."key" IN ('org.apache.spark.version',
            'org.apache.spark.legacyDateTime', 'org.apache.spark.legacyINT96')),
        lambda x: [decode(x."key"), decode(x."value")])
FROM parquet_full_metadata($1)
"""
# How the catalog writes a bound of these types; the others it writes as they are cast to text.
_SHOWN: Final = {"BLOB": "hex(v)", "BOOLEAN": "CAST(CAST(v AS INTEGER) AS VARCHAR)"}
_TAIL: Final = 64 * 1024
# Whoever asks DuckDB for the text of such a value, also as a bound in a footer, divides by ten to
# the 16th cut to 16 bits, which is zero, and the process is gone (tried on 1.5.5).
_FATAL: Final = """
SELECT name, precision, scale FROM parquet_schema($1) WHERE precision <= 4 AND scale >= 16 LIMIT 1
"""
_MAGIC: Final = b"PAR1"
_CODECS: Final = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4_RAW", "BROTLI"})
# No writer cuts text bounds off below this length; one that says so in the footer needs no guess.
_NEVER_TRUNCATED: Final = 32


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of one file; sizes in bytes.

    Attributes:
        old_calendar: Spark wrote it with the calendar of old: dates before 1582-10-15 are not what
            they say, and Spark converts them when it reads the file; DuckDB does not.
    """

    record_count: int
    file_size_bytes: int
    footer_size: int
    fields: tuple[ParquetField, ...]
    old_calendar: bool = False


@contextmanager
def footer_file(path: str, settings: KernelSettings) -> Iterator[str]:
    """Yield a local file that has the size and footer of a file, if not its data.

    A remote file is not downloaded for its footer: its end is copied behind a hole.

    Raises:
        StorageError: The file is not there or cannot be read.
        BadInput: The file is too short to be Parquet.
    """
    store = open_store(path, settings.storage)
    size = store.size(path)
    if size < 12:
        raise BadInput(f"{path} is not a Parquet file: it has {size} bytes")
    local = local_path(path)
    if local is not None and not set(local) & set("*?["):
        yield local
        return
    with scratch(settings) as directory:
        link = os.path.join(directory, "footer.parquet")
        if local is not None:  # DuckDB would take its name for a pattern
            os.symlink(local, link)
        else:
            tail = store.read(path, start=max(0, size - _TAIL))
            needed = int.from_bytes(tail[-8:-4], "little") + 8
            if len(tail) < needed <= size:
                tail = store.read(path, start=size - needed)
            with open(link, "wb") as file:
                file.write(_MAGIC)
                file.truncate(size - len(tail))
                file.seek(0, os.SEEK_END)
                file.write(tail)
        yield link


def read_footer(connection: duckdb.DuckDBPyConnection, local: str, path: str) -> Footer:
    """Read the footer of a Parquet file.

    Args:
        connection: From `open_connection`.
        local: File to read, from `footer_file`.
        path: Path to name in messages.

    Raises:
        BadInput: The file is not Parquet, is broken, encrypted, or holds what DuckDB cannot read.
    """
    try:
        fatal = connection.execute(_FATAL, [local]).fetchone()
        if fatal is not None:
            raise _fatal(path, *fatal)
        [(files, elements, chunks, by_spark)] = connection.execute(_QUERY, [local]).fetchall()
        read = connection.execute(f"FROM {scan_sql(local)} LIMIT 0").description or []
    except duckdb.OutOfMemoryException as error:
        raise translated(error, "read the footer", path) from None
    except (duckdb.Error, UnicodeDecodeError) as error:
        raise _unreadable(error, local, path) from None
    [file] = files
    if file["encryption"] is not None:
        raise _encrypted(path)
    size = os.path.getsize(local)
    _check_chunks(file, chunks, size, path)
    by_leaf: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for chunk in chunks:
        by_leaf[chunk["leaf"]].append(chunk)
    leaves = _Leaves(connection, file["orders"] or [], by_leaf)
    fields = fields_of(elements, [kind for _, kind, *_ in read], path, leaves.statistics)
    old_calendar = _has_old_calendar(dict(by_spark))
    return Footer(file["num_rows"], size, file["footer_size"], fields, old_calendar)


def _has_old_calendar(by_spark: Mapping[str, str]) -> bool:
    # Source: Spark's DataSourceUtils.scala, datetimeRebaseSpec and int96RebaseSpec.
    version = by_spark.get("org.apache.spark.version")
    return version is not None and (version < "3.1.0" or len(by_spark) > 1)


def _unreadable(error: Exception, local: str, path: str) -> BadInput:
    reason = detail(error)
    if "is encrypted" in reason:
        return _encrypted(path)
    for name in (f'"{local}"', f"'{local}'", local):
        reason = reason.replace(name, "the file")
    return BadInput(f"{path} is not a readable Parquet file: {reason}")


def _fatal(path: str, name: str, precision: int, scale: int) -> BadInput:
    return BadInput(
        f"{path} has a DECIMAL({precision},{scale}) in {name}, which no DuckDB can show without "
        "ending its process: write the file with a DECIMAL of more digits"
    )


def _encrypted(path: str) -> BadInput:
    return BadInput(f"{path} is encrypted: only files without encryption can be registered")


def _check_chunks(
    file: Mapping[str, Any], chunks: Sequence[Mapping[str, Any]], size: int, path: str
) -> None:
    """Refuse what would fail only when somebody reads the file."""
    rows = {chunk["row_group"]: chunk["group_rows"] for chunk in chunks}
    if chunks and sum(rows.values()) != file["num_rows"]:
        raise BadInput(
            f"{path} is broken: its row groups have {sum(rows.values())} rows, the file says "
            f"{file['num_rows']}"
        )
    end = size - file["footer_size"] - 8
    for chunk in chunks:
        codec = chunk["codec"]
        if codec not in _CODECS:
            raise BadInput(f"{path} is compressed with {codec}, which DuckDB cannot read")
        if not chunk["num_values"]:
            continue
        start = chunk["data"]
        if chunk["dictionary"]:
            start = min(start, chunk["dictionary"])
        if start < len(_MAGIC) or chunk["size"] < 0 or start + chunk["size"] > end:
            raise BadInput(f"{path} is broken: its footer names data outside of the file")


@dataclass(slots=True)
class _Leaves:
    """The leaf columns of a file."""

    connection: duckdb.DuckDBPyConnection
    orders: Sequence[str]
    chunks: Mapping[int, Sequence[Mapping[str, Any]]]

    def statistics(self, leaf: int, duckdb_type: str, repeated: bool) -> LeafStatistics:
        chunks = self.chunks.get(leaf, ())
        found = _counts(chunks, repeated)
        if duckdb_type.startswith("GEOMETRY"):
            return replace(found, extra_stats=_extent(chunks))
        # Without an order the footer's bounds mean nothing (parquet.thrift, ColumnOrder).
        ordered = leaf < len(self.orders) and "TypeDefinedOrder" in self.orders[leaf]
        if not ordered or duckdb_type in ("FLOAT", "DOUBLE"):
            return found
        # A row group of NULLs has no bounds and needs none.
        filled = [c for c in chunks if repeated or c["null_count"] != c["num_values"]]
        lowest, highest = self._bounds(duckdb_type, filled)
        return replace(found, min_value=lowest, max_value=highest)

    def _bounds(
        self, duckdb_type: str, chunks: Sequence[Mapping[str, Any]]
    ) -> tuple[str, str] | tuple[None, None]:
        """Return the smallest and largest value of some row groups in the catalog's text form."""
        lowest = [text for chunk in chunks if (text := _exact(chunk, "min")) is not None]
        highest = [text for chunk in chunks if (text := _exact(chunk, "max")) is not None]
        if not chunks or not len(lowest) == len(highest) == len(chunks):
            return None, None
        if duckdb_type not in _SHOWN and (quick := _quick_bounds(duckdb_type, lowest, highest)):
            return quick
        text = _SHOWN.get(duckdb_type, "CAST(v AS VARCHAR)")
        values = f"FROM (SELECT CAST(unnest($%d::VARCHAR[]) AS {duckdb_type}) AS v)"
        try:
            row = self.connection.execute(
                f"SELECT (SELECT arg_min({text}, v) {values % 1}), "
                f"(SELECT arg_max({text}, v) {values % 2})",
                [lowest, highest],
            ).fetchone()
        except duckdb.Error:
            return None, None  # what its own type cannot read is no bound
        if row is None or None in row:
            return None, None
        return str(row[0]), str(row[1])


def _counts(chunks: Sequence[Mapping[str, Any]], repeated: bool) -> LeafStatistics:
    size = sum(chunk["size"] for chunk in chunks)
    nulls = [chunk["null_count"] for chunk in chunks]
    slots = [chunk["num_values"] for chunk in chunks]
    if any(n is None or not 0 <= n <= of for n, of in zip(nulls, slots, strict=True)):
        return LeafStatistics(size)
    if repeated and any(nulls):
        # DuckDB counts NULLs below a list of structs that are not there (tried on 1.5.5).
        return LeafStatistics(size)
    return LeafStatistics(size, sum(slots) - sum(nulls), sum(nulls))


def _extent(chunks: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the box around a GEOMETRY column; None when any row group does not tell."""
    extents = []
    for chunk in chunks:
        if chunk["null_count"] == chunk["num_values"]:
            continue
        box, types = chunk["box"] or {}, frozenset(chunk["geometries"] or ())
        extent = Extent(tuple(box.get(edge) for edge in EDGES), types)
        if not types or not extent.is_known:
            return None
        extents.append(extent)
    return common_extent(extents).to_json()


def _quick_bounds(
    duckdb_type: str, lowest: Sequence[str], highest: Sequence[str]
) -> tuple[str, str] | None:
    """Return the outermost of some bounds without asking DuckDB, where Python orders as it does."""
    if len({*lowest}) == len({*highest}) == 1:
        return lowest[0], highest[0]
    if duckdb_type == "VARCHAR":
        return min(lowest), max(highest)
    if duckdb_type.endswith(("INT", "INTEGER")):
        return min(lowest, key=int), max(highest, key=int)
    return None


def _exact(chunk: Mapping[str, Any], which: str) -> str | None:
    """Return a bound of one row group if it is certainly a value of the column."""
    text, exact = chunk[which], chunk[f"{which}_exact"]
    if text is None or exact is False:
        return None
    if "\0" in text:  # a character PostgreSQL cannot hold
        return None
    may_be_cut = exact is None and len(text) >= _NEVER_TRUNCATED
    return None if may_be_cut and chunk["type"] == "BYTE_ARRAY" else str(text)
