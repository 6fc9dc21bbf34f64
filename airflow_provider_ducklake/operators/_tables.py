"""The base of operators that work on some tables of a lake, or on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_ducklake.hooks._values import chosen, given, strings
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.operators._options import flag
from airflow_provider_ducklake.operators.base import DuckLakeSparkOperator


def table_arguments(table: Any, tables: Any) -> list[str]:
    """Return `--table=name` for each table named.

    Args:
        table: One name, or None.
        tables: Several, or nothing, which is all of them; not both.

    Raises:
        ConfigurationError: Both are given, or `table` is given and names none.
    """
    if table is not None:
        chosen(table, "table")
    if given(table) and given(tables):
        raise ConfigurationError("table and tables are both given: name all of them in tables")
    names = strings(table, "table") or strings(tables, "tables")
    return [argument for name in names for argument in flag("table", name)]


class DuckLakeTablesOperator(DuckLakeSparkOperator):
    """Maintain tables; all of the lake when none is named.

    Args:
        table: The one table to work on, as `schema.table`, or `table` for schema `main`; one that
            renders to nothing is refused.
        tables: Several tables, instead; all of the lake when it renders to nothing.
        **kwargs: See `DuckLakeSparkOperator`.
    """

    template_fields: Sequence[str] = (*DuckLakeSparkOperator.template_fields, "table", "tables")

    def __init__(
        self,
        *,
        table: str | None = None,
        tables: Sequence[str] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.tables = tables

    def operation_arguments(self) -> list[str]:
        """Return tables and options for the command line."""
        return [*table_arguments(self.table, self.tables), *super().operation_arguments()]
