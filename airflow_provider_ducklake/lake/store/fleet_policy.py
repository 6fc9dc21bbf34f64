"""The policy by which the upkeep of a store is planned, and done: a plan hands it on with its work.

What counts as work is said once, here. Were it said twice, plans would be full of work that
maintenance then does not do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.instants import parse_cutoff, utc_now
from airflow_provider_ducklake.lake.options import unknown_name

# In the order they are run in: snapshots let go before files are merged, files are deleted last.
STEPS: Final = (
    "flush_inlined_data",
    "expire_snapshots",
    "merge_adjacent_files",
    "rewrite_data_files",
    "cleanup_old_files",
)
_AGES: Final = ("expire_older_than", "delete_older_than")
_NUMBERS: Final = (
    "small_file_size",
    "min_small_files",
    "target_file_size",
    "retain_last",
    "min_expired",
    "max_catalogs",
    "max_bytes",
    "batch_catalogs",
)


@dataclass(frozen=True, slots=True)
class FleetPolicy:
    """What counts as work, and how much of it one plan may hold.

    Attributes:
        small_file_size: Data files below so many bytes are merged; larger ones are left alone.
        min_small_files: Fewer of them that could become one file are left alone.
        target_file_size: Bytes a merged file should reach; None is what each table says.
        delete_threshold: Share of deleted rows, 0 to 1, from which a file is rewritten; None is
            what each table says.
        expire_older_than: Age of snapshots to expire, such as `30 days`, or the instant from which
            they do, as `expire_snapshots` takes them.
        retain_last: So many of the newest snapshots of each catalog stay, however old they are.
        min_expired: A catalog with fewer snapshots to expire is left alone.
        delete_older_than: How long files must have been scheduled, or since before when.
        max_catalogs: Catalogs in one plan.
        max_bytes: Bytes to rewrite in one plan.
        max_share: Share of `max_bytes` one catalog may take, 0 to 1.
        batch_catalogs: Catalogs in one batch, which is one Spark application.
    """

    small_file_size: int = 16 * 1024**2
    min_small_files: int = 5
    target_file_size: int | None = None
    delete_threshold: float | None = None
    expire_older_than: str = "30 days"
    retain_last: int = 1
    min_expired: int = 1
    delete_older_than: str = "2 days"
    max_catalogs: int = 1_000
    max_bytes: int = 1024**4
    max_share: float = 0.25
    batch_catalogs: int = 200

    def __post_init__(self) -> None:
        """Refuse what makes no plan."""
        for name in _AGES:
            age = getattr(self, name)
            try:
                parse_cutoff(age if isinstance(age, str) else repr(age), utc_now())
            except (ConfigurationError, OverflowError) as error:
                raise ConfigurationError(f"{name} of a fleet plan: {error}") from None
        for name in _NUMBERS:
            number = getattr(self, name)
            if number is None and name == "target_file_size":
                continue
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ConfigurationError(
                    f"{name} of a fleet plan must be a whole number of at least 1, not {number!r}"
                )
        for name in ("max_share", "delete_threshold"):
            share = getattr(self, name)
            if share is None and name == "delete_threshold":
                continue
            if not isinstance(share, int | float) or not 0 <= share <= 1:
                raise ConfigurationError(
                    f"{name} of a fleet plan must be a share from 0 to 1, not {share!r}"
                )
        if not self.max_share:
            raise ConfigurationError("max_share of a fleet plan is 0, which leaves nothing to do")

    @property
    def catalog_bytes(self) -> int:
        """Bytes one catalog may take."""
        return max(1, int(self.max_bytes * self.max_share))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FleetPolicy:
        """Rebuild a policy from what a batch carries; what is left out has its default.

        Raises:
            ConfigurationError: A name is not known, or a value not possible.
        """
        known = [field.name for field in fields(cls)]
        for name in data:
            if name not in known:
                raise unknown_name("policy of a fleet plan", name, known)
        return cls(**data)


@dataclass(frozen=True, slots=True)
class FleetBatch:
    """The work of one Spark application.

    Attributes:
        catalogs: Catalog name to its operations, each one of `STEPS`.
        policy: What it was planned by, and is done by.
    """

    catalogs: Mapping[str, Sequence[str]]
    policy: FleetPolicy = field(default_factory=FleetPolicy)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON, XCom)."""
        policy = {name: value for name, value in asdict(self.policy).items() if value is not None}
        return {
            "catalogs": {name: list(steps) for name, steps in self.catalogs.items()},
            "policy": policy,
        }

    @classmethod
    def from_json(cls, text: str) -> FleetBatch:
        """Read a batch from `to_dict()`'s output as JSON; the policy may be left out.

        Raises:
            ConfigurationError: It is none, and what is wrong with it.
        """
        try:
            work = json.loads(text)
            catalogs, policy = work.pop("catalogs"), work.pop("policy", {})
            is_work = not work and isinstance(policy, dict)
            is_work = is_work and all(isinstance(steps, list) for steps in catalogs.values())
        except (ValueError, LookupError, TypeError, AttributeError):
            is_work = False
        if not is_work:
            raise ConfigurationError(
                'work must be a JSON object such as {"catalogs": {"acme": '
                '["merge_adjacent_files"]}, "policy": {"min_small_files": 5}}'
            )
        for catalog, steps in catalogs.items():
            unknown = [step for step in steps if step not in STEPS]
            if unknown:
                raise ConfigurationError(
                    f"work of catalog {catalog!r}: {unknown[0]!r} is none of {', '.join(STEPS)}"
                )
        return cls(catalogs, FleetPolicy.from_dict(policy))
