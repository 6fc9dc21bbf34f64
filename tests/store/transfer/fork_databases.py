"""Databases of `thedatamates/ducklake` with several catalogs, made of lakes by the fork's DDL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import duckdb

from tests.store.transfer.old_catalogs import V03, V04_DEV

Layout = Literal["varchar", "bigint", "bigint everywhere"]
LAYOUTS: Final[tuple[Layout, ...]] = ("varchar", "bigint", "bigint everywhere")
_NAMED: Final = (
    "snapshot",
    "snapshot_changes",
    "schema",
    "table",
    "view",
    "table_stats",
    "partition_info",
    "files_scheduled_for_deletion",
    "schema_versions",
    "macro",
)
_OBJECTS: Final = frozenset(
    {"schema_id", "table_id", "view_id", "macro_id", "partition_id", "object_id", "scope_id"}
)
_FILES: Final = frozenset({"data_file_id", "delete_file_id", "mapping_id", "next_file_id"})
_SNAPSHOTS: Final = frozenset({"snapshot_id", "begin_snapshot", "end_snapshot"})
STEP: Final = 1000


@dataclass(frozen=True, slots=True)
class ForkDatabase:
    """A database of the fork.

    Attributes:
        path: The DuckDB file.
        layout: Which of the three layouts it has.
        names: The catalogs; the ids of each are counted from `STEP` times its place.
    """

    path: Path
    layout: Layout
    names: Sequence[str]

    def snapshot(self, name: str, snapshot_id: int) -> int:
        """Return the id that a snapshot of a lake has among those of all catalogs."""
        if self.layout == "varchar" and snapshot_id == 0:
            return 1  # there is one for all, with the schema `main` of all
        return snapshot_id * len(self.names) + self.names.index(name) + 1


def make(
    path: Path,
    layout: Layout,
    lakes: Mapping[str, Path],
    data_path: str,
    *,
    stores_data_path: bool = True,
) -> ForkDatabase:
    """Put lakes of 1.0 in DuckDB files into one database of the fork.

    Args:
        path: The new DuckDB file.
        layout: How the fork lays its tables out.
        lakes: Name -> catalog of a lake whose files are below `<data path>/<name>/`.
        data_path: The common data path, ending in `/`.
        stores_data_path: Whether the database says where that is.
    """
    database = ForkDatabase(path, layout, list(lakes))
    everywhere = layout == "bigint everywhere"
    with duckdb.connect(str(path)) as connection:
        tables = _create_tables(connection, layout)
        options = [("version", "0.4-dev1" if layout == "bigint" else "0.5-dev1")]
        first = f"{data_path}{database.names[0]}/" if layout == "varchar" else data_path
        options += [("data_path", first)] if stores_data_path else []
        connection.executemany(
            "INSERT INTO ducklake_metadata (key, value) VALUES (?, ?)",
            [*options, ("encrypted", "false")],
        )
        if everywhere:
            connection.execute("INSERT INTO ducklake_snapshot VALUES (0, now(), 0, 0, 0)")
        for place, (name, lake) in enumerate(lakes.items()):
            connection.execute(f"ATTACH '{lake}' AS lake (READ_ONLY)")
            if layout != "varchar":
                connection.execute(
                    "INSERT INTO ducklake_catalog (catalog_id, catalog_name) VALUES (?, ?)",
                    [place * STEP + 900, name],
                )
            for table in tables:
                _copy(connection, database, table, name)
            _copy_inlined(connection, database, name)
            connection.execute("DETACH lake")
    return database


def _create_tables(connection: duckdb.DuckDBPyConnection, layout: Layout) -> list[str]:
    kind = "VARCHAR DEFAULT ''" if layout == "varchar" else "BIGINT NOT NULL"
    for name, columns in V04_DEV.items():
        columns = columns.replace(" PRIMARY KEY", "")
        if layout == "bigint everywhere":
            has_catalog = name not in ("metadata", "snapshot")
        else:
            has_catalog = name in _NAMED
        prefix = f"catalog_id {kind}, " if has_catalog else ""
        connection.execute(f"CREATE TABLE ducklake_{name} ({prefix}{columns})")
    if layout == "bigint":
        connection.execute(
            "CREATE TABLE ducklake_catalog (catalog_id BIGINT PRIMARY KEY, "
            "catalog_name VARCHAR NOT NULL UNIQUE, created_snapshot BIGINT)"
        )
    if layout == "bigint everywhere":
        connection.execute(
            "CREATE TABLE ducklake_catalog (catalog_id BIGINT NOT NULL, catalog_uuid UUID DEFAULT "
            "uuid(), catalog_name VARCHAR NOT NULL, parent_catalog_id BIGINT, begin_snapshot "
            "BIGINT, end_snapshot BIGINT)"
        )
    assert V03.keys() < V04_DEV.keys()
    return list(V04_DEV)


def _copy(
    connection: duckdb.DuckDBPyConnection, database: ForkDatabase, table: str, name: str
) -> None:
    if table == "schema_versions":
        source = (
            "(SELECT min(snapshot_id) AS begin_snapshot, schema_version "
            "FROM lake.ducklake_snapshot GROUP BY 2)"
        )
    else:
        source = f"lake.ducklake_{table}"
    where = " WHERE scope IS NOT NULL" if table == "metadata" else ""
    result = connection.execute(f"SELECT * FROM {source}{where}")
    columns = [column[0] for column in result.description or ()]
    rows = result.fetchall()
    wanted = [row[0] for row in connection.execute(f"DESCRIBE ducklake_{table}").fetchall()]
    for row in rows:
        record = dict(zip(columns, row, strict=True))
        begin = record.get("begin_snapshot", record.get("snapshot_id"))
        if database.layout == "varchar" and begin == 0 and name != database.names[0]:
            continue
        values = [_value(database, name, table, column, record) for column in wanted]
        marks = ", ".join("?" * len(values))
        connection.execute(f"INSERT INTO ducklake_{table} VALUES ({marks})", values)


def _value(
    database: ForkDatabase, name: str, table: str, column: str, record: Mapping[str, Any]
) -> Any:
    offset = database.names.index(name) * STEP
    if column == "catalog_id":
        if database.layout != "varchar":
            return offset + 900
        # The first rows of a database had no catalog yet.
        is_first = table in ("schema", "snapshot", "snapshot_changes")
        begin = record.get("begin_snapshot", record.get("snapshot_id"))
        return "" if is_first and begin == 0 else name
    value = record.get(column)
    if value is None:
        return None
    if column in _SNAPSHOTS:
        return database.snapshot(name, value)
    if column == "schema_id" and database.layout == "varchar" and value == 0:
        return 0
    if column in _OBJECTS | _FILES | {"next_catalog_id"}:
        return value + offset
    if column == "table_name" and table == "inlined_data_tables":
        return _renamed(value, offset)
    if column == "changes_made":
        return re.sub(r":(\d+)", lambda match: f":{int(match[1]) + offset}", value)
    everywhere = database.layout == "bigint everywhere"
    if column == "path" and everywhere and table in ("schema", "files_scheduled_for_deletion"):
        return f"{name}/{value}" if record["path_is_relative"] else value
    return value


def _renamed(table: str, offset: int) -> str:
    return re.sub(r"_(\d+)", lambda match: f"_{int(match[1]) + offset}", table, count=1)


def _copy_inlined(connection: duckdb.DuckDBPyConnection, database: ForkDatabase, name: str) -> None:
    offset = database.names.index(name) * STEP
    found = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake' "
        "AND regexp_matches(table_name, '^ducklake_inlined_data_[0-9]')"
    ).fetchall()
    count, place = len(database.names), database.names.index(name)
    for (table,) in found:
        connection.execute(
            f"CREATE TABLE {_renamed(table, offset)} AS SELECT * REPLACE ("
            f"begin_snapshot * {count} + {place + 1} AS begin_snapshot, "
            f"end_snapshot * {count} + {place + 1} AS end_snapshot) FROM lake.{table}"
        )


def fork(database: ForkDatabase, parent: str, child: str) -> int:
    """Do what `ducklake_fork_catalog` did: copy what is live, ids and paths as they are.

    Returns:
        The first snapshot of the child.
    """
    parent_id = database.names.index(parent) * STEP + 900
    child_id = 9000
    with duckdb.connect(str(database.path)) as connection:
        (snapshot,) = connection.execute(
            "SELECT max(snapshot_id) + 1 FROM ducklake_snapshot"
        ).fetchone() or (0,)
        connection.execute(
            "INSERT INTO ducklake_snapshot SELECT ?, now(), schema_version, 9001, next_file_id "
            "FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1",
            [snapshot],
        )
        connection.execute(
            "INSERT INTO ducklake_snapshot_changes (catalog_id, snapshot_id, changes_made, "
            "commit_message) VALUES (?, ?, ?, 'Fork catalog')",
            [child_id, snapshot, f"forked_from:{parent_id}"],
        )
        connection.execute(
            "INSERT INTO ducklake_catalog (catalog_id, catalog_name, parent_catalog_id, "
            "begin_snapshot) VALUES (?, ?, ?, ?)",
            [child_id, child, parent_id, snapshot],
        )
        connection.execute(
            "INSERT INTO ducklake_schema_versions SELECT ?, ?, schema_version "
            "FROM ducklake_snapshot WHERE snapshot_id = ?",
            [child_id, snapshot, snapshot],
        )
        for table in V04_DEV:
            names = {row[0] for row in connection.execute(f"DESCRIBE ducklake_{table}").fetchall()}
            if "catalog_id" not in names or table in ("snapshot_changes", "schema_versions"):
                continue
            replaced, where = f"{child_id} AS catalog_id", ""
            if "end_snapshot" in names:
                replaced += f", {snapshot} AS begin_snapshot"
                where = " AND end_snapshot IS NULL"
            if f"{table}_uuid" in names:
                replaced += f", uuid() AS {table}_uuid"
            connection.execute(
                f"INSERT INTO ducklake_{table} SELECT * REPLACE ({replaced}) "
                f"FROM ducklake_{table} WHERE catalog_id = {parent_id}{where}"
            )
    return int(snapshot)
