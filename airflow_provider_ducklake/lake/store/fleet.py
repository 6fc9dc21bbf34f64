"""Which catalogs of a store need upkeep most: found by a few queries over all of them, then ranked.

The queries look at rows only, never at files, and each reads one table once. Ranking and batching
are pure: benefit by cost, within a budget, no catalog with more than its share of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from airflow_provider_ducklake.lake.errors import ConfigurationError

Connection = psycopg.Connection[tuple[Any, ...]]

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
        expire_older_than: Age of snapshots to expire, as PostgreSQL writes intervals.
        min_expired: A catalog with fewer snapshots to expire is left alone.
        delete_older_than: How long files must have been scheduled, as an interval.
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
        """Refuse numbers that make no plan."""
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
class Finding:
    """Work of one kind in one catalog, as a query found it."""

    catalog: str
    step: str
    files: int
    size: int


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


def plan_fleet(findings: Iterable[Finding], policy: FleetPolicy) -> FleetPlan:
    """Rank what was found and put it into batches.

    Args:
        findings: Work by catalog and kind.
        policy: The budget.

    Returns:
        The plan. A catalog whose bytes are more than its share is taken all the same when it is
        its turn, but alone of its kind: its own limits bound what one run rewrites.
    """
    ranked = sorted(_by_catalog(findings), key=lambda work: (-work.score, work.catalog))
    share = int(policy.max_bytes * policy.max_share)
    chosen: list[CatalogWork] = []
    spent = 0
    for work in ranked:
        cost = min(work.size, share)
        if len(chosen) == policy.max_catalogs:
            break
        if spent + cost > policy.max_bytes:
            continue
        chosen.append(work)
        spent += cost
    return FleetPlan(
        batches=tuple(_batches(chosen, policy.batch_catalogs)),
        catalogs=len(chosen),
        left=len(ranked) - len(chosen),
        size=spent,
        work=tuple(chosen),
    )


def _by_catalog(findings: Iterable[Finding]) -> list[CatalogWork]:
    found: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        found[finding.catalog].append(finding)
    return [
        CatalogWork(
            catalog,
            tuple(step for step in STEPS if any(f.step == step for f in own)),
            sum(finding.files for finding in own),
            sum(finding.size for finding in own),
        )
        for catalog, own in found.items()
    ]


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


def find_work(connection: Connection, policy: FleetPolicy) -> list[Finding]:
    """Return what needs to be done in all live catalogs; one query for each kind of work.

    Args:
        connection: Of the service role; one read transaction.
        policy: What counts as work.
    """
    small = (policy.small_file_size, policy.min_small_files)
    queries: list[tuple[str, str, tuple[Any, ...]]] = [
        ("merge_adjacent_files", _SMALL_FILES, small),
        ("rewrite_data_files", _DELETED_ROWS, (policy.delete_threshold,)),
        ("expire_snapshots", _OLD_SNAPSHOTS, (policy.expire_older_than, policy.min_expired)),
        ("cleanup_old_files", _SCHEDULED_FILES, (policy.delete_older_than,)),
        ("flush_inlined_data", _INLINED_TABLES, ()),
    ]
    findings = []
    for step, query, parameters in queries:
        rows = connection.execute(query.encode(), parameters)
        findings += [Finding(name, step, int(files), int(size)) for name, files, size in rows]
    return findings


_NAMED: Final = """
    SELECT c.catalog_name, sum(w.files), sum(w.size) FROM ({}) w
    JOIN ducklake.ducklake_catalog c USING (catalog_id) WHERE c.state = 'live' GROUP BY 1
"""
_SMALL_FILES: Final = _NAMED.format("""
    SELECT f.catalog_id, count(*) - 1 AS files, sum(f.file_size_bytes) AS size
    FROM ducklake.ducklake_data_file f
    WHERE f.end_snapshot IS NULL AND f.table_id >= 0 AND f.file_size_bytes < %s
    GROUP BY f.catalog_id, f.table_id, f.partition_id HAVING count(*) >= %s
""")
_DELETED_ROWS: Final = _NAMED.format("""
    SELECT d.catalog_id, 1 AS files, f.file_size_bytes AS size
    FROM ducklake.ducklake_delete_file d
    JOIN ducklake.ducklake_data_file f
        ON f.catalog_id = d.catalog_id AND f.data_file_id = d.data_file_id
    WHERE d.end_snapshot IS NULL AND f.end_snapshot IS NULL
        AND d.delete_count >= f.record_count * %s::float8
""")
# The newest snapshot of a catalog stays, however old it is.
_OLD_SNAPSHOTS: Final = _NAMED.format("""
    SELECT s.catalog_id, 1 AS files, 0 AS size
    FROM (
        SELECT s.catalog_id, count(*) FILTER (WHERE s.snapshot_time < now() - %s::interval) AS old,
            count(*) AS of_all
        FROM ducklake.ducklake_snapshot s GROUP BY s.catalog_id HAVING count(*) > 1
    ) s
    WHERE least(s.old, s.of_all - 1) >= greatest(%s, 1)
""")
_SCHEDULED_FILES: Final = _NAMED.format("""
    SELECT f.catalog_id, count(*) AS files, 0 AS size
    FROM ducklake.ducklake_files_scheduled_for_deletion f
    WHERE f.schedule_start < now() - %s::interval GROUP BY f.catalog_id
""")
_INLINED_TABLES: Final = _NAMED.format("""
    SELECT i.catalog_id, 1 AS files, 0 AS size
    FROM ducklake.ducklake_inlined_data_tables i
    JOIN pg_class r ON r.relnamespace = 'lake'::regnamespace AND r.relname = i.table_name
    WHERE pg_relation_size(r.oid) > 0 GROUP BY i.catalog_id
""")
