"""Ingest of Parquet files as they are: no row goes through Spark, and the rows are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.model import WrittenFile
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.lake.tables import create_table
from airflow_provider_ducklake.spark import dataframes
from airflow_provider_ducklake.spark.operations import _file_copy, run_operation
from airflow_provider_ducklake.spark.operations._file_copy import SMALLEST_GROUP, group_files
from airflow_provider_ducklake.spark.runner import SparkRunner
from tests.spark.test_ingest import EVERY_TYPE, rows
from tests.support.lakes import LakeUnderTest, catalog_fingerprint, catalog_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Lakes = tuple[Lake, LakeUnderTest]
Load = Callable[..., OperationResult]


@given(
    st.lists(st.integers(0, 3 * SMALLEST_GROUP), max_size=30),
    st.integers(1, 4 * SMALLEST_GROUP),
    st.integers(1, 8),
)
def test_groups(sizes: list[int], target: int, parallelism: int) -> None:
    """Every file with rows is in one group, in order; none but a single file is too large."""
    files = [WrittenFile(str(n), n % 3, size, 4) for n, size in enumerate(sizes)]
    groups = group_files(files, target, parallelism)
    flat = [file for group in groups for file in group]
    assert [file.path for file in flat] == [file.path for file in files if file.record_count]
    for group in groups:
        assert len(group) == 1 or sum(f.file_size_bytes for f in group) <= target
        starts = [file.row_id_start for file in group]
        counts = [file.record_count for file in group]
        assert starts == [sum(counts[:n]) for n in range(len(group))]


@pytest.fixture
def load(spark: SparkSession, sqlite_lake: Lakes, runner: SparkRunner) -> Load:
    """Ingest Parquet files as they are into table `t`, options as keywords."""

    def run(*sources: Path, **options: str) -> OperationResult:
        return run_operation(
            "ingest",
            sqlite_lake[0],
            options,
            runner=runner,
            tables=["t"],
            sources=[str(source) for source in sources],
            as_they_are=True,
            data=lambda _: spark.read.parquet(*map(str, sources)),
        )

    return run


@pytest.fixture
def through_spark(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """One entry each time rows went through Spark."""
    seen, write = [], dataframes.write_files

    def noted(*arguments: Any) -> Any:
        seen.append(True)
        return write(*arguments)

    monkeypatch.setattr(dataframes, "write_files", noted)
    return seen


@pytest.fixture
def require_same(spark: SparkSession, sqlite_lake: Lakes) -> Callable[[Path], None]:
    """Load files through Spark into table `u`; compare types and rows with `t`."""
    lake, judge = sqlite_lake

    def run(source: Path) -> None:
        run_operation(
            "ingest",
            lake,
            {"create_table": "true"},
            runner=SparkRunner(spark.sparkContext),
            tables=["u"],
            data=lambda _: spark.read.parquet(str(source)),
        )
        assert rows(judge, "DESCRIBE t") == rows(judge, "DESCRIBE u")
        for one, other in ("tu", "ut"):
            assert rows(judge, f"FROM {one} EXCEPT ALL FROM {other}") == []

    return run


def require_same_statistics(judge: LakeUnderTest) -> None:
    """Compare what the catalog tells of the columns of the two tables."""
    kept: dict[int, list[Any]] = {}
    for row in catalog_rows(judge)["ducklake_table_column_stats"]:
        kept.setdefault(row.pop("table_id"), []).append(row)
    copied, written = kept.values()
    assert copied == written


@contextmanager
def configured(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Set Spark's options for Parquet for the length of a block."""
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.parquet.{name}", value)
    yield
    for name in settings:
        spark.conf.unset(f"spark.sql.parquet.{name}")


def test_every_type(
    spark: SparkSession,
    load: Load,
    require_same: Callable[[Path], None],
    sqlite_lake: Lakes,
    tmp_path: Path,
    through_spark: list[bool],
) -> None:
    """The copy holds what the way through Spark would have put there."""
    source = tmp_path / "a source of 100%" / "files"
    spark.sql(EVERY_TYPE).repartition(3).write.parquet(str(source))
    result = load(source, create_table="true")
    assert not through_spark
    assert (result.tables[0].rows, result.tables[0].files_out) == (3, 1)
    require_same(source)
    assert through_spark
    judge = sqlite_lake[1]
    assert rows(judge, "SELECT rowid FROM t ORDER BY ALL") == [(0,), (1,), (2,)]
    assert rows(judge, "SELECT count(*) FROM t WHERE v = 'é1' AND n = 1 AND tz < now()") == [(1,)]


INSTANTS = (
    "0001-01-01 00:00:00",
    "1582-10-04 23:59:59.999999",
    "1899-12-31 23:59:59.999999",
    "1969-12-31 23:59:59.999999",
    "9999-12-31 23:59:59.999999",
)
OLD = "SELECT " + ", ".join(
    f"TIMESTAMP '{t} UTC' t{n}, ARRAY(NAMED_STRUCT('x', TIMESTAMP '{t} UTC'), NULL) a{n}, "
    f"DATE '{t[:10]}' d{n}"
    for n, t in enumerate(INSTANTS)
)
REBASED = {"int96RebaseModeInWrite": "LEGACY"}


@pytest.mark.parametrize(
    ("written", "read", "by_spark"),
    [
        ({}, {}, False),
        ({"outputTimestampType": "TIMESTAMP_MICROS"}, {}, False),
        (REBASED, {}, True),
        ({"datetimeRebaseModeInWrite": "LEGACY"}, {}, True),
        ({}, {"int96RebaseModeInRead": "EXCEPTION"}, True),
    ],
    ids=["INT96", "INT64", "INT96 in the old calendar", "old calendar", "told to look"],
)
def test_old_dates_and_instants(
    spark: SparkSession,
    load: Load,
    require_same: Callable[[Path], None],
    sqlite_lake: Lakes,
    tmp_path: Path,
    through_spark: list[bool],
    written: dict[str, str],
    read: dict[str, str],
    by_spark: bool,
) -> None:
    """However Spark wrote them; what it would convert when it reads goes through it."""
    source = tmp_path / "source"
    with configured(spark, written):
        spark.sql(OLD).coalesce(1).write.parquet(str(source))
    with configured(spark, read):
        load(source, create_table="true")
    assert bool(through_spark) == by_spark
    require_same(source)
    require_same_statistics(sqlite_lake[1])
    for number, instant in enumerate(INSTANTS):
        query = f"SELECT t{number} = a{number}[1].x, t{number} AT TIME ZONE 'UTC', d{number} FROM t"
        expected = datetime.fromisoformat(instant)
        assert rows(sqlite_lake[1], query) == [(True, expected, expected.date())]


def test_nanoseconds_of_int96(
    load: Load,
    require_same: Callable[[Path], None],
    sqlite_lake: Lakes,
    tmp_path: Path,
    through_spark: list[bool],
) -> None:
    """A lake has microseconds: what is beyond goes the way Spark lets it go, towards the past."""
    nanoseconds = [-2_208_988_800_000_000_001, -1_001, -1, 0, 1_999, None]
    column = pa.array(nanoseconds, pa.timestamp("ns"))
    path = tmp_path / "source.parquet"
    pq.write_table(pa.table({"t": column}), path, use_deprecated_int96_timestamps=True)
    load(path, create_table="true")
    assert not through_spark
    require_same(path)
    require_same_statistics(sqlite_lake[1])
    microseconds = [(-2_208_988_800_000_001,), (-2,), (-1,), (0,), (1,), (None,)]
    assert rows(sqlite_lake[1], "SELECT epoch_us(t) FROM t ORDER BY rowid") == microseconds


def test_a_table_that_is_there(
    spark: SparkSession, load: Load, sqlite_lake: Lakes, tmp_path: Path, through_spark: list[bool]
) -> None:
    """By name, with wider types and a new column; again and again, and in place of all rows."""
    lake, judge = sqlite_lake
    create_table(lake, "t", parse_columns("b varchar, a int64"))
    spark.sql("SELECT CAST(1 AS INT) A, 'x' b, 2.5D c").write.parquet(f"{tmp_path}/one")
    load(tmp_path / "one", schema_evolution="add_columns")
    load(tmp_path / "one")
    assert rows(judge, "SELECT a, b, c FROM t") == [(1, "x", 2.5)] * 2
    load(tmp_path / "one", mode="overwrite")
    assert rows(judge, "SELECT a, b, c FROM t") == [(1, "x", 2.5)]
    assert not through_spark


@pytest.mark.parametrize(
    ("table", "specs", "directory", "query"),
    [
        ("a int64, part int64", {"partition_by": "part"}, "", "SELECT 1L a, 2L part"),
        ("a int64", {"sorted_by": "a"}, "", "SELECT 1L a"),
        ("a int64, k int32", {}, "k=7", "SELECT 1L a"),
        ("a uuid", {}, "", "SELECT 'c0ffee00-0000-4000-8000-000000000001' a"),
        ("a timestamptz", {}, "", "SELECT TIMESTAMP '2024-01-01 00:00:00 Asia/Kolkata' a"),
    ],
    ids=["partitioned", "sorted", "value in a directory", "a type Spark lacks", "nothing special"],
)
def test_what_only_spark_can_do(
    spark: SparkSession,
    load: Load,
    sqlite_lake: Lakes,
    tmp_path: Path,
    through_spark: list[bool],
    request: pytest.FixtureRequest,
    table: str,
    specs: dict[str, Any],
    directory: str,
    query: str,
) -> None:
    """Rows take the other way where the files alone do not say everything."""
    lake, judge = sqlite_lake
    create_table(lake, "t", parse_columns(table), **specs)
    spark.sql(query).write.parquet(f"{tmp_path}/source/{directory}")
    load(tmp_path / "source")
    assert rows(judge, "SELECT count(*) FROM t") == [(1,)]
    assert bool(through_spark) == ("nothing special" not in request.node.name)
    if directory:
        assert rows(judge, "SELECT a, k FROM t") == [(1, 7)]


def test_a_broken_file_changes_nothing(
    load: Load,
    sqlite_lake: Lakes,
    tmp_path: Path,
    through_spark: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """IN-02: one line for the person, the catalog as it was, no file left."""
    judge = sqlite_lake[1]
    create_table(sqlite_lake[0], "t", parse_columns("a int64"))
    (tmp_path / "source").mkdir()
    numbers = pa.table({"a": range(20_000)})
    pq.write_table(numbers, tmp_path / "source" / "whole.parquet")
    broken = tmp_path / "source" / "broken.parquet"
    pq.write_table(numbers, broken, row_group_size=2_000)
    with pq.ParquetFile(broken) as file:
        page = file.metadata.row_group(5).column(0).data_page_offset
    content = bytearray(broken.read_bytes())
    content[page : page + 30] = bytes(30)  # footer and first rows are in place
    broken.write_bytes(content)
    # A file alone fills a group here, so that one copy succeeds and the other fails.
    monkeypatch.setattr(_file_copy, "SMALLEST_GROUP", 1)
    before = catalog_fingerprint(judge)
    with pytest.raises(BadInput):
        load(tmp_path / "source")
    assert catalog_fingerprint(judge) == before
    assert not judge.stored_files()
    assert not through_spark
