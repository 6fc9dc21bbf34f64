"""Which macros of a lake an expression may call."""

from __future__ import annotations

import pytest

from airflow_provider_ducklake.lake.macros import macros_named_in
from airflow_provider_ducklake.lake.model import Macro, MacroBody


def _macro(name: str, *bodies: str) -> Macro:
    return Macro("main", name, tuple(MacroBody((), sql) for sql in bodies))


MACROS = (
    _macro("outer", "inner(x)", "x"),
    _macro("INNER", "x", "innermost(x)"),
    _macro("Innermost", "outer(x)"),
    _macro("other", "x"),
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("lower(v)", set()),
        ("lake.main.Other(v)", {"other"}),
        ("OUTER(v)", {"outer", "INNER", "Innermost"}),
        ('"other"(innermost(v))', {"outer", "INNER", "Innermost", "other"}),
    ],
)
def test_names_are_found_in_macros_too(text: str, names: set[str]) -> None:
    found = macros_named_in(text, MACROS)
    assert {macro.name for macro in found} == names
    assert len(found) == len(names)
