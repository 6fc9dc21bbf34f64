"""Reading by column id, checked against a model: any tree of columns, any history of changes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_ducklake.kernels.connection import KernelSettings, open_connection
from airflow_provider_ducklake.kernels.parquet import write_parquet
from airflow_provider_ducklake.kernels.projection import (
    FILE_STEP,
    Projection,
    open_source,
    project,
    project_together,
)
from airflow_provider_ducklake.kernels.tasks import ParquetOptions
from airflow_provider_ducklake.lake.columns import Column, parse_columns
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal
from airflow_provider_ducklake.lake.model import DataFile, NameMapEntry
from airflow_provider_ducklake.storage import StorageOptions

SETTINGS = KernelSettings(StorageOptions({}))


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_connection(SETTINGS) as connection:
        yield connection


def _file(path: str | Path, **more: Any) -> DataFile:
    known: dict[str, Any] = {"record_count": 0, "file_size_bytes": 0, "footer_size": 0}
    return DataFile(1, 1, str(path), **{**known, "begin_snapshot": 5, "row_id_start": 100, **more})


def _read(connection: duckdb.DuckDBPyConnection, projection: Projection, extra: str = "") -> Any:
    select = ", ".join((*projection.columns, *([extra] if extra else [])))
    return connection.execute(f"SELECT {select} FROM {projection.source}").fetchall()


# --- the model -----------------------------------------------------------------------------

NAMES = ["a", "b c", 'd"e', "f'g", "ü", "h.i", "Element", "key", "list", "file"]
SCALARS = ["int32", "int64", "varchar", "float32", "float64", "decimal(9,2)"]
WIDER = {"int32": "int64", "float32": "float64", "decimal(9,2)": "decimal(18,4)"}
DEFAULTS = {"int32": "42", "int64": "-7", "varchar": "it's", "float64": "0.5"}


@dataclass
class Ids:
    """Hands out column ids, as a table does: never one twice."""

    following: Iterator[int]

    def __call__(self) -> int:
        return next(self.following)


@st.composite
def columns_of(draw: st.DrawFn, ids: Ids, depth: int, size: int = 3) -> tuple[Column, ...]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=size, unique=True))
    return tuple(draw(column_of(ids, name, depth)) for name in names)


@st.composite
def column_of(draw: st.DrawFn, ids: Ids, name: str, depth: int) -> Column:
    kinds = [*SCALARS] if depth == 0 else [*SCALARS, "struct", "struct", "list", "map"]
    kind = draw(st.sampled_from(kinds))
    column = Column(ids(), name, kind)
    if kind == "struct":
        return replace(column, children=draw(columns_of(ids, depth - 1)))
    if kind == "list":
        return replace(column, children=(draw(column_of(ids, "element", depth - 1)),))
    if kind == "map":
        key = Column(ids(), "key", draw(st.sampled_from(["int32", "varchar"])))
        return replace(column, children=(key, draw(column_of(ids, "value", depth - 1))))
    return column


@st.composite
def changed(draw: st.DrawFn, columns: tuple[Column, ...], ids: Ids) -> tuple[Column, ...]:
    """Rename, widen, drop, add and reorder the fields of a struct (or a table), at every depth."""
    names = iter(draw(st.permutations(NAMES)))
    kept = [column for column in columns if draw(st.integers(0, 4))] or list(columns[:1])
    result = [draw(changed_column(column, next(names), ids)) for column in kept]
    if draw(st.booleans()):
        added = draw(column_of(ids, next(names), 1))
        result.append(replace(added, initial_default=DEFAULTS.get(added.type)))
    return tuple(draw(st.permutations(result)))


@st.composite
def changed_column(draw: st.DrawFn, column: Column, name: str, ids: Ids) -> Column:
    name = draw(st.sampled_from([name, column.name])) if column.name not in NAMES else name
    if column.type == "struct":
        return replace(column, name=name, children=draw(changed(column.children, ids)))
    if column.is_nested:
        children = tuple(draw(changed_column(c, c.name, ids)) for c in column.children)
        names = ("element",) if column.type == "list" else ("key", "value")
        children = tuple(replace(c, name=n) for c, n in zip(children, names, strict=True))
        return replace(column, name=name, children=children)
    kind = WIDER.get(column.type, column.type) if draw(st.booleans()) else column.type
    return replace(column, name=name, type=kind)


def values_of(column: Column) -> st.SearchStrategy[Any]:
    """Values of a column: structs as {column id: value}, scalars as numbers or text, or None."""
    if column.type == "struct":
        some: st.SearchStrategy[Any] = st.fixed_dictionaries(
            {child.column_id: values_of(child) for child in column.children}
        )
    elif column.type == "list":
        some = st.lists(values_of(column.children[0]), max_size=3)
    elif column.type == "map":
        numbers = column.children[0].type == "int32"
        keys: st.SearchStrategy[Any] = st.integers(0, 5) if numbers else st.text("xy'", max_size=2)
        some = st.dictionaries(keys, values_of(column.children[1]), max_size=2)
    elif column.type == "varchar":
        some = st.text("aé'\"{}", max_size=4)
    else:
        some = st.integers(-1000, 1000)
    return st.none() | some


def literal(value: Any, column: Column) -> str:
    """The value as SQL, typed, by the names the column has."""
    if value is None:
        text = "NULL"
    elif column.type == "struct":
        parts = (
            f"{quote_literal(c.name)}: {literal(value[c.column_id], c)}" for c in column.children
        )
        text = f"{{{', '.join(parts)}}}"
    elif column.type == "list":
        text = f"[{', '.join(literal(item, column.children[0]) for item in value)}]"
    elif column.type == "map":
        key, item = column.children
        pairs = (f"{literal(k, key)}: {literal(v, item)}" for k, v in value.items())
        text = f"MAP {{{', '.join(pairs)}}}"
    else:
        text = quote_literal(value) if column.type == "varchar" else str(value)
    return f"CAST({text} AS {column.sql_type})"


def expected(value: Any, written: Column, wanted: Column) -> Any:
    """What a value written as one version of a column reads as in another, as Python."""
    if value is None:
        return None
    if wanted.type == "struct":
        by_id = {child.column_id: child for child in written.children}
        return {
            child.name: expected(value[child.column_id], by_id[child.column_id], child)
            if child.column_id in by_id
            else default(child)
            for child in wanted.children
        }
    if wanted.type == "list":
        return [expected(item, written.children[0], wanted.children[0]) for item in value]
    if wanted.type == "map":
        return {k: expected(v, written.children[1], wanted.children[1]) for k, v in value.items()}
    return value


def default(column: Column) -> Any:
    if column.initial_default is None:
        return None
    return column.initial_default if column.type == "varchar" else float(column.initial_default)


def entries_of(columns: Sequence[Column]) -> tuple[NameMapEntry, ...]:
    """The name mapping that registering a file of these columns would store."""
    return tuple(
        NameMapEntry(
            "list" if column.name == "element" else column.name,
            column.column_id,
            children=entries_of(column.children),
        )
        for column in columns
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[tuple[Column, ...], tuple[Column, ...], list[list[Any]]]:
    ids = Ids(itertools.count(1))
    written = draw(columns_of(ids, 3))
    wanted = draw(changed(written, ids))
    rows = draw(st.lists(st.tuples(*map(values_of, written)).map(list), min_size=1, max_size=4))
    return written, wanted, rows


@given(history=histories(), mapped=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_change_of_columns(
    connection: duckdb.DuckDBPyConnection,
    tmp_path: Path,
    history: tuple[tuple[Column, ...], tuple[Column, ...], list[list[Any]]],
    mapped: bool,
) -> None:
    written, wanted, rows = history
    path = str(tmp_path / "f.parquet")
    selects = (
        "SELECT "
        + ", ".join(
            f"{literal(value, column)} AS {quote_identifier(column.name)}"
            for value, column in zip(row, written, strict=True)
        )
        for row in rows
    )
    query = " UNION ALL ".join(selects)
    if mapped:
        connection.execute(f"COPY ({query}) TO {quote_literal(path)} (FORMAT parquet)")
        file = _file(path, name_map=entries_of(written))
    else:
        write_parquet(connection, query, (), path, written, ParquetOptions(), SETTINGS)
        file = _file(path)
    projection = project(connection, file, path, wanted)
    by_id = {column.column_id: i for i, column in enumerate(written)}
    model = [
        tuple(
            expected(row[by_id[c.column_id]], written[by_id[c.column_id]], c)
            if c.column_id in by_id
            else default(c)
            for c in wanted
        )
        for row in rows
    ]
    assert _read(connection, projection) == model
    types = connection.execute(
        f"DESCRIBE SELECT {', '.join(projection.columns)} FROM {projection.source}"
    )
    assert [row[1] for row in types.fetchall()] == [
        str(duckdb.sqltype(column.sql_type)) for column in wanted
    ]


# --- single facts --------------------------------------------------------------------------


def _write(connection: duckdb.DuckDBPyConnection, path: Path, columns: str, query: str) -> None:
    write_parquet(
        connection, query, (), str(path), parse_columns(columns), ParquetOptions(), SETTINGS
    )


def test_a_name_used_again_does_not_bring_old_values_back(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "f.parquet"
    _write(connection, path, "a int32, b int32", "SELECT 1::INTEGER AS a, 2::INTEGER AS b")
    renamed = Column(1, "b", "int64")
    again = Column(9, "a", "int32", initial_default="7")
    assert _read(connection, project(connection, _file(path), str(path), (again, renamed))) == [
        (7, 1)
    ]


def test_types_that_rest_as_others_in_parquet(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "f.parquet"
    definition = (
        "a int128, b timestamp_s, c time_ns, d json, e uuid, f interval, g timestamp_ns, "
        "h geometry, i variant, j timestamp_ms, k blob"
    )
    columns = parse_columns(definition)
    texts = [
        "123456789012", "2024-01-01 00:00:01", "12:00:00.123456789", '{"a":1}',
        "f79c3e09-677c-4bbd-a479-3f349cb785e7", "1 day 00:00:01", "2024-01-01 00:00:00.000000001",
        "POINT (1 2)", "x", "2024-01-01 00:00:00.001", "\\x00",
    ]  # fmt: skip
    values = ", ".join(
        f"CAST({quote_literal(text)} AS {c.sql_type}) AS {c.name}"
        for text, c in zip(texts, columns, strict=True)
    )
    _write(connection, path, definition, f"SELECT {values}")
    projection = project(connection, _file(path), str(path), columns)
    read = ", ".join(f"CAST({c.name} AS VARCHAR)" for c in columns)
    select = f"SELECT {', '.join(projection.columns)} FROM {projection.source}"
    assert connection.execute(f"SELECT {read} FROM ({select})").fetchall() == [tuple(texts)]


def test_row_and_snapshot_ids(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    columns = parse_columns("a int32")
    _write(connection, path, "a int32", "SELECT i::INTEGER AS a FROM range(2) t(i)")
    plain = project(connection, _file(path), str(path), columns)
    assert _read(connection, plain, f"{plain.row_id}, {plain.snapshot_id}") == [
        (0, 100, 5),
        (1, 101, 5),
    ]
    assert (plain.has_row_ids, plain.has_snapshot_ids) == (False, False)
    unknown = project(connection, _file(path, row_id_start=None), str(path), columns)
    assert unknown.row_id is None

    write_parquet(
        connection,
        "SELECT 1::INTEGER AS a, 77 AS _ducklake_internal_row_id, "
        "8 AS _ducklake_internal_snapshot_id",
        (),
        str(path),
        columns,
        ParquetOptions(),
        SETTINGS,
        write_row_ids=True,
        write_snapshot_ids=True,
    )
    kept = project(connection, _file(path), str(path), columns)
    assert _read(connection, kept, f"{kept.row_id}, {kept.snapshot_id}") == [(1, 77, 8)]
    assert (kept.has_row_ids, kept.has_snapshot_ids) == (True, True)


def test_columns_named_like_duckdbs_own(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "f.parquet"
    definition = "file_row_number int32, filename varchar, c0 int32, file_index int32"
    _write(connection, path, definition, "SELECT 9::INTEGER AS file_row_number, 'x' AS filename, "
           "3::INTEGER AS c0, 4::INTEGER AS file_index")  # fmt: skip
    projection = project(connection, _file(path), str(path), parse_columns(definition))
    assert _read(connection, projection, projection.position) == [(9, "x", 3, 4, 0)]


def test_values_from_directories(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    directory = tmp_path / "year=2024" / "region=a%20b" / "n=__HIVE_DEFAULT_PARTITION__" / "m="
    directory.mkdir(parents=True)
    path = directory / "f.parquet"
    connection.execute(f"COPY (SELECT 1 AS v, 99 AS year) TO {quote_literal(str(path))}")
    columns = parse_columns("v int32, year int32, region varchar, n int32, m int32, other int32")
    entries = (
        NameMapEntry("v", 1),
        *(
            NameMapEntry(n, i + 2, is_partition=True)
            for i, n in enumerate(["year", "REGION", "n", "m"])
        ),
    )
    projection = project(connection, _file(path, name_map=entries), str(path), columns)
    assert _read(connection, projection) == [(1, 2024, "a b", None, None, None)]
    lost = (NameMapEntry("day", 2, is_partition=True),)
    with pytest.raises(BadInput, match="column year is mapped to a directory day"):
        project(connection, _file(path, name_map=lost), str(path), columns)


@pytest.mark.parametrize("ids", [False, True])
def test_without_ids_names_do_not_count(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, ids: bool
) -> None:
    path = tmp_path / "f.parquet"
    option = ", FIELD_IDS {a: 1, s: 2}" if ids else ""
    connection.execute(
        f"COPY (SELECT 1 AS a, {{'x': 1}} AS s) TO {quote_literal(str(path))} "
        f"(FORMAT parquet{option})"
    )
    with pytest.raises(BadInput, match="no field id"):
        project(connection, _file(path), str(path), parse_columns("a int32, s struct(x int32)"))


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ((NameMapEntry("gone", 1),), "mapped to field 'gone', which is not in the file"),
        ((NameMapEntry("a", 1), NameMapEntry("s", 2)), "nothing about the inside"),
    ],
)
def test_mapping_that_does_not_fit(
    connection: duckdb.DuckDBPyConnection,
    tmp_path: Path,
    entries: tuple[NameMapEntry, ...],
    words: str,
) -> None:
    path = tmp_path / "f.parquet"
    connection.execute(f"COPY (SELECT 1 AS a, {{'x': 1}} AS s) TO {quote_literal(str(path))}")
    columns = parse_columns("a int32, s struct(x int32)")
    with pytest.raises(BadInput, match=words):
        project(connection, _file(path, name_map=entries), str(path), columns)


def test_nested_in_one_of_file_and_table_only(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "f.parquet"
    _write(connection, path, "a struct(b int32)", "SELECT {'b': 1::INTEGER} AS a")
    with pytest.raises(BadInput, match=r"column a is INTEGER in the table, but field a .* STRUCT"):
        project(connection, _file(path), str(path), (Column(1, "a", "int32"),))
    inside = Column(
        1,
        "a",
        "struct",
        children=(Column(2, "b", "list", children=(Column(3, "element", "int32"),)),),
    )
    with pytest.raises(BadInput, match=r"column b is INTEGER\[\] in the table"):
        project(connection, _file(path), str(path), (inside,))


def test_a_value_that_does_not_fit_names_the_file(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(b"PAR1 no")
    with pytest.raises(BadInput, match="s3://b/x"):
        project(connection, _file("s3://b/x"), str(path), parse_columns("a int32"))


def test_files_of_others_with_arrow_ids(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "f.parquet"
    ids = [{b"PARQUET:field_id": str(number).encode()} for number in range(4)]
    item = pa.field("item", pa.int32(), metadata=ids[3])
    x, values = pa.field("x", pa.int32(), metadata=ids[1]), pa.list_(item)
    schema = pa.schema([x, pa.field("l", values, metadata=ids[2])])
    pq.write_table(pa.table([[1], [[1, None]]], schema=schema), path)
    columns = parse_columns("new_x int64, l int64[]")
    assert _read(connection, project(connection, _file(path), str(path), columns)) == [
        (1, [1, None])
    ]


# --- several files in one scan -------------------------------------------------------------


def _sources(connection: duckdb.DuckDBPyConnection, *files: DataFile) -> list[Any]:
    return [open_source(connection, file, file.path) for file in files]


def test_one_scan_over_files_with_more_and_fewer_columns(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    one, two, three = (tmp_path / f"{n}.parquet" for n in ("z", "a", "m"))
    _write(connection, one, "a int32", "SELECT i::INTEGER AS a FROM range(2) t(i)")
    both = "SELECT 5::INTEGER AS a, NULL::VARCHAR AS b"
    _write(connection, two, "a int32, b varchar", both)
    internal = f"{both}, 7 AS _ducklake_internal_row_id, 3 AS _ducklake_internal_snapshot_id"
    write_parquet(
        connection, internal, (), str(three), parse_columns("a int32, b varchar"),
        ParquetOptions(), SETTINGS, write_row_ids=True, write_snapshot_ids=True,
    )  # fmt: skip
    files = [
        _file(one),
        _file(two, row_id_start=40, begin_snapshot=6),
        _file(three, row_id_start=None),
    ]
    columns = (Column(2, "bb", "varchar", initial_default="dflt"), Column(1, "aa", "int64"))
    together = project_together(_sources(connection, *files), columns)
    assert together is not None
    extra = f"{together.row_id}, {together.snapshot_id}, {together.position}"
    assert _read(connection, together, extra) == [
        ("dflt", 0, 100, 5, 0),
        ("dflt", 1, 101, 5, 1),
        (None, 5, 40, 6, FILE_STEP),
        (None, 5, 7, 3, 2 * FILE_STEP),
    ]


def test_one_scan_of_equal_files_keeps_their_order(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    files = []
    for number in (3, 1, 2, 0):
        path = tmp_path / f"{number}.parquet"
        _write(connection, path, "a int32", f"SELECT {number}::INTEGER AS a FROM range(3000)")
        files.append(_file(path))
    together = project_together(_sources(connection, *files), parse_columns("a int32"))
    assert together is not None
    assert [row[0] for row in _read(connection, together)] == [3] * 3000 + [1] * 3000 + [
        2
    ] * 3000 + [0] * 3000


@pytest.mark.parametrize(
    ("definition", "query"),
    [
        ("b int32, a int32", "SELECT 1::INTEGER AS b, 2::INTEGER AS a"),  # names swapped
        ("a int64", "SELECT 1::BIGINT AS a"),  # another type
        ("b int32", "SELECT 1::INTEGER AS b"),  # another name
        ("a int32, filename int32", "SELECT 1::INTEGER AS a, 1::INTEGER AS filename"),
    ],
)
def test_files_that_differ_are_not_read_together(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path, definition: str, query: str
) -> None:
    one, two = tmp_path / "1.parquet", tmp_path / "2.parquet"
    _write(connection, one, "a int32, c int32", "SELECT 1::INTEGER AS a, 3::INTEGER AS c")
    _write(connection, two, definition, query)
    assert (
        project_together(_sources(connection, _file(one), _file(two)), parse_columns("a int64"))
        is None
    )
    mapped = _file(one, name_map=(NameMapEntry("a", 1),))
    assert project_together(_sources(connection, mapped), parse_columns("a int64")) is None


def test_row_ids_that_nothing_tells(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    one, two = tmp_path / "1.parquet", tmp_path / "2.parquet"
    for path in (one, two):
        _write(connection, path, "a int32", "SELECT 1::INTEGER AS a")
    together = project_together(
        _sources(connection, _file(one), _file(two, row_id_start=None)), parse_columns("a int32")
    )
    assert together is not None
    assert together.row_id is None
