"""Flushing inlined rows and deletes: values, order, ids, snapshots, partitions, positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from airflow_provider_ducklake.kernels.connection import KernelSettings, open_connection
from airflow_provider_ducklake.kernels.deletes import deleted_positions, read_delete_file
from airflow_provider_ducklake.kernels.flush import FlushedFiles, flush, flush_deletes
from airflow_provider_ducklake.kernels.tasks import FlushDeletesTask, FlushTask, ParquetOptions
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError, LakeError
from airflow_provider_ducklake.lake.inlined import InlinedRow, inlined_tables, read_inlined_rows
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.model import (
    DataFile,
    DeleteFile,
    PartitionField,
    PartitionSpec,
    SortKey,
    WrittenDeleteFile,
)
from airflow_provider_ducklake.storage import StorageOptions
from tests.support.lakes import LakeUnderTest
from tests.support.reference import normalise_row

SETTINGS = KernelSettings(StorageOptions({}))
ROW_ID, SNAPSHOT_ID = "_ducklake_internal_row_id", "_ducklake_internal_snapshot_id"


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB without anything of ours."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def _task(columns: str, rows: Sequence[InlinedRow], directory: Path, **more: Any) -> FlushTask:
    task = FlushTask(parse_columns(columns), tuple(rows), f"{directory}/", ParquetOptions())
    return replace(task, **more)


def _read(connection: duckdb.DuckDBPyConnection, path: str) -> list[tuple[Any, ...]]:
    found = connection.execute("SELECT * FROM read_parquet(?)", [path]).fetchall()
    return [normalise_row(row) for row in found]


def _delete_file(written: WrittenDeleteFile, **more: Any) -> DeleteFile:
    assert written.first_snapshot is not None
    file = DeleteFile(1, 1, written.path, "parquet", written.delete_count, written.first_snapshot)
    return replace(file, encryption_key=written.encryption_key, **more)


def _deletes(written: WrittenDeleteFile) -> list[tuple[int, int]]:
    with open_connection(SETTINGS) as connection:
        positions, snapshots = read_delete_file(connection, _delete_file(written), SETTINGS)
    assert snapshots is not None
    return list(zip(positions.to_pylist(), snapshots.to_pylist(), strict=True))


def test_all_versions_go_in_row_and_snapshot_order(
    tmp_path: Path, plain: duckdb.DuckDBPyConnection
) -> None:
    rows = [
        InlinedRow(7, 5, None, ("7", "new")),
        InlinedRow(9, 2, 4, ("9", None)),
        InlinedRow(7, 3, 5, ("7", "old")),
        InlinedRow(8, 2, None, ("8", "x")),
    ]
    result = flush(_task("id int32, name varchar", rows, tmp_path), SETTINGS)
    [file], [deletes] = result.files, result.delete_files
    assert _read(plain, file.path) == [
        (7, "old", 7, 3),
        (7, "new", 7, 5),
        (8, "x", 8, 2),
        (9, None, 9, 2),
    ]
    assert (file.record_count, file.first_row_id) == (4, 7)
    assert (file.first_snapshot, file.last_snapshot) == (2, 5)
    assert deletes.data_file_path == file.path
    assert _deletes(deletes) == [(0, 5), (3, 4)]
    assert (deletes.first_snapshot, deletes.last_snapshot, deletes.delete_count) == (4, 5, 2)
    ids = dict(
        plain.execute("SELECT name, field_id FROM parquet_schema(?)", [file.path]).fetchall()
    )
    assert ids == {
        "duckdb_schema": None,
        "id": 1,
        "name": 2,
        ROW_ID: 2147483540,
        SNAPSHOT_ID: 2147483539,
    }


def test_without_ended_rows_there_is_no_delete_file(tmp_path: Path) -> None:
    result = flush(_task("id int32", [InlinedRow(0, 1, None, ("1",))], tmp_path), SETTINGS)
    assert len(result.files) == 1
    assert result.delete_files == ()


def test_no_rows_no_files(tmp_path: Path) -> None:
    assert flush(_task("id int32", [], tmp_path), SETTINGS) == FlushedFiles()
    assert [*tmp_path.iterdir()] == []


def test_sort_keys_come_first_and_ids_break_ties(
    tmp_path: Path, plain: duckdb.DuckDBPyConnection
) -> None:
    rows = [
        InlinedRow(1, 1, None, ("2",)),
        InlinedRow(2, 1, 3, ("5",)),
        InlinedRow(0, 2, None, (None,)),
        InlinedRow(3, 1, None, ("5",)),
        InlinedRow(2, 3, None, ("5",)),
    ]
    keys = (SortKey("id", "DESC", "NULLS_LAST"),)
    result = flush(_task("id int32", rows, tmp_path, sort_keys=keys), SETTINGS)
    [file], [deletes] = result.files, result.delete_files
    assert _read(plain, file.path) == [(5, 2, 1), (5, 2, 3), (5, 3, 1), (2, 1, 1), (None, 0, 2)]
    assert _deletes(deletes) == [(0, 3)]


def test_each_partition_has_its_file_and_its_positions(
    tmp_path: Path, plain: duckdb.DuckDBPyConnection
) -> None:
    rows = [
        InlinedRow(0, 1, None, ("a/b", "2024-01-31")),
        InlinedRow(1, 1, 4, (None, "2024-02-01")),
        InlinedRow(2, 1, 3, ("a/b", "2025-01-01")),
        InlinedRow(3, 2, None, (None, "2024-06-01")),
        InlinedRow(4, 2, 5, (None, "2024-07-01")),
    ]
    spec = PartitionSpec(1, (PartitionField(0, 2, "year"), PartitionField(1, 1, "identity")))
    task = _task("region varchar, day date", rows, tmp_path, partition=spec)
    result = flush(task, SETTINGS)
    found = {
        file.partition_values: (
            [row[2] for row in _read(plain, file.path)],
            str(Path(file.path).parent.relative_to(tmp_path)),
        )
        for file in result.files
    }
    assert found == {
        ("2024", "a/b"): ([0], "year=2024/region=a%2Fb"),
        ("2024", None): ([1, 3, 4], "year=2024/region=__HIVE_DEFAULT_PARTITION__"),
        ("2025", "a/b"): ([2], "year=2025/region=a%2Fb"),
    }
    values = {file.path: file.partition_values for file in result.files}
    deletes = {values[d.data_file_path]: _deletes(d) for d in result.delete_files}
    assert deletes == {("2024", None): [(0, 4), (2, 5)], ("2025", "a/b"): [(0, 3)]}
    assert {Path(d.path).parent for d in result.delete_files} == {tmp_path}


def test_files_and_delete_files_of_an_encrypted_lake_need_their_keys(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    rows = [InlinedRow(0, 1, 2, ("1",))]
    options = ParquetOptions(encrypted=True)
    result = flush(_task("id int32", rows, tmp_path, options=options), SETTINGS)
    [file], [deletes] = result.files, result.delete_files
    assert file.encryption_key
    assert deletes.encryption_key
    assert Path(file.path).read_bytes()[-4:] == Path(deletes.path).read_bytes()[-4:] == b"PARE"
    assert _deletes(deletes) == [(0, 2)]
    with pytest.raises(LakeError, match=r"-delete\.parquet"):
        read_delete_file(connection, replace(_delete_file(deletes), encryption_key=None), SETTINGS)


# What the reference stores differs between databases; what was inserted has to come out of each.
VALUES = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "127"],
    "UBIGINT": ["18446744073709551615", "0"],
    "HUGEINT": ["9007199254740992", "-1"],
    "FLOAT": ["'nan'", "'-inf'", "0.1", "-0.0"],
    "DOUBLE": ["'nan'", "1e300", "0.1", "5e-324", "-0.0"],
    "DECIMAL(38,10)": ["-1234567890123456789012345678.0123456789"],
    "DATE": ["DATE '-44-03-15'", "'infinity'", "'2024-02-29'", "'12345-01-01'"],
    "TIME": ["'23:59:59.999999'"],
    "TIMESTAMP": ["'2024-01-01 00:00:00.000001'", "'-infinity'", "TIMESTAMP '-44-03-15 01:02:03'"],
    "TIMESTAMP_S": ["'2024-01-01 00:00:01'"],
    "TIMESTAMP_MS": ["'2024-01-01 00:00:00.123'"],
    "TIMESTAMP_NS": ["'2024-01-01 00:00:00.123456789'"],
    "TIMESTAMPTZ": ["'2024-01-01 00:00:00.5+05:30'", "'infinity'"],
    "INTERVAL": ["INTERVAL '1 year 2 months 3 days 04:05:06.789'", "INTERVAL 25 HOUR"],
    "UUID": ["'550e8400-e29b-41d4-a716-446655440000'"],
    "BLOB": [r"'\x00\xFF\x5C'::BLOB", "''::BLOB"],
    "JSON": ["""'{"a": [1, "x"]}'""", "'null'"],
    "VARCHAR": ["''", "'NULL'", "'a''b\\c\"d'", "'{x: 1}'", "'x' || chr(0) || 'y'", "'éñ漢🦆'"],
    "INTEGER[]": ["[1, NULL, 3]", "[]"],
    "VARCHAR[]": [r"['it''s', '', 'NULL', NULL, 'a, b', '[x]', 'C:\dir', ' ', '漢']"],
    "BLOB[]": [r"['\x00\xFF\x5C'::BLOB, 'a,b'::BLOB]"],
    "JSON[]": ["""['{"a": "x, y"}'::JSON, NULL]"""],
    "TIMESTAMPTZ[]": ["[TIMESTAMPTZ '2024-01-01 00:00:00+05:30']"],
    "MAP(VARCHAR, INTEGER[])": ["MAP {'k=1': [1, 2], 'NULL': NULL, '': []}", "MAP {}"],
    "STRUCT(x INTEGER, y VARCHAR[])": ["{'x': 1, 'y': ['p', 'it''s']}", "{'x': NULL, 'y': NULL}"],
    "STRUCT(a VARCHAR, b VARCHAR)": [
        r"{'a': 'it''s', 'b': 'C:\dir, \x41'}",
        "{'a': 'NULL', 'b': NULL}",
        "{'a': '', 'b': 'x, ''y''} CAST('}",
        "{'a': 'plain', 'b': ' ' || chr(10) || '🦆'}",
    ],
    "STRUCT(ts TIMESTAMPTZ, day DATE, d DOUBLE, u UUID, raw BLOB, t TIME)": [
        "{'ts': TIMESTAMPTZ '2024-01-01 00:00:00.5+05:30', 'day': DATE '2024-02-29', "
        "'d': 'nan'::DOUBLE, 'u': '550e8400-e29b-41d4-a716-446655440000', "
        r"'raw': '\xAA\x27'::BLOB, 't': TIME '01:02:03'}"
    ],
    'STRUCT("it is" VARCHAR, "q""q" STRUCT(i INTERVAL, m MAP(VARCHAR, VARCHAR)))': [
        "{'it is': 'é', 'q\"q': {'i': INTERVAL 1 MONTH, 'm': MAP {'a''b': 'c'}}}"
    ],
    "STRUCT(j JSON, v VARCHAR)": ["""{'j': '{"a": "x, y"}'::JSON, 'v': 'z'}"""],
    "STRUCT(x STRUCT(y VARCHAR[]))[]": ["[{'x': {'y': ['a''b', 'c: d']}}, NULL, {'x': NULL}]"],
}


def test_values_come_out_as_they_were_inserted(
    lake_under_test: LakeUnderTest, tmp_path: Path, plain: duckdb.DuckDBPyConnection
) -> None:
    client = lake_under_test.client(DATA_INLINING_ROW_LIMIT="1000")
    kinds = {f"c{index}": kind for index, kind in enumerate(VALUES)}
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    client.sql(f"CREATE TABLE t (id INTEGER, {columns})")
    rows = max(map(len, VALUES.values())) + 1  # the last is all NULL
    with client.transaction():
        for row in range(rows):
            expressions = [f"CAST({_value(k, row)} AS {k})" for k in kinds.values()]
            client.sql(f"INSERT INTO t SELECT {row}, {', '.join(expressions)}")
    client.release()
    [file] = flush(_inlined(lake_under_test, tmp_path), SETTINGS).files
    assert file.record_count == rows
    wrong = [
        f"{kind}: {difference}"
        for row in range(rows)
        for name, kind in kinds.items()
        if (difference := _difference(plain, file.path, row, name, kind)) is not None
    ]
    assert wrong == []


def _value(kind: str, row: int) -> str:
    return VALUES[kind][row] if row < len(VALUES[kind]) else "NULL"


def _difference(
    plain: duckdb.DuckDBPyConnection, path: str, row: int, name: str, kind: str
) -> str | None:
    wanted = f"CAST({_value(kind, row)} AS {kind})"
    same, found, inserted = plain.execute(
        f"SELECT v IS NOT DISTINCT FROM {wanted}, CAST(v AS VARCHAR), "
        f"CAST({wanted} AS VARCHAR) FROM (SELECT CAST({name} AS {kind}) AS v, id "
        "FROM read_parquet(?)) WHERE id = ?",
        [path, row],
    ).fetchone() or (False, "nothing", wanted)
    # -0.0 equals 0.0, but is another value: their texts differ.
    return None if same and found == inserted else f"{found} instead of {inserted}"


def _inlined(lake: LakeUnderTest, directory: Path) -> FlushTask:
    """Return the work order for everything inlined in the lake's only table."""
    with Lake.open(lake.location).view() as view:
        [table] = view.tables()
        [inlined] = inlined_tables(view.session, table.table_id)
        rows = read_inlined_rows(view.session, inlined, table.columns, view.head.snapshot_id)
    return FlushTask(table.columns, tuple(rows), f"{directory}/", ParquetOptions())


@pytest.mark.parametrize(
    ("columns", "value"),
    [
        ("v int32", "twelve"),
        ("v timestamp", "2024-13-01 00:00:00"),
        ("v int32[]", "[1, x]"),
        ("v struct(a int32)", "{'a': x}"),
        ("v struct(a int32)", "{'b': 1}"),
        ("v struct(at timestamptz)", "{'at': CAST('never' AS VARCHAR)}"),
        ("v json", "{"),
        ("v blob", r"\xZZ"),
        ("v varchar", b"\xff"),
        ("v uuid", "x"),
    ],
)
def test_what_cannot_be_decoded_is_named_and_nothing_is_left(
    tmp_path: Path, columns: str, value: str | bytes
) -> None:
    rows = [InlinedRow(1, 1, 2, (None,)), InlinedRow(41, 1, None, (value,))]
    with pytest.raises(BadInput, match=r"row 41: .* column v ") as failure:
        flush(_task(columns, rows, tmp_path), SETTINGS)
    assert "\n" not in str(failure.value)
    assert [*tmp_path.rglob("*")] == []


def test_inlined_variants_are_left_to_duckdb(tmp_path: Path) -> None:
    rows = [InlinedRow(3, 1, None, ("42",))]
    with pytest.raises(BadInput, match="VARIANT"):
        flush(_task("v variant", rows, tmp_path), SETTINGS)


def test_a_failure_half_way_removes_what_was_written(tmp_path: Path) -> None:
    # The second partition holds an integer that Parquet has no exact type for.
    rows = [InlinedRow(0, 1, 2, ("1", "5")), InlinedRow(1, 1, None, ("2", str(2**53 + 1)))]
    spec = PartitionSpec(1, (PartitionField(0, 1, "identity"),))
    with pytest.raises(BadInput, match="int128"):
        flush(_task("k int32, v int128", rows, tmp_path, partition=spec), SETTINGS)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_sort_key_that_is_gone_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    task = _task("id int32", [InlinedRow(0, 1, None, ("1",))], tmp_path)
    with pytest.raises(ConfigurationError, match="gone"):
        flush(replace(task, sort_keys=(SortKey("gone"),)), SETTINGS)
    assert [*tmp_path.rglob("*")] == []


def _data_file(path: str = "/lake/t/x.parquet", **more: Any) -> DataFile:
    return replace(DataFile(1, 1, path, 100, 0, 0, 1), **more)


def _flush_deletes(
    directory: Path, deletes: Sequence[tuple[int, int]], *older: DeleteFile
) -> WrittenDeleteFile:
    task = FlushDeletesTask(_data_file(delete_files=older), tuple(deletes), f"{directory}/")
    return flush_deletes(task, SETTINGS)


def test_inlined_deletes_become_a_delete_file(tmp_path: Path) -> None:
    written = _flush_deletes(tmp_path, [(7, 5), (3, 4), (99, 6)])
    assert _deletes(written) == [(3, 4), (7, 5), (99, 6)]
    assert (written.first_snapshot, written.last_snapshot, written.delete_count) == (4, 6, 3)
    assert written.data_file_path == "/lake/t/x.parquet"


def test_older_delete_files_are_merged_with_their_snapshots(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, plain: duckdb.DuckDBPyConnection
) -> None:
    partial = _delete_file(_flush_deletes(tmp_path, [(1, 2), (2, 3)]), partial_max=3)
    whole = tmp_path / "whole.parquet"
    plain.execute(f"COPY (SELECT 'f' AS file_path, unnest([5, 7]::BIGINT[]) AS pos) TO '{whole}'")
    undated = DeleteFile(2, 1, str(whole), "parquet", 2, 4)
    written = _flush_deletes(tmp_path, [(7, 9), (8, 9)], partial, undated)
    # 7 was deleted by the undated file already, at its begin.
    assert _deletes(written) == [(1, 2), (2, 3), (5, 4), (7, 4), (8, 9)]
    merged = _data_file(delete_files=(_delete_file(written, partial_max=9),))
    assert deleted_positions(connection, merged, SETTINGS).to_pylist() == [1, 2, 5, 7, 8]
    assert deleted_positions(connection, merged, SETTINGS, at_snapshot=4).to_pylist() == [
        1,
        2,
        5,
        7,
    ]


@pytest.mark.parametrize("position", [-1, 100])
def test_a_position_the_file_does_not_have_is_refused(tmp_path: Path, position: int) -> None:
    with pytest.raises(LakeError, match=rf"position {position}\b.*x\.parquet has 100 rows"):
        _flush_deletes(tmp_path, [(3, 4), (position, 5)])
    assert [*tmp_path.iterdir()] == []
