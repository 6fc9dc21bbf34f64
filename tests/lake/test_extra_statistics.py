"""What a table says of VARIANT and GEOMETRY columns: what holds for all its files, or nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.extra_statistics import (
    Extent,
    common_extent,
    exceeds,
    extent_from_json,
    merge_extra_into_table,
)
from airflow_provider_ducklake.lake.shredded import ShreddedField, from_json, in_list, to_json
from airflow_provider_ducklake.lake.statistics import ColumnStatistics, TableColumnStatistics

VARIANT, GEOMETRY = Column(1, "v", "variant"), Column(1, "g", "geometry")


def field(low: str | None, high: str | None, **more: Any) -> ShreddedField:
    """Return statistics of an integer field."""
    known = {"path": '"a"', "shredded_type": "int64", "num_values": 3, "null_count": 0}
    return ShreddedField(**{**known, **more}, min_value=low, max_value=high)


def file(*fields: ShreddedField) -> ColumnStatistics:
    """Return statistics of a file with some shredded fields."""
    return ColumnStatistics(1, 8, 3, 0, extra_stats=to_json(fields))


def of_table(*files: ColumnStatistics | None, current: str | None = "") -> Any:
    """Return the fields a table has after some files; without `current` they are its first."""
    known = TableColumnStatistics(1, False, extra_stats=current) if current != "" else None
    found = merge_extra_into_table(VARIANT, known, files)
    assert found is not None
    return {entry.path: entry for entry in from_json(found.extra_stats)}


def test_bounds_widen_as_their_type() -> None:
    found = of_table(file(field("9", "10")), file(field("-5", "9")))['"a"']
    assert (found.min_value, found.max_value, found.num_values) == ("-5", "10", 6)


def test_a_field_stays_while_every_file_has_it_as_one_type() -> None:
    first = to_json([field("1", "2"), field("3", "4", path="root")])
    assert of_table(file(field("1", "2")), current=first).keys() == {'"a"'}
    assert of_table(file(field("1", "2", shredded_type="int32")), current=first) == {}
    assert of_table(None, current=first) == {}
    assert of_table(file(field("1", "2")), current=None) == {}


def test_nulls_have_no_bounds_and_no_certainty() -> None:
    nothing = field(None, None, null_count=3)
    found = of_table(file(field("1", "2")), file(nothing))['"a"']
    assert (found.min_value, found.max_value, found.null_count) == ("1", "2", 3)
    # "No NULL" is not told: the reference takes it for a promise about other fields too.
    assert of_table(file(field("1", "2")))['"a"'].null_count is None
    unknown = field(None, None)
    assert of_table(file(field("1", "2")), file(unknown))['"a"'].min_value is None


def test_counts_in_lists_are_believed_only_without_nulls() -> None:
    miscounted = field("7", "7", path='"l".element', num_values=2, null_count=2)
    [read] = from_json(to_json([miscounted]))
    assert (read.value_count, read.min_value) == (None, "7")
    found = of_table(file(field("1", "2", path='"l".element')), file(miscounted))
    assert found['"l".element'].max_value == "7"


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("root", False), ('"a"', False), ('"element"', False), ('"a.element.b"', False),
        ("element", True), ('"a".element', True), ('element."a"', True), ('"a".element."b"', True),
    ],
)  # fmt: skip
def test_paths_into_lists(path: str, inside: bool) -> None:
    assert in_list(path) == inside


@pytest.mark.parametrize(
    "text",
    [
        None, "", "x", "{}", "7", "[7]", "[[]]", '[{"field_name": "a"}]', "[" * 100_000,
        '[{"field_name": "root", "shredded_type": "INTEGER)); DROP TABLE x"}]',
        '[{"field_name": null, "shredded_type": "int32"}]',
        '{"bbox": 7, "types": []}', '{"bbox": {"xmin": "a"}, "types": [7]}',
    ],
)  # fmt: skip
def test_what_is_no_such_json_tells_of_nothing(text: str | None) -> None:
    """Anybody may have written it."""
    assert from_json(text) == ()
    assert extent_from_json(text) is None


def test_numbers_that_are_none() -> None:
    text = to_json([field("1", "2")]) or ""
    [read] = from_json(text.replace('"num_values":3', '"num_values":"3"').replace(":0", ":-1"))
    assert (read.num_values, read.null_count, read.min_value) == (None, None, "1")


FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=3))
def test_a_box_is_never_smaller_than_what_is_in_it(points: list[tuple[float, float]]) -> None:
    """Nor when the reference, which writes six digits of the nearest number, writes it again."""
    none = (None,) * 4
    boxes = [Extent((x, x, y, y, *none), frozenset({"point"})) for x, y in points]
    told = common_extent(boxes).to_json()
    read = extent_from_json(told)
    assert read is not None
    again = [float(f"{edge:.6f}") for edge in read.edges[:4] if edge is not None]
    for x, y in points:
        assert again[0] <= x <= again[1]
        assert again[2] <= y <= again[3]
    # The reference's parser takes a number without a point for zero.
    assert all("." in text for text in re.findall(r": (-?\d[^,}]*)", told))


@pytest.mark.parametrize(
    "edges", [(170.0, -170.0, 0.0, 1.0), (0.0, float("inf"), 0.0, 1.0), (None, None, None, None)]
)
def test_a_box_that_bounds_nothing_is_unknown(edges: tuple[float | None, ...]) -> None:
    assert not Extent((*edges, None, None, None, None), frozenset({"point"})).is_known


def test_of_geometries_all_is_known_or_nothing_said() -> None:
    box = Extent((1.0, 2.0, 3.0, 4.0, None, None, None, None), frozenset({"point"})).to_json()
    known = ColumnStatistics(1, 8, 3, 0, extra_stats=box)
    nulls, unknown = ColumnStatistics(1, 8, 0, 3), ColumnStatistics(1, 8, 3, 0)
    said = merge_extra_into_table(GEOMETRY, None, [known, nulls])
    assert said == TableColumnStatistics(1, True, extra_stats=box)
    assert merge_extra_into_table(GEOMETRY, said, [unknown]) is None
    assert merge_extra_into_table(GEOMETRY, said, [None]) is None
    assert merge_extra_into_table(GEOMETRY, TableColumnStatistics(1), [known]) is None


def test_what_a_table_leaves_out_is_found() -> None:
    narrow, wide = to_json([field("1", "2")]), to_json([field("1", "3")])
    assert exceeds(VARIANT, wide, narrow) is None
    assert exceeds(VARIANT, None, narrow) is None
    assert "at most 2, but a file's reaches to 3" in str(exceeds(VARIANT, narrow, wide))
    other = to_json([field("1", "1", shredded_type="int8")])
    assert "is int64, but a file has int8" in str(exceeds(VARIANT, narrow, other))
    none = (None,) * 4
    small = Extent((1.0, 2.0, 3.0, 4.0, *none), frozenset({"point"})).to_json()
    large = Extent((1.0, 2.0, 3.0, 5.0, *none), frozenset({"polygon"})).to_json()
    assert exceeds(GEOMETRY, small, small.replace("2.000000", "2.000001")) is None
    assert "ymax 4.0, but a file's geometries reach to 5.0" in str(exceeds(GEOMETRY, small, large))
    assert "no polygon" in str(exceeds(GEOMETRY, small, small.replace("point", "polygon")))
