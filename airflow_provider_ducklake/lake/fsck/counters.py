"""Counters: what the catalog will number next, and what it says of rows and bytes."""

from __future__ import annotations

from typing import Final

from airflow_provider_ducklake.lake.fsck.check import Check

# Ids from here on are those of rows that a transaction of the reference had not committed yet. A
# fault of it writes them down for good; they are nobody's to give out.
TRANSACTION_LOCAL: Final = 10**18
_FILE_IDS: Final = (
    ("data_file_id", "ducklake_data_file"),
    ("delete_file_id", "ducklake_delete_file"),
    ("data_file_id", "ducklake_files_scheduled_for_deletion"),
    ("mapping_id", "ducklake_column_mapping"),
)
_CATALOG_IDS: Final = (
    ("schema_id", "ducklake_schema"),
    ("table_id", "ducklake_table"),
    ("view_id", "ducklake_view"),
    ("macro_id", "ducklake_macro"),
    ("partition_id", "ducklake_partition_info"),
    ("sort_id", "ducklake_sort_info"),
)


def _largest(ids: tuple[tuple[str, str], ...]) -> str:
    parts = (f"SELECT max({column}) AS id FROM {{{table}}}" for column, table in ids)
    return f"SELECT max(id) AS id FROM ({' UNION ALL '.join(parts)}) AS used"


# Each counter of a snapshot with the query for the largest id it must be above.
SNAPSHOT_COUNTERS: Final = (
    ("next_file_id", _largest(_FILE_IDS)),
    ("next_catalog_id", _largest(_CATALOG_IDS)),
)
# Rows of live files that no delete file deletes.
LIVE_ROWS: Final = """
    SELECT d.table_id, sum(d.record_count) - sum(coalesce(x.deleted, 0)) AS live
    FROM {ducklake_data_file} d LEFT JOIN (
        SELECT data_file_id, sum(delete_count) AS deleted FROM {ducklake_delete_file}
        WHERE end_snapshot IS NULL GROUP BY data_file_id
    ) x ON x.data_file_id = d.data_file_id
    WHERE d.end_snapshot IS NULL AND d.table_id >= 0 GROUP BY d.table_id"""

COUNTER_CHECKS: Final = (
    *(
        Check(
            counter,
            f"SELECT NULL, s.{counter}, u.id FROM {{ducklake_snapshot}} s, "
            f"({largest}) AS u WHERE s.{counter} <= u.id "
            "AND s.snapshot_id = (SELECT max(snapshot_id) FROM {ducklake_snapshot})",
            f"{counter} of the newest snapshot is {{1}}, but id {{2}} is in use",
            ids=2,
        )
        for counter, largest in SNAPSHOT_COUNTERS
    ),
    # A merged file begins with the row id of its first input and holds ids of its own, so that
    # only its first id is certain.
    Check(
        "next_row_id",
        "SELECT f.table_id, max(f.row_id_start), max(s.next_row_id) FROM {ducklake_data_file} f "
        "JOIN {ducklake_table_stats} s ON s.table_id = f.table_id GROUP BY f.table_id "
        "HAVING max(f.row_id_start) >= max(s.next_row_id)",
        "next_row_id is {2}, but row id {1} is in use",
        ids=0,
    ),
    Check(
        "next_row_id",
        "SELECT f.table_id, count(*) FROM {ducklake_data_file} f "
        "JOIN {ducklake_table} t ON t.table_id = f.table_id AND t.end_snapshot IS NULL "
        "LEFT JOIN {ducklake_table_stats} s ON s.table_id = f.table_id "
        "WHERE s.table_id IS NULL AND f.end_snapshot IS NULL AND f.table_id >= 0 "
        "GROUP BY f.table_id",
        "there are {1} live data files and no row in ducklake_table_stats",
        ids=0,
    ),
    Check(
        "table_record_count",
        "SELECT l.table_id, l.live, s.record_count FROM (" + LIVE_ROWS + ") AS l "
        "JOIN {ducklake_table_stats} s ON s.table_id = l.table_id WHERE l.live > s.record_count",
        "record_count is {2}, but the live files have {1} rows",
        ids=0,
    ),
    Check(
        "table_counters_twice",
        "SELECT table_id, count(*) FROM {ducklake_table_stats} GROUP BY table_id "
        "HAVING count(*) > 1",
        "ducklake_table_stats has {1} rows of the table",
        ids=0,
    ),
    Check(
        "impossible_count",
        "SELECT table_id, data_file_id, record_count, file_size_bytes FROM {ducklake_data_file} "
        "WHERE table_id >= 0 AND (record_count IS NULL OR record_count < 0 "
        "OR file_size_bytes IS NULL OR file_size_bytes <= 0)",
        "data file {1} has {2} rows and {3} bytes",
    ),
    Check(
        "impossible_count",
        "SELECT table_id, delete_file_id, delete_count, file_size_bytes "
        "FROM {ducklake_delete_file} WHERE delete_count IS NULL OR delete_count < 0 "
        "OR file_size_bytes IS NULL OR file_size_bytes <= 0",
        "delete file {1} deletes {2} rows and has {3} bytes",
    ),
)
