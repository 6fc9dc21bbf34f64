"""The store's SQL: metadata tables with a catalog id in front, views for clients, functions.

Tables, views and the copies a fork makes follow from `METADATA_TABLES`; the rest is written out in
`sql/`, in the order of the files' names.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Final

from airflow_provider_ducklake.lake.metadata_tables import (
    FORMAT_VERSION,
    METADATA_TABLES,
    MetadataTable,
)

STORE_VERSION: Final = 1
SCHEMAS: Final = ("ducklake", "lake", "ducklake_api")
OWNER, SERVICE, TENANT = ROLES = ("ducklake_owner", "ducklake_service", "ducklake_tenant")

# Tables with paths, and the column that identifies a row of theirs.
_WITH_PATHS: Final = {
    "ducklake_schema": "schema_id",
    "ducklake_table": "table_id",
    "ducklake_data_file": "data_file_id",
    "ducklake_delete_file": "delete_file_id",
    "ducklake_files_scheduled_for_deletion": "data_file_id",
}
_SETTINGS: Final = "ducklake_metadata"
_SCHEDULED: Final = "ducklake_files_scheduled_for_deletion"
# Written out in 7_fork.sql, or left behind.
_NOT_COPIED: Final = frozenset(
    {
        _SETTINGS,
        "ducklake_snapshot",
        "ducklake_snapshot_changes",
        "ducklake_inlined_data_tables",
        _SCHEDULED,
    }
)
# Names of tables for inlined rows follow from table ids, so these have to be the catalog's own.
_CHECKS: Final = {
    "ducklake_table": "table_id >> 32 = catalog_id OR table_id = -1",
    "ducklake_inlined_data_tables": "table_id >> 32 = catalog_id AND "
    "table_name = 'ducklake_inlined_data_' || table_id || '_' || schema_version",
}
# Sizes and counts, which maintenance of the whole fleet adds up and divides by: one tenant's are to
# break no sum. Every client writes far less, or nothing.
_COUNTED: Final = {
    "ducklake_snapshot": ("snapshot_id", "schema_version"),
    "ducklake_data_file": (
        "record_count",
        "file_size_bytes",
        "footer_size",
        "row_id_start",
        "partial_max",
    ),
    "ducklake_delete_file": ("delete_count", "file_size_bytes", "footer_size", "partial_max"),
    "ducklake_file_column_stats": ("column_size_bytes", "value_count", "null_count"),
    "ducklake_file_variant_stats": ("column_size_bytes", "value_count", "null_count"),
    "ducklake_table_stats": ("record_count", "next_row_id", "file_size_bytes"),
}
_LARGEST: Final = 1 << 50
# Without these a row means nothing, and whoever reads it could only guess; see the specification.
_NEEDED: Final = {
    "ducklake_schema": ("begin_snapshot", "path", "path_is_relative"),
    "ducklake_table": ("schema_id", "begin_snapshot", "path", "path_is_relative"),
    "ducklake_data_file": ("table_id", "begin_snapshot", "path", "path_is_relative"),
    "ducklake_delete_file": (
        "table_id",
        "data_file_id",
        "begin_snapshot",
        "path",
        "path_is_relative",
    ),
    _SCHEDULED: ("data_file_id", "path", "path_is_relative", "schedule_start"),
}
# The columns of an index that is more than its first: what a fleet plan reads of every data file,
# so that it reads this instead of the files' rows, in the order in which it counts them.
_WIDER: Final = {
    ("ducklake_data_file", "table_id"): '"table_id", "partition_id") '
    'INCLUDE ("end_snapshot", "file_size_bytes"'
}
# A specification that has ended may still be that of a file which has not, and a column that has
# ended is what files of its time were written with.
_WITH_ENDED_ROWS: Final = frozenset(
    {"ducklake_column", "ducklake_partition_info", "ducklake_sort_info"}
)


def statements() -> Iterator[str]:
    """Yield the statements that make a store of the newest version, in their order."""
    texts = dict(_texts())
    yield texts.pop("1_registry.sql")
    for table in METADATA_TABLES:
        yield from _table(table)
    replacements = {
        "    -- {copies}": "\n".join(
            _copy(table) for table in METADATA_TABLES if table.name not in _NOT_COPIED
        ),
        "    -- {deletes}": "\n".join(
            f"    DELETE FROM ducklake.{table.name} WHERE catalog_id = id;"
            for table in METADATA_TABLES
            if table.name != _SCHEDULED
        ),
        "{format}": FORMAT_VERSION,
        "{roles}": ", ".join(f"'{role}'" for role in ROLES),
    }
    for name in sorted(texts):
        text = texts[name]
        for mark, replacement in replacements.items():
            text = text.replace(mark, replacement)
        yield text
    for table in METADATA_TABLES:
        yield from _triggers(table)
        yield from _view(table)


def _texts() -> Iterator[tuple[str, str]]:
    for file in files(__package__).joinpath("sql").iterdir():
        if file.name.endswith(".sql"):
            yield file.name, file.read_text(encoding="utf-8")


def _names(table: MetadataTable) -> list[str]:
    return [name for name, _ in table.columns]


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _table(table: MetadataTable) -> Iterator[str]:
    needed = (*table.not_null, *_NEEDED.get(table.name, ()))
    columns = ", ".join(
        f'"{name}" {kind}' + (" NOT NULL" if name in needed else "") for name, kind in table.columns
    )
    if table.primary_key:
        columns += f', PRIMARY KEY (catalog_id, "{table.primary_key}")'
    if check := _CHECKS.get(table.name):
        columns += f", CONSTRAINT ids_of_this_catalog CHECK (({check}) IS TRUE)"
    for name in _COUNTED.get(table.name, ()):
        columns += f', CONSTRAINT range_of_{name} CHECK ("{name}" BETWEEN 0 AND {_LARGEST - 1})'
    yield f"CREATE TABLE ducklake.{table.name} (catalog_id bigint NOT NULL, {columns})"
    names = _names(table)
    wanted = [names[0], *(name for name in ("table_id", "data_file_id") if name in names)]
    for name in dict.fromkeys(wanted):
        if name != table.primary_key:
            columns = _WIDER.get((table.name, name), f'"{name}"')
            yield f"CREATE INDEX ON ducklake.{table.name} (catalog_id, {columns})"


def _view(table: MetadataTable) -> Iterator[str]:
    if table.name == _SETTINGS:
        return  # written out in 5_settings.sql
    # DuckDB's scanner asks for the ctid of what it deletes.
    yield (
        f"CREATE VIEW lake.{table.name} WITH (security_barrier) AS "
        f"SELECT {_quoted(_names(table))}, ctid FROM ducklake.{table.name} "
        "WHERE catalog_id = (SELECT ducklake.current_catalog_id()) WITH CASCADED CHECK OPTION"
    )


def _triggers(table: MetadataTable) -> Iterator[str]:
    yield (
        f"ALTER TABLE ducklake.{table.name} "
        "ALTER catalog_id SET DEFAULT ducklake.current_catalog_id()"
    )
    for event, rows in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
        yield (
            f"CREATE TRIGGER require_write_{event.lower()} AFTER {event} "
            f"ON ducklake.{table.name} REFERENCING {rows} TABLE AS changed "
            f"WHEN (current_user <> '{OWNER}') EXECUTE FUNCTION ducklake.require_write()"
        )
    if table.name == _SETTINGS:
        yield (
            "CREATE TRIGGER guard_settings BEFORE INSERT OR UPDATE OR DELETE "
            f"ON ducklake.{table.name} FOR EACH ROW EXECUTE FUNCTION ducklake.guard_settings()"
        )
    if row_id := _WITH_PATHS.get(table.name):
        for event in ("INSERT", "UPDATE"):
            yield (
                f"CREATE TRIGGER guard_paths_{event.lower()} AFTER {event} "
                f"ON ducklake.{table.name} REFERENCING NEW TABLE AS changed "
                f"EXECUTE FUNCTION ducklake.guard_paths('{row_id}')"
            )
    if table.name in ("ducklake_data_file", "ducklake_delete_file"):
        yield (
            f"CREATE TRIGGER guard_file_id BEFORE INSERT OR UPDATE OF {row_id} "
            f"ON ducklake.{table.name} FOR EACH ROW WHEN (NEW.{row_id} >> 32 <> NEW.catalog_id) "
            f"EXECUTE FUNCTION ducklake.guard_file_id('{row_id}')"
        )
    if table.name == _SCHEDULED:
        # By their names they run after guard_paths, which needs what they take away.
        for event in ("INSERT", "UPDATE"):
            yield (
                f"CREATE TRIGGER keep_shared_files_{event.lower()} AFTER {event} "
                f"ON ducklake.{table.name} REFERENCING NEW TABLE AS changed "
                "EXECUTE FUNCTION ducklake.keep_shared_files()"
            )
    if table.name == "ducklake_snapshot_changes":
        yield (
            f"CREATE CONSTRAINT TRIGGER share_inlined_tables AFTER INSERT ON ducklake.{table.name} "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW "
            f"WHEN (current_user <> '{OWNER}' AND NEW.changes_made ~ '_table:|inline') "
            "EXECUTE FUNCTION ducklake.share_inlined_tables()"
        )
    if table.name == "ducklake_snapshot":
        yield (
            f"CREATE TRIGGER guard_snapshot AFTER INSERT ON ducklake.{table.name} "
            "REFERENCING NEW TABLE AS changed EXECUTE FUNCTION ducklake.guard_snapshot()"
        )
        yield (
            f"CREATE TRIGGER schedule_unreached_files AFTER DELETE ON ducklake.{table.name} "
            "REFERENCING OLD TABLE AS gone EXECUTE FUNCTION ducklake.schedule_unreached_files()"
        )


def _copy(table: MetadataTable) -> str:
    """Return the statement by which a fork copies what is live in one table."""
    names = _names(table)
    values = [_copied(table, name) for name in names]
    joins, conditions = [], ["x.catalog_id = source"]
    if "table_id" in names or table.name == "ducklake_tag":
        key = "x.object_id" if table.name == "ducklake_tag" else "x.table_id"
        kind = "LEFT JOIN" if table.name == "ducklake_tag" else "JOIN"
        joins.append(
            f"{kind} ducklake.forked_tables(source, target, snapshot.snapshot_id) m "
            f"ON m.table_id = {key}"
        )
    if "begin_snapshot" in names:
        conditions.append("x.begin_snapshot <= snapshot.snapshot_id")
    if "end_snapshot" in names and table.name not in _WITH_ENDED_ROWS:
        conditions.append("(x.end_snapshot IS NULL OR x.end_snapshot > snapshot.snapshot_id)")
    if table.name in ("ducklake_data_file", "ducklake_delete_file"):
        joins.append(f"JOIN ducklake.shared_file s ON s.file_id = x.{names[0]}")
    elif "data_file_id" in names:
        joins.append(
            "JOIN ducklake.file_reader r ON r.catalog_id = target AND r.file_id = x.data_file_id"
        )
    if table.name == "ducklake_name_mapping":
        conditions.append(_belongs("ducklake_column_mapping", "mapping_id"))
    if table.name in ("ducklake_macro_impl", "ducklake_macro_parameters"):
        conditions.append(_belongs("ducklake_macro", "macro_id"))
    return (
        f"    INSERT INTO ducklake.{table.name} (catalog_id, {_quoted(names)})\n"
        f"    SELECT target, {', '.join(values)}\n"
        f"    FROM ducklake.{table.name} x {' '.join(joins)}\n"
        f"    WHERE {' AND '.join(conditions)};"
    )


def _belongs(table: str, column: str) -> str:
    return (
        f"EXISTS (SELECT FROM ducklake.{table} o "
        f"WHERE o.catalog_id = target AND o.{column} = x.{column})"
    )


def _copied(table: MetadataTable, name: str) -> str:
    """Return what a fork writes into one column of a copied row."""
    if name == "table_id":
        return "m.new_id"
    if name == "object_id" and table.name == "ducklake_tag":
        return "coalesce(m.new_id, x.object_id)"
    if name == "end_snapshot":
        ended = "x.end_snapshot <= snapshot.snapshot_id"
        return f"CASE WHEN {ended} THEN x.end_snapshot END"
    if table.name in ("ducklake_data_file", "ducklake_delete_file"):
        return {"path": "s.path", "path_is_relative": "false"}.get(name, f'x."{name}"')
    if table.name in ("ducklake_schema", "ducklake_table") and name == "path":
        # New files of the fork go below its own root, wherever those of its parent went.
        uuid = f"x.{table.name.removeprefix('ducklake_')}_uuid"
        return f"CASE WHEN x.path_is_relative THEN x.path ELSE {uuid} || '/' END"
    if name == "path_is_relative":
        return "true"
    return f'x."{name}"'
