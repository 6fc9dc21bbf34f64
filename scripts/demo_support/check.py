"""The judgement: does every kept snapshot show the rows the source data says it should?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from scripts.demo_support.catalogs import LakePlace
from scripts.demo_support.fingerprint import Fingerprint
from scripts.demo_support.reference import ReferenceLake
from scripts.demo_support.truth import Truth


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found in one lake.

    Attributes:
        tenant: Whose lake it is.
        snapshots: Kept snapshots that were read.
        tables: Tables that were read, over all of them.
        rows: Rows that were read, over all of them.
        faults: What is not as it should be, a line each.
    """

    tenant: str
    snapshots: int
    tables: int
    rows: int
    faults: tuple[str, ...]

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


def judge(place: LakePlace, truth: Truth, *, kept: int) -> Verdict:
    """Read every kept snapshot of a lake and compare it with the truth.

    Args:
        place: The lake.
        truth: What its snapshots must show.
        kept: How many snapshots must be there.
    """
    lake = ReferenceLake(place)
    snapshots = lake.snapshots()
    faults: list[str] = []
    if len(snapshots) != kept:
        faults.append(f"{len(snapshots)} snapshots are kept, where it should be {kept}")
    tables = rows = 0
    for snapshot in snapshots:
        found = lake.tables_at(snapshot)
        tables += len(found)
        rows += sum(table.rows for table in found.values())
        faults += _differences(snapshot, truth.at(snapshot), found)
    return Verdict(place.tenant, len(snapshots), tables, rows, tuple(faults))


def _differences(
    snapshot: int, expected: Mapping[str, Fingerprint], found: Mapping[str, Fingerprint]
) -> Iterator[str]:
    for name in sorted(expected.keys() | found.keys()):
        should, does = expected.get(name, Fingerprint()), found.get(name)
        where = f"snapshot {snapshot}, table {name}"
        if does is None:
            yield f"{where}: it is not there"
        elif does.rows != should.rows:
            yield f"{where}: {does.rows:,} rows, where it should be {should.rows:,}"
        elif should.rows and does != should:
            yield f"{where}: {does.rows:,} rows, but not the right ones"
