"""fsck: finds damage in a catalog and its files, and mends what is provably safe to mend."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Final

from airflow_provider_ducklake.kernels.inspection import Inspection, InspectTask, inspect_files
from airflow_provider_ducklake.lake.database.base import batches
from airflow_provider_ducklake.lake.errors import DamagedLake, LakeError, StorageError
from airflow_provider_ducklake.lake.fsck.bounds import (
    FILE_NAN,
    TABLE_STATISTICS,
    check_bounds,
    commit_nan,
    commit_unknown,
)
from airflow_provider_ducklake.lake.fsck.catalog import check_catalog, table_names
from airflow_provider_ducklake.lake.fsck.classes import CLASSES
from airflow_provider_ducklake.lake.fsck.counters import TRANSACTION_LOCAL
from airflow_provider_ducklake.lake.fsck.findings import (
    EXAMPLES,
    ClassReport,
    Finding,
    Findings,
)
from airflow_provider_ducklake.lake.fsck.inlined import largest_row_id
from airflow_provider_ducklake.lake.fsck.objects import ObjectTask, Suspect, look_for
from airflow_provider_ducklake.lake.fsck.repairs import (
    REPAIRS,
    commit_next_row_id,
    commit_repair,
    plan_repairs,
)
from airflow_provider_ducklake.lake.fsck.stored import (
    read_stored_files,
    still_read,
    tables_with_files,
)
from airflow_provider_ducklake.lake.lake import LakeView
from airflow_provider_ducklake.lake.model import Table
from airflow_provider_ducklake.lake.results import Failure, OperationResult
from airflow_provider_ducklake.lake.table_stats import read_file_statistics
from airflow_provider_ducklake.spark.operations._job import Job, chosen_tables, finished
from airflow_provider_ducklake.spark.operations._partitions import partition_specs
from airflow_provider_ducklake.storage import StorageOptions, open_store

FSCK_OPTIONS = ("objects", "deep", "repair", "max_examples")
_WAVE: Final = 100_000  # files whose rows are in memory at a time
_FOOTERS: Final = 200  # files a task looks into
NEXT_ROW_ID: Final = "next_row_id"
_BY_LOOKING: Final = (
    NEXT_ROW_ID,
    FILE_NAN,
    TABLE_STATISTICS,
)  # mended, though no rows of a catalog tell


def fsck(job: Job) -> OperationResult:
    """Look for damage, and repair it if asked to; a lake that stays damaged is a failure."""
    started = time.monotonic()
    findings = Findings(job.options.integer("max_examples", at_least=1) or EXAMPLES)
    with job.lake.view() as view:
        chosen = chosen_tables(job, view, for_upkeep=False) if job.tables else None
        head = view.head.snapshot_id
        check_catalog(view, findings)
        plan = plan_repairs(view, findings.counts)
        names = table_names(view)
    looked, failures = _look(job, findings, chosen)
    for finding in findings:
        job.report(_line(finding, names))
    if findings.counts.get(NEXT_ROW_ID):
        kept = findings.of(NEXT_ROW_ID)
        more = findings.counts[NEXT_ROW_ID] - len(kept)
        plan[NEXT_ROW_ID] = len({finding.table_id for finding in kept}) + more
    for damage in (FILE_NAN, TABLE_STATISTICS):
        if findings.counts.get(damage):
            plan[damage] = findings.counts[damage]
    repaired: dict[str, int] = {}
    left = findings.counts
    # Where something could not be looked at, nothing is touched.
    if job.options.flag("repair") and not job.dry_run and not failures:
        repaired, failures = _repair(job, plan, findings)
        left = _left(job, findings)
    reports = _reports(findings, plan, repaired)
    counts = {**_by_severity(reports), "rows_repaired": sum(repaired.values()), **looked}
    errors = [r for r in reports if r.severity == "error" and left.get(r.damage)]
    if errors:
        failures = [*failures, Failure(DamagedLake.__name__, _verdict(job, errors))]
    return finished(
        job,
        started,
        head,
        counts=counts,
        failures=failures,
        messages=_messages(job, reports, failures),
        findings=reports,
    )


def _look(
    job: Job, findings: Findings, chosen: Iterable[Table] | None
) -> tuple[dict[str, int], list[Failure]]:
    """Look at objects and footers; an error of storage ends that, since it proves nothing."""
    ids = None if chosen is None else {table.table_id for table in chosen}
    looked: dict[str, int] = {}
    try:
        if job.options.flag("objects", True):
            looked["objects_checked"] = _check_objects(job, findings, ids)
        if job.options.flag("deep"):
            looked["footers_read"] = _check_footers(job, findings, ids)
    except LakeError as error:
        message = f"not everything could be looked at, and nothing was repaired: {error}"
        return looked, [Failure(type(error).__name__, message)]
    return looked, []


def _check_objects(job: Job, findings: Findings, only: set[int] | None) -> int:
    with job.lake.view() as view:
        counted = [(i, n) for i, n in tables_with_files(view.session) if only is None or i in only]
    checked = 0
    for wave in _waves(counted):
        with job.lake.view() as view:
            data_path = view.data_path
            files = read_stored_files(view.session, data_path, wave)
        tasks = [ObjectTask(directory, tuple(found)) for directory, found in files.values()]
        checked += sum(len(task.files) for task in tasks)
        suspects: list[Suspect] = []
        for result in job.runner.run(
            partial(_look_for, job.settings.storage, data_path), tasks, "fsck: looking for objects"
        ):
            if isinstance(result, LakeError):
                raise StorageError(str(result))
            suspects += result
        if suspects:
            with job.lake.view() as view:
                # What was compacted or expired meanwhile may be gone by right.
                used = still_read(view.session, ((s.file.kind, s.file.file_id) for s in suspects))
            findings.add(s.finding for s in suspects if (s.file.kind, s.file.file_id) in used)
    return checked


def _look_for(storage: StorageOptions, root: str, task: ObjectTask) -> tuple[Suspect, ...]:
    return look_for(open_store(root, storage), task)


def _waves(counted: Iterable[tuple[int, int]]) -> Iterator[list[int]]:
    """Yield table ids in groups that hold so many files together, or one table with more."""
    wave: list[int] = []
    size = 0
    for table_id, files in counted:
        if wave and size + files > _WAVE:
            yield wave
            wave, size = [], 0
        wave.append(table_id)
        size += files
    if wave:
        yield wave


def _check_footers(job: Job, findings: Findings, only: set[int] | None) -> int:
    with job.lake.view() as view:
        tables = [t for t in view.tables() if only is None or t.table_id in only]
    read = 0
    told = {finding.table_id for finding in findings.of(NEXT_ROW_ID)}
    for table in tables:
        inspections = _inspect_table(job, table)
        read += len(inspections)
        findings.add(_of_files_in_use(job, inspections))
        if table.table_id not in told:
            findings.add(_row_ids(job, table, inspections))
        with job.lake.view() as view:
            findings.add(check_bounds(view.session, table))
    return read


def _of_files_in_use(job: Job, inspections: Iterable[Inspection]) -> list[Finding]:
    """Return what was found in files that are still read: the others may be gone by right."""
    found = [finding for inspection in inspections for finding in inspection.findings]
    if not found:
        return []
    with job.lake.view() as view:
        used = still_read(view.session, (("data_file", finding.ids[0]) for finding in found))
    return [finding for finding in found if ("data_file", finding.ids[0]) in used]


def _inspect_table(job: Job, table: Table) -> list[Inspection]:
    """Look into the footers of a table's live files."""
    with job.lake.view() as view:
        tasks = _inspect_tasks(view, table)
    groups = list(batches(tasks, _FOOTERS))
    found: list[Inspection] = []
    for result in job.runner.run(
        partial(inspect_files, settings=job.settings), groups, f"fsck: footers of {table.full_name}"
    ):
        if isinstance(result, LakeError):
            raise result
        found += result
    return found


def _inspect_tasks(view: LakeView, table: Table) -> list[InspectTask]:
    files = view.live_files(table)
    specs = partition_specs(view, files)
    statistics = read_file_statistics(view.session, (file.data_file_id for file in files))
    return [
        InspectTask(
            file,
            table.columns,
            tuple(statistics.get(file.data_file_id, ())),
            None if file.partition_id is None else specs.get(file.partition_id),
        )
        for file in files
    ]


def _largest(inspections: Iterable[Inspection]) -> int:
    ids = (inspection.largest_row_id for inspection in inspections)
    return max((i for i in ids if i is not None and i < TRANSACTION_LOCAL), default=-1)


def _row_ids(job: Job, table: Table, inspections: Iterable[Inspection]) -> Iterator[Finding]:
    largest = _largest(inspections)
    with job.lake.view() as view:
        following = view.session.value(
            "SELECT max(next_row_id) FROM {ducklake_table_stats} WHERE table_id = ?",
            (table.table_id,),
        )
    if following is not None and largest >= int(following):
        message = f"next_row_id is {following}, but a file holds row id {largest}"
        yield Finding(NEXT_ROW_ID, message, table.table_id)


def _repair(
    job: Job, plan: Mapping[str, int], findings: Findings
) -> tuple[dict[str, int], list[Failure]]:
    """Mend class by class, each in a transaction of its own; one that fails stops no other."""
    repaired: dict[str, int] = {}
    failures: list[Failure] = []
    for damage, planned in plan.items():
        if not planned:
            continue
        try:
            if damage == NEXT_ROW_ID:
                repaired[damage] = _repair_row_ids(job, findings)
            elif damage == FILE_NAN:
                repaired[damage] = _repair_nan(job)
            elif damage == TABLE_STATISTICS:
                repaired[damage] = sum(commit_unknown(job.lake, t) for t in _narrow_tables(job))
            else:
                repaired[damage] = commit_repair(job.lake, damage)
        except LakeError as error:
            failures.append(Failure(type(error).__name__, f"repair of {damage} failed: {error}"))
    return repaired, failures


def _repair_row_ids(job: Job, findings: Findings) -> int:
    """Raise the next row id of tables above all that their files and inlined rows hold."""
    wanted = {finding.table_id for finding in findings.of(NEXT_ROW_ID)}
    # Not every finding was kept where there are many: then each table is looked at.
    are_all = findings.counts[NEXT_ROW_ID] == len(findings.of(NEXT_ROW_ID))
    with job.lake.view() as view:
        tables = [t for t in view.tables() if t.table_id in wanted or not are_all]
    repaired = 0
    for table in tables:
        inspections = _inspect_table(job, table)
        if any(inspection.largest_row_id is None for inspection in inspections):
            if table.table_id not in wanted:
                continue
            raise DamagedLake(f"the row ids in the files of {table.full_name} cannot all be read")
        with job.lake.view() as view:
            known = largest_row_id(view.session, table.table_id)
        following = max(_largest(inspections), known) + 1
        repaired += commit_next_row_id(job.lake, table.table_id, following)
    return repaired


def _repair_nan(job: Job) -> int:
    """Look for NaN again, since not every finding was kept, and tell of it."""
    with job.lake.view() as view:
        tables = _looked_into(job, view)
    repaired = 0
    for table in tables:
        findings = (f for i in _inspect_table(job, table) for f in i.findings)
        repaired += commit_nan(job.lake, [f for f in findings if f.damage == FILE_NAN])
    return repaired


def _looked_into(job: Job, view: LakeView) -> list[Table]:
    return list(chosen_tables(job, view, for_upkeep=False)) if job.tables else view.tables()


def _narrow_tables(job: Job) -> list[Table]:
    """Return the tables whose statistics leave something out."""
    with job.lake.view() as view:
        tables = _looked_into(job, view)
        return [table for table in tables if any(check_bounds(view.session, table))]


def _left(job: Job, before: Findings) -> dict[str, int]:
    """Return what is still there after the repairs, class by class."""
    after = Findings(1)
    narrow = _narrow_tables(job) if TABLE_STATISTICS in before.counts else ()
    with job.lake.view() as view:
        check_catalog(view, after)
        for table in narrow:
            after.add(check_bounds(view.session, table))
    mended = {*REPAIRS, *_BY_LOOKING}
    return {
        damage: after.counts.get(damage, 0) if damage in mended else count
        for damage, count in before.counts.items()
    }


def _reports(
    findings: Findings, plan: Mapping[str, int], repaired: Mapping[str, int]
) -> list[ClassReport]:
    reports = []
    for damage in CLASSES.values():
        count = findings.counts.get(damage.name, 0)
        if not count:
            continue
        examples = findings.of(damage.name)
        reports.append(
            ClassReport(
                damage.name,
                damage.severity,
                count,
                plan.get(damage.name, 0),
                repaired.get(damage.name, 0),
                examples[0].message if examples else "",
                damage.advice,
            )
        )
    return reports


def _line(finding: Finding, names: Mapping[int, str]) -> str:
    """Return a finding as one line of JSON, for the log and the report file."""
    damage = CLASSES[finding.damage]
    table = None if finding.table_id is None else names.get(finding.table_id)
    return json.dumps(
        {
            **asdict(finding),
            "severity": damage.severity,
            "table": table,
            "advice": damage.advice,
            "repairable": damage.name in {*REPAIRS, *_BY_LOOKING},
        }
    )


def _by_severity(reports: Iterable[ClassReport]) -> dict[str, int]:
    counts = {"errors": 0, "warnings": 0, "notices": 0}
    for report in reports:
        counts[f"{report.severity}s"] += report.count
    return counts


def _verdict(job: Job, left: Iterable[ClassReport]) -> str:
    told = "; ".join(f"{r.damage} ({r.count}): {r.example}. Do: {r.advice}" for r in left)
    return f"{job.lake} is damaged: {told}"


def _messages(
    job: Job, reports: Iterable[ClassReport], failures: Iterable[Failure]
) -> tuple[str, ...]:
    if any(reports):
        return ()
    return () if any(failures) else (f"{job.lake} is sound as far as was looked",)
