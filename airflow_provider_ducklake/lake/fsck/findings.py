"""What a check finds: classes of damage, single findings, and as many as memory may hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

Severity = Literal["error", "warning", "notice"]
EXAMPLES: Final = 20  # findings of one class that are told one by one, if nobody says otherwise


@dataclass(frozen=True, slots=True)
class DamageClass:
    """One kind of damage.

    Attributes:
        name: Stable name, for alerts and dashboards.
        severity: `error`: a client reads wrong rows, fails, or will lose data. `warning`: nothing
            is lost yet. `notice`: space that could be free.
        meaning: What is the case.
        danger: What comes of it.
        advice: What to do about it.
        repair: What a repair does; None where a person has to decide.
    """

    name: str
    severity: Severity
    meaning: str
    danger: str
    advice: str
    repair: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One instance of damage.

    Attributes:
        damage: Name of its class.
        message: What is wrong, with ids and values.
        table_id: The table it is in, when it is in one.
        ids: Ids of the rows it is about.
    """

    damage: str
    message: str
    table_id: int | None = None
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassReport:
    """What was found of one class.

    Attributes:
        damage: Name of the class.
        count: How many instances there are.
        repairable: How many rows a repair changes or removes; 0 where a person has to decide.
        repaired: How many it has changed or removed.
        example: One instance in words.
        advice: What to do.
    """

    damage: str
    severity: Severity
    count: int
    repairable: int = 0
    repaired: int = 0
    example: str = ""
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON)."""
        return asdict(self)


@dataclass(slots=True)
class Findings:
    """Findings by class: all are counted, the first few of each class are kept.

    Attributes:
        limit: How many of each class are kept.
    """

    limit: int = EXAMPLES
    counts: dict[str, int] = field(default_factory=dict)
    _kept: dict[str, list[Finding]] = field(default_factory=dict)

    def add(self, found: Iterable[Finding]) -> None:
        """Take up findings one by one."""
        for finding in found:
            self.counts[finding.damage] = self.counts.get(finding.damage, 0) + 1
            kept = self._kept.setdefault(finding.damage, [])
            if len(kept) < self.limit:
                kept.append(finding)

    def add_count(self, damage: str, count: int) -> None:
        """Take up findings of which nothing but their number is known."""
        if count:
            self.counts[damage] = self.counts.get(damage, 0) + count

    def of(self, damage: str) -> list[Finding]:
        """Return the findings of a class that were kept."""
        return self._kept.get(damage, [])

    def __iter__(self) -> Iterator[Finding]:
        """Yield the findings that were kept, class by class."""
        for kept in self._kept.values():
            yield from kept
