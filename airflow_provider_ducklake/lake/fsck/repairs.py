"""Mending what is provably safe: one class at a time, found anew in the transaction that mends it.

No repair changes what a kept snapshot reads: each removes rows nothing reaches, or raises counters.
A function here returns how many rows it would change, and changes them only when told to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.expiry import unreached
from airflow_provider_ducklake.lake.file_rows import remove_data_files, schedule_objects
from airflow_provider_ducklake.lake.fsck.counters import SNAPSHOT_COUNTERS
from airflow_provider_ducklake.lake.fsck.deletes import WITHIN
from airflow_provider_ducklake.lake.fsck.inlined import (
    DUPLICATES,
    OF_NO_FILE,
    read_inlined_tables,
)
from airflow_provider_ducklake.lake.fsck.rows import OF_A_DATA_FILE, OF_A_TABLE
from airflow_provider_ducklake.lake.fsck.stored import scheduled_in_use
from airflow_provider_ducklake.lake.instants import utc_now
from airflow_provider_ducklake.lake.lake import Lake, LakeView
from airflow_provider_ducklake.lake.metadata_tables import BY_NAME
from airflow_provider_ducklake.lake.paths import join
from airflow_provider_ducklake.lake.reader import check_format, read_options
from airflow_provider_ducklake.lake.references import table_directories

# Takes a transaction, the data path, and whether to change anything.
Repair = Callable[[Session, str, bool], int]

_OF_NO_TABLE: Final = "NOT EXISTS (SELECT 1 FROM {ducklake_table} t WHERE t.table_id = e.table_id)"
_OF_NO_DATA_FILE: Final = (
    "NOT EXISTS (SELECT 1 FROM {ducklake_data_file} d WHERE d.data_file_id = e.data_file_id)"
)
# Rows of one delete file twice: of two with one life the younger row goes.
_WITHIN_A_TWIN: Final = (
    "EXISTS (SELECT 1 FROM {ducklake_delete_file} b WHERE b.data_file_id = a.data_file_id "
    "AND b.delete_file_id <> a.delete_file_id AND b.path = a.path AND b.table_id = a.table_id "
    "AND b.path_is_relative = a.path_is_relative AND b.format = a.format "
    "AND b.delete_count = a.delete_count AND coalesce(b.partial_max, -1) "
    "= coalesce(a.partial_max, -1) AND coalesce(b.encryption_key, '') "
    f"= coalesce(a.encryption_key, '') AND {WITHIN} AND (b.delete_file_id < a.delete_file_id "
    "OR b.begin_snapshot <> a.begin_snapshot "
    "OR coalesce(b.end_snapshot, -1) <> coalesce(a.end_snapshot, -1)))"
)


def plan_repairs(view: LakeView, found: Mapping[str, int]) -> dict[str, int]:
    """Return how many rows the repair of each class that was found would change.

    Args:
        view: The lake, in one transaction.
        found: Classes with their counts, as from the checks.
    """
    return {
        damage: repair(view.session, view.data_path, False)
        for damage, repair in REPAIRS.items()
        if found.get(damage)
    }


def commit_repair(lake: Lake, damage: str) -> int:
    """Mend one class in one transaction; return how many rows changed.

    Raises:
        LostRace: Another client changed the same rows at the same time; run fsck again.
    """
    data_path = lake.data_path
    with lake.database.write() as session:
        check_format(read_options(session), lake)
        return REPAIRS[damage](session, data_path, True)


def commit_next_row_id(lake: Lake, table_id: int, following: int) -> int:
    """Raise a table's next row id, or give it counters when it has none; return rows changed.

    Args:
        lake: The lake.
        table_id: The table.
        following: A number above every row id of the table; a counter above it stays.
    """
    with lake.database.write() as session:
        check_format(read_options(session), lake)
        known = session.value(
            "SELECT max(next_row_id) FROM {ducklake_table_stats} WHERE table_id = ?", (table_id,)
        )
        if known is not None and int(known) >= following:
            return 0
        if known is not None:
            session.execute(
                "UPDATE {ducklake_table_stats} SET next_row_id = ? WHERE table_id = ?",
                (following, table_id),
            )
            return 1
        live = session.rows(
            "SELECT coalesce(sum(record_count), 0), coalesce(sum(file_size_bytes), 0) "
            "FROM {ducklake_data_file} WHERE table_id = ? AND end_snapshot IS NULL",
            (table_id,),
        )
        # No statistics of its columns: a client takes that for unknown.
        row = (table_id, int(live[0][0]), following, int(live[0][1]))
        session.insert("ducklake_table_stats", [row])
        return 1


def _delete(session: Session, table: str, where: str, change: bool) -> int:
    """Delete the rows `e` of a table for which a condition holds; return how many there are."""
    count = session.value("SELECT count(*) FROM {rows} e WHERE " + where, rows=table)
    if change and count:
        session.execute("DELETE FROM {rows} AS e WHERE " + where, rows=table)
    return int(count)


def _unschedule(session: Session, data_path: str, change: bool) -> int:
    rows = scheduled_in_use(session, data_path)
    for row in rows if change else ():
        session.execute(
            "DELETE FROM {ducklake_files_scheduled_for_deletion} "
            "WHERE data_file_id = ? AND path = ? AND path_is_relative = ?",
            (row.file_id, row.path, row.relative),
        )
    return len(rows)


def _raise_counter(counter: str, largest: str) -> Repair:
    def repair(session: Session, data_path: str, change: bool) -> int:
        used = session.value(largest)
        newest = "snapshot_id = (SELECT max(snapshot_id) FROM {ducklake_snapshot})"
        known = session.value(f"SELECT {counter} FROM {{ducklake_snapshot}} WHERE {newest}")
        if used is None or int(known) > int(used):
            return 0
        if change:
            head = session.value("SELECT max(snapshot_id) FROM {ducklake_snapshot}")
            statement = "UPDATE {ducklake_snapshot} SET " + counter + " = ? WHERE snapshot_id = ?"
            session.execute(statement, (int(used) + 1, int(head)))
        return 1

    return repair


def _files_of_no_table(session: Session, data_path: str, change: bool) -> int:
    rows = session.rows("SELECT data_file_id FROM {ducklake_data_file} e WHERE " + _OF_NO_TABLE)
    if change:
        remove_data_files(session, (int(file_id) for (file_id,) in rows))
    return len(rows) + _delete(session, "ducklake_delete_file", _OF_NO_TABLE, change)


def _descriptions_of_no_table(session: Session, data_path: str, change: bool) -> int:
    return sum(_delete(session, table, _OF_NO_TABLE, change) for table in OF_A_TABLE)


def _descriptions_of_no_file(session: Session, data_path: str, change: bool) -> int:
    count = sum(_delete(session, table, _OF_NO_DATA_FILE, change) for table in OF_A_DATA_FILE)
    for _, name in read_inlined_tables(session).live_deletes():
        count += _delete(session, name, OF_NO_FILE, change)
    return count


def _delete_files_of_no_file(session: Session, data_path: str, change: bool) -> int:
    where = _OF_NO_DATA_FILE + " AND NOT (" + _OF_NO_TABLE + ")"
    rows = session.rows(
        "SELECT e.delete_file_id, e.table_id, e.path, e.path_is_relative, (SELECT count(*) "
        "FROM {ducklake_delete_file} o WHERE o.path = e.path) FROM {ducklake_delete_file} e WHERE "
        + where
    )
    if change and rows:
        directories = table_directories(session, data_path)
        # An object that another row names too stays; the orphan sweep takes it when none does.
        objects = [
            (int(file_id), join(directories[int(table_id)], path) if relative else path)
            for file_id, table_id, path, relative, named in rows
            if int(named) == 1
        ]
        session.execute_in(
            "DELETE FROM {ducklake_delete_file} WHERE delete_file_id IN (??)",
            (int(row[0]) for row in rows),
        )
        schedule_objects(session, data_path, objects, utc_now())
    return len(rows)


def _changes_of_no_snapshot(session: Session, data_path: str, change: bool) -> int:
    where = "e.snapshot_id > (SELECT max(s.snapshot_id) FROM {ducklake_snapshot} s)"
    return _delete(session, "ducklake_snapshot_changes", where, change)


def _delete_file_twice(session: Session, data_path: str, change: bool) -> int:
    rows = session.rows(
        "SELECT a.delete_file_id FROM {ducklake_delete_file} a WHERE " + _WITHIN_A_TWIN
    )
    if change:
        session.execute_in(
            "DELETE FROM {ducklake_delete_file} WHERE delete_file_id IN (??)",
            (int(file_id) for (file_id,) in rows),
        )
    return len(rows)


def _inlined_delete_twice(session: Session, data_path: str, change: bool) -> int:
    count = 0
    for _, name in read_inlined_tables(session).live_deletes():
        for file_id, position, first, times in session.rows(DUPLICATES, inlined=name):
            count += int(times) - 1
            if change:
                key = (int(file_id), int(position))
                session.execute(
                    "DELETE FROM {inlined} WHERE file_id = ? AND row_id = ?", key, inlined=name
                )
                session.execute(
                    "INSERT INTO {inlined} (file_id, row_id, begin_snapshot) VALUES (?, ?, ?)",
                    (*key, int(first)),
                    inlined=name,
                )
    return count


def _statistics_twice(session: Session, data_path: str, change: bool) -> int:
    return sum(
        _equal_rows(session, table, keys, change)
        for table, keys in (
            ("ducklake_file_column_stats", ("data_file_id", "column_id", "table_id")),
            (
                "ducklake_file_variant_stats",
                ("data_file_id", "column_id", "table_id", "variant_path"),
            ),
            ("ducklake_table_column_stats", ("table_id", "column_id")),
        )
    )


def _equal_rows(session: Session, table: str, keys: Sequence[str], change: bool) -> int:
    """Leave one of several rows with one key where they are equal in everything."""
    columns = [name for name, _ in BY_NAME[table].columns]
    key, condition = ", ".join(keys), " AND ".join(f"{name} = ?" for name in keys)
    query = f"SELECT {key} FROM {{rows}} GROUP BY {key} HAVING count(*) > 1"
    count = 0
    for values in session.rows(query, rows=table):
        select = f"SELECT {', '.join(columns)} FROM {{rows}} WHERE {condition}"
        found = session.rows(select, values, rows=table)
        if any(tuple(row) != tuple(found[0]) for row in found):
            continue
        count += len(found) - 1
        if change:
            session.execute("DELETE FROM {rows} WHERE " + condition, values, rows=table)
            session.insert(table, [found[0]])
    return count


def _stray_tables(session: Session, data_path: str, change: bool) -> int:
    tables = read_inlined_tables(session)
    deletes = {name for _, name in tables.deletes}
    count = 0
    for _, name in tables.strays():
        read = f"NOT ({OF_NO_FILE})" if name in deletes else f"NOT ({unreached('e')})"
        if session.value("SELECT count(*) FROM {inlined} e WHERE " + read, inlined=name):
            continue
        count += 1
        if change:
            session.execute("DROP TABLE {inlined}", inlined=name)
    return count


def _dead_rows(session: Session, data_path: str, change: bool) -> int:
    dead = unreached("e")
    return sum(
        _delete(session, name, dead, change) for _, name in read_inlined_tables(session).read()
    )


# In this order: what one leaves behind, a later one mends.
REPAIRS: Final[dict[str, Repair]] = {
    "live_and_scheduled": _unschedule,
    **{counter: _raise_counter(counter, largest) for counter, largest in SNAPSHOT_COUNTERS},
    "file_of_no_table": _files_of_no_table,
    "description_of_no_table": _descriptions_of_no_table,
    "description_of_no_file": _descriptions_of_no_file,
    "delete_file_of_no_file": _delete_files_of_no_file,
    "changes_of_no_snapshot": _changes_of_no_snapshot,
    "delete_file_twice": _delete_file_twice,
    "inlined_delete_twice": _inlined_delete_twice,
    "statistics_twice": _statistics_twice,
    "stray_inlined_table": _stray_tables,
    "dead_inlined_rows": _dead_rows,
}
