"""What a client answers, or leaves files out for, by statistics alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from airflow_provider_ducklake.lake.identifiers import quote_identifier
from tests.support.model import ModelLake, ModelTable


def telling_states(model: ModelLake) -> Iterator[tuple[str, int, ModelTable]]:
    """Yield name, snapshot and rows of each table at the oldest snapshot with rows, and the newest.

    Such statistics are the table's, whatever snapshot is asked: no snapshot between tells more.
    """
    filled: dict[str, list[tuple[int, ModelTable]]] = {}
    for snapshot in model.kept:
        for name, table in model.tables_at(snapshot).items():
            if table.rows:
                filled.setdefault(name, []).append((snapshot, table))
    for name, states in filled.items():
        for snapshot, table in dict((states[0], states[-1])).items():
            yield name, snapshot, table


def questions(
    table: ModelTable, without: Collection[str], *, extremes: bool
) -> Iterator[tuple[str, str, list[Any], Any]]:
    """Yield what to select of a table, under which condition with which parameters, and the answer.

    Args:
        table: The table at one snapshot.
        without: Names of columns not to ask about.
        extremes: Also ask for the least and greatest value.
    """
    for at, column in enumerate(table.columns):
        if column in without:
            continue
        name = quote_identifier(column)
        values = Counter(row[at] for row in table.rows.values())
        # Of what is not there nothing can be hidden.
        if nulls := values.pop(None, 0):
            yield "count(*)", f"{name} IS NULL", [], nulls
        # Nested values, and floats that are no numbers, have no order here. The reference loses
        # blobs by itself: it writes their bounds in one spelling and reads them in another.
        if len(kinds := {type(value) for value in values}) != 1 or kinds & {tuple, float, bytes}:
            continue
        for function, bound in (("min", min(values)), ("max", max(values))):
            if extremes:
                yield f"{function}({name})", "true", [], bound
            yield "count(*)", f"{name} = ?", [bound], values[bound]
