"""Paths, directories and patterns, on a local disk and on S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.storage import RoutedStore, open_store
from airflow_provider_ducklake.storage.patterns import compile_segments
from tests.support.s3 import S3Server

NAMES = [
    "a.parquet",
    "b.parquet",
    "c[1].parquet",
    "c1.parquet",
    "notes.txt",
    "k=1/a.parquet",
    "k=1/x y/deep%20.parquet",
    "k=2/a.parquet",
    "_temporary/0/t.parquet",
    "_p=1/u.parquet",
    ".hidden/h.parquet",
]


@pytest.fixture(params=["local", "s3"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, s3_store: RoutedStore, s3_server: S3Server
) -> tuple[RoutedStore, str]:
    """Give a store and a directory with the files of NAMES."""
    local = request.param == "local"
    root = f"{tmp_path}/in" if local else f"{s3_server.url}/in"
    store = open_store(root) if local else s3_store
    for name in NAMES:
        store.write(f"{root}/{name}", b"x")
    return store, root


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a.parquet", ["a.parquet"]),
        ("missing.parquet", []),
        ("*.parquet", ["a.parquet", "b.parquet", "c1.parquet", "c[1].parquet"]),
        ("?.parquet", ["a.parquet", "b.parquet"]),
        ("[!a].parquet", ["b.parquet"]),
        ("[a-b].parquet", ["a.parquet", "b.parquet"]),
        ("c[1].parquet", ["c[1].parquet"]),
        ("c[[]1].parquet", ["c[1].parquet"]),
        ("k=*/a.parquet", ["k=1/a.parquet", "k=2/a.parquet"]),
        ("k=*/a.par*", ["k=1/a.parquet", "k=2/a.parquet"]),
        ("k=1/**/*.parquet", ["k=1/a.parquet", "k=1/x y/deep%20.parquet"]),
        ("k=1/**", ["k=1/a.parquet", "k=1/x y/deep%20.parquet"]),
        ("**/a.parquet", ["a.parquet", "k=1/a.parquet", "k=2/a.parquet"]),
        ("*/*/t.parquet", ["_temporary/0/t.parquet"]),
        (".hid*/*", [".hidden/h.parquet"]),
        ("*/h.parquet", []),
        ("k=1", ["k=1/a.parquet", "k=1/x y/deep%20.parquet"]),
        ("k=1/", ["k=1/a.parquet", "k=1/x y/deep%20.parquet"]),
        (
            "",
            [
                "_p=1/u.parquet",
                "a.parquet",
                "b.parquet",
                "c1.parquet",
                "c[1].parquet",
                "k=1/a.parquet",
                "k=1/x y/deep%20.parquet",
                "k=2/a.parquet",
            ],
        ),
    ],
)
def test_patterns(place: tuple[RoutedStore, str], pattern: str, found: list[str]) -> None:
    store, root = place
    assert store.glob(f"{root}/{pattern}") == [f"{root}/{name}" for name in found]


def test_results_are_spelled_like_the_pattern(
    place: tuple[RoutedStore, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store, root = place
    if root.startswith("s3"):
        spelled = root.replace("s3://", "s3a://")
        assert store.glob(f"{spelled}/?.parquet") == [
            f"{spelled}/a.parquet",
            f"{spelled}/b.parquet",
        ]
        return
    monkeypatch.chdir(tmp_path)
    assert store.glob("in/k=2") == ["in/k=2/a.parquet"]
    assert store.glob(f"file://{root}/b.*") == [f"file://{root}/b.parquet"]
    (tmp_path / "link").symlink_to(tmp_path / "in" / "k=1" / "x y")
    assert store.glob("link/../?.parquet") == ["link/../a.parquet"]
    monkeypatch.chdir(root)
    assert store.glob("?.parquet") == ["a.parquet", "b.parquet"]


def test_markers_of_directories_are_no_files(s3_store: RoutedStore, s3_server: S3Server) -> None:
    s3_store.write(f"{s3_server.url}/in/dir", b"")
    s3_store.write(f"{s3_server.url}/in/f", b"1")
    s3_store.write(f"{s3_server.url}/in/empty.parquet", b"")
    assert s3_store.glob(f"{s3_server.url}/in/*") == [
        f"{s3_server.url}/in/empty.parquet",
        f"{s3_server.url}/in/f",
    ]


@pytest.mark.parametrize("pattern", ["*/../x", "[z-a]"])
def test_patterns_without_a_meaning_are_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(BadInput):
        open_store(str(tmp_path)).glob(f"{tmp_path}/{pattern}")


def test_a_wildcard_stays_inside_its_segment() -> None:
    expression = compile_segments(["a*", "[!b]c"])
    assert expression.fullmatch("ax/cc")
    assert not expression.fullmatch("ax/y/cc")
    assert not expression.fullmatch("ax/bc")
    assert not expression.fullmatch("a//c")
    assert compile_segments(["[x"]).fullmatch("[x")
    assert compile_segments(["[]x]"]).fullmatch("]")
