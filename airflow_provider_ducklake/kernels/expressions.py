"""Expressions that a catalog stores: whether they are plain ones, and the macros they call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb

from airflow_provider_ducklake.kernels.connection import detail
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.identifiers import quote_identifier, quote_literal
from airflow_provider_ducklake.lake.model import Macro, MacroBody, MacroParameter
from airflow_provider_ducklake.lake.types import DUCKDB_NAMES, decimal_of, duckdb_type

# Macros are defined where no search path leads: by its bare name, one called like a function of
# DuckDB's would be taken for it in every other statement of the connection.
_SCHEMA: Final = "ducklake_macros"
_DEFAULT_SCHEMA: Final = "main"

Node = dict[str, Any]  # of a statement as DuckDB's json_serialize_sql writes it


def parse_plain(connection: duckdb.DuckDBPyConnection, text: str) -> Node | None:
    """Return the statement `SELECT text`; None where text is not one plain expression.

    Plain is what is computed from one row alone: no subquery, star or window function.
    """
    row = connection.execute("SELECT json_serialize_sql('SELECT ' || ?)", [text]).fetchone()
    parsed: Node = json.loads(row[0]) if row else {"error": True}
    if parsed["error"] or len(parsed["statements"]) != 1:
        return None
    node = parsed["statements"][0]["node"]
    if node.get("type") != "SELECT_NODE" or len(node["select_list"]) != 1:
        return None
    if node["from_table"]["type"] != "EMPTY" or node["where_clause"] or node["modifiers"]:
        return None
    if node["group_expressions"] or node["select_list"][0]["alias"]:
        return None
    classes = {part.get("class") for part in walk(node["select_list"])}
    return None if classes & {"SUBQUERY", "STAR", "WINDOW"} else parsed


def with_macros(
    connection: duckdb.DuckDBPyConnection, parsed: Node, text: str, macros: Iterable[Macro]
) -> str:
    """Return an expression that calls a lake's macros so that DuckDB finds them, and define those.

    A name is found as a stock client that has the lake in use finds it: in the schema it names, in
    `main` if it names none, and before a function of DuckDB's.

    Args:
        connection: From `open_connection`.
        parsed: The expression as `parse_plain` returned it; is changed.
        text: The expression as it is stored.
        macros: The lake's macros, those it may call at least.

    Raises:
        ConfigurationError: A macro it calls cannot be used, and why.
    """
    known = {(macro.schema.lower(), macro.name.lower()): macro for macro in macros}
    if not known:
        return text
    calls = _Calls(connection, known)
    return calls.resolved(parsed) if calls.are_in(parsed) else text


@dataclass
class _Calls:
    """The macros that are called somewhere, each defined once."""

    connection: duckdb.DuckDBPyConnection
    known: Mapping[tuple[str, str], Macro]
    defined: set[Macro] = field(default_factory=set)

    def are_in(self, parsed: Node) -> bool:
        return any(self._find(part) for part in walk(parsed))

    def resolved(self, parsed: Node) -> str:
        for part in walk(parsed):
            macro = self._find(part)
            if macro is not None:
                self._define(macro)
                part |= {"catalog": "", "schema": _SCHEMA, "function_name": _name(macro)}
        query = "SELECT json_deserialize_sql(?::JSON)"
        row = self.connection.execute(query, [json.dumps(parsed)]).fetchone()
        return str((row or ("",))[0]).removeprefix("SELECT ")

    def _find(self, part: Node) -> Macro | None:
        if part.get("class") != "FUNCTION" or part["is_operator"]:
            return None
        name, schema = part["function_name"].lower(), part["schema"].lower()
        if not part["catalog"] and schema not in {known for known, _ in self.known}:
            schema = ""  # as in `lake.m(v)`: the name of the lake itself, which differs by session
        return self.known.get((schema or _DEFAULT_SCHEMA, name))

    def _define(self, macro: Macro) -> None:
        if macro in self.defined:
            return
        self.defined.add(macro)
        bodies = ", ".join(self._body(macro, body) for body in macro.bodies)
        try:
            self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}")
            name = quote_identifier(_name(macro))
            self.connection.execute(f"CREATE OR REPLACE MACRO {_SCHEMA}.{name}{bodies}")
        except duckdb.Error as error:
            raise ConfigurationError(f"macro {_name(macro)}: {detail(error)}") from None

    def _body(self, macro: Macro, body: MacroBody) -> str:
        parsed = parse_plain(self.connection, body.sql)
        if parsed is None:
            raise ConfigurationError(f"macro {_name(macro)} is not one SQL expression")
        parameters = ", ".join(map(_parameter, body.parameters))
        return f"({parameters}) AS ({self.resolved(parsed)})"


def walk(node: object) -> Iterator[Node]:
    """Yield the nodes at or below a part of a parsed statement, outer ones first."""
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from walk(child)
    elif isinstance(node, list):
        for child in node:
            yield from walk(child)


def _parameter(parameter: MacroParameter) -> str:
    text = quote_identifier(parameter.name)
    kind = _type(parameter.type)
    text += f" {kind}" if kind else ""
    if parameter.default_type is None:
        return text
    default = "NULL" if parameter.default is None else quote_literal(parameter.default)
    kind = _type(parameter.default_type)
    return f"{text} := " + (f"CAST({default} AS {kind})" if kind else default)


def _type(name: str | None) -> str | None:
    """Return DuckDB's name of a type; None for an open one and for a nested one, told as `list`."""
    if name is None or (name not in DUCKDB_NAMES and decimal_of(name) is None):
        return None
    return duckdb_type(name)


def _name(macro: Macro) -> str:
    return f"{macro.schema}.{macro.name}"
