"""What each snapshot of a tenant's lake must show, worked out from the source data alone."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import duckdb

from scripts.demo_support.fingerprint import Fingerprint, fingerprint
from scripts.demo_support.source import DIMENSIONS, of_tenant

# Two days of blizzard. A person takes their flights out of the lake, then puts those back that
# took off, hour by hour.
BLIZZARD: Final = "month = 2 AND day IN (8, 9)"
TOOK_OFF: Final = f"{BLIZZARD} AND dep_time IS NOT NULL"

State = Mapping[str, Fingerprint]


class Truth:
    """The tables of one tenant after every step that changes rows."""

    def __init__(self, session: duckdb.DuckDBPyConnection, tenant: str) -> None:
        """Begin with a lake without tables; `flights_loaded` is what was ever loaded of them.

        Args:
            session: From `read_source`.
            tenant: One of `TENANTS`.
        """
        self._session = session
        self._tenant = tenant
        self._months: set[int] = set()
        self._corrected = False
        self._hours: set[int] = set()
        self.flights_loaded = 0
        self._states: dict[int, State] = {0: MappingProxyType({})}

    def record(self, step: str, snapshot_id: int) -> None:
        """Say that a step is done and what the lake's newest snapshot is since then.

        Args:
            step: The task's id, `correction`, or `trickle.` with an hour. Steps that change no row
                need no word.
            snapshot_id: The newest snapshot after it.
        """
        group, _, name = step.rpartition(".")
        changed: dict[str, Fingerprint] = {}
        if group == "dimensions" and name in DIMENSIONS:
            changed[name] = self._fingerprint(name)
        elif group == "flights":
            quarter = int(name.removeprefix("Q"))
            self._months |= set(range(3 * quarter - 2, 3 * quarter + 1)) - {12}
        elif step == "register_month":
            self._months.add(12)
        elif step == "correction":
            self._corrected = True
        elif group == "trickle":
            self._hours.add(int(name))
        else:
            return
        if not changed:
            changed["flights"] = self._fingerprint("flights", self._flights())
            self.flights_loaded = max(self.flights_loaded, changed["flights"].rows)
        before = self._states[max(self._states)]
        self._states[snapshot_id] = MappingProxyType({**before, **changed})

    def at(self, snapshot_id: int) -> State:
        """Return the tables a snapshot must show; it may show others, without rows."""
        return self._states[max(known for known in self._states if known <= snapshot_id)]

    def _fingerprint(self, table: str, condition: str = "true") -> Fingerprint:
        view = of_tenant(self._session, self._tenant, table)
        return fingerprint(self._session, f"{view} WHERE {condition}")

    def _flights(self) -> str:
        months = ", ".join(str(month) for month in sorted(self._months))
        wanted = f"month IN ({months})"
        if self._corrected:
            hours = ", ".join(str(hour) for hour in (-1, *sorted(self._hours)))
            wanted += f" AND (NOT ({BLIZZARD}) OR ({TOOK_OFF} AND hour IN ({hours})))"
        return wanted
