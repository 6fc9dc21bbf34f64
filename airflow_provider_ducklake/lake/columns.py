"""Columns of a table as a tree of ids, names and types, and the text form people write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.types import NESTED, duckdb_type, normalise

_RESERVED: Final = "_ducklake_internal_"  # as the row ids and snapshots that data files carry


@dataclass(frozen=True, slots=True)
class Column:
    """One version of a column, or of a field inside a nested column.

    Attributes:
        column_id: Unique in the table for ever; also the Parquet field id.
        name: Name at the snapshot it was read for.
        type: DuckLake type name: `int32`, `decimal(10,2)`, `struct`, `list`, `map`, …
        nulls_allowed: False where the table says NOT NULL.
        initial_default: Value of rows in files that lack the column, as text; None is NULL.
        default_value: Value of new rows that do not name the column, as text; None is NULL.
        default_value_type: `literal` or `expression`; empty for nested columns.
        children: Struct fields; the element of a list; key and value of a map.
    """

    column_id: int
    name: str
    type: str
    nulls_allowed: bool = True
    initial_default: str | None = None
    default_value: str | None = None
    default_value_type: str = "literal"
    children: tuple[Column, ...] = ()

    @property
    def is_nested(self) -> bool:
        """True for struct, list and map."""
        return self.type in NESTED

    @property
    def sql_type(self) -> str:
        """The column's type in DuckDB's SQL, nested types spelled out."""
        if self.type == "struct":
            fields = (f"{quote_identifier(c.name)} {c.sql_type}" for c in self.children)
            return f"STRUCT({', '.join(fields)})"
        if self.type == "list":
            return f"{self.children[0].sql_type}[]"
        if self.type == "map":
            return f"MAP({self.children[0].sql_type}, {self.children[1].sql_type})"
        return duckdb_type(self.type)

    def walk(self) -> Iterator[Column]:
        """Yield this column and everything below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> Iterator[Column]:
        """Yield the scalar columns at or below this one."""
        return (column for column in self.walk() if not column.is_nested)


def leaves(columns: Iterable[Column]) -> Iterator[Column]:
    """Yield every scalar column below the given top-level columns."""
    for column in columns:
        yield from column.leaves()


def leaf_paths(columns: Iterable[Column], above: str = "") -> dict[int, str]:
    """Return what people call each scalar column, by its id: `s.f`, `tags.element`, `m.key`.

    Args:
        columns: Columns of one level.
        above: Path of what holds them, with a dot at its end; empty for top-level columns.
    """
    paths: dict[int, str] = {}
    for column in columns:
        path = above + column.name
        below = leaf_paths(column.children, f"{path}.")
        paths |= below if column.is_nested else {column.column_id: path}
    return paths


def find_column(columns: Iterable[Column], name: str) -> Column | None:
    """Return the top-level column of that name, compared without case as DuckDB does."""
    wanted = name.lower()
    return next((column for column in columns if column.name.lower() == wanted), None)


def parse_columns(definition: str) -> tuple[Column, ...]:
    """Parse a column list, `id int64 NOT NULL, tags varchar[], at timestamptz DEFAULT 'x'`.

    Ids are numbered from 1 in the order the reference numbers them: a parent before its children.

    Args:
        definition: Comma-separated `name type [NOT NULL]`; names may be double-quoted.

    Raises:
        BadInput: A name is missing or doubled, or a type is unknown.
    """
    columns = tuple(_parse_field(text) for text in _split(definition))
    if not columns:
        raise BadInput("a table needs at least one column, e.g. `id int64, name varchar`")
    return number_columns(columns)


def parse_type(text: str, name: str = "") -> Column:
    """Parse one type, nested ones too, to a column without ids (all zero)."""
    text = text.strip()
    if text.endswith("[]"):
        return Column(0, name, "list", children=(parse_type(text[:-2], "element"),))
    head, _, rest = text.partition("(")
    kind = head.strip().lower()
    if kind == "struct" and rest.endswith(")"):
        fields = tuple(_parse_field(part) for part in _split(rest[:-1]))
        _refuse_doubled(fields)
        return Column(0, name, "struct", children=fields)
    if kind == "map" and rest.endswith(")"):
        parts = _split(rest[:-1])
        if len(parts) != 2:
            raise BadInput(f"type {text!r}: a map has a key type and a value type")
        pair = (parse_type(parts[0], "key"), parse_type(parts[1], "value"))
        return Column(0, name, "map", children=pair)
    return Column(0, name, normalise(text))


def number_columns(columns: Iterable[Column], first: int = 1) -> tuple[Column, ...]:
    """Return the columns with consecutive ids, a parent before its children.

    Raises:
        BadInput: A name is doubled, or one that DuckLake's files use for themselves.
    """
    columns = tuple(columns)
    _refuse_doubled(columns)
    for column in columns:
        if column.name.lower().startswith(_RESERVED):
            raise BadInput(f"column {column.name!r}: names in {_RESERVED}… are DuckLake's own")
    numbered, _ = _number(columns, first)
    return numbered


def _number(columns: tuple[Column, ...], following: int) -> tuple[tuple[Column, ...], int]:
    result = []
    for column in columns:
        column_id = following
        children, following = _number(column.children, following + 1)
        result.append(replace(column, column_id=column_id, children=children))
    return tuple(result), following


def _parse_field(text: str) -> Column:
    text = text.strip()
    if text.startswith('"'):
        end = _closing_quote(text)
        name, rest = text[1:end].replace('""', '"'), text[end + 1 :]
    else:
        name, _, rest = text.partition(" ")
    rest = rest.strip()
    if not name or not rest:
        raise BadInput(f"column {text!r}: write a name and a type, e.g. `id int64`")
    nulls_allowed = True
    if rest.upper().endswith("NOT NULL"):
        nulls_allowed, rest = False, rest[: -len("NOT NULL")].strip()
    column = parse_type(rest, name)
    kind = "" if column.is_nested else "literal"
    return replace(column, nulls_allowed=nulls_allowed, default_value_type=kind)


def _closing_quote(text: str) -> int:
    position = 1
    while position < len(text):
        if text[position] != '"':
            position += 1
        elif text[position + 1 : position + 2] == '"':
            position += 2
        else:
            return position
    raise BadInput(f"column {text!r}: the quote before the name is never closed")


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses and quotes."""
    parts, depth, quoted, start = [], 0, False, 0
    for position, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [part for part in (*parts, text[start:]) if part.strip()]


def _refuse_doubled(columns: tuple[Column, ...]) -> None:
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise BadInput(f"column {column.name!r} is named twice (names ignore case)")
        seen.add(column.name.lower())
