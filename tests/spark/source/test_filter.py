"""Filters: which files a read opens, told by statistics, and which rows it hands out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.model import DataFile
from airflow_provider_ducklake.lake.scan import shares
from airflow_provider_ducklake.spark.source.data_source import DuckLakeDataSource
from airflow_provider_ducklake.spark.source.filters import filter_sql
from airflow_provider_ducklake.spark.source.reader import PushdownReader, ReadPartition
from tests.interop.foreign_files import write_arrow
from tests.interop.judge import Judge
from tests.spark.source.reading import options_of, read
from tests.support.lakes import LakeFactory

COLUMNS = {
    "id": "INTEGER",
    "v": "VARCHAR",
    "d": "DATE",
    "x": "DOUBLE",
    "n": "DECIMAL(10,2)",
    "ts": "TIMESTAMPTZ",
    "big": "UBIGINT",
    "u": "UUID",
    "s": "STRUCT(a INTEGER)",
    "empty": "VARCHAR",
    "flag": "BOOLEAN",
}


@pytest.fixture(scope="module")
def module_judge(scratch_directory: Path) -> Iterator[Judge]:
    """A judge of one lake on SQLite that the tests of this module only read."""
    factory = LakeFactory("sqlite", scratch_directory)
    lake = factory.create()
    judge = Judge(lake)
    yield judge
    judge.close()
    factory.remove(lake)


@pytest.fixture(scope="module")
def lake(module_judge: Judge) -> Judge:
    """A table of two files of twenty rows, ids 0 to 19 and 100 to 119, and two inlined rows."""
    judge = module_judge
    judge.client.sql(f"CREATE TABLE t ({', '.join(f'{n} {t}' for n, t in COLUMNS.items())})")
    rows = (
        "i, 'v' || lpad(i::VARCHAR, 4, '0'), DATE '2024-01-01' + i::INTEGER, i / 2, i + 0.25, "
        "TIMESTAMPTZ '2024-01-01 00:00:00+00' + INTERVAL 1 HOUR * i, 18446744073709550000 + i, "
        "('00000000-0000-0000-0000-' || lpad(i::VARCHAR, 12, '0'))::UUID, {'a': i}, NULL, i > 50"
    )
    for start in (0, 100):
        judge.client.sql(f"INSERT INTO t SELECT {rows} FROM range({start}, {start} + 20) r(i)")
    judge.client.sql(f"INSERT INTO t SELECT {rows} FROM range(1000, 1002) r(i)")
    return judge


@pytest.mark.parametrize(
    ("condition", "files", "rows"),
    [
        ("id = 5", 1, 1),
        ("id = 50", 0, 0),
        ("5 = id", 1, 1),
        ("id < 0 OR id > 5000", 0, 0),
        ("id < 0 OR id > 118", 1, 3),
        ("id <= 0 OR id >= 119", 2, 4),
        ("id BETWEEN 19 AND 100", 2, 2),
        ("id BETWEEN 20 AND 99", 0, 0),
        ("id IN (3, 103, 1001)", 2, 3),
        ("id IN (50, 60)", 0, 0),
        ("id <> 5", 2, 41),
        ("NOT id = 5", 2, 41),
        ("id + 0 = 50", 2, 0),
        ("ID = 1.5", 1, 0),
        ("v = 'v0105'", 1, 1),
        ("v LIKE 'v01%'", 1, 20),
        ("v LIKE 'w%'", 0, 0),
        ("starts_with(v, 'v00')", 1, 20),
        ("d = DATE '2024-01-03'", 1, 1),
        ("d < '2024-01-03'", 1, 2),
        ("d > DATE '2030-01-01'", 0, 0),
        ("x >= 1.5 AND x < 2", 1, 1),
        ("n = 105.25", 1, 1),
        ("n = 105.5", 1, 0),
        ("n > 20.5 AND n < 99", 0, 0),
        ("ts >= '2024-01-05 04:00:00+00' AND ts < '2024-01-05 05:00:00+00'", 1, 1),
        ("ts < '2024-01-01 00:00:00+00'", 0, 0),
        ("big = 18446744073709550003", 1, 1),
        ("big < 5", 0, 0),
        ("u = '00000000-0000-0000-0000-000000000107'", 1, 1),
        ("u = '10000000-0000-0000-0000-000000000107'", 0, 0),
        ("s.a = 104", 1, 1),
        ("s.a = 50", 0, 0),
        ("empty = 'x'", 0, 0),
        ("empty IS NULL", 2, 42),
        ("empty IS NOT NULL", 0, 0),
        ("id IS NULL", 0, 0),
        ("flag = true", 1, 22),
    ],
)
def test_files_opened(lake: Judge, condition: str, files: int, rows: int) -> None:
    """A filter opens the files that may hold a row, and hands out the rows that satisfy it."""
    found = read(lake.lake, "t", filter=condition, columns="v", partition_size="1")
    assert (sum(found.files), len(found.rows)) == (files, rows)
    (expected,) = lake.client.sql(f"SELECT count(*) FROM t WHERE {condition}")
    assert expected == (rows,)


def test_metadata_and_feed_are_filtered(lake: Judge) -> None:
    """A filter sees the row id and the snapshot, and in a feed the kind of change."""
    found = read(lake.lake, "t", filter="rowid = 25", metadata_columns="rowid", columns="id")
    assert found.rows == [{"id": 105, "rowid": 25}]
    first = lake.client.snapshot_ids()[1]
    for condition, rows in (("change_type = 'delete'", 0), ("id >= 119", 3)):
        found = read(lake.lake, "t", filter=condition, changes_from=first, columns="id")
        assert len(found.rows) == rows


@pytest.mark.parametrize(
    "condition",
    ["nope = 1", "id = 1; DROP TABLE t", "id =", "id IN (SELECT 1)", "1) OR (1 = 1) --", "id"],
)
def test_what_is_no_filter(lake: Judge, condition: str) -> None:
    """What is no predicate over the columns is refused before anything is read."""
    if condition == "id":  # DuckDB takes a number for a truth value
        assert len(read(lake.lake, "t", filter=condition, columns="id").rows) == 41
        return
    with pytest.raises(ConfigurationError, match="filter"):
        read(lake.lake, "t", filter=condition, columns="id")


def test_partition_values_prune(sqlite_judge: Judge) -> None:
    """Equality on a partition key opens the files of that partition, of buckets too."""
    judge = sqlite_judge
    judge.client.sql("CREATE TABLE t (id INTEGER, v VARCHAR)")
    judge.client.sql("ALTER TABLE t SET PARTITIONED BY (bucket(8, id), v)")
    judge.client.sql("INSERT INTO t SELECT i, 'a' FROM range(200) r(i)")
    whole = read(judge.lake, "t")
    assert (len(whole.rows), sum(whole.files)) == (200, 8)
    found = read(judge.lake, "t", filter="id IN (7, 7)")
    assert (found.rows, sum(found.files)) == ([{"id": 7, "v": "a"}], 1)
    assert read(judge.lake, "t", filter="v = 'b'").files == []


def test_texts_as_numbers(sqlite_judge: Judge) -> None:
    """Compared with a number, texts are numbers: neither their order nor their spelling tells."""
    judge = sqlite_judge
    judge.client.sql("CREATE TABLE t (v VARCHAR, s STRUCT(u UUID, j JSON, n UTINYINT))")
    judge.client.sql("ALTER TABLE t SET PARTITIONED BY (v)")
    uuid = "00000000-0000-0000-0000-00000000000a"
    inner = f"{{'u': '{uuid}'::UUID, 'j': '[1]'::JSON, 'n': 200}}"
    judge.client.sql(f"INSERT INTO t SELECT '0' || i, {inner} FROM range(7, 20) r(i)")
    judge.client.sql("ALTER TABLE t RESET PARTITIONED BY")
    judge.client.sql(f"INSERT INTO t SELECT i, {inner} FROM range(9, 120) r(i)")
    conditions = {
        "v = 7": 1,
        "v = 50": 1,
        "v::INTEGER > 100": 19,
        "v = '07'": 1,
        f"s.u = '{uuid}'": 124,
        "s.u = 'zzz'": 0,
        "s.u > 'zzz'": 0,
        "s.j = '[1]'": 124,
        "s.n = 200": 124,
        "s.n = 300": 0,
        "s.n > -1": 124,
    }
    for condition, rows in conditions.items():
        found = read(judge.lake, "t", filter=condition, columns="v")
        assert len(found.rows) == rows, condition
    assert read(judge.lake, "t", filter="s.n = 300", columns="v").files == []


def test_nan_is_found(sqlite_judge: Judge) -> None:
    """NaN is above every bound: files that may hold it are kept, and so is its row group."""
    judge = sqlite_judge
    judge.create_table("main.t", {"x": "DOUBLE", "id": "INTEGER"})
    table = pa.table({"x": [1.0, float("nan")], "id": pa.array([1, 2], pa.int32())})
    judge.add_files("main.t", [write_arrow(judge, "nan.parquet", table)], [(1.0, 1), ("NaN", 2)])
    judge.insert("main.t", [[(str(i), float(i)), (str(i), i)] for i in range(3, 30)])
    for condition, ids in (("x > 100", [2]), ("x = 'nan'", [2]), ("x < 2", [1])):
        found = read(judge.lake, "t", filter=condition)
        assert [row["id"] for row in found.rows] == ids
    # The bounds of the registered file are not known.
    assert sum(read(judge.lake, "t", filter="x < 0").files) == 1


def test_unknown_statistics_keep_files(sqlite_judge: Judge) -> None:
    """Absent bounds, bounds of a narrower type, and a column a file lacks exclude nothing."""
    judge = sqlite_judge
    judge.create_table("main.t", {"f": "FLOAT", "id": "INTEGER"})
    values = [[("0.1::FLOAT", 0.10000000149011612), (str(i), i)] for i in range(20)]
    judge.insert("main.t", values)
    judge.alter("main.t", "ALTER COLUMN f TYPE DOUBLE")
    judge.alter("main.t", "ADD COLUMN k INTEGER DEFAULT 3", lambda t: t.add_column("k", 3))
    judge.client.make_way()
    # The text of the bound is 0.1, which as a DOUBLE is below the values.
    for condition in ("f > 0.1::DOUBLE", "k = 3", "id = 4 OR id = 4"):
        assert read(judge.lake, "t", filter=condition).rows, condition
    judge.change_catalog("UPDATE ducklake_file_column_stats SET min_value = NULL")
    assert len(read(judge.lake, "t", filter="id = 4").rows) == 1
    assert sum(read(judge.lake, "t", filter="id = 400").files) == 0
    judge.change_catalog("DELETE FROM ducklake_file_column_stats")
    assert sum(read(judge.lake, "t", filter="id = 400").files) == 1


@pytest.mark.parametrize(
    ("pushed", "sql"),
    [
        (spark.EqualTo(("id",), 5), "\"id\" = CAST('5' AS INTEGER)"),
        (spark.Not(spark.EqualTo(("id",), 5)), "NOT (\"id\" = CAST('5' AS INTEGER))"),
        (spark.EqualNullSafe(("v",), "'"), "\"v\" IS NOT DISTINCT FROM CAST('''' AS VARCHAR)"),
        (spark.In(("id",), (1, 2)), "\"id\" IN (CAST('1' AS INTEGER), CAST('2' AS INTEGER))"),
        (spark.IsNull(("id",)), '"id" IS NULL'),
        (spark.IsNotNull(("id",)), '"id" IS NOT NULL'),
        (spark.StringStartsWith(("v",), "a"), "starts_with(\"v\", CAST('a' AS VARCHAR))"),
        (spark.EqualTo(("s", "a"), 5), None),
        (spark.EqualTo(("v",), "a\0"), None),
        (spark.EqualTo(("v",), None), None),
        (spark.In(("id",), (1, None)), None),
        (spark.EqualTo(("blob",), b"x"), None),
    ],
)
def test_spark_filters_as_sql(pushed: Any, sql: str | None) -> None:
    """What means the same in DuckDB is taken; anything else is left to Spark."""
    assert filter_sql(pushed, {"id": "INTEGER", "v": "VARCHAR"}) == sql


def test_pushed_filters_prune(lake: Judge) -> None:
    """Filters of Spark's plan open fewer files, and all are given back to Spark."""
    source = DuckLakeDataSource(options_of(lake.lake, "t", pushdown="true", types="text"))
    at = datetime(2024, 1, 5, 4, tzinfo=timezone.utc)
    filters: list[spark.Filter] = [
        spark.IsNotNull(("ts",)),
        spark.GreaterThanOrEqual(("ts",), at),
        spark.LessThan(("n",), Decimal("101.25")),
        spark.GreaterThan(("d",), date(2024, 1, 1)),
        spark.LessThanOrEqual(("x",), 50.0),
    ]
    reader = source.reader(source.schema())
    assert isinstance(reader, PushdownReader)
    assert list(reader.pushFilters(filters)) == filters
    partitions = reader.partitions()
    rows = [row for p in partitions for b in reader.read(p) for row in b.to_pylist()]
    assert [row["id"] for row in rows] == [100]
    assert sum(len(p.task.files) for p in partitions if isinstance(p, ReadPartition)) == 1


def test_shares_are_balanced() -> None:
    """Every file is in one share, and the shares are as many as their bytes ask for."""
    files = [DataFile(i, 1, f"{i}.parquet", 1, i * 10_000_000, None, 1) for i in range(20)]
    found = shares(files, 200_000_000)
    assert len(found) == 10
    assert sorted(f.data_file_id for share in found for f in share) == list(range(20))
    sizes = [sum(f.file_size_bytes for f in share) for share in found]
    assert max(sizes) - min(sizes) <= 40_000_000
    assert [len(share) for share in shares(files[:3], 1)] == [1, 1, 1]
    assert shares([], 1) == []
