"""Quoting of identifiers and literals for SQL text that cannot be bound as parameters."""

from __future__ import annotations

import re

from airflow_provider_ducklake.lake.errors import NotFound


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
    """Return `schema.table` so that `split_name` reads both parts back.

    A part is double-quoted only where it would be read as something else.
    """
    return ".".join(
        quote_identifier(part) if re.search(r'[."]|^\s|\s$', part) else part
        for part in (schema, table)
    )


def split_name(name: str) -> tuple[str, str]:
    """Split `schema.table` (parts may be double-quoted) into schema and table name.

    Inside quotes two quotes stand for one, as in SQL.

    Raises:
        NotFound: The name is empty or has more than two parts.
    """
    parts, quoted, current = [], False, ""
    text = name.strip()
    for position, character in enumerate(text):
        if character == '"':
            quoted = not quoted
            if quoted and position and text[position - 1] == '"':
                current += character  # the second of two inside quotes
        elif character == "." and not quoted:
            parts.append(current)
            current = ""
        else:
            current += character
    parts.append(current)
    if not all(parts) or len(parts) > 2:
        raise NotFound(f"{name!r} is no table name: write schema.table, or table for schema main")
    return ("main", parts[0]) if len(parts) == 1 else (parts[0], parts[1])
