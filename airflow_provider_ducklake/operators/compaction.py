"""Operators that rewrite files of a lake: merging small ones, applying deletes, flushing rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from airflow_provider_ducklake.operators import _options
from airflow_provider_ducklake.operators._tables import DuckLakeTablesOperator


class DuckLakeMergeAdjacentFilesOperator(DuckLakeTablesOperator):
    """Merge small adjacent data files into larger ones; every kept snapshot reads as before.

    Args:
        min_file_size: Only files of at least this size (bytes, or text such as `1MB`).
        max_file_size: Only files below this size; the table's target size when not given.
        min_files: Fewer files that could become one are left alone; 2.
        max_compacted_files: At most this many files are written, in the whole run.
        max_compacted_bytes: Once files of so many bytes (or text such as `100GB`) are read, in the
            whole run, the rest stays for the next one.
        max_seconds: After so many seconds (or a timedelta) nothing more is begun, in the whole run.
        max_commits: The work on a table is committed in at most this many parts; 1, or 10 where
            `max_seconds` is given.
        target_file_size: Size the merged files should reach; the table's when not given.
        partition: Only files of this partition: `{"year": 2024, "region": "eu"}` or
            `year=2024,region=eu`.
        **kwargs: `table`, `tables`, and see `DuckLakeSparkOperator`.
    """

    operation = "merge_adjacent_files"
    options: ClassVar[Mapping[str, _options.Converter]] = {
        "min_file_size": _options.size,
        "max_file_size": _options.size,
        "min_files": _options.integer,
        "max_compacted_files": _options.integer,
        "max_compacted_bytes": _options.size,
        "max_seconds": _options.seconds,
        "max_commits": _options.integer,
        "target_file_size": _options.size,
        "partition": _options.pairs,
    }
    template_fields: Sequence[str] = (*DuckLakeTablesOperator.template_fields, *options)

    def __init__(
        self,
        *,
        min_file_size: int | str | None = None,
        max_file_size: int | str | None = None,
        min_files: int | str | None = None,
        max_compacted_files: int | str | None = None,
        max_compacted_bytes: int | str | None = None,
        max_seconds: float | str | timedelta | None = None,
        max_commits: int | str | None = None,
        target_file_size: int | str | None = None,
        partition: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.min_file_size = min_file_size
        self.max_file_size = max_file_size
        self.min_files = min_files
        self.max_compacted_files = max_compacted_files
        self.max_compacted_bytes = max_compacted_bytes
        self.max_seconds = max_seconds
        self.max_commits = max_commits
        self.target_file_size = target_file_size
        self.partition = partition


class DuckLakeRewriteDataFilesOperator(DuckLakeTablesOperator):
    """Rewrite data files of which many rows are deleted, without those rows.

    Args:
        delete_threshold: Share of deleted rows (0 to 1) from which a file is rewritten; the
            table's option `rewrite_delete_threshold` when not given.
        max_compacted_files: At most this many files are written, in the whole run.
        max_compacted_bytes: Once files of so many bytes (or text such as `100GB`) are read, in the
            whole run, the rest stays for the next one.
        max_seconds: After so many seconds (or a timedelta) nothing more is begun, in the whole run.
        max_commits: The work on a table is committed in at most this many parts; 1, or 10 where
            `max_seconds` is given.
        **kwargs: `table`, `tables`, and see `DuckLakeSparkOperator`.
    """

    operation = "rewrite_data_files"
    options: ClassVar[Mapping[str, _options.Converter]] = {
        "delete_threshold": _options.fraction,
        "max_compacted_files": _options.integer,
        "max_compacted_bytes": _options.size,
        "max_seconds": _options.seconds,
        "max_commits": _options.integer,
    }
    template_fields: Sequence[str] = (*DuckLakeTablesOperator.template_fields, *options)

    def __init__(
        self,
        *,
        delete_threshold: float | str | None = None,
        max_compacted_files: int | str | None = None,
        max_compacted_bytes: int | str | None = None,
        max_seconds: float | str | timedelta | None = None,
        max_commits: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.delete_threshold = delete_threshold
        self.max_compacted_files = max_compacted_files
        self.max_compacted_bytes = max_compacted_bytes
        self.max_seconds = max_seconds
        self.max_commits = max_commits


class DuckLakeFlushInlinedDataOperator(DuckLakeTablesOperator):
    """Write rows and deletes that the catalog keeps inline to Parquet files.

    Args:
        max_seconds: After so many seconds (or a timedelta) nothing more is begun; tables stay
            for the next run.
        **kwargs: `table`, `tables`, and see `DuckLakeSparkOperator`.
    """

    operation = "flush_inlined_data"
    options: ClassVar[Mapping[str, _options.Converter]] = {"max_seconds": _options.seconds}
    template_fields: Sequence[str] = (*DuckLakeTablesOperator.template_fields, *options)

    def __init__(
        self, *, max_seconds: float | str | timedelta | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.max_seconds = max_seconds
