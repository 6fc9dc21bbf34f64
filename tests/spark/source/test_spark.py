"""The data source through Spark itself: one session, as a job or a notebook has it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from airflow_provider_ducklake.spark.source import register
from tests.interop.judge import Judge
from tests.spark.source.reading import options_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
Load = Callable[..., "DataFrame"]
Save = Callable[..., None]

EVERY_TYPE = """
    SELECT id, CAST(id AS INT) i, CAST(id AS SMALLINT) s, CAST(id AS TINYINT) b,
           IF(id = 0, DOUBLE('NaN'), DOUBLE(id)) d, CAST(id AS FLOAT) f,
           CAST(id AS DECIMAL(38, 9)) n, id > 1 flag, CONCAT('é', id) v,
           CAST(CAST(id AS STRING) AS BINARY) bin, DATE '1969-12-31' dt,
           TIMESTAMP '2024-01-01 00:00:00 Asia/Kolkata' tz,
           TIMESTAMP_NTZ '1960-02-29 01:02:03.000004' plain,
           CASE WHEN id = 0 THEN NULL ELSE ARRAY(id, NULL) END arr,
           NAMED_STRUCT('x', id, 'y', ARRAY(NAMED_STRUCT('z', CAST(id AS STRING)))) st,
           MAP(CONCAT('k', id), id) m
    FROM range(3)"""


@pytest.fixture
def load(spark: SparkSession, sqlite_judge: Judge) -> Load:
    """Load the table t, options as keywords."""
    register(spark)

    def run(**options: object) -> DataFrame:
        given = options_of(sqlite_judge.lake, "t", **options)
        return spark.read.format("ducklake").options(**given).load()

    return run


@pytest.fixture
def save(spark: SparkSession, sqlite_judge: Judge) -> Save:
    """Save a DataFrame as rows of the table t, options as keywords."""
    register(spark)

    def run(data: DataFrame, mode: str = "append", table: str = "t", **options: object) -> None:
        given = options_of(sqlite_judge.lake, table, **options)
        data.write.format("ducklake").options(**given).mode(mode).save()

    return run


def test_every_type_goes_and_comes_back(
    spark: SparkSession, load: Load, save: Save, sqlite_judge: Judge
) -> None:
    """Written in a session of another zone, read by the stock client, and read back the same."""
    data = spark.sql(EVERY_TYPE)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        save(data, create_table="true")
        found = load()
        assert [(f.name, f.dataType) for f in found.schema] == [
            (f.name, _nullable(f.dataType)) for f in data.schema
        ]
        # NaN is no equal of itself in Python.
        assert sorted(map(str, found.collect())) == sorted(map(str, data.collect()))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    stock = sqlite_judge.client.sql("SELECT id, v, epoch_us(tz), st::VARCHAR FROM t ORDER BY id")
    assert stock[2] == (2, "é2", 1704047400_000000, "{'x': 2, 'y': [{'z': 2}]}")
    save(data.limit(1), mode="overwrite")
    assert sqlite_judge.client.sql("SELECT count(*) FROM t") == [(1,)]
    assert found.count() == 3, "a DataFrame shows the snapshot it was loaded at"
    assert load().count() == 1


def _nullable(kind: Any) -> Any:
    """Return a type with NULL allowed everywhere, as the source declares it."""
    from pyspark.sql.types import _parse_datatype_string

    return _parse_datatype_string(kind.simpleString())


def test_one_dataframe_in_several_scans(load: Load, sqlite_judge: Judge) -> None:
    """Filters of one scan never reach another of the same DataFrame."""
    sqlite_judge.client.sql("CREATE TABLE t AS SELECT i AS id, i % 3 AS k FROM range(100) r(i)")
    data = load()
    few = data.filter("id = 3")
    assert (few.count(), data.count(), data.filter("k = 1").count()) == (1, 100, 33)
    assert few.union(data).count() == 101
    assert few.alias("a").join(data.alias("b"), "k").count() == 34
    assert load(filter="id < 10", columns="k").distinct().count() == 3
    assert load(snapshot=1, columns="id", metadata_columns="rowid").filter("rowid = 7").count() == 1
    assert load(changes_from=1).filter("change_type = 'insert'").count() == 100


def test_errors_and_sql(spark: SparkSession, load: Load, sqlite_judge: Judge) -> None:
    """SQL reads it as any source; an error without its traceback is one line."""
    sqlite_judge.client.sql("CREATE TABLE t AS SELECT i AS id FROM range(10) r(i)")
    load()  # registers the source
    given = options_of(sqlite_judge.lake, "t", filter="id < 5")
    options = ", ".join(f"{name} '{value}'" for name, value in given.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW few USING ducklake OPTIONS ({options})")
    assert spark.sql("SELECT sum(id) FROM few").collect() == [(10,)]
    spark.sql("DROP VIEW few")
    spark.conf.set("spark.sql.execution.pyspark.udf.hideTraceback.enabled", "true")
    try:
        with pytest.raises(PySparkException) as refusal:
            load(snapsot=1)
    finally:
        spark.conf.unset("spark.sql.execution.pyspark.udf.hideTraceback.enabled")
    first, *rest = str(refusal.value).splitlines()
    assert "unknown option of the ducklake source 'snapsot'; did you mean 'snapshot'?" in first
    assert "".join(rest).strip() == "SQLSTATE: 38000"


def test_pushed_filters_of_one_scan(spark: SparkSession, load: Load, sqlite_judge: Judge) -> None:
    """A DataFrame of one scan may push its filters."""
    sqlite_judge.client.sql("CREATE TABLE t AS SELECT i AS id FROM range(100) r(i)")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert load(pushdown="true").filter("id >= 97 AND id <> 98").count() == 2
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_failing_task_leaves_everything_as_it_was(
    spark: SparkSession, load: Load, save: Save, sqlite_judge: Judge
) -> None:
    """Neither the catalog nor the data path shows a write one task of which failed."""
    sqlite_judge.client.sql("CREATE TABLE t (id BIGINT, v VARCHAR)")
    before = sqlite_judge.fingerprint()
    data = spark.range(0, 100, 1, 4).selectExpr(
        "id", "IF(id > 90, raise_error(CONCAT('boom', id)), 'x') v"
    )
    with pytest.raises(PySparkException, match="boom"):
        save(data)
    assert sqlite_judge.fingerprint() == before
    assert load().count() == 0
    with pytest.raises(PySparkException, match="lacks columns of main"):
        save(data.select("id"))
    with pytest.raises(PySparkException, match=r"unknown table 'main\.tt'; did you mean 'main\.t'"):
        save(data, table="tt")
    assert sqlite_judge.fingerprint() == before


def test_stream(
    spark: SparkSession, load: Load, save: Save, sqlite_judge: Judge, tmp_path: Path
) -> None:
    """A stream started again goes on, and a batch whose end Spark forgot is not added twice."""
    sqlite_judge.client.sql("CREATE TABLE t (id BIGINT)")
    source = tmp_path / "source"

    def run() -> None:
        rows = spark.readStream.schema("id BIGINT").parquet(str(source))
        options = options_of(sqlite_judge.lake, "t", checkpointLocation=tmp_path / "checkpoint")
        query = rows.writeStream.format("ducklake").options(**options).trigger(availableNow=True)
        query.queryName("events").start().awaitTermination()

    spark.range(10).write.parquet(str(source))
    run()
    assert load().count() == 10
    before = sqlite_judge.fingerprint(), sqlite_judge.lake.stored_files()
    for log in (tmp_path / "checkpoint" / "commits").iterdir():
        os.remove(log)
    run()
    assert (sqlite_judge.fingerprint(), sqlite_judge.lake.stored_files()) == before
    spark.range(10, 15).write.mode("append").parquet(str(source))
    run()
    assert sorted(row.id for row in load().collect()) == list(range(15))
