"""Random histories: a stock client and our operations in any order, judged after every step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.interop.catalog import assert_sound
from tests.interop.judge import Judge
from tests.interop.palette import VALUES
from tests.interop.upkeep import OPERATIONS, Maintainer
from tests.interop.writes import ROW_STATEMENTS, STATEMENTS, Writer
from tests.support.lakes import KINDS, LakeFactory
from tests.support.reference import normalise

HISTORIES: Final = int(os.environ.get("DUCKLAKE_HISTORIES", "210"))
_SEED: Final = st.integers(0, 10_000)
_TABLE: Final = st.integers(0, 2)
# Rows come and go more often than anything else happens.
_KIND: Final = st.sampled_from(("create", *STATEMENTS, *ROW_STATEMENTS * 3))


class History(RuleBasedStateMachine):
    """One lake; every rule is a step after which lake and model have to agree."""

    def __init__(self, factory: LakeFactory) -> None:
        super().__init__()
        self.factory = factory
        self.lake = factory.create()
        self.judge = Judge(self.lake)
        self.writer = Writer(self.judge)
        self.maintainer = Maintainer(self.judge, self.writer)
        self.sound = True

    @contextmanager
    def step(self) -> Iterator[None]:
        """Keep in mind that a step failed: what follows would only hide why."""
        self.sound = False
        yield
        self.sound = True

    @rule(kind=_KIND, table=_TABLE, seed=_SEED)
    def write(self, kind: str, table: int, seed: int) -> None:
        """The stock client issues one statement."""
        with self.step():
            self.writer.write(kind, table, seed)

    @rule(
        statements=st.lists(
            st.tuples(st.sampled_from(ROW_STATEMENTS), _TABLE, _SEED), min_size=2, max_size=4
        )
    )
    def transaction(self, statements: list[tuple[str, int, int]]) -> None:
        """The stock client issues several statements as one snapshot."""
        with self.step():
            if not self.writer.shapes:
                self.writer.write("create", 0, statements[0][2])
            with self.judge.transaction():
                for kind, table, seed in statements:
                    self.writer.write(kind, table, seed)

    @rule(operation=st.sampled_from(tuple(OPERATIONS)), seed=_SEED)
    def maintain(self, operation: str, seed: int) -> None:
        """An operation of ours runs."""
        with self.step():
            self.maintainer.run(operation, seed)

    @rule()
    def reopen(self) -> None:
        """The stock client forgets what it cached."""
        self.judge.client.release()

    def check_filters(self) -> None:
        """Statistics and partition values that are wrong hide rows from a filter."""
        for name, shape in self.writer.shapes.items():
            table = self.judge.model.tables[name]
            for at, (column, type_name) in enumerate(shape.items()):
                for literal, value in VALUES[type_name]:
                    expected = sum(row[at] == normalise(value) for row in table.rows.values())
                    self.judge.check_count(
                        name, f'"{column}" IS NOT DISTINCT FROM ({literal})::{type_name}', expected
                    )

    def teardown(self) -> None:
        """Compare everything once more and remove the lake."""
        try:
            if self.sound:
                self.judge.check()
                self.check_filters()
                self.judge.client.release()
                assert_sound(self.lake)
        finally:
            self.judge.close()
            self.factory.remove(self.lake)


@pytest.mark.timeout(0)
def test_history(lake_factory: LakeFactory) -> None:
    """Every kept snapshot shows what it must after each step of a random history."""
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: History(lake_factory),
        settings=settings(
            max_examples=-(-HISTORIES // len(KINDS)),
            stateful_step_count=15,
            deadline=None,
            database=None,
            derandomize="DUCKLAKE_HISTORIES" not in os.environ,
            suppress_health_check=list(HealthCheck),
        ),
    )
