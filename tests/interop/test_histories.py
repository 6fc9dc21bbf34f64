"""Random histories: a stock client and our operations in any order, judged after every step.

Without being asked for more, 300 in all, always the same. DUCKLAKE_HISTORIES says how many on each
kind of lake, DUCKLAKE_HISTORIES_FROM the number of the first: a hundred from the same number are
the same ones again, so many can be run in parts. Without it they are other ones every time.
"""

from __future__ import annotations

import os
import secrets
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.interop.evolution import EVOLUTION, forget_bounds_in_lists
from tests.interop.judge import Judge
from tests.interop.palette import VALUES
from tests.interop.upkeep import OPERATIONS, Maintainer
from tests.interop.writes import ROW_STATEMENTS, STATEMENTS, Writer
from tests.support.lakes import LakeFactory
from tests.support.reference import normalise

ASKED_FOR: Final = os.environ.get("DUCKLAKE_HISTORIES")
FIRST: Final = int(os.environ.get("DUCKLAKE_HISTORIES_FROM") or secrets.randbelow(10**9) * 100)
# Of so many, the number of the first decides what happens in all.
BATCH: Final = 100
ROUNDS: Final = 6
# One on a DuckDB file costs three on SQLite, and tells no more of what is above the database.
_NUMBERS: Final = {"sqlite": 120, "duckdb": 45, "postgres": 67, "store": 68}
_SEED: Final = st.integers(0, 10_000)
# Rows come and go more often than anything else happens.
_STATEMENTS: Final = STATEMENTS | EVOLUTION
_STATEMENT: Final = st.tuples(
    st.sampled_from(("create", *_STATEMENTS, *ROW_STATEMENTS * 4)), st.integers(0, 2), _SEED
)


class History(RuleBasedStateMachine):
    """One lake; every rule is a step after which lake and model have to agree."""

    def __init__(self, factory: LakeFactory) -> None:
        super().__init__()
        self.factory = factory
        self.lake = factory.create()
        self.judge = Judge(self.lake)
        self.writer = Writer(self.judge, statements=_STATEMENTS)
        self.maintainer = Maintainer(self.judge, self.writer)
        self.sound = True

    @rule(
        statements=st.lists(_STATEMENT, max_size=3),
        together=st.booleans(),
        operation=st.sampled_from(tuple(OPERATIONS)),
        seed=_SEED,
    )
    def round(
        self, statements: list[tuple[str, int, int]], together: bool, operation: str, seed: int
    ) -> None:
        """A stock client writes, in one transaction or several; then an operation of ours runs."""
        self.sound = False  # until it went well: what follows a failure only hides it
        rows_only = all(kind in ROW_STATEMENTS for kind, _, _ in statements)
        writer = self.writer
        has_rows = not any(map(writer.awaits_first_rows, writer.shapes))
        if together and rows_only and statements and writer.shapes and has_rows:
            with self.judge.transaction():
                self._write(statements)
        else:
            self._write(statements)
        self.maintainer.run(operation, seed)
        self.sound = True

    def _write(self, statements: list[tuple[str, int, int]]) -> None:
        for kind, table, seed in statements:
            self.writer.write(kind, table, seed)

    def check_filters(self) -> None:
        """Statistics and partition values that are wrong hide rows from a filter."""
        for name, shape in self.writer.shapes.items():
            rows = self.judge.model.tables[name].rows.values()
            present = [
                (f'"{column}" IS NOT DISTINCT FROM ({literal})::{type_name}', number)
                for at, (column, type_name) in enumerate(shape.items())
                for literal, value in VALUES.get(type_name, ())
                if (number := sum(row[at] == normalise(value) for row in rows))
            ]
            if present:
                self.judge.check_counts(name, dict(present))

    def teardown(self) -> None:
        """Compare everything once more and remove the lake."""
        try:
            if self.sound:
                self.judge.check()
                self.check_filters()
                self.judge.check_statistics(extremes=False)
                self.judge.check_catalog()
                forget_bounds_in_lists(self.judge)
                self.judge.check_soundness()
        finally:
            self.judge.close()
            self.factory.remove(self.lake)


def _run(factory: LakeFactory, number: int, first: int | None) -> None:
    class HistoryOfThisKind(History):
        def __init__(self) -> None:
            super().__init__(factory)

    run_state_machine_as_test(
        HistoryOfThisKind if first is None else seeded(first)(HistoryOfThisKind),
        settings=settings(
            max_examples=number,
            stateful_step_count=ROUNDS,
            deadline=None,
            database=None,
            derandomize=first is None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_history(lake_factory: LakeFactory) -> None:
    """Every kept snapshot shows what it must after each step of a random history."""
    if not ASKED_FOR:
        return _run(lake_factory, _NUMBERS[lake_factory.kind], None)
    end = FIRST + int(ASKED_FOR)
    for first in range(FIRST, end, BATCH):
        number = min(BATCH, end - first)
        print(f"{lake_factory.kind}: {number} histories from {first}", flush=True)
        _run(lake_factory, number, first)
