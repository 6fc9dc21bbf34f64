"""The `changes_made` grammar and its conflicts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.changes import (
    Change,
    compaction_changes,
    created_schema,
    created_table,
    find_conflict,
    format_changes,
    parse_changes,
    table_change,
)
from airflow_provider_ducklake.lake.errors import UnsupportedCatalog

names = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=12)
changes = st.one_of(
    st.builds(created_table, names, names),
    st.builds(created_schema, names),
    st.builds(
        table_change,
        st.sampled_from(
            ["inserted_into_table", "inlined_delete", "merge_adjacent", "inline_flush"]
        ),
        st.integers(0, 10**12),
    ),
)


@given(st.lists(changes, max_size=6, unique=True))
def test_what_is_written_is_read_back(written: list[Change]) -> None:
    assert parse_changes(format_changes(written)) == tuple(written)


def test_names_with_commas_and_quotes_stay_whole() -> None:
    text = 'created_table:"ma,in"."a ""b"", c",inserted_into_table:3'
    assert [c.about for c in parse_changes(text)] == ['"ma,in"."a ""b"", c"', "3"]


def test_words_of_the_reference_are_understood_in_any_case() -> None:
    words = "Inlined_Insert:1,inlined_delete:2,flushed_inlined:3,compacted_table:4,dropped_view:9"
    parsed = parse_changes(words)
    assert [c.table_id for c in parsed] == [1, 2, 3, 4, None]
    assert [c.is_upkeep for c in parsed] == [False, False, True, True, False]


@pytest.mark.parametrize("text", ["vacuumed_table:1", "inserted_into_table:x", "nonsense"])
def test_an_unknown_change_stops_a_writer(text: str) -> None:
    with pytest.raises(UnsupportedCatalog, match="does not know"):
        parse_changes(text)


def test_nothing_is_no_change() -> None:
    assert parse_changes(None) == parse_changes("") == ()


# docs/stable/duckdb/advanced_features/conflict_resolution.md, row by row. Compaction against
# deletes is decided by the files themselves (test_compaction), not by these words.
@pytest.mark.parametrize(
    ("ours", "theirs", "conflict"),
    [
        ("inserted_into_table:1", "inserted_into_table:1", False),
        ("inserted_into_table:1", "dropped_table:1", True),
        ("inserted_into_table:1", "altered_table:1", True),
        ("inserted_into_table:1", "deleted_from_table:1", True),
        ("inserted_into_table:1", "inlined_delete:1", True),
        ("inserted_into_table:1", "merge_adjacent:1", False),
        ("inserted_into_table:1", "deleted_from_table:2", False),
        ("deleted_from_table:1", "inserted_into_table:1", True),
        ("deleted_from_table:1", "inlined_insert:1", True),
        ("deleted_from_table:1", "rewrite_delete:1", True),
        ("deleted_from_table:1", "merge_adjacent:1", True),
        ("merge_adjacent:1", "inserted_into_table:1", False),
        ("merge_adjacent:1", "dropped_table:1", True),
        ("merge_adjacent:1", "altered_table:1", True),
        ("rewrite_delete:1", "dropped_table:1", True),
        ("inline_flush:1", "inserted_into_table:1", False),
        ("inline_flush:1", "dropped_table:1", True),
        ("altered_table:1", "altered_table:1", True),
        ("altered_table:1", "inserted_into_table:1", False),
        ("dropped_table:1", "dropped_table:1", True),
        ('created_table:"main"."t"', 'created_view:"main"."T"', True),
        ('created_table:"main"."t"', 'created_table:"other"."t"', False),
        ('created_schema:"s"', 'created_schema:"S"', True),
        ("dropped_schema:1", "dropped_schema:1", True),
    ],
)
def test_conflicts(ours: str, theirs: str, conflict: bool) -> None:
    reason = find_conflict(parse_changes(ours), parse_changes(theirs))
    assert (reason is not None) == conflict


def test_a_compaction_also_says_it_flushed() -> None:
    # Without it, a reference client deleting inline from a merged file would not notice.
    assert format_changes(compaction_changes("merge_adjacent", 4)) == (
        "merge_adjacent:4,inline_flush:4"
    )
