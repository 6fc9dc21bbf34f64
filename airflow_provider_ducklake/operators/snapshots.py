"""The operator that lets old snapshots go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from airflow_provider_ducklake.operators import _options
from airflow_provider_ducklake.operators.base import DuckLakeSparkOperator


class DuckLakeExpireSnapshotsOperator(DuckLakeSparkOperator):
    """Expire snapshots of the whole lake; the newest one always stays.

    The criteria may be combined: what `retain_last` protects is kept whatever the others say.

    Args:
        older_than: Snapshots before an instant (a datetime with zone, or ISO 8601 text with
            offset) or of an age (a timedelta, or text such as `7 days`).
        versions: Snapshot ids: a list, `3,4,9`, or `1..5`.
        retain_last: Keep at least this many of the newest snapshots.
        **kwargs: See `DuckLakeSparkOperator`.
    """

    operation = "expire_snapshots"
    options: ClassVar[Mapping[str, _options.Converter]] = {
        "older_than": _options.instant,
        "versions": _options.listing,
        "retain_last": _options.integer,
    }
    template_fields: Sequence[str] = (*DuckLakeSparkOperator.template_fields, *options)

    def __init__(
        self,
        *,
        older_than: datetime | timedelta | str | None = None,
        versions: Sequence[int] | str | None = None,
        retain_last: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.older_than = older_than
        self.versions = versions
        self.retain_last = retain_last
