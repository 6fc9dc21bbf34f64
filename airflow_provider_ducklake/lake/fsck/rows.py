"""Rows that hang in the air: of tables, files or snapshots that are not there."""

from __future__ import annotations

from typing import Final

from airflow_provider_ducklake.lake.expiry import unreached
from airflow_provider_ducklake.lake.fsck.check import Check

FILES: Final = ("data_file", "delete_file")
# What describes a table and is no use without it.
OF_A_TABLE: Final = (
    "ducklake_column",
    "ducklake_column_mapping",
    "ducklake_column_tag",
    "ducklake_inlined_data_tables",
    "ducklake_partition_column",
    "ducklake_partition_info",
    "ducklake_schema_versions",
    "ducklake_sort_expression",
    "ducklake_sort_info",
    "ducklake_table_column_stats",
    "ducklake_table_stats",
)
OF_A_DATA_FILE: Final = (
    "ducklake_file_column_stats",
    "ducklake_file_partition_value",
    "ducklake_file_variant_stats",
)
_WITH_A_LIFE: Final = (
    ("table", "table_id", "table_id"),
    ("column", "table_id", "column_id"),
    ("data_file", "table_id", "data_file_id"),
    ("delete_file", "table_id", "delete_file_id"),
    ("partition_info", "table_id", "partition_id"),
    ("schema", "NULL", "schema_id"),
    ("view", "NULL", "view_id"),
)
_HEAD: Final = "(SELECT max(snapshot_id) FROM {ducklake_snapshot})"


def _of_no_table(table: str, columns: str) -> str:
    return (
        f"SELECT {columns} FROM {{{table}}} f LEFT JOIN {{ducklake_table}} t "
        "ON t.table_id = f.table_id WHERE t.table_id IS NULL"
    )


def _of_no_file(table: str) -> str:
    return (
        f"SELECT f.table_id, f.data_file_id, count(*) FROM {{{table}}} f "
        "LEFT JOIN {ducklake_data_file} d ON d.data_file_id = f.data_file_id "
        "WHERE d.data_file_id IS NULL GROUP BY f.table_id, f.data_file_id"
    )


def _lives() -> tuple[Check, ...]:
    checks = []
    for name, table_id, key in _WITH_A_LIFE:
        # Rows with negative ids are the store's own: it keeps files for forks by them.
        select = (
            f"SELECT {table_id}, {key}, begin_snapshot, end_snapshot FROM {{ducklake_{name}}} "
            f"WHERE {'schema_id' if name == 'schema' else key if name == 'view' else 'table_id'} "
            ">= 0 AND "
        )
        newer = f"(begin_snapshot > {_HEAD} OR end_snapshot > {_HEAD})"
        what = name.replace("_", " ")
        life = f"{what} {{1}} lives from snapshot {{2}} to {{3}}"
        checks.append(Check("future_row", select + newer, f"{life}, and the newest is older"))
        checks.append(Check("backward_life", select + "end_snapshot < begin_snapshot", life))
    return tuple(checks)


ROW_CHECKS: Final = (
    *_lives(),
    *(
        Check(
            "file_of_no_table",
            _of_no_table(f"ducklake_{kind}", f"f.table_id, f.{kind}_id, f.path"),
            kind.replace("_", " ") + " {1} ({2}) is of table {0}, which is not there",
        )
        for kind in FILES
    ),
    *(
        Check(
            "description_of_no_table",
            _of_no_table(table, "f.table_id, count(*)") + " GROUP BY f.table_id",
            f"{table} has {{1}} rows of table {{0}}, which is not there",
            ids=0,
        )
        for table in OF_A_TABLE
    ),
    *(
        Check(
            "description_of_no_file",
            _of_no_file(table),
            f"{table} has {{2}} rows of data file {{1}}, which is not there",
        )
        for table in OF_A_DATA_FILE
    ),
    Check(
        "delete_file_of_no_file",
        "SELECT f.table_id, f.delete_file_id, f.data_file_id, f.path FROM {ducklake_delete_file} f "
        "LEFT JOIN {ducklake_data_file} d ON d.data_file_id = f.data_file_id "
        "JOIN {ducklake_table} t ON t.table_id = f.table_id WHERE d.data_file_id IS NULL "
        "GROUP BY f.table_id, f.delete_file_id, f.data_file_id, f.path",
        "delete file {1} ({3}) is of data file {2}, which is not there",
        ids=2,
    ),
    Check(
        "table_of_no_schema",
        "SELECT t.table_id, t.schema_id, t.table_name FROM {ducklake_table} t "
        "LEFT JOIN {ducklake_schema} s ON s.schema_id = t.schema_id WHERE s.schema_id IS NULL",
        "table {2} is in schema {1}, which is not there",
        ids=0,
    ),
    Check(
        "table_of_no_columns",
        "SELECT t.table_id, t.schema_id, t.table_name FROM {ducklake_table} t "
        "LEFT JOIN {ducklake_column} c ON c.table_id = t.table_id AND c.end_snapshot IS NULL "
        "WHERE c.table_id IS NULL AND t.end_snapshot IS NULL AND t.table_id >= 0",
        "table {2} has no column",
        ids=0,
    ),
    Check(
        "mapping_missing",
        "SELECT f.table_id, f.data_file_id, f.mapping_id FROM {ducklake_data_file} f "
        "LEFT JOIN {ducklake_column_mapping} m ON m.mapping_id = f.mapping_id "
        "WHERE f.mapping_id IS NOT NULL AND m.mapping_id IS NULL",
        "data file {1} has name mapping {2}, which is not there",
    ),
    Check(
        "snapshot_of_no_changes",
        "SELECT NULL, s.snapshot_id, count(c.snapshot_id) FROM {ducklake_snapshot} s "
        "LEFT JOIN {ducklake_snapshot_changes} c ON c.snapshot_id = s.snapshot_id "
        "GROUP BY s.snapshot_id HAVING count(c.snapshot_id) <> 1",
        "snapshot {1} has {2} rows in ducklake_snapshot_changes",
    ),
    Check(
        "changes_of_no_snapshot",
        "SELECT NULL, c.snapshot_id FROM {ducklake_snapshot_changes} c "
        f"WHERE c.snapshot_id > {_HEAD}",
        "ducklake_snapshot_changes tells of snapshot {1}, and the newest is older",
    ),
    *(
        Check(
            "unreached_file",
            f"SELECT f.table_id, f.{kind}_id, f.begin_snapshot, f.end_snapshot, f.path "
            f"FROM {{ducklake_{kind}}} f WHERE {unreached('f')}",
            kind.replace("_", " ")
            + " {1} ({4}) lived from snapshot {2} to {3}, none of which is kept",
        )
        for kind in FILES
    ),
)
