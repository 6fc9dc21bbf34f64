"""restore: the newest snapshot shows what an older one did, and every client can go on."""

from __future__ import annotations

from tests.interop.aftermath import life_goes_on
from tests.interop.judge import Judge

RESTORE = "restore"


def _stock_upkeep(judge: Judge, table: str) -> None:
    """Let the reference do all its own upkeep, and compare what it leaves."""
    schema, _, name = table.partition(".")
    judge.client.sql("CALL ducklake_flush_inlined_data('lake')")
    judge.accept({})
    judge.check()
    judge.client.sql(f"CALL ducklake_merge_adjacent_files('lake', '{name}', schema => '{schema}')")
    judge.accept({})
    judge.check()
    judge.client.sql(
        f"CALL ducklake_rewrite_data_files('lake', '{name}', schema => '{schema}', "
        "delete_threshold => 0)"
    )
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
