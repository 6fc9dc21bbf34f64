"""Convert incoming values to a column's type, or fail naming the value that would change."""

from __future__ import annotations

from typing import Final

import duckdb
from duckdb.sqltypes import DuckDBPyType

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.identifiers import quote_literal
from airflow_provider_ducklake.lake.types import decimal_of, normalise, widens

_INTEGERS: Final = frozenset(
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64, 128)
)
_FLOATS: Final = frozenset({"float32", "float64"})
_CALENDAR: Final = frozenset(
    {"date", "timestamp_s", "timestamp_ms", "timestamp", "timestamp_us", "timestamp_ns"}
)
_CLOCK: Final = frozenset({"time", "time_ns"})

# Digits of a second that a type keeps; text with more would be cut.
_FRACTION: Final = {
    "timestamp_s": 0,
    "timestamp_ms": 3,
    "timestamp": 6,
    "timestamp_us": 6,
    "timestamptz": 6,
    "timestamp_ns": 9,
    "time": 6,
    "timetz": 6,
    "time_ns": 9,
    "interval": 6,
}
_ZONELESS: Final = frozenset(_FRACTION) - {"timestamptz", "timetz", "interval"}
_ZONE: Final = r":\d\d(\.\d+)?\s*([A-Za-z].*|[+-]\d\d(:?\d\d)*)$"
_NANOSECONDS: Final = "TIMESTAMP '1677-09-22 00:00:00' AND TIMESTAMP '2262-04-11 00:00:00'"
_DATE: Final = r"\d+-\d{1,2}-\d{1,2}( \(BC\))?|[+-]?infinity"


def conversion_sql(value: str, kind: DuckDBPyType, column: Column, label: str = "") -> str:
    """Return SQL that turns a value into the column's type and fails where anything is lost.

    Struct fields are matched by name, exactly or else without case. Text is read as DuckDB reads
    it, but never rounded or cut; instants and zoneless times are not taken for one another.

    Args:
        value: SQL expression of the incoming value; it may be evaluated several times.
        kind: DuckDB's type of it.
        column: The column it is for.
        label: What messages call the column; its name by default.

    Raises:
        BadInput: No value of the one type is a value of the other, or struct fields do not match.
    """
    label = label or column.name
    if kind == duckdb.sqltype(column.sql_type):
        return f"CAST({value} AS {column.sql_type})"
    if column.is_nested:
        return _nested(value, kind, column, label)
    if kind.id in ("struct", "list", "map", "array", "union") and column.type != "variant":
        raise _unfit(kind, column, label)
    return _scalar(value, kind, column, label)


def match_names(wanted: tuple[str, ...], given: list[str], what: str) -> list[int]:
    """Return for each wanted name the place of the given one: the exact one, else without case.

    Args:
        what: What has the names, for messages: `the input`, `column x`.

    Raises:
        BadInput: A wanted name is missing or ambiguous, or a given one is left over.
    """
    places = []
    for name in wanted:
        exact = [i for i, other in enumerate(given) if other == name]
        found = exact or [i for i, other in enumerate(given) if other.lower() == name.lower()]
        if len(found) != 1:
            problem = "has no field" if not found else "has several fields"
            raise BadInput(f"{what} {problem} {name!r}; it has {', '.join(map(repr, given))}")
        places.append(found[0])
    extra = [name for i, name in enumerate(given) if i not in places]
    if extra:
        raise BadInput(
            f"{what} has {', '.join(map(repr, extra))}, which the table does not have: drop it or "
            "add the column to the table"
        )
    return places


def _nested(value: str, kind: DuckDBPyType, column: Column, label: str) -> str:
    if column.type == "list" and kind.id == "array":
        kind = duckdb.list_type(_types(kind)[0])
        value = f"CAST({value} AS {kind})"
    if kind.id != column.type:
        raise _unfit(kind, column, label)
    variable = f"v{len(label)}"  # labels grow with depth, so no inner name hides an outer one
    types = _types(kind)
    if column.type == "struct":
        names = tuple(child.name for child in column.children)
        given = [name for name, _ in kind.children]
        parts = [
            f"{quote_literal(child.name)}: "
            + conversion_sql(
                f"struct_extract_at({value}, {place + 1})",
                types[place],
                child,
                f"{label}.{child.name}",
            )
            for child, place in zip(
                column.children, match_names(names, given, f"column {label}"), strict=True
            )
        ]
        return f"CASE WHEN {value} IS NOT NULL THEN {{{', '.join(parts)}}} END"
    if column.type == "list":
        item = conversion_sql(variable, types[0], column.children[0], f"{label}.element")
        return f"list_transform({value}, lambda {variable}: {item})"
    key, item = (
        conversion_sql(
            f"struct_extract_at({variable}, {i + 1})", types[i], child, f"{label}.{name}"
        )
        for i, (child, name) in enumerate(zip(column.children, ("key", "value"), strict=True))
    )
    pairs = f"list_transform(map_entries({value}), lambda {variable}: {{k: {key}, v: {item}}})"
    return f"CASE WHEN {value} IS NOT NULL THEN map_from_entries({pairs}) END"


def _scalar(value: str, kind: DuckDBPyType, column: Column, label: str) -> str:
    target = column.type
    if target == "variant":
        return f"CAST({value} AS VARIANT)"
    try:
        source = normalise(str(kind))
    except BadInput:
        raise _unfit(kind, column, label) from None
    if widens(source, target) or (source, target) == ("json", "varchar"):
        return f"CAST({value} AS {column.sql_type})"
    if source == "varchar":
        test = _text_test(value, column)
    elif _round_trips(source, target):
        back = f"TRY_CAST(TRY_CAST({value} AS {column.sql_type}) AS {kind})"
        test = f"{back} IS NOT DISTINCT FROM {value}"
    else:
        test = None
    if test is None:
        raise _unfit(kind, column, label)
    converted = f"TRY_CAST({value} AS {column.sql_type})"
    message = quote_literal(f"column {label}: a {source} does not fit into {target}: ")
    failure = f"error(concat({message}, left(CAST({value} AS VARCHAR), 100)))"
    before = ""
    if target == "timestamp_ns" and source in _CALENDAR:
        # Here TRY_CAST does not try (DuckDB 1.5.5), and CASE is what keeps it from running.
        before = f"WHEN isfinite({value}) AND {value} NOT BETWEEN {_NANOSECONDS} THEN {failure} "
    return (
        f"CASE WHEN {value} IS NULL THEN NULL {before}WHEN {test} THEN {converted} "
        f"ELSE {failure} END"
    )


def _round_trips(source: str, target: str) -> bool:
    """Tell whether a conversion is fine for just those values that come back unchanged."""
    if _is_number(source) and _is_number(target):
        return True
    if source in _CALENDAR and target in _CALENDAR:
        return True
    if source in _CLOCK and target in _CLOCK:
        return True
    return target == "varchar" and source not in ("blob", "variant", "geometry")


def _text_test(value: str, column: Column) -> str | None:
    """Return a predicate: the text means a value of the type and nothing beyond it; None: never."""
    kind = column.type
    text = f"trim({value})"
    parsed = f"TRY_CAST({value} AS {column.sql_type}) IS NOT NULL"
    if kind in _INTEGERS:
        return f"{parsed} AND regexp_full_match({text}, '[+-]?[0-9]+')"
    if (decimal := decimal_of(kind)) is not None:
        digits = rf"[+-]?[0-9]*(\.[0-9]{{0,{decimal[1]}}}0*)?"
        return f"{parsed} AND regexp_full_match({text}, {quote_literal(digits)})"
    if kind == "boolean":
        return f"lower({text}) IN ('true', 'false')"
    if kind == "date":
        return f"{parsed} AND regexp_full_match({text}, {quote_literal(_DATE)})"
    if kind in _FRACTION:
        cut = rf"\.\d{{{_FRACTION[kind]}}}\d*[1-9]"
        test = f"{parsed} AND NOT regexp_matches({value}, {quote_literal(cut)})"
        if kind in _ZONELESS:
            test += f" AND NOT regexp_matches({text}, {quote_literal(_ZONE)})"
        return test
    if kind in _FLOATS or kind in ("uuid", "json", "geometry"):
        return parsed
    return None


def _is_number(kind: str) -> bool:
    return kind in _INTEGERS or kind in _FLOATS or decimal_of(kind) is not None


def _types(kind: DuckDBPyType) -> list[DuckDBPyType]:
    return [child for _, child in kind.children if isinstance(child, DuckDBPyType)]


def _unfit(kind: DuckDBPyType, column: Column, label: str) -> BadInput:
    advice = "convert it before it is written"
    if {str(kind), column.sql_type} == {"TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}:
        advice = "decide which zone the zoneless times are in, and " + advice
    return BadInput(
        f"column {label}: the input is {kind}, the table wants {column.sql_type}: {advice}"
    )
