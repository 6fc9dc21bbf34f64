"""A lake's scalar macros: SQL that the expressions of its sort orders may call by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.model import Macro, MacroBody, MacroParameter

_SCALAR: Final = (
    "SELECT s.schema_name, m.macro_name, i.macro_id, i.impl_id, i.sql FROM {ducklake_macro} m "
    "JOIN {ducklake_schema} s ON s.schema_id = m.schema_id "
    "JOIN {ducklake_macro_impl} i ON i.macro_id = m.macro_id "
    "WHERE i.dialect = 'duckdb' AND i.type = 'scalar' "
    "AND m.begin_snapshot <= ? AND (m.end_snapshot IS NULL OR m.end_snapshot > ?) "
    "AND s.begin_snapshot <= ? AND (s.end_snapshot IS NULL OR s.end_snapshot > ?) "
    "ORDER BY i.macro_id, i.impl_id"
)
_PARAMETERS: Final = (
    "SELECT macro_id, impl_id, column_id, parameter_name, parameter_type, default_value, "
    "default_value_type FROM {ducklake_macro_parameters} WHERE macro_id IN (??)"
)
_UNKNOWN: Final = "unknown"  # type of a parameter without one, and of a default that is not there


def read_macros(session: Session, snapshot_id: int) -> tuple[Macro, ...]:
    """Return the scalar macros in DuckDB's dialect that are visible at a snapshot.

    Source: the specification's pages of ducklake_macro, ducklake_macro_impl and
    ducklake_macro_parameters; what they leave out, by what DuckDB 1.5 writes.
    """
    rows = session.rows(_SCALAR, (snapshot_id,) * 4)
    parameters: dict[tuple[int, int], list[MacroParameter]] = defaultdict(list)
    found = session.rows_in(_PARAMETERS, {int(row[2]) for row in rows}) if rows else []
    for macro_id, impl_id, _, *parameter in sorted(found, key=lambda row: int(row[2])):
        parameters[int(macro_id), int(impl_id)].append(_parameter(*parameter))
    bodies: dict[tuple[str, str], list[MacroBody]] = defaultdict(list)
    for schema, name, macro_id, impl_id, sql in rows:
        body = MacroBody(tuple(parameters[int(macro_id), int(impl_id)]), sql)
        bodies[schema, name].append(body)
    return tuple(Macro(schema, name, tuple(found)) for (schema, name), found in bodies.items())


def _parameter(name: str, kind: str, default: str | None, default_kind: str) -> MacroParameter:
    type_ = None if kind == _UNKNOWN else kind
    if default_kind == _UNKNOWN:
        return MacroParameter(name, type_)
    return MacroParameter(name, type_, default, default_kind)


def macros_named_in(text: str, macros: Iterable[Macro]) -> tuple[Macro, ...]:
    """Return the macros whose names stand in an expression, or in what such a macro stands for.

    More than it calls may be among them: names are looked for as text, without case.
    """
    left = list(macros)
    texts, found = [text.lower()], []
    while texts:
        searched = texts.pop()
        named = [macro for macro in left if macro.name.lower() in searched]
        left = [macro for macro in left if macro not in named]
        found += named
        texts += [body.sql.lower() for macro in named for body in macro.bodies]
    return tuple(found)
