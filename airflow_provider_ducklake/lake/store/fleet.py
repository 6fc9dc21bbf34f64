"""Which catalogs of a store are worked on next: benefit by cost, within a budget, in batches.

No catalog takes more than its share of the budget. What they need comes from `fleet_work`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from airflow_provider_ducklake.lake.store.fleet_policy import FleetBatch, FleetPolicy

# What opening one more file costs a reader, in bytes it could have read in that time. The same
# yardstick weighs a transaction and a Spark task against the bytes they rewrite.
FILE_COST: Final = 4 * 1024**2


@dataclass(frozen=True, slots=True)
class CatalogWork:
    """What one catalog needs.

    Attributes:
        catalog: Its name.
        steps: Names of operations, each once, in the order of `fleet_policy.STEPS`.
        files: Files that would be fewer, or deleted; snapshots and inlined tables count as one.
        size: Bytes to read and rewrite.
    """

    catalog: str
    steps: tuple[str, ...]
    files: int
    size: int

    @property
    def score(self) -> float:
        """Benefit by cost: what readers save, for each byte of work."""
        return self.files * FILE_COST / (FILE_COST * len(self.steps) + self.size)


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The work of one run.

    Attributes:
        batches: Each is one application's.
        catalogs: How many catalogs they hold.
        left: How many more need work, and wait for the next plan.
        size: Bytes to rewrite.
        work: What every catalog in the plan needs, best first.
    """

    batches: tuple[FleetBatch, ...]
    catalogs: int
    left: int
    size: int
    work: tuple[CatalogWork, ...] = field(default=(), repr=False)


def plan_fleet(ranked: Iterable[tuple[int, CatalogWork]], policy: FleetPolicy) -> FleetPlan:
    """Take what the budget allows, and put it into batches.

    Args:
        ranked: How many catalogs have work, with that of each, best first; not read beyond what the
            plan needs.
        policy: The budget.

    Returns:
        The plan. A catalog whose bytes are more than its share is taken all the same when it is
        its turn: maintenance does as much of it as the share allows.
    """
    chosen: list[CatalogWork] = []
    spent = left = 0
    for total, work in ranked:
        cost = min(work.size, policy.catalog_bytes)
        if spent + cost <= policy.max_bytes:
            chosen.append(work)
            spent += cost
        left = total - len(chosen)
        if len(chosen) == policy.max_catalogs:
            break
    return FleetPlan(
        batches=tuple(_batches(chosen, policy)),
        catalogs=len(chosen),
        left=left,
        size=spent,
        work=tuple(chosen),
    )


def _batches(work: Sequence[CatalogWork], policy: FleetPolicy) -> list[FleetBatch]:
    """Deal the catalogs out, largest first, each to the batch that has least to do."""
    number = -(-len(work) // policy.batch_catalogs)
    dealt: list[dict[str, tuple[str, ...]]] = [{} for _ in range(number)]
    loads = [0] * number
    for item in sorted(work, key=lambda w: (-w.size, w.catalog)):
        open_ones = [at for at in range(number) if len(dealt[at]) < policy.batch_catalogs]
        lightest = min(open_ones, key=lambda at: (loads[at], len(dealt[at]), at))
        dealt[lightest][item.catalog] = item.steps
        loads[lightest] += min(item.size, policy.catalog_bytes) + FILE_COST
    return [FleetBatch(catalogs, policy) for catalogs in dealt]
