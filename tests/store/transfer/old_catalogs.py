"""Catalogs of DuckLake 0.1 to 0.4 and of the fork, made from one of 1.0 by the DDL of their time.

The files were written for 1.0 and are read the same by all versions, as long as nothing is merged.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb

from airflow_provider_ducklake.lake.location import CatalogLocation

_SNAPSHOT: Final = (
    "snapshot_id BIGINT PRIMARY KEY, snapshot_time TIMESTAMPTZ, schema_version BIGINT, "
    "next_catalog_id BIGINT, next_file_id BIGINT"
)
_LIFE: Final = "begin_snapshot BIGINT, end_snapshot BIGINT"
_FILE: Final = (
    f"data_file_id BIGINT PRIMARY KEY, table_id BIGINT, {_LIFE}, file_order BIGINT, path VARCHAR, "
    "path_is_relative BOOLEAN, file_format VARCHAR, record_count BIGINT, file_size_bytes BIGINT, "
    "footer_size BIGINT, row_id_start BIGINT, partition_id BIGINT, encryption_key VARCHAR, "
    "partial_file_info VARCHAR"
)
_COLUMN: Final = (
    f"column_id BIGINT, {_LIFE}, table_id BIGINT, column_order BIGINT, column_name VARCHAR, "
    "column_type VARCHAR, initial_default VARCHAR, default_value VARCHAR, nulls_allowed BOOLEAN, "
    "parent_column BIGINT"
)
_STATS: Final = (
    "data_file_id BIGINT, table_id BIGINT, column_id BIGINT, column_size_bytes BIGINT, "
    "value_count BIGINT, null_count BIGINT, min_value VARCHAR, max_value VARCHAR, "
    "contains_nan BOOLEAN"
)
_TABLE_STATS: Final = (
    "table_id BIGINT, column_id BIGINT, contains_null BOOLEAN, contains_nan BOOLEAN, "
    "min_value VARCHAR, max_value VARCHAR"
)

# What DuckLake 0.1 began with (extension of DuckDB 1.3.0).
V01: Final = {
    "metadata": "key VARCHAR NOT NULL, value VARCHAR NOT NULL",
    "snapshot": _SNAPSHOT,
    "snapshot_changes": "snapshot_id BIGINT PRIMARY KEY, changes_made VARCHAR",
    "schema": f"schema_id BIGINT PRIMARY KEY, schema_uuid UUID, {_LIFE}, schema_name VARCHAR",
    "table": f"table_id BIGINT, table_uuid UUID, {_LIFE}, schema_id BIGINT, table_name VARCHAR",
    "view": f"view_id BIGINT, view_uuid UUID, {_LIFE}, schema_id BIGINT, view_name VARCHAR, "
    "dialect VARCHAR, sql VARCHAR, column_aliases VARCHAR",
    "tag": f"object_id BIGINT, {_LIFE}, key VARCHAR, value VARCHAR",
    "column_tag": f"table_id BIGINT, column_id BIGINT, {_LIFE}, key VARCHAR, value VARCHAR",
    "data_file": _FILE,
    "file_column_statistics": _STATS,
    "delete_file": f"delete_file_id BIGINT PRIMARY KEY, table_id BIGINT, {_LIFE}, "
    "data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, format VARCHAR, "
    "delete_count BIGINT, file_size_bytes BIGINT, footer_size BIGINT, encryption_key VARCHAR",
    "column": _COLUMN,
    "table_stats": "table_id BIGINT, record_count BIGINT, next_row_id BIGINT, "
    "file_size_bytes BIGINT",
    "table_column_stats": _TABLE_STATS,
    "partition_info": f"partition_id BIGINT, table_id BIGINT, {_LIFE}",
    "partition_column": "partition_id BIGINT, table_id BIGINT, partition_key_index BIGINT, "
    "column_id BIGINT, transform VARCHAR",
    "file_partition_value": "data_file_id BIGINT, table_id BIGINT, partition_key_index BIGINT, "
    "partition_value VARCHAR",
    "files_scheduled_for_deletion": "data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, "
    "schedule_start TIMESTAMPTZ",
    "inlined_data_tables": "table_id BIGINT, table_name VARCHAR, schema_version BIGINT",
}
_PATH: Final = ", path VARCHAR, path_is_relative BOOLEAN"
V02: Final = V01 | {
    "metadata": V01["metadata"] + ", scope VARCHAR, scope_id BIGINT",
    "schema": V01["schema"] + _PATH,
    "table": V01["table"] + _PATH,
    "data_file": _FILE + ", mapping_id BIGINT",
    "column_mapping": "mapping_id BIGINT, table_id BIGINT, type VARCHAR",
    "name_mapping": "mapping_id BIGINT, column_id BIGINT, source_name VARCHAR, "
    "target_field_id BIGINT, parent_column BIGINT",
}
V03: Final = {name: ddl for name, ddl in V02.items() if name != "file_column_statistics"} | {
    "file_column_stats": _STATS + ", extra_stats VARCHAR",
    "table_column_stats": _TABLE_STATS + ", extra_stats VARCHAR",
    "name_mapping": V02["name_mapping"] + ", is_partition BOOLEAN",
    "snapshot_changes": V01["snapshot_changes"]
    + ", author VARCHAR, commit_message VARCHAR, commit_extra_info VARCHAR",
    "schema_versions": "begin_snapshot BIGINT, schema_version BIGINT",
}
_MACROS: Final = {
    "macro": f"schema_id BIGINT, macro_id BIGINT, macro_name VARCHAR, {_LIFE}",
    "macro_impl": "macro_id BIGINT, impl_id BIGINT, dialect VARCHAR, sql VARCHAR, type VARCHAR",
    "macro_parameters": "macro_id BIGINT, impl_id BIGINT, column_id BIGINT, "
    "parameter_name VARCHAR, parameter_type VARCHAR, default_value VARCHAR, "
    "default_value_type VARCHAR",
}
V04_DEV: Final = (
    V03
    | _MACROS
    | {
        "column": _COLUMN + ", default_value_type VARCHAR, default_value_dialect VARCHAR",
    }
)
_RENAMED: Final = {"file_column_statistics": "file_column_stats"}


def rewrite(source: Path, target: Path, ddl: dict[str, str], version: str) -> None:
    """Write a catalog of 1.0 in a DuckDB file again as an older version had it.

    Args:
        source: The catalog.
        target: The older one; must not exist.
        ddl: The columns of its tables, without the prefix `ducklake_`.
        version: Its version text.
    """
    with duckdb.connect(str(target)) as connection:
        connection.execute(f"ATTACH '{source}' AS new (READ_ONLY)")
        for name, columns in ddl.items():
            connection.execute(f"CREATE TABLE ducklake_{name} ({columns})")
            copy_rows(connection, f"ducklake_{name}", f"new.ducklake_{_RENAMED.get(name, name)}")
        names = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'new' "
            "AND regexp_matches(table_name, '^ducklake_inlined_(data|delete)_[0-9]')"
        ).fetchall()
        for (name,) in names:
            connection.execute(f"CREATE TABLE {name} AS FROM new.{name}")
        connection.execute(
            "UPDATE ducklake_metadata SET value = ? WHERE key = 'version'", [version]
        )
        if version in ("0.3", "0.4-dev1"):
            versions_of_the_lake(connection)


def copy_lake(catalog: Path, data_path: str, directory: Path) -> Path:
    """Copy a lake in a DuckDB file with its files: no two catalogs of a store have one root.

    Args:
        catalog: Its catalog.
        data_path: Where its files are.
        directory: Where the copy goes; its files below `data/`.
    """
    shutil.copytree(data_path, directory / "data")
    copy = directory / catalog.name
    shutil.copy(catalog, copy)
    run(copy, [f"UPDATE ducklake_metadata SET value = '{directory}/data/' WHERE key = 'data_path'"])
    return copy


def copy_rows(connection: duckdb.DuckDBPyConnection, table: str, source: str) -> None:
    """Copy what two tables have in common."""
    names = ", ".join(f'"{name}"' for name in shared_columns(connection, table, source))
    connection.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM {source}")


def shared_columns(connection: duckdb.DuckDBPyConnection, *tables: str) -> Sequence[str]:
    """Return the names of the columns that all of some tables have."""
    found = [[row[0] for row in connection.execute(f"DESCRIBE {t}").fetchall()] for t in tables]
    return [name for name in found[0] if all(name in names for names in found)]


def versions_of_the_lake(connection: duckdb.DuckDBPyConnection) -> None:
    """Write schema versions as they were before each table had its own."""
    connection.execute("DELETE FROM ducklake_schema_versions")
    connection.execute(
        "INSERT INTO ducklake_schema_versions (begin_snapshot, schema_version) "
        "SELECT min(snapshot_id), schema_version FROM ducklake_snapshot GROUP BY 2"
    )


def run(path: Path, statements: Iterable[str]) -> list[tuple[Any, ...]]:
    """Run statements on a DuckDB file; return the rows of the last one."""
    with duckdb.connect(str(path)) as connection:
        found: list[tuple[Any, ...]] = []
        for statement in statements:
            found = connection.execute(statement).fetchall()
        return found


def location(path: Path, **arguments: str) -> CatalogLocation:
    """Return where a DuckDB file with a catalog is."""
    return CatalogLocation.parse(f"ducklake:{path}", **arguments)
