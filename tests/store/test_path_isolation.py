"""No catalog names a file under the root of another, however it is spelled, unless it is a fork."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.conninfo import make_conninfo

from airflow_provider_ducklake.lake.errors import LakeError, SafetyRefusal
from airflow_provider_ducklake.lake.paths import Location
from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.store.siege import Siege
from tests.support.lakes import stock_client

pytestmark = pytest.mark.interop

Connection = psycopg.Connection[tuple[Any, ...]]

# Tables with paths, and the column that identifies a row of theirs.
_TABLES = {
    "ducklake_schema": "schema_id",
    "ducklake_table": "table_id",
    "ducklake_data_file": "data_file_id",
    "ducklake_delete_file": "delete_file_id",
    "ducklake_files_scheduled_for_deletion": "data_file_id",
}
# What a row of theirs needs besides, and values.
_NEEDED = {
    "ducklake_schema": ("begin_snapshot", "1"),
    "ducklake_table": ("schema_id, begin_snapshot", "1, 1"),
    "ducklake_data_file": ("table_id, begin_snapshot", "1, 1"),
    "ducklake_delete_file": ("table_id, data_file_id, begin_snapshot", "1, 1, 1"),
    "ducklake_files_scheduled_for_deletion": ("schedule_start", "now()"),
}
_OF_DIRECTORIES = ("ducklake_schema", "ducklake_table")
# Roots of the victim's other catalogs.
_ROOTS = {
    "otter": "s3://bucket/otter",
    "badger": "gs://bucket/badger",
    "weasel": "abfss://box@account.dfs.core.windows.net/weasel",
}

# `{0}` is the victim's root without its last slash, `{1}` without its first either.
_FOREIGN = [
    "{0}/main/t/x/",
    "/{0}/main/t/x/",
    "{0}//main///x/",
    "file:{0}/x/",
    "file://{0}/x/",
    "file:///{0}/x/",
    "file://localhost{0}/x/",
    "FILE://{0}/x/",
    "File:{0}/x/",
    "{0}/./x/",
    "{0}/../marmot/x/",
    "/x/..{0}/x/",
    "{0}/.",
    "{0}/x/..",
    "{0}",
    "file:{0}",
    "{0}/x?y=1/",
    "{0}/%2e%2e/",
    "~/../..{0}/x/",
    "~{0}/",
    "{1}/x/",
    "./{1}/x/",
    "../../../../../..{0}/x/",
    "file:{1}/x/",
    "file://{1}/x/",
    "\\..{0}\\..\\x/",
    "s3://bucket/otter/x/",
    "s3a://bucket/otter/x/",
    "s3n://bucket/otter/x/",
    "S3://bucket/otter/x/",
    "s3://BUCKET/otter/x/",
    "s3:///bucket/otter/x/",
    "s3://bucket//otter//x/",
    "s3://bucket/./otter/x/",
    "s3://bucket/a/../otter/x/",
    "s3:/bucket/otter/x/",
    "s3://key:secret@bucket/otter/x/",
    "s3://bucket/otter/x.parquet?s3_region=eu/",
    "r2://bucket/otter/x/",
    "gs://bucket/badger/x/",
    "gcs://bucket/badger/x/",
    "GCS://bucket//badger/x/",
    "abfss://box@account.dfs.core.windows.net/weasel/x/",
    "abfs://box@account.dfs.core.windows.net/weasel/x/",
    "abfss://BOX@other.dfs.core.windows.net/weasel/x/",
    "wasbs://box@account.blob.core.windows.net/weasel/x/",
    "az://box/weasel/x/",
    "azure://box/weasel/x/",
    "az://account.blob.core.windows.net/box/weasel/x/",
    "abfss://account.dfs.core.windows.net/box/weasel/x/",
]
_CLIMBING = [
    "../marmot/x/",
    "main/../../marmot/x/",
    "..",
    "main/..",
    "./main/",
    "main/./x/",
    "..\\marmot\\x/",
    "main\\..\\..\\marmot/",
    "{0}/x/",
    "file:{0}/x/",
    "file://{0}/x/",
    "s3://bucket/otter/x/",
    "C:/x/",
]
# Beginning of a foreign root, or a directory around it: names that grow into one.
_GROWING = [
    "{0}",
    "{2}",
    "{2}/",
    "/",
    "s3://bucket/ot",
    "s3://bucket/",
    "az://box/",
    "gs://bucket/b",
]


@pytest.fixture(scope="module")
def roots(siege: Siege) -> Siege:
    """The siege, with the victim's other catalogs."""
    store = CatalogStore(siege.superuser)
    for name, root in _ROOTS.items():
        store.create_catalog(name, root=root)
        store.grant(name, siege.known["@victim_role@"])
    siege.take_as_given()
    return siege


@pytest.fixture
def attacker(roots: Siege) -> Iterator[Connection]:
    """The attacker, in one transaction that is rolled back."""
    with psycopg.connect(roots.attacker) as connection:
        yield connection
        connection.rollback()
    roots.assert_nothing_lost(with_structure=True)


def filled(siege: Siege, spelling: str) -> str:
    """Put the victim's root into a spelling."""
    root = siege.known["@victim_root@"].rstrip("/")
    return spelling.format(root, root.lstrip("/"), root.rpartition("/")[0])


def changes(siege: Siege, table: str) -> dict[str, sql.Composed]:
    """Return how a path gets into a table: by a new row, or into one that is there."""
    key = sql.Identifier(_TABLES[table])
    target, new_id = sql.Identifier("lake", table), int(siege.known["@own_first_id@"]) + 900
    return {
        "INSERT": sql.SQL(
            "INSERT INTO {} ({}, {}, path, path_is_relative) VALUES ({}, {}, %s, %s)"
        ).format(target, key, sql.SQL(_NEEDED[table][0]), new_id, sql.SQL(_NEEDED[table][1])),
        "UPDATE": sql.SQL("UPDATE {} SET path = %s, path_is_relative = %s").format(target),
        "MERGE": sql.SQL(
            "MERGE INTO {} t USING (SELECT %s::text AS p, %s::boolean AS r) s ON true "
            "WHEN MATCHED THEN UPDATE SET path = s.p, path_is_relative = s.r"
        ).format(target),
    }


def refusal(
    connection: Connection, statement: sql.Composed, path: str, relative: bool, keep: bool = False
) -> str | None:
    """Run one change; return the SQLSTATE of its refusal, None if it was taken."""
    try:
        with connection.transaction(force_rollback=not keep):
            connection.execute(statement, (path, relative))
    except psycopg.Error as error:
        return error.sqlstate
    return None


def give_each_table_a_row(siege: Siege, connection: Connection) -> None:
    """Schedule a file of the attacker's own: the other tables have rows already."""
    statement = changes(siege, "ducklake_files_scheduled_for_deletion")["INSERT"]
    connection.execute(statement, ("main/t/old.parquet", True))


@pytest.mark.parametrize("table", _TABLES)
def test_the_root_of_another(roots: Siege, attacker: Connection, table: str) -> None:
    give_each_table_a_row(roots, attacker)
    cases = [(spelling, False) for spelling in _FOREIGN] + [(s, True) for s in _CLIMBING]
    taken = [
        (name, spelling, relative)
        for name, statement in changes(roots, table).items()
        for spelling, relative in cases
        if refusal(attacker, statement, filled(roots, spelling), relative) != "DL003"
    ]
    assert taken == []


@pytest.mark.parametrize("table", _OF_DIRECTORIES)
def test_a_directory_that_grows_into_a_root(roots: Siege, attacker: Connection, table: str) -> None:
    """Clients append to it: `/store/` and `/store/mar` lead to `/store/marmot/` as well."""
    taken = [
        (name, spelling)
        for name, statement in changes(roots, table).items()
        for spelling in _GROWING
        if refusal(attacker, statement, filled(roots, spelling), False) != "DL003"
    ]
    assert taken == []


@pytest.mark.parametrize("table", _TABLES)
def test_paths_that_are_right(roots: Siege, attacker: Connection, table: str) -> None:
    """Its own, and those that the service allowed, such as a bucket where files land."""
    store = CatalogStore(roots.superuser)
    for place in ("/landing", "s3a://LANDING/2026", "az://landing/", "https://example.org/open/"):
        store.allow("burrow", place)
    give_each_table_a_row(roots, attacker)
    own = roots.known["@own_root@"]
    cases = [
        (f"{own}main/new/", False),
        (f"file://{own}main/new/", False),
        ("/landing/2026/", False),
        ("s3://landing/2026/", False),
        ("s3a://landing/2026/", False),
        ("az://landing/box/weasel/", False),
        ("https://example.org/open/data/", False),
        ("main/new/", True),
        ("main/a..b/...c/.d/", True),
        ("main/k=%2e%2e%2f/", True),
        ("main/k=2026-11-28 12:00:00/", True),
    ]
    refused = [
        (name, path, relative)
        for name, statement in changes(roots, table).items()
        for path, relative in cases
        if refusal(attacker, statement, path, relative) is not None
    ]
    assert refused == []


_PIECES = st.lists(
    st.sampled_from(
        ["/", "//", ".", "..", "\\", "{0}", "{1}", "{2}", "marmot", "mar", "mot", "burrow", "main",
         "x", "file:", "file://", "file://localhost", "FILE:", "s3://", "s3a:", "bucket", "otter",
         "az://", "box", "weasel", "@", "~", " ", "%2e", "?", ":"]
    ),
    max_size=7,
).map("".join)  # fmt: skip


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    paths=st.tuples(_PIECES, _PIECES, _PIECES),
    relative=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
@example(paths=("{2}/", "marmot/", "x"), relative=(False, True, True))
@example(paths=("{2}/mar", "mot/", "x"), relative=(False, True, True))
@example(paths=("main/", ".", "./marmot/x"), relative=(True, True, True))
@example(paths=("x", "file://localhost{0}/", "x"), relative=(True, False, True))
@example(paths=("main/", "x/", "main/t/x"), relative=(True, True, True))
def test_nothing_that_is_taken_leads_to_another(
    roots: Siege,
    attacker: Connection,
    paths: tuple[str, str, str],
    relative: tuple[bool, bool, bool],
) -> None:
    """Whatever a schema, a table and a file say, and clients put together: it is not another's."""
    full = roots.known["@own_root@"]
    with attacker.transaction(force_rollback=True):
        for table, path, flag in zip(_TABLES, paths, relative, strict=False):
            name = "INSERT" if table == "ducklake_data_file" else "UPDATE"
            text = filled(roots, path)
            full = full + text if flag else text
            refused = refusal(attacker, changes(roots, table)[name], text, flag, keep=True)
            if refused is not None:
                assert refused == "DL003"
                return
    with suppress(LakeError):  # what nobody can open
        found = Location.parse(full)
        for root in (roots.known["@victim_root@"], *_ROOTS.values()):
            assert not found.is_under(Location.parse(root)), (full, root)


def test_roots_in_other_spellings_do_not_nest(roots: Siege) -> None:
    store = CatalogStore(roots.superuser)
    for root in (
        "s3a://bucket/otter/inside",
        "S3://BUCKET//otter",
        "s3n://bucket/",
        "gcs://bucket/badger/inside",
        "az://box/weasel",
        "wasbs://box@account.blob.core.windows.net/weasel/inside",
        filled(roots, "file://localhost{0}/inside"),
    ):
        with pytest.raises(SafetyRefusal, match="of another catalog, or around it"):
            store.create_catalog("stoat", root=root)
    roots.take_as_given()  # ids were used up


def test_a_stock_client_adds_no_file_of_another(roots: Siege, tmp_path: Path) -> None:
    client = stock_client(make_conninfo(roots.attacker, options=""), "burrow")
    client.sql("CREATE TABLE u (axolotl VARCHAR, tapir INTEGER, ibex VARCHAR)")
    client.sql(f"COPY (SELECT 7 AS tapir) TO '{tmp_path}/landed.parquet'")
    call = (
        "CALL ducklake_add_data_files('lake', 'u', ?, allow_missing => true, "
        "ignore_extra_columns => true)"
    )
    for file in Path(roots.known["@victim_root@"]).rglob("*.parquet"):
        if "delete" not in file.name:
            for spelling in (f"{file}", f"file://{file}", f"/{file}"):
                with pytest.raises(Exception, match="lies under that of another"):
                    client.sql(call, [spelling])
    with pytest.raises(Exception, match="none that the catalog was allowed"):
        client.sql(call, [f"{tmp_path}/landed.parquet"])
    CatalogStore(roots.superuser).allow("burrow", f"{tmp_path}")
    roots.take_as_given()
    client.sql(call, [f"{tmp_path}/landed.parquet"])
    assert client.sql("FROM u") == [(None, 7, None)]
    client.close()
    roots.assert_nothing_lost()
