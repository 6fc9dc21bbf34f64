"""The trigger of a deferred snapshot sensor."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.sensors._changes import Found, Wanted, look
from airflow_provider_ducklake.triggers._poll import PolledLake, answers


class DuckLakeSnapshotTrigger(BaseTrigger):
    """Wait for a snapshot after a baseline that changed given tables, and tell its id.

    What counts is what counts for `DuckLakeSnapshotSensor`, of which this is the deferred half. A
    catalog that cannot be reached is asked again, less and less often, until the sensor's timeout.

    The event is `{"snapshot_id": 42}`, or `{"error": "NotFound", "message": "…"}` where asking
    again cannot help.

    Args:
        ducklake_conn_id: Connection of the lake.
        baseline: Id of the newest snapshot that is known already.
        catalog: Catalog of the shared store, instead of the one the connection names.
        catalog_url: SQLite catalog in a bucket, likewise.
        tables: Tables of which any may change; None is any change to the lake.
        include_maintenance: Let compaction and flush count too.
        poll_interval: Seconds between two looks.
    """

    def __init__(
        self,
        *,
        ducklake_conn_id: str,
        baseline: int,
        catalog: str | None = None,
        catalog_url: str | None = None,
        tables: Sequence[str] | None = None,
        include_maintenance: bool = False,
        poll_interval: float = 60.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ducklake_conn_id = ducklake_conn_id
        self.baseline = baseline
        self.catalog = catalog
        self.catalog_url = catalog_url
        self.tables = tables
        self.include_maintenance = include_maintenance
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments to make it again: names, ids and times, no secret."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "ducklake_conn_id": self.ducklake_conn_id,
            "baseline": self.baseline,
            "catalog": self.catalog,
            "catalog_url": self.catalog_url,
            "tables": None if self.tables is None else list(self.tables),
            "include_maintenance": self.include_maintenance,
            "poll_interval": self.poll_interval,
        }

    async def run(self) -> AsyncGenerator[TriggerEvent, None]:
        """Look until there is what is waited for; then yield the one event."""
        lake = PolledLake(self.ducklake_conn_id, self.catalog, self.catalog_url)
        wanted = Wanted.of(self.tables, self.include_maintenance)
        baseline = self.baseline

        async def ask() -> Found:
            return await lake.look(lambda view: look(view, wanted, baseline))

        try:
            async with aclosing(answers(ask, self.poll_interval)) as looks:
                async for found in looks:
                    if found.snapshot_id is not None:
                        yield _event(snapshot_id=found.snapshot_id)
                        return
                    baseline = found.looked_at
        except LakeError as error:
            yield _event(error=type(error).__name__, message=str(error))


def _event(**payload: Any) -> TriggerEvent:
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]
