"""Parquet files with a few bytes changed, and what registering and rewriting one comes to."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow.parquet as pq
from hypothesis import strategies as st

from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.register import inspect
from airflow_provider_ducklake.kernels.rewrite import rewrite
from airflow_provider_ducklake.kernels.tasks import ParquetOptions, RegisterTask, RewriteTask
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.model import DataFile
from airflow_provider_ducklake.storage import StorageOptions

HANG: Final = 60  # seconds; a file takes a few hundredths of one
COLUMNS: Final = (
    "i INTEGER, n BIGINT, d DOUBLE, t VARCHAR, b BLOB, f BOOLEAN, "
    "ts TIMESTAMP, dec DECIMAL(12,3), l INTEGER[], s STRUCT(x INTEGER, y VARCHAR)"
)
_ROWS: Final = """
    SELECT i::INTEGER AS i, i * 1_000_000_007 AS n, i / 7 AS d, 'text ' || (i % 5) AS t,
        ('b' || i)::BLOB AS b, i % 3 = 0 AS f, TIMESTAMP '2024-01-01' + i * INTERVAL 1 HOUR AS ts,
        (i / 8)::DECIMAL(12,3) AS dec,
        CASE WHEN i % 4 > 0 THEN [i, NULL, i + 1] END::INTEGER[] AS l,
        {'x': i::INTEGER, 'y': nullif('y' || i, 'y3')} AS s
    FROM range(40) t(i)
"""


def sound_files(directory: Path) -> dict[str, Path]:
    """Write the same rows in several ways: by DuckDB and pyarrow, pages and codecs of each kind."""
    found = {}
    with duckdb.connect() as connection:
        for codec in ("snappy", "zstd", "uncompressed"):
            found[f"duckdb {codec}"] = path = directory / f"duckdb_{codec}.parquet"
            connection.execute(f"COPY ({_ROWS}) TO '{path}' (FORMAT parquet, COMPRESSION {codec})")
        rows = connection.execute(_ROWS).to_arrow_table()
    shapes: dict[str, dict[str, Any]] = {
        "dictionaries": {"row_group_size": 16},
        "plain": {"use_dictionary": False, "data_page_version": "2.0", "compression": "gzip"},
        "pages": {"write_page_index": True, "data_page_size": 64, "compression": "none"},
    }
    for name, options in shapes.items():
        found[f"pyarrow {name}"] = path = directory / f"pyarrow_{name}.parquet"
        pq.write_table(rows, path, **options)
    return found


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is done to the bytes of a file.

    Attributes:
        kind: A key of `_KINDS`.
        place: Where, as a share of the file's length.
        in_footer: Whether that is a share of the footer's length instead.
        amount: How much: bits, bytes or a number, as the kind takes it.
    """

    kind: str
    place: float
    in_footer: bool
    amount: int

    def apply(self, data: bytes) -> bytes:
        """Return the damaged bytes."""
        start = 0
        if self.in_footer and len(data) > 12:
            (length,) = struct.unpack("<I", data[-8:-4])
            start = max(0, len(data) - 8 - length)
        at = start + int(self.place * max(0, len(data) - start - 1))
        return _KINDS[self.kind](bytearray(data), at, self.amount)


def _flip(data: bytearray, at: int, amount: int) -> bytes:
    if data:
        data[at] ^= 1 << amount % 8
    return bytes(data)


def _lie(data: bytearray, at: int, amount: int) -> bytes:
    """Put a varint in the middle: in a footer that is a size, a count or an offset."""
    data[at : at + 1 + amount % 5] = bytes([0xFF, 0xFF, 0xFF, 0xFF, 0x0F][-1 - amount % 5 :])
    return bytes(data)


_KINDS: Final[dict[str, Callable[[bytearray, int, int], bytes]]] = {
    "cut off": lambda data, at, _: bytes(data[:at]),
    "flip a bit": _flip,
    "set a byte": lambda data, at, amount: bytes(
        data[:at] + bytes([amount % 256]) + data[at + 1 :]
    ),
    "leave out": lambda data, at, amount: bytes(data[:at] + data[at + 1 + amount % 64 :]),
    "zero": lambda data, at, amount: bytes(
        data[:at] + bytes(len(data[at : at + 1 + amount % 64])) + data[at + 1 + amount % 64 :]
    ),
    "lie": _lie,
    "footer length": lambda data, at, amount: bytes(
        data[:-8] + struct.pack("<I", amount * 7) + data[-4:]
    ),
}
KINDS: Final = tuple(_KINDS)
# Those that leave everything else where it is, so that a reader comes further.
IN_PLACE: Final = ("flip a bit", "set a byte", "zero", "lie")


damages: Final = st.lists(
    st.builds(
        Damage,
        kind=st.sampled_from((*KINDS, *IN_PLACE, *IN_PLACE)),
        place=st.floats(0, 1),
        in_footer=st.booleans(),
        amount=st.integers(0, 1 << 20),
    ),
    max_size=2,
)


def damaged(data: bytes, changes: Iterable[Damage]) -> bytes:
    """Return the bytes of a file after several changes."""
    for change in changes:
        data = change.apply(data)
    return data


class Child:
    """A process that reads files, for one can end the process that reads it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.outcomes: Counter[str] = Counter()
        self._columns: dict[Path, str] = {}
        self._pool = self._new_pool()

    def try_bytes(self, data: bytes, columns: str) -> str:
        """Have the process register and rewrite a file of these bytes; return what it came to."""
        with tempfile.TemporaryDirectory(dir=self.directory) as scratch:
            path = f"{scratch}/f.parquet"
            Path(path).write_bytes(data)
            outcome = self._have(try_file, path, columns, scratch)
        self.outcomes[outcome] += 1
        return outcome

    def columns_of(self, path: Path) -> str:
        """Return the columns of a table that a file could be part of."""
        if path not in self._columns:
            self._columns[path] = self._have(read_columns, str(path))
        return self._columns[path]

    def _have(self, work: Callable[..., str], *arguments: str) -> str:
        try:
            return self._pool.submit(work, *arguments).result(HANG)
        except (BrokenProcessPool, TimeoutError):
            self.close()
            self._pool = self._new_pool()
            raise

    def close(self) -> None:
        """End the process, whatever it does."""
        for process in list((self._pool._processes or {}).values()):
            process.kill()
        self._pool.shutdown(cancel_futures=True)

    @staticmethod
    def _new_pool() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def read_columns(path: str) -> str:
    """Return columns of the types that DuckDB sees in a file; any where it cannot read it."""
    try:
        with duckdb.connect() as connection:
            found = connection.execute(f"DESCRIBE FROM read_parquet('{path}')").fetchall()
        columns = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind, *_ in found)
        parse_columns(columns)
    except (duckdb.Error, LakeError):
        return "a INTEGER"
    return columns


def try_file(path: str, columns: str, scratch: str) -> str:
    """Register a file, then rewrite it, as two jobs would.

    Returns:
        `refused`, `unreadable` where only the rewrite found out, or `written`: then the rows are
        those DuckDB reads.

    Raises:
        AssertionError: A message has more than a line or does not name the file, something was
            left behind, or the rows differ.
    """
    settings = KernelSettings(StorageOptions({}), "500MB", scratch)
    table = parse_columns(columns)
    try:
        found = inspect(RegisterTask(path, "main.t", table, None), settings)
    except LakeError as error:
        _check_message(error, path)
        return "refused"
    if not found.record_count:
        return "refused"
    source = DataFile(
        1,
        1,
        path,
        found.record_count,
        found.file_size_bytes,
        found.footer_size,
        begin_snapshot=1,
        row_id_start=0,
        name_map=found.name_map,
    )
    out = f"{scratch}/out/"
    try:
        [written] = rewrite(RewriteTask(table, (source,), out, ParquetOptions()), settings)
    except LakeError as error:
        _check_message(error, path)
        assert not os.path.isdir(out) or os.listdir(out) == []
        return "unreadable"
    with duckdb.connect() as connection:
        selected = ", ".join(
            f"CAST({quote_identifier(c.name)} AS {c.sql_type})::VARCHAR" for c in table
        )
        rows = [
            connection.execute(f"SELECT {selected} FROM read_parquet('{one}')").fetchall()
            for one in (path, written.path)
        ]
    assert rows[0] == rows[1]
    shutil.rmtree(out)
    return "written"


def _check_message(error: LakeError, path: str) -> None:
    assert path in str(error), str(error)
    assert "\n" not in str(error), str(error)
