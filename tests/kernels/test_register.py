"""Registration of foreign files: types, names, and files that are not what they should be."""

from __future__ import annotations

import datetime as dt
import decimal
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from airflow_provider_ducklake.kernels.connection import KernelSettings, open_connection
from airflow_provider_ducklake.kernels.parquet import write_parquet
from airflow_provider_ducklake.kernels.register import inspect, inspect_all
from airflow_provider_ducklake.kernels.tasks import ParquetOptions, RegisterTask
from airflow_provider_ducklake.lake.columns import Column, parse_columns
from airflow_provider_ducklake.lake.errors import BadInput, StorageError
from airflow_provider_ducklake.lake.model import NameMapEntry, WrittenFile
from airflow_provider_ducklake.lake.statistics import ColumnStatistics
from airflow_provider_ducklake.storage import StorageOptions, open_store
from tests.kernels.handmade_parquet import INT96, REQUIRED, Node, write_handmade
from tests.kernels.registration import (
    SETTINGS,
    Files,
    inspect_file,
    partition_spec,
    refused,
    statistics,
)
from tests.support.s3 import S3Server


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    files = Files(tmp_path)
    yield files
    files.connection.close()


ACCEPTED: Final = [
    ("int32", "5::SMALLINT", "5"),
    ("int64", "4294967295::UINTEGER", "4294967295"),
    ("int128", "5::BIGINT", "5"),
    ("float64", "1.5::FLOAT", "1.5"),
    ("decimal(10,2)", "1.5::DECIMAL(10,1)", "1.50"),
    ("decimal(10,2)", "99999999.9::DECIMAL(10,1)", "99999999.90"),
    ("decimal(38,0)", "99999999999999999999999999999999999999::DECIMAL(38,0)", "9" * 38),
    ("decimal(20,0)", "18446744073709551615::UBIGINT", "18446744073709551615"),
    ("timestamp", "TIMESTAMP_MS '2024-01-01 00:00:00.123'", "2024-01-01 00:00:00.123"),
    ("timestamp_ms", "TIMESTAMP_MS '2024-01-01 00:00:00.123'", "2024-01-01 00:00:00.123"),
    (
        "timestamp_ns",
        "TIMESTAMP_NS '2024-01-01 00:00:00.123456789'",
        "2024-01-01 00:00:00.123456789",
    ),
    ("timestamptz", "TIMESTAMPTZ '2024-01-01 00:00:00+05:30'", "2023-12-31 18:30:00+00"),
    (
        "uuid",
        "'550e8400-e29b-41d4-a716-446655440000'::UUID",
        "550e8400-e29b-41d4-a716-446655440000",
    ),
    ("json", """'{"a": 1}'::JSON""", '{"a": 1}'),
    ("time", "TIME '01:02:03.000004'", "01:02:03.000004"),
    ("timetz", "TIMETZ '01:02:03+00'", "01:02:03+00"),
    ("interval", "INTERVAL 1 MONTH", "1 month"),
    ("boolean", "true", "true"),
    ("varchar", "'a'::ENUM('a')", "a"),
]
REFUSED: Final = [
    ("int32", "5::BIGINT", "BIGINT"),
    ("uint64", "5::BIGINT", "BIGINT"),
    ("float32", "1.5::DOUBLE", "DOUBLE"),
    ("int128", "5::HUGEINT", "DOUBLE"),
    ("decimal(10,2)", "1.5::DECIMAL(12,2)", "DECIMAL(12,2)"),
    ("decimal(9,0)", "5::INTEGER", "INTEGER"),
    ("decimal(10,2)", "100000000.0::DECIMAL(10,1)", "which holds 100000000.0"),
    ("uuid", "'550e8400-e29b-41d4-a716-446655440000'", "VARCHAR"),
    ("blob", "'a'", "VARCHAR"),
    ("varchar", "'a'::BLOB", "BLOB"),
    ("date", "TIMESTAMP '2024-01-01'", "TIMESTAMP"),
    ("varchar", "5::INTEGER", "INTEGER"),
    ("json", "'{}'", "VARCHAR"),
    ("int32", "[5]::INTEGER[]", "INTEGER[]"),
    ("int32[]", "5::INTEGER", "INTEGER"),
    ("struct(a int32)", "MAP {'a': 5}", "MAP(VARCHAR, INTEGER)"),
    ("int32[]", "[5]::BIGINT[]", "BIGINT"),
    ("timestamp", "TIMESTAMPTZ '2024-01-01 00:00:00+00'", "do not mix"),
    ("timestamptz", "TIMESTAMP '2024-01-01 00:00:00'", "do not mix"),
    ("timestamp", "TIMESTAMP_NS '2024-01-01 00:00:00'", "nanoseconds would be cut off"),
    ("timestamp_ms", "TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP"),
    ("variant", "5::VARIANT", "load the data with ingest"),
    ("geometry", "'POINT (1 2)'::GEOMETRY", "GeoParquet 1"),
]


@pytest.mark.parametrize(("kind", "value", "text"), ACCEPTED)
def test_lossless_types_are_accepted(files: Files, kind: str, value: str, text: str) -> None:
    path = files.sql(f"SELECT {value} AS v UNION ALL SELECT NULL")
    file = inspect_file(path, f"v {kind}")
    assert file.name_map == (NameMapEntry("v", 1),)
    [column] = parse_columns(f"v {kind}")
    read = f"CAST(CAST(v AS {column.sql_type}) AS VARCHAR)"
    found = files.connection.execute(f"SELECT {read} FROM read_parquet(?)", [path]).fetchall()
    assert found == [(text,), (None,)]


@pytest.mark.parametrize(("kind", "value", "found"), REFUSED)
def test_other_types_are_refused_with_column_and_both_types(
    files: Files, kind: str, value: str, found: str
) -> None:
    message = refused(files.sql(f"SELECT {value} AS v"), f"v {kind}")
    [column] = parse_columns(f"v {kind}")
    leaf = next(column.leaves()) if column.type == "list" and value.startswith("[") else column
    assert f"is {leaf.sql_type} in table main.t" in message
    assert found in message


@pytest.mark.parametrize(
    ("kind", "array", "reason"),
    [
        ("timestamptz", pa.array([1], pa.timestamp("ns", "UTC")), "cut off its nanoseconds"),
        ("time", pa.array([1], pa.time64("ns")), "cut off its nanoseconds"),
        ("uuid", pa.array([b"0" * 16], pa.binary(16)), "BLOB"),
        ("float64", pa.array([decimal.Decimal(5)], pa.decimal256(50, 2)), "50 digits"),
    ],
)
def test_what_duckdb_would_change_by_reading_is_refused(
    files: Files, kind: str, array: pa.Array, reason: str
) -> None:
    assert reason in refused(files.arrow(pa.table({"v": array})), f"v {kind}")


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_the_zone_of_the_machine_does_not_matter(
    files: Files, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    instant = dt.datetime(2024, 1, 1, 20, tzinfo=dt.timezone.utc)
    path = files.arrow(pa.table({"v": pa.array([instant], pa.timestamp("us", "UTC"))}))
    file = inspect_file(path, "v timestamptz", "day v")
    assert statistics(file)[1].min_value == "2024-01-01 20:00:00+00"
    assert file.partition_values == ("1",)


def test_int96_is_a_plain_timestamp_without_bounds(tmp_path: Path) -> None:
    noon = struct.pack("<qi", 12 * 3600 * 10**9, 2440588)
    path = tmp_path / "f.parquet"
    write_handmade(path, 1, [Node("v", REQUIRED, INT96, levels=[(0, 0)], values=[noon])])
    file = inspect_file(str(path), "v timestamp")
    assert statistics(file)[1] == ColumnStatistics(1, statistics(file)[1].size_bytes)
    assert "do not mix" in refused(str(path), "v timestamptz")


def test_int96_is_an_instant_where_spark_is_the_measure(files: Files) -> None:
    table = pa.table({"v": pa.array([1], pa.timestamp("us")), "s": ["x"]})
    path = files.arrow(table, use_deprecated_int96_timestamps=True)
    assert inspect_file(path, "v timestamptz, s varchar", as_spark_reads=True).record_count == 1
    assert "do not mix" in refused(path, "v timestamp, s varchar", as_spark_reads=True)


@pytest.mark.parametrize(
    ("metadata", "is_old"),
    [
        ({"version": "2.4.8"}, True),
        ({"version": "4.2.0", "legacyINT96": ""}, True),
        ({"version": "4.2.0", "legacyDateTime": "", "timeZone": "UTC"}, True),
        ({"version": "4.2.0"}, False),
        ({}, False),
    ],
)
def test_dates_of_the_julian_calendar_are_left_to_spark(
    files: Files, metadata: dict[str, str], is_old: bool
) -> None:
    table = pa.table({"d": [dt.date(2024, 1, 1)], "n": [1]})
    table = table.replace_schema_metadata(
        {f"org.apache.spark.{name}": value for name, value in metadata.items()}
    )
    path = files.arrow(table)
    if is_old:
        assert "Julian" in refused(path, "d date, n int64", as_spark_reads=True)
    else:
        assert inspect_file(path, "d date, n int64", as_spark_reads=True).record_count == 1
    assert inspect_file(path, "d date, n int64").record_count == 1
    numbers = files.arrow(table.select(["n"]), "numbers.parquet")
    assert inspect_file(numbers, "n int64", as_spark_reads=True).record_count == 1


def test_a_column_of_nothing_but_null_fits_every_type(files: Files) -> None:
    path = files.arrow(pa.table({"id": [1, 2], "v": pa.nulls(2)}))
    for kind in ("varchar", "uuid", "int32[]", "struct(a int32)"):
        file = inspect_file(path, f"id int64, v {kind}")
        assert file.name_map == (NameMapEntry("id", 1),)  # v reads as its default, NULL
    columns = (*parse_columns("id int64"), Column(2, "v", "varchar", initial_default="x"))
    with pytest.raises(BadInput, match="holds only NULL, and the default is another"):
        inspect(RegisterTask(path, "main.t", columns), SETTINGS)
    assert "NOT NULL" in refused(path, "id int64, v varchar NOT NULL")


def test_names_ignore_case_and_keep_the_files_spelling(files: Files) -> None:
    file = inspect_file(files.sql("SELECT 1::INT AS iD, 'x' AS NAME"), "id int32, Name varchar")
    assert file.name_map == (NameMapEntry("iD", 1), NameMapEntry("NAME", 2))


def test_names_that_differ_only_in_case_are_ambiguous(files: Files) -> None:
    path = files.arrow(pa.table({"a": [1], "A": [2]}))
    assert "names ignore case" in refused(path, "a int64")
    nested = pa.array([{"a": 1, "A": 2}], pa.struct({"a": pa.int64(), "A": pa.int64()}))
    path = files.arrow(pa.table({"s": nested}))
    refused(path, "s struct(a int64)")


def test_missing_columns_need_permission_and_get_no_statistics(files: Files) -> None:
    path = files.sql("SELECT 1::INT AS id")
    assert "lacks column b (INTEGER)" in refused(path, "id int32, b int32")
    file = inspect_file(path, "id int32, b int32", allow_missing=True)
    assert file.name_map == (NameMapEntry("id", 1),)
    assert list(statistics(file)) == [1]


def test_a_missing_not_null_column_needs_a_default(files: Files) -> None:
    path = files.sql("SELECT 1::INT AS id")
    columns = parse_columns("id int32, b int32 NOT NULL")
    with pytest.raises(BadInput, match=r"b of table main\.t, which is NOT NULL and has no default"):
        inspect(RegisterTask(path, "main.t", columns, allow_missing=True), SETTINGS)
    columns = (columns[0], replace(columns[1], initial_default="7"))
    file = inspect(RegisterTask(path, "main.t", columns, allow_missing=True), SETTINGS)
    assert file.name_map == (NameMapEntry("id", 1),)


def test_extra_columns_need_permission_also_inside_structs(files: Files) -> None:
    columns = "id int32, s struct(a int32)"
    path = files.sql("SELECT 1::INT AS id, {'a': 1::INT} AS s, 3 AS more")
    assert "column more (INTEGER) that table main.t lacks" in refused(path, columns)
    path = files.sql("SELECT 1::INT AS id, {'a': 1::INT, 'x': 2} AS s")
    assert "a column s.x (INTEGER)" in refused(path, columns)
    file = inspect_file(path, columns, ignore_extra_columns=True)
    assert file.name_map == (
        NameMapEntry("id", 1),
        NameMapEntry("s", 2, children=(NameMapEntry("a", 3),)),
    )


def test_missing_struct_fields_need_permission(files: Files) -> None:
    path = files.sql("SELECT {'a': 1::INT} AS s")
    assert "lacks column s.b" in refused(path, "s struct(a int32, b int32)")
    file = inspect_file(path, "s struct(a int32, b int32)", allow_missing=True)
    assert file.name_map == (NameMapEntry("s", 1, children=(NameMapEntry("a", 2),)),)


def test_files_that_share_nothing_with_the_table_are_refused(files: Files) -> None:
    path = files.sql("SELECT 1 AS x")
    both: dict[str, Any] = {"allow_missing": True, "ignore_extra_columns": True}
    # Without a name map a reader would take the columns by position.
    assert "no column in common" in refused(path, "id int32", **both)
    path = files.sql("SELECT {'x': 1} AS s")
    assert "no field in common" in refused(path, "s struct(a int32)", **both)


def test_nulls_in_a_not_null_column_are_refused(files: Files) -> None:
    path = files.sql("SELECT unnest([1, NULL, 3])::INT AS id")
    assert "holds 1 NULL in column id" in refused(path, "id int32 NOT NULL")
    without = files.arrow(pa.table({"id": [1, None]}), write_statistics=False)
    assert "holds 1 NULL in column id" in refused(without, "id int64 NOT NULL")
    nested = files.sql("SELECT unnest([[1], NULL])::INT[] AS l")
    assert "holds 1 NULL in column l" in refused(nested, "l int32[] NOT NULL")
    assert (
        inspect_file(files.sql("SELECT [NULL]::INT[] AS l"), "l int32[] NOT NULL").record_count == 1
    )


def test_a_file_without_rows_is_reported_as_such(files: Files) -> None:
    file = inspect_file(files.sql("SELECT 1::INT AS id WHERE false"), "id int32", "id")
    assert (file.record_count, file.statistics, file.partition_values) == (0, (), ())
    assert "BIGINT" in refused(files.sql("SELECT 1::BIGINT AS id WHERE false"), "id int32")


@pytest.mark.parametrize(
    "content",
    [b"", b"PAR1", b"not parquet at all, not even close", b"PAR1" + b"\xff" * 40 + b"PAR1"],
)
def test_files_that_are_not_parquet(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(content)
    assert "not a" in refused(str(path), "id int32")


def test_missing_files_are_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="gone"):
        inspect_file(str(tmp_path / "gone.parquet"), "id int32")


def test_encrypted_files(files: Files) -> None:
    columns = parse_columns("id int32")
    path = str(files.directory / "f.parquet")
    with open_connection(SETTINGS) as connection:
        options = ParquetOptions(encrypted=True)
        write_parquet(connection, "SELECT 1::INT AS id", (), path, columns, options, SETTINGS)
    assert "is encrypted" in refused(path, "id int32")


def test_a_footer_glued_to_the_wrong_data(files: Files) -> None:
    path = Path(files.sql("SELECT i::INT AS id FROM range(1000) r(i)"))
    whole = path.read_bytes()
    footer = whole[-8 - int.from_bytes(whole[-8:-4], "little") :]
    path.write_bytes(whole[:100] + footer)
    assert "outside of the file" in refused(str(path), "id int32")
    path.write_bytes(b"PAR1" + bytes(len(whole) - len(footer) - 4) + footer)
    refused(str(path), "id int32")


def test_files_of_a_lakes_own_maintenance_are_refused(files: Files) -> None:
    path = str(files.directory / "f.parquet")
    files.connection.execute(
        "COPY (SELECT 1::INT AS id, 7::BIGINT AS _ducklake_internal_row_id) TO "
        f"'{path}' (FIELD_IDS {{id: 1, _ducklake_internal_row_id: 2147483540}})"
    )
    message = refused(path, "id int32", ignore_extra_columns=True)
    assert "_ducklake_internal_row_id" in message


def test_files_with_field_ids_are_mapped_by_name_all_the_same(files: Files) -> None:
    path = str(files.directory / "f.parquet")
    files.connection.execute(
        f"COPY (SELECT 1::INT AS id, 2::INT AS k) TO '{path}' (FIELD_IDS {{id: 2, k: 1}})"
    )
    assert inspect_file(path, "id int32, k int32").name_map == (
        NameMapEntry("id", 1),
        NameMapEntry("k", 2),
    )


def test_names_that_are_patterns_name_one_file(files: Files) -> None:
    files.sql("SELECT 'other' AS id", "ab.parquet")
    path = files.arrow(pa.table({"id": [1], "k": [5]}), "a[b]*?.parquet")
    file = inspect_file(path, "id int64, k int64", "k")
    assert (file.record_count, file.partition_values) == (1, ("5",))


def test_a_directory_with_a_percent_sign_in_its_name(files: Files) -> None:
    path = files.sql("SELECT 1::INT AS id", "dir%20x/f.parquet")
    assert inspect_file(path, "id int32").path == path


def test_many_files_are_all_looked_at(files: Files) -> None:
    columns = parse_columns("id int32")
    paths = [files.sql(f"SELECT {i}::INT AS id", f"{i}.parquet") for i in range(4)]
    Path(paths[1]).write_bytes(b"nothing of the kind")
    tasks = [RegisterTask(path, "main.t", columns) for path in [*paths, "/gone/x.parquet"]]
    found = list(inspect_all(tasks, SETTINGS))
    assert [type(answer) for answer in found[1::3]] == [BadInput, type(found[4])]
    assert isinstance(found[4], StorageError)
    good = [answer for answer in found if isinstance(answer, WrittenFile)]
    assert [file.path for file in good] == [paths[0], paths[2], paths[3]]


def test_remote_files_are_read_by_their_end(files: Files, s3_server: S3Server) -> None:
    options = StorageOptions(
        {
            "aws_access_key_id": s3_server.access_key_id,
            "aws_secret_access_key": s3_server.secret_access_key,
            "aws_region": s3_server.region,
            "aws_endpoint_url": s3_server.endpoint,
            "allow_http": "true",
        }
    )
    local = files.sql("SELECT i::INT AS id, i % 2 AS k FROM range(100_000) r(i)")
    remote = f"{s3_server.url}/raw/x=1/f.parquet"
    open_store(remote, options).upload(local, remote)
    task = RegisterTask(remote, "main.t", parse_columns("id int32, k int64 NOT NULL"))
    file = inspect(task, KernelSettings(options))
    same = inspect(replace(task, path=local), SETTINGS)
    assert replace(file, path=local) == same
    # Statistics do not tell whether k is constant: now the rows are fetched.
    spec = partition_spec(task.columns, "k")
    with pytest.raises(BadInput, match=f"{remote} holds several values"):
        inspect(replace(task, partition=spec), KernelSettings(options))
