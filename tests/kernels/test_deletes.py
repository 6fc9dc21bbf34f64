"""Delete files: every shape that is read, what is refused, and the file that is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.deletes import (
    deleted_positions,
    merged_deletes,
    read_delete_file,
    write_delete_file,
)
from airflow_provider_ducklake.lake.errors import BadInput, LakeError, StorageError
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.model import DataFile, DeleteFile, WrittenDeleteFile
from airflow_provider_ducklake.storage import StorageOptions
from tests.support.reference import ReferenceClient

SETTINGS = KernelSettings(StorageOptions({}))
SNAPSHOT_ID = "_ducklake_internal_snapshot_id"


def _delete_file(path: Path | str, **more: Any) -> DeleteFile:
    return replace(DeleteFile(1, 1, str(path), "parquet", 0, begin_snapshot=10), **more)


def _data_file(*deletes: DeleteFile, **more: Any) -> DataFile:
    file = DataFile(1, 1, "/lake/t/x.parquet", 1000, 0, 0, 1, delete_files=deletes)
    return replace(file, **more)


def _copy(connection: duckdb.DuckDBPyConnection, select: str, path: Path) -> DeleteFile:
    connection.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet)")
    return _delete_file(path)


def _read(
    connection: duckdb.DuckDBPyConnection, file: DeleteFile
) -> tuple[list[int], list[int] | None]:
    positions, snapshots = read_delete_file(connection, file, SETTINGS)
    assert positions.type == pa.int64()
    return positions.to_pylist(), None if snapshots is None else snapshots.to_pylist()


def _write(
    connection: duckdb.DuckDBPyConnection, deletes: list[tuple[int, int]], directory: Path
) -> WrittenDeleteFile:
    path = "/lake/t/it's.parquet"
    return write_delete_file(connection, path, deletes, f"{directory}/", SETTINGS, False)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("'f' AS file_path, pos", ([3, 5, 9], None)),
        ("'f' AS filename, pos AS number", ([3, 5, 9], None)),
        (f"'f' AS file_path, pos, pos + 10 AS {SNAPSHOT_ID}", ([3, 5, 9], [13, 15, 19])),
        ("'f' AS file_path, pos, {'a': pos} AS row", ([3, 5, 9], None)),
        ("'f' AS file_path, pos, pos AS row", ([3, 5, 9], None)),
    ],
)
def test_three_shapes_are_read(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, columns: str, expected: object
) -> None:
    rows = "(SELECT unnest([3, 5, 9]::BIGINT[]) AS pos)"
    file = _copy(connection, f"SELECT {columns} FROM {rows}", tmp_path / "d.parquet")
    assert _read(connection, file) == expected


def test_doubled_and_unsorted_positions_are_healed(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    rows = "(VALUES (9, 4), (3, 8), (9, 2), (3, 9)) v(pos, since)"
    columns = f"'f' AS file_path, pos::BIGINT AS pos, since::BIGINT AS {SNAPSHOT_ID}"
    file = _copy(connection, f"SELECT {columns} FROM {rows}", tmp_path / "d.parquet")
    assert _read(connection, file) == ([3, 9], [8, 2])


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("1 AS a", "is no delete file"),
        ("'f' AS file_path, 1 AS pos", "pos INTEGER"),
        ("'f' AS file_path, 1::BIGINT AS pos, 2 AS a, 3 AS b", "is no delete file"),
        ("'f' AS file_path, NULL::BIGINT AS pos", "NULL position"),
        (f"'f' AS file_path, 1::BIGINT AS pos, NULL::BIGINT AS {SNAPSHOT_ID}", "NULL position or"),
        ("'f' AS file_path, (-3)::BIGINT AS pos", "position -3, below zero"),
    ],
)
def test_what_is_no_delete_file_is_named(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, columns: str, reason: str
) -> None:
    file = _copy(connection, f"SELECT {columns}", tmp_path / "odd.parquet")
    with pytest.raises(LakeError, match=rf"(?s)odd\.parquet.*{reason}|{reason}.*odd\.parquet"):
        read_delete_file(connection, file, SETTINGS)


def test_broken_missing_and_unknown_files_are_named(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(BadInput, match=r"broken\.parquet"):
        read_delete_file(connection, _delete_file(tmp_path / "broken.parquet"), SETTINGS)
    (tmp_path / "broken.puffin").write_bytes(b"nothing")
    with pytest.raises(LakeError, match=r"broken\.puffin: .*cut short"):
        read_delete_file(
            connection, _delete_file(tmp_path / "broken.puffin", format="puffin"), SETTINGS
        )
    for kind in ("parquet", "puffin"):
        with pytest.raises(StorageError, match=r"gone\.x"):
            read_delete_file(connection, _delete_file(tmp_path / "gone.x", format=kind), SETTINGS)
    with pytest.raises(LakeError, match=r"x\.orc has the format 'orc'"):
        read_delete_file(connection, _delete_file(tmp_path / "x.orc", format="orc"), SETTINGS)


@pytest.mark.parametrize("kind", ["parquet", "puffin"])
def test_the_references_delete_files_are_read(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, kind: str
) -> None:
    client = ReferenceClient(
        f"ducklake:sqlite:{tmp_path}/c.sqlite",
        data_path=f"{tmp_path}/data/",
        options={"DATA_INLINING_ROW_LIMIT": "0"},
    )
    client.sql("CREATE TABLE t AS SELECT * FROM range(100) r(a)")  # snapshot 1
    if kind == "puffin":
        client.sql("CALL lake.set_option('write_deletion_vectors', true)")
    client.sql("DELETE FROM t WHERE a % 10 = 0")  # snapshot 2
    client.sql("DELETE FROM t WHERE a < 5")  # snapshot 3
    client.sql("DELETE FROM t WHERE a = 99")  # snapshot 4
    client.release()
    lake = Lake.open(CatalogLocation.parse(f"ducklake:sqlite:{tmp_path}/c.sqlite"))
    with lake.view() as view:
        [file] = view.live_files(view.table("main.t"))
    assert [delete.format for delete in file.delete_files] == [kind]
    tens = list(range(0, 100, 10))
    assert deleted_positions(connection, file, SETTINGS).to_pylist() == sorted(
        {*tens, 1, 2, 3, 4, 99}
    )
    if kind == "parquet":
        at_two = deleted_positions(connection, file, SETTINGS, at_snapshot=2)
        assert at_two.to_pylist() == tens
        at_three = deleted_positions(connection, file, SETTINGS, at_snapshot=3)
        assert at_three.to_pylist() == sorted({*tens, 1, 2, 3, 4})


def test_deletes_are_the_union_of_all_kinds(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    plain = _copy(connection, "SELECT 'f' AS f, unnest([7, 2]::BIGINT[]) AS pos", tmp_path / "a")
    partial = _delete_file(_write(connection, [(2, 5), (999, 6)], tmp_path).path)
    file = _data_file(plain, partial, inlined_deletes=(7, 500))
    assert deleted_positions(connection, file, SETTINGS).to_pylist() == [2, 7, 500, 999]
    assert deleted_positions(connection, file, SETTINGS, at_snapshot=5).to_pylist() == [2, 7, 500]
    assert merged_deletes(connection, file, [(500, 9), (2, 3)], SETTINGS) == [
        (2, 3),
        (7, 10),
        (500, 9),
        (999, 6),
    ]


def test_no_deletes_are_an_empty_column(connection: duckdb.DuckDBPyConnection) -> None:
    positions = deleted_positions(connection, _data_file(), SETTINGS)
    connection.register("none", pa.table({"position": positions}))
    assert connection.execute("SELECT count(*), any_value(position) FROM none").fetchall() == [
        (0, None)
    ]


def test_positions_the_data_file_does_not_have_are_refused(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    beyond = _delete_file(_write(connection, [(2, 5), (1000, 6)], tmp_path).path)
    with pytest.raises(LakeError, match=rf"{beyond.path} names the position 1000, .* 1000 rows"):
        deleted_positions(connection, _data_file(beyond), SETTINGS)
    with pytest.raises(LakeError, match=r"inlined delete names the position -1"):
        deleted_positions(connection, _data_file(inlined_deletes=(-1, 4)), SETTINGS)


def test_the_written_file_is_as_the_reference_writes_it(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    written = _write(connection, [(9, 3), (1, 7)], tmp_path / "new")
    path = Path(written.path)
    assert path.parent == tmp_path / "new"
    assert path.name.startswith("ducklake-")
    assert path.name.endswith("-delete.parquet")
    schema = connection.execute(
        "SELECT name, type, converted_type, repetition_type, field_id FROM parquet_schema(?)",
        [written.path],
    ).fetchall()
    assert schema[1:] == [
        ("file_path", "BYTE_ARRAY", "UTF8", "OPTIONAL", 2147483646),
        ("pos", "INT64", "INT_64", "OPTIONAL", 2147483645),
        (SNAPSHOT_ID, "INT64", "INT_64", "OPTIONAL", 2147483539),
    ]
    assert connection.execute("FROM read_parquet(?)", [written.path]).fetchall() == [
        ("/lake/t/it's.parquet", 1, 7),
        ("/lake/t/it's.parquet", 9, 3),
    ]
    assert written.data_file_path == "/lake/t/it's.parquet"
    assert (written.first_snapshot, written.last_snapshot, written.delete_count) == (3, 7, 2)
    data = path.read_bytes()
    assert written.file_size_bytes == len(data)
    assert written.footer_size == int.from_bytes(data[-8:-4], "little")


@settings(max_examples=25)
@given(
    st.lists(st.dictionaries(st.integers(0, 999), st.integers(1, 20), min_size=1), max_size=3),
    st.lists(st.tuples(st.integers(0, 999), st.integers(1, 20)), min_size=1),
    st.integers(1, 20),
)
def test_any_deletes_merge_as_sets_with_their_earliest_snapshot(
    connection: duckdb.DuckDBPyConnection,
    tmp_path_factory: pytest.TempPathFactory,
    files: list[dict[int, int]],
    inlined: list[tuple[int, int]],
    at_snapshot: int,
) -> None:
    directory = tmp_path_factory.mktemp("d")
    written = [_write(connection, [*deletes.items()], directory) for deletes in files]
    data_file = _data_file(*(_delete_file(w.path) for w in written))
    model: dict[int, int] = {}
    for position, snapshot in [*inlined, *(pair for d in files for pair in d.items())]:
        model[position] = min(snapshot, model.get(position, snapshot))
    merged = merged_deletes(connection, data_file, inlined, SETTINGS)
    assert merged == sorted(model.items())
    [new] = [_delete_file(_write(connection, merged, directory).path)]
    visible = deleted_positions(connection, _data_file(new), SETTINGS, at_snapshot=at_snapshot)
    assert visible.to_pylist() == sorted(p for p, s in model.items() if s <= at_snapshot)
