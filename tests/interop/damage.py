"""Damage done by hand to a lake that has something of everything, and what fsck calls it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Words in the statements below stand for ids and paths of the lake: see everything.py.
_HEAD: Final = "(SELECT max(snapshot_id) FROM ducklake_snapshot)"
_DATA_FILE: Final = (
    "data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format, record_count, "
    "file_size_bytes, footer_size, row_id_start"
)
_DELETE_FILE: Final = (
    "delete_file_id, table_id, begin_snapshot, end_snapshot, data_file_id, path, "
    "path_is_relative, format, delete_count, file_size_bytes, footer_size, partial_max"
)
_STATS: Final = (
    "data_file_id, table_id, column_id, column_size_bytes, value_count, null_count, min_value, "
    "max_value, contains_nan, extra_stats"
)


@dataclass(frozen=True, slots=True)
class Damage:
    """Statements on the metadata tables that do some damage.

    Attributes:
        finds: Classes fsck must find.
        undo: Statements that put everything back; none where a repair does.
        deep: Whether only footers tell.
        rows: Rows a repair changes.
        also: Classes it may find as well.
    """

    finds: str
    do: tuple[str, ...]
    undo: tuple[str, ...] = ()
    deep: bool = False
    rows: int = 1
    also: tuple[str, ...] = ()


REPAIRABLE: Final = (
    Damage(
        "live_and_scheduled",
        (
            "INSERT INTO ducklake_files_scheduled_for_deletion (data_file_id, path, "
            "path_is_relative, schedule_start) SELECT data_file_id, 'DIRECTORY' || path, false, "
            "'2020-01-01 00:00:00+00' FROM ducklake_data_file WHERE data_file_id = FILE",
        ),
    ),
    Damage(
        "next_catalog_id",
        (f"UPDATE ducklake_snapshot SET next_catalog_id = 1 WHERE snapshot_id = {_HEAD}",),
    ),
    Damage("next_row_id", ("UPDATE ducklake_table_stats SET next_row_id = 7 WHERE table_id = T",)),
    Damage("next_row_id", ("DELETE FROM ducklake_table_stats WHERE table_id = P",)),
    Damage(
        "file_of_no_table",
        (
            f"INSERT INTO ducklake_data_file ({_DATA_FILE}) "
            "VALUES (NEW, NOTABLE, 1, 'x.parquet', true, 'parquet', 1, 100, 10, 0)",
            f"INSERT INTO ducklake_delete_file ({_DELETE_FILE}) VALUES "
            "(LOST, NOTABLE, 1, NULL, NEW, 'y.parquet', true, 'parquet', 1, 100, 10, NULL)",
        ),
        rows=2,
    ),
    Damage(
        "description_of_no_table",
        (
            "INSERT INTO ducklake_table_stats (table_id, record_count, next_row_id, "
            "file_size_bytes) VALUES (NOTABLE, 1, 1, 1)",
            "INSERT INTO ducklake_schema_versions (begin_snapshot, schema_version, table_id) "
            "VALUES (1, 1, NOTABLE)",
        ),
        rows=2,
    ),
    Damage(
        "description_of_no_file",
        (
            "INSERT INTO ducklake_file_partition_value (data_file_id, table_id, "
            "partition_key_index, partition_value) VALUES (LOST, P, 0, 'x')",
            "INSERT INTO ducklake_inlined_delete_T (file_id, row_id, begin_snapshot) "
            "VALUES (LOST, 0, 1)",
        ),
        rows=2,
    ),
    Damage(
        "delete_file_of_no_file",
        (
            f"INSERT INTO ducklake_delete_file ({_DELETE_FILE}) VALUES "
            "(NEW, T, 1, NULL, LOST, 'lost-delete.parquet', true, 'parquet', 1, 10, 5, NULL)",
        ),
        also=("missing_object",),
    ),
    Damage(
        "changes_of_no_snapshot",
        ("INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made) VALUES (9999, '')",),
    ),
    Damage(
        "delete_file_twice",
        (
            f"INSERT INTO ducklake_delete_file ({_DELETE_FILE}) SELECT NEW, "
            f"{_DELETE_FILE.partition(', ')[2]} FROM ducklake_delete_file "
            "WHERE delete_file_id = DELFILE",
        ),
        also=("next_row_id",),
    ),
    Damage(
        "inlined_delete_twice",
        (
            "INSERT INTO ducklake_inlined_delete_T (file_id, row_id, begin_snapshot) "
            "SELECT file_id, row_id, begin_snapshot FROM ducklake_inlined_delete_T",
            "INSERT INTO ducklake_inlined_delete_T (file_id, row_id, begin_snapshot) "
            "SELECT DISTINCT file_id, row_id, begin_snapshot + 1 FROM ducklake_inlined_delete_T",
        ),
        rows=2,
    ),
    Damage(
        "statistics_twice",
        (
            f"INSERT INTO ducklake_file_column_stats ({_STATS}) SELECT {_STATS} "
            "FROM ducklake_file_column_stats WHERE data_file_id = FILE",
            "INSERT INTO ducklake_table_column_stats (table_id, column_id, contains_null, "
            "contains_nan, min_value, max_value, extra_stats) SELECT table_id, column_id, "
            "contains_null, contains_nan, min_value, max_value, extra_stats "
            "FROM ducklake_table_column_stats WHERE table_id = P",
            "INSERT INTO ducklake_file_variant_stats (data_file_id, table_id, column_id, "
            "variant_path, shredded_type) SELECT f.data_file_id, f.table_id, 1, 'root', 'int32' "
            "FROM ducklake_data_file f, (VALUES (1), (2)) AS twice WHERE f.data_file_id = FILE",
        ),
        rows=5,
    ),
    Damage(
        "stray_inlined_table",
        (
            "CREATE TABLE ducklake_inlined_data_NOTABLE_1 (row_id BIGINT, begin_snapshot BIGINT, "
            "end_snapshot BIGINT, id INTEGER)",
            "INSERT INTO ducklake_inlined_data_NOTABLE_1 "
            "VALUES (0, GONE_SNAPSHOT, GONE_SNAPSHOT + 1, 1)",
            "CREATE TABLE ducklake_inlined_delete_NOTABLE (file_id BIGINT, row_id BIGINT, "
            "begin_snapshot BIGINT)",
        ),
        rows=2,
    ),
    Damage(
        "dead_inlined_rows",
        (
            "INSERT INTO INLINED (row_id, begin_snapshot, end_snapshot, id) "
            "VALUES (7, GONE_SNAPSHOT, GONE_SNAPSHOT + 1, 1)",
        ),
    ),
    # Last: the room for made-up ids is gone after it.
    Damage(
        "next_file_id",
        (f"UPDATE ducklake_snapshot SET next_file_id = 1 WHERE snapshot_id = {_HEAD}",),
    ),
    Damage(
        "table_statistics",
        (
            "UPDATE ducklake_table_column_stats SET min_value = '8' "
            "WHERE table_id = T AND column_id = 1",
            "UPDATE ducklake_table_column_stats SET contains_null = false "
            "WHERE table_id = T AND column_id = 2",
            "UPDATE ducklake_table_column_stats SET min_value = NULL, max_value = NULL "
            "WHERE table_id = P AND column_id = 1",
        ),
        deep=True,
        rows=3,
    ),
)


def _changed(finds: str, table: str, column: str, value: str, back: str, where: str) -> Damage:
    """Return the damage of one column set to a wrong value."""
    update = f"UPDATE {table} SET {column} = {{}} WHERE {where}"
    return Damage(finds, (update.format(value),), (update.format(back),))


_OF_FILE: Final = "data_file_id = FILE"
FOR_A_PERSON: Final = (
    _changed("backward_life", "ducklake_data_file", "end_snapshot", "0", "NULL", _OF_FILE),
    _changed("future_row", "ducklake_data_file", "end_snapshot", "9999", "NULL", _OF_FILE),
    # No file has no bytes. The store itself refuses less than that.
    Damage(
        "impossible_count",
        (
            "UPDATE ducklake_data_file SET file_order = file_size_bytes, file_size_bytes = 0 "
            f"WHERE {_OF_FILE}",
        ),
        (
            "UPDATE ducklake_data_file SET file_size_bytes = file_order, file_order = NULL "
            f"WHERE {_OF_FILE}",
        ),
    ),
    _changed(
        "table_record_count",
        "ducklake_table_stats",
        "record_count",
        "record_count - 60",
        "record_count + 60",
        "table_id = T",
    ),
    Damage(
        "table_counters_twice",
        (
            "INSERT INTO ducklake_table_stats (table_id, record_count, next_row_id, "
            "file_size_bytes) VALUES (T, 12345, 12345, 12345)",
        ),
        ("DELETE FROM ducklake_table_stats WHERE record_count = 12345",),
    ),
    _changed(
        "table_of_no_schema",
        "ducklake_table",
        "schema_id",
        "schema_id + 100",
        "schema_id - 100",
        "table_id = EMPTY",
    ),
    _changed(
        "table_of_no_columns",
        "ducklake_column",
        "end_snapshot",
        "begin_snapshot",
        "NULL",
        "table_id = EMPTY",
    ),
    _changed(
        "mapping_missing",
        "ducklake_data_file",
        "mapping_id",
        "mapping_id + 500",
        "mapping_id - 500",
        "table_id = M",
    ),
    _changed(
        "snapshot_of_no_changes",
        "ducklake_snapshot_changes",
        "snapshot_id",
        "8888 + HEAD - snapshot_id",
        "HEAD",
        "snapshot_id IN (HEAD, 8888)",
    ),
    _changed(
        "name_taken_twice", "ducklake_table", "table_name", "'p'", "'empty'", "table_id = EMPTY"
    ),
    Damage(
        "live_twice",
        (
            "UPDATE ducklake_table SET end_snapshot = NULL "
            "WHERE table_id = T AND table_name = 'old'",
        ),
        (
            "UPDATE ducklake_table SET end_snapshot = (SELECT begin_snapshot FROM ducklake_table "
            "WHERE table_id = T AND table_name = 't') WHERE table_id = T AND table_name = 'old'",
        ),
    ),
    Damage(
        "overlapping_deletes",
        (
            f"INSERT INTO ducklake_delete_file ({_DELETE_FILE}) SELECT NEW, "
            f"{_DELETE_FILE.partition(', ')[2]} FROM ducklake_delete_file "
            "WHERE delete_file_id = DELFILE",
            "UPDATE ducklake_delete_file SET path = 'other.parquet' WHERE delete_file_id = NEW",
        ),
        ("DELETE FROM ducklake_delete_file WHERE delete_file_id = NEW",),
    ),
    _changed(
        "delete_count",
        "ducklake_delete_file",
        "delete_count",
        "delete_count + 500",
        "delete_count - 500",
        "delete_file_id = DELFILE",
    ),
    _changed(
        "delete_file_of_other_table",
        "ducklake_delete_file",
        "table_id",
        "P",
        "T",
        "delete_file_id = DELFILE",
    ),
    _changed(
        "inlined_delete_position",
        "ducklake_inlined_delete_T",
        "row_id",
        "row_id + 500",
        "row_id - 500",
        "row_id >= 0",
    ),
    _changed(
        "partition_missing",
        "ducklake_data_file",
        "partition_id",
        "partition_id + 500",
        "partition_id - 500",
        "table_id = P",
    ),
    _changed(
        "partition_values",
        "ducklake_file_partition_value",
        "partition_key_index",
        "1",
        "0",
        "table_id = P",
    ),
    Damage(
        "inlined_table_missing",
        (
            "UPDATE ducklake_inlined_data_tables SET schema_version = 77, "
            "table_name = 'ducklake_inlined_data_T_77' WHERE table_name = 'INLINED'",
        ),
        (
            "UPDATE ducklake_inlined_data_tables SET schema_version = VERSION, "
            "table_name = 'INLINED' WHERE schema_version = 77",
        ),
    ),
    Damage(
        "unlisted_inlined_rows",
        ("DELETE FROM ducklake_inlined_data_tables WHERE table_name = 'INLINED'",),
        (
            "INSERT INTO ducklake_inlined_data_tables (table_id, table_name, schema_version) "
            "VALUES (T, 'INLINED', VERSION)",
        ),
    ),
    Damage(
        "file_registered_twice",
        (
            f"INSERT INTO ducklake_data_file ({_DATA_FILE}) SELECT NEW, "
            f"{_DATA_FILE.partition(', ')[2]} FROM ducklake_data_file WHERE {_OF_FILE}",
        ),
        ("DELETE FROM ducklake_data_file WHERE data_file_id = NEW",),
    ),
    Damage(
        "unreached_file",
        (
            f"INSERT INTO ducklake_data_file ({_DATA_FILE}, end_snapshot) "
            "VALUES (NEW, T, GONE_SNAPSHOT, 'x.parquet', true, 'parquet', 1, 9, 9, 0, "
            "GONE_SNAPSHOT + 1)",
        ),
        ("DELETE FROM ducklake_data_file WHERE data_file_id = NEW",),
    ),
    Damage(
        "file_record_count",
        (f"UPDATE ducklake_data_file SET record_count = record_count - 1 WHERE {_OF_FILE}",),
        (f"UPDATE ducklake_data_file SET record_count = record_count + 1 WHERE {_OF_FILE}",),
        deep=True,
    ),
    Damage(
        "footer_size",
        (f"UPDATE ducklake_data_file SET footer_size = 3 WHERE {_OF_FILE}",),
        (f"UPDATE ducklake_data_file SET footer_size = FOOTER WHERE {_OF_FILE}",),
        deep=True,
    ),
    Damage(
        "file_statistics",
        (
            "UPDATE ducklake_file_column_stats SET min_value = '7' "
            f"WHERE column_id = 1 AND {_OF_FILE}",
        ),
        (
            "UPDATE ducklake_file_column_stats SET min_value = '0' "
            f"WHERE column_id = 1 AND {_OF_FILE}",
        ),
        deep=True,
    ),
    Damage(
        "partition_values",
        (
            "UPDATE ducklake_file_partition_value SET partition_value = 'z' "
            "WHERE partition_value = 'a'",
        ),
        (
            "UPDATE ducklake_file_partition_value SET partition_value = 'a' "
            "WHERE partition_value = 'z'",
        ),
        deep=True,
    ),
)
