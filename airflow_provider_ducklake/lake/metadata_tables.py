"""The metadata tables of DuckLake 1.0: one definition from which every database's DDL is made.

Source: docs/stable/specification/tables/overview.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FORMAT_VERSION: Final = "1.0"


@dataclass(frozen=True, slots=True)
class MetadataTable:
    """A metadata table: its columns as (name, type) and the column that is its primary key."""

    name: str
    columns: tuple[tuple[str, str], ...]
    primary_key: str | None = None
    not_null: tuple[str, ...] = ()


def _table(
    name: str, columns: str, *, key: str | None = None, not_null: tuple[str, ...] = ()
) -> MetadataTable:
    """Build a table from `name:type` words; a word without a type is a BIGINT."""
    parsed = (word.partition(":") for word in columns.split())
    return MetadataTable(
        f"ducklake_{name}",
        tuple((column, _TYPES[kind or "id"]) for column, _, kind in parsed),
        key,
        not_null,
    )


_TYPES: Final = {
    "id": "BIGINT",
    "text": "VARCHAR",
    "flag": "BOOLEAN",
    "uuid": "UUID",
    "time": "TIMESTAMPTZ",
}
_LIFE: Final = "begin_snapshot end_snapshot"
_STATS: Final = "min_value:text max_value:text contains_nan:flag extra_stats:text"

METADATA_TABLES: Final = (
    _table("metadata", "key:text value:text scope:text scope_id", not_null=("key", "value")),
    _table(
        "snapshot",
        "snapshot_id snapshot_time:time schema_version next_catalog_id next_file_id",
        key="snapshot_id",
    ),
    _table(
        "snapshot_changes",
        "snapshot_id changes_made:text author:text commit_message:text commit_extra_info:text",
        key="snapshot_id",
    ),
    _table(
        "schema",
        f"schema_id schema_uuid:uuid {_LIFE} schema_name:text path:text path_is_relative:flag",
        key="schema_id",
    ),
    _table(
        "table",
        f"table_id table_uuid:uuid {_LIFE} schema_id table_name:text path:text "
        "path_is_relative:flag",
    ),
    _table(
        "view",
        f"view_id view_uuid:uuid {_LIFE} schema_id view_name:text dialect:text sql:text "
        "column_aliases:text",
    ),
    _table("tag", f"object_id {_LIFE} key:text value:text"),
    _table("column_tag", f"table_id column_id {_LIFE} key:text value:text"),
    _table(
        "data_file",
        f"data_file_id table_id {_LIFE} file_order path:text path_is_relative:flag "
        "file_format:text record_count file_size_bytes footer_size row_id_start partition_id "
        "encryption_key:text mapping_id partial_max",
        key="data_file_id",
    ),
    _table(
        "file_column_stats",
        f"data_file_id table_id column_id column_size_bytes value_count null_count {_STATS}",
    ),
    _table(
        "file_variant_stats",
        "data_file_id table_id column_id variant_path:text shredded_type:text column_size_bytes "
        f"value_count null_count {_STATS}",
    ),
    _table(
        "delete_file",
        f"delete_file_id table_id {_LIFE} data_file_id path:text path_is_relative:flag "
        "format:text delete_count file_size_bytes footer_size encryption_key:text partial_max",
        key="delete_file_id",
    ),
    _table(
        "column",
        f"column_id {_LIFE} table_id column_order column_name:text column_type:text "
        "initial_default:text default_value:text nulls_allowed:flag parent_column "
        "default_value_type:text default_value_dialect:text",
    ),
    _table("table_stats", "table_id record_count next_row_id file_size_bytes"),
    _table(
        "table_column_stats",
        "table_id column_id contains_null:flag contains_nan:flag min_value:text max_value:text "
        "extra_stats:text",
    ),
    _table("partition_info", f"partition_id table_id {_LIFE}"),
    _table(
        "partition_column", "partition_id table_id partition_key_index column_id transform:text"
    ),
    _table(
        "file_partition_value", "data_file_id table_id partition_key_index partition_value:text"
    ),
    _table(
        "files_scheduled_for_deletion",
        "data_file_id path:text path_is_relative:flag schedule_start:time",
    ),
    _table("inlined_data_tables", "table_id table_name:text schema_version"),
    _table("column_mapping", "mapping_id table_id type:text"),
    _table(
        "name_mapping",
        "mapping_id column_id source_name:text target_field_id parent_column is_partition:flag",
    ),
    _table("schema_versions", "begin_snapshot schema_version table_id"),
    _table("macro", f"schema_id macro_id macro_name:text {_LIFE}"),
    _table("macro_impl", "macro_id impl_id dialect:text sql:text type:text"),
    _table(
        "macro_parameters",
        "macro_id impl_id column_id parameter_name:text parameter_type:text default_value:text "
        "default_value_type:text",
    ),
    _table("sort_info", f"sort_id table_id {_LIFE}"),
    _table(
        "sort_expression",
        "sort_id table_id sort_key_index expression:text dialect:text sort_direction:text "
        "null_order:text",
    ),
)
BY_NAME: Final = {table.name: table for table in METADATA_TABLES}
