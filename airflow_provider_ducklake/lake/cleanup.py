"""Files scheduled for deletion: which are old enough to go, and forgetting those that went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from airflow_provider_ducklake.lake.errors import DamagedLake, SafetyRefusal
from airflow_provider_ducklake.lake.instants import before, parse_cutoff, parse_instant
from airflow_provider_ducklake.lake.lake import Lake, LakeView
from airflow_provider_ducklake.lake.model import Snapshot
from airflow_provider_ducklake.lake.paths import Location, join
from airflow_provider_ducklake.lake.reader import check_format, read_options
from airflow_provider_ducklake.lake.references import used_locations
from airflow_provider_ducklake.lake.results import Skipped

# Younger files may belong to a job that has not committed yet, whatever the lake's option says.
ORPHAN_FLOOR: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class ScheduledFile:
    """One row of `ducklake_files_scheduled_for_deletion`, with its full path."""

    file_id: int
    path: str


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """What a cleanup would do.

    Attributes:
        delete: Objects to delete, then to forget.
        forget: Rows to forget without touching the object: it lies outside the data path.
        skipped: What stays scheduled, and why.
        head: The newest snapshot when this was planned.
    """

    delete: tuple[ScheduledFile, ...]
    forget: tuple[ScheduledFile, ...]
    skipped: tuple[Skipped, ...]
    head: Snapshot


def deletion_cutoff(
    view: LakeView,
    now: datetime,
    *,
    older_than: str | None = None,
    everything: bool = False,
    force: bool = False,
    floor: timedelta | None = None,
) -> datetime:
    """Return the instant before which files may go, and refuse a wish for one too recent.

    Args:
        view: The lake, for its option `delete_older_than`.
        now: The current instant.
        older_than: An age or an instant; None takes the lake's option, or the floor if that is
            longer: nobody asked for less.
        everything: No waiting at all.
        force: A person has decided to go below the grace period.
        floor: Smallest age that needs no force; None is the lake's option.

    Raises:
        SafetyRefusal: The cutoff is more recent than the floor allows, without force.
        ConfigurationError: `older_than` cannot be read.
    """
    granted = before(view.option("delete_older_than") or "2 days", now)
    newest = granted if floor is None else now - floor
    if everything:
        cutoff = now + timedelta(microseconds=1)
    elif older_than:
        cutoff = parse_cutoff(older_than, now)
    else:
        return granted if force else min(granted, newest)
    if cutoff > newest and not force:
        raise SafetyRefusal(
            f"this would delete files younger than {_days(now - newest)}, which a running reader "
            "or an uncommitted job may still need; wait, or give force=true if nobody uses this "
            "lake"
        )
    return cutoff


def plan_cleanup(
    view: LakeView, cutoff: datetime, *, outside_data_path: bool = False
) -> CleanupPlan:
    """Choose the scheduled files that may go.

    Args:
        view: The lake.
        cutoff: Only files scheduled before this instant.
        outside_data_path: Delete registered files that lie outside the data path too. By
            default they are somebody else's: the catalog forgets them, the objects stay.

    Raises:
        DamagedLake: A row names no file, or not since when.
    """
    rows = view.session.rows(
        "SELECT data_file_id, path, path_is_relative, CAST(schedule_start AS VARCHAR) "
        "FROM {ducklake_files_scheduled_for_deletion} ORDER BY data_file_id"
    )
    root = Location.parse(view.data_path).real()
    found: list[tuple[ScheduledFile, Location, str]] = []
    for file_id, path, relative, since in rows:
        if None in (file_id, path, since):
            raise DamagedLake(
                "a row of ducklake_files_scheduled_for_deletion makes no sense, so nothing was "
                f"deleted: data_file_id {file_id}, path {path!r}, schedule_start {since}. Correct "
                "or delete that row"
            )
        full = join(view.data_path, path) if relative else path
        found.append((ScheduledFile(int(file_id), full), Location.parse(full).real(), since))
    live = _used_among(view, (location for _, location, _ in found))
    delete, forget, reasons = [], [], Counter[str]()
    for file, location, since in found:
        if location in live:
            reasons["still used by a table: not deleted"] += 1
        elif parse_instant(since) >= cutoff:
            reasons["scheduled too recently"] += 1
        elif not outside_data_path and not location.is_under(root):
            forget.append(file)
        else:
            delete.append(file)
    skipped = tuple(Skipped(reason, count) for reason, count in sorted(reasons.items()))
    return CleanupPlan(tuple(delete), tuple(forget), skipped, view.head)


class Watch:
    """Looks whether scheduled files were taken into use since they were planned for deletion.

    A file comes into use by a new row, with a new id or in a new snapshot: so each look reads the
    rows that came since the one before, and all looks together read the catalog about once.
    """

    def __init__(self, lake: Lake, plan: CleanupPlan) -> None:
        self._lake = lake
        self._seen = plan.head
        self._taken: set[Location] = set()

    def still_unused(self, files: Sequence[ScheduledFile]) -> list[ScheduledFile]:
        """Return those of some planned files that no table uses, just before deletion."""
        with self._lake.view() as view:
            head, seen = view.head, self._seen
            # Ids that fall are of a catalog that was put back: it is read as a whole.
            is_older = head.snapshot_id < seen.snapshot_id or head.next_file_id < seen.next_file_id
            since = None if is_older else seen
            self._taken.update(used_locations(view.session, view.data_path, since=since))
            self._seen = head
        return [file for file in files if Location.parse(file.path).real() not in self._taken]


def _used_among(view: LakeView, locations: Iterable[Location]) -> set[Location]:
    wanted = set(locations)
    return {used for used in used_locations(view.session, view.data_path) if used in wanted}


def forget_files(lake: Lake, files: Sequence[ScheduledFile]) -> int:
    """Take files off the schedule because their objects are gone; return how many rows went."""
    if not files:
        return 0
    with lake.database.write() as session:
        check_format(read_options(session), lake)
        return session.execute_in(
            "DELETE FROM {ducklake_files_scheduled_for_deletion} WHERE data_file_id IN (??)",
            (file.file_id for file in files),
        )


def _days(age: timedelta) -> str:
    hours = age.total_seconds() / 3_600
    return f"{hours / 24:g} days" if hours >= 48 else f"{hours:g} hours"
