"""What a merge goes by, and which files it looks into: no Spark, no lake."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ducklake.kernels.pruning import parse_condition, prune
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.model import DataFile, WrittenFile
from airflow_provider_ducklake.lake.statistics import ColumnStatistics
from airflow_provider_ducklake.spark.operations.ingest_merge import key_columns, merge_rule
from airflow_provider_ducklake.spark.operations.upsert import key_range

COLUMNS = parse_columns('id int64, name varchar, "a, b" int64, x float64')
Key = tuple[int, str]


def _statistics(keys: list[Key]) -> tuple[ColumnStatistics, ...]:
    """Return what a file with these keys says of its columns."""
    count = len(keys)
    ids, names = [key[0] for key in keys], [key[1] for key in keys]
    return (
        ColumnStatistics(1, 0, count, 0, str(min(ids)), str(max(ids))),
        ColumnStatistics(2, 0, count, 0, min(names), max(names)),
    )


KEYS = st.lists(
    st.tuples(st.integers(-5, 5), st.sampled_from(["", "\0", "a", "it's", 'b"', "é"])), min_size=1
)


@settings(max_examples=15, deadline=None)
@given(source=KEYS, files=st.lists(KEYS, max_size=4))
def test_files_with_a_key_of_the_source_are_looked_into(
    source: list[Key], files: list[list[Key]]
) -> None:
    """However the keys lie: a file that is left out holds none of them."""
    columns = COLUMNS[:2]
    sql = key_range(columns, WrittenFile("k", len(source), 1, 1, _statistics(source)))
    types = {column.name: column.sql_type for column in columns}
    live = [DataFile(i, 1, f"{i}", len(keys), 1, 1, 1) for i, keys in enumerate(files)]
    statistics = {i: _statistics(keys) for i, keys in enumerate(files)}
    found = prune(parse_condition(sql, types), live, statistics, columns, types, {})
    left_out = {file.data_file_id for file in live} - {file.data_file_id for file in found}
    assert not [key for i in left_out for key in files[i] if key in source]


def test_unknown_bounds_rule_nothing_out() -> None:
    """Nor do those of floating-point columns, which leave NaN out."""
    bounds = (ColumnStatistics(1, 0, 1, 0), ColumnStatistics(4, 0, 1, 0, "1.0", "2.0"))
    assert key_range((COLUMNS[0], COLUMNS[3]), WrittenFile("k", 1, 1, 1, bounds)) == ""


def test_keys_and_condition() -> None:
    """Names are found without case, and quoted where a comma is in one."""
    given_types = {"ID": "BIGINT", "op": "VARCHAR", "name": "VARCHAR"}
    rule = merge_rule('ID, "a, b"', "op = 'D' AND name <> ''", given_types, COLUMNS)
    assert (rule.keys, rule.aside) == (("ID", "a, b"), ("op",))
    assert [column.column_id for column in key_columns(rule, COLUMNS, "t")] == [1, 3]
    for keys in (None, "", "id,,name"):
        with pytest.raises(ConfigurationError, match="merge_keys"):
            merge_rule(keys, None, given_types, COLUMNS)
