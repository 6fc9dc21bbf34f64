"""One tenant's absurd numbers break no plan, list or view of the others; honest ones are right."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.store.fleet_policy import FleetPolicy
from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.support.lakes import stock_client

HUGE = 9 * 10**18


@pytest.fixture
def store(postgres_database: str, tmp_path: Path) -> CatalogStore:
    """A store with the catalogs `odd` and `good`."""
    store = CatalogStore(postgres_database)
    store.init(f"{tmp_path}/lakes")
    for name in ("odd", "good"):
        store.create_catalog(name)
    return store


def write_numbers(conninfo: str, files: list[tuple[int, int, int]]) -> None:
    """Give a table of `odd` files of some (bytes, rows, deleted rows), past every check."""
    with psycopg.connect(conninfo) as connection:
        connection.execute("SET session_replication_role = replica")
        checks = connection.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint "
            "WHERE contype = 'c' AND conname LIKE 'range_of%%'"
        ).fetchall()
        for table, name in checks:
            drop = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}")
            connection.execute(drop.format(sql.Identifier(*table.split(".")), sql.Identifier(name)))
        connection.execute(
            "INSERT INTO ducklake.ducklake_table (catalog_id, table_id, table_uuid, "
            "begin_snapshot, schema_id, table_name, path, path_is_relative) "
            "VALUES (1, (1::bigint << 32) + 1, gen_random_uuid(), 0, "
            "(SELECT schema_id FROM ducklake.ducklake_schema WHERE catalog_id = 1), "
            "'t', 't/', true)"
        )
        for at, (size, rows, deleted) in enumerate(files):
            connection.execute(
                "INSERT INTO ducklake.ducklake_data_file (catalog_id, data_file_id, table_id, "
                "begin_snapshot, path, path_is_relative, record_count, file_size_bytes) "
                "VALUES (1, %s, (1::bigint << 32) + 1, 0, 'x', true, %s, %s)",
                (at, rows, size),
            )
            connection.execute(
                "INSERT INTO ducklake.ducklake_delete_file (catalog_id, delete_file_id, table_id, "
                "data_file_id, begin_snapshot, path, path_is_relative, delete_count) "
                "VALUES (1, %s, (1::bigint << 32) + 1, %s, 0, 'x', true, %s)",
                (at + 1000, at, deleted),
            )
        connection.execute(
            "INSERT INTO ducklake.ducklake_table_stats (catalog_id, table_id, record_count, "
            "next_row_id, file_size_bytes) SELECT 1, x, 1, 1, %s FROM generate_series(1, 2) x",
            (HUGE,),
        )


@pytest.mark.parametrize(
    "files",
    [
        [(-4 * 1024**2, 10, 10)],  # as many bytes below nothing as one step costs
        [(-HUGE, 10, 10)] * 10,
        [(HUGE, HUGE, HUGE)] * 3,
        [(HUGE, -HUGE, HUGE)] * 3,
        [(5, 0, 0), (0, -1, -1)],
    ],
)
def test_absurd_numbers(
    store: CatalogStore, postgres_database: str, files: list[tuple[int, int, int]]
) -> None:
    write_numbers(postgres_database, files)
    with closing(stock_client(postgres_database, "good")) as client:
        client.sql("CREATE TABLE t (i INTEGER)")
        for _ in range(6):
            client.sql("INSERT INTO t SELECT i FROM range(100) r(i)")
    plan = store.plan_fleet()
    assert plan.size >= 0
    assert "good" in {work.catalog for work in plan.work}
    assert all(work.size >= 0 and work.score >= 0 for work in plan.work)
    assert [entry.size >= 0 for entry in store.list_catalogs()] == [True, True]
    with psycopg.connect(postgres_database) as connection:
        for view in ("health", "tables", "data_files"):
            name = sql.Identifier("ducklake_api", view)
            found = connection.execute(sql.SQL("SELECT * FROM {}").format(name)).fetchall()
            assert {row[0] for row in found} == {"good", "odd"}


def test_rows_and_bytes_are_those_of_the_newest_snapshot(
    store: CatalogStore, postgres_database: str
) -> None:
    with closing(stock_client(postgres_database, "good")) as client:
        client.sql("CREATE TABLE t (i INTEGER)")
        for start in range(0, 600, 100):
            client.sql(f"INSERT INTO t SELECT i FROM range({start}, {start + 100}) r(i)")
        second = client.snapshot_ids()[2]
        client.sql("DELETE FROM t WHERE i % 12 = 0")
        client.sql("DELETE FROM t WHERE i < 100")
    store.fork_catalog("good", "early", snapshot_id=second)
    store.fork_catalog("good", "late")
    with psycopg.connect(postgres_database) as connection:
        found = connection.execute(
            "SELECT catalog_name, record_count, file_size_bytes FROM ducklake_api.tables ORDER BY 1"
        ).fetchall()
        files = {
            str(name): (rows, size)
            for name, rows, size in connection.execute(
                "SELECT catalog_name, sum(record_count - delete_count)::bigint, "
                "sum(file_size_bytes)::bigint FROM ducklake_api.data_files GROUP BY 1"
            )
        }
    kept = sum(i >= 100 and i % 12 > 0 for i in range(600))
    expected = {"early": 100, "good": kept, "late": kept}
    assert {name: rows for name, rows, _ in found} == expected
    assert {name: (rows, size) for name, rows, size in found} == files
    for name, rows in expected.items():
        with closing(stock_client(postgres_database, name)) as client:
            assert client.sql("SELECT count(*) FROM t") == [(rows,)]
    sizes = {entry.name: entry.size for entry in store.list_catalogs()}
    assert sizes == {name: size for name, (_, size) in files.items()} | {"odd": 0}


@pytest.mark.parametrize("age", ["expire_older_than", "delete_older_than"])
@pytest.mark.parametrize("text", ["bananas", "2026-01-01", "", "99999999999 days"])
def test_ages_that_are_none(age: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{age} of a fleet plan"):
        FleetPolicy(**{age: text})  # type: ignore[arg-type]


def test_ages_a_plan_takes(store: CatalogStore, postgres_database: str) -> None:
    """The same forms as maintenance: ages as people and DuckDB write them, and instants."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "INSERT INTO ducklake.ducklake_files_scheduled_for_deletion "
            "SELECT 1, 1, 'x', true, '2026-01-02 00:00:00+00'"
        )
    for text, due in (
        ("2026-01-02 05:29:59+05:30", 0),
        ("2026-01-02 05:30:01+05:30", 1),
        ("48:00:00", 1),
        ("1d12h", 1),
        ("90m", 1),
    ):
        plan = store.plan_fleet(FleetPolicy(delete_older_than=text))
        assert plan.catalogs == due, text
