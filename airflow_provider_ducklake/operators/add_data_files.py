"""The operator that makes existing Parquet files part of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_provider_ducklake.hooks._values import strings
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.operators import _options
from airflow_provider_ducklake.operators._tables import table_arguments
from airflow_provider_ducklake.operators.base import DuckLakeSparkOperator


class DuckLakeAddDataFilesOperator(DuckLakeSparkOperator):
    """Make existing Parquet files part of a table, where they lie.

    Every file is checked before anything is committed, in one commit. Files that are registered
    already are skipped and counted. Below the lake's data path the lake owns them from then on, and
    deletes them some day.

    Args:
        table: The table, as `schema.table`, or `table` for schema `main`.
        source: Path, directory or glob of the files, or several.
        allow_missing: Columns a file lacks read as their default.
        ignore_extra_columns: Columns the table lacks are left alone.
        hive_partitioning: Take column values from `key=value` directories; decided for each file
            when not given.
        on_duplicate: `skip`, or `error` when a file is registered already.
        **kwargs: See `DuckLakeSparkOperator`.
    """

    operation = "add_data_files"
    options: ClassVar[Mapping[str, _options.Converter]] = {
        "allow_missing": _options.boolean,
        "ignore_extra_columns": _options.boolean,
        "hive_partitioning": _options.boolean,
        "on_duplicate": _options.text,
    }
    template_fields: Sequence[str] = (
        *DuckLakeSparkOperator.template_fields,
        "table",
        "source",
        *options,
    )

    def __init__(
        self,
        *,
        table: str,
        source: str | Sequence[str],
        allow_missing: bool | str | None = None,
        ignore_extra_columns: bool | str | None = None,
        hive_partitioning: bool | str | None = None,
        on_duplicate: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.source = source
        self.allow_missing = allow_missing
        self.ignore_extra_columns = ignore_extra_columns
        self.hive_partitioning = hive_partitioning
        self.on_duplicate = on_duplicate

    def operation_arguments(self) -> list[str]:
        """Return table, sources and options for the command line."""
        tables = table_arguments(self.table, None)
        sources = strings(self.source, "source")
        if not tables or not sources:
            raise ConfigurationError("add_data_files needs a table, and a source with the files")
        arguments = [*tables, *(a for source in sources for a in _options.flag("source", source))]
        return [*arguments, *super().operation_arguments()]
