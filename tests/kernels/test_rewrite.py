"""Rewriting keeps rows, order, row ids and snapshots, applies deletes, and fails without trace."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from airflow_provider_ducklake.kernels.connection import KernelSettings, open_connection
from airflow_provider_ducklake.kernels.file_schema import scan_sql
from airflow_provider_ducklake.kernels.parquet import new_file_name, write_parquet
from airflow_provider_ducklake.kernels.rewrite import rewrite
from airflow_provider_ducklake.kernels.tasks import ParquetOptions, RewriteTask
from airflow_provider_ducklake.lake.columns import Column, parse_columns
from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError, LakeError
from airflow_provider_ducklake.lake.model import (
    DataFile,
    DeleteFile,
    NameMapEntry,
    SortKey,
    WrittenFile,
)
from airflow_provider_ducklake.storage import StorageOptions

COLUMNS = parse_columns("a int64, b varchar")
DEFAULTS = ParquetOptions()
IDS = ("_ducklake_internal_row_id", "_ducklake_internal_snapshot_id")


class Lake:
    """A directory of data files, as a planner would describe them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.out = f"{root}/out/"
        (root / "scratch").mkdir()
        self.settings = KernelSettings(StorageOptions({}), "500MB", str(root / "scratch"))
        self.row_id = self.snapshot = 0

    def file(
        self,
        query: str,
        columns: Sequence[Column] = COLUMNS,
        options: ParquetOptions = DEFAULTS,
        **more: Any,
    ) -> DataFile:
        """Write a file; row ids and snapshots follow on those of the file before."""
        path = f"{self.root}/in/{new_file_name()}"
        internal = {f"write_{n}": True for n in ("row_ids", "snapshot_ids") if more.pop(n, False)}
        with open_connection(self.settings) as connection:
            written = write_parquet(
                connection, query, (), path, columns, options, self.settings, **internal
            )
        self.snapshot += 1
        start, self.row_id = self.row_id, self.row_id + written.record_count
        given: dict[str, Any] = {"begin_snapshot": self.snapshot, "row_id_start": start, **more}
        return DataFile(
            self.snapshot,
            1,
            path,
            written.record_count,
            written.file_size_bytes,
            written.footer_size,
            encryption_key=written.encryption_key,
            **given,
        )

    def delete_file(self, data_file: DataFile, positions: Sequence[int]) -> DeleteFile:
        path = f"{self.root}/in/{new_file_name()}"
        table = pa.table({"file_path": [data_file.path] * len(positions), "pos": positions})
        pq.write_table(table, path)
        return DeleteFile(
            1, data_file.data_file_id, path, "parquet", len(positions), begin_snapshot=9
        )

    def rewrite(self, *sources: DataFile, **more: Any) -> WrittenFile:
        [written] = self.run(*sources, **more)
        return written

    def run(self, *sources: DataFile, **more: Any) -> tuple[WrittenFile, ...]:
        columns = more.pop("columns", COLUMNS)
        options = more.pop("options", ParquetOptions())
        task = RewriteTask(columns, sources, self.out, options, **more)
        written = rewrite(task, self.settings)
        assert os.listdir(self.root / "scratch") == []
        return written

    def outputs(self) -> list[str]:
        return os.listdir(self.out) if os.path.isdir(self.out) else []


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_connection(KernelSettings(StorageOptions({}))) as connection:
        yield connection


def _rows(connection: duckdb.DuckDBPyConnection, written: WrittenFile) -> list[Any]:
    scan = scan_sql(written.path, written.encryption_key)
    return connection.execute(f"FROM {scan}").fetchall()


def _numbers(start: int, count: int) -> str:
    return f"SELECT i AS a, 'v' || i AS b FROM range({start}, {start + count}) t(i)"


# --- rows, order, ids ----------------------------------------------------------------------


def test_files_come_one_behind_the_other(lake: Lake, connection: duckdb.DuckDBPyConnection) -> None:
    # More than a row group each: that is where DuckDB's UNION ALL would mix them up.
    sources = [lake.file(_numbers(n * 200_000, 200_000)) for n in range(3)]
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
    lake: Lake, connection: duckdb.DuckDBPyConnection, difference: str
) -> None:
    if difference == "another name":
        columns: Sequence[Column] = (Column(1, "old_name", "int32"), Column(2, "b", "varchar"))
        one = lake.file("SELECT i::INTEGER AS old_name, 'x' AS b FROM range(200000) t(i)", columns)
    elif difference == "one column less":
        one = lake.file("SELECT i AS a FROM range(200000) t(i)", COLUMNS[:1])
    else:
        query = f"SELECT *, a AS {IDS[0]} FROM ({_numbers(0, 200_000)})"
        one = lake.file(query, row_ids=True)
    written = lake.rewrite(one, lake.file(_numbers(200_000, 200_000)), write_row_ids=False)
    wrong = connection.execute(
        f"SELECT count(*) FROM {scan_sql(written.path)} WHERE a <> file_row_number"
    ).fetchone()
    assert (written.record_count, wrong) == (400_000, (0,))
    assert (written.first_row_id is not None) == (difference == "row ids inside")


def test_row_ids_are_kept(lake: Lake, connection: duckdb.DuckDBPyConnection) -> None:
    one = lake.file(_numbers(0, 3), row_id_start=50)
    two = lake.file(_numbers(3, 2), row_id_start=10)
    written = lake.rewrite(one, replace(two, inlined_deletes=(0,)))
    assert _rows(connection, written) == [
        (0, "v0", 50),
        (1, "v1", 51),
        (2, "v2", 52),
        (4, "v4", 11),
    ]
    assert written.first_row_id == 11


def test_ids_inside_sources_are_kept(lake: Lake, connection: duckdb.DuckDBPyConnection) -> None:
    query = f"SELECT *, 70 + a AS {IDS[0]}, 3 AS {IDS[1]} FROM ({_numbers(0, 2)})"
    one = lake.file(query, row_ids=True, snapshot_ids=True, row_id_start=None)
    two = lake.file(_numbers(2, 1), row_id_start=5, begin_snapshot=8)
    written = lake.rewrite(one, two, write_snapshot_ids=True)
    assert _rows(connection, written) == [(0, "v0", 70, 3), (1, "v1", 71, 3), (2, "v2", 5, 8)]
    assert (written.first_row_id, written.first_snapshot, written.last_snapshot) == (5, 3, 8)


@pytest.mark.parametrize("reason", ["gap", "delete", "ids inside", "sorted", "unknown start"])
def test_row_ids_are_written_unasked_where_positions_would_lie(
    lake: Lake, connection: duckdb.DuckDBPyConnection, reason: str
) -> None:
    one, two = lake.file(_numbers(0, 2)), lake.file(_numbers(2, 2))
    more: dict[str, Any] = {}
    if reason == "gap":
        two = replace(two, row_id_start=7)
    elif reason == "delete":
        two = replace(two, inlined_deletes=(1,))
    elif reason == "sorted":
        more["sort_keys"] = (SortKey("a", "DESC"),)
    else:
        start = None if reason == "unknown start" else 2
        query = f"SELECT *, 90 + a AS {IDS[0]} FROM ({_numbers(2, 2)})"
        two = lake.file(query, row_ids=True, row_id_start=start)
    written = lake.rewrite(one, two, write_row_ids=False, **more)
    assert written.first_row_id == 0
    ids = {row[0]: row[2] for row in _rows(connection, written)}
    offset = {"gap": 5, "ids inside": 90, "unknown start": 90}.get(reason, 0)
    assert ids == {a: a + (offset if a >= 2 else 0) for a in ids}


def test_row_ids_that_nothing_tells(lake: Lake) -> None:
    with pytest.raises(BadInput, match="row ids"):
        lake.run(lake.file(_numbers(0, 2), row_id_start=None))
    assert lake.outputs() == []


# --- deletes -------------------------------------------------------------------------------


def test_deletes_of_every_kind_count_once(
    lake: Lake, connection: duckdb.DuckDBPyConnection
) -> None:
    one, two = lake.file(_numbers(0, 5)), lake.file(_numbers(5, 5))
    one = replace(one, delete_files=(lake.delete_file(one, [1, 3]),), inlined_deletes=(3, 4))
    two = replace(two, inlined_deletes=(0,))
    written = lake.rewrite(one, two)
    assert [row[0] for row in _rows(connection, written)] == [0, 2, 6, 7, 8, 9]
    assert written.record_count == 6


def test_more_deletes_than_rows_left_keep_the_order(
    lake: Lake, connection: duckdb.DuckDBPyConnection
) -> None:
    source = lake.file(_numbers(0, 300_000))
    deleted = [i for i in range(300_000) if i % 10]
    source = replace(source, delete_files=(lake.delete_file(source, deleted),))
    written = lake.rewrite(source, lake.file(_numbers(300_000, 5)))
    rows = [row[0] for row in _rows(connection, written)]
    assert rows == [*range(0, 300_000, 10), *range(300_000, 300_005)]


def test_nothing_survives(lake: Lake) -> None:
    one = lake.file(_numbers(0, 2))
    one = replace(one, delete_files=(lake.delete_file(one, [0]),), inlined_deletes=(1,))
    two = replace(lake.file(_numbers(2, 1)), inlined_deletes=(0,))
    assert lake.run(one, two) == ()
    assert lake.outputs() == []
    assert lake.run() == ()


def test_positions_behind_the_end_are_a_fault(lake: Lake) -> None:
    with pytest.raises(LakeError, match="position 7"):
        lake.run(replace(lake.file(_numbers(0, 2)), inlined_deletes=(1, 7)))
    assert lake.outputs() == []


@pytest.mark.parametrize("claimed", [1, 3, 0])
def test_rows_that_do_not_add_up(lake: Lake, claimed: int) -> None:
    source = replace(lake.file(_numbers(0, 2)), record_count=claimed)
    with pytest.raises(LakeError, match=rf"{claimed} rows survive, the files hold 2"):
        lake.run(source)
    assert lake.outputs() == []


def test_broken_source_leaves_nothing(lake: Lake) -> None:
    good, bad = lake.file(_numbers(0, 200_000)), lake.file(_numbers(0, 200_000))
    content = bytearray(Path(bad.path).read_bytes())
    content[4:2000] = bytes(1996)
    Path(bad.path).write_bytes(content)
    with pytest.raises(BadInput):
        lake.run(good, bad)
    assert lake.outputs() == []


# --- columns -------------------------------------------------------------------------------


def test_columns_by_id_over_a_history(lake: Lake, connection: duckdb.DuckDBPyConnection) -> None:
    # MG-06: a; add b default 7; rename a to aa; drop b, add another b; aa becomes int64.
    a, aa = Column(1, "a", "int32"), Column(1, "aa", "int64")
    b, again = Column(2, "b", "int32", initial_default="7"), Column(3, "b", "int32")
    sources = [
        lake.file("SELECT 1::INTEGER AS a", (a,)),
        lake.file("SELECT 2::INTEGER AS a, 20::INTEGER AS b", (a, b)),
        lake.file("SELECT 3::INTEGER AS aa, 30::INTEGER AS b", (replace(a, name="aa"), b)),
        lake.file("SELECT 4::BIGINT AS aa, 40::INTEGER AS b", (aa, again)),
    ]
    with open_connection(lake.settings) as plain:
        path = f"{lake.root}/in/registered.parquet"
        plain.execute(f"COPY (SELECT 5 AS Legacy, 50 AS old_b) TO '{path}' (FORMAT parquet)")
    entries = (NameMapEntry("Legacy", 1), NameMapEntry("old_b", 2))
    sources.append(
        DataFile(9, 1, path, 1, 1, 1, begin_snapshot=9, row_id_start=4, name_map=entries)
    )
    now = lake.rewrite(*sources, columns=(aa, again))
    assert [row[:2] for row in _rows(connection, now)] == [
        (1, None), (2, None), (3, None), (4, 40), (5, None)
    ]  # fmt: skip
    then = lake.rewrite(*sources[:3], columns=(a, b))
    assert [row[:2] for row in _rows(connection, then)] == [(1, 7), (2, 20), (3, 30)]


def test_nested_and_odd_types_survive(lake: Lake, connection: duckdb.DuckDBPyConnection) -> None:
    columns = parse_columns(
        "h int128, i interval, z timetz, t time_ns, u uuid, j json, g geometry, v variant, "
        "s struct(x int32, l varchar[]), m map(varchar, struct(y float64)), d decimal(38,9)"
    )
    values = (
        "5::HUGEINT AS h, INTERVAL '1 day 2 seconds' AS i, '12:00:00+00'::TIMETZ AS z, "
        "'12:00:00.123456789'::TIME_NS AS t, 'f79c3e09-677c-4bbd-a479-3f349cb785e7'::UUID AS u, "
        "'[1]'::JSON AS j, 'POINT (1 2)'::GEOMETRY AS g, {'q': [1]}::VARIANT AS v, "
        "{'x': 1::INTEGER, 'l': ['p', NULL]} AS s, MAP {'k': {'y': 1.5::DOUBLE}} AS m, "
        "1.5::DECIMAL(38,9) AS d"
    )
    nulls = ", ".join(f"NULL::{c.sql_type} AS {c.name}" for c in columns)
    one = lake.file(f"SELECT {values}", columns)
    two = lake.file(f"SELECT {nulls}", columns)
    written = lake.rewrite(one, two, columns=columns)
    read = ", ".join(f"CAST(CAST({c.name} AS {c.sql_type}) AS VARCHAR)" for c in columns)

    def texts(*paths: str) -> list[Any]:
        return connection.execute(f"SELECT {read} FROM {scan_sql(paths)}").fetchall()

    assert texts(written.path) == texts(one.path, two.path)
    assert texts(written.path)[0][:4] == (
        "5",
        "1 day 00:00:02",
        "12:00:00+00",
        "12:00:00.123456789",
    )


# --- options -------------------------------------------------------------------------------


def test_options_are_honoured(lake: Lake) -> None:
    # MG-08: compaction must not undo compression, row groups or order.
    sources = [lake.file(_numbers(n * 5000, 5000)) for n in range(2)]
    options = ParquetOptions(compression="zstd", row_group_size=2048, version=2)
    written = lake.rewrite(*sources, options=options, sort_keys=(SortKey("a % 10"),))
    metadata = pq.read_metadata(written.path)
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert {metadata.row_group(i).num_rows for i in range(4)} == {2048}


def test_sorted_stably(lake: Lake, connection: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT CASE WHEN i % 3 < 2 THEN i % 3 END AS a, 'v' || i AS b FROM range(9) t(i)"
    keys = (SortKey("a", "DESC", "NULLS_FIRST"),)
    written = lake.rewrite(lake.file(query), sort_keys=keys)
    assert [row[1:] for row in _rows(connection, written)] == [
        ("v2", 2), ("v5", 5), ("v8", 8), ("v1", 1), ("v4", 4), ("v7", 7), ("v0", 0), ("v3", 3),
        ("v6", 6),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "key",
    [
        SortKey("gone"),
        SortKey("a, b"),
        SortKey("a AS x"),
        SortKey("a FROM range(3)"),
        SortKey("1 ORDER BY 1"),
        SortKey("a) -- "),
        SortKey("(SELECT max(content) FROM read_text('/etc/hostname'))"),
        SortKey("row_number() OVER ()"),
        SortKey("a", "SIDEWAYS"),
        SortKey("a", "ASC", "NULLS"),
        SortKey("a; DROP TABLE x"),
        SortKey(""),
    ],
)
def test_sort_keys_that_cannot_be(lake: Lake, key: SortKey) -> None:
    with pytest.raises(ConfigurationError, match="sort key"):
        lake.run(lake.file(_numbers(0, 2)), sort_keys=(key,))
    assert lake.outputs() == []


def test_encrypted_sources_and_output(lake: Lake, connection: duckdb.DuckDBPyConnection) -> None:
    secret = ParquetOptions(encrypted=True)
    one, two = lake.file(_numbers(0, 2), options=secret), lake.file(_numbers(2, 2), options=secret)
    written = lake.rewrite(one, replace(two, inlined_deletes=(0,)), options=secret)
    assert written.encryption_key not in (None, one.encryption_key, two.encryption_key)
    assert [row[0] for row in _rows(connection, written)] == [0, 1, 3]


def test_more_data_than_memory(lake: Lake, connection: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT i AS a, sha256(i::VARCHAR) || md5(i::VARCHAR) AS b FROM range({}, {}) t(i)"
    sources = [lake.file(query.format(n * 300_000, n * 300_000 + 300_000)) for n in range(4)]
    # Some 130 MB of values to stream through, twice as much to sort.
    for limit, files, more in (
        ("100MB", sources, {}),
        ("220MB", sources * 2, {"sort_keys": (SortKey("hash(a)"),)}),
    ):
        lake.settings = replace(lake.settings, memory_limit=limit)
        written = lake.rewrite(*files, **more)
        assert written.record_count == 300_000 * len(files)
        total = connection.execute(f"SELECT sum(a) FROM {scan_sql(written.path)}").fetchone()
        assert total == (len(files) // 4 * 1_199_999 * 1_200_000 // 2,)


# --- any merge -----------------------------------------------------------------------------

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
    lake = Lake(tmp_path_factory.mktemp("merge"))
    sources, model = [], []
    for count, deleted, kind in files:
        first = lake.row_id
        query = _numbers(first, count)
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
        for i, (a, b, *rest) in enumerate(_rows(connection, file))
    ]
    assert rows == [row if snapshot_ids else row[:3] for row in model]
    assert file.record_count == len(model)
    if has_row_ids:
        assert file.first_row_id == min(row[2] for row in model)
    if snapshot_ids:
        snapshots = [row[3] for row in model]
        assert (file.first_snapshot, file.last_snapshot) == (min(snapshots), max(snapshots))
