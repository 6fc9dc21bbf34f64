"""Creating and dropping schemas and tables, and adding columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import uuid4

from airflow_provider_ducklake.lake.changes import (
    created_schema,
    created_table,
    dropped_schema,
    table_change,
)
from airflow_provider_ducklake.lake.columns import Column, number_columns
from airflow_provider_ducklake.lake.commit import CommitInfo, Committed, SnapshotWriter
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.errors import CommitConflict, ConfigurationError, NotFound
from airflow_provider_ducklake.lake.lake import Lake, LakeView
from airflow_provider_ducklake.lake.model import (
    PartitionField,
    PartitionSpec,
    Schema,
    SortKey,
    Table,
)
from airflow_provider_ducklake.lake.reader import read_schemas, read_tables, split_name
from airflow_provider_ducklake.lake.table_specs import parse_partition_spec, parse_sort_spec

_NO_ID: Final = -1  # of a table that is planned only
_PLAIN_NAME: Final = re.compile(r"^[A-Za-z0-9_-]+$")
# Rows that describe a table and end with it (docs/stable/specification/queries.md, DROP TABLE).
_OF_A_TABLE: Final = (
    "ducklake_table",
    "ducklake_partition_info",
    "ducklake_column",
    "ducklake_column_tag",
    "ducklake_data_file",
    "ducklake_delete_file",
    "ducklake_sort_info",
)


def create_schema(lake: Lake, name: str, *, info: CommitInfo | None = None) -> Committed[int]:
    """Create a schema; the commit's value is its id.

    Raises:
        ConfigurationError: It exists already.
    """

    def write(writer: SnapshotWriter) -> int:
        schemas = read_schemas(writer.session, writer.head.snapshot_id, data_path)
        if any(schema.name.lower() == name.lower() for schema in schemas):
            raise ConfigurationError(f"{lake}: schema {name!r} exists already")
        schema_id, uuid = writer.new_catalog_id(), str(uuid4())
        row = (schema_id, uuid, writer.snapshot_id, None, name, _directory(name, uuid), True)
        writer.session.insert("ducklake_schema", [row])
        writer.schema_changed()
        return schema_id

    with lake.view() as view:
        base, data_path = view.head.snapshot_id, view.data_path
    return lake.commit(base=base, changes=[created_schema(name)], write=write, info=info)


def drop_schema(lake: Lake, name: str, *, info: CommitInfo | None = None) -> Committed[None]:
    """Drop an empty schema.

    Raises:
        NotFound: There is none of that name.
        ConfigurationError: It still has tables or views.
    """
    with lake.view() as view:
        base = view.head.snapshot_id
        schema = _find_schema(read_schemas(view.session, base, view.data_path), name)

    def write(writer: SnapshotWriter) -> None:
        for table in ("ducklake_table", "ducklake_view"):
            count = writer.session.value(
                "SELECT count(*) FROM {entries} WHERE schema_id = ? AND end_snapshot IS NULL",
                (schema.schema_id,),
                entries=table,
            )
            if count:
                raise ConfigurationError(f"{lake}: schema {name!r} is not empty; drop its tables")
        writer.session.execute(
            "UPDATE {ducklake_schema} SET end_snapshot = ? "
            "WHERE schema_id = ? AND end_snapshot IS NULL",
            (writer.snapshot_id, schema.schema_id),
        )
        writer.schema_changed()

    changes = [dropped_schema(schema.schema_id)]
    return lake.commit(base=base, changes=changes, write=write, info=info)


def create_table(
    lake: Lake,
    name: str,
    columns: Sequence[Column],
    *,
    partition_by: str = "",
    sorted_by: str = "",
    if_not_exists: bool = False,
    info: CommitInfo | None = None,
) -> Committed[int] | None:
    """Create a table; the commit's value is its id, None when it exists and may.

    Args:
        lake: The lake.
        name: `schema.table`, or `table` for schema `main`.
        columns: As from `parse_columns`; ids are numbered here.
        partition_by: As for `parse_partition_spec`; empty for none.
        sorted_by: As for `parse_sort_spec`; empty for none.
        if_not_exists: An existing table of that name is fine.
        info: For the commit.

    Raises:
        ConfigurationError: The table exists already.
        NotFound: The schema, or a column of the specs, does not exist.
    """
    with lake.view() as view:
        base = view.head.snapshot_id
        planned = plan_table(view, name, columns, partition_by=partition_by, sorted_by=sorted_by)
        if _is_taken(view.session, planned):
            if if_not_exists:
                return None
            raise ConfigurationError(f"{lake}: table {planned.full_name} exists already")

    def write(writer: SnapshotWriter) -> int:
        return add_table(writer, planned).table_id

    changes = [created_table(planned.schema.name, planned.name)]
    return lake.commit(base=base, changes=changes, write=write, info=info)


def plan_table(
    view: LakeView,
    name: str,
    columns: Sequence[Column],
    *,
    partition_by: str = "",
    sorted_by: str = "",
) -> Table:
    """Return a table as it will be once `add_table` has given it ids; files may be written for it.

    Args:
        view: The lake.
        name: `schema.table`, or `table` for schema `main`.
        columns: As from `parse_columns`; their ids are numbered here and stay.
        partition_by: As for `parse_partition_spec`; empty for none.
        sorted_by: As for `parse_sort_spec`; empty for none.

    Raises:
        NotFound: The schema, or a column of the specs, does not exist.
    """
    schema_name, table_name = split_name(name)
    numbered = number_columns(columns)
    fields = parse_partition_spec(partition_by, numbered)
    schemas = read_schemas(view.session, view.head.snapshot_id, view.data_path)
    schema, uuid = _find_schema(schemas, schema_name), str(uuid4())
    return Table(
        table_id=_NO_ID,
        uuid=uuid,
        schema=schema,
        name=table_name,
        data_path=schema.data_path + _directory(table_name, uuid),
        columns=numbered,
        partition=PartitionSpec(_NO_ID, fields) if fields else None,
        sort_keys=parse_sort_spec(sorted_by),
    )


def is_planned(table: Table) -> bool:
    """Tell whether a table comes from `plan_table` and is not in the catalog yet."""
    return table.table_id == _NO_ID


def add_table(writer: SnapshotWriter, planned: Table) -> Table:
    """Create a planned table inside a commit; return it with its ids.

    The commit must also say `created_table`.

    Raises:
        CommitConflict: The schema was dropped, or the name was taken, since it was planned.
    """
    schema, since = planned.schema, writer.snapshot_id
    if not writer.session.value(
        "SELECT count(*) FROM {ducklake_schema} WHERE schema_id = ? AND end_snapshot IS NULL",
        (schema.schema_id,),
    ):
        raise CommitConflict(f"schema {schema.name!r} was dropped while the job ran; plan again")
    if _is_taken(writer.session, planned):
        raise CommitConflict(f"{planned.full_name} was created by somebody else; plan again")
    table_id, path = writer.new_catalog_id(), planned.data_path[len(schema.data_path) :]
    row = (table_id, planned.uuid, since, None, schema.schema_id, planned.name, path, True)
    writer.session.insert("ducklake_table", [row])
    _insert_columns(writer, table_id, planned.columns)
    partition = planned.partition
    if partition is not None:
        partition_id = _insert_partition(writer, table_id, partition.fields)
        partition = replace(partition, partition_id=partition_id)
    if planned.sort_keys:
        _insert_sort_keys(writer, table_id, planned.sort_keys)
    writer.schema_changed([table_id])
    return replace(planned, table_id=table_id, partition=partition)


def _is_taken(session: Session, planned: Table) -> bool:
    """Tell whether a live table or view of the schema has the name already."""
    names = session.rows(
        "SELECT table_name FROM {ducklake_table} WHERE schema_id = ? AND end_snapshot IS NULL "
        "UNION ALL "
        "SELECT view_name FROM {ducklake_view} WHERE schema_id = ? AND end_snapshot IS NULL",
        (planned.schema.schema_id, planned.schema.schema_id),
    )
    return any(name.lower() == planned.name.lower() for (name,) in names)


def drop_table(lake: Lake, name: str, *, info: CommitInfo | None = None) -> Committed[None]:
    """Drop a table: everything that describes it ends at the new snapshot.

    Raises:
        NotFound: There is none of that name.
    """
    with lake.view() as view:
        base, table = view.head.snapshot_id, view.table(name)

    def write(writer: SnapshotWriter) -> None:
        parameters = (writer.snapshot_id, table.table_id)
        for metadata in _OF_A_TABLE:
            writer.session.execute(
                "UPDATE {ended} SET end_snapshot = ? WHERE table_id = ? AND end_snapshot IS NULL",
                parameters,
                ended=metadata,
            )
        writer.session.execute(
            "UPDATE {ducklake_tag} SET end_snapshot = ? "
            "WHERE object_id = ? AND end_snapshot IS NULL",
            parameters,
        )
        writer.schema_changed()

    changes = [table_change("dropped_table", table.table_id)]
    return lake.commit(base=base, changes=changes, write=write, info=info)


def add_columns(writer: SnapshotWriter, table: Table, columns: Sequence[Column]) -> Table:
    """Add columns at the end of a table inside a commit; return the table as it is then.

    Rows written before read the new columns as NULL. The commit must also say `altered_table`.
    """
    known = writer.session.value(
        "SELECT max(column_id) FROM {ducklake_column} WHERE table_id = ?", (table.table_id,)
    )
    numbered = number_columns(columns, int(known) + 1)
    _insert_columns(writer, table.table_id, numbered)
    writer.schema_changed([table.table_id])
    return replace(table, columns=(*table.columns, *numbered))


def require_unchanged(writer: SnapshotWriter, table: Table) -> None:
    """Refuse to commit when a table is not what it was at planning.

    Raises:
        CommitConflict: It was dropped, renamed, altered, or is partitioned another way now.
    """
    # Only columns and partitioning are compared, so which root the paths are built on is no matter.
    now = read_tables(
        writer.session,
        writer.head.snapshot_id,
        table.schema.data_path,
        table_ids=[table.table_id],
    )
    same = bool(now) and (now[0].columns, now[0].partition) == (table.columns, table.partition)
    if not same:
        raise CommitConflict(
            f"{table.full_name} was altered or dropped while the job ran; plan again"
        )


def _directory(name: str, uuid: str) -> str:
    # As the reference: a name with other characters than these could not be a directory's.
    return f"{name if _PLAIN_NAME.match(name) else uuid}/"


def _find_schema(schemas: Sequence[Schema], name: str) -> Schema:
    for schema in schemas:
        if schema.name.lower() == name.lower():
            return schema
    known = ", ".join(schema.name for schema in schemas)
    raise NotFound(f"there is no schema {name!r}; this lake has: {known}")


def _insert_columns(writer: SnapshotWriter, table_id: int, columns: Sequence[Column]) -> None:
    rows: list[tuple[int | str | bool | None, ...]] = []

    def add(column: Column, parent: int | None) -> None:
        default = "NULL" if column.default_value is None else column.default_value
        kind = "" if column.is_nested else column.default_value_type or "literal"
        rows.append(
            (
                column.column_id,
                writer.snapshot_id,
                None,
                table_id,
                column.column_id,
                column.name,
                column.type,
                column.initial_default,
                default,
                column.nulls_allowed,
                parent,
                kind,
                "duckdb",
            )
        )
        for child in column.children:
            add(child, column.column_id)

    for column in columns:
        add(column, None)
    writer.session.insert("ducklake_column", rows)


def _insert_partition(
    writer: SnapshotWriter, table_id: int, fields: Sequence[PartitionField]
) -> int:
    partition_id = writer.new_catalog_id()
    row = (partition_id, table_id, writer.snapshot_id, None)
    writer.session.insert("ducklake_partition_info", [row])
    writer.session.insert(
        "ducklake_partition_column",
        [(partition_id, table_id, f.key_index, f.column_id, f.transform) for f in fields],
    )
    return partition_id


def _insert_sort_keys(writer: SnapshotWriter, table_id: int, keys: Sequence[SortKey]) -> None:
    sort_id = writer.new_catalog_id()
    writer.session.insert("ducklake_sort_info", [(sort_id, table_id, writer.snapshot_id, None)])
    writer.session.insert(
        "ducklake_sort_expression",
        [
            (sort_id, table_id, index, key.expression, "duckdb", key.direction, key.null_order)
            for index, key in enumerate(keys)
        ],
    )
