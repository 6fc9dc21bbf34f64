"""Orphaned files: objects under a lake's data path that its catalog does not refer to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from airflow_provider_ducklake.lake.errors import SafetyRefusal
from airflow_provider_ducklake.lake.lake import LakeView
from airflow_provider_ducklake.lake.paths import Location
from airflow_provider_ducklake.lake.references import References
from airflow_provider_ducklake.lake.results import Skipped
from airflow_provider_ducklake.storage import ObjectInfo

_DATA_LIKE: Final = (".parquet", ".puffin")
MAX_FRACTION: Final = 0.5
_FEW: Final = 20  # so few files are no sign of a mistaken root


@dataclass(frozen=True, slots=True)
class OrphanPlan:
    """Orphans to delete, and how many other objects there are by reason."""

    orphans: tuple[ObjectInfo, ...]
    skipped: tuple[Skipped, ...]

    @property
    def size(self) -> int:
        """Bytes of the orphans."""
        return sum(orphan.size for orphan in self.orphans)


def plan_orphans(
    listed: Iterable[ObjectInfo],
    references: References,
    root: Location,
    cutoff: datetime,
    *,
    max_fraction: float = MAX_FRACTION,
) -> OrphanPlan:
    """Choose the objects nobody refers to, old enough to be of no running job.

    Args:
        listed: All objects under the data path, listed before the references were read.
        references: What the catalog refers to.
        root: The data path; an object elsewhere stops everything.
        cutoff: Only objects last modified before this instant.
        max_fraction: Largest share of the data files that may go.

    Raises:
        SafetyRefusal: An object lies outside the root, or too large a share would go.
    """
    orphans, reasons, data_like = [], Counter[str](), 0
    for item in listed:
        location = item.location.real()
        if not location.is_under(root):
            raise SafetyRefusal(
                f"the listing of {root.url} holds {location.url}, which does not lie under it; "
                "nothing was deleted"
            )
        if not location.name.endswith(_DATA_LIKE):
            reasons["not a data file"] += 1
            continue
        data_like += 1
        if location in references.files:
            reasons["in use"] += 1
        elif location in references.scheduled:
            reasons["scheduled (cleanup_old_files deletes it)"] += 1
        elif item.last_modified >= cutoff:
            reasons["too young"] += 1
        else:
            orphans.append(item)
    if len(orphans) > max(_FEW, data_like * max_fraction):
        raise SafetyRefusal(
            f"{len(orphans)} of {data_like} data files under {root.url} would go, more than "
            f"max_fraction {max_fraction:g} allows. If this is the right lake and the right "
            "catalog, run it again with a larger max_fraction"
        )
    skipped = tuple(Skipped(reason, count) for reason, count in sorted(reasons.items()))
    return OrphanPlan(tuple(orphans), skipped)


def refuse_shared_root(view: LakeView) -> None:
    """Refuse when another lake of the same database keeps files under or above this data path.

    Raises:
        SafetyRefusal: Such a lake exists; its files would look like orphans of this one.
    """
    root = Location.parse(view.data_path).real()
    for schema, path in view.session.sibling_data_paths():
        other = Location.parse(path).real()
        if other == root or other.is_under(root) or root.is_under(other):
            raise SafetyRefusal(
                f"the lake in schema {schema!r} of the same database keeps its files at {path}, "
                f"which shares a root with {view.data_path}: its files would look like orphans. "
                "Give each lake its own data path"
            )
