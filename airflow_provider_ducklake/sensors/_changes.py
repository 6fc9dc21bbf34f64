"""Deciding which snapshot, if any, is the change somebody waits for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.changes import Change, parse_changes
from airflow_provider_ducklake.lake.errors import ConfigurationError, NotFound

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.lake import LakeView
    from airflow_provider_ducklake.lake.model import Snapshot, Table


@dataclass(frozen=True, slots=True)
class Watched:
    """What is waited for.

    Attributes:
        table_ids: Tables whose changes count; None is any change to the lake.
        names: `schema.table` of the same tables in lower case, for their creation.
        include_maintenance: Compaction and flush, which change no row, count too.
    """

    table_ids: frozenset[int] | None = None
    names: frozenset[str] = frozenset()
    include_maintenance: bool = False

    def concerns(self, changes: Iterable[Change]) -> bool:
        """Tell whether one snapshot's changes are what is waited for."""
        return any(self._concerns(change) for change in changes)

    def _concerns(self, change: Change) -> bool:
        if change.is_upkeep and not self.include_maintenance:
            return False
        if self.table_ids is None:
            return True
        if change.word == "created_table":
            return change.about.replace('"', "").lower() in self.names
        return change.table_id in self.table_ids


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is waited for, in the words of the one who waits.

    Attributes:
        tables: Tables by name, of which any may change; None is any change to the lake.
        include_maintenance: Compaction and flush count too.
    """

    tables: tuple[str, ...] | None = None
    include_maintenance: bool = False

    @classmethod
    def of(cls, tables: Sequence[str] | None, include_maintenance: bool) -> Wanted:
        """Return what somebody waits for.

        Raises:
            ConfigurationError: Tables are given, and none is named.
        """
        if tables is not None and not tables:
            raise ConfigurationError("tables is given and names none: any change would count")
        return cls(None if tables is None else tuple(tables), include_maintenance)

    def among(self, known: Iterable[Table]) -> tuple[list[Table], list[str]]:
        """Return the tables that are meant, and the names of those that do not exist yet."""
        from airflow_provider_ducklake.lake.reader import find_table

        known, found, missing = list(known), [], []
        for name in self.tables or ():
            try:
                found.append(find_table(known, name))
            except NotFound:
                missing.append(name)
        return found, missing

    def watched(self, tables: Iterable[Table]) -> Watched:
        """Return the same by the ids of the tables that are meant."""
        tables = list(tables)
        return Watched(
            None if self.tables is None else frozenset(table.table_id for table in tables),
            frozenset(table.full_name.replace('"', "").lower() for table in tables),
            self.include_maintenance,
        )


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of looking at the snapshots after a baseline.

    Attributes:
        snapshot_id: Newest snapshot that is what was waited for; None when there is none.
        looked_at: Newest snapshot there is: whoever looks again may begin after it.
        expired: How many snapshots in between were expired before anybody looked.
        first: Oldest snapshot that is what was waited for.
        in_files: It was told from the tables' files, since its snapshot was expired.
        missing: Names of tables that do not exist yet.
    """

    snapshot_id: int | None
    looked_at: int
    expired: int
    first: int | None = None
    in_files: bool = False
    missing: tuple[str, ...] = ()


def find_change(snapshots: Iterable[Snapshot], baseline: int, watched: Watched) -> Found:
    """Find the snapshots after a baseline that are what is waited for: the newest, and the oldest.

    Ids decide, never times: several snapshots may share a time, and clocks differ.

    Args:
        snapshots: Every kept snapshot with an id above the baseline, in any order.
        baseline: Newest snapshot that is known already.
        watched: What is waited for.

    Raises:
        UnsupportedCatalog: A change of a kind this version does not know.
    """
    newer = [s for s in snapshots if s.snapshot_id > baseline]
    newest = max((s.snapshot_id for s in newer), default=baseline)
    matching = [s.snapshot_id for s in newer if watched.concerns(parse_changes(s.changes_made))]
    return Found(
        max(matching, default=None),
        newest,
        newest - baseline - len(newer),
        min(matching, default=None),
    )


def look(view: LakeView, wanted: Wanted, baseline: int) -> Found:
    """Look once at a lake for what is waited for.

    Args:
        view: A read transaction on the lake.
        wanted: What is waited for.
        baseline: Newest snapshot that is known already.

    Raises:
        UnsupportedCatalog: A change of a kind this version does not know.
    """
    from airflow_provider_ducklake.lake.reader import read_snapshots

    tables, missing = wanted.among([] if wanted.tables is None else view.tables())
    snapshots = read_snapshots(view.session, after=baseline)
    found = find_change(snapshots, baseline, wanted.watched(tables))
    found = replace(found, missing=tuple(missing))
    if found.snapshot_id is not None or found.expired <= 0:
        return found
    counting = view.tables() if wanted.tables is None else tables
    if not changed_in_files(view, counting, baseline):
        return found
    return replace(found, snapshot_id=found.looked_at, first=baseline + 1, in_files=True)


def changed_in_files(view: LakeView, tables: Iterable[Table], baseline: int) -> bool:
    """Tell from live files and inlined rows whether any table changed after a snapshot.

    For snapshots whose change list was expired. A compacted file counts by the newest snapshot of
    its rows. What leaves no trace goes unseen: files deleted as a whole whose end was expired too.

    Args:
        view: A read transaction on the lake.
        tables: The tables that count.
        baseline: Newest snapshot that is known already.
    """
    return any(view.newest_change(table) > baseline for table in tables)
