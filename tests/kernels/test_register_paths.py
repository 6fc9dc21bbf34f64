"""Directories and partitions of foreign files: the path counts where it is true."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from airflow_provider_ducklake.kernels.register import inspect
from airflow_provider_ducklake.kernels.tasks import RegisterTask
from airflow_provider_ducklake.lake.columns import Column, parse_columns
from airflow_provider_ducklake.lake.model import NameMapEntry, PartitionField, PartitionSpec
from tests.kernels.registration import SETTINGS, Files, inspect_file, refused, statistics


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    files = Files(tmp_path)
    yield files
    files.connection.close()


ROW: Final = "SELECT 1::INT AS id, 5::INT AS k"
WITHOUT_K: Final = "SELECT 1::INT AS id"


def test_path_and_content_that_agree(files: Files) -> None:
    file = inspect_file(files.sql(ROW, "k=5/f.parquet"), "id int32, k int32", "k")
    assert file.partition_values == ("5",)
    assert file.name_map[-1] == NameMapEntry("k", 2, is_partition=True)
    k = statistics(file)[2]
    assert (k.min_value, k.max_value, k.value_count, k.null_count) == ("5", "5", 1, 0)


@pytest.mark.parametrize(
    "select",
    [ROW, "SELECT 1::INT AS id, unnest([9, 5]) AS k", "SELECT 1::INT AS id, NULL::INT AS k"],
)
@pytest.mark.parametrize("keys", ["k", ""])
def test_path_and_content_that_disagree_name_both(files: Files, select: str, keys: str) -> None:
    message = refused(files.sql(select, "k=9/f.parquet"), "id int32, k int32", keys)
    assert "k=9" in message
    assert "column k holds NULL" in message if "NULL" in select else "column k holds 5" in message


def test_text_in_the_file_may_mean_the_same(files: Files) -> None:
    path = files.sql("SELECT 1::INT AS id, '05' AS k", "k=5/f.parquet")
    assert inspect_file(path, "id int32, k int32", "k").partition_values == ("5",)
    path = files.sql("SELECT 1::INT AS id, 'five' AS k", "k=5/f.parquet")
    assert "column k holds five" in refused(path, "id int32, k int32", "k")


def test_a_column_may_come_from_the_path_alone(files: Files) -> None:
    path = files.sql(WITHOUT_K, "K=a%2Fb%20c/f.parquet")
    file = inspect_file(path, "id int32, k varchar", "k")
    assert file.partition_values == ("a/b c",)
    # The reader looks for the directory by the name in the map, letter by letter.
    assert file.name_map[-1] == NameMapEntry("K", 2, is_partition=True)


@pytest.mark.parametrize("text", ["__HIVE_DEFAULT_PARTITION__", "NULL", ""])
def test_null_directories(files: Files, text: str) -> None:
    path = files.sql(WITHOUT_K, f"k={text}/f.parquet")
    file = inspect_file(path, "id int32, k int32", "k")
    assert file.partition_values == (None,)
    k = statistics(file)[2]
    assert (k.min_value, k.value_count, k.null_count) == (None, 0, 1)
    assert "k of main.t is NOT NULL" in refused(path, "id int32, k int32 NOT NULL", "k")


@pytest.mark.parametrize(
    ("kind", "text"),
    [("int32", "abc"), ("int32", "5.7"), ("int8", "300"), ("date", "2024-13-01"), ("int32[]", "5")],
)
def test_directories_that_are_no_value_of_the_column(files: Files, kind: str, text: str) -> None:
    message = refused(files.sql(WITHOUT_K, f"k={text}/f.parquet"), f"id int32, k {kind}")
    assert "k=" in message


def test_path_columns_have_exact_statistics(files: Files) -> None:
    path = files.sql(WITHOUT_K, "b=true/f=nan/g=1.5/d=2024-01-31/f.parquet")
    file = inspect_file(path, "id int32, b boolean, f float64, g float64, d date")
    found = {i: (s.min_value, s.max_value, s.contains_nan) for i, s in statistics(file).items()}
    assert found == {
        1: ("1", "1", None),
        2: ("1", "1", None),
        3: (None, None, True),
        4: ("1.5", "1.5", False),
        5: ("2024-01-31", "2024-01-31", None),
    }


def test_more_directories_than_keys(files: Files) -> None:
    path = files.sql(WITHOUT_K, "team_id=2/k=5/f.parquet")
    assert inspect_file(path, "id int32, k int32", "k").partition_values == ("5",)
    message = refused(path, "id int32, k int32, team_id int32", "k")
    assert "team_id=… names column team_id" in message
    assert "partition keys (k)" in message


def test_without_directories_the_value_is_computed_if_constant(files: Files) -> None:
    path = files.sql(ROW, "5/f.parquet")
    assert inspect_file(path, "id int32, k int32", "k").partition_values == ("5",)
    path = files.sql("SELECT 1::INT AS id, unnest([5, 6])::INT AS k", "5/f.parquet")
    message = refused(path, "id int32, k int32", "k")
    assert "several values of partition key k" in message
    assert "k=…" in message
    half = files.sql("SELECT 1::INT AS id, unnest([5, NULL])::INT AS k", "5/f.parquet")
    assert "several values" in refused(half, "id int32, k int32", "k")


def test_directories_can_be_left_out_of_account(files: Files) -> None:
    path = files.sql(ROW, "k=9/f.parquet")
    file = inspect_file(path, "id int32, k int32", "k", hive_partitioning=False)
    assert file.partition_values == ("5",)
    assert file.name_map[-1] == NameMapEntry("k", 2)


def test_buckets_are_computed(files: Files) -> None:
    path = files.sql(ROW, "bucket=999/f.parquet")
    message = refused(path, "id int32, k int32", "bucket(4) k")
    assert "bucket=999" in message
    plain_path = files.sql(ROW, "x/f.parquet")
    [bucket] = inspect_file(plain_path, "id int32, k int32", "bucket(4) k").partition_values
    assert bucket in ("0", "1", "2", "3")
    right = files.sql(ROW, f"bucket={bucket}/f.parquet")
    assert inspect_file(right, "id int32, k int32", "bucket(4) k").partition_values == (bucket,)


@pytest.mark.parametrize("statistics", [True, False])
def test_date_parts_are_computed_and_compared(files: Files, statistics: bool) -> None:
    days = [dt.datetime(2024, 1, 3), dt.datetime(2024, 1, 29)]
    table = pa.table({"ts": pa.array(days, pa.timestamp("us"))})
    padded = files.arrow(table, "year=2024/month=01/f.parquet", write_statistics=statistics)
    assert inspect_file(padded, "ts timestamp", "year ts|month ts").partition_values == (
        "2024",
        "1",
    )
    wrong = files.arrow(table, "year=2024/month=2/f.parquet", write_statistics=statistics)
    message = refused(wrong, "ts timestamp", "year ts|month ts")
    assert "month=2" in message
    assert "month 1" in message
    assert "several values of partition key day" in refused(padded, "ts timestamp", "day ts")


def test_the_same_month_of_two_years_is_one_value_of_month(files: Files) -> None:
    path = files.sql("SELECT unnest([TIMESTAMP '2023-05-01', '2024-05-31']) AS ts")
    assert inspect_file(path, "ts timestamp", "month ts").partition_values == ("5",)


def test_a_missing_partition_column_has_its_default(files: Files) -> None:
    columns = (*parse_columns("id int32"), Column(2, "k", "int32", initial_default="7"))
    spec = PartitionSpec(1, (PartitionField(0, 2, "identity"),))
    task = RegisterTask(files.sql(WITHOUT_K), "main.t", columns, spec, allow_missing=True)
    assert inspect(task, SETTINGS).partition_values == ("7",)
