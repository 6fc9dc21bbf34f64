"""Somebody else at work in the one moment that matters: after the files, before the commit."""

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
