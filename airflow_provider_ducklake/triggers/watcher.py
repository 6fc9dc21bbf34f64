"""The trigger that wakes DAGs scheduled on an asset when a lake changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_ducklake.hooks._values import as_number, strings
from airflow_provider_ducklake.lake.errors import ConfigurationError, LakeError
from airflow_provider_ducklake.sensors._changes import Found, Wanted, look
from airflow_provider_ducklake.triggers._glance import Glance, glance
from airflow_provider_ducklake.triggers._poll import Complaints, PolledLake, answers
from airflow_provider_ducklake.triggers._watermark import Watermark

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.lake import LakeView


class DuckLakeSnapshotEventTrigger(BaseEventTrigger):
    """Report new snapshots that changed given tables, as events of the assets that it watches.

    What counts is what counts for `DuckLakeSnapshotSensor`: compaction and flush do not, unless
    asked for. A poll reports one event at most, `{"first_snapshot": 40, "last_snapshot": 42}`. Take
    it for a wake-up and read from where your DAG has got itself: Airflow may give several events to
    one run, and an event that was reported before a restart may be reported again.

    From Airflow 3.3 on watchers of one lake with the same interval share one poll, and how far each
    has got is kept in the asset state store: what was committed while the triggerer was down is
    reported when it is back. Before, each start of the triggerer reports the newest snapshot that
    counts.

    What is wrong with connection or catalog is told in the triggerer's log, once, and waited out.

    Example:
        >>> watcher = AssetWatcher(
        ...     name="orders", trigger=DuckLakeSnapshotEventTrigger(tables="sales.orders")
        ... )  # doctest: +SKIP
        >>> orders = Asset("orders", watchers=[watcher])  # doctest: +SKIP

    Args:
        ducklake_conn_id: Connection of the lake.
        catalog: Catalog of the shared store, instead of the one the connection names.
        catalog_url: SQLite catalog in a bucket, instead of the one the connection names.
        tables: Tables of which any may change, as `schema.table`, or `table` for schema `main`;
            None is any change to the lake. One that does not exist yet is waited for.
        include_maintenance: Let compaction and flush count too.
        poll_interval: Seconds between two looks.

    Raises:
        ConfigurationError: Tables are given and name none, or the interval is no time.
    """

    def __init__(
        self,
        *,
        ducklake_conn_id: str = "ducklake_default",
        catalog: str | None = None,
        catalog_url: str | None = None,
        tables: Sequence[str] | str | None = None,
        include_maintenance: bool = False,
        poll_interval: float = 60.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ducklake_conn_id = ducklake_conn_id
        self.catalog = catalog
        self.catalog_url = catalog_url
        self.tables = None if tables is None else strings(tables, "tables")
        self.include_maintenance = include_maintenance
        self.poll_interval = as_number(poll_interval, "poll_interval")
        self._wanted = Wanted.of(self.tables, include_maintenance)
        if self.poll_interval <= 0:
            raise ConfigurationError(f"poll_interval must be above 0, and it is {poll_interval}")

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments to make it again: names and times, no secret."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            **self._lake(),
            **self._what(),
            "poll_interval": self.poll_interval,
        }

    def _lake(self) -> dict[str, Any]:
        return {
            "ducklake_conn_id": self.ducklake_conn_id,
            "catalog": self.catalog,
            "catalog_url": self.catalog_url,
        }

    def _what(self) -> dict[str, Any]:
        return {"tables": self.tables, "include_maintenance": self.include_maintenance}

    def shared_stream_key(self) -> Hashable:
        """Return what watchers have in common that share one poll: the lake and the interval."""
        return ("ducklake", *self._lake().values(), self.poll_interval)

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncGenerator[Glance, None]:
        """Poll the lake, for ever, and yield what each poll saw.

        Args:
            kwargs: Of one of the watchers; the lake and the interval are those of all.
        """
        lake = PolledLake(kwargs["ducklake_conn_id"], kwargs["catalog"], kwargs["catalog_url"])
        after: int | None = None

        async def ask() -> Glance:
            return await lake.look(lambda view: glance(view, after))

        async with aclosing(answers(ask, kwargs["poll_interval"], endure=True)) as polls:
            async for seen in polls:
                after = seen.head
                yield seen

    async def filter_shared_stream(
        self, shared_stream: AsyncIterator[Glance]
    ) -> AsyncGenerator[TriggerEvent, None]:
        """Yield an event for each poll that saw what this watcher waits for.

        Args:
            shared_stream: What each poll saw; it may begin later than this watcher's watermark.
        """
        lake, complaints = PolledLake(*self._lake().values()), Complaints()
        mark = Watermark(getattr(self, "asset_state_store", None), {**self._lake(), **self._what()})
        seen: int | None = None
        begun = False
        async for poll in shared_stream:
            try:
                if not begun:
                    seen, begun = await mark.read(), True
                # Not before the next poll: by then Airflow has the event of this one.
                await mark.keep(seen)
                if seen is None and mark.lasts:
                    seen = poll.after
                    await mark.keep(seen)
                found = await self._find(poll, lake, -1 if seen is None else seen)
            except LakeError as error:
                complaints.tell(error)
                continue
            complaints.settle()
            seen = found.looked_at
            if found.snapshot_id is not None:
                payload = {"first_snapshot": found.first, "last_snapshot": found.snapshot_id}
                yield TriggerEvent(payload)  # type: ignore[no-untyped-call]

    async def run(self) -> AsyncGenerator[TriggerEvent, None]:
        """Poll on its own, in Airflow before 3.3."""
        stream = self.open_shared_stream(self.serialize()[1])
        async with aclosing(stream), aclosing(self.filter_shared_stream(stream)) as events:
            async for event in events:
                yield event

    async def _find(self, poll: Glance, lake: PolledLake, seen: int) -> Found:
        def ask(view: LakeView) -> Found:
            # Where a lake was put back from a copy, ids begin again at an older one.
            return look(view, self._wanted, seen if seen <= view.head.snapshot_id else -1)

        found = poll.find(self._wanted, seen)
        return await lake.look(ask) if found is None else found
