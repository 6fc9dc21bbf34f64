"""Sort orders: plain expressions of DuckDB's SQL, and calls of the lake's own macros."""

from __future__ import annotations

import re

import duckdb
import pytest

from airflow_provider_ducklake.kernels.sorting import order_by, order_error
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.model import Macro, MacroBody, MacroParameter, SortKey

COLUMNS = parse_columns("a int32, b int32")
ROWS = "(VALUES (1, 9), (2, 8), (3, 7)) AS t(a, b)"


def macro(name: str, *bodies: tuple[str, str], schema: str = "main") -> Macro:
    """Return a macro of bodies like `("x, y", "x + y")`."""
    made = (
        MacroBody(tuple(MacroParameter(p.strip()) for p in parameters.split(",")), sql)
        for parameters, sql in bodies
    )
    return Macro(schema, name, tuple(made))


_INTEGER = MacroParameter("x", "int32")
_LIST = MacroParameter("x", "list")  # whose elements nobody tells
_MINUS_TWO = MacroParameter("by", "int32", "-2", "int32")
_TEXT = MacroParameter("t", None, "it's", "varchar")
NEGATED = macro("negated", ("x", "-(x)"))
MACROS = (
    NEGATED,
    macro("Weird name", ("x", "negated(x)")),
    macro("negated", ("x", "x"), schema="other"),
    macro("mixed", ("x", "x"), ("x, y", "((x - x) + main.negated(y))")),
    macro("last", ("l", "list_transform([l], z -> negated(z))[1]")),
    macro("isnan", ("x", "-(x)")),
    Macro("main", "plus", (MacroBody((_INTEGER, _MINUS_TWO), '(x * "by")'),)),
    Macro("main", "quoted", (MacroBody((_LIST, _TEXT), "-((x + length(t)))"),)),
    macro("subquery", ("x", "(SELECT x)")),
    macro("recursive", ("x", "recursive(x)")),
    macro("broken", ("x", "(x + ")),
    macro("calls_none", ("x", "no_such_function(x)")),
)


@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("a", 1),
        ("b % 100", 3),
        ("negated(a)", 3),
        ("NEGATED(A)", 3),
        ("main.negated(a)", 3),
        ("my_lake.main.negated(a)", 3),
        ("my_lake.negated(a)", 3),
        ("other.negated(a)", 1),
        ('"Weird name"(a)', 3),
        ("mixed(a)", 1),
        ("mixed(b, a)", 3),
        ("last(a)", 3),
        ("plus(a)", 3),
        ('plus(a, "by" := 1)', 1),
        ("plus(a, 3)", 1),
        ("quoted(a)", 3),
        ("isnan(a)", 3),
        ("CASE WHEN negated(a) > -3 THEN 2 ELSE 1 END", 3),
    ],
)
def test_order(connection: duckdb.DuckDBPyConnection, expression: str, first: int) -> None:
    key = SortKey(expression, macros=MACROS)
    for _ in range(2):  # a connection serves several tables, whose macros have names in common
        order = order_by(connection, [key], COLUMNS, "a")
        rows = connection.execute(f"SELECT a FROM {ROWS} ORDER BY {order}").fetchall()
        assert rows[0] == (first,)
    assert order_error(connection, [key], COLUMNS) is None
    assert connection.execute("SELECT isnan('nan'::DOUBLE)").fetchone() == (True,)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("gone", '"gone" not found'),
        ("unknown(a)", "name unknown does not exist"),
        ("a, b", "not one SQL expression"),
        ("(SELECT a)", "not one SQL expression"),
        ("sum(a)", "aggregates"),
        ("row_number() OVER ()", "not one SQL expression"),
        ("subquery(a)", "macro main.subquery is not one SQL expression"),
        ("broken(a)", "macro main.broken is not one SQL expression"),
        ("recursive(a)", "macro main.recursive: "),
        ("calls_none(a)", "macro main.calls_none: "),
        ("negated(a, b)", "negated"),
        ("other.isnan(a)", "isnan"),
    ],
)
def test_keys_nobody_can_use(
    connection: duckdb.DuckDBPyConnection, expression: str, why: str
) -> None:
    key = SortKey(expression, macros=MACROS)
    with pytest.raises(ConfigurationError, match=re.escape(why)) as raised:
        order_by(connection, [key], COLUMNS, "a")
    assert str(raised.value).startswith(f"sort key {expression!r} cannot be used (")
    assert "set the table's sort order anew, or its option sort_on_insert" in str(raised.value)
    assert order_error(connection, [key], COLUMNS) == str(raised.value)


def test_macros_are_no_part_of_a_key() -> None:
    assert SortKey("negated(a)", macros=(NEGATED,)) == SortKey("negated(a)")
