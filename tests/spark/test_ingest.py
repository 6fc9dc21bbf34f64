"""Ingest of DataFrames: types, names, modes, partitions; what does not fit is refused whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError, NotFound
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.lake.tables import create_table
from airflow_provider_ducklake.spark import dataframes
from airflow_provider_ducklake.spark.operations import run_operation
from airflow_provider_ducklake.spark.runner import SparkRunner
from tests.support.lakes import LakeUnderTest, catalog_fingerprint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
Ingest = Callable[..., OperationResult]
Lakes = tuple[Lake, LakeUnderTest]


@pytest.fixture
def ingest(sqlite_lake: Lakes, runner: SparkRunner) -> Ingest:
    """Ingest a DataFrame into a table of the lake, options as keywords."""

    def run(
        data: DataFrame, table: str = "t", key: str | None = None, **options: str
    ) -> OperationResult:
        return run_operation(
            "ingest",
            sqlite_lake[0],
            options,
            runner=runner,
            tables=[table],
            data=lambda _: data,
            commit=CommitInfo(key=key),
        )

    return run


def rows(judge: LakeUnderTest, query: str) -> list[Any]:
    """Return what the reference client reads."""
    client = judge.client()
    found = client.sql(query)
    client.close()
    return found


EVERY_TYPE = """
    SELECT CAST(id AS BIGINT) l, CAST(id AS INT) i, CAST(id AS SMALLINT) s, CAST(id AS TINYINT) b,
           CAST(id / 2 AS DOUBLE) d, CAST(id AS FLOAT) f, CAST(id AS DECIMAL(38, 9)) n,
           id > 1 flag, CONCAT('é', id) v, CAST(CAST(id AS STRING) AS BINARY) bin,
           DATE '1969-12-31' dt, TIMESTAMP '2024-01-01 00:00:00 Asia/Kolkata' tz,
           TIMESTAMP_NTZ '1960-02-29 01:02:03.000004' plain,
           CASE WHEN id = 0 THEN NULL ELSE ARRAY(id, NULL) END arr,
           NAMED_STRUCT('x', id, 'y', ARRAY(NAMED_STRUCT('z', CAST(id AS STRING)))) st,
           MAP(CONCAT('k', id), id) m
    FROM range(3)"""


def test_every_type_spark_has_arrives_exactly(
    spark: SparkSession, ingest: Ingest, sqlite_lake: Lakes
) -> None:
    """IN-01: with the session in another zone than UTC, the instants are the same."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        result = ingest(spark.sql(EVERY_TYPE), create_table="true")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert result.tables[0].rows == 3
    judge = sqlite_lake[1]
    kinds = {name: kind for name, kind, *_ in rows(judge, "DESCRIBE t")}
    assert kinds == {
        "l": "BIGINT",
        "i": "INTEGER",
        "s": "SMALLINT",
        "b": "TINYINT",
        "d": "DOUBLE",
        "f": "FLOAT",
        "n": "DECIMAL(38,9)",
        "flag": "BOOLEAN",
        "v": "VARCHAR",
        "bin": "BLOB",
        "dt": "DATE",
        "tz": "TIMESTAMP WITH TIME ZONE",
        "plain": "TIMESTAMP",
        "arr": "BIGINT[]",
        "st": "STRUCT(x BIGINT, y STRUCT(z VARCHAR)[])",
        "m": "MAP(VARCHAR, BIGINT)",
    }
    found = rows(
        judge,
        "SELECT l, n::VARCHAR, v, bin::VARCHAR, dt::VARCHAR, epoch_us(tz), plain::VARCHAR, "
        "arr::VARCHAR, st::VARCHAR, m::VARCHAR FROM t ORDER BY l",
    )
    instant = 1704047400_000000
    assert found[0][:9] == (
        0,
        "0.000000000",
        "é0",
        "0",
        "1969-12-31",
        instant,
        "1960-02-29 01:02:03.000004",
        None,
        "{'x': 0, 'y': [{'z': 0}]}",
    )
    assert found[2][7:] == ("[2, NULL]", "{'x': 2, 'y': [{'z': 2}]}", "{k2=2}")
    # Statistics let a filter find the row, and say nothing else.
    assert rows(judge, "SELECT count(*) FROM t WHERE v = 'é1' AND n = 1 AND tz < now()") == [(1,)]


def test_types_spark_lacks_come_as_text_and_are_checked(
    spark: SparkSession, ingest: Ingest, sqlite_lake: Lakes
) -> None:
    lake, judge = sqlite_lake
    create_table(lake, "t", parse_columns("u uuid, n uint8, h int128, clock time, ns timestamp_ns"))
    uuid = "550e8400-e29b-41d4-a716-446655440000"
    good = spark.sql(
        f"SELECT '{uuid}' u, 255 n, '9007199254740992' h, '12:30:00' clock, "
        "'2024-01-01 00:00:00.123456789' ns"
    )
    ingest(good)
    assert rows(judge, "SELECT u::VARCHAR, n, clock::VARCHAR, ns::VARCHAR FROM t") == [
        (uuid, 255, "12:30:00", "2024-01-01 00:00:00.123456789")
    ]
    before = catalog_fingerprint(judge)
    for bad in ("256 n", "-1 n"):
        with pytest.raises(BadInput, match="n"):
            ingest(spark.sql(f"SELECT '{uuid}' u, {bad}, '1' h, '12:30:00' clock, '2024-01-01' ns"))
    with pytest.raises(BadInput, match="u"):
        ingest(spark.sql("SELECT 'no uuid' u, 1 n, '1' h, '12:30:00' clock, '2024-01-01' ns"))
    assert catalog_fingerprint(judge) == before


@pytest.mark.parametrize(
    ("columns", "query", "message"),
    [
        ("a int32", "SELECT CAST(1 AS BIGINT) a", "'a' of the source is BIGINT.*is INTEGER"),
        ("a float32", "SELECT CAST(1 AS DOUBLE) a", "DOUBLE.*FLOAT"),
        ("a timestamp", "SELECT current_timestamp() a", "time zone"),
        ("a timestamptz", "SELECT TIMESTAMP_NTZ '2024-01-01 00:00:00' a", "time zone"),
        ("a blob", "SELECT 'text' a", "VARCHAR.*BLOB"),
        ("a date", "SELECT TIMESTAMP_NTZ '2024-01-01 00:00:00' a", "TIMESTAMP.*DATE"),
        ("a struct(x int32)", "SELECT NAMED_STRUCT('y', 1) a", "STRUCT"),
        ("a int32[]", "SELECT 1 a", "INTEGER"),
        ("a int32", "SELECT 1 a, 2 b", "lacks: 'b'"),
        ("a int32, b int32", "SELECT 1 a", "lacks columns.*'b'"),
        ("a int32", "SELECT 1 a, 2 A", "names ignore case|ambiguous"),
        ("a int32 NOT NULL", "SELECT CAST(NULL AS INT) a", "a"),
        ("a varchar", "SELECT INTERVAL '1' DAY a", "interval"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    spark: SparkSession,
    ingest: Ingest,
    sqlite_lake: Lakes,
    columns: str,
    query: str,
    message: str,
) -> None:
    lake, judge = sqlite_lake
    create_table(lake, "t", parse_columns(columns))
    before, files = catalog_fingerprint(judge), judge.stored_files()
    with pytest.raises(BadInput, match=message):
        ingest(spark.sql(query))
    assert catalog_fingerprint(judge) == before
    assert judge.stored_files() == files


def test_columns_meet_by_name_and_new_ones_can_be_added(
    spark: SparkSession, ingest: Ingest, sqlite_lake: Lakes
) -> None:
    judge = sqlite_lake[1]
    ingest(spark.sql("SELECT 1 a, 'x' b"), create_table="true")
    ingest(spark.sql("SELECT 'y' B, 2 A"))
    grown = spark.sql("SELECT 'z' b, NAMED_STRUCT('p', 1) c, 3 a")
    ingest(grown, schema_evolution="add_columns")
    assert rows(judge, "SELECT a, b, c::VARCHAR FROM t ORDER BY a") == [
        (1, "x", None),
        (2, "y", None),
        (3, "z", "{'p': 1}"),
    ]
    ingest(spark.sql("SELECT 4 a"), allow_missing="true")
    assert rows(judge, "SELECT a, b FROM t WHERE a = 4") == [(4, None)]
    assert [s.changes_made for s in sqlite_lake[0].snapshots()][-2:] == [
        "altered_table:1,inserted_into_table:1",
        "inserted_into_table:1",
    ]


def test_modes(spark: SparkSession, ingest: Ingest, sqlite_lake: Lakes) -> None:
    lake, judge = sqlite_lake
    three = spark.sql("SELECT id, id % 2 part FROM range(3)")
    ingest(three, create_table="true", partition_by="part")
    first = lake.head().snapshot_id
    with pytest.raises(ConfigurationError, match="has rows already"):
        ingest(three, mode="error_if_exists")
    client = judge.client()
    client.sql("INSERT INTO t VALUES (100, 1), (200, 0)")  # few rows: kept inline
    client.close()
    ingest(spark.sql("SELECT 7L id, 1L part"), mode="overwrite_partitions")
    assert rows(judge, "SELECT id, part FROM t ORDER BY ALL") == [(0, 0), (2, 0), (7, 1), (200, 0)]
    ingest(spark.sql("SELECT 9L id, 5L part"), mode="overwrite")
    assert rows(judge, "SELECT id, part FROM t") == [(9, 5)]
    assert rows(judge, f"SELECT id FROM t AT (VERSION => {first}) ORDER BY ALL") == [
        (0,),
        (1,),
        (2,),
    ]
    ingest(spark.sql("SELECT 1L id, 1L part WHERE false"), mode="overwrite")
    assert rows(judge, "SELECT count(*) FROM t") == [(0,)]
    with pytest.raises(ConfigurationError, match="one of append"):
        ingest(three, mode="upsert")


def test_partitions_and_sort_order(spark: SparkSession, ingest: Ingest, sqlite_lake: Lakes) -> None:
    lake, judge = sqlite_lake
    data = spark.sql(
        "SELECT id, CAST(id % 5 AS STRING) who, TIMESTAMP '2024-01-01' + MAKE_DT_INTERVAL(id) at "
        "FROM range(0, 400, 1, 4)"
    )
    ingest(
        data,
        create_table="true",
        partition_by="year(at), bucket(2, who), who",
        sorted_by="id DESC",
    )
    assert rows(judge, "SELECT count(*), sum(id) FROM t") == [(400, 79800)]
    with lake.view() as view:
        files = view.live_files(view.table("t"))
    assert len({file.partition_values for file in files}) == len(files) == 10
    client = judge.client()
    client.sql("INSERT INTO t SELECT 1000 + i, (i % 5)::VARCHAR, '2024-02-02' FROM range(40) t(i)")
    client.close()
    with lake.view() as view:
        values = {f.partition_values for f in view.live_files(view.table("t"))}
    assert len([v for v in values if v[0] == "2024"]) == 5  # same buckets as the reference
    ids = rows(judge, f"SELECT id FROM read_parquet('{files[0].path}')")
    assert ids == sorted(ids, reverse=True)


def test_a_retry_finds_what_was_committed(
    spark: SparkSession, ingest: Ingest, sqlite_lake: Lakes
) -> None:
    """IN-02 (b): killed between commit and task success."""
    data = spark.sql("SELECT id FROM range(10)")
    first = ingest(data, key="run-1", create_table="true")
    again = ingest(data, key="run-1", create_table="true")
    assert again.already_done
    assert again.tables[0].rows == first.tables[0].rows == 10
    assert again.snapshot_after == first.snapshot_after
    assert rows(sqlite_lake[1], "SELECT count(*) FROM t") == [(10,)]


def test_a_new_table_and_its_rows_are_one_snapshot(
    spark: SparkSession, ingest: Ingest, sqlite_lake: Lakes
) -> None:
    """IN-02: whoever finds the table finds the rows; the reference says the same of a CTAS."""
    lake, judge = sqlite_lake
    ingest(spark.sql("SELECT id FROM range(3)"), create_table="true", mode="overwrite")
    client = judge.client()
    client.sql("CREATE TABLE theirs AS SELECT range AS id FROM range(100)")
    client.close()
    ours, theirs = (s.changes_made for s in lake.snapshots(after=0))
    assert ours == 'created_table:"main"."t",inserted_into_table:1'
    assert theirs == ours.replace('"t"', '"theirs"').replace(":1", ":2")
    ingest(spark.sql("SELECT 1 a WHERE false"), table="empty", create_table="true")
    assert lake.snapshots()[-1].changes_made == 'created_table:"main"."empty"'
    assert rows(judge, "SELECT * FROM empty") == []


def test_a_failed_ingest_leaves_no_table(
    spark: SparkSession, ingest: Ingest, sqlite_lake: Lakes
) -> None:
    """IN-02: rows that cannot be read, and a plan only, leave the catalog as it was."""
    judge = sqlite_lake[1]
    before = catalog_fingerprint(judge)
    with pytest.raises(BadInput, match="DIVIDE_BY_ZERO"):
        ingest(spark.sql("SELECT 1 / (id - 2) a FROM range(3)"), create_table="true")
    result = run_operation(
        "ingest",
        sqlite_lake[0],
        {"create_table": "true"},
        runner=SparkRunner(spark.sparkContext),
        tables=["t"],
        data=lambda _: spark.sql("SELECT 1 a"),
        dry_run=True,
    )
    assert result.tables[0].rows == 1
    assert catalog_fingerprint(judge) == before


def test_a_table_created_meanwhile_is_written_to(
    spark: SparkSession, ingest: Ingest, sqlite_lake: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-02: of two jobs that create one table, the second appends to what the first made."""
    lake, judge = sqlite_lake
    write, others = dataframes.write_files, iter([True])

    def write_while_another_creates(*arguments: Any) -> Any:
        files = write(*arguments)
        if next(others, False):
            create_table(lake, "T", parse_columns("b varchar, a int32"))
        return files

    monkeypatch.setattr(dataframes, "write_files", write_while_another_creates)
    ingest(spark.sql("SELECT 1 a, 'x' b"), create_table="true")
    assert rows(judge, "SELECT a, b FROM t") == [(1, "x")]
    assert len(judge.stored_files()) == 1, "the files of the first plan are gone"


def test_nothing_to_write_makes_no_snapshot(
    spark: SparkSession, ingest: Ingest, sqlite_lake: Lakes
) -> None:
    lake = sqlite_lake[0]
    ingest(spark.sql("SELECT 1 a"), create_table="true")
    head = lake.head()
    assert ingest(spark.sql("SELECT 1 a WHERE false")).snapshot_after == head.snapshot_id
    assert lake.head() == head


def test_names_of_nothing(spark: SparkSession, ingest: Ingest, sqlite_lake: Lakes) -> None:
    ingest(spark.sql("SELECT 1 a"), table="main.orders", create_table="true")
    with pytest.raises(NotFound, match=r"did you mean 'main\.orders'"):
        ingest(spark.sql("SELECT 1 a"), table="main.order")
    with pytest.raises(ConfigurationError, match="did you mean 'schema_evolution'"):
        ingest(spark.sql("SELECT 1 a"), table="main.orders", schema_evolutions="add_columns")


def test_a_dry_run_of_an_overwrite_tells_what_would_go(
    spark: SparkSession, runner: SparkRunner, ingest: Ingest, sqlite_lake: Lakes
) -> None:
    """Files and bytes that are there, rows that would come."""
    loaded = ingest(spark.range(5), create_table="true").tables[0]
    before = catalog_fingerprint(sqlite_lake[1])
    (told,) = run_operation(
        "ingest",
        sqlite_lake[0],
        {"mode": "overwrite"},
        runner=runner,
        tables=["t"],
        data=lambda _: spark.range(3),
        dry_run=True,
    ).tables
    assert (told.files_in, told.bytes_in, told.rows) == (loaded.files_out, loaded.bytes_out, 3)
    assert (told.files_before, told.files_after) == (loaded.files_out, 0)
    assert catalog_fingerprint(sqlite_lake[1]) == before


def test_a_table_keeps_its_specs_and_says_so(
    spark: SparkSession, ingest: Ingest, caplog: pytest.LogCaptureFixture
) -> None:
    """They count when a table is created; another one later is not passed over in silence."""
    specs = {"create_table": "true", "partition_by": "id", "sorted_by": "id"}
    ingest(spark.range(2), **specs)
    ingest(spark.range(2), **specs)
    assert "keeps it" not in caplog.text
    ingest(spark.range(2), partition_by="bucket(3, id)", sorted_by="id DESC")
    assert "another partition spec than bucket(3, id)" in caplog.text
    assert "another sort order than id DESC" in caplog.text


def test_a_missing_schema_is_made_with_its_table(
    spark: SparkSession, ingest: Ingest, sqlite_lake: Lakes
) -> None:
    """In one snapshot, whatever the names; without create_table neither is made."""
    with pytest.raises(NotFound):
        ingest(spark.range(2), table="sales.orders")
    ingest(spark.range(2), table='sales."or.ders"', create_table="true")
    made = sqlite_lake[0].snapshots()[-1].changes_made
    assert made.startswith('created_schema:"sales",created_table:"sales"."or.ders",inserted_into')
    ingest(spark.range(2), table='sales."or.ders"')
    assert rows(sqlite_lake[1], 'SELECT count(*) FROM sales."or.ders"') == [(4,)]
