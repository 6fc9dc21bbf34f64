"""One lake on trial: the reference client, our operations, the model, and what must agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

from airflow_provider_ducklake.lake.results import OperationResult, TableResult
from tests.interop.catalog import catalog_faults, change_catalog, unreferenced_files
from tests.interop.operations import Operations
from tests.interop.palette import Pair, arrow_table, pairs
from tests.interop.questions import questions, telling_states
from tests.support.lakes import CatalogRows, LakeUnderTest, catalog_fingerprint, catalog_rows
from tests.support.model import ModelLake, ModelTable, Predicate, Record
from tests.support.reference import Rows, normalise_row

Change: TypeAlias = Callable[[ModelTable], ModelTable]


class Judge:
    """Issues statements through the reference, keeps the model, and compares the two.

    Every statement is one snapshot, or several are inside `transaction()`. A statement's effect
    on the model is computed here, in Python; the reference is only asked for the ids it gave to
    new rows, once, right after they came to be.
    """

    def __init__(self, lake: LakeUnderTest) -> None:
        """Create the lake through the reference, or join the one that is there."""
        self.lake = lake
        self.client = lake.client()
        self.operations = Operations(lake, self.client.make_way)
        self.model = ModelLake(self.client.snapshot_ids()[-1])
        self.log: list[str] = []
        self._pending: dict[str, ModelTable | None] = {}
        self._in_transaction = False
        self._provisional = -1
        self._checks = True

    def table(self, name: str) -> ModelTable:
        """The table as the next statement will find it."""
        found = self._pending.get(name, self.model.tables.get(name))
        assert found is not None, f"{name} is not in the model"
        return found

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the statements inside one snapshot."""
        self._run("BEGIN")
        self._in_transaction = True
        try:
            yield
        except BaseException:
            self._in_transaction = False
            self._pending.clear()
            raise
        self._in_transaction = False
        self._run("COMMIT")
        self._settle()

    def execute(self, statement: str, changes: Mapping[str, ModelTable | None]) -> None:
        """Run a statement that gives some tables the new state the caller computed."""
        self._run(statement)
        self._pending.update(changes)
        if not self._in_transaction:
            self._settle()

    def create_table(self, name: str, columns: Mapping[str, str]) -> None:
        """CREATE TABLE with columns by name and DuckDB type."""
        text = ", ".join(f'"{column}" {type_name}' for column, type_name in columns.items())
        self.execute(f"CREATE TABLE {name} ({text})", {name: ModelTable(tuple(columns))})

    def insert(self, table: str, rows: Sequence[Sequence[Pair]]) -> None:
        """INSERT rows whose values are pairs of SQL literal and Python value."""
        values = ", ".join(f"({', '.join(literal for literal, _ in row)})" for row in rows)
        self.insert_by(
            f"INSERT INTO {table} VALUES {values}", table, [[v for _, v in r] for r in rows]
        )

    def insert_values(self, table: str, *rows: Sequence[Any]) -> None:
        """INSERT rows of plain Python values."""
        self.insert(table, pairs(rows))

    def insert_by(self, statement: str, table: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement that adds rows with these Python values to a table."""
        self.execute(statement, {table: self.with_new_rows(table, rows)})

    def delete(self, table: str, where: str, predicate: Predicate) -> None:
        """DELETE the rows for which both forms of one condition hold."""
        changed = self.table(table).delete(predicate)
        self.execute(f"DELETE FROM {table} WHERE {where}", {table: changed})

    def update(
        self,
        table: str,
        assignments: Mapping[str, str],
        where: str,
        predicate: Predicate,
        changes: Callable[[Record], Record],
    ) -> None:
        """UPDATE columns of the rows for which both forms of one condition hold."""
        text = ", ".join(f'"{column}" = {value}' for column, value in assignments.items())
        changed = self.table(table).update(predicate, changes)
        self.execute(f"UPDATE {table} SET {text} WHERE {where}", {table: changed})

    def alter(self, table: str, clause: str, change: Change = lambda table: table) -> None:
        """ALTER TABLE; `change` is what it does to the model's table."""
        self.execute(f"ALTER TABLE {table} {clause}", {table: change(self.table(table))})

    def drop_table(self, table: str) -> None:
        """DROP TABLE."""
        self.execute(f"DROP TABLE {table}", {table: None})

    def rename_table(self, table: str, new_name: str) -> None:
        """ALTER TABLE … RENAME TO a bare name in the same schema."""
        schema = table.rpartition(".")[0]
        changes = {table: None, f"{schema}.{new_name}": self.table(table)}
        self.execute(f"ALTER TABLE {table} RENAME TO {new_name}", changes)

    def upkeep(self, name: str, *tables: str, **options: Any) -> OperationResult:
        """Run one of our operations that must not change what any kept snapshot shows.

        Args:
            name: The operation.
            *tables: Tables it is restricted to.
            **options: Its options.
        """
        result = self._ours(name, *tables, **options)
        self.accept({})
        changed = {t.table for t in result.tables if t.is_changed}
        if changed:
            self.check(*changed)
        return result

    def expire(self, expired: Iterable[int], **options: Any) -> OperationResult:
        """Expire snapshots by our operation and expect exactly these to be gone."""
        result = self._ours("expire_snapshots", **options)
        self.model.expire(expired)
        self.check()
        return result

    def restore(
        self, target: int, *tables: str, now: Mapping[str, str | None] | None = None
    ) -> OperationResult:
        """Restore tables, or the lake, by our operation and expect what the snapshot shows.

        Args:
            target: The snapshot.
            *tables: Their names at that snapshot; none means the whole lake.
            now: Names that tables of the snapshot have now, where they have others; None for
                those that are not there.
        """
        then, current = self.model.tables_at(target), self.model.tables
        changes: dict[str, ModelTable | None] = {}
        if not tables:
            changes = dict.fromkeys(current.keys() - then.keys())
        for name in tables or then:
            name_now = (now or {}).get(name, name)
            if name_now is not None and name_now != name and tables:
                changes[name_now] = None
            changes[name] = _restored(then[name], current.get(name_now or ""))
        result = self._ours("restore", *tables, snapshot=target)
        self.accept({n: t for n, t in changes.items() if t != current.get(n)})
        self.check()
        return result

    def ingest(
        self, table: str, types: Mapping[str, str], rows: Sequence[Sequence[Pair]]
    ) -> TableResult:
        """Append rows through our ingest, as Arrow batches."""
        changed = self.with_new_rows(table, [[value for _, value in row] for row in rows])
        self.log.append(f"-- ingest {len(rows)} rows into {table}")
        result = self.operations.ingest(table, arrow_table(types, rows).to_batches())
        self.accept({table: changed} if rows else {})
        self.check(table)
        return result

    def add_files(
        self, table: str, sources: Sequence[str], rows: Iterable[Sequence[Any]], **options: Any
    ) -> OperationResult:
        """Register files by our operation and expect these further rows."""
        changed = self.with_new_rows(table, rows)
        result = self._ours("add_data_files", table, sources=sources, **options)
        self.accept({table: changed} if changed != self.table(table) else {})
        self.check(table)
        return result

    def dry_run(self, name: str, *tables: str, **options: Any) -> OperationResult:
        """Run an operation of ours dry and prove that it changed neither catalog nor files."""
        before = self.fingerprint(), self.lake.stored_files()
        result = self._ours(name, *tables, dry_run=True, **options)
        after = self.fingerprint(), self.lake.stored_files()
        assert after == before, self.message(f"a dry run of {name} changed the lake", result)
        return result

    def _ours(self, name: str, *tables: str, **options: Any) -> OperationResult:
        self.log.append(f"-- {name}{tables or ''} {options or ''}")
        try:
            return self.operations.run(name, *tables, **options)
        except Exception as error:
            raise AssertionError(self.message(f"{name} failed", repr(error))) from error

    def accept(self, changes: Mapping[str, ModelTable | None]) -> list[int]:
        """Take up the snapshots somebody else has made; the last one carries the changes.

        Returns:
            The new snapshot ids.
        """
        before = self.model.head
        kept = self.client.recorded_snapshot_ids()
        new = [snapshot for snapshot in kept if snapshot > before]
        assert new or not changes, self.message("no snapshot was made", ())
        for snapshot in new[:-1]:
            self.model.commit(snapshot, {})
        if new:
            self.model.commit(new[-1], self._as_observed(changes, new[-1]))
        return new

    def accept_appends(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        """Take up snapshots of writers who appended these rows in an order nobody knows."""
        outstanding = Counter(normalise_row(row) for row in rows)
        for snapshot in self.client.snapshot_ids():
            if snapshot <= self.model.head:
                continue
            found = self.client.rows_at(table, snapshot)
            before = self.table(table)
            fresh = Counter(row[1:] for row in found if row[0] not in before.rows)
            assert fresh <= outstanding, self.message(f"{table} at {snapshot}", fresh)
            outstanding -= fresh
            changed = self.with_new_rows(table, fresh.elements())
            self.model.commit(snapshot, self._as_observed({table: changed}, snapshot))
        assert not outstanding, self.message(f"{table} lacks", outstanding)

    def checkpoint(self, retain_last: int, **options: Any) -> OperationResult:
        """Run a checkpoint that expires: how far is counted from what its flush has made."""
        kept = list(self.model.kept)
        result = self._ours("checkpoint", retain_last=retain_last, **options)
        found = self.client.snapshot_ids()
        for snapshot in range(kept[-1] + 1, found[-1] + 1):
            self.model.commit(snapshot, {})
        everything = self.model.kept
        possible = [
            [*everything[:flushed][-retain_last:], *everything[flushed:]]
            for flushed in range(len(kept), len(everything) + 1)
        ]
        assert found in possible, self.message("kept snapshots", (possible, found))
        self.model.expire(set(everything) - set(found))
        self.check()
        return result

    def with_new_rows(self, table: str, rows: Iterable[Sequence[Any]]) -> ModelTable:
        """Return a table with further rows, whose ids are looked up when they are there."""
        ids = {}
        for row in rows:
            ids[self._provisional] = row
            self._provisional -= 1
        return self.table(table).insert(ids)

    @contextmanager
    def without_checks(self) -> Iterator[None]:
        """Leave the comparisons to a later `check()`: they cost more than the work itself."""
        self._checks = False
        try:
            yield
        finally:
            self._checks = True

    def check(self, *tables: str) -> None:
        """Compare the kept snapshots, the rows and row ids at each, and the list of tables.

        Args:
            *tables: The only tables whose rows to compare; none means all.
        """
        if not self._checks:
            return
        with self.client.transaction():
            kept = tuple(self.client.snapshot_ids())
            assert kept == self.model.kept, self.message("kept snapshots", (self.model.kept, kept))
            for snapshot in kept:
                for name, table in self.model.tables_at(snapshot).items():
                    if not tables or name in tables:
                        self._compare(name, table, snapshot, self.client.rows_at(name, snapshot))
            expected = frozenset(self.model.tables)
            found = self.client.tables()
            assert found == expected, self.message("tables", (expected, found))

    def check_catalog(self) -> None:
        """Check the rows of the metadata tables against each other and against the files."""
        self.client.make_way()
        faults = catalog_faults(self.lake)
        assert not faults, self.message("the catalog", faults)

    def check_soundness(self, *, after_stock_rewrite: bool = False) -> None:
        """Let fsck look at everything: what was done so far has damaged nothing.

        Args:
            after_stock_rewrite: The reference has rewritten files, which narrows bounds of tables.
        """
        if after_stock_rewrite:
            mended = self.operations.run("fsck", deep=True, repair=True, may_fail=True)
            found = {report.damage for report in mended.findings if report.repaired}
            assert found <= {"table_statistics"}, self.message("fsck", mended.findings)
        result = self.operations.run("fsck", deep=True, may_fail=True)
        assert not result.is_failed, self.message("fsck", result.failures)
        alarms = [report for report in result.findings if report.severity != "notice"]
        assert not alarms, self.message("fsck", alarms)

    def check_statistics(self, *tables: str, extremes: bool = True) -> None:
        """Ask what a client may answer, or leave out, by statistics alone.

        Bounds that are too narrow hide rows of older snapshots from a filter; bounds taken for
        exact give the least and greatest value of rows that are no longer there.

        Args:
            *tables: The only tables to look in; none means all.
            extremes: Also ask for the least and greatest value. The reference answers wrongly by
                itself where it inserted and deleted in one transaction.
        """
        confusing = self.client.columns_of_changed_type()
        for name, snapshot, table in telling_states(self.model):
            asked_of = tuple(questions(table, confusing, extremes=extremes))
            if (tables and name not in tables) or not asked_of:
                continue
            asked = [
                f"(SELECT {what} FROM {name} AT (VERSION => {snapshot}) WHERE {where})"
                for what, where, _, _ in asked_of
            ]
            values = [value for _, _, values, _ in asked_of for value in values]
            (answers,) = self.client.sql(f"SELECT {', '.join(asked)}", values)
            for (*question, expected), answer in zip(asked_of, answers, strict=True):
                text = f"{question} of {name} at snapshot {snapshot}"
                assert answer == expected, self.message(text, (expected, answer))

    def check_counts(self, table: str, filters: Mapping[str, int]) -> None:
        """Compare how many rows of the newest snapshot each filter finds."""
        counts = [f"(SELECT count(*) FROM {table} WHERE {where})" for where in filters]
        (found,) = self.client.sql(f"SELECT {', '.join(counts)}")
        for (where, expected), count in zip(filters.items(), found, strict=True):
            assert count == expected, self.message(f"{table} WHERE {where}", (expected, count))

    def change_catalog(self, statement: str) -> None:
        """Run a statement on the metadata tables directly, with the database's own driver."""
        self.client.make_way()
        change_catalog(self.lake, statement)

    def unreferenced_files(self) -> set[str]:
        """Return the Parquet files under the data path that the catalog does not name."""
        self.client.make_way()
        return unreferenced_files(self.lake)

    def catalog(self) -> CatalogRows:
        """Return all rows of the metadata tables."""
        self.client.make_way()
        return catalog_rows(self.lake)

    def fingerprint(self) -> str:
        """Return a digest of everything the catalog holds."""
        self.client.make_way()
        return catalog_fingerprint(self.lake)

    def changes(self, table: str) -> Rows:
        """Return the change feed of a table from its first kept snapshot on."""
        known = [s for s in self.model.kept if table in self.model.tables_at(s)]
        return self.client.table_changes(table, known[0], known[-1])

    def close(self) -> None:
        """Let go of the lake."""
        self.client.close()

    def _compare(self, name: str, table: ModelTable, snapshot: int, found: Rows) -> None:
        expected = table.as_counter()
        if found == expected:
            return
        raise AssertionError(
            self.message(
                f"{name} at snapshot {snapshot} (missing, extra)",
                (_some(expected - found), _some(found - expected)),
            )
        )

    def _run(self, statement: str) -> None:
        self.log.append(statement)
        self.client.sql(statement)

    def _settle(self) -> None:
        pending, self._pending = self._pending, {}
        changes = {
            name: table for name, table in pending.items() if table != self.model.tables.get(name)
        }
        new = self.accept(changes)
        assert len(new) <= 1, self.message("one statement made several snapshots", new)

    def _as_observed(
        self, changes: Mapping[str, ModelTable | None], snapshot: int
    ) -> dict[str, ModelTable | None]:
        """Return the changes with the ids the lake gave to new rows, after comparing all rows."""
        settled = dict(changes)
        for name, table in changes.items():
            fresh = table is not None and min(table.rows, default=0) < 0
            if table is None or not (fresh or self._checks):
                continue
            found = self.client.rows_at(name, snapshot)
            try:
                known = table.with_observed_ids(found)
            except AssertionError as error:
                raise AssertionError(self.message(f"{name} at {snapshot}", error)) from None
            self._compare(name, known, snapshot, found)
            settled[name] = known
        return settled

    def message(self, what: str, found: object) -> str:
        """Return what to say of a difference: what was found, and everything done before."""
        history = ";\n  ".join(self.log)
        return f"{self.lake.kind}: {what}: {found}\nafter\n  {history};"


def _restored(then: ModelTable, now: ModelTable | None) -> ModelTable:
    """Return an older table as it is when it is put back: row ids are still not given twice."""
    next_row_id = max(then.next_row_id, now.next_row_id if now else 0)
    return replace(then, next_row_id=next_row_id)


def _some(rows: Rows) -> list[tuple[Any, ...]]:
    return [row for row, _ in Counter(rows).most_common(6)]
