"""Files as the lake wants them, checked by pyarrow and DuckDB."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.kernels.connection import KernelSettings, local_copy
from airflow_provider_ducklake.kernels.file_schema import read_file_schema, scan_sql
from airflow_provider_ducklake.kernels.parquet import (
    ROW_ID_FIELD,
    SNAPSHOT_ID_FIELD,
    uuid7,
    write_parquet,
    write_parquet_files,
)
from airflow_provider_ducklake.kernels.tasks import ParquetOptions
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError
from airflow_provider_ducklake.storage import StorageOptions
from tests.kernels.writer import DEFAULTS, Writer, one
from tests.support.s3 import S3Server


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
        ('we.ird "x"', 2, [("p q", 3, []), ("r", 4, [("list", 5, [])])]),
        ("m", 6, [("key", 7, []), ("value", 8, [("z", 9, [])])]),
        ("ll", 10, [("list", 11, [("list", 12, [])])]),
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
    assert one(connection, f"SELECT bool_and(a = file_row_number) FROM {scan}") is True


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
    assert one(connection, f"SELECT bool_and(a = file_row_number) FROM {scan}") is True
    # The connection is as it was, for whatever comes next.
    assert one(connection, "SELECT current_setting('preserve_insertion_order')") is True
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
