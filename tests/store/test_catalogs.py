"""The store and the life of its catalogs: create, list, rename, grant, drop."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from airflow_provider_ducklake.lake.errors import (
    ConfigurationError,
    LakeError,
    NotFound,
    SafetyRefusal,
    UnsupportedCatalog,
)
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.support.lakes import stock_client
from tests.support.postgres import PostgresServer


@pytest.fixture
def conninfo(postgres_database: str) -> str:
    """A database without a store, for a superuser."""
    return postgres_database


@pytest.fixture
def store(conninfo: str, tmp_path: Path) -> CatalogStore:
    """A fresh store."""
    store = CatalogStore(conninfo)
    store.init(f"{tmp_path}/lakes")
    return store


def test_a_store_is_made_once(conninfo: str, tmp_path: Path) -> None:
    store = CatalogStore(conninfo)
    with pytest.raises(NotFound, match="run `store init` first"):
        store.status()
    with pytest.raises(NotFound, match="run `store init` first"):
        store.create_catalog("acme")
    made = store.init(f"{tmp_path}/lakes")
    assert (made.version, made.root, made.catalogs) == (1, f"{tmp_path}/lakes/", 0)
    store.create_catalog("acme")
    assert store.init(f"{tmp_path}/lakes/").catalogs == store.upgrade().catalogs == 1
    with pytest.raises(ConfigurationError, match="a store with the root"):
        store.init(f"{tmp_path}/elsewhere")
    assert store.init(f"file://{tmp_path}//lakes").root == made.root


def test_roots_of_a_store_that_are_none(conninfo: str) -> None:
    store = CatalogStore(conninfo)
    for root in ("lakes", "/lakes/../other", "s3://bucket/./lakes", "/lakes/.", "file:lakes"):
        with pytest.raises(ConfigurationError, match=r"full path or a URL, without \. or \.\."):
            store.init(root)
    assert store.init("S3A://Bucket//lakes").root == "s3://Bucket/lakes/"


def test_two_can_make_it_at_once(conninfo: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        made = list(
            threads.map(lambda _: CatalogStore(conninfo).init(f"{tmp_path}/lakes"), range(4))
        )
    assert {status.version for status in made} == {1}


def test_a_newer_store_is_left_alone(conninfo: str, store: CatalogStore) -> None:
    with psycopg.connect(conninfo) as connection:
        connection.execute("UPDATE ducklake.store SET version = 99")
    with pytest.raises(UnsupportedCatalog, match=r"version 99.*: upgrade the package"):
        store.upgrade()


def test_created_catalogs_are_apart(conninfo: str, store: CatalogStore, tmp_path: Path) -> None:
    one, two = store.create_catalog("one"), store.create_catalog("Two.b-c_d")
    assert (one.root, two.root) == (f"{tmp_path}/lakes/one/", f"{tmp_path}/lakes/Two.b-c_d/")
    assert one.catalog_id != two.catalog_id
    assert one.lineage == "one"
    assert one.parent is None
    for name, value in (("one", 1), ("two.B-C_D", 2)):
        session = stock_client(conninfo, name)
        session.sql(f"CREATE TABLE t AS SELECT {value} AS v FROM range(20)")
        session.close()
    for name, value in (("one", 1), ("Two.b-c_d", 2)):
        session = stock_client(conninfo, name)
        assert session.sql("SELECT DISTINCT v FROM t") == [(value,)]
        assert session.snapshot_ids() == [0, 1]
        session.close()
    assert {entry.name for entry in store.list_catalogs()} == {"one", "Two.b-c_d"}
    assert [entry.name for entry in store.list_catalogs("tw%")] == ["Two.b-c_d"]
    assert store.catalog("one").size > 0
    assert store.status().catalogs == 2


def test_names_are_unique_whatever_their_case(store: CatalogStore) -> None:
    made = store.create_catalog("acme")
    with pytest.raises(ConfigurationError, match='"ACME" exists already'):
        store.create_catalog("ACME")
    assert store.create_catalog("Acme", if_not_exists=True) == made


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a/b",
        "a\\b",
        "..",
        "a..b",
        ".a",
        "-a",
        "a b",
        "a'b",
        "é",
        "x" * 64,
        "a\nb",
        "a;b",
        "a:b",
    ],
)
def test_names_that_are_none(store: CatalogStore, name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be called"):
        store.create_catalog(name)
    store.create_catalog("acme")
    with pytest.raises(ConfigurationError, match="cannot be called"):
        store.rename_catalog("acme", name)
    assert store.status().catalogs == 1


@pytest.mark.parametrize(
    "root",
    [
        "{0}/lakes/acme/inside",
        "{0}/lakes",
        "{0}/lakes/acme",
        "{0}//lakes//acme/x",
        "file://{0}/lakes/acme/x",
        "/",
    ],
)
def test_roots_do_not_nest(store: CatalogStore, tmp_path: Path, root: str) -> None:
    store.create_catalog("acme")
    with pytest.raises(SafetyRefusal, match="of another catalog, or around it"):
        store.create_catalog("other", root=root.format(tmp_path))
    store.create_catalog("beside", root=f"{tmp_path}/lakes/acme2")


@pytest.mark.parametrize("root", ["relative/path", "/a/../b", "s3://b/./x"])
def test_roots_that_are_none(store: CatalogStore, root: str) -> None:
    with pytest.raises(ConfigurationError, match="is no full path or URL"):
        store.create_catalog("acme", root=root)


def test_renaming(conninfo: str, store: CatalogStore) -> None:
    made = store.create_catalog("old")
    store.create_catalog("taken")
    session = stock_client(conninfo, "old")
    session.sql("CREATE TABLE t AS SELECT 1 AS v")
    session.close()
    with pytest.raises(ConfigurationError, match="exists already"):
        store.rename_catalog("old", "TAKEN")
    with pytest.raises(NotFound, match='no catalog "none"'):
        store.rename_catalog("none", "new")
    renamed = store.rename_catalog("old", "new")
    assert (renamed.catalog_id, renamed.root, renamed.uuid) == (
        made.catalog_id,
        made.root,
        made.uuid,
    )
    assert store.rename_catalog("new", "NEW").name == "NEW"
    session = stock_client(conninfo, "new")
    assert session.sql("SELECT v FROM t") == [(1,)]
    session.close()


def test_dropping_schedules_the_files(conninfo: str, store: CatalogStore, tmp_path: Path) -> None:
    made = store.create_catalog("gone")
    session = stock_client(conninfo, "gone")
    session.sql("CREATE TABLE t AS SELECT * FROM range(100) r(i)")
    session.sql("DELETE FROM t WHERE i < 10")
    session.close()
    dropped = store.drop_catalog("gone")
    assert dropped is not None
    assert (dropped.catalog_id, dropped.root) == (made.catalog_id, made.root)
    with pytest.raises(NotFound, match="no catalog"):
        store.drop_catalog("gone")
    assert store.drop_catalog("gone", if_exists=True) is None
    with pytest.raises(NotFound, match='catalog "gone" does not exist'):
        Lake.open(CatalogLocation.parse(f"ducklake:postgres:{conninfo}", catalog="gone")).head()
    stored = {str(path) for path in tmp_path.rglob("*.parquet")}
    with psycopg.connect(conninfo) as connection:
        found = connection.execute(
            "SELECT path FROM ducklake.ducklake_files_scheduled_for_deletion"
        ).fetchall()
        assert {path for (path,) in found} == stored != set()
        for table in ("ducklake_snapshot", "ducklake_metadata", "ducklake_data_file"):
            assert connection.execute(
                f"SELECT count(*) FROM ducklake.{table}".encode()
            ).fetchone() == (0,)
    # Its files are still there, so its root is not given again.
    again = store.create_catalog("gone")
    assert again.root not in (made.root, "")
    assert again.catalog_id != made.catalog_id


@pytest.fixture
def role(postgres_server: PostgresServer, conninfo: str) -> Iterator[str]:
    """A login role that was granted nothing."""
    name = "somebody"
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN".encode())
    yield name
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


def test_grants(conninfo: str, store: CatalogStore, role: str) -> None:
    store.create_catalog("mine")
    owner = stock_client(conninfo, "mine")
    tenant = psycopg.conninfo.make_conninfo(conninfo, user=role)
    owner.sql("CREATE TABLE t AS SELECT * FROM range(20)")
    owner.close()
    location = CatalogLocation.parse(f"ducklake:postgres:{tenant}", catalog="mine")
    with pytest.raises(LakeError, match="permission denied"):
        Lake.open(location).head()
    with pytest.raises(NotFound, match='no role "nobody"'):
        store.grant("mine", "nobody")
    with pytest.raises(NotFound, match='no catalog "other"'):
        store.grant("other", role)
    store.grant("mine", role, writable=False)
    assert Lake.open(location).head().snapshot_id == 1
    reader = stock_client(tenant, "mine")
    assert len(reader.sql("FROM t")) == 20
    with pytest.raises(Exception, match="for reading only"):
        reader.sql("INSERT INTO t SELECT * FROM range(20)")
    reader.forget()
    store.grant("mine", role)
    writer = stock_client(tenant, "mine")
    writer.sql("INSERT INTO t SELECT * FROM range(20)")
    assert len(writer.sql("FROM t")) == 40
    writer.close()
    assert store.revoke("mine", role)
    assert not store.revoke("mine", role)
    with pytest.raises(NotFound, match="was not granted it"):
        Lake.open(location).head()


def test_a_catalog_must_be_chosen(conninfo: str, store: CatalogStore) -> None:
    """MT-03: neither none nor a wrong one is ever a default."""
    made = store.create_catalog("mine")
    wrong = {
        "": "no catalog is chosen",
        "-c ducklake.catalog=": "no catalog is chosen",
        "-c ducklake.catalog=other": "does not exist",
        "-c ducklake.catalog_id=0": "does not exist",
        "-c ducklake.catalog_id=x": "does not exist",
        f"-c ducklake.catalog_id={made.catalog_id} -c ducklake.catalog=other": "does not exist",
    }
    for options, message in wrong.items():
        with (
            psycopg.connect(conninfo, options=options) as connection,
            pytest.raises(psycopg.Error, match=message),
        ):
            connection.execute("SELECT * FROM lake.ducklake_snapshot")
    for options in ("-c ducklake.catalog=MINE", f"-c ducklake.catalog_id={made.catalog_id}"):
        with psycopg.connect(conninfo, options=options) as connection:
            assert connection.execute("SELECT snapshot_id FROM lake.ducklake_snapshot").fetchall()
