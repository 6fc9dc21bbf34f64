"""One identity for all spellings of an object, and never one for two objects."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from urllib.parse import quote

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError
from airflow_provider_ducklake.storage.location import Location, os_path

# `?s3_` begins the settings of DuckDB's S3 URLs, which are refused: see the credentials below.
segment = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), min_size=1, max_size=8
).filter(lambda text: text not in (".", "..") and "?s3_" not in text)
segments = st.lists(segment, max_size=5)
SPELLINGS = {
    "file": ["file://", "file:/.", "file://localhost", ""],
    "s3": ["s3://lake", "s3a://lake", "s3n://lake"],
    "gs": ["gs://lake", "gcs://lake"],
    "az": [
        "abfss://c@acc.dfs.core.windows.net",
        "abfs://C@ACC.dfs.core.windows.net",
        "wasbs://c@acc.blob.core.windows.net",
        "az://acc.blob.core.windows.net/c",
        "azure://acc.blob.core.windows.net/c",
    ],
}


@st.composite
def two_spellings(draw: st.DrawFn) -> tuple[list[str], str, str]:
    """Draw segments and two ways to spell the path to them."""
    parts = draw(segments)
    prefixes = SPELLINGS[draw(st.sampled_from(sorted(SPELLINGS)))]

    def spell() -> str:
        noise = st.sampled_from(["", "", "", "/", "./", "x/../", "//./"])
        text = draw(st.sampled_from(prefixes)) + "/"
        for part in parts:
            text += draw(noise) + part + "/"
        return text if draw(st.booleans()) or not parts else text.removesuffix("/")

    return parts, spell(), spell()


@given(two_spellings())
def test_spellings_of_one_object_are_equal(drawn: tuple[list[str], str, str]) -> None:
    parts, one, other = drawn
    location = Location.parse(one)
    assert location == Location.parse(other)
    assert hash(location) == hash(Location.parse(other))
    assert list(location.segments) == parts


@given(two_spellings())
def test_parsing_is_idempotent(drawn: tuple[list[str], str, str]) -> None:
    location = Location.parse(drawn[1])
    assert Location.parse(location.url) == location
    assert Location.parse(location.path) == location
    assert pickle.loads(pickle.dumps(location)) == location


@given(segments, segments, st.sampled_from(["/", "s3://b/", "az://c/"]))
def test_different_objects_are_never_equal(one: list[str], other: list[str], root: str) -> None:
    first, second = (Location.parse(root + "/".join(parts)) for parts in (one, other))
    assert (first == second) == (one == other)


@given(segments, segments)
def test_is_under_goes_by_segments(one: list[str], other: list[str]) -> None:
    first, second = (Location.parse("s3://b/" + "/".join(parts)) for parts in (one, other))
    assert first.is_under(second) == (one[: len(other)] == other)
    assert Location.parse("s3://b/" + "/".join([*other, *one])).is_under(second)
    assert not first.is_under(Location.parse("s3://b2"))
    assert not first.is_under(Location.parse("gs://b"))


@given(segments)
def test_uri_with_escapes_names_the_literal_path(parts: list[str]) -> None:
    path = "/" + "/".join(parts)
    assert Location.from_uri("file://" + quote(path)) == Location.parse(path)
    assert Location.from_uri("s3a://b" + quote(path)) == Location.parse("s3://b" + path)


@pytest.mark.parametrize("spelling", ["{}", "file://{}", "file:{}", "file://localhost{}"])
@pytest.mark.parametrize("name", ["dir%20x", "dir x", "a//b", "k=a~b", "é%C3%A9"])
def test_a_path_is_as_literal_as_duckdb_takes_it(tmp_path: Path, spelling: str, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    path = spelling.format(f"{tmp_path}/{name}/f.parquet")
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 1) TO '{path}' (FORMAT parquet)")
    local_path = Location.parse(path).local_path
    assert local_path is not None
    assert os.path.isfile(local_path)
    assert os.path.isfile(os_path(path))


def test_relative_path_resolves_against_base_or_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.parse("d/f") == Location.parse(f"{tmp_path}/d/f")
    assert Location.parse("d/f", base="/lake") == Location.parse("/lake/d/f")
    assert Location.parse("d/f", base="file:///lake/") == Location.parse("/lake/d/f")
    assert Location.parse("../f", base="s3a://b/lake") == Location.parse("s3://b/f")
    assert Location.parse("/d/f", base="s3://b/lake") == Location.parse("/d/f")


def test_home_is_expanded_as_duckdb_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert Location.parse("~/lake") == Location.parse("/home/ada/lake")
    with pytest.raises(BadInput, match="write the path in full"):
        Location.parse("~eve/lake")


def test_real_follows_links_also_before_dots(tmp_path: Path) -> None:
    (tmp_path / "disk" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "deep")
    real = Location.parse(os.path.realpath(tmp_path))
    assert Location.parse(f"{tmp_path}/link/f").real().segments == (
        *real.segments,
        "disk",
        "deep",
        "f",
    )
    # The operating system steps up from where the link leads, not from where it lies.
    assert Location.parse(f"{tmp_path}/link/../f").real().parent.name == "disk"
    assert Location.parse("s3://b/x").real() == Location.parse("s3://b/x")


def test_parts_of_a_location() -> None:
    location = Location.parse("s3a://Bucket/a//b c/f.parquet")
    assert (location.scheme, location.authority) == ("s3", "Bucket")
    assert location.segments == ("a", "b c", "f.parquet")
    assert location.url == str(location) == "s3://Bucket/a/b c/f.parquet"
    assert location.local_path is None
    assert (location.name, location.parent.url) == ("f.parquet", "s3://Bucket/a/b c")
    root = Location.parse("/")
    assert (root.path, root.name, root.parent) == ("/", "", root)


def test_locations_are_ordered() -> None:
    paths = ["s3://b/b", "/z", "s3://b/a/x", "gs://a/x", "/a"]
    assert [item.path for item in sorted(map(Location.parse, paths))] == [
        "/a",
        "/z",
        "gs://a/x",
        "s3://b/a/x",
        "s3://b/b",
    ]


def test_unknown_azure_account_makes_a_comparison_ambiguous() -> None:
    short = Location.parse("az://c/lake/f")
    full = Location.parse("abfss://c@acc.dfs.core.windows.net/lake/f")
    assert short != full
    assert short.ambiguous_with(full)
    assert full.ambiguous_with(short)
    assert not full.ambiguous_with(full)
    assert not short.ambiguous_with(Location.parse("abfss://d@acc.dfs.core.windows.net/x"))
    assert Location.parse("az://c/lake/f", account="ACC") == full


@pytest.mark.parametrize("path", ["", "a\0b", "/..", "/a/../../b", "s3://b/..", "s3://b/a/../.."])
def test_malformed_paths_are_refused(path: str) -> None:
    with pytest.raises(BadInput):
        Location.parse(path)


@pytest.mark.parametrize("path", ["s3:///x", "s3:/b/x", "file://host/x", "az:///x", "gs:/b"])
def test_urls_without_a_container_are_refused(path: str) -> None:
    with pytest.raises(BadInput):
        Location.parse(path)


@pytest.mark.parametrize(
    "path",
    ["r2://b/x", "http://h/x", "hdfs://n/x", "S3://b/x", "az://a.dfs.core.chinacloudapi.cn/c/x"],
)
def test_unsupported_places_are_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="is not supported"):
        Location.parse(path)


def test_refusal_says_what_is_supported() -> None:
    with pytest.raises(ConfigurationError, match=r"s3://.*gs://.*az://"):
        Location.parse("r2://b/x")


@pytest.mark.parametrize(
    "path",
    [
        "s3a://AKIA:se/cr3t@b/x",
        "s3://AKIA:secr3t@b/x",
        "s3://secr3t@b",
        "s3://b/x?s3_secret_access_key=secr3t",
        "r2://k:secr3t@b/x",
    ],
)
def test_credentials_in_a_path_are_refused_and_not_repeated(path: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Location.parse(path)
    assert "cr3t" not in str(caught.value)


def test_local_text_keeps_dots_for_the_operating_system() -> None:
    assert os_path("file:///a/../b") == "/a/../b"
    assert os_path("x") == f"{os.getcwd()}/x"
    with pytest.raises(ConfigurationError, match="not a path on a local disk"):
        os_path("s3://b/x")
    with pytest.raises(BadInput):
        os_path("")
