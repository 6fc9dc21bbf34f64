"""A catalog as one snapshot shows it: what came later or ended before is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from airflow_provider_ducklake.lake.errors import ConfigurationError, NotFound
from airflow_provider_ducklake.lake.transfer.rows import (
    CatalogContents,
    InlinedData,
    InlinedDeletes,
    Rows,
)

# Inlined rows and files are read by the shape a table had when they were written, so the past of
# what is still there stays.
_WITH_PAST: Final = frozenset(
    {
        "ducklake_schema",
        "ducklake_table",
        "ducklake_column",
        "ducklake_partition_info",
        "ducklake_sort_info",
    }
)


def frozen(contents: CatalogContents, snapshot_id: int) -> CatalogContents:
    """Return a catalog with one snapshot only, fit for reading.

    Args:
        contents: The catalog.
        snapshot_id: A kept snapshot.

    Raises:
        NotFound: The catalog does not keep it.
        ConfigurationError: Files it sees were merged since with rows or deletes of later snapshots.
    """
    snapshots = contents.tables["ducklake_snapshot"].where("snapshot_id", {snapshot_id})
    if not len(snapshots):
        raise NotFound(f"snapshot {snapshot_id} is not kept: it cannot be exported")
    _refuse_partial_files(contents, snapshot_id)
    found = {name: _begun(name, rows, snapshot_id) for name, rows in contents.tables.items()}
    found["ducklake_snapshot"] = snapshots
    found["ducklake_snapshot_changes"] = found["ducklake_snapshot_changes"].where(
        "snapshot_id", {snapshot_id}
    )
    live = _live(contents, "ducklake_table", snapshot_id)
    tables, schemas = set(live.values("table_id")), set(live.values("schema_id"))
    schemas |= set(_live(contents, "ducklake_schema", snapshot_id).values("schema_id"))
    found["ducklake_schema"] = found["ducklake_schema"].where("schema_id", schemas)
    for name, rows in found.items():
        if "table_id" in rows.columns:
            found[name] = rows.where("table_id", tables)
    _keep_reachable(found, tables, schemas)
    inlined_data = tuple(
        _rows_at(data, snapshot_id) for data in contents.inlined_data if data.table_id in tables
    )
    found["ducklake_table_stats"] = _table_stats(found, inlined_data)
    # Those of the newest snapshot; its bounds may not even be of the type a column had then.
    found["ducklake_table_column_stats"] = Rows(found["ducklake_table_column_stats"].columns)
    return replace(
        contents,
        tables=found,
        inlined_data=inlined_data,
        inlined_deletes=tuple(
            _deletes_at(deletes, snapshot_id)
            for deletes in contents.inlined_deletes
            if deletes.table_id in tables
        ),
    )


def _refuse_partial_files(contents: CatalogContents, snapshot_id: int) -> None:
    """Refuse what a client would read right and count wrong.

    Rows of later snapshots are filtered out one by one when such a file is read. But to count the
    rows of the newest snapshot the reference adds up what the catalog says of whole files, see
    DuckLakeGetPartitionStats in ducklake_scan.cpp.
    """
    later = [
        int(record["partial_max"])
        for name in ("ducklake_data_file", "ducklake_delete_file")
        for record in _live(contents, name, snapshot_id).records()
        if record["partial_max"] is not None and record["partial_max"] > snapshot_id
    ]
    if later:
        raise ConfigurationError(
            f"files that snapshot {snapshot_id} sees were merged since with rows up to snapshot "
            f"{max(later)}: freeze at that one or a later one, or export the whole catalog and "
            f"attach it with SNAPSHOT_VERSION {snapshot_id}"
        )


def _live(contents: CatalogContents, name: str, snapshot_id: int) -> Rows:
    return contents.tables[name].filtered(lambda row: _is_live(row, snapshot_id))


def _is_live(row: Mapping[str, Any], snapshot_id: int) -> bool:
    end = row["end_snapshot"]
    return bool(row["begin_snapshot"] <= snapshot_id and (end is None or end > snapshot_id))


def _begun(name: str, rows: Rows, snapshot_id: int) -> Rows:
    """Return the rows that had begun, ended where they had, without an end that came later."""
    if "begin_snapshot" not in rows.columns:
        return rows
    kept = rows.filtered(
        lambda row: (
            row["begin_snapshot"] <= snapshot_id
            if name in _WITH_PAST or "end_snapshot" not in row
            else _is_live(row, snapshot_id)
        )
    )
    return kept.mapped(
        {"end_snapshot": lambda end: None if end is None or end > snapshot_id else end}
    )


def _keep_reachable(found: dict[str, Rows], tables: set[Any], schemas: set[Any]) -> None:
    """Keep, of the tables without a life of their own, what belongs to rows that stay."""

    def ids(table: str, column: str) -> set[Any]:
        return set(found[table].values(column))

    views = ids("ducklake_view", "view_id")
    macros = ids("ducklake_macro", "macro_id")
    files = ids("ducklake_data_file", "data_file_id")
    mapped = ids("ducklake_data_file", "mapping_id")
    narrowed: Mapping[str, tuple[str, set[Any]]] = {
        "ducklake_delete_file": ("data_file_id", files),
        "ducklake_file_column_stats": ("data_file_id", files),
        "ducklake_file_variant_stats": ("data_file_id", files),
        "ducklake_file_partition_value": ("data_file_id", files),
        "ducklake_column_mapping": ("mapping_id", mapped),
        "ducklake_name_mapping": ("mapping_id", mapped),
        "ducklake_tag": ("object_id", tables | views),
        "ducklake_macro_impl": ("macro_id", macros),
        "ducklake_macro_parameters": ("macro_id", macros),
    }
    for name, (column, wanted) in narrowed.items():
        found[name] = found[name].where(column, wanted)
    scopes: Mapping[Any, set[Any]] = {"table": tables, "schema": schemas, None: {None}}
    found["ducklake_metadata"] = found["ducklake_metadata"].filtered(
        lambda option: option["scope_id"] in scopes.get(option["scope"], set())
    )


def _table_stats(found: Mapping[str, Rows], inlined_data: Iterable[InlinedData]) -> Rows:
    """Return the counts of the tables, of what stays; row ids go on where they were."""
    records: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for file in found["ducklake_data_file"].records():
        records[file["table_id"]] += int(file["record_count"])
        sizes[file["table_id"]] += int(file["file_size_bytes"])
    for data in inlined_data:
        records[data.table_id] += len(data.rows)
    stats = found["ducklake_table_stats"]
    return Rows(
        stats.columns,
        [
            (table_id, records[table_id], next_row_id, sizes[table_id])
            for table_id, _, next_row_id, _ in stats.rows
        ],
    )


def _rows_at(data: InlinedData, snapshot_id: int) -> InlinedData:
    rows = (
        replace(row, end_snapshot=None)
        for row in data.rows
        if row.begin_snapshot <= snapshot_id
        and (row.end_snapshot is None or row.end_snapshot > snapshot_id)
    )
    return replace(data, rows=tuple(rows))


def _deletes_at(deletes: InlinedDeletes, snapshot_id: int) -> InlinedDeletes:
    return replace(deletes, rows=tuple(row for row in deletes.rows if row[2] <= snapshot_id))
