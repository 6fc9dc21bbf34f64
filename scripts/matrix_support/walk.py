"""One client's way through one lake, in that client's own environment, which has DuckDB only.

It reads a description of the lake from stdin and writes a report to stdout, both JSON. The rows
that each snapshot should have come from a model kept here, not from the client.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb

Row = tuple[Any, ...]
# What a step did: nothing to say, or why it failed; `absent` when this client has no such command.
ABSENT = "absent"


class Walk:
    """A session with the lake attached, and the rows that every snapshot should show."""

    def __init__(self, place: dict[str, Any]) -> None:
        self.place = place
        self.session = duckdb.connect(":memory:", config={"threads": 2})
        for name in ("postgres_scanner", "sqlite_scanner", "ducklake"):
            path = place["extensions"].get(name)
            if path is None:
                self.session.execute(f"INSTALL {name}")
                self.session.execute(f"LOAD {name}")
            else:
                self.session.load_extension(path)
        self.session.execute("SET TimeZone = 'UTC'")
        # Table -> snapshot -> rows, sorted.
        self.history: dict[str, dict[int, list[Row]]] = {
            table: {int(at): _sorted(map(tuple, rows)) for at, rows in found.items()}
            for table, found in place["history"].items()
        }
        self.rows: dict[int, Row] = {}  # of `walked` now, by id
        self.attach()

    def attach(self) -> None:
        options = "".join(f", {name} {text}" for name, text in self.place["options"].items())
        suffix = f" ({options[2:]})" if options else ""
        attach = self.place["attach"].replace("'", "''")
        self.session.execute(f"ATTACH '{attach}' AS lake{suffix}; USE lake")

    def detach(self) -> None:
        self.session.execute("USE memory; DETACH lake")

    def sql(self, statement: str) -> list[Row]:
        return [tuple(row) for row in self.session.execute(statement).fetchall()]

    def snapshots(self) -> list[int]:
        return sorted(
            row[0] for row in self.sql("SELECT snapshot_id FROM ducklake_snapshots('lake')")
        )

    def note(self) -> None:
        """Remember that the newest snapshot has the rows of the model."""
        self.history.setdefault("walked", {})[self.snapshots()[-1]] = _sorted(self.rows.values())

    def check(self, newest: int | None = None) -> None:
        """Compare the kept snapshots of every table with what they should show.

        Args:
            newest: Only so many; a step that cannot reach files of the past need not look at all.
        """
        kept = set(self.snapshots())
        for table, expected in self.history.items():
            for at in sorted(kept & expected.keys())[-newest if newest else None :]:
                found = _sorted(self.sql(f"SELECT * FROM {table} AT (VERSION => {at})"))
                if found != expected[at]:
                    wrong = f"{len(found)} rows where {len(expected[at])} are right"
                    raise AssertionError(f"{table} at snapshot {at}: {wrong}, or other values")
            if kept & expected.keys() and max(kept & expected.keys()) == max(kept):
                ((count,),) = self.sql(f"SELECT count(*) FROM {table}")
                if count != len(expected[max(kept)]):
                    raise AssertionError(f"{table}: count(*) is {count}")

    def change(self, statement: str, change: Callable[[dict[int, Row]], Any]) -> None:
        """Run a statement, and do the same to the model."""
        self.sql(statement)
        change(self.rows)
        self.note()


def _sorted(rows: Any) -> list[Row]:
    return sorted(rows, key=repr)


def _read(walk: Walk) -> None:
    walk.check()


def _create_table(walk: Walk) -> None:
    walk.change("CREATE TABLE walked (id BIGINT, v VARCHAR)", lambda rows: None)


def _insert_small(walk: Walk) -> None:
    for at in range(3):
        new: list[Row] = [(at * 2, f"small {at}"), (at * 2 + 1, None)]
        text = f"({new[0][0]}, 'small {at}'), ({new[1][0]}, NULL)"
        walk.change(f"INSERT INTO walked VALUES {text}", _add(new))
    walk.check(newest=3)


def _insert_large(walk: Walk) -> None:
    for start in (1000, 3000):
        many = [(i, f"v{i % 7}") for i in range(start, start + 2000)]
        walk.change(
            f"INSERT INTO walked SELECT i, 'v' || i % 7 FROM range({start}, {start + 2000}) r(i)",
            _add(many),
        )
    walk.check(newest=3)


def _update(walk: Walk) -> None:
    def change(rows: dict[int, Row]) -> None:
        rows.update({i: (i, "updated") for i in rows if i % 10 == 3})

    walk.change("UPDATE walked SET v = 'updated' WHERE id % 10 = 3", change)
    walk.check(newest=3)


def _delete(walk: Walk) -> None:
    for condition, keep in (
        ("id IN (1, 1001)", lambda i: i not in (1, 1001)),
        ("id % 3 = 1 AND id < 3000", lambda i: i % 3 != 1 or i >= 3000),
    ):

        def change(rows: dict[int, Row], keep: Callable[[int], bool] = keep) -> None:
            for i in [i for i in rows if not keep(i)]:
                del rows[i]

        walk.change(f"DELETE FROM walked WHERE {condition}", change)
    walk.check(newest=3)


def _alter(walk: Walk) -> None:
    """Add two columns, rename one, drop one, widen one: rows of the past keep their shape."""

    def add(rows: dict[int, Row]) -> None:
        rows.update({i: (*row, 7) for i, row in rows.items()})

    walk.change("ALTER TABLE walked ADD COLUMN w INTEGER DEFAULT 7", add)
    walk.change("ALTER TABLE walked RENAME v TO text", lambda rows: None)
    walk.change("ALTER TABLE walked ALTER w SET DATA TYPE BIGINT", lambda rows: None)
    walk.change(
        "ALTER TABLE walked ADD COLUMN gone INTEGER",
        lambda rows: rows.update({i: (*row, None) for i, row in rows.items()}),
    )
    walk.change(
        "ALTER TABLE walked DROP COLUMN gone",
        lambda rows: rows.update({i: row[:3] for i, row in rows.items()}),
    )
    walk.change(
        "INSERT INTO walked VALUES (7000, 'x', 3000000000)", _add([(7000, "x", 3000000000)])
    )
    walk.check(newest=3)


def _definitions(walk: Walk) -> None:
    for statement in (
        "CREATE SCHEMA other",
        "CREATE TABLE other.t (i INTEGER, l INTEGER[], s STRUCT(a INTEGER, b VARCHAR))",
        "INSERT INTO other.t VALUES (1, [1, 2], {'a': 1, 'b': 'x'})",
        "CREATE VIEW other.v AS SELECT i FROM lake.other.t",
        "COMMENT ON TABLE other.t IS 'a comment'",
        "ALTER TABLE other.t RENAME TO u",
        "DROP VIEW other.v",
        "DROP TABLE other.u",
        "DROP SCHEMA other",
    ):
        walk.sql(statement)
    walk.check(newest=3)


def _partition(walk: Walk) -> None:
    walk.sql("ALTER TABLE walked SET PARTITIONED BY (text)")
    new = [(i, "p" if i % 2 else None, i) for i in range(8000, 8100)]
    walk.change(
        "INSERT INTO walked "
        "SELECT i, CASE i % 2 WHEN 1 THEN 'p' END, i FROM range(8000, 8100) r(i)",
        _add(new),
    )
    walk.sql("ALTER TABLE walked RESET PARTITIONED BY")
    walk.check(newest=3)


def _sort(walk: Walk) -> None:
    walk.sql("ALTER TABLE walked SET SORTED BY (id DESC)")
    new = [(i, "sorted", i) for i in range(8200, 8300)]
    walk.change(
        "INSERT INTO walked SELECT i, 'sorted', i FROM range(8200, 8300) r(i)",
        _add(new),
    )
    walk.check(newest=3)


def _merge_into(walk: Walk) -> None:
    walk.change(
        "MERGE INTO walked USING (VALUES (8000, 'm'), (9000, 'm')) AS s (id, text) USING (id) "
        "WHEN MATCHED THEN UPDATE SET text = s.text "
        "WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.text, 1)",
        _add([(8000, "m", 8000), (9000, "m", 1)]),
    )
    walk.check(newest=3)


def _transaction(walk: Walk) -> None:
    walk.sql("BEGIN")
    walk.sql("CREATE TABLE second AS SELECT 1 AS one")
    walk.sql("INSERT INTO walked VALUES (9100, 'tx', 1)")
    walk.sql("DELETE FROM walked WHERE id = 9000")
    walk.sql("COMMIT")
    walk.rows[9100] = (9100, "tx", 1)
    del walk.rows[9000]
    walk.note()
    walk.sql("BEGIN")
    walk.sql("DELETE FROM walked")
    walk.sql("ROLLBACK")
    walk.check(newest=3)


def _set_option(walk: Walk) -> None:
    for value in ("20MB", "30MB"):
        walk.sql(f"CALL lake.set_option('target_file_size', '{value}')")
    for value in ("10MB", "20MB"):
        walk.sql(f"CALL lake.set_option('target_file_size', '{value}', table_name => 'walked')")
    found = walk.sql(
        "SELECT scope, value FROM lake.options() WHERE option_name = 'target_file_size' ORDER BY 1"
    )
    if [row[0] for row in found] != ["GLOBAL", "TABLE"] or len({row[1] for row in found}) != 2:
        raise AssertionError(f"the options are {found}")
    walk.check(newest=3)


def _add_files(walk: Walk) -> None:
    path = Path(walk.place["data_path"], "walked by others.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    walk.sql(
        "COPY (SELECT i AS id, 'file' AS text, i AS w FROM range(9200, 9300) r(i)) "
        f"TO '{path}' (FORMAT parquet)"
    )
    new = [(i, "file", i) for i in range(9200, 9300)]
    walk.change(
        f"CALL ducklake_add_data_files('lake', 'walked', '{path}')",
        _add(new),
    )
    walk.check(newest=3)


def _flush(walk: Walk) -> None:
    _maintain(walk, "CALL ducklake_flush_inlined_data('lake')")


def _merge(walk: Walk) -> None:
    _maintain(walk, "CALL ducklake_merge_adjacent_files('lake')")


def _rewrite(walk: Walk) -> None:
    _maintain(walk, "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")


def _maintain(walk: Walk, statement: str) -> None:
    walk.sql(statement)
    walk.note()
    walk.check()


def _time_travel(walk: Walk) -> None:
    """Attach at each kept snapshot, as a reader that lives in the past."""
    kept = walk.snapshots()
    first, last = min(walk.history["walked"]), kept[-1]
    if not walk.sql(f"FROM ducklake_table_changes('lake', 'main', 'walked', {first}, {last})"):
        raise AssertionError("the change feed is empty")
    options = walk.place["options"]
    for at in kept[:: max(1, len(kept) // 5)]:
        walk.detach()
        walk.place["options"] = {**options, "SNAPSHOT_VERSION": str(at)}
        try:
            walk.attach()
            for table, expected in walk.history.items():
                if at in expected and _sorted(walk.sql(f"FROM {table}")) != expected[at]:
                    raise AssertionError(f"{table} attached at snapshot {at} has other rows")
        finally:
            walk.place["options"] = options
            walk.detach()
            walk.attach()


def _expire(walk: Walk) -> None:
    kept = walk.snapshots()
    gone = kept[2:-3:2]
    walk.sql(f"CALL ducklake_expire_snapshots('lake', versions => {gone})")
    left = [at for at in kept if at not in gone]
    if walk.snapshots() != left:
        raise AssertionError(f"snapshots {walk.snapshots()} are left, not {left}")
    walk.check()


def _clean_up(walk: Walk) -> None:
    walk.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    left = walk.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true, dry_run => true)")
    if left:
        raise AssertionError(f"{len(left)} files are still scheduled")
    walk.check()


def _sweep(walk: Walk) -> None:
    stray = Path(walk.place["data_path"], "main", "stray.parquet")
    stray.parent.mkdir(parents=True, exist_ok=True)
    walk.sql(f"COPY (SELECT 1 AS i) TO '{stray}' (FORMAT parquet)")
    files = set(Path(walk.place["data_path"]).rglob("*.parquet"))
    walk.sql("CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)")
    gone = files - set(Path(walk.place["data_path"]).rglob("*.parquet"))
    walk.check()
    if gone != {stray}:
        raise AssertionError(f"{len(gone)} files were deleted where one is an orphan")


def _attach_again(walk: Walk) -> None:
    walk.detach()
    walk.attach()
    walk.check()


def _add(new: Sequence[Row]) -> Callable[[dict[int, Row]], None]:
    """Return the change of a model that rows with new or known ids make."""
    return lambda rows: rows.update({row[0]: row for row in new})


WRITING: dict[str, Callable[[Walk], None]] = {
    "read": _read,
    "create table": _create_table,
    "insert few": _insert_small,
    "insert many": _insert_large,
    "update": _update,
    "delete": _delete,
    "alter": _alter,
    "definitions": _definitions,
    "partition": _partition,
    "sort": _sort,
    "merge into": _merge_into,
    "transaction": _transaction,
    "set option": _set_option,
    "add files": _add_files,
    "flush": _flush,
    "merge": _merge,
    "rewrite": _rewrite,
    "time travel": _time_travel,
    "expire": _expire,
    "clean up": _clean_up,
    "sweep": _sweep,
    "attach again": _attach_again,
}
READING: dict[str, Callable[[Walk], None]] = {
    "read after us": _read,
    "attach after us": _attach_again,
}


def _steps(
    walk: Walk, steps: dict[str, Callable[[Walk], None]]
) -> Iterator[tuple[str, str | None]]:
    for name, step in steps.items():
        try:
            step(walk)
        except (duckdb.Error, AssertionError) as error:
            text = " ".join(str(error).split())
            unknown = isinstance(error, duckdb.CatalogException) and "does not exist" in text
            parser = isinstance(error, duckdb.ParserException)
            yield name, ABSENT if unknown or parser else f"{type(error).__name__}: {text}"
            with suppress(duckdb.Error):  # mostly there is no transaction
                walk.sql("ROLLBACK")
        else:
            yield name, None


def main() -> None:
    """Go the way that stdin asks for, and tell stdout how far it led."""
    place = json.load(sys.stdin)
    try:
        walk = Walk(place)
    except duckdb.Error as error:
        text = " ".join(str(error).split())
        json.dump(
            {"attach": f"{type(error).__name__}: {text}", "steps": {}, "history": {}}, sys.stdout
        )
        return
    steps = dict(_steps(walk, WRITING if place["writes"] else READING))
    kept = set(walk.snapshots())
    history = {
        table: {at: rows for at, rows in found.items() if at in kept}
        for table, found in walk.history.items()
    }
    walk.session.close()
    json.dump({"attach": None, "steps": steps, "history": history}, sys.stdout)


if __name__ == "__main__":
    main()
