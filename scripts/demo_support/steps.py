"""The steps of the demo, in order, and what each did to a tenant's lake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from scripts.demo_support.reference import Measure
from scripts.demo_support.source import DIMENSIONS

# Task ids as the DAGs have them, with what the table calls them; `correction`, `trickle` and
# `left_behind` the demo does itself. Dimension tables share one line.
LABELS: Final = {
    "create_lake": "create_lake",
    **{f"dimensions.{table}": "4 dimension tables" for table in DIMENSIONS},
    **{f"flights.Q{n}": f"flights, quarter {n}" for n in (1, 2, 3, 4)},
    "newest_snapshot": "",
    "register_month": "register December's files",
    "wait_for_month": "sensor saw December",
    "count_rows": "count rows",
    "correction": "DELETE by a stock client",
    "trickle": "24 INSERTs by a stock client",
    "left_behind": "a dead job's file",
    "flush_inlined_data": "flush_inlined_data",
    "merge_adjacent_files": "merge_adjacent_files",
    "rewrite_data_files": "rewrite_data_files",
    "expire_snapshots": "expire_snapshots",
    "cleanup_old_files": "cleanup_old_files",
    "delete_orphaned_files": "delete_orphaned_files",
}
# Every task of both DAGs that the demo's parameters do not skip.
TOTAL: Final = len(LABELS)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one tenant.

    Attributes:
        label: What the table calls it.
        before: The lake before it, None when there was none.
        after: The lake after it.
        seconds: How long it took.
    """

    label: str
    before: Measure | None
    after: Measure
    seconds: float


@dataclass(slots=True)
class Course:
    """What has happened to one tenant's lake so far.

    Attributes:
        running: The task that runs now, if any.
        steps: Lines of the table.
        done: Tasks that are done.
        counted: What `count_rows` returned.
        error: Why the tenant's run ended early.
    """

    tenant: str
    running: str = ""
    steps: list[Step] = field(default_factory=list)
    done: int = 0
    counted: Sequence[Sequence[Any]] = ()
    error: str = ""

    @property
    def last(self) -> Measure | None:
        """The lake after the last step."""
        return self.steps[-1].after if self.steps else None

    def finish(self, task: str, after: Measure, seconds: float, *, looks: int) -> Step | None:
        """Add a task that is done; return its line, None when the table does not show it."""
        self.done += 1
        self.running = ""
        label = LABELS.get(task, task)
        if not label:
            return None
        if looks > 1:
            label += f" ({looks} looks)"
        step = Step(label, self.last, after, seconds)
        alone = replace(step, label=f"load {task.rpartition('.')[2]}") if "." in task else step
        if self.steps and self.steps[-1].label == label:
            together = replace(
                self.steps[-1], after=after, seconds=self.steps[-1].seconds + seconds
            )
            self.steps[-1] = together
        else:
            self.steps.append(step)
        return alone
