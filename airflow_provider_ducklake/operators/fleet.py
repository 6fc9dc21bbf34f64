"""Operators for the upkeep of a whole store: find the work, then do it a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider_ducklake.hooks._errors import airflow_error
from airflow_provider_ducklake.hooks._values import as_int, as_number, chosen, given, given_names
from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.operators import _options
from airflow_provider_ducklake.operators.base import DuckLakeSparkOperator

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_ducklake.lake.store.fleet_policy import FleetPolicy

_NUMBERS = ("min_small_files", "retain_last", "min_expired", "max_catalogs", "batch_catalogs")
_SIZES = ("small_file_size", "target_file_size", "max_bytes")
_SHARES = ("delete_threshold", "max_share")
_AGES = ("expire_older_than", "delete_older_than")


class DuckLakeFleetPlanOperator(BaseOperator):
    """Find which catalogs of a store need upkeep, and return them in batches, best first.

    One query over the whole store, no Spark, no look at any file. What is returned is for
    dynamic task mapping: `DuckLakeFleetMaintenanceOperator.partial(…).expand(work=plan.output)`.
    Each batch carries what is said here, and is maintained by it.

    All arguments are templated. One that renders to nothing takes its default, but for the ages and
    `retain_last`: without what was meant there, more snapshots or younger files might go.

    Args:
        ducklake_conn_id: Connection of the store.
        small_file_size: Data files below this size (bytes, or text such as `8MiB`) are merged;
            16 MiB.
        min_small_files: Fewer of them that could become one file are left alone; 5.
        target_file_size: Size merged files should reach; each table's own `target_file_size`.
        delete_threshold: Share of deleted rows from which a file is rewritten; each table's own
            `rewrite_delete_threshold`.
        expire_older_than: Age of snapshots to expire; `30 days`.
        retain_last: So many of the newest snapshots of each catalog stay, however old; 1.
        min_expired: A catalog with fewer snapshots to expire is left alone; 1.
        delete_older_than: How long files must have been scheduled; `2 days`.
        max_catalogs: Catalogs in one plan; 1,000.
        max_bytes: Bytes to rewrite in one plan; 1 TiB.
        max_share: Share of `max_bytes` one catalog may take; 0.25. What it needs beyond that stays
            for the next plans.
        batch_catalogs: Catalogs in one batch, which is one Spark application; 200.
        **kwargs: See `BaseOperator`.
    """

    template_fields: Sequence[str] = ("ducklake_conn_id", *_NUMBERS, *_SIZES, *_SHARES, *_AGES)
    ui_color = "#e8e3f5"

    def __init__(
        self,
        *,
        ducklake_conn_id: str = "ducklake_default",
        small_file_size: int | str | None = None,
        min_small_files: int | str | None = None,
        target_file_size: int | str | None = None,
        delete_threshold: float | str | None = None,
        expire_older_than: timedelta | datetime | str | None = None,
        retain_last: int | str | None = None,
        min_expired: int | str | None = None,
        delete_older_than: timedelta | datetime | str | None = None,
        max_catalogs: int | str | None = None,
        max_bytes: int | str | None = None,
        max_share: float | str | None = None,
        batch_catalogs: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.ducklake_conn_id = ducklake_conn_id
        self.small_file_size = small_file_size
        self.min_small_files = min_small_files
        self.target_file_size = target_file_size
        self.delete_threshold = delete_threshold
        self.expire_older_than = expire_older_than
        self.retain_last = retain_last
        self.min_expired = min_expired
        self.delete_older_than = delete_older_than
        self.max_catalogs = max_catalogs
        self.max_bytes = max_bytes
        self.max_share = max_share
        self.batch_catalogs = batch_catalogs
        self._bounds = given_names(
            expire_older_than=expire_older_than,
            retain_last=retain_last,
            delete_older_than=delete_older_than,
        )

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Plan.

        Args:
            context: Airflow's execution context.

        Returns:
            One entry a batch: `catalogs`, name to the operations each needs, and the `policy`.

        Raises:
            AirflowFailException: An argument is wrong, or there is no store.
            AirflowException: The database cannot be reached.
        """
        from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook

        try:
            plan = DuckLakeHook(self.ducklake_conn_id).store().plan_fleet(self._policy())
        except LakeError as error:
            raise airflow_error(error) from None
        for work in plan.work[:100]:
            self.log.info("%s", work)
        self.log.info(
            "%s catalogs in %s batches, %s bytes to rewrite; %s more need work and wait",
            plan.catalogs,
            len(plan.batches),
            plan.size,
            plan.left,
        )
        return [batch.to_dict() for batch in plan.batches]

    def _policy(self) -> FleetPolicy:
        from airflow_provider_ducklake.lake.options import parse_size
        from airflow_provider_ducklake.lake.store.fleet_policy import FleetPolicy

        def size(value: Any, name: str) -> int:
            return parse_size(_options.size(value, name), name)

        kinds: tuple[tuple[Sequence[str], Callable[[Any, str], Any]], ...] = (
            (_NUMBERS, as_int),
            (_SIZES, size),
            (_SHARES, as_number),
            (_AGES, _options.instant),
        )
        for name in self._bounds:
            chosen(getattr(self, name), name)
        values: dict[str, Any] = {}
        for names, parse in kinds:
            values |= {n: parse(getattr(self, n), n) for n in names if given(getattr(self, n))}
        return FleetPolicy(**values)


class DuckLakeFleetMaintenanceOperator(DuckLakeSparkOperator):
    """Maintain one batch of catalogs, hundreds of them, in one Spark application.

    By the policy the batch was planned by, with one commit for each catalog and table. A catalog
    that fails is reported, and the task fails after the others are done; Spark's slots are shared
    fairly among them. What was done to each is written to the store's ledger
    (`ducklake_api.maintenance`).

    Args:
        work: A batch of `DuckLakeFleetPlanOperator`: `{"catalogs": {"acme": ["expire_snapshots"]},
            "policy": {"retain_last": 5}}`; what the policy leaves out has its default.
        threads: Catalogs worked on at a time.
        max_seconds: After so many seconds (or a timedelta) nothing more is begun, on no catalog;
            the next plan has what is left.
        **kwargs: See `DuckLakeSparkOperator`.
    """

    operation = "fleet_maintenance"
    options: ClassVar[Mapping[str, _options.Converter]] = {
        "work": _options.json_object,
        "threads": _options.integer,
        "max_seconds": _options.seconds,
    }
    template_fields: Sequence[str] = (*DuckLakeSparkOperator.template_fields, *options)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DuckLakeSparkOperator.template_fields_renderers,
        "work": "json",
    }

    def __init__(
        self,
        *,
        work: Mapping[str, Any] | str,
        threads: int | str | None = None,
        max_seconds: float | str | timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.work = work
        self.threads = threads
        self.max_seconds = max_seconds
