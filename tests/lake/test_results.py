"""Results stay small, and survive the way to XCom and back."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.results import (
    Failure,
    OperationResult,
    Skipped,
    TableResult,
    worth_telling,
)

TABLES = st.lists(
    st.builds(
        TableResult,
        st.text(min_size=1),
        files_in=st.integers(0, 2),
        rows=st.integers(0, 1),
        error=st.sampled_from([None, None, "it broke"]),
        skipped=st.lists(st.builds(Skipped, st.text(), st.integers(0, 9)), max_size=2).map(tuple),
    ),
    max_size=12,
)


@given(TABLES, st.integers(0, 6))
def test_what_is_told_of_many_tables(tables: list[TableResult], limit: int) -> None:
    """No table is lost; none that changed or failed stays out for one that did neither."""
    told, others = worth_telling(tables, limit)
    assert len(told) == min(limit, len(tables))
    assert sorted(map(str, told + others)) == sorted(map(str, tables))
    for part in (told, others):
        places = [next(i for i, t in enumerate(tables) if t is table) for table in part]
        assert places == sorted(places)
    if any(table.error for table in others):
        assert all(table.error for table in told)
    elif any(table.files_in or table.rows for table in others):
        assert all(table.error or table.files_in or table.rows for table in told)


@given(TABLES, st.lists(st.builds(Failure, st.text(), st.text()), max_size=2))
def test_there_and_back(tables: list[TableResult], failures: list[Failure]) -> None:
    """A result is the same after JSON."""
    result = OperationResult(
        "checkpoint", "a lake", tables=tuple(tables), failures=tuple(failures), messages=("m",)
    )
    assert OperationResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    assert result.is_failed == (bool(failures) or any(table.error for table in tables))
