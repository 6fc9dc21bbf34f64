"""Somebody else at work, or time passing, in the one moment that matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.spark.runner import LocalRunner
from tests.interop.judge import Judge

Task = TypeVar("Task")
Result = TypeVar("Result")


class Interference(LocalRunner):
    """Runs the work, then lets somebody else act once before the result is committed.

    Attributes:
        happened: True when there was work to interfere with.
    """

    def __init__(self, judge: Judge, act: Callable[[], object]) -> None:
        self._judge = judge
        self._act = act
        self.happened = False

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], description: str = ""
    ) -> list[Result | LakeError]:
        """See `Runner.run`."""
        results = super().run(function, tasks, description)
        if tasks and not self.happened:
            self.happened = True
            self._act()
            self._judge.client.release()
        return results


class Watched(LocalRunner):
    """Calls something before the tasks of each part, with the part's number."""

    def __init__(self, watch: Callable[[int], object]) -> None:
        self._watch = watch
        self.parts = 0

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], description: str = ""
    ) -> list[Result | LakeError]:
        """See `Runner.run`."""
        self.parts += 1
        self._watch(self.parts)
        return super().run(function, tasks, description)
