"""fleet_maintenance: the upkeep of hundreds of catalogs of a store in one Spark application."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from airflow_provider_ducklake.lake.database.kept_connections import KeptConnections
from airflow_provider_ducklake.lake.errors import LakeError, NotFound
from airflow_provider_ducklake.lake.instants import parse_cutoff, utc_now
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.options import OperationOptions
from airflow_provider_ducklake.lake.results import Failure, OperationResult, TableResult
from airflow_provider_ducklake.lake.store.fleet_policy import FleetBatch, FleetPolicy
from airflow_provider_ducklake.lake.store.ledger import LedgerEntry
from airflow_provider_ducklake.lake.store.store import CatalogStore
from airflow_provider_ducklake.spark.operations._job import Job, finished, log
from airflow_provider_ducklake.spark.operations._shared_jobs import SharedJobs
from airflow_provider_ducklake.spark.operations._upkeep import Step, upkeep_steps

FLEET_OPTIONS = ("work", "threads", "max_seconds")
# The steps that let something go, and the option of a catalog that says when.
_RETENTION: Final = {
    "expire_snapshots": "expire_older_than",
    "cleanup_old_files": "delete_older_than",
}
# What a step counts when it changed something that is not of one table.
_CHANGES: Final = ("snapshots_expired", "files_deleted", "files_missing", "files_forgotten")


@dataclass(frozen=True, slots=True)
class _Means:
    """What all catalogs share."""

    store: CatalogStore
    connections: KeptConnections
    jobs: SharedJobs


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of one catalog."""

    catalog: str
    tables: tuple[TableResult, ...]
    counts: Mapping[str, int]
    failures: tuple[Failure, ...]


def fleet_maintenance(job: Job) -> OperationResult:
    """Run the given steps on the given catalogs of a store, by the given policy, many at a time.

    Each catalog has a thread on the driver while it is worked on; its files are rewritten by Spark
    tasks. Spark shares its slots fairly among the catalogs, so one with very many files takes no
    more than its part. A catalog that fails is reported, and the others go on.

    Raises:
        ConfigurationError: `work` is no JSON object of catalog names and steps, and a policy.
    """
    started = time.monotonic()
    batch = FleetBatch.from_json(job.options.text("work") or "")
    threads = job.options.integer("threads", at_least=1) or max(16, 2 * (os.cpu_count() or 1))
    with (
        closing(KeptConnections(job.lake.location.conninfo)) as kept,
        ThreadPoolExecutor(threads, thread_name_prefix="catalog") as pool,
    ):
        store = CatalogStore.at(job.lake.location, connections=kept)
        store.status()
        means = _Means(store, kept, SharedJobs(job.runner))
        outcomes = list(
            pool.map(
                lambda item: _maintain(job, means, item[0], _steps(batch.policy, item[1])),
                batch.catalogs.items(),
            )
        )
    counts = {
        "catalogs": len(outcomes),
        "catalogs_failed": sum(bool(outcome.failures) for outcome in outcomes),
    }
    for outcome in outcomes:
        for name, count in outcome.counts.items():
            counts[name] = counts.get(name, 0) + count
    tables = [table for outcome in outcomes for table in outcome.tables]
    failures = [failure for outcome in outcomes for failure in outcome.failures]
    return finished(job, started, 0, tables, counts=counts, failures=failures)


def _steps(policy: FleetPolicy, names: Sequence[str]) -> list[Step]:
    """Return what is to be done to one catalog, in its order, as the policy says."""
    # Each of those that rewrite has its part of the catalog's share: neither keeps the other back.
    rewriting = sum(name in names for name in ("merge_adjacent_files", "rewrite_data_files"))
    options = {
        "expire_older_than": policy.expire_older_than,
        "retain_last": policy.retain_last,
        "delete_threshold": policy.delete_threshold,
        "delete_older_than": policy.delete_older_than,
        "target_file_size": policy.target_file_size,
        "max_file_size": policy.small_file_size,
        "min_files": max(policy.min_small_files, 2),
        "max_compacted_bytes": max(policy.catalog_bytes // max(rewriting, 1), 1),
    }
    given = {name: str(value) for name, value in options.items() if value is not None}
    steps = upkeep_steps(OperationOptions("fleet_maintenance", given, tuple(options)))
    return [step for step in steps if step.name in names]


def _maintain(job: Job, means: _Means, catalog: str, steps: Sequence[Step]) -> _Outcome:
    """Run the steps of one catalog, and note them; whatever goes wrong is its own affair alone."""
    tables: list[TableResult] = []
    counts: dict[str, int] = {}
    failures: list[Failure] = []
    entries: list[LedgerEntry] = []
    for number, step in enumerate(steps):
        if job.deadline.is_over and not job.dry_run:
            counts["steps_left_for_the_next_run"] = len(steps) - number
            break
        clock = time.monotonic()
        entry = LedgerEntry(catalog, step.name, utc_now(), 0.0, job.info.author)
        try:
            own = _job_of(job, means, catalog, step)
            result = _with_own_retention(step, own).run(own)
        except Exception as error:
            failure = _failure_of(error, catalog, step.name)
            failures.append(replace(failure, message=f"{catalog}: {step.name}: {failure.message}"))
            said = " ".join(failure.message.split())
            entries.append(replace(entry, seconds=time.monotonic() - clock, error=said))
            if isinstance(error, NotFound):
                break  # it was dropped since the plan was made
            continue
        told = [*result.failures, *_failed_tables(result)]
        failures += [replace(f, message=f"{catalog}: {step.name}: {f.message}") for f in told]
        tables += [
            replace(table, table=f"{catalog}: {table.table}", error=None)
            for table in result.tables
            if table.is_changed
        ]
        for name, count in result.counts.items():
            counts[name] = counts.get(name, 0) + count
        entries.append(_entry(entry, result, told))
    if not job.dry_run:
        failures += _note(means.store, catalog, entries)
    return _Outcome(catalog, tuple(tables), counts, tuple(failures))


def _with_own_retention(step: Step, job: Job) -> Step:
    """Return a step that keeps what either the catalog's own retention or the fleet's keeps."""
    option = _RETENTION.get(step.name)
    if option is None:
        return step
    with job.lake.view() as view:
        own = view.option(option)
    given = step.given.get("older_than")
    ages = [parse_cutoff(age, job.now) for age in (own, given) if age]
    if not ages:
        return step
    return replace(step, given={**step.given, "older_than": min(ages).isoformat(" ")})


def _failure_of(error: Exception, catalog: str, step: str) -> Failure:
    """Return an error of one catalog; of one nobody foresaw, the log has the rest."""
    if isinstance(error, LakeError):
        return Failure(type(error).__name__, str(error))
    log.error("%s of catalog %s failed", step, catalog, exc_info=error)
    # Its text is not written for the catalog's tenants, who see the ledger.
    return Failure(
        LakeError.__name__,
        f"an unexpected {type(error).__name__}, as of rows in the catalog that make no sense: the "
        "log of this job has the traceback, and fsck may find the rows",
    )


def _note(store: CatalogStore, catalog: str, entries: Sequence[LedgerEntry]) -> list[Failure]:
    """Write the ledger as a catalog ends, so that a job killed later has told of it."""
    try:
        store.write_ledger(entries)
    except LakeError as error:
        return [Failure(type(error).__name__, f"{catalog}: not noted in the ledger: {error}")]
    return []


def _failed_tables(result: OperationResult) -> Iterator[Failure]:
    for table in result.failed_tables:
        yield Failure("LakeError", f"{table.table}: {table.error}")


def _entry(entry: LedgerEntry, result: OperationResult, failures: Sequence[Failure]) -> LedgerEntry:
    made = [t.snapshot_id for t in result.tables if t.snapshot_id is not None]
    return replace(
        entry,
        seconds=result.seconds,
        snapshot_id=max(made, default=result.snapshot_after),
        changed=bool(
            any(t.is_changed for t in result.tables)
            or any(result.counts.get(name) for name in _CHANGES)
            # Or the next plan would take it for a step that finds nothing to do.
            or any(name.endswith("_left_for_the_next_run") for name in result.counts)
        ),
        files_in=sum(t.files_in for t in result.tables) + result.counts.get("files_deleted", 0),
        files_out=sum(t.files_out for t in result.tables),
        bytes_in=sum(t.bytes_in for t in result.tables),
        bytes_out=sum(t.bytes_out for t in result.tables),
        files_left=result.counts.get("files_left_for_the_next_run", 0),
        error="; ".join(" ".join(f.message.split()) for f in failures) or None,
    )


def _job_of(job: Job, means: _Means, catalog: str, step: Step) -> Job:
    """Return a job as one catalog's part of it."""
    location = job.lake.location
    own = CatalogLocation.parse(location.attach_string, password=location.password, catalog=catalog)
    key = f"{job.info.key}/{catalog}" if job.info.key else None
    message = job.info.message or f"{step.name} of the fleet"
    return replace(
        job,
        lake=Lake.open(own, storage=job.lake.storage, connections=means.connections),
        runner=means.jobs.for_tenant(catalog),
        info=replace(job.info, key=key, message=message),
        most_tables=sys.maxsize,  # the ledger adds up all of them
    )
