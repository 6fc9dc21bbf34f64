"""A lake with some of everything, and all that a stock client can see of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

from tests.interop.palette import VALUES, write_parquet
from tests.support.reference import ReferenceClient, Row, Rows, normalise_row

TABLES: Final = (
    "main.plain",
    "main.shaped",
    "main.reshaped",
    "s.parts",
    "s.inline",
    "s.typed",
    "s.named",
    "main.gone",
)
UPKEPT: Final = ("main.plain", "main.reshaped", "s.inline")
_EXTRA_TYPES: Final = {
    "HUGEINT": "-9007199254740992",
    "UBIGINT": "18446744073709551615",
    "INTERVAL": "INTERVAL '1 month 2 days 3.5 seconds'",
    "TIMETZ": "'12:00:00+02'",
    "JSON": "'{\"a\": [1]}'",
    "TIMESTAMP_NS": "'2024-01-01 00:00:00.123456789'",
    "STRUCT(a VARCHAR, b STRUCT(c INTEGER, d INTEGER[]))": "{'a': 'x', 'b': {'c': 1, 'd': [1, 2]}}",
}


def write_history(client: ReferenceClient, scratch: Path) -> None:
    """Write, through the stock client, tables of every kind and make them change.

    Args:
        client: A client of a new lake.
        scratch: A directory for a file that is added as it is; it becomes part of the lake.
    """
    write_upkept_tables(client)
    _partitioned(client)
    _typed(client)
    _named(client, scratch)
    client.sql("CREATE TABLE gone AS SELECT 1 AS i")
    with client.transaction():
        client.sql("DROP TABLE gone")
        client.sql("CREATE VIEW v AS SELECT i, name FROM main.plain WHERE i > 2")
        client.sql("CREATE MACRO twice(x, plus := 1) AS x * 2 + plus")
        client.sql("CREATE MACRO below(n) AS TABLE SELECT i FROM main.plain WHERE i < n")
        client.sql("COMMENT ON TABLE plain IS 'a comment'")
        client.sql("COMMENT ON COLUMN plain.name IS 'of a column'")
    client.set_option("target_file_size", "10MB", table="main.plain")
    client.sql("CALL lake.set_option('parquet_compression', 'zstd', schema => 's')")


def write_upkept_tables(client: ReferenceClient) -> None:
    """Write the tables that merges, flushes and clean-ups work on, `UPKEPT`."""
    client.set_option("data_inlining_row_limit", 0)
    client.sql("CREATE SCHEMA s")
    _plain(client)
    _shaped(client)
    _inlined(client)


def _plain(client: ReferenceClient) -> None:
    client.sql("CREATE TABLE plain AS SELECT i, 'n' || i AS name FROM range(3) r(i)")
    for start in range(3, 9, 3):
        client.sql(f"INSERT INTO plain SELECT i, 'n' || i FROM range({start}, {start + 3}) r(i)")
    client.sql("DELETE FROM plain WHERE i = 1")
    client.sql("UPDATE plain SET name = 'changed' WHERE i % 3 = 0")
    client.sql("CALL ducklake_merge_adjacent_files('lake', 'plain')")
    client.sql("INSERT INTO plain VALUES (100, NULL)")
    client.sql("CALL ducklake_merge_adjacent_files('lake', 'plain')")
    client.sql("DELETE FROM plain WHERE i = 8")
    client.sql("DELETE FROM plain WHERE i = 7")
    client.sql("ALTER TABLE plain SET SORTED BY (i DESC)")


def _shaped(client: ReferenceClient) -> None:
    client.sql(
        "CREATE TABLE shaped AS SELECT 1 AS i, {'a': 1} AS s, 'x' AS old UNION ALL "
        "SELECT 2, NULL, 'y'"
    )
    with client.transaction():
        client.sql("ALTER TABLE shaped ADD COLUMN more INTEGER DEFAULT 7")
        client.sql("ALTER TABLE shaped ADD COLUMN s.b VARCHAR")
        client.sql("ALTER TABLE shaped RENAME COLUMN old TO young")
    client.sql("INSERT INTO shaped VALUES (3, {'a': 3, 'b': 'b'}, 'z', 8)")
    with client.transaction():
        client.sql("ALTER TABLE shaped ALTER COLUMN i SET DATA TYPE BIGINT")
        client.sql("ALTER TABLE shaped DROP COLUMN young")
    client.sql("INSERT INTO shaped VALUES (4294967296, NULL, 9)")
    client.sql("ALTER TABLE shaped RENAME TO reshaped")


def _partitioned(client: ReferenceClient) -> None:
    with client.transaction():
        client.sql("CREATE TABLE s.parts (k VARCHAR, day DATE, v INTEGER)")
        client.sql("ALTER TABLE s.parts SET PARTITIONED BY (k, month(day))")
    client.sql("INSERT INTO s.parts VALUES ('a/b', '2024-01-02', 1), (NULL, '2024-02-03', 2)")
    client.sql("ALTER TABLE s.parts SET PARTITIONED BY (k)")
    client.sql("INSERT INTO s.parts VALUES ('a/b', '2024-03-02', 3), ('c', NULL, 4)")


def _inlined(client: ReferenceClient) -> None:
    client.sql("CREATE TABLE s.inline AS SELECT i::INTEGER AS i, 'f' || i AS t FROM range(20) r(i)")
    client.set_option("data_inlining_row_limit", 10, table="s.inline")
    client.release()
    client.sql("INSERT INTO s.inline VALUES (50, 'in'), (51, NULL), (52, 'it''s')")
    client.sql("DELETE FROM s.inline WHERE i IN (3, 50)")
    client.sql("UPDATE s.inline SET t = 'new' WHERE i IN (4, 51)")
    client.sql("ALTER TABLE s.inline ADD COLUMN extra DOUBLE DEFAULT 0.5")
    client.sql("INSERT INTO s.inline VALUES (60, 'later', 'nan')")
    client.sql("DELETE FROM s.inline WHERE i = 52")


def _typed(client: ReferenceClient) -> None:
    types = {f"c{at}": kind for at, kind in enumerate((*VALUES, *_EXTRA_TYPES))}
    columns = ", ".join(f"{name} {kind}" for name, kind in types.items())
    client.sql(f"CREATE TABLE s.typed ({columns})")
    client.set_option("data_inlining_row_limit", 10, table="s.typed")
    client.release()
    rows = (", ".join(_literal(kind, number) for kind in types.values()) for number in range(6))
    client.sql(f"INSERT INTO s.typed VALUES ({'), ('.join(rows)})")


def _literal(kind: str, number: int) -> str:
    pool = [text for text, _ in VALUES[kind]] if kind in VALUES else [_EXTRA_TYPES[kind], "NULL"]
    return pool[number % len(pool)]


def _named(client: ReferenceClient, scratch: Path) -> None:
    types = {"b": "VARCHAR", "a": "INTEGER"}
    path = scratch / "added.parquet"
    rows = [[("'x'", "x"), ("1", 1)], [("'y'", "y"), ("2", 2)]]
    write_parquet(path, types, rows)
    with client.transaction():
        client.sql("CREATE TABLE s.named (a INTEGER, b VARCHAR)")
        client.sql(f"CALL ducklake_add_data_files('lake', 'named', '{path}', schema => 's')")
    client.sql("DELETE FROM s.named WHERE a = 1")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a stock client sees of a lake, ids of tables and the like left out.

    Attributes:
        rows: (table, snapshot) -> rows with their ids; None where there is no such table.
        columns: (table, snapshot) -> names and types of the columns.
        changes: Table -> its change feed from the oldest to the newest snapshot.
        snapshots: (id, time, schema version, words of changes, author, message, extra info).
        others: Answers of views and macros, comments and options.
    """

    rows: dict[tuple[str, int], Rows | None]
    columns: dict[tuple[str, int], tuple[str, ...]]
    changes: dict[str, Counter[Row]]
    snapshots: list[tuple[Any, ...]]
    others: dict[str, Counter[Row]]

    def at(self, snapshot_id: int) -> dict[str, Rows | None]:
        """Return the rows of every table at one snapshot."""
        return {table: rows for (table, at), rows in self.rows.items() if at == snapshot_id}


_OTHERS: Final = {
    "view": "FROM lake.main.v",
    "macro": "SELECT lake.main.twice(20), lake.main.twice(1, plus := 5)",
    "table macro": "FROM lake.main.below(4)",
    "comments": "SELECT table_name, comment FROM duckdb_tables() WHERE database_name = 'lake' "
    "AND schema_name IN ('main', 's')",
    "column comments": "SELECT table_name, column_name, comment, column_default "
    "FROM duckdb_columns() WHERE database_name = 'lake' AND schema_name IN ('main', 's')",
    "options": "SELECT option_name, value, scope, scope_entry FROM ducklake_options('lake') "
    "WHERE option_name NOT IN ('data_path', 'created_by', 'version')",
}


def see(client: ReferenceClient, tables: Sequence[str] = TABLES) -> Seen:
    """Look at every kept snapshot of a lake with the stock client."""
    ids = client.snapshot_ids()
    rows: dict[tuple[str, int], Rows | None] = {}
    columns: dict[tuple[str, int], tuple[str, ...]] = {}
    for table in tables:
        for snapshot in ids:
            found = _table_at(client, table, snapshot)
            rows[table, snapshot] = found and found[1]
            columns[table, snapshot] = found[0] if found else ()
    live = client.tables() & set(tables)
    return Seen(
        rows,
        columns,
        {table: client.table_changes(table, ids[0], ids[-1]) for table in sorted(live)},
        [
            (s.snapshot_id, s.time, s.schema_version, *_words(s.changes), s.author, s.message)
            for s in client.snapshots()
        ],
        {name: Counter(client.sql(query)) for name, query in _OTHERS.items() if tables == TABLES},
    )


def _table_at(
    client: ReferenceClient, table: str, snapshot: int
) -> tuple[tuple[str, ...], Rows] | None:
    """Return the columns and rows of a table at a snapshot, None where it has no such table."""
    try:
        result = client.connection.execute(
            f"SELECT rowid, * FROM lake.{table} AT (VERSION => {snapshot})"
        )
    except duckdb.CatalogException:
        return None
    names = tuple(f"{column[0]} {column[1]}" for column in result.description or ())
    return names, Counter(normalise_row(row) for row in result.fetchall())


def _words(changes: frozenset[tuple[str, tuple[str, ...]]]) -> list[str]:
    return sorted(word for word, _ in changes)
