"""Quoting of identifiers and literals for SQL text that cannot be bound as parameters."""

from __future__ import annotations

import re


def quote_identifier(name: str) -> str:
    """Return a name as a quoted SQL identifier, the only way names enter SQL text here.

    Args:
        name: Any non-empty identifier, in any spelling the catalog holds.

    Raises:
        ValueError: The name is empty or holds a NUL byte; no database accepts either.
    """
    if not name or "\0" in name:
        raise ValueError("an SQL identifier is never empty and holds no NUL byte")
    return '"' + name.replace('"', '""') + '"'


def quote_literal(value: str) -> str:
    """Return text as a quoted SQL string literal, for statements that take no parameters."""
    return "'" + value.replace("'", "''") + "'"


def qualified_name(schema: str, table: str) -> str:
    """Return `schema.table` so that `reader.split_name` reads both parts back.

    A part is double-quoted only where it would be read as something else.
    """
    return ".".join(
        quote_identifier(part) if re.search(r'[."]|^\s|\s$', part) else part
        for part in (schema, table)
    )
