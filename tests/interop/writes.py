"""What a stock client does to tables in the histories: each write drawn from three integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Final

from tests.interop.judge import Judge
from tests.interop.palette import TRANSFORMS, TYPES, WIDER, Pair, pick
from tests.support.model import Predicate

MAX_TABLES: Final = 3
MAX_COLUMNS: Final = 6


@dataclass(frozen=True, slots=True)
class Shapes:
    """What a writer knew of all tables at some snapshot; see `Writer`."""

    shapes: dict[str, dict[str, str]]
    keys: dict[str, set[str]]
    sorted_by: dict[str, str]
    identities: dict[str, int]


@dataclass(slots=True)
class Writer:
    """Turns drawn integers into valid statements on the tables that exist.

    Attributes:
        shapes: Columns of each live table, name to type; `k` holds a number no other row has.
        keys: Columns each table is partitioned by.
        sorted_by: Column a table is sorted by.
        identities: A number of each table that stays with it when it is renamed.
        past: What was known at snapshots.
        statements: What can be written; by default `STATEMENTS`.
        retyped: Whether a column, or a field, has ever had another type.
    """

    judge: Judge
    shapes: dict[str, dict[str, str]] = field(default_factory=dict)
    keys: dict[str, set[str]] = field(default_factory=dict)
    sorted_by: dict[str, str] = field(default_factory=dict)
    identities: dict[str, int] = field(default_factory=dict)
    past: dict[int, Shapes] = field(default_factory=dict)
    statements: Mapping[str, Callable[[Writer, str, int], bool]] = field(default_factory=dict)
    retyped: bool = False
    _next_key: int = 0
    _next_name: int = 0

    def write(self, kind: str, table: int, seed: int) -> None:
        """Issue one statement; one that makes no sense now becomes a small insert.

        Args:
            kind: `create`, or a key of `statements`.
            table: Which of the live tables, by position.
            seed: Decides everything else.
        """
        if not self.shapes or kind == "create":
            kind = "create" if len(self.shapes) < MAX_TABLES else "insert_small"
        if kind == "create":
            self._create(seed)
        else:
            name = sorted(self.shapes)[table % len(self.shapes)]
            if not (self.statements or STATEMENTS)[kind](self, name, seed):
                self._insert(name, 1 + seed % 5, seed)
        self.remember()

    def remember(self) -> None:
        """Keep what is known for the newest snapshot."""
        self.past[self.judge.model.head] = deepcopy(
            Shapes(self.shapes, self.keys, self.sorted_by, self.identities)
        )

    def rows(self, table: str, number: int, seed: int) -> list[list[Pair]]:
        """Return new rows for a table: a fresh key, then values from the pools."""
        rows = []
        for position in range(number):
            others = list(self.shapes[table].values())[1:]
            values = (pick(name, seed + position * (at + 1)) for at, name in enumerate(others))
            rows.append([(str(self._next_key), self._next_key), *values])
            self._next_key += 1
        return rows

    def awaits_first_rows(self, table: str) -> bool:
        """Tell whether a table is partitioned and has had no rows yet.

        Fault of the reference: of the first rows, where they become several files and the first
        holds only NULL in a column, it keeps that; and narrows a table's bounds to the rows after.
        So those are one row, in a transaction of its own.
        """
        return table in self.keys and self.judge.table(table).next_row_id == 0

    def new_name(self, prefix: str) -> str:
        """Return a name that nothing has had."""
        self._next_name += 1
        return f"{prefix}{self._next_name}"

    def _create(self, seed: int) -> None:
        # Two names only, so that a dropped table's name comes back.
        free = [n for n in ("main.t", "main.u", "main.v") if n not in self.shapes]
        name = free[seed % len(free)]
        shape = {"k": "INTEGER"}
        for at in range(1 + seed % 3):
            shape[self.new_name("c")] = TYPES[(seed // 3 + at * 5) % len(TYPES)]
        self.judge.create_table(name, shape)
        self.shapes[name] = shape
        self.identities[name] = self._next_key
        self._next_key += 1
        if seed % 4 == 0:
            self.partition(name, seed)

    def _insert(self, table: str, number: int, seed: int) -> bool:
        number = 1 if self.awaits_first_rows(table) else number
        self.judge.insert(table, self.rows(table, number, seed))
        return True

    def insert_small(self, table: str, seed: int) -> bool:
        """INSERT few rows: they stay in the catalog."""
        return self._insert(table, 1 + seed % 5, seed)

    def insert_large(self, table: str, seed: int) -> bool:
        """INSERT enough rows for a data file."""
        return self._insert(table, 12 + seed % 20, seed)

    def _has_fresh_rows(self, table: str) -> bool:
        # Fault of the reference: an UPDATE of rows inserted in the same transaction writes
        # their transaction-local ids (10^18 and up) to the file for good.
        return any(row_id < 0 for row_id in self.judge.table(table).rows)

    def _lost_rows(self, table: str) -> bool:
        # Fault of the reference: of two DELETEs in one transaction, a small one after a large
        # one is lost when the file has inlined deletes and the transaction inserts, too.
        before = self.judge.model.tables.get(table)
        now = self.judge.table(table).rows
        return before is not None and any(now.get(i) != row for i, row in before.rows.items())

    def _condition(self, table: str, seed: int) -> tuple[str, Predicate]:
        keys = sorted(int(row[0]) for row in self.judge.table(table).rows.values()) or [0]
        if seed % 3 == 0:
            chosen = keys[seed % len(keys)]
            return f"k = {chosen}", lambda row: bool(row["k"] == chosen)
        if seed % 3 == 1:
            modulus = 2 + seed % 4
            rest = seed // 4 % modulus
            return f"k % {modulus} = {rest}", lambda row: bool(row["k"] % modulus == rest)
        bound = keys[seed % len(keys)]
        return f"k >= {bound}", lambda row: bool(row["k"] >= bound)

    def delete(self, table: str, seed: int) -> bool:
        """DELETE by key."""
        if self._lost_rows(table):
            return False
        self.judge.delete(table, *self._condition(table, seed))
        return True

    def delete_all(self, table: str, seed: int) -> bool:
        """DELETE every row."""
        self.judge.delete(table, "true", lambda row: True)
        return True

    def update(self, table: str, seed: int) -> bool:
        """UPDATE one column, sometimes two."""
        others = list(self.shapes[table].items())[1:]
        if not others or self._has_fresh_rows(table) or self._lost_rows(table):
            return False
        chosen = [others[seed % len(others)], others[seed // 5 % len(others)]]
        values = {column: pick(type_name, seed // 2) for column, type_name in chosen}
        self.judge.update(
            table,
            {column: literal for column, (literal, _) in values.items()},
            *self._condition(table, seed),
            lambda row: {column: value for column, (_, value) in values.items()},
        )
        return True

    def add_column(self, table: str, seed: int) -> bool:
        """ADD COLUMN, half of them with a default."""
        shape = self.shapes[table]
        if len(shape) >= MAX_COLUMNS:
            return False
        name, type_name = self.new_name("c"), TYPES[seed % len(TYPES)]
        literal, value = pick(type_name, seed // 2) if seed % 2 else ("NULL", None)
        if type_name.endswith(("]", ")")) and not type_name.startswith("DECIMAL"):
            literal, value = "NULL", None  # a nested column takes no default in the reference
        if "(" in literal or "::" in literal or type_name == "BOOLEAN":
            # Nor does any column take an expression, and DuckDB's parser makes one of `false`.
            literal, value = "NULL", None
        default = f" DEFAULT {literal}" if value is not None else ""
        self.judge.alter(
            table,
            f'ADD COLUMN "{name}" {type_name}{default}',
            lambda model: model.add_column(name, value),
        )
        shape[name] = type_name
        return True

    def free_columns(self, table: str) -> list[str]:
        """Return the columns that may be dropped or changed."""
        # The reference lets nobody drop or change a column the table is partitioned or sorted by.
        pinned = {*self.keys.get(table, ()), self.sorted_by.get(table)}
        return [name for name in list(self.shapes[table])[1:] if name not in pinned]

    def drop_column(self, table: str, seed: int) -> bool:
        """DROP COLUMN, never the key."""
        names = self.free_columns(table)
        if not names:
            return False
        name = names[seed % len(names)]
        self.judge.alter(table, f'DROP COLUMN "{name}"', lambda model: model.drop_column(name))
        del self.shapes[table][name]
        return True

    def rename_column(self, table: str, seed: int) -> bool:
        """RENAME COLUMN, never the key."""
        names = self.free_columns(table)
        if not names:
            return False
        old, new = names[seed % len(names)], self.new_name("r")
        self.judge.alter(
            table,
            f'RENAME COLUMN "{old}" TO "{new}"',
            lambda model: model.rename_column(old, new),
        )
        shape = self.shapes[table]
        self.shapes[table] = {new if name == old else name: shape[name] for name in shape}
        return True

    def widen_column(self, table: str, seed: int) -> bool:
        """ALTER COLUMN … TYPE to a wider one."""
        shape = self.shapes[table]
        names = [name for name in self.free_columns(table) if shape[name] in WIDER]
        if not names:
            return False
        name = names[seed % len(names)]
        shape[name] = WIDER[shape[name]]
        self.judge.alter(table, f'ALTER COLUMN "{name}" TYPE {shape[name]}')
        self.retyped = True
        self.forget_bounds()
        return True

    def forget_bounds(self) -> None:
        """Let the client begin a new session where the type of a column has changed.

        Fault of the reference: it goes on with a table's bounds as the type it read them for
        first, be it in an older snapshot; where a new value does not fit that, they are lost, and
        then narrowed to the rows that come next.
        """
        if self.retyped:
            self.judge.client.release()

    def partition(self, table: str, seed: int) -> bool:
        """SET PARTITIONED BY one or two keys."""
        # Fault of the reference: a filter on a bucketed column passes over files that were
        # written before the column was bucketed so. Only a table that never had rows is safe.
        unused = self.judge.table(table).next_row_id == 0
        keys = [
            (transform.format(f'"{name}"'), name)
            for name, type_name in self.shapes[table].items()
            for transform in TRANSFORMS.get(type_name, ())
            if transform.startswith("bucket") <= unused and (name != "k" or "bucket" in transform)
        ]
        if not keys:
            return False
        chosen = dict([keys[seed % len(keys)], keys[seed // 7 % len(keys)]])
        self.judge.alter(table, f"SET PARTITIONED BY ({', '.join(sorted(chosen))})")
        self.keys[table] = set(chosen.values())
        return True

    def unpartition(self, table: str, seed: int) -> bool:
        """RESET PARTITIONED BY."""
        self.judge.alter(table, "RESET PARTITIONED BY")
        self.keys.pop(table, None)
        return True

    def sort(self, table: str, seed: int) -> bool:
        """SET SORTED BY one column."""
        names = list(self.shapes[table])
        direction = ("ASC", "DESC NULLS FIRST")[seed % 2]
        name = names[seed % len(names)]
        self.judge.alter(table, f'SET SORTED BY ("{name}" {direction})')
        self.sorted_by[table] = name
        return True

    def unsort(self, table: str, seed: int) -> bool:
        """RESET SORTED BY."""
        self.judge.alter(table, "RESET SORTED BY")
        self.sorted_by.pop(table, None)
        return True

    def drop(self, table: str, seed: int) -> bool:
        """DROP TABLE."""
        self.judge.drop_table(table)
        del self.shapes[table], self.identities[table]
        self.keys.pop(table, None)
        self.sorted_by.pop(table, None)
        return True

    def rename(self, table: str, seed: int) -> bool:
        """ALTER TABLE … RENAME TO."""
        new = self.new_name("n")
        self.judge.rename_table(table, new)
        self.shapes[f"main.{new}"] = self.shapes.pop(table)
        self.identities[f"main.{new}"] = self.identities.pop(table)
        self.keys[f"main.{new}"] = self.keys.pop(table, set())
        if name := self.sorted_by.pop(table, None):
            self.sorted_by[f"main.{new}"] = name
        return True


STATEMENTS: Final[dict[str, Callable[[Writer, str, int], bool]]] = {
    method.__name__: method
    for method in (
        Writer.insert_small,
        Writer.insert_large,
        Writer.delete,
        Writer.delete_all,
        Writer.update,
        Writer.add_column,
        Writer.drop_column,
        Writer.rename_column,
        Writer.widen_column,
        Writer.partition,
        Writer.unpartition,
        Writer.sort,
        Writer.unsort,
        Writer.drop,
        Writer.rename,
    )
}
ROW_STATEMENTS: Final = ("insert_small", "insert_large", "delete", "update")
