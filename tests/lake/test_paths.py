"""Joining, resolving and storing paths."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.paths import (
    Location,
    as_directory,
    join,
    relative_to,
    resolve,
    table_directory,
)

segment = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="/\\"), min_size=1
).filter(lambda text: text not in (".", ".."))
segments = st.lists(segment, min_size=1, max_size=5)
roots = st.sampled_from(["/data/lake/", "s3://bucket/lake/", "file:///data/lake/", "gs://b/"])


@pytest.mark.parametrize(
    ("given_path", "stored"),
    [
        ("/data/lake", "/data/lake/"),
        ("/data/lake///", "/data/lake/"),
        ("/data//lake//", "/data//lake/"),
        ("s3://bucket", "s3://bucket/"),
        ("site_id=42/x", "site_id=42/x/"),
        ("/", "/"),
    ],
)
def test_data_path_ends_in_exactly_one_slash(given_path: str, stored: str) -> None:
    assert as_directory(given_path) == stored


def test_empty_data_path_is_refused() -> None:
    with pytest.raises(BadInput, match="data path is empty"):
        as_directory("")


def test_join_keeps_every_character() -> None:
    assert join("s3a://b//x y/", "k=%20/../f.parquet") == "s3a://b//x y/k=%20/../f.parquet"


def test_join_refuses_a_parent_without_trailing_slash() -> None:
    with pytest.raises(BadInput, match="must end with '/'"):
        join("/data/main", "t/")


@pytest.mark.parametrize("data_path", ["/lake", "/lake/", "/lake//"])
@pytest.mark.parametrize(
    ("schema", "table", "file", "expected"),
    [
        (("main/", True), ("t/", True), ("f.parquet", True), "/lake/main/t/f.parquet"),
        (("main/", True), ("/mnt/t/", False), ("f.parquet", True), "/mnt/t/f.parquet"),
        (("s3://b/s/", False), ("t/", True), ("k=1/f", True), "s3://b/s/t/k=1/f"),
        (("main/", True), ("t/", True), ("/raw//a%20b.parquet", False), "/raw//a%20b.parquet"),
        ((None, True), (None, True), ("f.parquet", True), "/lake/f.parquet"),
        (("", True), ("", True), ("f.parquet", True), "/lake/f.parquet"),
        ((None, False), ("t/", True), ("f.parquet", True), "/lake/t/f.parquet"),
    ],
)
def test_resolve_follows_the_reference(
    data_path: str,
    schema: tuple[str | None, bool],
    table: tuple[str | None, bool],
    file: tuple[str, bool],
    expected: str,
) -> None:
    assert resolve(data_path, *schema, *table, *file) == expected


def test_table_directory_without_slash_stops_the_table() -> None:
    directory = table_directory("/lake", "main/", True, "t", True)
    assert directory == "/lake/main/t"
    with pytest.raises(BadInput, match="correct the path in the catalog"):
        resolve("/lake", "main/", True, "t", True, "f.parquet", True)


def test_a_sibling_that_shares_text_is_not_under_the_base() -> None:
    assert relative_to("/data/lake2/f", "/data/lake") == ("/data/lake2/f", False)
    assert relative_to("/data/lake/../lake2/f", "/data/lake/") == ("/data/lake/../lake2/f", False)


@pytest.mark.parametrize(
    ("path", "base", "stored"),
    [
        ("/lake/main/t/f", "/lake/", "main/t/f"),
        ("/lake/main/t/", "/lake", "main/t/"),
        ("/lake//main/./t/f", "/lake/", "main/t/f"),
        ("file:///lake/main/f", "/lake/", "main/f"),
        ("s3a://b/lake/f", "s3://b/lake/", "f"),
        ("/lake/a/../f", "/lake/", "a/../f"),
        ("/lake", "/lake/", ""),
    ],
)
def test_relative_form(path: str, base: str, stored: str) -> None:
    assert relative_to(path, base) == (stored, True)


def test_dots_spelled_before_the_base_stay_absolute() -> None:
    assert relative_to("/x/../lake/f", "/lake/") == ("/x/../lake/f", False)


@given(roots, segments, segments)
def test_stored_form_names_the_same_object(root: str, below: list[str], base: list[str]) -> None:
    parent = join(root, "/".join(base) + "/")
    path = join(parent, "/".join(below))
    assert relative_to(path, parent) == ("/".join(below), True)
    stored, relative = relative_to(path, root)
    assert relative
    assert join(root, stored) == path


@given(roots, segments, segments)
def test_relative_exactly_when_under(root: str, one: list[str], other: list[str]) -> None:
    assume(one[: len(other)] != other)
    path = join(root, "/".join(one))
    assert relative_to(path, join(root, "/".join(other))) == (path, False)


@given(st.lists(st.sampled_from(["a", "b", "%20", "k=1", " "]), min_size=1, max_size=4))
def test_relative_data_path_resolves_like_the_operating_system(parts: list[str]) -> None:
    text = "/".join(parts)
    full = resolve(text, "main/", True, "t/", True, "f", True)
    assert full == f"{text}/main/t/f"
    assert Location.parse(full).local_path == str(Path(os.getcwd(), full))
