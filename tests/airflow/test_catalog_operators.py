"""Operators, hook and connection on the catalogs of a shared store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from psycopg.conninfo import conninfo_to_dict

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.operators.catalog import (
    DuckLakeCatalogOperator,
    DuckLakeCreateCatalogOperator,
    DuckLakeDropCatalogOperator,
    DuckLakeForkCatalogOperator,
    DuckLakeGrantCatalogOperator,
    DuckLakePurgeCatalogsOperator,
    DuckLakeRenameCatalogOperator,
    DuckLakeRevokeCatalogOperator,
    DuckLakeStoreOperator,
)
from airflow_provider_ducklake.operators.compaction import DuckLakeMergeAdjacentFilesOperator
from airflow_provider_ducklake.operators.transfer import (
    DuckLakeExportCatalogOperator,
    DuckLakeImportCatalogOperator,
)
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from tests.airflow.conftest import Connect, StandIn, task_context

pytestmark = pytest.mark.airflow


@pytest.fixture
def root(shared_store: str, connect: Connect, tmp_path: Path) -> str:
    """A connection to the store, and a root for catalogs of this test."""
    extra = {"attach": f"ducklake:postgres:{shared_store}"}
    connect("ducklake_default", conn_type="ducklake", extra=extra)
    return str(tmp_path)


def run(operator: DuckLakeStoreOperator) -> Any:
    """Run an operator as a task does."""
    return operator.execute(task_context())


def test_the_life_of_a_catalog(root: str) -> None:
    def create(**arguments: Any) -> Any:
        return run(
            DuckLakeCreateCatalogOperator(
                task_id="x", catalog="op.one", root=f"{root}/one", **arguments
            )
        )

    made = create()
    assert create() == made
    assert made["root"] == f"{root}/one/"
    with pytest.raises(AirflowFailException, match="exists already"):
        create(if_not_exists="false")
    forked = run(
        DuckLakeForkCatalogOperator(
            task_id="x", source="op.one", catalog="op.two", root=f"{root}/two", snapshot_id="0"
        )
    )
    assert (forked["parent"], forked["parent_snapshot"]) == ("op.one", 0)
    rename = DuckLakeRenameCatalogOperator(task_id="x", catalog="op.two", new_name="op.three")
    assert run(rename)["catalog_id"] == forked["catalog_id"]
    for name in ("op.one", "op.three"):
        assert run(DuckLakeDropCatalogOperator(task_id="x", catalog=name))["name"] == name
    assert run(DuckLakeDropCatalogOperator(task_id="x", catalog="op.one", if_exists=True)) is None
    with pytest.raises(AirflowFailException, match=r'no catalog "op\.one"'):
        run(DuckLakeDropCatalogOperator(task_id="x", catalog="op.one"))
    with pytest.raises(AirflowFailException, match="catalog is given and comes to"):
        run(DuckLakeDropCatalogOperator(task_id="x", catalog=""))


def test_a_role_is_granted_what_it_was_made_for(root: str) -> None:
    create = DuckLakeCreateCatalogOperator(
        task_id="x", catalog="op.granted", root=f"{root}/g", role="nobody"
    )
    with pytest.raises(AirflowFailException, match='no role "nobody"'):
        run(create)
    DuckLakeHook("ducklake_default").store().drop_catalog("op.granted")


def test_granting_reading_only_and_revoking(root: str, shared_store: str) -> None:
    limit: dict[str, Any] = {"inlining_row_limit": "7"}
    made = run(
        DuckLakeCreateCatalogOperator(task_id="x", catalog="op.rights", root=f"{root}/r", **limit)
    )
    lake = DuckLakeHook("ducklake_default", catalog="op.rights").lake()
    with lake.view() as view:
        assert view.option("data_inlining_row_limit") == "7"
    store = DuckLakeHook("ducklake_default").store()
    role = str(conninfo_to_dict(shared_store)["user"])  # any login that is there
    for read_only in (True, "false"):
        granted = run(
            DuckLakeGrantCatalogOperator(
                task_id="x", catalog="op.rights", role=role, read_only=read_only
            )
        )
        with store.transaction() as connection:
            found = connection.execute(
                "SELECT writable FROM ducklake.catalog_grant WHERE catalog_id = %s",
                (made["catalog_id"],),
            ).fetchall()
        assert found == [(granted["writable"],)] == [(read_only == "false",)]
    for empty in ({"role": ""}, {"read_only": " "}):
        arguments: dict[str, Any] = {"role": role, **empty}
        with pytest.raises(AirflowFailException, match=next(iter(empty))):
            run(DuckLakeGrantCatalogOperator(task_id="x", catalog="op.rights", **arguments))
    revoke = DuckLakeRevokeCatalogOperator(task_id="x", catalog="op.rights", role=role)
    assert [run(revoke)["was"], run(revoke)["was"]] == [True, False]
    drop = DuckLakeDropCatalogOperator(task_id="x", catalog="op.rights", dry_run="true")
    assert run(drop)["name"] == store.catalog("op.rights").name
    store.drop_catalog("op.rights")
    assert run(DuckLakePurgeCatalogsOperator(task_id="x", dry_run="true"))["dry_run"] is True
    with pytest.raises(AirflowFailException, match="dropped less than 2 days ago"):
        run(DuckLakePurgeCatalogsOperator(task_id="x", older_than="1 hour"))
    with pytest.raises(AirflowFailException, match="older_than is given and comes to"):
        run(DuckLakePurgeCatalogsOperator(task_id="x", older_than=""))


def test_a_lake_goes_in_and_comes_out(root: str, connect: Connect) -> None:
    extra = {"attach": f"ducklake:sqlite:{root}/lake.sqlite", "data_path": f"{root}/data/"}
    connect("lake", conn_type="ducklake", extra=extra)
    Lake.create(DuckLakeHook("lake").location())
    with DuckLakeHook("lake").get_conn() as connection:
        connection.execute("CREATE TABLE t AS SELECT i FROM range(20) r(i)")

    def take(**arguments: Any) -> Any:
        return run(
            DuckLakeImportCatalogOperator(
                task_id="x", catalog="op.in", source_conn_id="lake", **arguments
            )
        )

    made = take(root="None")
    assert (made["name"], made["root"], made["parent"]) == ("op.in", f"{root}/data/", None)
    assert take() == made  # as a retry does
    with pytest.raises(AirflowFailException, match="exists already"):
        take(if_not_exists="false")
    with pytest.raises(AirflowFailException, match='no role "nobody"'):
        take(role="nobody")

    def write(**arguments: Any) -> Any:
        target = f"ducklake:duckdb:{root}/out.ducklake"
        return run(
            DuckLakeExportCatalogOperator(task_id="x", catalog="op.in", target=target, **arguments)
        )

    written = write()
    assert (written["snapshots"], written["tables"], written["data_files"]) == (2, 1, 1)
    assert write() == written  # as a retry does
    with DuckLakeHook("ducklake_default", catalog="op.in").get_conn() as connection:
        connection.execute("INSERT INTO t SELECT i FROM range(20) r(i)")
    with pytest.raises(AirflowFailException, match="an older export"):
        write()
    assert write(replace_older="true", snapshot_id="2")["newest_snapshot"] == 2
    out = {"attach": f"ducklake:duckdb:{root}/out.ducklake"}
    connect("out", conn_type="ducklake", extra=out)
    assert DuckLakeHook("out").get_records("SELECT count(*) FROM t") == [(40,)]
    run(DuckLakeDropCatalogOperator(task_id="x", catalog="op.in"))


@pytest.mark.parametrize("kind", DuckLakeCatalogOperator.__subclasses__())
def test_every_argument_is_templated(kind: type[DuckLakeCatalogOperator]) -> None:
    arguments = {
        "catalog": "c",
        "source": "s",
        "new_name": "n",
        "role": "r",
        "source_conn_id": "l",
        "target": "ducklake:duckdb:/x",
    }
    operator = kind(
        task_id="x", **{k: v for k, v in arguments.items() if k in kind.template_fields}
    )
    own = {name for name in kind.__init__.__annotations__ if name in vars(operator)}
    assert own <= set(kind.template_fields)
    assert {"ducklake_conn_id", "catalog"} < set(kind.template_fields)


def test_a_connection_and_an_argument_choose_the_catalog(
    root: str, shared_store: str, connect: Connect
) -> None:
    store = DuckLakeHook("ducklake_default").store()
    for name in ("op.a", "op.b"):
        store.create_catalog(name, root=f"{root}/{name}")
        with DuckLakeHook("ducklake_default", catalog=name).get_conn() as connection:
            connection.execute(f"CREATE TABLE t AS SELECT '{name}' AS v FROM range(20)")
    extra = {"attach": f"ducklake:postgres:{shared_store}", "catalog": "op.b"}
    connect("chosen", conn_type="ducklake", extra=extra)
    for hook, expected in (
        (DuckLakeHook("chosen"), "op.b"),
        (DuckLakeHook("chosen", catalog="op.a"), "op.a"),
    ):
        assert hook.lake().head().snapshot_id == 1
        assert hook.get_records("SELECT DISTINCT v FROM t") == [(expected,)]
        assert hook.test_connection()[0]
    works, message = DuckLakeHook("ducklake_default").test_connection()
    assert works, message
    assert re.search(r"store with \d+ catalogs, data path .* readable and writable", message)
    for name in ("op.a", "op.b"):
        store.drop_catalog(name)


def test_a_database_without_lake_and_store(postgres_database: str, connect: Connect) -> None:
    extra = {"attach": f"ducklake:postgres:{postgres_database}"}
    connect("ducklake_default", conn_type="ducklake", extra=extra)
    works, message = DuckLakeHook().test_connection()
    assert not works
    assert "holds no DuckLake" in message


def test_every_job_is_told_the_catalog(root: str, spark: StandIn) -> None:
    merge = DuckLakeMergeAdjacentFilesOperator(task_id="x", catalog="acme", dry_run=True)
    merge.execute(task_context())
    (attach,) = [argument for argument in spark.job if argument.startswith("--attach=")]
    assert "ducklake.catalog=acme" in attach
    assert "--metadata-schema=lake" in spark.job
    assert "catalog" in DuckLakeMergeAdjacentFilesOperator.template_fields
    assert "catalog" in DuckLakeSnapshotSensor.template_fields


def test_a_file_holds_one_catalog(connect: Connect) -> None:
    for conn_id, extra in (
        ("file", {"catalog_type": "sqlite", "path": "/c.db", "catalog": "acme"}),
        ("string", {"attach": "ducklake:sqlite:/c.db", "catalog": "acme"}),
    ):
        connect(conn_id, conn_type="ducklake", extra=extra)
        with pytest.raises(ConfigurationError, match="only a store in PostgreSQL holds several"):
            DuckLakeHook(conn_id).location()
