"""Life after an operation: a stock client goes on, and our operations work on what it did.

It costs more than most of what it follows. So the tests of an operation end with it where they
leave a table in a state that no other one leaves it in.
"""

from __future__ import annotations

from tests.interop.judge import Judge


def life_goes_on(judge: Judge, table: str) -> None:
    """Let the reference write, delete, update and alter, then flush, merge and rewrite.

    Args:
        judge: The lake.
        table: A table whose first column is a whole number; it gets one column more.
    """
    with judge.without_checks():
        _write(judge, table)
        judge.upkeep("flush_inlined_data", table)
        judge.upkeep("merge_adjacent_files", table)
        judge.upkeep("rewrite_data_files", table, delete_threshold=0)
        judge.upkeep("merge_adjacent_files", table)
    judge.check(table)
    judge.check_statistics(table)
    key = judge.table(table).columns[0]
    judge.check_counts(table, {f"{key} = 990": 1, "afterwards = 8": 1})


def _write(judge: Judge, table: str) -> None:
    key, *others = judge.table(table).columns
    rest = tuple(None for _ in others)
    judge.insert_values(table, (900, *rest))
    judge.insert_values(table, *((number, *rest) for number in range(901, 925)))
    judge.delete(table, f"{key} % 5 = 1", lambda row: row[key] is not None and row[key] % 5 == 1)
    judge.update(
        table,
        {key: f"{key} + 1000"},
        f"{key} >= 920",
        lambda row: row[key] is not None and row[key] >= 920,
        lambda row: {key: row[key] + 1000},
    )
    judge.alter(
        table,
        "ADD COLUMN afterwards INTEGER DEFAULT 7",
        lambda model: model.add_column("afterwards", 7),
    )
    judge.insert_values(table, (990, *rest, 8))
