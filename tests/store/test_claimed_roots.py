"""No catalog gets a root that others have named files under, or the whole store lies in."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import psycopg
import pytest

from airflow_provider_ducklake.lake.errors import SafetyRefusal
from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.support.lakes import stock_client

pytestmark = pytest.mark.interop

_CHOOSE = "SET ducklake.catalog = 'one'"


@pytest.fixture
def store(postgres_database: str, tmp_path: Path) -> CatalogStore:
    """A store with a catalog that has registered a file of its own, and one somewhere else."""
    store = CatalogStore(postgres_database)
    store.init(f"{tmp_path}/lakes")
    store.create_catalog("one")
    client = stock_client(postgres_database, "one")
    client.sql("CREATE TABLE t (i INTEGER)")
    for file in (f"{tmp_path}/landed/day/a.parquet", f"{tmp_path}/lakes/late/a.parquet"):
        Path(file).parent.mkdir(parents=True)
        client.sql(f"COPY (SELECT 1::INTEGER AS i) TO '{file}'")
        with pytest.raises(Exception, match="leaves the root") if "late" in file else nullcontext():
            client.sql("CALL ducklake_add_data_files('lake', 't', ?)", [file])
    client.close()
    return store


def _refused(store: CatalogStore, root: str) -> None:
    with pytest.raises(SafetyRefusal, match=r'catalog "one" names .*take another root'):
        store.create_catalog("refused", root=root)
    with pytest.raises(SafetyRefusal, match=r'catalog "one" names .*take another root'):
        store.fork_catalog("one", "refused", root=root)


def test_where_another_registered_files(store: CatalogStore, tmp_path: Path) -> None:
    for spelling in ("{0}/landed/day", "{0}/landed/", "{0}//landed//day///", "FILE://{0}/landed"):
        _refused(store, spelling.format(tmp_path))
    assert store.create_catalog("new", root=f"{tmp_path}/landed/day2").root.endswith("/day2/")
    assert store.fork_catalog("one", "copy", root=f"{tmp_path}/landed/da").parent == "one"
    # What a fork shares lies under the root of its parent, or outside as before.
    _refused(store, f"{tmp_path}/landed/day")


def test_a_name_cannot_be_occupied(store: CatalogStore, tmp_path: Path) -> None:
    """Below the root of the store nobody names what is not his own, whoever else's it is."""
    assert store.create_catalog("late").root == f"{tmp_path}/lakes/late/"
    assert store.create_catalog("later").root == f"{tmp_path}/lakes/later/"


@pytest.mark.parametrize("table", ["schema", "table", "delete_file", "scheduled"])
def test_whatever_names_it(store: CatalogStore, postgres_database: str, table: str) -> None:
    statement = {
        "schema": "UPDATE lake.ducklake_schema SET {}",
        "table": "UPDATE lake.ducklake_table SET {}",
        "delete_file": "INSERT INTO lake.ducklake_delete_file (delete_file_id, table_id, "
        "data_file_id, begin_snapshot, path, path_is_relative) "
        "SELECT next_file_id, 1, 1, 1, 's3a://Box/a/b/', false "
        "FROM lake.ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1",
        "scheduled": "INSERT INTO lake.ducklake_files_scheduled_for_deletion (data_file_id, path, "
        "path_is_relative, schedule_start) VALUES (1, 's3a://Box/a/b/', false, now())",
    }[table].format("path = 's3a://Box/a/b/', path_is_relative = false")
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(_CHOOSE)
        connection.execute(statement.encode())
    for root in ("s3://box/a/b", "S3N://BOX//a", "s3://box", "s3://box/a/"):
        _refused(store, root)
    inside = "s3://box/a/b/c"
    if table in ("schema", "table"):
        _refused(store, inside)  # clients of the other append to its directories
    else:
        assert store.create_catalog("new", root=inside).name == "new"
    assert store.create_catalog("beside", root="s3://box/a/bc").name == "beside"


def test_around_the_whole_store(postgres_database: str, tmp_path: Path) -> None:
    """Or no other catalog could ever be created."""
    store = CatalogStore(postgres_database)
    store.init(f"{tmp_path}/lakes")
    for root in ("/", f"{tmp_path}", f"{tmp_path}/lakes", f"file://{tmp_path}/lakes/"):
        with pytest.raises(SafetyRefusal, match="or around the whole store"):
            store.create_catalog("all", root=root)
    store.create_catalog("one")
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(_CHOOSE)
        for path in (f"{tmp_path}/", f"{tmp_path}/lakes/", f"{tmp_path}/la"):
            with pytest.raises(psycopg.Error, match="leaves the root of its catalog"):
                connection.execute(
                    "UPDATE lake.ducklake_schema SET path = %s, path_is_relative = false", (path,)
                )
