"""Any tree of columns, any history of changes to it, and what a value reads as after them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.identifiers import quote_literal
from airflow_provider_ducklake.lake.model import NameMapEntry

NAMES = ["a", "b c", 'd"e', "f'g", "ü", "h.i", "Element", "key", "list", "file"]
SCALARS = ["int32", "int64", "varchar", "float32", "float64", "decimal(9,2)"]
WIDER = {"int32": "int64", "float32": "float64", "decimal(9,2)": "decimal(18,4)"}
DEFAULTS = {"int32": "42", "int64": "-7", "varchar": "it's", "float64": "0.5"}


@dataclass
class Ids:
    """Hands out column ids, as a table does: never one twice."""

    following: Iterator[int]

    def __call__(self) -> int:
        return next(self.following)


@st.composite
def columns_of(draw: st.DrawFn, ids: Ids, depth: int, size: int = 3) -> tuple[Column, ...]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=size, unique=True))
    return tuple(draw(column_of(ids, name, depth)) for name in names)


@st.composite
def column_of(draw: st.DrawFn, ids: Ids, name: str, depth: int) -> Column:
    kinds = [*SCALARS] if depth == 0 else [*SCALARS, "struct", "struct", "list", "map"]
    kind = draw(st.sampled_from(kinds))
    column = Column(ids(), name, kind)
    if kind == "struct":
        return replace(column, children=draw(columns_of(ids, depth - 1)))
    if kind == "list":
        return replace(column, children=(draw(column_of(ids, "element", depth - 1)),))
    if kind == "map":
        key = Column(ids(), "key", draw(st.sampled_from(["int32", "varchar"])))
        return replace(column, children=(key, draw(column_of(ids, "value", depth - 1))))
    return column


@st.composite
def changed(draw: st.DrawFn, columns: tuple[Column, ...], ids: Ids) -> tuple[Column, ...]:
    """Rename, widen, drop, add and reorder the fields of a struct (or a table), at every depth."""
    names = iter(draw(st.permutations(NAMES)))
    kept = [column for column in columns if draw(st.integers(0, 4))] or list(columns[:1])
    result = [draw(changed_column(column, next(names), ids)) for column in kept]
    if draw(st.booleans()):
        added = draw(column_of(ids, next(names), 1))
        result.append(replace(added, initial_default=DEFAULTS.get(added.type)))
    return tuple(draw(st.permutations(result)))


@st.composite
def changed_column(draw: st.DrawFn, column: Column, name: str, ids: Ids) -> Column:
    name = draw(st.sampled_from([name, column.name])) if column.name not in NAMES else name
    if column.type == "struct":
        return replace(column, name=name, children=draw(changed(column.children, ids)))
    if column.is_nested:
        children = tuple(draw(changed_column(c, c.name, ids)) for c in column.children)
        names = ("element",) if column.type == "list" else ("key", "value")
        children = tuple(replace(c, name=n) for c, n in zip(children, names, strict=True))
        return replace(column, name=name, children=children)
    kind = WIDER.get(column.type, column.type) if draw(st.booleans()) else column.type
    return replace(column, name=name, type=kind)


def values_of(column: Column) -> st.SearchStrategy[Any]:
    """Values of a column: structs as {column id: value}, scalars as numbers or text, or None."""
    if column.type == "struct":
        some: st.SearchStrategy[Any] = st.fixed_dictionaries(
            {child.column_id: values_of(child) for child in column.children}
        )
    elif column.type == "list":
        some = st.lists(values_of(column.children[0]), max_size=3)
    elif column.type == "map":
        numbers = column.children[0].type == "int32"
        keys: st.SearchStrategy[Any] = st.integers(0, 5) if numbers else st.text("xy'", max_size=2)
        some = st.dictionaries(keys, values_of(column.children[1]), max_size=2)
    elif column.type == "varchar":
        some = st.text("aé'\"{}", max_size=4)
    else:
        some = st.integers(-1000, 1000)
    return st.none() | some


def literal(value: Any, column: Column) -> str:
    """The value as SQL, typed, by the names the column has."""
    if value is None:
        text = "NULL"
    elif column.type == "struct":
        parts = (
            f"{quote_literal(c.name)}: {literal(value[c.column_id], c)}" for c in column.children
        )
        text = f"{{{', '.join(parts)}}}"
    elif column.type == "list":
        text = f"[{', '.join(literal(item, column.children[0]) for item in value)}]"
    elif column.type == "map":
        key, item = column.children
        pairs = (f"{literal(k, key)}: {literal(v, item)}" for k, v in value.items())
        text = f"MAP {{{', '.join(pairs)}}}"
    else:
        text = quote_literal(value) if column.type == "varchar" else str(value)
    return f"CAST({text} AS {column.sql_type})"


def expected(value: Any, written: Column, wanted: Column) -> Any:
    """What a value written as one version of a column reads as in another, as Python."""
    if value is None:
        return None
    if wanted.type == "struct":
        by_id = {child.column_id: child for child in written.children}
        return {
            child.name: expected(value[child.column_id], by_id[child.column_id], child)
            if child.column_id in by_id
            else default(child)
            for child in wanted.children
        }
    if wanted.type == "list":
        return [expected(item, written.children[0], wanted.children[0]) for item in value]
    if wanted.type == "map":
        return {k: expected(v, written.children[1], wanted.children[1]) for k, v in value.items()}
    return value


def default(column: Column) -> Any:
    if column.initial_default is None:
        return None
    return column.initial_default if column.type == "varchar" else float(column.initial_default)


def entries_of(columns: Sequence[Column]) -> tuple[NameMapEntry, ...]:
    """The name mapping that registering a file of these columns would store."""
    return tuple(
        NameMapEntry(
            "list" if column.name == "element" else column.name,
            column.column_id,
            children=entries_of(column.children),
        )
        for column in columns
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[tuple[Column, ...], tuple[Column, ...], list[list[Any]]]:
    ids = Ids(itertools.count(1))
    written = draw(columns_of(ids, 3))
    wanted = draw(changed(written, ids))
    rows = draw(st.lists(st.tuples(*map(values_of, written)).map(list), min_size=1, max_size=4))
    return written, wanted, rows
