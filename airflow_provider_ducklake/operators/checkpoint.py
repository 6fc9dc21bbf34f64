"""The operator that does all upkeep of a lake in one application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from airflow_provider_ducklake.operators import _options
from airflow_provider_ducklake.operators._tables import DuckLakeTablesOperator


class DuckLakeCheckpointOperator(DuckLakeTablesOperator):
    """Flush, expire, merge, rewrite, clean up: all in the right order and one Spark application.

    Args:
        expire_older_than: Snapshots older than this are expired; the lake's option
            `expire_older_than` when not given, and none when that is not set either.
        retain_last: Keep at least this many of the newest snapshots.
        delete_older_than: Age from which retired and orphaned files are deleted.
        delete_threshold: Share of deleted rows from which a file is rewritten.
        target_file_size: Size merged files should reach; the table's when not given.
        max_compacted_files: At most this many files are written by each of merge and rewrite.
        max_fraction: Refuse to delete orphans when they are more than this share of all files.
        max_seconds: After so many seconds (or a timedelta) nothing more is begun, in all steps
            together.
        **kwargs: `table`, `tables`, and see `DuckLakeSparkOperator`.
    """

    operation = "checkpoint"
    options: ClassVar[Mapping[str, _options.Converter]] = {
        "expire_older_than": _options.instant,
        "retain_last": _options.integer,
        "delete_older_than": _options.instant,
        "delete_threshold": _options.fraction,
        "target_file_size": _options.size,
        "max_compacted_files": _options.integer,
        "max_fraction": _options.fraction,
        "max_seconds": _options.seconds,
    }
    template_fields: Sequence[str] = (*DuckLakeTablesOperator.template_fields, *options)

    def __init__(
        self,
        *,
        expire_older_than: datetime | timedelta | str | None = None,
        retain_last: int | str | None = None,
        delete_older_than: datetime | timedelta | str | None = None,
        delete_threshold: float | str | None = None,
        target_file_size: int | str | None = None,
        max_compacted_files: int | str | None = None,
        max_fraction: float | str | None = None,
        max_seconds: float | str | timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.expire_older_than = expire_older_than
        self.retain_last = retain_last
        self.delete_older_than = delete_older_than
        self.delete_threshold = delete_threshold
        self.target_file_size = target_file_size
        self.max_compacted_files = max_compacted_files
        self.max_fraction = max_fraction
        self.max_seconds = max_seconds
