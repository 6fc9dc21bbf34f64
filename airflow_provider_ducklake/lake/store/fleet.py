"""Which catalogs of a store are worked on next: benefit by cost, within a budget, in batches.

No catalog takes more than its share of the budget. What they need comes from `fleet_work`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.instants import parse_cutoff, utc_now

# In the order they are run in: snapshots let go before files are merged, files are deleted last.
STEPS: Final = (
    "flush_inlined_data",
    "expire_snapshots",
    "merge_adjacent_files",
    "rewrite_data_files",
    "cleanup_old_files",
)
# What opening one more file costs a reader, in bytes it could have read in that time. The same
# yardstick weighs a transaction and a Spark task against the bytes they rewrite.
FILE_COST: Final = 4 * 1024**2


@dataclass(frozen=True, slots=True)
class FleetPolicy:
    """What counts as work, and how much of it one plan may hold.

    Attributes:
        small_file_size: Data files below so many bytes are worth merging.
        min_small_files: A table with fewer of them is left alone.
        delete_threshold: Share of deleted rows, 0 to 1, from which a file is rewritten.
        expire_older_than: Age of snapshots to expire, such as `30 days`, or the instant from which
            they do, as `expire_snapshots` takes them.
        min_expired: A catalog with fewer snapshots to expire is left alone.
        delete_older_than: How long files must have been scheduled, or since before when.
        max_catalogs: Catalogs in one plan.
        max_bytes: Bytes to rewrite in one plan.
        max_share: Share of `max_bytes` one catalog may take, 0 to 1.
        batch_catalogs: Catalogs in one batch, which is one Spark application.
    """

    small_file_size: int = 16 * 1024**2
    min_small_files: int = 5
    delete_threshold: float = 0.1
    expire_older_than: str = "30 days"
    min_expired: int = 1
    delete_older_than: str = "2 days"
    max_catalogs: int = 1_000
    max_bytes: int = 1024**4
    max_share: float = 0.25
    batch_catalogs: int = 200

    def __post_init__(self) -> None:
        """Refuse what makes no plan."""
        for name in ("expire_older_than", "delete_older_than"):
            try:
                parse_cutoff(getattr(self, name), utc_now())
            except (ConfigurationError, OverflowError) as error:
                raise ConfigurationError(f"{name} of a fleet plan: {error}") from None
        if not 0 < self.max_share <= 1 or not 0 <= self.delete_threshold <= 1:
            raise ConfigurationError("max_share and delete_threshold are shares from 0 to 1")
        if min(self.max_catalogs, self.batch_catalogs, self.max_bytes, self.min_small_files) < 1:
            raise ConfigurationError(
                "max_catalogs, batch_catalogs, max_bytes and min_small_files must be at least 1"
            )


@dataclass(frozen=True, slots=True)
class CatalogWork:
    """What one catalog needs.

    Attributes:
        catalog: Its name.
        steps: Names of operations, each once, in the order of `STEPS`.
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
        batches: Each is one application's: catalog name to its steps.
        catalogs: How many catalogs they hold.
        left: How many more need work, and wait for the next plan.
        size: Bytes to rewrite.
        work: What every catalog in the plan needs, best first.
    """

    batches: tuple[dict[str, list[str]], ...]
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
        its turn, but alone of its kind: its own limits bound what one run rewrites.
    """
    share = int(policy.max_bytes * policy.max_share)
    chosen: list[CatalogWork] = []
    spent = left = 0
    for total, work in ranked:
        cost = min(work.size, share)
        if spent + cost <= policy.max_bytes:
            chosen.append(work)
            spent += cost
        left = total - len(chosen)
        if len(chosen) == policy.max_catalogs:
            break
    return FleetPlan(
        batches=tuple(_batches(chosen, policy.batch_catalogs)),
        catalogs=len(chosen),
        left=left,
        size=spent,
        work=tuple(chosen),
    )


def _batches(work: Sequence[CatalogWork], size: int) -> list[dict[str, list[str]]]:
    """Deal the catalogs out, largest first, each to the batch that has least to do."""
    number = -(-len(work) // size)
    batches: list[dict[str, list[str]]] = [{} for _ in range(number)]
    loads = [0] * number
    for item in sorted(work, key=lambda w: (-w.size, w.catalog)):
        open_ones = [at for at in range(number) if len(batches[at]) < size]
        lightest = min(open_ones, key=lambda at: (loads[at], len(batches[at]), at))
        batches[lightest][item.catalog] = list(item.steps)
        loads[lightest] += item.size + FILE_COST
    return batches
