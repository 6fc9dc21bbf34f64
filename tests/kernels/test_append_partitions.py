"""Partitions of appended rows: files, values and directories, as the reference has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.kernels.parquet import write_parquet_files
from airflow_provider_ducklake.kernels.tasks import ParquetOptions
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.model import (
    PartitionSpec,
    SortKey,
    WrittenFile,
)
from tests.kernels.appender import Appender, partition_spec, read_rows
from tests.support.lakes import LakeFactory, catalog_rows

ROWS = pa.table(
    {
        "ts": pa.array([0, 0, 86_400 * 400, None, 0], pa.timestamp("s")).cast(pa.timestamp("us")),
        "region": ["eu", "a/b", "eu", None, "eu"],
        "n": [5, 4, 3, 2, 1],
    }
)


def test_one_file_a_partition(add: Appender, connection: duckdb.DuckDBPyConnection) -> None:
    spec = partition_spec((1, "year"), (2, "identity"))
    written = add(
        "ts timestamp, region varchar, n int64", ROWS, partition=spec, sort_keys=(SortKey("n"),)
    )
    found = {
        f.partition_values: [row[0] for row in read_rows(connection, [f], "n")] for f in written
    }
    assert found == {
        ("1970", "eu"): [1, 5],
        ("1970", "a/b"): [4],
        ("1971", "eu"): [3],
        (None, None): [2],
    }
    assert {os.path.dirname(path) for path in add.stored()} == {
        "year=1970/region=eu",
        "year=1970/region=a%2Fb",
        "year=1971/region=eu",
        "year=__HIVE_DEFAULT_PARTITION__/region=__HIVE_DEFAULT_PARTITION__",
    }
    assert all(f.path.startswith(add.directory) and os.path.exists(f.path) for f in written)
    assert {f.record_count: len(f.statistics) for f in written} == {2: 3, 1: 3}


def test_flat_partitions(add: Appender) -> None:
    options = ParquetOptions(hive_file_pattern=False)
    written = add(
        "ts timestamp, region varchar, n int64",
        ROWS,
        partition=partition_spec((2, "identity")),
        options=options,
    )
    assert {f.partition_values for f in written} == {("eu",), ("a/b",), (None,)}
    assert len(add.stored()) == 3
    assert not any("/" in path for path in add.stored())


def test_large_partitions_are_split(add: Appender, connection: duckdb.DuckDBPyConnection) -> None:
    data = pa.table({"k": [i % 2 for i in range(40_000)], "v": range(40_000)})
    options = ParquetOptions(target_file_size=40_000, row_group_size=2048)
    written = add(
        "k int64, v int64", data, partition=partition_spec((1, "identity")), options=options
    )
    for key in ("0", "1"):
        files = [f for f in written if f.partition_values == (key,)]
        assert len(files) > 1
        rows = [row[0] for row in read_rows(connection, files, "v")]
        assert rows == list(range(int(key), 40_000, 2))


def test_many_partitions(add: Appender, connection: duckdb.DuckDBPyConnection) -> None:
    data = pa.table({"k": [i * 7919 % 300 for i in range(30_000)], "v": range(30_000)})
    written = add("k int64, v int64", data, partition=partition_spec((1, "identity")))
    assert len(written) == 300
    assert {f.record_count for f in written} == {100}
    assert len(read_rows(connection, written)) == 30_000


def test_failure_in_a_later_partition_removes_the_earlier(
    add: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(10))

    def fail_at_the_third(*args: Any, **options: Any) -> tuple[WrittenFile, ...]:
        if next(calls) == 2:
            raise BadInput("the third")
        return write_parquet_files(*args, **options)

    module = "airflow_provider_ducklake.kernels.append"
    monkeypatch.setattr(f"{module}.write_parquet_files", fail_at_the_third)
    with pytest.raises(BadInput, match="the third"):
        add(
            "ts timestamp, region varchar, n int64", ROWS, partition=partition_spec((3, "identity"))
        )
    assert add.stored() == []


def test_more_rows_than_memory(add: Appender) -> None:
    add.settings = replace(add.settings, memory_limit="40MB")

    def batches() -> Iterator[pa.RecordBatch]:
        for n in range(0, 600_000, 50_000):
            text = [f"{i:032d}{i:064d}" for i in range(n, n + 50_000)]
            yield pa.record_batch({"k": pa.array(range(50_000)), "v": text})

    options = ParquetOptions(row_group_size=20_480)
    whole = add("k int64, v varchar", batches(), options=options)
    assert sum(f.record_count for f in whole) == 600_000
    add.settings = replace(add.settings, memory_limit="100MB")
    spec = partition_spec((1, "bucket(3)"))
    split = add("k int64, v varchar", batches(), options=options, partition=spec)
    assert sum(f.record_count for f in split) == 600_000
    assert {f.partition_values for f in split} == {("0",), ("1",), ("2",)}


PARTITIONINGS = [
    ("year(ts), region", partition_spec((1, "year"), (2, "identity"))),
    (
        "region, bucket(3, n), bucket(2, region)",
        partition_spec((2, "identity"), (3, "bucket(3)"), (2, "bucket(2)")),
    ),
    ("month(ts), day(ts), hour(ts)", partition_spec((1, "month"), (1, "day"), (1, "hour"))),
    ("d, f", partition_spec((4, "identity"), (5, "identity"))),
    ("ts", partition_spec((1, "identity"))),
]


@pytest.mark.parametrize(("clause", "spec"), PARTITIONINGS)
def test_partitions_are_those_of_the_reference(
    add: Appender, scratch_directory: Path, clause: str, spec: PartitionSpec
) -> None:
    columns = "ts timestamptz, region varchar, n int64, d decimal(4,2), f float64"
    values = (
        "('2024-12-31 23:30:00-02', 'eu', 1, 0.5, 1.5), "
        "('2024-02-29 01:00:00.5+00', 'a b/ü', 2, 1, 1e20), "
        "(NULL, NULL, NULL, NULL, NULL), ('1969-12-31 23:59:59+00', '', -7, -3.25, 'nan'), "
        "('2024-12-31 23:30:00-02', 'x%20', 9, 0.5, -0.0)"
    )
    factory = LakeFactory("sqlite", scratch_directory)
    lake = factory.create()
    client = lake.client(DATA_INLINING_ROW_LIMIT="0")
    client.sql("CREATE TABLE t(ts TIMESTAMPTZ, region VARCHAR, n BIGINT, d DECIMAL(4,2), f DOUBLE)")
    client.sql(f"ALTER TABLE t SET PARTITIONED BY ({clause})")
    client.sql(f"INSERT INTO t VALUES {values}")
    rows = client.connection.execute("FROM t").to_arrow_table()
    client.release()
    catalog = catalog_rows(lake)
    factory.remove(lake)

    texts: dict[int, dict[int, str | None]] = {}
    for row in catalog["ducklake_file_partition_value"]:
        texts.setdefault(row["data_file_id"], {})[row["partition_key_index"]] = row[
            "partition_value"
        ]
    theirs = {
        tuple(texts[file["data_file_id"]][i] for i in range(len(spec.fields))): (
            os.path.dirname(file["path"]),
            file["record_count"],
        )
        for file in catalog["ducklake_data_file"]
    }
    ours = {
        f.partition_values: (
            os.path.dirname(os.path.relpath(f.path, add.directory)),
            f.record_count,
        )
        for f in add(columns, rows, partition=spec)
    }
    assert ours == theirs
