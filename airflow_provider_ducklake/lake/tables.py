"""Creating and dropping tables, and adding columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import uuid4

from airflow_provider_ducklake.lake.changes import (
    Change,
    created_schema,
    created_table,
    table_change,
)
from airflow_provider_ducklake.lake.columns import Column, number_columns
from airflow_provider_ducklake.lake.commit import CommitInfo, Committed, SnapshotWriter
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.errors import CommitConflict, ConfigurationError, NotFound
from airflow_provider_ducklake.lake.identifiers import split_name
from airflow_provider_ducklake.lake.lake import Lake, LakeView
from airflow_provider_ducklake.lake.model import (
    PartitionField,
    PartitionSpec,
    SortKey,
    Table,
)
from airflow_provider_ducklake.lake.reader import read_tables
from airflow_provider_ducklake.lake.schemas import (
    NO_ID,
    add_schema,
    directory_for,
    find_schema,
    live_schemas,
    plan_schema,
)
from airflow_provider_ducklake.lake.table_specs import parse_partition_spec, parse_sort_spec

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
    """Create a table, and its schema where there is none of that name, in one snapshot.

    The commit's value is the table's id; None is returned when it exists and may.

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
        NotFound: A column of the partition spec does not exist.
        BadInput: A transform or sort key does not fit the columns.
    """
    with lake.view() as view:
        base = view.head.snapshot_id
        planned = plan_table(view, name, columns, partition_by=partition_by, sorted_by=sorted_by)
        if exists_already(view, planned, may=if_not_exists):
            return None
    return commit_table(lake, planned, base=base, info=info)


def commit_table(
    lake: Lake, planned: Table, *, base: int, info: CommitInfo | None = None
) -> Committed[int]:
    """Create a planned table, and its schema if new, in one snapshot; its value is the table's id.

    Args:
        lake: The lake.
        planned: As from `plan_table`.
        base: Snapshot it was planned on.
        info: For the commit.
    """

    def write(writer: SnapshotWriter) -> int:
        return add_table(writer, planned).table_id

    return lake.commit(base=base, changes=creating(planned), write=write, info=info)


def exists_already(view: LakeView, planned: Table, *, may: bool) -> bool:
    """Tell whether there is a table or view of a planned table's name.

    Raises:
        ConfigurationError: There is, and it may not be.
    """
    if not _is_taken(view.session, planned):
        return False
    if may:
        return True
    raise ConfigurationError(f"table {planned.full_name} exists already")


def plan_table(
    view: LakeView,
    name: str,
    columns: Sequence[Column],
    *,
    partition_by: str = "",
    sorted_by: str = "",
) -> Table:
    """Return a table as it will be once `add_table` has given it ids; files may be written for it.

    A schema that does not exist is planned too.

    Args:
        view: The lake.
        name: `schema.table`, or `table` for schema `main`.
        columns: As from `parse_columns`; their ids are numbered here and stay.
        partition_by: As for `parse_partition_spec`; empty for none.
        sorted_by: As for `parse_sort_spec`; empty for none.

    Raises:
        NotFound: A column of the partition spec does not exist.
        BadInput: A transform or sort key does not fit the columns.
    """
    schema_name, table_name = split_name(name)
    numbered = number_columns(columns)
    fields = parse_partition_spec(partition_by, numbered)
    try:
        schema = find_schema(live_schemas(view), schema_name)
    except NotFound:
        schema = plan_schema(view, schema_name)
    uuid = str(uuid4())
    return Table(
        table_id=NO_ID,
        uuid=uuid,
        schema=schema,
        name=table_name,
        data_path=schema.data_path + directory_for(table_name, uuid),
        columns=numbered,
        partition=PartitionSpec(NO_ID, fields) if fields else None,
        sort_keys=parse_sort_spec(sorted_by, numbered),
    )


def is_planned(table: Table) -> bool:
    """Tell whether a table comes from `plan_table` and is not in the catalog yet."""
    return table.table_id == NO_ID


def has_new_schema(planned: Table) -> bool:
    """Tell whether the schema of a planned table is to be created with it."""
    return planned.schema.schema_id == NO_ID


def creating(planned: Table) -> list[Change]:
    """Return what a commit that creates a planned table says of it, and of its schema if new."""
    new = [created_schema(planned.schema.name)] if has_new_schema(planned) else []
    return [*new, created_table(planned.schema.name, planned.name)]


def add_table(writer: SnapshotWriter, planned: Table) -> Table:
    """Create a planned table inside a commit, with its schema if new; return it with its ids.

    The commit must also say what `creating` returns.

    Raises:
        CommitConflict: The schema was dropped, or the name was taken, since it was planned.
    """
    since = writer.snapshot_id
    if has_new_schema(planned):
        planned = replace(planned, schema=add_schema(writer, planned.schema))
    schema = planned.schema
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
