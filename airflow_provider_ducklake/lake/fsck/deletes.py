"""Delete files and partition values: what decides which rows of a data file are read."""

from __future__ import annotations

from typing import Final

from airflow_provider_ducklake.lake.fsck.check import Check

# Two rows hold at one snapshot when each begins before the other ends.
_TOGETHER: Final = (
    "(a.end_snapshot IS NULL OR b.begin_snapshot < a.end_snapshot) "
    "AND (b.end_snapshot IS NULL OR a.begin_snapshot < b.end_snapshot)"
)
_PAIRS: Final = (
    "FROM {ducklake_delete_file} a JOIN {ducklake_delete_file} b "
    "ON b.data_file_id = a.data_file_id AND b.delete_file_id > a.delete_file_id AND " + _TOGETHER
)
_SAME_OBJECT: Final = "a.path = b.path AND a.path_is_relative = b.path_is_relative"
# The life of one lies within that of the other: what the shorter one deletes the other does too.
WITHIN: Final = (
    "b.begin_snapshot <= a.begin_snapshot AND (b.end_snapshot IS NULL "
    "OR (a.end_snapshot IS NOT NULL AND a.end_snapshot <= b.end_snapshot))"
)

DELETE_CHECKS: Final = (
    Check(
        "overlapping_deletes",
        "SELECT a.table_id, a.delete_file_id, b.delete_file_id AS other, a.data_file_id "
        + _PAIRS
        + " WHERE NOT ("
        + _SAME_OBJECT
        + ")",
        "delete files {1} and {2} of data file {3} hold at the same snapshot",
        ids=3,
    ),
    Check(
        "delete_file_twice",
        "SELECT a.table_id, a.delete_file_id, b.delete_file_id AS other, a.data_file_id, a.path "
        + _PAIRS
        + " WHERE "
        + _SAME_OBJECT,
        "delete files {1} and {2} of data file {3} are both {4}",
        ids=3,
    ),
    Check(
        "delete_count",
        "SELECT x.table_id, x.delete_file_id, x.data_file_id, x.delete_count, d.record_count "
        "FROM {ducklake_delete_file} x JOIN {ducklake_data_file} d "
        "ON d.data_file_id = x.data_file_id WHERE x.delete_count > d.record_count",
        "delete file {1} deletes {3} rows of data file {2}, which has {4}",
        ids=2,
    ),
    Check(
        "delete_file_of_other_table",
        "SELECT x.table_id, x.delete_file_id, x.data_file_id, d.table_id AS other "
        "FROM {ducklake_delete_file} x JOIN {ducklake_data_file} d "
        "ON d.data_file_id = x.data_file_id WHERE x.table_id <> d.table_id",
        "delete file {1} is of table {0}, its data file {2} of table {3}",
        ids=2,
    ),
    Check(
        "file_registered_twice",
        "SELECT a.table_id, a.data_file_id, b.data_file_id AS other, a.path "
        "FROM {ducklake_data_file} a JOIN {ducklake_data_file} b ON b.path = a.path "
        "AND b.path_is_relative = a.path_is_relative AND b.data_file_id > a.data_file_id "
        "AND (NOT b.path_is_relative OR b.table_id = a.table_id) AND " + _TOGETHER + " "
        "WHERE a.table_id >= 0 AND b.table_id >= 0",
        "data files {1} and {2} are both {3}",
        ids=2,
    ),
    Check(
        "partition_missing",
        "SELECT f.table_id, f.data_file_id, f.partition_id FROM {ducklake_data_file} f "
        "LEFT JOIN {ducklake_partition_info} p ON p.partition_id = f.partition_id "
        "JOIN {ducklake_table} t ON t.table_id = f.table_id "
        "WHERE f.partition_id IS NOT NULL AND p.partition_id IS NULL "
        "GROUP BY f.table_id, f.data_file_id, f.partition_id",
        "data file {1} is of partition spec {2}, which is not there",
    ),
    Check(
        "partition_values",
        "SELECT f.table_id, f.data_file_id, coalesce(v.given, 0) AS given, "
        "coalesce(k.wanted, 0) AS wanted, coalesce(v.different, 0) AS different "
        "FROM {ducklake_data_file} f "
        "LEFT JOIN (SELECT data_file_id, count(*) AS given, "
        "count(DISTINCT partition_key_index) AS different, max(partition_key_index) AS highest "
        "FROM {ducklake_file_partition_value} GROUP BY data_file_id) v "
        "ON v.data_file_id = f.data_file_id "
        "LEFT JOIN (SELECT partition_id, count(*) AS wanted FROM {ducklake_partition_column} "
        "GROUP BY partition_id) k ON k.partition_id = f.partition_id "
        "WHERE coalesce(v.given, 0) <> coalesce(k.wanted, 0) "
        "OR coalesce(v.different, 0) <> coalesce(k.wanted, 0) "
        "OR coalesce(v.highest, -1) >= coalesce(k.wanted, 0)",
        "data file {1} has {2} partition values for {4} keys; its spec has {3} keys",
    ),
    Check(
        "statistics_twice",
        "SELECT table_id, data_file_id, column_id, count(*) FROM {ducklake_file_column_stats} "
        "GROUP BY table_id, data_file_id, column_id HAVING count(*) > 1",
        "column {2} of data file {1} has {3} rows in ducklake_file_column_stats",
        ids=2,
    ),
    Check(
        "statistics_twice",
        "SELECT table_id, data_file_id, column_id, variant_path, count(*) "
        "FROM {ducklake_file_variant_stats} "
        "GROUP BY table_id, data_file_id, column_id, variant_path HAVING count(*) > 1",
        "field {3} of column {2} of data file {1} has {4} rows in ducklake_file_variant_stats",
        ids=2,
    ),
    Check(
        "statistics_twice",
        "SELECT table_id, column_id, count(*) FROM {ducklake_table_column_stats} "
        "GROUP BY table_id, column_id HAVING count(*) > 1",
        "column {1} of the table has {2} rows in ducklake_table_column_stats",
    ),
)
