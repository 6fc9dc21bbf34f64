"""Tables, schemas and columns that clients cannot tell apart."""

from __future__ import annotations

from typing import Final

from airflow_provider_ducklake.lake.fsck.check import Check

_LIVE: Final = "end_snapshot IS NULL"

NAME_CHECKS: Final = (
    Check(
        "name_taken_twice",
        "SELECT min(id), schema_id, name, count(*) FROM ("
        f"SELECT table_id AS id, schema_id, table_name AS name FROM {{ducklake_table}} "
        f"WHERE {_LIVE} UNION ALL "
        "SELECT view_id, schema_id, view_name FROM {ducklake_view} "
        f"WHERE {_LIVE}) AS relations GROUP BY schema_id, lower(name), name "
        "HAVING count(*) > 1 AND count(DISTINCT id) > 1",
        "{3} live tables or views of schema {1} are called {2}",
        ids=0,
    ),
    Check(
        "name_taken_twice",
        "SELECT NULL, min(schema_id), schema_name, count(*) FROM {ducklake_schema} "
        f"WHERE {_LIVE} GROUP BY schema_name HAVING count(DISTINCT schema_id) > 1",
        "{3} live schemas are called {2}",
    ),
    Check(
        "name_taken_twice",
        "SELECT table_id, min(column_id), column_name, count(*) FROM {ducklake_column} "
        f"WHERE {_LIVE} GROUP BY table_id, coalesce(parent_column, -1), column_name "
        "HAVING count(DISTINCT column_id) > 1",
        "{3} columns are called {2}",
    ),
    Check(
        "live_twice",
        "SELECT table_id, count(*) FROM {ducklake_table} "
        f"WHERE {_LIVE} GROUP BY table_id HAVING count(*) > 1",
        "the table has {1} live rows in ducklake_table",
        ids=0,
    ),
    Check(
        "live_twice",
        "SELECT table_id, column_id, count(*) FROM {ducklake_column} "
        f"WHERE {_LIVE} GROUP BY table_id, column_id HAVING count(*) > 1",
        "column {1} has {2} live rows in ducklake_column",
    ),
    Check(
        "live_twice",
        "SELECT NULL, schema_id, count(*) FROM {ducklake_schema} "
        f"WHERE {_LIVE} GROUP BY schema_id HAVING count(*) > 1",
        "schema {1} has {2} live rows in ducklake_schema",
    ),
)
