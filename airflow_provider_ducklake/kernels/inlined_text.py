"""The text an inlined struct is stored as in SQLite and PostgreSQL, turned into DuckDB's own.

There the reference stores a struct as an SQL literal, `{'a': 'it''s', 'at': CAST('…' AS …)}`, and
reads it back with a cast, which takes `''` and `\\` for something else and fails on CAST. A list or
map, and whatever is inside one, is stored in the form of a cast to VARCHAR.

Source: ToSQLString in the reference's common/ducklake_util.cpp; tried with 1.5.5 on SQLite.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from airflow_provider_ducklake.lake.columns import Column

_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'")
_CAST: Final = re.compile(r"CAST\('((?:[^']|'')*)' AS [A-Za-z0-9_(), ]+?\)(?=, '|\}|$)")
_CONCAT: Final = re.compile(
    r"CONCAT\(((?:'(?:[^']|'')*'|chr\(0\))(?:, (?:'(?:[^']|'')*'|chr\(0\)))*)\)"
)
_CONCAT_PART: Final = re.compile(r"'((?:[^']|'')*)'|chr\(0\)")
_BARE: Final = re.compile(r"[^,'{}\[\]]+")


class _NoSqlLiteral(Exception):
    """The text is in another form."""


def struct_from_sql(text: str, column: Column) -> str | None:
    """Return a struct's SQL literal in the form DuckDB casts to the struct.

    Args:
        text: Stored value of a column of type struct.
        column: The column, for the names and types of its fields.

    Returns:
        The text to cast, or None where the stored text is no such SQL literal.
    """
    scanner = _Scanner(text)
    try:
        rewritten = scanner.struct(column)
    except _NoSqlLiteral:
        return None
    return rewritten if scanner.position == len(text) else None


@dataclass(slots=True)
class _Scanner:
    text: str
    position: int = 0

    def struct(self, column: Column) -> str:
        parts = []
        for index, child in enumerate(column.children):
            self._expect("{" if index == 0 else ", ")
            name = self._quoted()
            if name != child.name:
                raise _NoSqlLiteral
            self._expect(": ")
            parts.append(f"{_quote(name)}: {self._value(child)}")
        self._expect("}")
        return f"{{{', '.join(parts)}}}"

    def _value(self, column: Column) -> str:
        if self._at("NULL"):
            self.position += len("NULL")
            return "NULL"
        if column.type == "struct":
            return self.struct(column)
        if column.is_nested:
            return self._verbatim()
        if self._at("'"):
            return _quote(self._quoted())
        if self._at("CONCAT("):
            match = self._match(_CONCAT)
            parts = _CONCAT_PART.finditer(match[1])
            return _quote("".join("\0" if p[1] is None else _unquote(p[1]) for p in parts))
        if self._at("CAST("):
            return _quote(_unquote(self._match(_CAST)[1]))
        return self._match(_BARE)[0]

    def _verbatim(self) -> str:
        """Take a list or map as it stands: brackets in balance, quotes escaped by backslashes."""
        start, depth, quoted = self.position, 0, False
        while self.position < len(self.text):
            character = self.text[self.position]
            if quoted and character == "\\":
                self.position += 1
            elif character == "'":
                quoted = not quoted
            elif not quoted:
                depth += (character in "[{") - (character in "]}")
            self.position += 1
            if depth == 0:
                return self.text[start : self.position]
        raise _NoSqlLiteral

    def _quoted(self) -> str:
        return _unquote(self._match(_QUOTED)[1])

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self.text, self.position)
        if match is None:
            raise _NoSqlLiteral
        self.position = match.end()
        return match

    def _at(self, start: str) -> bool:
        return self.text.startswith(start, self.position)

    def _expect(self, what: str) -> None:
        if not self._at(what):
            raise _NoSqlLiteral
        self.position += len(what)


def _unquote(inside: str) -> str:
    return inside.replace("''", "'")


def _quote(value: str) -> str:
    """Quote a text inside DuckDB's form of a nested value."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
