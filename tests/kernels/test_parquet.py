"""Files and statistics as the lake wants them, checked by pyarrow and DuckDB."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.kernels.connection import (
    KernelSettings,
    duckdb_errors,
    local_copy,
    open_connection,
    scratch,
)
from airflow_provider_ducklake.kernels.file_schema import read_file_schema, scan_sql
from airflow_provider_ducklake.kernels.parquet import (
    ROW_ID_FIELD,
    SNAPSHOT_ID_FIELD,
    new_file_name,
    uuid7,
    write_parquet,
    write_parquet_files,
)
from airflow_provider_ducklake.kernels.tasks import ParquetOptions
from airflow_provider_ducklake.lake.columns import Column, parse_columns
from airflow_provider_ducklake.lake.errors import (
    BadInput,
    ConfigurationError,
    LakeError,
    StorageError,
)
from airflow_provider_ducklake.lake.model import WrittenFile
from airflow_provider_ducklake.lake.statistics import ColumnStatistics
from airflow_provider_ducklake.storage import StorageOptions
from tests.support.s3 import S3Server

DEFAULTS = ParquetOptions()


@pytest.fixture
def settings(tmp_path: Path) -> KernelSettings:
    directory = tmp_path / "scratch"
    directory.mkdir()
    return KernelSettings(StorageOptions({}), scratch_directory=str(directory))


@pytest.fixture
def connection(settings: KernelSettings) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_connection(settings) as connection:
        yield connection


class Writer:
    """Writes queries below one directory."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, settings: KernelSettings, root: Path
    ) -> None:
        self.connection, self.settings, self.root = connection, settings, root

    def __call__(
        self,
        sql: str,
        columns: str | Sequence[Column],
        options: ParquetOptions = DEFAULTS,
        parameters: Sequence[object] = (),
        **internal: bool,
    ) -> WrittenFile:
        if isinstance(columns, str):
            columns = parse_columns(columns)
        path = str(self.root / "data" / "main" / "t" / new_file_name())
        return write_parquet(
            self.connection, sql, parameters, path, columns, options, self.settings, **internal
        )


@pytest.fixture
def write(
    connection: duckdb.DuckDBPyConnection, settings: KernelSettings, tmp_path: Path
) -> Writer:
    return Writer(connection, settings, tmp_path)


def _one(connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
    row = connection.execute(sql).fetchone()
    assert row is not None
    return row[0]


# --- what is in a file ---------------------------------------------------------------------


def test_field_ids_at_every_depth(write: Writer, connection: duckdb.DuckDBPyConnection) -> None:
    columns = parse_columns(
        'a int32, "we.ird ""x""" struct("p q" int32, r varchar[]), '
        "m map(varchar, struct(z int64)), ll int32[][]"
    )
    written = write(
        "SELECT 1::INTEGER AS a, {'p q': 2::INTEGER, 'r': ['x']} AS \"we.ird \"\"x\"\"\", "
        "MAP {'k': {'z': 3::BIGINT}} AS m, [[4::INTEGER]] AS ll",
        columns,
    )
    fields = read_file_schema(connection, written.path)

    def ids(node: Any) -> Any:
        return (node.name, node.field_id, [ids(child) for child in node.children])

    assert [ids(field) for field in fields] == [
        ("a", 1, []),
        ('we.ird "x"', 2, [("p q", 3, []), ("r", 4, [("element", 5, [])])]),
        ("m", 6, [("key", 7, []), ("value", 8, [("z", 9, [])])]),
        ("ll", 10, [("element", 11, [("element", 12, [])])]),
    ]
    arrow = pq.read_schema(written.path)
    assert arrow.field("a").metadata[b"PARQUET:field_id"] == b"1"
    assert {s.column_id for s in written.statistics} == {1, 3, 5, 7, 9, 12}


def test_internal_columns(write: Writer, connection: duckdb.DuckDBPyConnection) -> None:
    written = write(
        "SELECT i::INTEGER AS a, 100 - i AS _ducklake_internal_row_id, "
        "i + 7 AS _ducklake_internal_snapshot_id FROM range(3) t(i)",
        "a int32",
        write_row_ids=True,
        write_snapshot_ids=True,
    )
    assert (written.first_row_id, written.first_snapshot, written.last_snapshot) == (98, 7, 9)
    assert [f.field_id for f in read_file_schema(connection, written.path)] == [
        1,
        ROW_ID_FIELD,
        SNAPSHOT_ID_FIELD,
    ]
    assert [s.column_id for s in written.statistics] == [1]


def test_no_internal_columns_no_ids(write: Writer) -> None:
    written = write("SELECT 1 AS a", "a int32")
    assert (written.first_row_id, written.first_snapshot, written.last_snapshot) == (None,) * 3


def test_sizes_and_counts_are_those_of_the_file(write: Writer) -> None:
    written = write("SELECT i AS a FROM range(1000) t(i) WHERE i >= ?", "a int64", DEFAULTS, [10])
    metadata = pq.read_metadata(written.path)
    assert written.record_count == metadata.num_rows == 990
    assert written.file_size_bytes == os.path.getsize(written.path)
    assert written.footer_size == metadata.serialized_size


def test_order_is_kept(write: Writer, connection: duckdb.DuckDBPyConnection) -> None:
    written = write("SELECT i AS a FROM range(600000) t(i)", "a int64")
    scan = scan_sql(written.path)
    assert _one(connection, f"SELECT bool_and(a = file_row_number) FROM {scan}") is True


# --- options -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "codec"),
    [
        (ParquetOptions(), "SNAPPY"),
        (ParquetOptions(compression="zstd", compression_level=9), "ZSTD"),
        (ParquetOptions(compression="GZIP"), "GZIP"),
        (ParquetOptions(compression="uncompressed"), "UNCOMPRESSED"),
    ],
)
def test_compression(write: Writer, options: ParquetOptions, codec: str) -> None:
    written = write("SELECT i AS a FROM range(5000) t(i)", "a int64", options)
    assert pq.read_metadata(written.path).row_group(0).column(0).compression == codec


def test_row_groups_by_rows(write: Writer) -> None:
    written = write(
        "SELECT i AS a FROM range(9000) t(i)", "a int64", ParquetOptions(row_group_size=4096)
    )
    metadata = pq.read_metadata(written.path)
    assert [metadata.row_group(i).num_rows for i in range(3)] == [4096, 4096, 808]


def test_row_groups_by_bytes_in_order(write: Writer, connection: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT i AS a, repeat('x', 100) AS b FROM range(40000) t(i) " + (
        "UNION ALL SELECT i, 'y' FROM range(40000, 50000) t(i)"
    )
    options = ParquetOptions(row_group_size_bytes=500_000)
    written = write(query, "a int64, b varchar", options)
    metadata = pq.read_metadata(written.path)
    assert metadata.num_row_groups > 4
    assert metadata.row_group(0).num_rows < 10_000
    scan = scan_sql(written.path)
    assert _one(connection, f"SELECT bool_and(a = file_row_number) FROM {scan}") is True
    # The connection is as it was, for whatever comes next.
    assert _one(connection, "SELECT current_setting('preserve_insertion_order')") is True
    assert connection.execute("SHOW TABLES").fetchall() == []


@pytest.mark.parametrize(
    ("version", "encoding"), [(1, "RLE_DICTIONARY"), (2, "DELTA_BINARY_PACKED")]
)
def test_parquet_version(write: Writer, version: int, encoding: str) -> None:
    options = ParquetOptions(version=version)
    written = write("SELECT i % 50000 AS a FROM range(60000) t(i)", "a int64", options)
    encodings = pq.read_metadata(written.path).row_group(0).column(0).encodings
    assert ("DELTA_BINARY_PACKED" in encodings) == (version == 2), encodings
    assert encoding in encodings or version == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (ParquetOptions(compression="zip"), "zip.*zstd"),
        (ParquetOptions(compression="snappy", compression_level=3), "only with.*zstd"),
        (ParquetOptions(compression_level=3), "only with.*zstd"),
        (ParquetOptions(version=3), "not 1 or 2"),
    ],
)
def test_wrong_options(write: Writer, options: ParquetOptions, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        write("SELECT 1 AS a", "a int32", options)


# --- statistics ----------------------------------------------------------------------------


def _statistics(write: Writer, kind: str, values: Sequence[str]) -> ColumnStatistics:
    [column] = parse_columns(f"x {kind}")
    selects = (f"SELECT CAST({value} AS {column.sql_type}) AS x" for value in values)
    [statistics] = write(" UNION ALL ".join(selects), (column,)).statistics
    return statistics


@pytest.mark.parametrize(
    ("kind", "values", "bounds"),
    [
        ("boolean", ["true", "false", "NULL"], ("0", "1")),
        ("int64", ["-5", "10", "9", "NULL"], ("-5", "10")),
        ("uint64", ["18446744073709551615", "NULL"], ("18446744073709551615",) * 2),
        ("decimal(38,5)", ["'1.5'", "'10'", "NULL"], ("1.50000", "10.00000")),
        ("date", ["'infinity'", "'0001-01-01'", "NULL"], ("0001-01-01", "infinity")),
        ("time", ["'12:00:00.5'", "NULL"], ("12:00:00.5", "12:00:00.5")),
        ("timestamp", ["'2024-01-01'", "NULL"], ("2024-01-01 00:00:00",) * 2),
        ("timestamptz", ["'2024-01-01 05:30:00+05:30'", "NULL"], ("2024-01-01 00:00:00+00",) * 2),
        (
            "timestamp_ns",
            ["'2024-01-01 00:00:00.000000001'"],
            ("2024-01-01 00:00:00.000000001",) * 2,
        ),
        (
            "uuid",
            ["'f79c3e09-677c-4bbd-a479-3f349cb785e7'"],
            ("f79c3e09-677c-4bbd-a479-3f349cb785e7",) * 2,
        ),
        ("varchar", ["'b'", "''", "'é'", "NULL"], ("", "é")),
        ("blob", ["'\\x00'", "'\\xFF'::BLOB"], ("00", "FF")),
        ("json", ["'[1]'", "NULL"], ("[1]", "[1]")),
        ("int128", ["5", "NULL"], (None, None)),
    ],
)
def test_counts_and_bounds(
    write: Writer, kind: str, values: list[str], bounds: tuple[str | None, str | None]
) -> None:
    statistics = _statistics(write, kind, values)
    nulls = values.count("NULL")
    assert (statistics.value_count, statistics.null_count) == (len(values) - nulls, nulls)
    assert (statistics.min_value, statistics.max_value) == bounds
    assert statistics.contains_nan is None
    assert statistics.size_bytes is not None
    assert statistics.size_bytes > 0


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_nan_is_told_and_left_out_of_bounds(write: Writer, kind: str) -> None:
    statistics = _statistics(write, kind, ["'nan'", "-1.5", "2", "NULL"])
    assert (statistics.min_value, statistics.max_value) == ("-1.5", "2.0")
    assert statistics.contains_nan is True
    assert _statistics(write, kind, ["1"]).contains_nan is False
    only_nan = _statistics(write, kind, ["'nan'"])
    assert (only_nan.min_value, only_nan.max_value, only_nan.value_count) == (None, None, 1)


@pytest.mark.parametrize(("kind", "value"), [("interval", "'1 day'"), ("timetz", "'12:00:00+00'")])
def test_what_duckdb_does_not_count_is_unknown(write: Writer, kind: str, value: str) -> None:
    statistics = _statistics(write, kind, [value, "NULL"])
    assert (statistics.value_count, statistics.null_count) == (None, None)
    assert (statistics.min_value, statistics.max_value) == (None, None)


@pytest.mark.parametrize(
    ("kind", "value"), [("varchar", "repeat('a', 1000)"), ("blob", "repeat('a', 1000)::BLOB")]
)
def test_cut_bounds_are_unknown(write: Writer, kind: str, value: str) -> None:
    statistics = _statistics(
        write,
        kind,
        [value, f"left({value}::VARCHAR, 10)::BLOB"] if kind == "blob" else [value, "'a'"],
    )
    assert statistics.max_value is None
    assert statistics.min_value == ("61" * 10 if kind == "blob" else "a")


def test_only_null(write: Writer) -> None:
    assert _statistics(write, "int32", ["NULL", "NULL"]) == ColumnStatistics(
        1, size_bytes=_statistics(write, "int32", ["NULL"]).size_bytes, value_count=0, null_count=2
    )


def test_geometry_has_an_exact_box(write: Writer) -> None:
    statistics = _statistics(
        write, "geometry", ["'POINT(0.123456789 2)'", "'LINESTRING(-1 0, 3 4)'", "NULL"]
    )
    assert statistics.extra_stats is not None
    extra = json.loads(statistics.extra_stats)
    assert extra["types"] == ["linestring", "point"]
    assert extra["bbox"] == {
        "xmin": -1.0, "xmax": 3.0, "ymin": 0.0, "ymax": 4.0,
        "zmin": None, "zmax": None, "mmin": None, "mmax": None,
    }  # fmt: skip
    # The reference's parser takes a number without a point for zero.
    assert not re.search(r": -?\d+[,}]", statistics.extra_stats)
    single = _statistics(write, "geometry", ["'POINT(0.123456789 2)'"]).extra_stats
    assert single is not None
    assert '"xmin": 0.123456789' in single


def test_variant_has_only_a_size(write: Writer) -> None:
    statistics = _statistics(write, "variant", ["{'a': 1, 'b': [1, 2]}", "'x'", "NULL"])
    assert statistics.size_bytes is not None
    assert statistics == ColumnStatistics(1, size_bytes=statistics.size_bytes)


# --- exactness -----------------------------------------------------------------------------

INEXACT = [
    ("int128", "170141183460469231731687303715884105727"),
    ("uint128", "9007199254740993"),
    ("interval", "1 day 00:00:00.000001"),
    ("interval", "-1 day"),
    ("interval", "1 month -1 day"),
    ("interval", "1200 hours"),
    ("timetz", "12:00:00+01"),
]


@pytest.mark.parametrize(("kind", "value"), INEXACT)
@pytest.mark.parametrize(
    ("wrapped_type", "wrapped"),
    [
        ("{0}", "v"),
        ("{0}[]", "[NULL, v]"),
        ("struct(a int32, b {0})", "{{'a': 1::INTEGER, 'b': v}}"),
        ("map(varchar, {0}[])", "MAP {{'k': [v]}}"),
        ("{0}[][]", "[NULL, [v]]"),
    ],
)
def test_what_parquet_would_change_is_refused(
    write: Writer, tmp_path: Path, kind: str, value: str, wrapped_type: str, wrapped: str
) -> None:
    columns = parse_columns(f"x {wrapped_type.format(kind)}")
    [inner] = parse_columns(f"v {kind}")
    expression = wrapped.format()
    with pytest.raises(BadInput, match=f"column x .{kind}.*value"):
        write(
            f"SELECT {expression} AS x FROM (SELECT CAST(? AS {inner.sql_type}) AS v)",
            columns,
            DEFAULTS,
            [value],
        )
    assert list((tmp_path / "data").rglob("*.parquet")) == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int128", "9007199254740992"),
        ("int128", "-85070591730234615865843651857942052864"),
        ("uint128", "0"),
        ("interval", "5 months 3 days 01:02:03.004"),
        ("interval", "1192:59:59.999"),
        ("timetz", "12:00:00.5+00"),
    ],
)
def test_what_parquet_can_hold_goes_in(
    write: Writer, connection: duckdb.DuckDBPyConnection, kind: str, value: str
) -> None:
    [column] = parse_columns(f"x {kind}")
    query = f"SELECT CAST(? AS {column.sql_type}) AS x UNION ALL SELECT NULL"
    written = write(query, (column,), DEFAULTS, [value])
    found = connection.execute(
        f"SELECT CAST(CAST(x AS {column.sql_type}) AS VARCHAR), "
        f"CAST(CAST(? AS {column.sql_type}) AS VARCHAR) FROM {scan_sql(written.path)}",
        [value],
    ).fetchall()
    assert found[0][0] == found[0][1]
    assert found[1][0] is None


# --- several files -------------------------------------------------------------------------


def test_rotation_by_size(
    connection: duckdb.DuckDBPyConnection, settings: KernelSettings, tmp_path: Path
) -> None:
    options = ParquetOptions(target_file_size=200_000, row_group_size=2048)
    files = write_parquet_files(
        connection,
        "SELECT i AS a, hash(i) AS b FROM range(100000) t(i)",
        (),
        str(tmp_path / "t"),
        parse_columns("a int64, b uint64"),
        options,
        settings,
    )
    assert len(files) > 4
    assert {os.path.basename(f.path) for f in files} == set(os.listdir(tmp_path / "t"))
    assert sum(f.record_count for f in files) == 100_000
    # In the order of the rows, each file closed soon after it reached the size.
    bounds = [f.statistics[0] for f in files]
    assert [int(s.min_value or -1) for s in bounds] == sorted(
        int(s.min_value or -1) for s in bounds
    )
    assert all(180_000 < f.file_size_bytes < 300_000 for f in files[:-1])
    assert all(
        re.fullmatch(r"ducklake-[0-9a-f-]{36}-\d+\.parquet", p) for p in os.listdir(tmp_path / "t")
    )


def test_no_rows_no_files(
    connection: duckdb.DuckDBPyConnection, settings: KernelSettings, tmp_path: Path
) -> None:
    query = "SELECT 1::INTEGER AS a WHERE false"
    columns = parse_columns("a int32")
    directory = str(tmp_path / "t")
    assert write_parquet_files(connection, query, (), directory, columns, DEFAULTS, settings) == ()
    assert os.listdir(directory) == []


def test_failure_leaves_no_file_but_those_of_others(
    connection: duckdb.DuckDBPyConnection, settings: KernelSettings, tmp_path: Path
) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "ducklake-other.parquet").write_bytes(b"theirs")
    with pytest.raises(BadInput, match="too far"):
        write_parquet_files(
            connection,
            "SELECT CASE WHEN i < 90000 THEN i ELSE error('too far') END AS a "
            "FROM range(99999) t(i)",
            (),
            str(tmp_path / "t"),
            parse_columns("a int64"),
            ParquetOptions(target_file_size=1000, row_group_size=2048),
            settings,
        )
    assert os.listdir(tmp_path / "t") == ["ducklake-other.parquet"]


# --- remote files and encryption -----------------------------------------------------------


def _remote(server: S3Server, scratch_directory: Path) -> KernelSettings:
    options = {
        "aws_endpoint": server.endpoint,
        "aws_allow_http": "true",
        "aws_region": server.region,
        "aws_access_key_id": server.access_key_id,
        "aws_secret_access_key": server.secret_access_key,
    }
    return KernelSettings(StorageOptions(options), scratch_directory=str(scratch_directory))


def test_remote_files_are_uploaded_and_staged(
    connection: duckdb.DuckDBPyConnection, s3_server: S3Server, tmp_path: Path
) -> None:
    (tmp_path / "remote").mkdir()
    settings = _remote(s3_server, tmp_path / "remote")
    columns = parse_columns("a int64")
    root = f"s3://{s3_server.bucket}/lake/t/"
    one = write_parquet(
        connection, "SELECT 1::BIGINT AS a", (), f"{root}x.parquet", columns, DEFAULTS, settings
    )
    many = write_parquet_files(
        connection,
        "SELECT i AS a FROM range(50000) t(i)",
        (),
        root,
        columns,
        ParquetOptions(target_file_size=10_000, row_group_size=2048),
        settings,
    )
    assert len(many) > 1
    rows = 0
    for file in (one, *many):
        assert file.path.startswith(root)
        with local_copy(file.path, settings) as local:
            assert os.path.getsize(local) == file.file_size_bytes
            rows += pq.read_metadata(local).num_rows
    assert rows == 50_001
    assert os.listdir(tmp_path / "remote") == []


def test_encrypted_file(write: Writer, connection: duckdb.DuckDBPyConnection) -> None:
    options = ParquetOptions(encrypted=True)
    columns = parse_columns("a int32, s struct(b varchar)")
    query = "SELECT 1::INTEGER AS a, {'b': 'topsecret'} AS s"
    written, other = write(query, columns, options), write(query, columns, options)
    assert written.encryption_key is not None
    assert len(base64.b64decode(written.encryption_key)) == 16
    assert written.encryption_key != other.encryption_key
    assert b"topsecret" not in Path(written.path).read_bytes()
    fields = read_file_schema(connection, written.path, written.encryption_key)
    assert [(f.name, f.field_id, [c.field_id for c in f.children]) for f in fields] == [
        ("a", 1, []),
        ("s", 2, [3]),
    ]
    scan = scan_sql(written.path, written.encryption_key)
    assert connection.execute(f"SELECT a, s.b FROM {scan}").fetchall() == [(1, "topsecret")]
    with pytest.raises(BadInput):
        read_file_schema(connection, written.path, other.encryption_key)
    with pytest.raises(BadInput):
        read_file_schema(connection, written.path)


def test_encryption_needs_the_extension(
    write: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="install duckdb-extension-httpfs=="):
        write("SELECT 1 AS a", "a int32", ParquetOptions(encrypted=True))
    assert list((tmp_path / "data").rglob("*.parquet")) == []


# --- errors, scratch, names ----------------------------------------------------------------


def test_place_that_cannot_be_written(
    connection: duckdb.DuckDBPyConnection, settings: KernelSettings, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot make directory"):
        write_parquet(
            connection,
            "SELECT 1 AS a",
            (),
            f"{tmp_path}/file/x.parquet",
            parse_columns("a int32"),
            DEFAULTS,
            settings,
        )


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"", BadInput), (b"PAR1" + bytes(100) + b"PAR1", BadInput), (None, StorageError)],
)
def test_broken_and_missing_files(
    connection: duckdb.DuckDBPyConnection,
    tmp_path: Path,
    content: bytes | None,
    error: type[LakeError],
) -> None:
    path = tmp_path / "bad.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match="bad") as caught:
        read_file_schema(connection, str(path), path="s3://b/bad.parquet")
    assert "s3://b/bad.parquet" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_out_of_memory_says_what_to_do(tmp_path: Path) -> None:
    settings = KernelSettings(StorageOptions({}), "20MB", str(tmp_path))
    with open_connection(settings) as connection:
        connection.execute("SET max_temp_directory_size = '0KB'")
        with pytest.raises(LakeError, match=r"raise memory_limit|more room"), duckdb_errors("sort"):
            connection.execute("SELECT i, hash(i) FROM range(20000000) t(i) ORDER BY 2").fetchall()


def test_sql_text_is_never_shown(connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(LakeError) as caught, duckdb_errors("try"):
        connection.execute("SELECT no_such_column, 'topsecret'")
    assert "topsecret" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("limit", ["lots", ""])
def test_wrong_memory_limit(limit: str) -> None:
    settings = KernelSettings(StorageOptions({}), memory_limit=limit)
    with pytest.raises(ConfigurationError, match="memory_limit"), open_connection(settings):
        pytest.fail("a connection without a limit was opened")


def test_scratch_is_private_and_removed(tmp_path: Path) -> None:
    settings = KernelSettings(StorageOptions({}), scratch_directory=str(tmp_path))
    with scratch(settings) as first, scratch(settings) as second:
        assert first != second
        assert os.stat(first).st_mode & 0o077 == 0
        (Path(first) / "x").write_text("x")
    assert os.listdir(tmp_path) == []
    missing = KernelSettings(StorageOptions({}), scratch_directory=str(tmp_path / "no"))
    with pytest.raises(ConfigurationError, match="scratch directory"), scratch(missing):
        pytest.fail("a scratch directory was made up")


def test_connection_is_in_utc_and_downloads_nothing(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    assert _one(connection, "SELECT current_setting('TimeZone')") == "UTC"
    assert _one(connection, "SELECT current_setting('threads')") == 1
    assert _one(connection, "SELECT current_setting('autoload_known_extensions')") is False


def test_paths_with_glob_characters(
    connection: duckdb.DuckDBPyConnection, settings: KernelSettings, tmp_path: Path
) -> None:
    path = f"{tmp_path}/a[1]*?/it's {{x}}.parquet"
    written = write_parquet(
        connection, "SELECT 1 AS a", (), path, parse_columns("a int32"), DEFAULTS, settings
    )
    assert written.path == path
    assert os.path.exists(path)
    assert connection.execute(f"FROM {scan_sql(path)}").fetchall() == [(1,)]
    assert [f.field_id for f in read_file_schema(connection, path)] == [1]


def test_uuid7_is_version_7_and_grows() -> None:
    ids = [uuid7() for _ in range(100)]
    assert {(i.version, i.variant) for i in ids} == {(7, "specified in RFC 4122")}
    assert len(set(ids)) == 100
    stamps = [i.int >> 80 for i in ids]
    assert stamps == sorted(stamps)
