"""Rewriting keeps rows, order, row ids and snapshots, applies deletes, and fails without trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from airflow_provider_ducklake.kernels.file_schema import scan_sql
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import BadInput, LakeError
from airflow_provider_ducklake.lake.model import NameMapEntry, SortKey
from tests.kernels.data_files import COLUMNS, IDS, Directory, numbers, rows_of


def test_files_come_one_behind_the_other(
    lake: Directory, connection: duckdb.DuckDBPyConnection
) -> None:
    # More than a row group each: that is where DuckDB's UNION ALL would mix them up.
    sources = [lake.file(numbers(n * 200_000, 200_000)) for n in range(3)]
    written = lake.rewrite(*sources, write_row_ids=False, write_snapshot_ids=True)
    assert written.record_count == 600_000
    scan = scan_sql(written.path)
    wrong = connection.execute(
        f"SELECT count(*) FROM {scan} WHERE a <> file_row_number "
        f"OR {IDS[1]} <> 1 + file_row_number // 200000"
    ).fetchone()
    assert wrong == (0,)
    assert (written.first_row_id, written.first_snapshot, written.last_snapshot) == (None, 1, 3)


@pytest.mark.parametrize("difference", ["another name", "one column less", "row ids inside"])
def test_files_that_differ_come_in_order_too(
    lake: Directory, connection: duckdb.DuckDBPyConnection, difference: str
) -> None:
    if difference == "another name":
        columns: Sequence[Column] = (Column(1, "old_name", "int32"), Column(2, "b", "varchar"))
        one = lake.file("SELECT i::INTEGER AS old_name, 'x' AS b FROM range(200000) t(i)", columns)
    elif difference == "one column less":
        one = lake.file("SELECT i AS a FROM range(200000) t(i)", COLUMNS[:1])
    else:
        query = f"SELECT *, a AS {IDS[0]} FROM ({numbers(0, 200_000)})"
        one = lake.file(query, row_ids=True)
    written = lake.rewrite(one, lake.file(numbers(200_000, 200_000)), write_row_ids=False)
    wrong = connection.execute(
        f"SELECT count(*) FROM {scan_sql(written.path)} WHERE a <> file_row_number"
    ).fetchone()
    assert (written.record_count, wrong) == (400_000, (0,))
    assert (written.first_row_id is not None) == (difference == "row ids inside")


def test_row_ids_are_kept(lake: Directory, connection: duckdb.DuckDBPyConnection) -> None:
    one = lake.file(numbers(0, 3), row_id_start=50)
    two = lake.file(numbers(3, 2), row_id_start=10)
    written = lake.rewrite(one, replace(two, inlined_deletes=(0,)))
    assert rows_of(connection, written) == [
        (0, "v0", 50),
        (1, "v1", 51),
        (2, "v2", 52),
        (4, "v4", 11),
    ]
    assert written.first_row_id == 11


def test_ids_inside_sources_are_kept(
    lake: Directory, connection: duckdb.DuckDBPyConnection
) -> None:
    query = f"SELECT *, 70 + a AS {IDS[0]}, 3 AS {IDS[1]} FROM ({numbers(0, 2)})"
    one = lake.file(query, row_ids=True, snapshot_ids=True, row_id_start=None)
    two = lake.file(numbers(2, 1), row_id_start=5, begin_snapshot=8)
    written = lake.rewrite(one, two, write_snapshot_ids=True)
    assert rows_of(connection, written) == [(0, "v0", 70, 3), (1, "v1", 71, 3), (2, "v2", 5, 8)]
    assert (written.first_row_id, written.first_snapshot, written.last_snapshot) == (5, 3, 8)


@pytest.mark.parametrize("reason", ["gap", "delete", "ids inside", "sorted", "unknown start"])
def test_row_ids_are_written_unasked_where_positions_would_lie(
    lake: Directory, connection: duckdb.DuckDBPyConnection, reason: str
) -> None:
    one, two = lake.file(numbers(0, 2)), lake.file(numbers(2, 2))
    more: dict[str, Any] = {}
    if reason == "gap":
        two = replace(two, row_id_start=7)
    elif reason == "delete":
        two = replace(two, inlined_deletes=(1,))
    elif reason == "sorted":
        more["sort_keys"] = (SortKey("a", "DESC"),)
    else:
        start = None if reason == "unknown start" else 2
        query = f"SELECT *, 90 + a AS {IDS[0]} FROM ({numbers(2, 2)})"
        two = lake.file(query, row_ids=True, row_id_start=start)
    written = lake.rewrite(one, two, write_row_ids=False, **more)
    assert written.first_row_id == 0
    ids = {row[0]: row[2] for row in rows_of(connection, written)}
    offset = {"gap": 5, "ids inside": 90, "unknown start": 90}.get(reason, 0)
    assert ids == {a: a + (offset if a >= 2 else 0) for a in ids}


def test_row_ids_that_nothing_tells(lake: Directory) -> None:
    with pytest.raises(BadInput, match="row ids"):
        lake.run(lake.file(numbers(0, 2), row_id_start=None))
    assert lake.outputs() == []


def test_deletes_of_every_kind_count_once(
    lake: Directory, connection: duckdb.DuckDBPyConnection
) -> None:
    one, two = lake.file(numbers(0, 5)), lake.file(numbers(5, 5))
    one = replace(one, delete_files=(lake.delete_file(one, [1, 3]),), inlined_deletes=(3, 4))
    two = replace(two, inlined_deletes=(0,))
    written = lake.rewrite(one, two)
    assert [row[0] for row in rows_of(connection, written)] == [0, 2, 6, 7, 8, 9]
    assert written.record_count == 6


def test_more_deletes_than_rows_left_keep_the_order(
    lake: Directory, connection: duckdb.DuckDBPyConnection
) -> None:
    source = lake.file(numbers(0, 300_000))
    deleted = [i for i in range(300_000) if i % 10]
    source = replace(source, delete_files=(lake.delete_file(source, deleted),))
    written = lake.rewrite(source, lake.file(numbers(300_000, 5)))
    rows = [row[0] for row in rows_of(connection, written)]
    assert rows == [*range(0, 300_000, 10), *range(300_000, 300_005)]


def test_nothing_survives(lake: Directory) -> None:
    one = lake.file(numbers(0, 2))
    one = replace(one, delete_files=(lake.delete_file(one, [0]),), inlined_deletes=(1,))
    two = replace(lake.file(numbers(2, 1)), inlined_deletes=(0,))
    assert lake.run(one, two) == ()
    assert lake.outputs() == []
    assert lake.run() == ()


def test_positions_behind_the_end_are_a_fault(lake: Directory) -> None:
    with pytest.raises(LakeError, match="position 7"):
        lake.run(replace(lake.file(numbers(0, 2)), inlined_deletes=(1, 7)))
    assert lake.outputs() == []


@pytest.mark.parametrize("claimed", [1, 3, 0])
def test_rows_that_do_not_add_up(lake: Directory, claimed: int) -> None:
    source = replace(lake.file(numbers(0, 2)), record_count=claimed)
    with pytest.raises(LakeError, match=rf"{claimed} rows survive, the files hold 2"):
        lake.run(source)
    assert lake.outputs() == []


def test_broken_source_leaves_nothing(lake: Directory) -> None:
    good, bad = lake.file(numbers(0, 200_000)), lake.file(numbers(0, 200_000))
    content = bytearray(Path(bad.path).read_bytes())
    content[4:2000] = bytes(1996)
    Path(bad.path).write_bytes(content)
    with pytest.raises(BadInput):
        lake.run(good, bad)
    assert lake.outputs() == []


FILES = st.lists(
    st.tuples(
        st.integers(0, 6), st.sets(st.integers(0, 7)), st.sampled_from(["plain", "ids", "map"])
    ),
    min_size=1,
    max_size=4,
)


@given(FILES, st.booleans(), st.booleans(), st.booleans())
@hypothesis_settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_merge(
    tmp_path_factory: pytest.TempPathFactory,
    connection: duckdb.DuckDBPyConnection,
    files: list[tuple[int, set[int], str]],
    row_ids: bool,
    snapshot_ids: bool,
    is_sorted: bool,
) -> None:
    lake = Directory(tmp_path_factory.mktemp("merge"))
    sources, model = [], []
    for count, deleted, kind in files:
        first = lake.row_id
        query = numbers(first, count)
        if kind == "ids":
            inside = f"SELECT *, 1000 + a AS {IDS[0]}, 50 AS {IDS[1]} FROM ({query})"
            source = lake.file(inside, row_ids=True, snapshot_ids=True)
        else:
            source = lake.file(query)
        if kind == "map":
            source = replace(source, name_map=(NameMapEntry("a", 1), NameMapEntry("b", 2)))
        deleted = {position for position in deleted if position < count}
        sources.append(replace(source, inlined_deletes=tuple(deleted)))
        ids = (1000, 50) if kind == "ids" else (0, source.begin_snapshot)
        model += [
            (first + i, f"v{first + i}", first + i + ids[0], ids[1])
            for i in range(count)
            if i not in deleted
        ]
    keys = (SortKey("a % 3", "DESC"),) if is_sorted else ()
    if is_sorted:
        model.sort(key=lambda row: (-(row[0] % 3), row[2]))
    written = lake.run(
        *sources, write_row_ids=row_ids, write_snapshot_ids=snapshot_ids, sort_keys=keys
    )
    if not model:
        assert written == ()
        assert lake.outputs() == []
        return
    [file] = written
    has_row_ids = file.first_row_id is not None
    assert has_row_ids or not row_ids
    start = sources[0].row_id_start or 0
    rows = [
        (a, b, *(rest if has_row_ids else (start + i, *rest)))
        for i, (a, b, *rest) in enumerate(rows_of(connection, file))
    ]
    assert rows == [row if snapshot_ids else row[:3] for row in model]
    assert file.record_count == len(model)
    if has_row_ids:
        assert file.first_row_id == min(row[2] for row in model)
    if snapshot_ids:
        snapshots = [row[3] for row in model]
        assert (file.first_snapshot, file.last_snapshot) == (min(snapshots), max(snapshots))
