"""VARIANT and GEOMETRY columns: what the catalog says of their values, and what is found by it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.extra_statistics import EDGES
from tests.interop.judge import Judge
from tests.support.lakes import LakeUnderTest
from tests.support.variants import as_spark_holds

sqlite = pytest.mark.parametrize("lake_factory", ["sqlite"], indirect=True)

# Values of two files by turns, as SQL of the numbers i from 0 to 4, and what is sought.
VARIANTS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "objects": (
        "{'a': i, 'b': 'x' || i, 'c': {'d': i * 1.5::DOUBLE}}",
        "{'a': i + 10, 'b': 'y' || i, 'c': {'d': i * 9::DOUBLE}}",
        ("v.a::BIGINT = 13", "v.b::VARCHAR = 'x2'", "v.c.d::DOUBLE = 36", "v.a::BIGINT IS NULL",
         'v."A"::BIGINT IS NULL', 'v."A"::BIGINT >= 0'),
    ),
    "numbers": ("i", "i + 10", ("v::BIGINT = 3", "v::BIGINT = 14", "v.a::BIGINT IS NULL")),
    "nulls": ("CASE WHEN i > 2 THEN i END", "NULL::BIGINT",
              ("v::BIGINT = 3", "v IS NULL", "v IS NOT NULL")),
    "lists": ("[i, i + 1]", "[i + 100]",
              ("v[1]::BIGINT = 103", "v[2]::BIGINT = 4", "v[3]::BIGINT IS NULL",
               "v[2]::BIGINT >= 0")),
    # DuckDB counts as many NULLs in such a list as it has values.
    "objects in lists": ("[{'a': i}, {'a': NULL}, NULL]", "[{'a': i + 50}, {'a': NULL}, NULL]",
                         ("v[1].a::BIGINT = 53", "v[1].a::BIGINT = 3", "v[2].a::BIGINT IS NULL")),
    "lists in objects": ("{'l': [i], 'z': {'w': [[i]]}}", "{'l': [], 'z': {'w': [[i + 7]]}}",
                         ("v.l[1]::BIGINT = 3", "v.z.w[1][1]::BIGINT = 11")),
    "two shapes": ("CASE WHEN i % 2 = 0 THEN {'a': i}::VARIANT ELSE 'x'::VARIANT END",
                   "{'a': i + 7}", ("v.a::BIGINT = 11", "v::VARCHAR = 'x'")),
    "two types": ("CASE WHEN i % 2 = 0 THEN {'a': i}::VARIANT ELSE {'a': 'x'}::VARIANT END",
                  "{'a': i}", ("v.a::VARCHAR = 'x'", "v.a IS NOT NULL")),
    "two types by turns": ("{'a': i}", "{'a': 'x' || i}", ("v.a::VARCHAR = 'x3'",)),
    "absent": ("CASE WHEN i > 1 THEN {'a': i, 'b': i}::VARIANT ELSE {'a': NULL}::VARIANT END",
               "{'a': i}", ("v.b::BIGINT = 3", "v.b IS NULL", "v.a::BIGINT IS NULL")),
    "odd names": (
        """{'element': i, 'typed_value': {'x': i}, 'p.q': i, 'root': i, 'value': i, 'ü "': i}""",
        """{'element': 9, 'typed_value': {'x': 9}, 'p.q': 9, 'root': 9, 'value': 9, 'ü "': 9}""",
        ("v.element::BIGINT = 9", "v.typed_value.x::BIGINT = 3", 'v."p.q"::BIGINT = 9',
         'v.root::BIGINT = 3', 'v.value::BIGINT = 9', 'v."ü """::BIGINT = 9',
         'v."ü """""::BIGINT IS NULL'),
    ),
    "types": (
        "{'d': DATE '0001-01-01', 's': TIMESTAMP '2020-01-01', 'z': TIMESTAMPTZ '2020-01-01', "
        "'n': 1.50::DECIMAL(3,2), 'b': i > 2, 't': TIME '10:00:00', 'f': 'nan'::DOUBLE, "
        "'g': i::FLOAT, 'y': '\\xFF'::BLOB, 'k': TIMESTAMP_NS '2020-01-01', "
        "'u': '00000000-0000-0000-0000-000000000001'::UUID, 'l': repeat('é', 200)}",
        "{'d': DATE '2020-01-01', 's': TIMESTAMP '2200-01-01', 'z': TIMESTAMPTZ '1969-01-01', "
        "'n': -1.50::DECIMAL(3,2), 'b': false, 't': TIME '24:00:00', 'f': i::DOUBLE, "
        "'g': '-inf'::FLOAT, 'y': ''::BLOB, 'k': TIMESTAMP_NS '2021-01-01', "
        "'u': 'f0000000-0000-0000-0000-000000000001'::UUID, 'l': repeat('é', 200) || 'x'}",
        ("v.d::DATE = '0001-01-01'", "v.s::TIMESTAMP = '2200-01-01'", "v.n::DECIMAL(10,2) = -1.5",
         "v.b::BOOLEAN", "v.t::TIME = '24:00:00'", "isnan(v.f::DOUBLE)", "v.g::FLOAT = 4",
         "v.z::TIMESTAMPTZ < '1970-01-01'", "v.k::TIMESTAMP_NS > '2020-06-01'",
         "v.u::UUID > '80000000-0000-0000-0000-000000000001'", "v.y::BLOB = ''::BLOB",
         "v.l::VARCHAR = repeat('é', 200) || 'x'"),
    ),
}  # fmt: skip
GEOMETRIES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]] = {
    "points": (("POINT (0.123456789 2)", "NULL"), ("POINT (5 -6)",),
               ("POINT (5 -6)", "POINT (0.123456789 2)", "POINT (50 50)")),
    "types": (("LINESTRING (0 0, 1 1)", "POLYGON ((0 0, 9 0, 9 9, 0 0))"),
              ("MULTIPOINT (20 20, 21 21)", "GEOMETRYCOLLECTION (POINT (7 -8))"),
              ("POINT (1 1)", "POINT (8 2)", "POINT (20 20)", "POINT (7 -8)")),
    "axes": (("POINT Z (1 2 3)", "POINT M (4 5 6)"), ("LINESTRING ZM (7 8 9 10, 7 9 11 12)",),
             ("POINT (1 2)", "POINT (4 5)", "POINT (7 8)")),
    "nothing but NULL": (("NULL", "NULL"), ("POINT (3 3)",), ("POINT (3 3)",)),
    "NULL behind": (("POINT (3 3)",), ("NULL",), ("POINT (3 3)",)),
    # Of these the reference writes an empty box, and finds none of the file's geometries.
    "empty": (("POINT EMPTY", "POINT (3 3)"), ("POINT EMPTY", "NULL"), ("POINT (3 3)",)),
    "infinite": (("POINT (3 3)",), ("POINT (inf 6)", "POINT (8 8)"), ("POINT (8 8)",)),
}  # fmt: skip


@pytest.fixture
def unchecked(lake_under_test: LakeUnderTest) -> Iterator[Judge]:
    """A judge without a model: plain DuckDB says what is to be found."""
    judge = Judge(lake_under_test)
    judge.client.set_option("data_inlining_row_limit", 0)
    yield judge
    judge.check_catalog()
    judge.close()


@pytest.fixture
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB without any lake."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@sqlite
@pytest.mark.parametrize("name", VARIANTS)
def test_variants(unchecked: Judge, plain: duckdb.DuckDBPyConnection, name: str) -> None:
    """The rows of both clients for the same values, and every filter on a field finds its rows."""
    judge = unchecked
    low, high, filters = VARIANTS[name]
    for table in ("ours", "stock"):
        judge.client.sql(f"CREATE TABLE {table} (v VARIANT)")
    plain.execute("CREATE TABLE ours (v VARIANT)")
    nulls: list[int] = []
    for values in (low, high):
        rows = f"SELECT ({values})::VARIANT AS v FROM range(5) r(i)"
        plain.execute(f"INSERT INTO ours {rows}")
        nulls += [len(plain.execute(f"FROM ({rows}) WHERE v IS NULL").fetchall())]
        judge.client.sql(f"INSERT INTO stock {rows}")
        pairs = rows.replace("SELECT (", "SELECT variant_to_parquet_variant((", 1)
        pairs = pairs.replace("::VARIANT AS v", "::VARIANT) AS v", 1)
        sent = as_spark_holds(plain.execute(pairs).to_arrow_table())
        judge.operations.ingest("main.ours", sent.to_batches())
        _require_same(judge, nulls)
        _require_found(judge, plain, filters)
    _maintain(judge, plain, filters)


@sqlite
@pytest.mark.parametrize("name", GEOMETRIES)
def test_geometries(unchecked: Judge, plain: duckdb.DuckDBPyConnection, name: str) -> None:
    """The boxes of both clients for the same values, and no box hides a geometry."""
    judge = unchecked
    low, high, sought = GEOMETRIES[name]
    # A scan that is given && to filter by lets NULL through, with any client.
    filters = tuple(f"v IS NOT NULL AND v && '{place}'::GEOMETRY" for place in sought)
    for table in ("ours", "stock"):
        judge.client.sql(f"CREATE TABLE {table} (v GEOMETRY)")
    plain.execute("CREATE TABLE ours (v GEOMETRY)")
    nulls: list[int] = []
    for values in (low, high):
        nulls += [values.count("NULL")]
        texts = [None if value == "NULL" else value for value in values]
        for connection, table in ((plain, "ours"), (judge.client.connection, "stock")):
            connection.execute(f"INSERT INTO {table} SELECT unnest($1)::GEOMETRY", [texts])
        batch = pa.table({"v": pa.array(texts, pa.string())})
        judge.operations.ingest("main.ours", batch.to_batches())
        _require_same(judge, nulls)
        _require_found(judge, plain, filters)
    _maintain(judge, plain, filters)


@sqlite
def test_geometries_inside_other_types(unchecked: Judge) -> None:
    """Each leaf has a box of its own."""
    judge = unchecked
    kind = "STRUCT(g GEOMETRY, i INTEGER), l GEOMETRY[], m MAP(VARCHAR, GEOMETRY)"
    for table in ("ours", "stock"):
        judge.client.sql(f"CREATE TABLE {table} (v {kind})")
    types = {
        "v": pa.struct({"g": pa.string(), "i": pa.int32()}),
        "l": pa.list_(pa.string()),
        "m": pa.map_(pa.string(), pa.string()),
    }
    for x in (1, 11):
        first: dict[str, Any] = {"v": {"g": f"POINT ({x} 0)"}, "l": [f"POINT ({x} 3)", None]}
        first["m"] = [("k", f"POINT ({x} 5)")]
        rows = pa.Table.from_pylist([first, {"l": []}], pa.schema(types))
        judge.client.connection.register("given", rows)
        judge.client.sql("INSERT INTO stock FROM given")
        judge.client.make_way()
        judge.operations.ingest("main.ours", rows.to_batches())
    ours, stock = (_said(judge, table)["table_column_stats"] for table in ("ours", "stock"))
    boxes = [(row["column_id"], row["extra_stats"]) for row in ours]
    assert boxes == [(row["column_id"], row["extra_stats"]) for row in stock]
    assert len([box for _, box in boxes if box is not None]) == len(types)
    judge.client.release()
    for place in ("v.g && 'POINT (11 0)'", "l[1] && 'POINT (1 3)'", "m['k'] && 'POINT (11 5)'"):
        assert judge.client.sql(f"SELECT count(*) FROM ours WHERE {place}::GEOMETRY") == [(1,)]


# No other database can hold inlined VARIANTs.
@pytest.mark.parametrize("lake_factory", ["duckdb"], indirect=True)
@pytest.mark.parametrize("first", ["file", "inlined"])
def test_inlined_variants(unchecked: Judge, plain: duckdb.DuckDBPyConnection, first: str) -> None:
    """Of rows in the catalog no statistics are known, whatever comes into files beside them."""
    judge = unchecked
    filters = tuple(f"v.a::BIGINT {what}" for what in ("= 500", "= 1003", "= 3", "IS NULL"))
    for connection in (plain, judge.client.connection):
        connection.execute("CREATE TABLE ours (v VARIANT)")

    def insert(values: str, *, inlined: bool) -> None:
        judge.client.set_option("data_inlining_row_limit", 10 if inlined else 0)
        for connection in (plain, judge.client.connection):
            connection.execute(f"INSERT INTO ours SELECT ({values})::VARIANT FROM range(5) r(i)")

    if first == "file":
        insert("{'a': i}", inlined=False)
    insert("{'a': i + 496}", inlined=True)
    _require_found(judge, plain, filters)
    rows = "SELECT variant_to_parquet_variant({'a': i + 1000}::VARIANT) AS v FROM range(5) r(i)"
    sent = as_spark_holds(plain.execute(rows).to_arrow_table())
    plain.execute("INSERT INTO ours SELECT {'a': i + 1000}::VARIANT FROM range(5) r(i)")
    judge.client.make_way()
    judge.operations.ingest("main.ours", sent.to_batches())
    _require_found(judge, plain, filters)
    # Types get lost in the text of an inlined VARIANT: only the reference flushes it.
    judge.client.sql("CALL ducklake_flush_inlined_data('lake')")
    _require_found(judge, plain, filters)
    judge.client.set_option("data_inlining_row_limit", 0)
    _maintain(judge, plain, filters)


@sqlite
def test_restored_rows(unchecked: Judge) -> None:
    """What is said of a table holds for the rows that come back."""
    judge, filters = unchecked, tuple(f"v.a::VARCHAR = '{text}'" for text in ("3", "13", "x3"))
    judge.client.sql("CREATE TABLE ours (v VARIANT)")
    snapshots, models = [], []
    for values in ("{'a': i}", "{'a': i + 10}", "{'a': 'x' || i}"):
        judge.client.sql(f"INSERT INTO ours SELECT ({values})::VARIANT FROM range(5) r(i)")
        snapshots.append(judge.client.snapshot_ids()[-1])
        models.append(judge.client.sql("SELECT v::VARCHAR FROM ours"))
    judge.client.sql("DELETE FROM ours")
    for snapshot, model in zip(snapshots, models, strict=True):
        judge.operations.run("restore", "main.ours", snapshot=snapshot)
        judge.client.release()
        assert judge.client.sql("SELECT v::VARCHAR FROM ours") == model
        for number, condition in enumerate(filters):
            query = f"SELECT count(*) FROM ours WHERE {condition}"
            expected = int(len(model) > 5 * number)
            assert judge.client.sql(query) == [(expected,)], (snapshot, condition)


def _maintain(judge: Judge, plain: duckdb.DuckDBPyConnection, filters: tuple[str, ...]) -> None:
    """Merge, rewrite and flush what is there; everything is found as before."""
    client = judge.client
    for connection in (plain, client.connection):
        connection.execute("INSERT INTO ours VALUES (NULL)")
    judge.client.make_way()
    judge.operations.run("merge_adjacent_files", "main.ours")
    _require_found(judge, plain, filters)
    for connection in (plain, client.connection):
        connection.execute("DELETE FROM ours WHERE v IS NULL")
    judge.operations.run("rewrite_data_files", "main.ours", delete_threshold=0)
    _require_found(judge, plain, filters)
    checked = judge.operations.run("fsck", "main.ours", deep=True)
    assert not [found for found in checked.findings if found.severity != "notice"]


def _require_found(
    judge: Judge, plain: duckdb.DuckDBPyConnection, filters: tuple[str, ...]
) -> None:
    judge.client.release()
    for condition in filters:
        query = f"SELECT count(*) FROM ours WHERE {condition}"
        assert judge.client.sql(query) == plain.execute(query).fetchall(), condition
    judge.client.make_way()


def _require_same(judge: Judge, nulls: Sequence[int]) -> None:
    """Compare what the catalog says of the table we write with what it says of the other.

    Args:
        judge: The lake.
        nulls: How many rows of each file are NULL.
    """
    ours, stock = (_said(judge, table) for table in ("ours", "stock"))
    files, of_table = stock["file_column_stats"], stock["table_column_stats"]
    for row, count in zip(files, nulls, strict=True):
        if not _is_geometry(row) and count:  # it takes the null of a VARIANT for a value
            row["value_count"] = row["null_count"] = None
            of_table[0]["contains_null"] = None
    if any(row["extra_stats"] == _EMPTY for row in files):
        del of_table[:]
    for row in files:
        row["extra_stats"] = None if row["extra_stats"] == _EMPTY else row["extra_stats"]
    for row in of_table if ours["table_column_stats"] else ():
        [known] = ours["table_column_stats"]
        if not _is_geometry(row):
            row["extra_stats"] = _of_table(row["extra_stats"], known["extra_stats"])
    assert ours == stock


_EMPTY: Final = {"bbox": dict.fromkeys(EDGES), "types": ["point"]}


def _is_geometry(row: Mapping[str, Any]) -> bool:
    return "bbox" in (row["extra_stats"] or ())


def _of_table(stock: Any, ours: Any) -> Any:
    """Return a table's fields without what the reference's reader takes for more than it says."""
    fields = dict(stock or {})
    for name, entry in fields.items():
        if entry.get("null_count") == 0 or "null_count" not in ours[name]:
            # Of a part it was 0, or is not known: then the sum is not either.
            entry.pop("null_count", None)
        if "element" in name:  # it leaves bounds out when it has counted too many NULLs
            assert ours[name].keys() <= entry.keys() | {"min", "max"}
            fields[name] = ours[name]
    return fields or None


def _said(judge: Judge, table: str) -> dict[str, Any]:
    catalog = judge.catalog()
    [table_id] = [r["table_id"] for r in catalog["ducklake_table"] if r["table_name"] == table]
    found = {}
    for name in ("file_column_stats", "file_variant_stats", "table_column_stats"):
        rows = [row for row in catalog[f"ducklake_{name}"] if row["table_id"] == table_id]
        rows.sort(key=lambda r: (r.get("data_file_id"), r["column_id"], r.get("variant_path")))
        found[name] = [_comparable(row) for row in rows if '""' not in row.get("variant_path", "")]
    return found


def _comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without ids, and without what the reference writes that is not right."""
    known = {name: value for name, value in row.items() if name not in ("table_id", "data_file_id")}
    extra = json.loads(row["extra_stats"] or "null")
    if isinstance(extra, list):
        entries = {entry["field_name"]: entry for entry in extra if '""' not in entry["field_name"]}
        for name, entry in entries.items():
            _trim(entry, name, entry["shredded_type"], "min", "max", "null_count", "num_values")
        known["extra_stats"] = entries or None
    elif extra is not None:  # the reference rounds to six digits, which can make a box smaller
        box = {name: v and round(v, 5) for name, v in extra["bbox"].items()}
        known["extra_stats"] = {"bbox": box, "types": sorted(extra["types"])}
    if "variant_path" in known:
        names = ("min_value", "max_value", "null_count", "value_count")
        _trim(known, known["variant_path"], known["shredded_type"], *names)
        known = {name: value for name, value in known.items() if value is not None}
    return known


def _trim(entry: dict[str, Any], path: str, kind: str, *names: str) -> None:
    """Leave out bounds that are cut or of two spellings, and counts inside of lists."""
    low, high, nulls, values = names
    for name in (low, high):
        if kind == "blob" or len(str(entry.get(name)).encode()) >= 256:
            entry.pop(name, None)
    if "element" in path.split('"')[::2][-1] + path.split('"')[0] and entry.get(nulls):
        entry.pop(nulls)
        entry.pop(values)
