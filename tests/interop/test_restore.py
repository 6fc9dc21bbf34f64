"""restore: the newest snapshot shows what an older one did, and every client can go on."""

from __future__ import annotations

import duckdb
import pytest

from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.errors import CommitConflict, SafetyRefusal
from airflow_provider_ducklake.lake.restore import plan_table_restore
from airflow_provider_ducklake.lake.restore_commit import commit_restore
from tests.interop.aftermath import life_goes_on
from tests.interop.judge import Judge
from tests.support.lakes import on_two_kinds

RESTORE = "restore"


def _stock_upkeep(judge: Judge, table: str) -> None:
    """Let the reference do all its own upkeep, and compare what it leaves."""
    schema, _, name = table.partition(".")
    of_table = f"'lake', '{name}', schema => '{schema}'"
    for call in (
        "ducklake_flush_inlined_data('lake')",
        f"ducklake_merge_adjacent_files({of_table})",
        f"ducklake_rewrite_data_files({of_table}, delete_threshold => 0)",
    ):
        judge.client.sql(f"CALL {call}")
        judge.accept({})
    judge.check()


def _stock_expiry(judge: Judge) -> None:
    """Let the reference expire all snapshots but the newest and delete what they needed."""
    kept = judge.model.kept[:-1]
    listed = ", ".join(map(str, kept))
    judge.client.sql(f"CALL ducklake_expire_snapshots('lake', versions => [{listed}])")
    judge.model.expire(kept)
    judge.client.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    judge.check()


def _fill(judge: Judge, table: str = "main.t") -> int:
    """Create a table with a data file and some deleted rows; return the snapshot."""
    judge.create_table(table, {"id": "INTEGER", "v": "VARCHAR"})
    judge.insert_values(table, *((i, f"v{i}") for i in range(40)))
    judge.delete(table, "id IN (3, 4)", lambda row: row["id"] in (3, 4))
    judge.insert_values(table, (100, "small"))
    return judge.model.head


def test_rows_come_and_go(judge: Judge) -> None:
    """Deletes, updates and inserts since are undone, small ones and large ones."""
    target = _fill(judge)
    judge.delete("main.t", "id < 20", lambda row: row["id"] < 20)
    judge.update(
        "main.t", {"v": "'new'"}, "id > 30", lambda r: r["id"] > 30, lambda r: {"v": "new"}
    )
    judge.insert_values("main.t", *((i, "late") for i in range(200, 230)))
    judge.insert_values("main.t", (300, "late"))
    planned = judge.dry_run(RESTORE, "main.t", snapshot=target)
    result = judge.restore(target, "main.t")
    assert planned.tables[0].rows == result.tables[0].rows > 0
    assert planned.tables[0].deleted_rows == result.tables[0].deleted_rows > 0
    _stock_upkeep(judge, "main.t")
    life_goes_on(judge, "main.t")
    _stock_expiry(judge)


def test_whole_files_come_back(judge: Judge) -> None:
    """A file that was deleted as a whole is hidden from the snapshots without it alone."""
    target = _fill(judge)
    judge.delete("main.t", "true", lambda row: True)
    judge.insert_values("main.t", *((i, "x") for i in range(500, 530)))
    judge.restore(target, "main.t")
    _stock_upkeep(judge, "main.t")
    _stock_expiry(judge)
    life_goes_on(judge, "main.t")


def test_shapes_come_back(judge: Judge) -> None:
    """Columns, types, names, partitioning and inlined rows of several schema versions."""
    judge.create_table("main.t", {"id": "INTEGER", "a": "INTEGER", "b": "VARCHAR"})
    judge.alter("main.t", "SET PARTITIONED BY (a)")
    judge.insert_values("main.t", *((i, i % 2, "x") for i in range(30)))
    judge.insert_values("main.t", (100, 1, "small"), (101, 2, "small"))
    target = judge.model.head
    judge.alter("main.t", "RESET PARTITIONED BY")
    judge.alter("main.t", "ALTER COLUMN a TYPE BIGINT")
    judge.insert_values("main.t", *((i, 1 << 40, "big") for i in range(200, 230)))
    judge.alter("main.t", "RENAME COLUMN b TO c", lambda t: t.rename_column("b", "c"))
    judge.alter("main.t", "DROP COLUMN c", lambda t: t.drop_column("c"))
    judge.alter("main.t", "ADD COLUMN d INTEGER DEFAULT 9", lambda t: t.add_column("d", 9))
    judge.insert_values("main.t", (300, 1 << 50, 1))
    judge.delete("main.t", "id = 100", lambda row: row["id"] == 100)
    judge.rename_table("main.t", "renamed")
    judge.client.sql("COMMENT ON TABLE main.renamed IS 'new'")
    judge.accept({})
    judge.restore(target, "main.t", now={"main.t": "main.renamed"})
    judge.check_counts("main.t", {"a = 1": 16, "b = 'small'": 2, "id = 100": 1})
    # Few rows stay in the catalog, in a table of the shape the lake's table has again.
    judge.insert_values("main.t", (400, 7, "after"))
    judge.insert_values("main.t", *((i, 8, "after") for i in range(410, 440)))
    judge.check_counts("main.t", {"a = 7": 1, "a = 8": 30, "b = 'after'": 31})
    _stock_upkeep(judge, "main.t")
    _stock_expiry(judge)
    life_goes_on(judge, "main.t")


@on_two_kinds
def test_dropped_and_recreated(judge: Judge) -> None:
    """A dropped table comes back with its files as they were; one of its name keeps it away."""
    target = _fill(judge)
    files = judge.lake.stored_files()
    judge.drop_table("main.t")
    judge.create_table("main.t", {"other": "INTEGER"})
    judge.insert_values("main.t", *((i,) for i in range(30)))
    with pytest.raises(AssertionError, match="another table or view has that name"):
        judge.operations.run(RESTORE, "main.t", snapshot=target)
    judge.rename_table("main.t", "newer")
    before = judge.lake.stored_files()
    judge.restore(target, "main.t", now={"main.t": None})
    assert judge.lake.stored_files() == before, "nothing needs to be written"
    assert files.keys() < before.keys()
    _stock_upkeep(judge, "main.t")
    _stock_expiry(judge)


def test_the_whole_lake(judge: Judge) -> None:
    """Schemas, views, macros, comments and tables are those of the snapshot again."""
    run = judge.client.sql
    run("CREATE SCHEMA s")
    judge.accept({})
    target = _fill(judge, "s.t")
    run("CREATE VIEW s.v AS SELECT id FROM s.t")
    run("CREATE MACRO main.twice(x) AS 2 * x")
    run("COMMENT ON TABLE s.t IS 'first'")
    judge.accept({})
    target = judge.model.head
    judge.create_table("main.later", {"id": "INTEGER"})
    judge.insert_values("main.later", *((i,) for i in range(30)))
    run("DROP VIEW s.v")
    run("DROP MACRO main.twice")
    run("CREATE MACRO main.thrice(x) AS 3 * x")
    judge.accept({})
    judge.execute("DROP SCHEMA s CASCADE", {"s.t": None})
    planned = judge.dry_run(RESTORE, snapshot=target)
    told = " ".join(planned.messages)
    for word in ("comes back: table s.t, schema s", "view v", "macro twice", "macro thrice"):
        assert word in told
    judge.restore(target, now={"s.t": None})
    judge.client.release()
    assert run("SELECT count(*), main.twice(4) FROM s.v") == [(39, 8)]
    assert run("SELECT comment FROM duckdb_tables() WHERE table_name = 't'") == [("first",)]
    with pytest.raises(duckdb.Error, match="thrice"):
        run("SELECT main.thrice(1)")
    before = judge.fingerprint()
    assert judge.operations.run(RESTORE, snapshot=target).messages[-1].endswith("to restore")
    assert judge.fingerprint() == before, "there was nothing to restore the second time"
    _stock_upkeep(judge, "s.t")
    _stock_expiry(judge)


@on_two_kinds
def test_two_schemas_of_one_name(judge: Judge) -> None:
    """A schema does not come back while a kept snapshot shows another one of its name."""
    run = judge.client.sql
    run("CREATE SCHEMA s")
    judge.accept({})
    target = _fill(judge, "s.t")
    judge.execute("DROP SCHEMA s CASCADE", {"s.t": None})
    run("CREATE SCHEMA s")
    judge.accept({})
    before = judge.fingerprint()
    with pytest.raises(SafetyRefusal, match="another schema of that name"):
        judge.operations.run(RESTORE, snapshot=target)
    assert judge.fingerprint() == before
    run("DROP SCHEMA s")
    judge.accept({})
    judge.expire([judge.model.head - 1], versions=judge.model.head - 1)
    judge.restore(target, now={"s.t": None})
    _stock_expiry(judge)


@on_two_kinds
def test_back_and_forth(judge: Judge) -> None:
    """A restore can be undone by another, over merged and rewritten files too."""
    judge.create_table("main.t", {"id": "INTEGER", "v": "VARCHAR"})
    for start in (0, 30, 60):
        judge.insert_values("main.t", *((i, "x") for i in range(start, start + 30)))
    early = judge.model.head - 1
    judge.delete("main.t", "id % 7 = 0", lambda row: row["id"] % 7 == 0)
    judge.insert_values("main.t", *((i, "y") for i in range(100, 130)))
    late = judge.model.head
    judge.upkeep("rewrite_data_files", delete_threshold=0)
    judge.upkeep("merge_adjacent_files")
    for target in (early, late, early):
        judge.restore(target, "main.t")
    judge.insert_values("main.t", (1000, "z"))
    judge.restore(late)
    judge.delete("main.t", "id < 50", lambda row: row["id"] < 50)
    _stock_upkeep(judge, "main.t")
    _stock_expiry(judge)


@on_two_kinds
def test_rows_of_a_merged_file(judge: Judge) -> None:
    """Of a file merged since, the rows that came after the snapshot go one by one."""
    judge.create_table("main.t", {"id": "INTEGER", "v": "VARCHAR"})
    for start in (0, 30, 60):
        judge.insert_values("main.t", *((i, "x") for i in range(start, start + 30)))
    target = judge.model.head - 1
    judge.upkeep("merge_adjacent_files")
    result = judge.restore(target, "main.t")
    assert (result.tables[0].rows, result.tables[0].deleted_rows) == (0, 30)
    judge.check_counts("main.t", {"true": 60, "id = 75": 0})
    _stock_upkeep(judge, "main.t")
    _stock_expiry(judge)


@on_two_kinds
def test_deletion_vectors(judge: Judge) -> None:
    """Deletes of the snapshot that lie in a puffin file are in force again."""
    judge.create_table("main.t", {"id": "INTEGER", "v": "VARCHAR"})
    judge.insert_values("main.t", *((i, "x") for i in range(40)))
    judge.client.set_option("write_deletion_vectors", "true")
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.delete("main.t", "id < 3", lambda row: row["id"] < 3)
    target = judge.model.head
    # Fault of the reference: its second deletion vector of a file takes the first one's rows back
    # at the snapshots in between.
    judge.client.set_option("write_deletion_vectors", "false")
    judge.delete("main.t", "true", lambda row: True)
    judge.restore(target, "main.t")
    judge.check_counts("main.t", {"true": 37})
    _stock_expiry(judge)


@on_two_kinds
def test_older_snapshots_can_be_filtered(judge: Judge) -> None:
    """The statistics of the table hold for the rows that went, which older snapshots show."""
    target = _fill(judge)
    judge.insert_values("main.t", *((i, "late") for i in range(900, 930)))
    late = judge.model.head
    judge.restore(target, "main.t")
    count = f"SELECT count(*) FROM main.t AT (VERSION => {late}) WHERE id = 915"
    assert judge.client.sql(count) == [(1,)]
    assert judge.client.sql("SELECT min(id), max(id), count(*) FROM main.t") == [(0, 100, 39)]


@on_two_kinds
def test_change_feed(judge: Judge) -> None:
    """The feed tells of every row that goes; of rows that come back in a file it does not."""
    target = _fill(judge)
    judge.insert_values("main.t", *((i, "late") for i in range(200, 230)))
    judge.restore(target, "main.t")
    head = judge.model.head
    feed = judge.client.table_changes("main.t", head, head)
    gone = {row[3] for row in feed if row[2] == "delete"}
    assert gone == set(range(200, 230))


def test_a_writer_in_between(judge: Judge) -> None:
    """A client with a write in progress cannot commit it, whatever it writes."""
    statements = (
        "DELETE FROM main.t WHERE id < 20",
        "DELETE FROM main.t WHERE id = 30",
        "INSERT INTO main.t (id) VALUES (1)",
        "ALTER TABLE main.t ADD COLUMN n INTEGER",
    )
    if judge.lake.kind == "duckdb":
        return  # nobody else can have the catalog open meanwhile
    target = _fill(judge)
    judge.insert_values("main.t", *((i, "late") for i in range(200, 230)))
    judge.alter("main.t", "ADD COLUMN m INTEGER", lambda table: table.add_column("m"))
    other = judge.lake.client()
    try:
        for statement in statements:
            other.sql("BEGIN")
            other.sql("SELECT count(*) FROM main.t")
            other.sql(statement)
            judge.restore(target, "main.t")
            # Or its session does not know the new table for inlined rows yet.
            with pytest.raises(duckdb.Error, match=r"(?i)conflict|inlined_data\w* does not exist"):
                other.sql("COMMIT")
            other.forget()
            target = judge.model.head - 1
    finally:
        other.forget()
    judge.check()


@on_two_kinds
def test_a_change_in_between(judge: Judge) -> None:
    """What others did to the table since the plan makes the commit a conflict."""
    target = _fill(judge)
    judge.delete("main.t", "id < 20", lambda row: row["id"] < 20)
    judge.client.make_way()
    lake = judge.operations.open()
    with lake.view() as view:
        plan = plan_table_restore(view, target, "main.t")
    judge.insert_values("main.t", *((i, "late") for i in range(200, 230)))
    judge.client.make_way()
    before = judge.fingerprint()
    with pytest.raises(CommitConflict):
        commit_restore(lake, plan, {}, name="main.t")
    assert judge.fingerprint() == before


@on_two_kinds
def test_a_retry_finds_its_commit(judge: Judge) -> None:
    """Under one key a restore is made once, whatever happened since."""
    target = _fill(judge)
    judge.delete("main.t", "id < 20", lambda row: row["id"] < 20)
    info = CommitInfo(key="run-1")
    for tables in (("main.t",), ()):
        first = judge.operations.run(RESTORE, *tables, snapshot=target, commit=info)
        if tables:
            judge.accept({"main.t": judge.model.tables_at(target)["main.t"]})
            judge.insert_values("main.t", (500, "kept"))
            again = judge.operations.run(RESTORE, *tables, snapshot=target, commit=info)
            assert again.already_done
            assert again.tables[0].rows == first.tables[0].rows
    judge.accept({"main.t": judge.model.tables_at(target)["main.t"]})


@on_two_kinds
def test_nothing_to_restore(judge: Judge) -> None:
    """The newest snapshot, and a table nobody touched, make no snapshot."""
    target = _fill(judge)
    before = judge.fingerprint()
    newest = judge.operations.run(RESTORE, snapshot=target)
    assert newest.snapshot_after == target
    assert "is the newest" in newest.messages[0]
    assert judge.fingerprint() == before
    judge.create_table("main.other", {"id": "INTEGER"})
    result = judge.restore(target, "main.t")
    assert result.snapshot_after == result.snapshot_before
    assert judge.operations.run(RESTORE, "main.t", at="0 seconds").messages
