"""Which task this is: the key that makes a retry find its own commit, and what commits say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.location import CatalogLocation


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """One task instance; `map_index` is -1 where nothing is mapped."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int

    @classmethod
    def of(cls, context: Mapping[str, Any], *, task_id: str) -> TaskIdentity:
        """Read it from an execution context.

        Args:
            context: Airflow's context, or the part of one that a test has at hand. Without a run
                id the execution belongs to no run, and is one of its own.
            task_id: Used where the context has no task instance.
        """
        ti = context.get("ti") or context.get("task_instance")
        run_id = getattr(ti, "run_id", None) or context.get("run_id")
        map_index = getattr(ti, "map_index", None)
        return cls(
            dag_id=str(getattr(ti or context.get("dag"), "dag_id", "")),
            run_id=run_id or f"adhoc__{uuid4()}",
            task_id=getattr(ti, "task_id", None) or task_id,
            map_index=-1 if map_index is None else int(map_index),
            try_number=int(getattr(ti, "try_number", None) or 1),
        )

    def commit_key(self, operation: str, location: CatalogLocation) -> str:
        """Return the idempotency key: the same for every try, another for every other task.

        Args:
            operation: Name on the command line.
            location: The catalog; its password takes no part.

        Source: design rule 13 (dag, run, task, map index, operation, catalog).
        """
        parts = [self.dag_id, self.run_id, self.task_id, self.map_index, operation]
        parts += [location.kind, location.target, location.metadata_schema]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def extra_info(self, more: Mapping[str, Any]) -> str:
        """Return the JSON a commit carries: this task, and what the author adds to it."""
        return json.dumps({**asdict(self), **more}, sort_keys=True, default=str)

    def __str__(self) -> str:
        mapped = "" if self.map_index < 0 else f"[{self.map_index}]"
        return f"{self.dag_id}.{self.task_id}{mapped}"
