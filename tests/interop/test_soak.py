"""Everybody at once on a lake in SQLite, then in PostgreSQL; DUCKLAKE_SOAK_SECONDS says how long.

Every worker knows exactly what it committed, and no two have ids in common.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Final

import pytest

from tests.interop import soak
from tests.interop.judge import Judge
from tests.support.killed import PROCESSES
from tests.support.lakes import LakeUnderTest

SECONDS: Final = float(os.environ.get("DUCKLAKE_SOAK_SECONDS") or 30)
WORKERS: Final = (
    *(soak.stock_writer, soak.stock_writer, soak.our_writer, soak.our_writer),
    *(soak.compactor, soak.cleaner),
)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 240)
@pytest.mark.parametrize("lake_factory", ["sqlite", "postgres"], indirect=True)
def test_everybody_at_once(lake_under_test: LakeUnderTest) -> None:
    judge = Judge(lake_under_test)
    judge.client.set_option("data_inlining_row_limit", 5)
    judge.client.sql(f"CREATE TABLE {soak.TABLE} (id BIGINT, v BIGINT)")
    judge.client.close()
    expected = Counter[tuple[int, int]]()
    for name, rows, done in _work(judge):
        print(judge.lake.kind, name, dict(done))
        assert any("refused" not in what for what in done), "a worker never got its turn"
        if name == soak.cleaner.__name__:
            assert done["orphans swept"], "a file that nobody knows was never removed"
        expected.update(rows.items())
    _compare(judge, expected)
    judge.check_catalog()
    judge.check_soundness()
    # What those left who were beaten goes, and nothing else.
    run = judge.operations.run
    run("cleanup_old_files", cleanup_all=True, force=True)
    run("delete_orphaned_files", cleanup_all=True, force=True, max_fraction=1)
    assert not judge.unreferenced_files()
    _compare(judge, expected)
    judge.check_catalog()
    judge.close()


def _work(judge: Judge) -> list[tuple[str, soak.Rows, Counter[str]]]:
    """Let everybody work until the time is up; return what each says it did."""
    started = []
    for number, worker in enumerate(WORKERS):
        ours, theirs = PROCESSES.Pipe(duplex=False)
        arguments = (judge.lake.location, number, SECONDS, theirs)
        process = PROCESSES.Process(target=worker, args=arguments, name=worker.__name__)
        process.start()
        theirs.close()
        started.append((process, ours))
    told = []
    for process, ours in started:
        told.append((process.name, *ours.recv()))
        process.join(60)
        assert process.exitcode == 0
    return told


def _compare(judge: Judge, expected: Counter[tuple[int, int]]) -> None:
    assert Counter(judge.client.sql(f"SELECT id, v FROM {soak.TABLE}")) == expected
    ranges = range(0, len(WORKERS) * soak.RANGE, soak.RANGE)
    judge.check_counts(
        soak.TABLE,
        {
            f"id BETWEEN {first} AND {first + soak.RANGE - 1}": sum(
                first <= key < first + soak.RANGE for key, _ in expected.elements()
            )
            for first in ranges
        },
    )
    for snapshot in judge.client.snapshot_ids()[1:]:
        found = judge.client.sql(
            f"SELECT count(*), count(DISTINCT id) FROM {soak.TABLE} AT (VERSION => {snapshot})"
        )
        assert found[0][0] == found[0][1]
