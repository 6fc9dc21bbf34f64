"""What a plan of the fleet proposes is done: maintenance follows the policy it was planned by."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from airflow_provider_ducklake.lake.store.fleet_policy import STEPS, FleetBatch, FleetPolicy
from tests.support.fleets import Fleet

POLICY = FleetPolicy(
    small_file_size=8 * 1024, min_small_files=3, delete_threshold=0.4, retain_last=5
)
CREATE = "CREATE TABLE {} (i INTEGER, s VARCHAR)"
BY_S = "ALTER TABLE {} SET PARTITIONED BY (s)"
SMALL = "INSERT INTO {} SELECT i, 'r' FROM range(100) r(i)"
LARGE = "INSERT INTO {} SELECT i, md5(i::VARCHAR) FROM range(1000) r(i)"
INLINED = "INSERT INTO {} VALUES (1, 'a')"
# What may stand in a catalog, table by table, for which there is nothing to do: neither a plan nor
# maintenance finds any.
NO_WORK: dict[str, list[str]] = {
    "few": [CREATE, SMALL, SMALL],
    "large": [CREATE, LARGE, LARGE, LARGE],
    "versions": [CREATE, SMALL]
    + [
        statement
        for column in "xy"
        for statement in (
            f"ALTER TABLE {{}} ADD COLUMN {column} INTEGER",
            f"INSERT INTO {{}} (i, {column}) SELECT i, i FROM range(100) r(i)",
        )
    ],
    "partitions": [CREATE, BY_S, *(SMALL.replace("'r'", f"'{value}'") for value in "abc")],
    "low_target": [
        CREATE,
        "CALL lake.set_option('target_file_size', '0.1KB', table_name => '{}')",
        *[SMALL] * 3,
    ],
    # Less than is rewritten, and before that they cannot be merged.
    "deletes": [CREATE, *[SMALL] * 3, "DELETE FROM {} WHERE i < 30"],
    "by_hand": [
        CREATE,
        "CALL lake.set_option('auto_compact', 'false', table_name => '{}')",
        *[SMALL] * 3,
        "DELETE FROM {} WHERE i < 90",
        INLINED,
    ],
    "dropped": [CREATE, INLINED, "DROP TABLE {}"],
}
MERGE, REWRITE, FLUSH = "merge_adjacent_files", "rewrite_data_files", "flush_inlined_data"
# What there is to do for a table, and how many files are left of it then.
WORK: dict[str, tuple[list[str], str, int]] = {
    "plain": ([CREATE, *[SMALL] * 3], MERGE, 1),
    # Large files are not merged with small ones.
    "mixed": ([CREATE, *[LARGE] * 2, *[SMALL] * 3], MERGE, 3),
    # 3 and 2 files of two partitions.
    "partition": (
        [CREATE, BY_S, *(SMALL.replace("'r'", f"'{value}'") for value in "ababa")],
        MERGE,
        3,
    ),
    "half": ([CREATE, SMALL, "DELETE FROM {} WHERE i < 50"], REWRITE, 1),
    "inlined": ([CREATE, INLINED], FLUSH, 1),
    "inlined_delete": ([CREATE, SMALL, "DELETE FROM {} WHERE i = 7"], FLUSH, 1),
}


@pytest.fixture
def fleet(postgres_database: str, tmp_path: Path) -> Fleet:
    """A store without catalogs."""
    return Fleet(postgres_database, tmp_path)


def make(fleet: Fleet, name: str, tables: dict[str, list[str]]) -> None:
    """Create a catalog whose clients inline up to ten rows, and fill tables of it."""
    fleet.store.create_catalog(name, inlining_row_limit=10)
    with closing(fleet.client(name)) as client:
        for table, statements in tables.items():
            for statement in statements:
                client.sql(statement.format(table))


def needs(fleet: Fleet, policy: FleetPolicy = POLICY) -> dict[str, tuple[str, ...]]:
    """Return what each catalog needs."""
    return {work.catalog: work.steps for work in fleet.store.plan_fleet(policy).work}


def files_of(fleet: Fleet, name: str) -> dict[str, int]:
    """Return how many live files each table of a catalog has."""
    with psycopg.connect(fleet.conninfo) as connection:
        query = (
            "SELECT table_name, count(*) FROM ducklake_api.data_files "
            "WHERE catalog_name = %s GROUP BY 1"
        )
        return dict(connection.execute(query, (name,)).fetchall())


def test_what_is_planned_is_done(fleet: Fleet) -> None:
    """And nothing else: for whatever is not planned, maintenance would not change anything."""
    for name, (statements, _, _) in WORK.items():
        make(fleet, name, {name: statements, "tidy": [CREATE, SMALL]})
    make(fleet, "none", NO_WORK)
    plan = fleet.store.plan_fleet(POLICY)
    assert needs(fleet) == {name: (step,) for name, (_, step, _) in WORK.items()}
    (batch,) = plan.batches
    result = fleet.maintain(FleetBatch({**batch.catalogs, "none": STEPS}, batch.policy))
    assert not result.is_failed, result.failures
    with psycopg.connect(fleet.conninfo) as connection:
        ledger = connection.execute(
            "SELECT catalog_name, array_agg(operation) FROM ducklake_api.maintenance "
            "WHERE changed GROUP BY 1"
        ).fetchall()
        connection.execute("DELETE FROM ducklake.maintenance_ledger")
    assert dict(ledger) == {name: [step] for name, (_, step, _) in WORK.items()}
    # That the plan is empty is not because anything is held back.
    assert needs(fleet) == {}
    for name, (_, _, left) in WORK.items():
        assert files_of(fleet, name) == {name: left, "tidy": 1}


def test_old_snapshots_that_are_kept_are_no_work(fleet: Fleet) -> None:
    make(fleet, "idle", {f"t{n}": [CREATE] for n in range(3)})
    make(fleet, "long", {f"t{n}": [CREATE] for n in range(6)})
    with psycopg.connect(fleet.conninfo) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE ducklake.ducklake_snapshot SET snapshot_time = now() - interval '40 days'"
        )
    plan = fleet.store.plan_fleet(POLICY)
    assert [work.catalog for work in plan.work] == ["long"]
    result = fleet.maintain(plan.batches[0])
    assert result.counts["snapshots_expired"] == 2
    assert needs(fleet) == {}


def test_what_only_maintenance_can_see_is_held_back_for_a_day(fleet: Fleet) -> None:
    """A scheduled file that a table reads: nothing in its row tells."""
    make(fleet, "odd", {"t": [CREATE, SMALL]})
    with psycopg.connect(fleet.conninfo) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "INSERT INTO ducklake.ducklake_files_scheduled_for_deletion SELECT f.catalog_id, "
            "f.data_file_id, s.path || t.path || f.path, true, now() - interval '9 days' "
            "FROM ducklake.ducklake_data_file f JOIN ducklake.ducklake_table t "
            "USING (catalog_id, table_id) JOIN ducklake.ducklake_schema s "
            "USING (catalog_id, schema_id)"
        )
    for again in (None, "new snapshot", "a day later"):
        if again == "new snapshot":
            with closing(fleet.client("odd")) as client:
                client.sql(SMALL.format("t"))
        if again == "a day later":
            with psycopg.connect(fleet.conninfo) as connection:
                connection.execute(
                    "UPDATE ducklake.maintenance_ledger "
                    "SET started_at = started_at - interval '1 day'"
                )
        plan = fleet.store.plan_fleet(POLICY)
        assert {work.catalog: work.steps for work in plan.work} == {"odd": ("cleanup_old_files",)}
        result = fleet.maintain(plan.batches[0])
        assert not result.is_failed, result.failures
        assert result.counts["files_deleted"] == 0
        assert needs(fleet) == {}


def test_a_giant_takes_its_share_and_no_more(fleet: Fleet) -> None:
    """The rest is in the result and in the ledger, and is done by the next plans."""
    make(fleet, "giant", {"t": [CREATE, *[SMALL] * 8], "u": [CREATE, *[SMALL] * 3]})
    (work,) = fleet.store.plan_fleet(POLICY).work
    # A third of it, in outputs of two files.
    policy = FleetPolicy(
        min_small_files=2, target_file_size=work.size // 7, max_bytes=work.size // 3, max_share=1
    )
    done: list[tuple[int, int]] = []  # files read, and left for the next run
    while batches := fleet.store.plan_fleet(policy).batches:
        assert batches[0].catalogs == {"giant": (MERGE,)}
        result = fleet.maintain(batches[0])
        assert not result.is_failed, result.failures
        with psycopg.connect(fleet.conninfo) as connection:
            entry = connection.execute(
                "SELECT files_in, files_left FROM ducklake_api.maintenance "
                "ORDER BY started_at DESC LIMIT 1"
            ).fetchone()
        assert entry is not None
        assert entry[1] == result.counts.get("files_left_for_the_next_run", 0)
        done.append(entry)
    assert done[0] == (4, 6)
    assert len(done) > 2
    assert all(read <= 4 for read, _ in done)
    assert done[-1][1] == 0
