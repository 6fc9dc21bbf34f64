"""Metadata rows of DuckLake 0.1 to 0.4 as 1.0 holds them; a history is kept or refused, not bent.

Older versions lack tables and columns, so most of the way is filling in what 1.0 would have
written. The rest is said below, each with the version it came with.

Source: MigrateV01 to MigrateV04 in ducklake_metadata_manager.cpp of the reference.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from airflow_provider_ducklake.lake.errors import UnsupportedCatalog
from airflow_provider_ducklake.lake.metadata_tables import FORMAT_VERSION, METADATA_TABLES
from airflow_provider_ducklake.lake.transfer.rows import Rows, Tables, column_names

VERSIONS: Final = ("0.1", "0.2", "0.3-dev1", "0.3", "0.4-dev1", "0.4", FORMAT_VERSION)
OLD_NAMES: Final = {"ducklake_file_column_statistics": "ducklake_file_column_stats"}
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "ducklake_schema": {"path": "", "path_is_relative": True},
    "ducklake_table": {"path": "", "path_is_relative": True},
    "ducklake_name_mapping": {"is_partition": False},
}
_PARTIAL: Final = "partial_file_info"
_PARTIAL_MAX: Final = re.compile(r"partial_max:(\d+)")
_SPLITS: Final = re.compile(r"\d+:\d+(\|\d+:\d+)*")


def to_current(raw: Tables, version: str, where: object) -> dict[str, Rows]:
    """Return every table of DuckLake 1.0 with the rows of an older catalog.

    Args:
        raw: The tables as they are read; those of 1.0 come back with columns in order.
        version: What the catalog says it is, one of `VERSIONS`.
        where: What to call the catalog in messages.

    Raises:
        UnsupportedCatalog: A kept snapshot sees part of a merged file in a way 1.0 cannot say.
    """
    found = {OLD_NAMES.get(name, name): rows for name, rows in raw.items()}
    if version != FORMAT_VERSION:
        if version == "0.1":
            found["ducklake_partition_column"] = _partition_columns(found)
        if _PARTIAL in found["ducklake_data_file"].columns:
            found["ducklake_data_file"] = _partial_files(found, where)
        found["ducklake_schema_versions"] = _schema_versions(found)
    current = {
        table.name: found.get(table.name, Rows(column_names(table.name))).selected(
            column_names(table.name), _DEFAULTS.get(table.name, {})
        )
        for table in METADATA_TABLES
    }
    if version != FORMAT_VERSION:
        current["ducklake_column"] = current["ducklake_column"].mapped(
            {"default_value_type": lambda kind: "literal" if kind is None else kind}
        )
    return current


def _partition_columns(found: Mapping[str, Rows]) -> Rows:
    """Return partition keys by column id; 0.1 counted top-level columns instead."""
    by_table: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for column in found["ducklake_column"].records():
        if column["parent_column"] is None and column["end_snapshot"] is None:
            by_table[column["table_id"]].append((column["column_order"], column["column_id"]))
    keys = found["ducklake_partition_column"]
    at, table_at = keys.columns.index("column_id"), keys.columns.index("table_id")
    rows = []
    for row in keys.rows:
        ordered = [column_id for _, column_id in sorted(by_table[row[table_at]])]
        if row[at] < len(ordered):  # else it is a key of a table that was dropped
            rows.append((*row[:at], ordered[row[at]], *row[at + 1 :]))
    return Rows(keys.columns, rows)


def _partial_files(found: Mapping[str, Rows], where: object) -> Rows:
    """Return data files with `partial_max`.

    Up to 0.3 a merged file said how many of its rows each snapshot sees. Now the file itself says
    it row by row, which such a file does not, so no kept snapshot may need it.
    """
    snapshots = sorted(found["ducklake_snapshot"].values("snapshot_id"))
    files = found["ducklake_data_file"]
    columns = (*files.columns, "partial_max")
    at, begin_at = files.columns.index(_PARTIAL), files.columns.index("begin_snapshot")
    end_at = files.columns.index("end_snapshot")
    rows = []
    for row in files.rows:
        info, newest = str(row[at] or ""), None
        if match := _PARTIAL_MAX.fullmatch(info):
            newest = int(match[1])
        elif info and _SPLITS.fullmatch(info) is None:
            raise UnsupportedCatalog(f"{where}: a merged file says {info!r}, which is not known")
        elif info:
            last = max(int(part.partition(":")[0]) for part in info.split("|"))
            until = last if row[end_at] is None else min(last, row[end_at])
            if seen := [s for s in snapshots if row[begin_at] <= s < until]:
                raise UnsupportedCatalog(
                    f"{where}: snapshots {seen[0]} to {seen[-1]} see part of a file merged by an "
                    f"older version, and {FORMAT_VERSION} cannot say which part: expire the "
                    f"snapshots before {last} with the version that wrote them, then import"
                )
        rows.append((*row, newest))
    return Rows(columns, rows)


def _schema_versions(found: Mapping[str, Rows]) -> Rows:
    """Return the schema versions of each table; before 0.4 they were of the whole lake."""
    columns = ("begin_snapshot", "schema_version", "table_id")
    stored = found.get("ducklake_schema_versions", Rows(columns[:2]))
    pairs: dict[tuple[int, int], int] = {}
    of_lake = []
    for record in stored.records():
        begin, version = int(record["begin_snapshot"]), int(record["schema_version"])
        if record.get("table_id") is None:
            of_lake.append((begin, version))
        else:
            pairs[(int(record["table_id"]), version)] = begin
    if not pairs and not of_lake:
        # 0.2 did not keep them: a version begins at the first snapshot that has it.
        firsts: dict[int, int] = {}
        for snapshot in found["ducklake_snapshot"].records():
            version, snapshot_id = int(snapshot["schema_version"]), int(snapshot["snapshot_id"])
            firsts[version] = min(firsts.get(version, snapshot_id), snapshot_id)
        of_lake = [(begin, version) for version, begin in firsts.items()]
    for table in found["ducklake_table"].records():
        table_id, end = int(table["table_id"]), table["end_snapshot"]
        for begin, version in of_lake:
            if table["begin_snapshot"] <= begin and (end is None or begin <= end):
                pairs.setdefault((table_id, version), begin)
    _complete_for_inlined_rows(pairs, found)
    return Rows(columns, [(begin, version, table) for (table, version), begin in pairs.items()])


def _complete_for_inlined_rows(
    pairs: dict[tuple[int, int], int], found: Mapping[str, Rows]
) -> None:
    """Add the versions of tables of inlined rows: clients look up where each begins."""
    inlined = found.get("ducklake_inlined_data_tables")
    if inlined is None:
        return
    created: dict[int, int] = {}
    for table in found["ducklake_table"].records():
        table_id, begin = int(table["table_id"]), int(table["begin_snapshot"])
        created[table_id] = min(created.get(table_id, begin), begin)
    for record in inlined.records():
        table_id, version = int(record["table_id"]), int(record["schema_version"])
        earlier = [b for (table, v), b in pairs.items() if table == table_id and v <= version]
        if (table_id, version) not in pairs and table_id in created:
            pairs[(table_id, version)] = max(earlier, default=created[table_id])
