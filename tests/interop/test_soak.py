"""Everybody at once on a lake in SQLite and one in PostgreSQL; DUCKLAKE_SOAK_SECONDS says how long.

Every worker knows exactly what it committed, and no two have ids in common.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.interop import soak
from tests.interop.judge import Judge
from tests.support.killed import PROCESSES
from tests.support.lakes import LakeFactory

SECONDS: Final = float(os.environ.get("DUCKLAKE_SOAK_SECONDS") or 60)
WORKERS: Final = (
    *(soak.stock_writer, soak.stock_writer, soak.our_writer, soak.our_writer),
    *(soak.compactor, soak.cleaner),
)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 240)
def test_everybody_at_once(scratch_directory: Path, postgres_database: str) -> None:
    judges = [
        Judge(LakeFactory("sqlite", scratch_directory).create()),
        Judge(LakeFactory("postgres", scratch_directory, postgres_database).create()),
    ]
    started = []
    for judge in judges:
        judge.client.set_option("data_inlining_row_limit", 5)
        judge.client.sql(f"CREATE TABLE {soak.TABLE} (id BIGINT, v BIGINT)")
        judge.client.close()
        for number, worker in enumerate(WORKERS):
            ours, theirs = PROCESSES.Pipe(duplex=False)
            arguments = (judge.lake.location, number, SECONDS, theirs)
            process = PROCESSES.Process(target=worker, args=arguments, name=worker.__name__)
            process.start()
            theirs.close()
            started.append((judge, process, ours))
    expected: dict[int, Counter[tuple[int, int]]] = {id(judge): Counter() for judge in judges}
    for judge, process, ours in started:
        rows, done = ours.recv()
        process.join(60)
        assert process.exitcode == 0
        print(judge.lake.kind, process.name, dict(done))
        assert any("refused" not in name for name in done), "a worker never got its turn"
        if process.name == soak.cleaner.__name__:
            assert done["orphans swept"], "a file that nobody knows was never removed"
        expected[id(judge)].update(rows.items())
    for judge in judges:
        found = judge.client.sql(f"SELECT id, v FROM {soak.TABLE}")
        assert Counter(found) == expected[id(judge)]
        for snapshot in judge.client.snapshot_ids()[1:]:
            rows = judge.client.sql(
                f"SELECT count(*), count(DISTINCT id) FROM {soak.TABLE} AT (VERSION => {snapshot})"
            )
            assert rows[0][0] == rows[0][1]
        judge.check_catalog()
        judge.check_soundness()
        judge.close()
