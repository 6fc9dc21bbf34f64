"""The operator that loads data into a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_provider_ducklake.hooks._values import as_object, as_setting, given, strings
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.operators import _options
from airflow_provider_ducklake.operators._tables import table_arguments
from airflow_provider_ducklake.operators.base import DuckLakeSparkOperator


class DuckLakeIngestOperator(DuckLakeSparkOperator):
    """Load what Spark can read into a table, columns matched by name, nothing cast with loss.

    Args:
        table: The table, as `schema.table`, or `table` for schema `main`.
        source: Path, glob or table to read, or several.
        format: Spark's name of the source's format; `parquet` when not given.
        reader_options: Options of Spark's reader, such as `{"header": "true"}` for CSV.
        sql: Query over the source (a `.sql` file works too).
        mode: `append`, `overwrite`, `overwrite_partitions`, `error_if_exists` or `merge`.
        merge_keys: For `merge`: the columns that tell which row is which.
        delete_when: For `merge`: SQL over the source's columns; rows it holds for delete.
        create_table: Create the table when it does not exist.
        schema_evolution: `none`, or `add_columns` for columns only the source has.
        allow_missing: Columns of the table that the source lacks are filled with their default.
        partition_by: Partition keys of a table that is created: `["year(ts)", "region"]`.
        sorted_by: Sort order of a table that is created.
        **kwargs: See `DuckLakeSparkOperator`.
    """

    operation = "ingest"
    options: ClassVar[Mapping[str, _options.Converter]] = {
        "mode": _options.text,
        "merge_keys": _options.listing,
        "delete_when": _options.text,
        "create_table": _options.boolean,
        "schema_evolution": _options.text,
        "allow_missing": _options.boolean,
        "partition_by": _options.listing,
        "sorted_by": _options.listing,
    }
    template_fields: Sequence[str] = (
        *DuckLakeSparkOperator.template_fields,
        "table",
        "source",
        "format",
        "reader_options",
        "sql",
        *options,
    )
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DuckLakeSparkOperator.template_fields_renderers,
        "reader_options": "json",
        "sql": "sql",
    }

    def __init__(
        self,
        *,
        table: str,
        source: str | Sequence[str] | None = None,
        format: str | None = None,
        reader_options: Mapping[str, Any] | str | None = None,
        sql: str | None = None,
        mode: str | None = None,
        merge_keys: Sequence[str] | str | None = None,
        delete_when: str | None = None,
        create_table: bool | str | None = None,
        schema_evolution: str | None = None,
        allow_missing: bool | str | None = None,
        partition_by: Sequence[str] | str | None = None,
        sorted_by: Sequence[str] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.source = source
        self.format = format
        self.reader_options = reader_options
        self.sql = sql
        self.mode = mode
        self.merge_keys = merge_keys
        self.delete_when = delete_when
        self.create_table = create_table
        self.schema_evolution = schema_evolution
        self.allow_missing = allow_missing
        self.partition_by = partition_by
        self.sorted_by = sorted_by

    def operation_arguments(self) -> list[str]:
        """Return table, source and options for the command line."""
        tables = table_arguments(self.table, None)
        sources = strings(self.source, "source")
        if not tables:
            raise ConfigurationError("ingest needs the table to load into")
        if not sources and not given(self.sql):
            raise ConfigurationError("ingest needs a source, or sql")
        arguments = [*tables, *(a for source in sources for a in _options.flag("source", source))]
        arguments += _options.flag("format", self.format) + _options.flag("sql", self.sql)
        reader = as_object(self.reader_options or {}, "reader_options")
        for name, value in reader.items():
            arguments += _options.flag("option", f"reader.{name}={as_setting(value)}")
        return [*arguments, *super().operation_arguments()]
