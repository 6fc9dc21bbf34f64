"""What must hold in the metadata tables themselves, read without any DuckLake client."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from tests.support.lakes import CatalogRows, LakeUnderTest, catalog_rows

_FILES = ("ducklake_data_file", "ducklake_delete_file")
# Tables whose rows belong to a data file, and have to leave with it.
_OF_DATA_FILES = (
    "ducklake_file_column_stats",
    "ducklake_file_variant_stats",
    "ducklake_file_partition_value",
)


def referenced_files(lake: LakeUnderTest) -> set[str]:
    """Return the full paths of all files the catalog names, those scheduled for deletion too."""
    rows = catalog_rows(lake)
    scheduled = rows["ducklake_files_scheduled_for_deletion"]
    paths = {_joined(lake.data_path, row) for row in scheduled}
    return paths | {path for _, path in _table_files(lake, rows)}


def live_files(rows: CatalogRows, table: str) -> list[dict[str, Any]]:
    """Return the data file rows of a table (bare name) at the newest snapshot, oldest first."""
    ids = [
        row["table_id"]
        for row in rows["ducklake_table"]
        if row["table_name"] == table and row["end_snapshot"] is None
    ]
    files = [
        row
        for row in rows["ducklake_data_file"]
        if row["table_id"] in ids and row["end_snapshot"] is None
    ]
    return sorted(files, key=lambda row: (row["begin_snapshot"], row["data_file_id"]))


def unreferenced_files(lake: LakeUnderTest) -> set[str]:
    """Return the Parquet files under the data path that the catalog does not name."""
    found = {str(path) for path in Path(lake.data_path).rglob("*.parquet")}
    return found - referenced_files(lake)


def change_catalog(lake: LakeUnderTest, statement: str) -> None:
    """Run a statement on the metadata tables directly, with the database's own driver."""
    if lake.kind == "sqlite":
        connection = sqlite3.connect(lake.location.target)
        with connection:
            connection.execute(statement)
        connection.close()
    elif lake.kind == "duckdb":
        with duckdb.connect(lake.location.target) as session:
            session.execute(statement)
    else:
        schema = psycopg.sql.Identifier(lake.location.metadata_schema or "public")
        with psycopg.connect(lake.location.conninfo) as client:
            client.execute(psycopg.sql.SQL("SET search_path = {}").format(schema))
            client.execute(statement.encode())


def catalog_faults(lake: LakeUnderTest) -> list[str]:
    """Return what is wrong by the specification and design.md, whatever was done before."""
    rows = catalog_rows(lake)
    return [
        *_snapshots(rows),
        *_intervals(rows),
        *_data_files(rows),
        *_deletes(rows),
        *_partition_values(rows),
        *_files_on_disk(lake, rows),
    ]


def _snapshots(rows: CatalogRows) -> Iterator[str]:
    snapshots = rows["ducklake_snapshot"]
    yield from _repeated("snapshot id", (row["snapshot_id"] for row in snapshots))
    ids = {row["snapshot_id"] for row in snapshots}
    changed = [row["snapshot_id"] for row in rows["ducklake_snapshot_changes"]]
    yield from _repeated("changes of snapshot", changed)
    # Those of expired snapshots stay for a day.
    if not ids <= set(changed) or max(changed) > max(ids):
        yield f"snapshots {sorted(ids)} but changes of {sorted(changed)}"
    head = max(snapshots, key=lambda row: int(row["snapshot_id"]))
    used = [row[key] for name, key in _file_ids() for row in rows[name]]
    if used and max(used) >= head["next_file_id"]:
        yield f"file id {max(used)} was given, but the next is {head['next_file_id']}"
    objects = [row["table_id"] for row in rows["ducklake_table"]]
    objects += [row["partition_id"] for row in rows["ducklake_partition_info"]]
    if objects and max(objects) >= head["next_catalog_id"]:
        yield f"id {max(objects)} was given, but the next is {head['next_catalog_id']}"
    ordered = sorted(snapshots, key=lambda row: int(row["snapshot_id"]))
    for earlier, later in pairwise(ordered):
        for key in ("next_file_id", "next_catalog_id", "schema_version"):
            if earlier[key] > later[key]:
                yield f"{key} falls from {earlier[key]} to {later[key]}"


def _file_ids() -> list[tuple[str, str]]:
    # The reference numbers name mappings as it does files, and looks for new ones by that.
    return [
        ("ducklake_data_file", "data_file_id"),
        ("ducklake_delete_file", "delete_file_id"),
        ("ducklake_column_mapping", "mapping_id"),
    ]


def _intervals(rows: CatalogRows) -> Iterator[str]:
    head = max(row["snapshot_id"] for row in rows["ducklake_snapshot"])
    for name, table in rows.items():
        for row in table:
            begin, end = row.get("begin_snapshot"), row.get("end_snapshot")
            if end is not None and begin is not None and end <= begin:
                yield f"{name} has a row that ends at {end} but begins at {begin}"
            if max(begin or 0, end or 0) > head:
                yield f"{name} has a row of {begin} to {end}, after the newest snapshot {head}"


def _data_files(rows: CatalogRows) -> Iterator[str]:
    files = rows["ducklake_data_file"]
    yield from _repeated("data file id", (row["data_file_id"] for row in files))
    yield from _repeated("data file", ((row["table_id"], row["path"]) for row in files))
    ids_given = [row[key] for name, key in _file_ids() for row in rows[name]]
    yield from _repeated("id of a file or a name mapping", ids_given)
    mappings = {row["mapping_id"] for row in rows["ducklake_column_mapping"]}
    for lost in {row["mapping_id"] for row in files} - mappings - {None}:
        yield f"a data file has the name mapping {lost}, which is not"
    tables = {row["table_id"] for row in rows["ducklake_table"]}
    ids = {row["data_file_id"] for row in files}
    for row in files:
        if row["table_id"] not in tables:
            yield f"data file {row['data_file_id']} is of table {row['table_id']}, which is not"
        if row["record_count"] <= 0:
            yield f"data file {row['data_file_id']} has {row['record_count']} rows"
    for name in _OF_DATA_FILES:
        lost = {row["data_file_id"] for row in rows[name]} - ids
        if lost:
            yield f"{name} has rows of data files {sorted(lost)}, which are not"
    yield from _repeated(
        "statistics",
        ((r["data_file_id"], r["column_id"]) for r in rows["ducklake_file_column_stats"]),
    )
    fields = rows["ducklake_file_variant_stats"]
    keys = ((r["data_file_id"], r["column_id"], r["variant_path"]) for r in fields)
    yield from _repeated("statistics of a field", keys)
    yield from _repeated("table statistics", (r["table_id"] for r in rows["ducklake_table_stats"]))


def _deletes(rows: CatalogRows) -> Iterator[str]:
    files = {row["data_file_id"]: row for row in rows["ducklake_data_file"]}
    deletes = rows["ducklake_delete_file"]
    yield from _repeated("delete file id", (row["delete_file_id"] for row in deletes))
    live = [row["data_file_id"] for row in deletes if row["end_snapshot"] is None]
    yield from _repeated("live delete file of data file", live)
    for row in deletes:
        file = files.get(row["data_file_id"])
        if file is None:
            yield f"delete file {row['delete_file_id']} is of a data file that is not"
        elif file["end_snapshot"] is not None and row["begin_snapshot"] >= file["end_snapshot"]:
            yield f"delete file {row['delete_file_id']} begins after its data file has ended"
        elif row["delete_count"] > file["record_count"]:
            yield f"delete file {row['delete_file_id']} deletes more rows than there are"
    for name, table in rows.items():
        if name.startswith("ducklake_inlined_delete_"):
            yield from _repeated(name, ((row["file_id"], row["row_id"]) for row in table))
            lost = {row["file_id"] for row in table} - files.keys()
            if lost:
                yield f"{name} has deletes of data files {sorted(lost)}, which are not"


def _partition_values(rows: CatalogRows) -> Iterator[str]:
    keys: Counter[Any] = Counter(row["partition_id"] for row in rows["ducklake_partition_column"])
    values: dict[int, list[int]] = {}
    for row in rows["ducklake_file_partition_value"]:
        values.setdefault(row["data_file_id"], []).append(row["partition_key_index"])
    for file in rows["ducklake_data_file"]:
        wanted = list(range(keys[file["partition_id"]])) if file["partition_id"] else []
        found = sorted(values.get(file["data_file_id"], []))
        if found != wanted:
            yield f"data file {file['data_file_id']} has partition values {found}, not {wanted}"


def _files_on_disk(lake: LakeUnderTest, rows: CatalogRows) -> Iterator[str]:
    scheduled = rows["ducklake_files_scheduled_for_deletion"]
    waiting = {_joined(lake.data_path, row) for row in scheduled}
    for size, path in _table_files(lake, rows):
        if path in waiting:
            yield f"{path} is scheduled for deletion, but in use"
        file = Path(path)
        if not file.is_file():
            yield f"{path} is gone"
        elif file.stat().st_size != size:
            yield f"{path} has {file.stat().st_size} bytes, not {size}"


def _table_files(lake: LakeUnderTest, rows: CatalogRows) -> Iterator[tuple[int, str]]:
    schemas = {row["schema_id"]: _joined(lake.data_path, row) for row in rows["ducklake_schema"]}
    tables = {
        row["table_id"]: _joined(schemas[row["schema_id"]], row) for row in rows["ducklake_table"]
    }
    for name in _FILES:
        for row in rows[name]:
            yield row["file_size_bytes"], _joined(tables[row["table_id"]], row)


def _joined(parent: str, row: dict[str, Any]) -> str:
    return parent + str(row["path"]) if row["path_is_relative"] else str(row["path"])


def _repeated(what: str, keys: Iterable[Any]) -> Iterator[str]:
    counted = Counter(keys)
    for key, times in counted.items():
        if times > 1:
            yield f"{what} {key} is there {times} times"
