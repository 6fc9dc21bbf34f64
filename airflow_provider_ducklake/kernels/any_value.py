"""Predicates over a value and all that is inside it: the leaves of structs, lists and maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.identifiers import quote_literal

# Returns a predicate over a value, given as SQL, of a column without children; None: never true.
LeafPredicate = Callable[[str, Column], str | None]


def any_value(
    value: str, column: Column, leaf: LeafPredicate, sieve: LeafPredicate | None = None
) -> str | None:
    """Return a predicate that is true when one holds for a value or for any inside it.

    Args:
        value: SQL of the value.
        column: Its column, as the SQL names the fields of structs.
        leaf: The predicate, for each column without children at or below that one.
        sieve: A cheap predicate over a list of values of such a column, true wherever `leaf` is for
            one of them: lists that do not pass are not walked, which long ones take far longer.

    Returns:
        The predicate, false or NULL where none holds; None when `leaf` has none.
    """
    if column.type == "struct":
        return _any_of(
            any_value(f"struct_extract({value}, {quote_literal(child.name)})", child, leaf, sieve)
            for child in column.children
        )
    if column.type == "list":
        return _any_inside(value, column.children[0], leaf, sieve)
    if column.type == "map":
        key, item = column.children
        return _any_of(
            (
                _any_inside(f"map_keys({value})", key, leaf, sieve),
                _any_inside(f"map_values({value})", item, leaf, sieve),
            )
        )
    return leaf(value, column)


def _any_inside(
    values: str, element: Column, leaf: LeafPredicate, sieve: LeafPredicate | None
) -> str | None:
    # One variable name for every depth: an inner lambda shadows the outer one, as it should.
    predicate = any_value("v", element, leaf, sieve)
    if predicate is None:
        return None
    found = f"list_bool_or(list_transform({values}, lambda v: {predicate}))"
    if sieve is not None and not element.is_nested and (passes := sieve(values, element)):
        found = f"CASE WHEN {passes} THEN {found} END"
    return f"coalesce({found}, false)"


def _any_of(predicates: Iterable[str | None]) -> str | None:
    known = [predicate for predicate in predicates if predicate is not None]
    return f"({' OR '.join(known)})" if known else None
