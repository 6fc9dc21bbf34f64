"""What one poll of a lake tells all who watch it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.sensors._changes import Found, Wanted, find_change

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.lake import LakeView
    from airflow_provider_ducklake.lake.model import Snapshot, Table


@dataclass(frozen=True, slots=True)
class Glance:
    """A lake at one poll, and what came since the poll before.

    Attributes:
        after: Newest snapshot of the poll before; at the first poll that of this one.
        head: Newest snapshot.
        snapshots: Kept ones after `after`.
        tables: The lake's tables, where there are such snapshots.
    """

    after: int
    head: int
    snapshots: tuple[Snapshot, ...] = ()
    tables: tuple[Table, ...] = ()

    def find(self, wanted: Wanted, baseline: int) -> Found | None:
        """Find what is waited for after a baseline; None where only a look at the lake can tell.

        Args:
            wanted: What is waited for.
            baseline: Newest snapshot that is known already.

        Raises:
            UnsupportedCatalog: A change of a kind this version does not know.
        """
        if not self.after <= baseline <= self.head:
            return None
        tables, _ = wanted.among(self.tables)
        found = find_change(self.snapshots, baseline, wanted.watched(tables))
        return None if found.snapshot_id is None and found.expired > 0 else found


def glance(view: LakeView, after: int | None) -> Glance:
    """Look at a lake for all who watch it.

    Args:
        view: A read transaction on the lake.
        after: Newest snapshot of the look before; None at the first one.
    """
    from airflow_provider_ducklake.lake.reader import read_snapshots

    head = view.head.snapshot_id
    # A lake that was put back from a copy is behind; whoever watches has to look at it anew.
    if after is None or head <= after:
        return Glance(head, head)
    snapshots = read_snapshots(view.session, after=after)
    return Glance(after, head, tuple(snapshots), tuple(view.tables()))
