"""The sensor that waits for new data in a lake."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import BaseSensorOperator, PokeReturnValue, conf

from airflow_provider_ducklake.hooks._errors import airflow_error, airflow_error_named
from airflow_provider_ducklake.hooks._values import (
    as_bool,
    as_int,
    chosen,
    given,
    given_names,
    strings,
)
from airflow_provider_ducklake.lake.errors import LakeError

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_ducklake.lake.lake import Lake
    from airflow_provider_ducklake.sensors._changes import Found, Wanted

_BASELINE: Final = "ducklake_baseline"


class DuckLakeSnapshotSensor(BaseSensorOperator):
    """Wait for a snapshot after a baseline that changed given tables; return its id.

    The id returned (as XCom) is that of the newest snapshot that counts, so it serves as the next
    baseline. Compaction and flush change no row and are ignored unless asked for. Snapshots that
    were expired before the sensor saw them are made up for by the state of the tables' files.

    Without a `baseline` the sensor waits for what comes after the snapshot that is newest when it
    first looks. That one is kept in memory in mode `poke`. In mode `reschedule` every look is a new
    process: from Airflow 3.3 on it is kept in the task state store, across retries too; before,
    it is worked out again from the time of the first look, exact as far as the clocks of Airflow
    and of the lake's writers agree. To be exact everywhere, pass a baseline, for example
    `"{{ ti.xcom_pull('ingest')['snapshot_after'] }}"`.

    Args:
        ducklake_conn_id: Connection of the lake.
        catalog: Catalog of the shared store, instead of the one the connection names.
        catalog_url: SQLite catalog in a bucket, instead of the one the connection names; every look
            fetches it.
        tables: Tables of which any may change, as `schema.table`, or `table` for schema `main`;
            None is any change to the lake. One that does not exist yet is waited for. Like a
            catalog, tables that are given and render to nothing are refused.
        baseline: Id of the newest snapshot that is known already.
        include_maintenance: Let compaction and flush count too.
        deferrable: Look once, then wait in Airflow's triggerer, which takes no worker slot; `mode`
            does not matter then. What it returns, `timeout` and `soft_fail` are the same.
        **kwargs: See `BaseSensorOperator`: `mode`, `poke_interval`, `timeout`, …
    """

    template_fields: Sequence[str] = (
        "ducklake_conn_id",
        "catalog",
        "catalog_url",
        "tables",
        "baseline",
        "include_maintenance",
    )
    ui_color = "#d9f0f7"

    def __init__(
        self,
        *,
        ducklake_conn_id: str = "ducklake_default",
        catalog: str | None = None,
        catalog_url: str | None = None,
        tables: Sequence[str] | str | None = None,
        baseline: int | str | None = None,
        include_maintenance: bool | str = False,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.ducklake_conn_id = ducklake_conn_id
        self.catalog = catalog
        self.catalog_url = catalog_url
        self.tables = tables
        self.baseline = baseline
        self.include_maintenance = include_maintenance
        self.deferrable = deferrable
        # Rendered to Python's None, they cannot be told from ones that were never given.
        self._named = given_names(catalog=catalog, catalog_url=catalog_url, tables=tables)
        self._seen: int | None = None

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once.

        Args:
            context: Airflow's execution context.

        Returns:
            Done, with the snapshot's id; or not yet.

        Raises:
            AirflowFailException: The connection is wrong, or the catalog is of another format.
            AirflowException: The catalog cannot be reached now.
            TaskDeferred: Not yet, and the triggerer is to go on looking.
        """
        from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
        from airflow_provider_ducklake.sensors._changes import look

        try:
            named = {name: chosen(getattr(self, name), name) for name in self._named}
            named.pop("tables", None)
            wanted = self._wanted()
            lake = DuckLakeHook(self.ducklake_conn_id, **named).lake()
            baseline = self._baseline(lake, context)
            with lake.view() as view:
                found = look(view, wanted, baseline)
        except LakeError as error:
            raise airflow_error(error) from None
        self._tell(found, baseline)
        if found.snapshot_id is None:
            self._remember(found.looked_at, context)
            if self.deferrable:
                self._wait_in_triggerer(wanted, found.looked_at, named)
        return PokeReturnValue(found.snapshot_id is not None, found.snapshot_id)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> int:
        """Return what the trigger found, as XCom.

        Args:
            context: Airflow's execution context.
            event: What the trigger told.

        Raises:
            AirflowFailException: The connection is wrong, or the catalog is of another format.
        """
        if "error" in event:
            raise airflow_error_named(event["error"], event["message"])
        self.log.info("Snapshot %s is what was waited for", event["snapshot_id"])
        return int(event["snapshot_id"])

    def _wait_in_triggerer(self, wanted: Wanted, baseline: int, named: dict[str, str]) -> None:
        from airflow_provider_ducklake.triggers.snapshot import DuckLakeSnapshotTrigger

        trigger = DuckLakeSnapshotTrigger(
            ducklake_conn_id=self.ducklake_conn_id,
            baseline=baseline,
            tables=wanted.tables,
            include_maintenance=wanted.include_maintenance,
            poll_interval=self.poke_interval,
            **named,
        )
        self.defer(
            trigger=trigger,
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def _wanted(self) -> Wanted:
        from airflow_provider_ducklake.sensors._changes import Wanted

        names = strings(self.tables, "tables")
        maintenance = as_bool(self.include_maintenance, "include_maintenance")
        return Wanted.of(names if "tables" in self._named else None, maintenance)

    def _tell(self, found: Found, baseline: int) -> None:
        for name in found.missing:
            self.log.info("There is no table %s yet", name)
        if found.in_files:
            self.log.info(
                "Of the snapshots after %s, %s were expired; the files show a change",
                baseline,
                found.expired,
            )
        elif found.snapshot_id is not None:
            self.log.info("Snapshot %s is what was waited for", found.snapshot_id)
        else:
            self.log.info(
                "Nothing up to snapshot %s, nor after baseline %s", found.looked_at, baseline
            )

    def _baseline(self, lake: Lake, context: Context) -> int:
        """Return the snapshot after which changes count at this look."""
        if self._seen is not None:
            return self._seen
        if given(self.baseline):
            return as_int(self.baseline, "baseline")
        if (store := context.get("task_state_store")) is not None:
            kept = store.get(_BASELINE)
            if kept is not None:
                return int(str(kept))
        first_look = self._first_look(context)
        baseline = _newest_by(lake, first_look) if first_look else lake.head().snapshot_id
        self._remember(baseline, context)
        return baseline

    def _first_look(self, context: Context) -> datetime | None:
        """Return when this sensor first looked, None when it does so now."""
        ti = context.get("ti")
        if not self.reschedule or ti is None:
            return None
        first: datetime | None = ti.get_first_reschedule_date(context)
        return first

    def _remember(self, snapshot_id: int, context: Context) -> None:
        self._seen = snapshot_id
        # A baseline that was given is looked up again at each try: it may have been corrected.
        store = None if given(self.baseline) else context.get("task_state_store")
        if store is not None:
            store.set(_BASELINE, snapshot_id)


def _newest_by(lake: Lake, instant: datetime) -> int:
    """Return the newest snapshot that was there by an instant, else the one before all kept."""
    from airflow_provider_ducklake.lake.reader import newest_by, read_snapshots

    with lake.view() as view:
        found = newest_by(view.session, instant)
        if found is None:
            found = read_snapshots(view.session, limit=1)[0].snapshot_id - 1
        return found
