"""Operators on snapshots: letting old ones go, and going back to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from airflow_provider_ducklake.operators import _options
from airflow_provider_ducklake.operators._tables import DuckLakeTablesOperator
from airflow_provider_ducklake.operators.base import DuckLakeSparkOperator


class DuckLakeExpireSnapshotsOperator(DuckLakeSparkOperator):
    """Expire snapshots of the whole lake; the newest one always stays.

    The criteria may be combined: what `retain_last` protects is kept whatever the others say.

    Args:
        older_than: Snapshots before an instant (a datetime with zone, or ISO 8601 text with
            offset) or of an age (a timedelta, or text such as `7 days`).
        versions: Snapshot ids: a list, `3,4,9`, or `1..5`.
        retain_last: Keep at least this many of the newest snapshots.
        max_seconds: After so many seconds (or a timedelta) nothing more is begun; snapshots
            stay for the next run.
        **kwargs: See `DuckLakeSparkOperator`.
    """

    operation = "expire_snapshots"
    options: ClassVar[Mapping[str, _options.Converter]] = {
        "older_than": _options.instant,
        "versions": _options.listing,
        "retain_last": _options.integer,
        "max_seconds": _options.seconds,
    }
    template_fields: Sequence[str] = (*DuckLakeSparkOperator.template_fields, *options)

    def __init__(
        self,
        *,
        older_than: datetime | timedelta | str | None = None,
        versions: Sequence[int] | str | None = None,
        retain_last: int | str | None = None,
        max_seconds: float | str | timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.older_than = older_than
        self.versions = versions
        self.retain_last = retain_last
        self.max_seconds = max_seconds


class DuckLakeRestoreOperator(DuckLakeTablesOperator):
    """Restore tables, or the whole lake when none is named, to what an older snapshot shows.

    The restore is a new snapshot; the older ones stay as they are, and no data file is written.

    Args:
        snapshot: The snapshot to restore, or
        at: an instant (a datetime with zone, or ISO 8601 text with offset) or an age (a
            timedelta, or text such as `2 hours`): the newest snapshot that was there by then.
        **kwargs: `table`, `tables`, and see `DuckLakeSparkOperator`.
    """

    operation = "restore"
    options: ClassVar[Mapping[str, _options.Converter]] = {
        "snapshot": _options.integer,
        "at": _options.instant,
    }
    template_fields: Sequence[str] = (*DuckLakeTablesOperator.template_fields, *options)

    def __init__(
        self,
        *,
        snapshot: int | str | None = None,
        at: datetime | timedelta | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.snapshot = snapshot
        self.at = at
