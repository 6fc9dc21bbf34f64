"""What a hostile tenant tries: statements as data, by what they go for.

In the statements, `@victim@` and the like stand for what a tenant may have learnt of others; see
`Knowledge` in tests/store/conftest.py. A script of several statements has a line `;` between two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.store.hostile.changing import CHANGING
from tests.store.hostile.database import DATABASE
from tests.store.hostile.seeing import SEEING


@dataclass(frozen=True, slots=True)
class Attack:
    """A script, and what it goes for."""

    category: str
    script: str

    @property
    def statements(self) -> list[str]:
        """Its statements, in order."""
        return [statement.strip() for statement in re.split(r"^;$", self.script, flags=re.M)]


ATTACKS = [
    Attack(category, script.strip())
    for group in (SEEING, CHANGING, DATABASE)
    for category, scripts in group.items()
    for script in scripts
]
