"""Reading a catalog as it is at one snapshot: schemas, tables, columns, options."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.errors import DamagedLake, NotFound, UnsupportedCatalog
from airflow_provider_ducklake.lake.identifiers import split_name
from airflow_provider_ducklake.lake.instants import parse_instant
from airflow_provider_ducklake.lake.macros import macros_named_in, read_macros
from airflow_provider_ducklake.lake.metadata_tables import FORMAT_VERSION
from airflow_provider_ducklake.lake.model import (
    PartitionField,
    PartitionSpec,
    Schema,
    Snapshot,
    SortKey,
    Table,
)
from airflow_provider_ducklake.lake.options import LakeOptions, ScopedOption, unknown_name
from airflow_provider_ducklake.lake.paths import as_directory, join

_VISIBLE = "begin_snapshot <= ? AND (end_snapshot IS NULL OR end_snapshot > ?)"


def read_options(session: Session) -> LakeOptions:
    """Return every option stored in the catalog."""
    query = 'SELECT "key", "value", "scope", scope_id FROM {ducklake_metadata}'
    return LakeOptions(tuple(ScopedOption(*row) for row in session.rows(query)))


def check_format(options: LakeOptions, where: object) -> None:
    """Refuse a catalog of another format version than the one this package speaks.

    Args:
        options: As read in the same transaction.
        where: What to call the catalog in the message.

    Raises:
        UnsupportedCatalog: The version is another one, missing, or there twice.
    """
    found = options.all_of("version")
    if found == [FORMAT_VERSION]:
        return
    versions = " and ".join(found) or "no version at all"
    raise UnsupportedCatalog(
        f"{where} is of DuckLake format {versions}; this package works on {FORMAT_VERSION} and "
        "never migrates by itself. Attach it once with DuckDB's ducklake extension and "
        "AUTOMATIC_MIGRATION to bring an older catalog up"
    )


def read_head(session: Session) -> Snapshot:
    """Return the newest snapshot.

    Raises:
        UnsupportedCatalog: The catalog has no snapshot at all.
    """
    newest = session.value("SELECT max(snapshot_id) FROM {ducklake_snapshot}")
    if newest is None:
        raise UnsupportedCatalog("the catalog has no snapshot: it is not a usable DuckLake")
    return read_snapshots(session, after=int(newest) - 1)[0]


def snapshot_times(session: Session) -> Iterator[tuple[int, datetime]]:
    """Yield id and time of every kept snapshot, oldest first, however many millions there are."""
    query = (
        "SELECT snapshot_id, CAST(snapshot_time AS VARCHAR) FROM {ducklake_snapshot} "
        "ORDER BY snapshot_id"
    )
    for snapshot_id, made in session.stream(query):
        yield int(snapshot_id), parse_instant(made)


def newest_by(session: Session, instant: datetime) -> int | None:
    """Return the newest snapshot that was there by an instant; None when none is so old.

    Looked for from the newest on, which is near as a rule.
    """
    query = (
        "SELECT snapshot_id, CAST(snapshot_time AS VARCHAR) FROM {ducklake_snapshot} "
        "ORDER BY snapshot_id DESC"
    )
    with closing(session.stream(query)) as snapshots:
        made = ((int(snapshot_id), parse_instant(text)) for snapshot_id, text in snapshots)
        return next((snapshot_id for snapshot_id, time in made if time <= instant), None)


_SNAPSHOTS: Final = """
    SELECT s.snapshot_id, CAST(s.snapshot_time AS VARCHAR), s.schema_version,
           s.next_catalog_id, s.next_file_id, c.changes_made, c.author, c.commit_message,
           c.commit_extra_info
    FROM {ducklake_snapshot} s
    LEFT JOIN {ducklake_snapshot_changes} c ON c.snapshot_id = s.snapshot_id
    WHERE """


def read_snapshots(
    session: Session, *, after: int = -1, limit: int | None = None
) -> list[Snapshot]:
    """Return the snapshots with an id above `after`, oldest first, at most so many."""
    query = _SNAPSHOTS + "s.snapshot_id > ? ORDER BY s.snapshot_id"
    if limit is None:
        return [_snapshot(row) for row in session.rows(query, (after,))]
    return [_snapshot(row) for row in session.rows(query + " LIMIT ?", (after, limit))]


def read_chosen_snapshots(session: Session, ids: Iterable[int]) -> list[Snapshot]:
    """Return those of some snapshots that are kept, oldest first."""
    rows = session.rows_in(_SNAPSHOTS + "s.snapshot_id IN (??) ORDER BY s.snapshot_id", ids)
    return [_snapshot(row) for row in rows]


def _snapshot(row: Any) -> Snapshot:
    return Snapshot(
        snapshot_id=int(row[0]),
        time=parse_instant(row[1]),
        schema_version=int(row[2]),
        next_catalog_id=int(row[3]),
        next_file_id=int(row[4]),
        changes_made=row[5] or "",
        author=row[6],
        message=row[7],
        extra_info=row[8],
    )


def read_snapshot(session: Session, snapshot_id: int) -> Snapshot:
    """Return one kept snapshot.

    Raises:
        NotFound: It was expired, or never was.
    """
    found = read_chosen_snapshots(session, [snapshot_id])
    if not found:
        raise NotFound(f"snapshot {snapshot_id} is not kept in this lake")
    return found[0]


def read_schemas(session: Session, snapshot_id: int, data_path: str) -> list[Schema]:
    """Return the schemas visible at a snapshot."""
    query = (
        "SELECT schema_id, schema_name, path, path_is_relative FROM {ducklake_schema} "
        f"WHERE {_VISIBLE} ORDER BY schema_id"
    )
    rows = session.rows(query, (snapshot_id, snapshot_id))
    return [Schema(int(i), name, _below(data_path, path, rel)) for i, name, path, rel in rows]


def read_tables(
    session: Session,
    snapshot_id: int,
    data_path: str,
    *,
    table_ids: Iterable[int] | None = None,
) -> list[Table]:
    """Return the tables visible at a snapshot, with columns, partition spec and sort order.

    Args:
        session: A transaction on the catalog.
        snapshot_id: A kept snapshot, or one whose rows a kept one still shares.
        data_path: The lake's data path.
        table_ids: Only these; None reads all in the same number of statements.

    Raises:
        DamagedLake: The schema of a table is not there.
    """
    schemas = {s.schema_id: s for s in read_schemas(session, snapshot_id, data_path)}
    rows = _select(
        session,
        "SELECT table_id, table_uuid, schema_id, table_name, path, path_is_relative "
        "FROM {ducklake_table}",
        snapshot_id,
        table_ids,
    )
    ids = [int(row[0]) for row in rows] if table_ids is not None else None
    columns = _columns(session, snapshot_id, ids)
    partitions = _partitions(session, snapshot_id, ids)
    sort_keys = _sort_keys(session, snapshot_id, ids)
    tables = []
    for table_id, uuid, schema_id, name, path, relative in rows:
        if int(schema_id) not in schemas:
            raise DamagedLake(
                f"table {name} (id {table_id}) is in schema {schema_id}, which is not there: run "
                "fsck to see what else is missing, then restore the catalog"
            )
        schema = schemas[int(schema_id)]
        tables.append(
            Table(
                int(table_id),
                str(uuid),
                schema,
                name,
                _below(schema.data_path, path, relative),
                columns[int(table_id)],
                partitions.get(int(table_id)),
                sort_keys.get(int(table_id), ()),
            )
        )
    return sorted(tables, key=lambda table: table.table_id)


def read_table(session: Session, snapshot_id: int, data_path: str, name: str) -> Table:
    """Return the table of a name at a snapshot, without reading all the others.

    Args:
        session: A transaction on the catalog.
        snapshot_id: As for `read_tables`.
        data_path: The lake's data path.
        name: As for `find_table`.

    Raises:
        NotFound: There is none.
    """
    schema, table = split_name(name)
    rows = session.rows(
        f"SELECT table_id FROM {{ducklake_table}} WHERE table_name = ? AND {_VISIBLE} "
        f"AND schema_id IN (SELECT schema_id FROM {{ducklake_schema}} "
        f"WHERE schema_name = ? AND {_VISIBLE})",
        (table, snapshot_id, snapshot_id, schema, snapshot_id, snapshot_id),
    )
    # A name in another case is looked for among all.
    ids = [int(table_id) for (table_id,) in rows] or None
    return find_table(read_tables(session, snapshot_id, data_path, table_ids=ids), name)


def find_table(tables: Iterable[Table], name: str) -> Table:
    """Return the table called `schema.table`, or `table` for schema `main`.

    Names compare without case, as the reference does; double quotes around a part are allowed.

    Raises:
        NotFound: There is none; the message names the nearest.
    """
    schema, table = split_name(name)
    tables = list(tables)
    for candidate in tables:
        names = (candidate.schema.name.lower(), candidate.name.lower())
        if names == (schema.lower(), table.lower()):
            return candidate
    raise NotFound(str(unknown_name("table", f"{schema}.{table}", (t.full_name for t in tables))))


def column_versions(
    session: Session, table_id: int, snapshot_ids: Iterable[int]
) -> dict[int, tuple[Column, ...]]:
    """Return the columns a table had at each of some snapshots, read in one statement."""
    query = (
        "SELECT begin_snapshot, end_snapshot, table_id, column_id, column_name, column_type, "
        "nulls_allowed, initial_default, default_value, default_value_type, parent_column, "
        "column_order FROM {ducklake_column} WHERE table_id = ?"
    )
    rows = session.rows(query, (table_id,))
    # Between two of these nothing changes: a table has few shapes, however many snapshots.
    edges = sorted({edge for row in rows for edge in row[:2] if edge is not None})
    shapes: dict[int, tuple[Column, ...]] = {}
    result = {}
    for snapshot_id in set(snapshot_ids):
        shape = bisect_right(edges, snapshot_id)
        if shape not in shapes:
            visible = [
                row[2:]
                for row in rows
                if row[0] <= snapshot_id and (row[1] is None or row[1] > snapshot_id)
            ]
            shapes[shape] = column_trees(visible)[table_id]
        result[snapshot_id] = shapes[shape]
    return result


def read_partition_spec(session: Session, partition_id: int) -> PartitionSpec | None:
    """Return a partition spec by its id, one no longer in force too; None without keys."""
    rows = session.rows(
        "SELECT partition_key_index, column_id, transform FROM {ducklake_partition_column} "
        "WHERE partition_id = ? ORDER BY partition_key_index",
        (partition_id,),
    )
    fields = tuple(PartitionField(int(index), int(column), text) for index, column, text in rows)
    return PartitionSpec(partition_id, fields) if fields else None


def _below(base: str, path: str | None, relative: Any) -> str:
    if path is None:
        return base
    return as_directory(join(base, path) if relative else path)


def _select(
    session: Session, select: str, snapshot_id: int, table_ids: Iterable[int] | None
) -> list[Any]:
    query, parameters = f"{select} WHERE {_VISIBLE}", (snapshot_id, snapshot_id)
    if table_ids is None:
        return session.rows(query, parameters)
    return session.rows_in(f"{query} AND table_id IN (??)", table_ids, parameters)


def _columns(
    session: Session, snapshot_id: int, table_ids: list[int] | None
) -> dict[int, tuple[Column, ...]]:
    rows = _select(
        session,
        "SELECT table_id, column_id, column_name, column_type, nulls_allowed, initial_default, "
        "default_value, default_value_type, parent_column, column_order FROM {ducklake_column}",
        snapshot_id,
        table_ids,
    )
    return column_trees(rows)


def column_trees(rows: list[Any]) -> dict[int, tuple[Column, ...]]:
    """Build column trees from rows (table, id, name, type, …, parent, order)."""
    below: dict[tuple[int, int | None], list[tuple[int, Column]]] = defaultdict(list)
    for row in rows:
        table_id, column_id, name, kind, nulls, initial, default, default_type, parent, order = row
        if default == "NULL" and default_type != "expression":
            default = None  # the reference writes the word where it means no default
        column = Column(
            int(column_id), name, kind, bool(nulls), initial, default, default_type or ""
        )
        key = (int(table_id), None if parent is None else int(parent))
        below[key].append((int(order), column))

    def children_of(table_id: int, parent: int | None) -> tuple[Column, ...]:
        found = sorted(below.get((table_id, parent), []), key=lambda pair: pair[0])
        return tuple(
            replace(column, children=children_of(table_id, column.column_id)) for _, column in found
        )

    trees: dict[int, tuple[Column, ...]] = defaultdict(tuple)
    trees.update({table_id: children_of(table_id, None) for table_id, _ in list(below)})
    return trees


def _partitions(
    session: Session, snapshot_id: int, table_ids: list[int] | None
) -> dict[int, PartitionSpec]:
    rows = _select(
        session,
        "SELECT partition_id, table_id FROM {ducklake_partition_info}",
        snapshot_id,
        table_ids,
    )
    fields = session.rows_in(
        "SELECT partition_id, partition_key_index, column_id, transform "
        "FROM {ducklake_partition_column} WHERE partition_id IN (??)",
        (int(row[0]) for row in rows),
    )
    by_spec = _grouped(fields, lambda row: PartitionField(int(row[1]), int(row[2]), row[3]))
    specs = {}
    for partition_id, table_id in rows:
        keys = sorted(by_spec.get(int(partition_id), []), key=lambda field: field.key_index)
        if keys:  # RESET PARTITIONED BY leaves a spec without keys
            specs[int(table_id)] = PartitionSpec(int(partition_id), tuple(keys))
    return specs


def _sort_keys(
    session: Session, snapshot_id: int, table_ids: list[int] | None
) -> dict[int, tuple[SortKey, ...]]:
    rows = _select(
        session, "SELECT sort_id, table_id FROM {ducklake_sort_info}", snapshot_id, table_ids
    )
    expressions = session.rows_in(
        "SELECT sort_id, sort_key_index, expression, sort_direction, null_order "
        "FROM {ducklake_sort_expression} WHERE dialect = 'duckdb' AND sort_id IN (??)",
        (int(row[0]) for row in rows),
    )
    calls = any("(" in row[2] for row in expressions)
    macros = read_macros(session, snapshot_id) if calls else ()

    def key(row: Any) -> tuple[int, SortKey]:
        _, index, expression, direction, nulls = row
        called = macros_named_in(expression, macros)
        return int(index), SortKey(expression, direction, nulls, called)

    by_sort = _grouped(expressions, key)
    return {
        int(table_id): tuple(key for _, key in sorted(by_sort.get(int(sort_id), []), key=_first))
        for sort_id, table_id in rows
    }


def _first(pair: tuple[int, SortKey]) -> int:
    return pair[0]


def _grouped(rows: list[Any], make: Callable[[Any], Any]) -> dict[int, list[Any]]:
    groups: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        groups[int(row[0])].append(make(row))
    return groups
