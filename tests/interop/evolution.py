"""Changes of columns and of fields at every depth, for the histories; see `writes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import duckdb

from airflow_provider_ducklake.lake.columns import Column, parse_type
from tests.interop.judge import Judge
from tests.interop.palette import WIDER, pick
from tests.interop.writes import MAX_COLUMNS, Writer
from tests.support.reference import Value

NESTED: Final = (
    "STRUCT(x INTEGER, y STRUCT(z VARCHAR), l STRUCT(e INTEGER)[], "
    "m MAP(VARCHAR, STRUCT(v FLOAT, w INTEGER)))"
)
_ADDED: Final = (
    ("INTEGER", "DEFAULT 8", 8),
    ("VARCHAR", "", None),
    ("STRUCT(n INTEGER)", "", None),
)
_MAX_FIELDS: Final = 4
# Fault of the reference: a field that gets another name or type loses its default, so that rows
# from before it was there become NULL. Those with one are called so, and stay as they are.
_DEFAULTED: Final = ("d", "dd", "ddd", "dddd")
_OTHERS: Final = ("x", "y", "e", "v", "f", "g")
_CHILDREN: Final = {"list": ("element",), "map": ("key", "value")}


@dataclass(frozen=True, slots=True)
class _Place:
    """A struct in a column: the positions that lead to it, and its name in SQL."""

    column: str
    path: tuple[int, ...]
    sql: str
    struct: Column


def add_field(writer: Writer, table: str, seed: int) -> bool:
    """ADD COLUMN s.f: some with a default; first a nested column where the table has none."""
    places = [p for p in _structs(writer, table) if len(p.struct.children) < _MAX_FIELDS]
    if not places:
        return _add_nested(writer, table)
    place = places[seed % len(places)]
    type_name, default, value = _ADDED[seed // 3 % len(_ADDED)]
    # A name that was there before comes back with another id.
    taken = {child.name for child in place.struct.children}
    name = next(n for n in (_DEFAULTED if default else _OTHERS) if n not in taken)
    _change(
        writer,
        table,
        place,
        f"ADD COLUMN {place.sql}.{name} {type_name} {default}",
        (*place.struct.children, parse_type(type_name, name)),
        lambda pairs: (*pairs, (name, value)),
    )
    return True


def drop_field(writer: Writer, table: str, seed: int) -> bool:
    """DROP COLUMN s.f, but not the last one."""
    places = [p for p in _structs(writer, table) if len(p.struct.children) > 1]
    if not places:
        return False
    place = places[seed % len(places)]
    fields = place.struct.children
    at = seed // 3 % len(fields)
    _change(
        writer,
        table,
        place,
        f"DROP COLUMN {place.sql}.{fields[at].name}",
        fields[:at] + fields[at + 1 :],
        lambda pairs: pairs[:at] + pairs[at + 1 :],
    )
    return True


def rename_field(writer: Writer, table: str, seed: int) -> bool:
    """RENAME COLUMN s.f TO a name that no field has had."""
    places = _structs(writer, table)
    if not places:
        return False
    place = places[seed % len(places)]
    fields = place.struct.children
    at, name = seed // 3 % len(fields), writer.new_name("f")
    if fields[at].name in _DEFAULTED:
        return False
    _change(
        writer,
        table,
        place,
        f"RENAME COLUMN {place.sql}.{fields[at].name} TO {name}",
        (*fields[:at], replace(fields[at], name=name), *fields[at + 1 :]),
        lambda pairs: (*pairs[:at], (name, pairs[at][1]), *pairs[at + 1 :]),
    )
    return True


def widen_field(writer: Writer, table: str, seed: int) -> bool:
    """ALTER COLUMN s TYPE to the same with one field of a wider type."""
    found = [
        (place, at)
        for place in _structs(writer, table)
        for at, child in enumerate(place.struct.children)
        if child.sql_type in WIDER and child.name not in _DEFAULTED
    ]
    if not found:
        return False
    place, at = found[seed % len(found)]
    fields = place.struct.children
    wider = parse_type(WIDER[fields[at].sql_type], fields[at].name)
    shape = writer.shapes[table]
    changed = _replaced(
        parse_type(shape[place.column]), place.path, (*fields[:at], wider, *fields[at + 1 :])
    )
    shape[place.column] = changed.sql_type
    writer.judge.alter(table, f'ALTER COLUMN "{place.column}" TYPE {changed.sql_type}')
    writer.retyped = True
    writer.forget_bounds()
    return True


def require_key(writer: Writer, table: str, seed: int) -> bool:
    """SET NOT NULL of the key, which never is; or DROP NOT NULL."""
    judge = writer.judge
    if judge.table(table).next_row_id == 0:
        return False  # the reference asks the statistics, and there are none
    ((_, _, nullable, *_), *_) = judge.client.sql(f"DESCRIBE {table}")
    try:
        judge.alter(table, f"ALTER COLUMN k {'SET' if nullable == 'YES' else 'DROP'} NOT NULL")
    except duckdb.CatalogException as error:
        # Nor where a restore has made them unknown.
        if "no column stats are available" not in str(error):
            raise
        return False
    return True


def change_default(writer: Writer, table: str, seed: int) -> bool:
    """SET DEFAULT, or DROP DEFAULT: it says nothing of the rows that are there."""
    flat = [(n, t) for n, t in writer.shapes[table].items() if t in ("INTEGER", "VARCHAR")]
    name, type_name = flat[seed % len(flat)]
    clause = f"SET DEFAULT {pick(type_name, seed // 2)[0]}" if seed % 3 else "DROP DEFAULT"
    if "(" in clause:
        clause = "DROP DEFAULT"  # no column takes an expression
    writer.judge.alter(table, f'ALTER COLUMN "{name}" {clause}')
    return True


def readd_column(writer: Writer, table: str, seed: int) -> bool:
    """DROP COLUMN, and ADD COLUMN of the same name: nothing of the old one comes back."""
    names = writer.free_columns(table)
    if not names:
        return False
    shape, name = writer.shapes[table], names[seed % len(names)]
    judge = writer.judge
    judge.alter(table, f'DROP COLUMN "{name}"', lambda model: model.drop_column(name))
    judge.alter(
        table, f'ADD COLUMN "{name}" INTEGER DEFAULT 6', lambda model: model.add_column(name, 6)
    )
    del shape[name]
    shape[name] = "INTEGER"
    return True


def forget_bounds_in_lists(judge: Judge) -> None:
    """Forget what tables say of fields of structs in lists and maps.

    Fault of the reference: it counts the NULLs beside such structs twice, takes a file for one of
    nothing but NULL, and does not widen the bounds.
    """
    judge.client.make_way()
    with judge.operations.open().view() as view:
        columns = [
            (t.table_id, node) for t in view.tables() for c in t.columns for node in c.walk()
        ]
    for table_id, column in columns:
        structs = [c for c in column.children if c.type == "struct" and column.type != "struct"]
        for field in (leaf for struct in structs for leaf in struct.leaves()):
            judge.change_catalog(
                "DELETE FROM ducklake_table_column_stats "
                f"WHERE table_id = {table_id} AND column_id = {field.column_id}"
            )


EVOLUTION: Final[dict[str, Callable[[Writer, str, int], bool]]] = {
    function.__name__: function
    for function in (
        add_field,
        drop_field,
        rename_field,
        widen_field,
        require_key,
        change_default,
        readd_column,
    )
}


def _add_nested(writer: Writer, table: str) -> bool:
    if len(writer.shapes[table]) >= MAX_COLUMNS:
        return False
    name = writer.new_name("s")
    writer.judge.alter(table, f'ADD COLUMN "{name}" {NESTED}', lambda model: model.add_column(name))
    writer.shapes[table][name] = NESTED
    return True


def _structs(writer: Writer, table: str) -> list[_Place]:
    """Return every struct of a table, at every depth."""

    def below(column: Column, top: str, path: tuple[int, ...], sql: str) -> Iterator[_Place]:
        if column.type == "struct":
            yield _Place(top, path, sql, column)
        names = _CHILDREN.get(column.type) or [child.name for child in column.children]
        for at, (child, name) in enumerate(zip(column.children, names, strict=True)):
            yield from below(child, top, (*path, at), f"{sql}.{name}")

    pinned = writer.free_columns(table)
    return [
        place
        for name, type_name in writer.shapes[table].items()
        if name in pinned and "(" in type_name and not type_name.startswith("DECIMAL")
        for place in below(parse_type(type_name), name, (), f'"{name}"')
    ]


def _change(
    writer: Writer,
    table: str,
    place: _Place,
    clause: str,
    fields: tuple[Column, ...],
    change: Callable[[Value], Any],
) -> None:
    """Alter one struct, in the lake, in the model and in what the writer knows."""
    shape = writer.shapes[table]
    kind = parse_type(shape[place.column])
    writer.judge.alter(
        table,
        clause,
        lambda model: model.convert_column(
            place.column, lambda value: _converted(value, kind, place.path, change)
        ),
    )
    shape[place.column] = _replaced(kind, place.path, fields).sql_type


def _replaced(kind: Column, path: tuple[int, ...], fields: tuple[Column, ...]) -> Column:
    """Return a type in which the struct at a path has other fields."""
    if not path:
        return replace(kind, children=fields)
    children = list(kind.children)
    children[path[0]] = _replaced(children[path[0]], path[1:], fields)
    return replace(kind, children=tuple(children))


def _converted(
    value: Value, kind: Column, path: tuple[int, ...], change: Callable[[Value], Any]
) -> Any:
    """Return a value of which each struct at a path, as pairs of name and value, is changed."""
    if value is None:
        return None
    if not path:
        return change(value)
    at, rest = path[0], path[1:]
    child = kind.children[at]
    if kind.type == "list":
        return tuple(_converted(item, child, rest, change) for item in value)
    if kind.type == "map":
        return tuple((key, _converted(item, child, rest, change)) for key, item in value)
    return tuple(
        (name, _converted(item, child, rest, change) if number == at else item)
        for number, (name, item) in enumerate(value)
    )
