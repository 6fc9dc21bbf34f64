"""Deciding which snapshot, if any, is the change somebody waits for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.changes import Change, parse_changes

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
class Found:
    """The outcome of looking at the snapshots after a baseline.

    Attributes:
        snapshot_id: Newest snapshot that is what was waited for; None when there is none.
        looked_at: Newest snapshot there is: whoever looks again may begin after it.
        expired: How many snapshots in between were expired before anybody looked.
    """

    snapshot_id: int | None
    looked_at: int
    expired: int


def find_change(snapshots: Iterable[Snapshot], baseline: int, watched: Watched) -> Found:
    """Find the newest snapshot after a baseline that is what is waited for.

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
    matching = (s.snapshot_id for s in newer if watched.concerns(parse_changes(s.changes_made)))
    return Found(max(matching, default=None), newest, newest - baseline - len(newer))


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
