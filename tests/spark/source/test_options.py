"""Options and types: what is wrong is refused in one line, and secrets reach no task."""

from __future__ import annotations

import os
import pickle
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError, LakeError
from airflow_provider_ducklake.spark.credentials import Secrets, hand_over, receive
from airflow_provider_ducklake.spark.source.data_source import DuckLakeDataSource, source_class
from airflow_provider_ducklake.spark.source.options import READ_OPTIONS, checked, open_lake
from tests.interop.judge import Judge
from tests.spark.source.reading import options_of, read
from tests.support.lakes import LakeUnderTest

# A column of each type that Spark lacks, and the text of a value.
AS_TEXT = {
    "UUID": "00000000-0000-0000-0000-00000000000a",
    "HUGEINT": "-18446744073709551616",
    "TIME": "12:34:56.789",
    "TIMETZ": "12:34:56+00",
    "INTERVAL": "1 year 2 months 3 days 04:05:06.007",
    "TIMESTAMP_NS": "2024-02-29 12:34:56.123456789",
}


@pytest.fixture
def lake(sqlite_judge: Judge) -> LakeUnderTest:
    """A lake with one table of two columns and one row."""
    sqlite_judge.client.sql("CREATE TABLE t (id INTEGER, v VARCHAR)")
    sqlite_judge.client.sql("INSERT INTO t VALUES (1, 'a')")
    return sqlite_judge.lake


def test_wrong_options(lake: LakeUnderTest) -> None:
    """Each is one line that says what is wrong and what to write instead."""
    wrong: list[tuple[dict[str, str], str]] = [
        ({"tabel": "t"}, "did you mean 'table'"),
        ({"snapshot": "-1"}, "snapshot"),
        ({"snapshot": "1", "at": "1 day"}, "not both"),
        ({"snapshot": "99"}, "snapshot 99 is not kept"),
        ({"at": "yesterday"}, "no duration"),
        ({"at": "2024-01-01 00:00:00"}, "at '2024-01-01 00:00:00' has no time or UTC offset"),
        ({"changes_to": "1"}, "changes_from"),
        ({"changes_from": "2", "changes_to": "1"}, "before"),
        ({"changes_from": "9"}, "newest snapshot"),
        ({"changes_from": "1", "snapshot": "1"}, "leave out"),
        ({"columns": "id,nope"}, "unknown column of main.t 'nope'"),
        ({"columns": "id,ID"}, "twice"),
        ({"columns": ","}, "no column"),
        ({"metadata_columns": "row_id"}, "rowid and snapshot_id"),
        ({"partition_size": "big"}, "must be a size"),
        ({"types": "loose"}, "one of exact, text"),
        ({"pushdown": "maybe"}, "true or false"),
        ({"table": "nope"}, "unknown table"),
        ({"attach": ""}, "option attach is missing"),
        ({"path": "/x"}, "give attach and table"),
        ({"password": "x"}, "DUCKLAKE_CATALOG_PASSWORD"),
        ({"aws_secret_access_key": "x"}, "DUCKLAKE_STORAGE_"),
        ({"attach": "ducklake:postgres:host=h password=s3cr3t"}, "holds a password"),
    ]
    for options, words in wrong:
        with pytest.raises(LakeError) as refusal:
            DuckLakeDataSource(options_of(lake, "t") | options).schema()
        message = str(refusal.value)
        assert words in message, (options, message)
        assert "\n" not in message
        assert "s3cr3t" not in message


def test_a_schema_chooses_columns(lake: LakeUnderTest) -> None:
    """A schema of some fields is the projection; what it says otherwise is refused."""
    only = StructType([StructField("v", StringType())])
    assert read(lake, "t", only).rows == [{"v": "a"}]
    assert read(lake, "t", columns='"v",id').rows == [{"v": "a", "id": 1}]
    with pytest.raises(BadInput, match="is string in Spark, the schema says int"):
        read(lake, "t", StructType([StructField("v", IntegerType())]))
    with pytest.raises(ConfigurationError, match="unknown column"):
        read(lake, "t", StructType([StructField("w", IntegerType())]))


def test_types_spark_lacks(sqlite_judge: Judge) -> None:
    """They are refused by name, or are text where asked; inside nested values too."""
    judge = sqlite_judge
    columns = ", ".join(f'"c{i}" {kind}' for i, kind in enumerate(AS_TEXT))
    values = ", ".join(f"'{text}'::{kind}" for kind, text in AS_TEXT.items())
    judge.client.sql(f"CREATE TABLE t ({columns}, s STRUCT(u UUID, l UTINYINT[]), w GEOMETRY)")
    uuid = AS_TEXT["UUID"]
    row = f"{values}, {{'u': '{uuid}'::UUID, 'l': [255]}}, 'POINT (1 2)'::GEOMETRY"
    judge.client.sql(f"INSERT INTO t SELECT {row} FROM range(20)")
    for column, kind in (
        ("c0", "uuid"),
        ("c1", "int128"),
        ("s", "'s.u' is uuid"),
        ("w", "geometry"),
    ):
        with pytest.raises(BadInput, match=kind):
            read(judge.lake, "t", columns=column)
    with pytest.raises(BadInput, match="no text that says all of it"):
        read(judge.lake, "t", types="text")
    names = [f"c{i}" for i in range(len(AS_TEXT))]
    found = read(judge.lake, "t", types="text", columns=",".join([*names, "s"]))
    texts = dict(zip(names, AS_TEXT.values(), strict=True))
    expected = texts | {"s": {"u": uuid, "l": [255]}}
    # HUGEINT is a DOUBLE in Parquet: this value is one exactly.
    assert found.rows == [expected] * 20


def test_unsigned_widen_and_extremes_hold(sqlite_judge: Judge) -> None:
    """Unsigned integers take the next wider type; the smallest and largest values arrive."""
    judge = sqlite_judge
    judge.client.sql(
        "CREATE TABLE t (a UTINYINT, b USMALLINT, c UINTEGER, d UBIGINT, e TIMESTAMP_S)"
    )
    row = "(255, 65535, 4294967295, 18446744073709551615, '1969-12-31 23:59:59')"
    judge.client.sql(f"INSERT INTO t VALUES {row}")
    found = read(judge.lake, "t")
    assert found.schema.simpleString() == (
        "struct<a:smallint,b:int,c:bigint,d:decimal(20,0),e:timestamp_ntz>"
    )
    assert list(found.rows[0].values())[:4] == [255, 65535, 4294967295, 18446744073709551615]
    assert str(found.rows[0]["e"]) == "1969-12-31 23:59:59"


def test_infinite_dates_are_refused(sqlite_judge: Judge) -> None:
    """Spark would take an infinite date for one in the far future."""
    judge = sqlite_judge
    judge.client.sql("CREATE TABLE t (d DATE, l TIMESTAMPTZ[])")
    judge.client.sql("INSERT INTO t VALUES ('2024-01-01', NULL), ('-infinity', ['infinity', NULL])")
    for column, path in (("d", "'d'"), ("l", "'l.element'")):
        with pytest.raises(BadInput, match=f"column {path} holds an infinite date"):
            read(judge.lake, "t", columns=column)
    assert read(judge.lake, "t", columns="d", filter="isfinite(d)").rows == [
        {"d": date(2024, 1, 1)}
    ]


def test_own_columns_of_a_reserved_name(sqlite_judge: Judge) -> None:
    """A table's own column is read as any other, but not beside the source's of that name."""
    judge = sqlite_judge
    judge.client.sql("CREATE TABLE t (snapshot_id INTEGER, v VARCHAR)")
    judge.client.sql("INSERT INTO t VALUES (77, 'a')")
    assert read(judge.lake, "t", filter="snapshot_id = 77").rows == [{"snapshot_id": 77, "v": "a"}]
    with pytest.raises(ConfigurationError, match="'snapshot_id' of its own"):
        read(judge.lake, "t", metadata_columns="snapshot_id")
    assert len(read(judge.lake, "t", changes_from=1, columns="v").rows) == 1


def test_secrets_are_handed_over(lake: LakeUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """They go by a file of this user's alone, the environment first; no task is sent a password."""
    monkeypatch.delenv("DUCKLAKE_CATALOG_PASSWORD", raising=False)
    assert hand_over({"spark.app.name": "x"}) is None
    conf = {
        "spark.ducklake.catalog.password": "of-conf",
        "spark.ducklake.storage.aws_region": "eu-central-1",
    }
    monkeypatch.setenv("DUCKLAKE_CATALOG_PASSWORD", "s3cr3t")
    path = hand_over(conf)
    assert path is not None
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(Path(path).parent).st_mode & 0o777 == 0o700
    monkeypatch.delenv("DUCKLAKE_CATALOG_PASSWORD")
    secrets = receive(path)
    assert (secrets.password, dict(secrets.storage)) == ("s3cr3t", {"aws_region": "eu-central-1"})
    assert "s3cr3t" not in repr(secrets)
    source = source_class(path)(options_of(lake, "t"))
    reader = source.reader(source.schema())
    for sent in (reader, list(reader.partitions()), source.writer(source.schema(), False)):
        assert b"s3cr3t" not in pickle.dumps(sent)
    Path(path).unlink()
    with pytest.raises(ConfigurationError, match="register"):
        source.schema()


def test_secrets_open_the_catalog(lake: LakeUnderTest) -> None:
    """The password handed over is the location's, and no option can hold one."""
    given = DuckLakeDataSource(options_of(lake, "t"))._given()[0]
    assert open_lake(given, Secrets("s3cr3t")).location.password == "s3cr3t"
    store = checked({"attach": "ducklake:postgres:host=h", "catalog": "acme"}, READ_OPTIONS)
    assert open_lake(store, Secrets("s3cr3t")).location.catalog == "acme"
