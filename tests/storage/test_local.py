"""Local directories as a store."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.storage import (
    Location,
    ObjectNotFound,
    PreconditionFailed,
    RoutedStore,
    open_store,
)

ODD_NAMES = [
    "a b.txt",
    "dir%20x/f",
    "k=1/ü~#?.x",
    "[1]*",
    "ts=2024-01-01 00:00:00/f",
    "x\\y",
    "nl\n",
]


@pytest.fixture
def store(tmp_path: Path) -> RoutedStore:
    return open_store(str(tmp_path / "lake"))


@pytest.fixture
def root(tmp_path: Path) -> str:
    (tmp_path / "lake").mkdir()
    return f"{tmp_path}/lake"


def names(store: RoutedStore, prefix: str) -> list[str]:
    top = Location.parse(prefix)
    return ["/".join(info.location.segments[len(top.segments) :]) for info in store.list(prefix)]


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_every_name_is_taken_literally(
    store: RoutedStore, root: str, scheme: str, name: str
) -> None:
    path = f"{scheme}{root}/{name}"
    store.write(path, b"0123")
    assert Path(root, name).read_bytes() == b"0123"
    assert store.exists(path)
    assert store.read(path) == b"0123"
    assert names(store, root) == [name]
    (info,) = store.list(root)
    assert store.delete([info.path]).deleted == (info.path,)
    assert not store.exists(path)


def test_head_reports_size_and_utc_time(store: RoutedStore, root: str) -> None:
    store.write(f"{root}/f", b"abc")
    os.utime(f"{root}/f", (1_700_000_000, 1_700_000_000))
    info = store.head(f"{root}/f")
    assert info.size == store.size(f"{root}/f") == 3
    assert info.last_modified == datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc)
    assert info.last_modified.utcoffset() == timedelta(0)
    assert info.location == Location.parse(f"{root}/f")


def test_missing_file_and_directory_are_not_objects(store: RoutedStore, root: str) -> None:
    store.write(f"{root}/d/f", b"")
    for path in (f"{root}/no", f"{root}/d", f"{root}/d/f/below", f"{root}/d/f/"):
        assert not store.exists(path)
        with pytest.raises(ObjectNotFound, match="cannot look up"):
            store.head(path)
    with pytest.raises(ObjectNotFound, match=r"cannot read .*/no: no such file"):
        store.read(f"{root}/no")


def test_ranges(store: RoutedStore, root: str) -> None:
    path = f"{root}/f"
    store.write(path, b"0123456789")
    assert store.read(path, start=2, end=5) == b"234"
    assert store.read(path, start=-4) == b"6789"
    assert store.read(path, end=2) == b"01"
    assert store.read(path, start=10) == b""
    assert store.read(path, start=3, end=3) == b""
    for start, end in ((8, 11), (11, None), (-11, None), (5, 4)):
        with pytest.raises(StorageError, match="only 10 bytes"):
            store.read(path, start=start, end=end)


def test_conditional_writes(store: RoutedStore, root: str) -> None:
    path = f"{root}/f"
    first = store.write(path, b"1", if_absent=True)
    with pytest.raises(PreconditionFailed, match="exists already"):
        store.write(path, b"2", if_absent=True)
    second = store.write(path, b"22", if_match=first)
    assert store.head(path).etag == second != first
    with pytest.raises(PreconditionFailed, match="changed meanwhile"):
        store.write(path, b"3", if_match=first)
    with pytest.raises(PreconditionFailed):
        store.write(f"{root}/no", b"3", if_match=first)
    assert store.read(path) == b"22"
    assert names(store, root) == ["f"]


def test_one_of_many_writers_creates(store: RoutedStore, root: str) -> None:
    def attempt(number: int) -> bool:
        try:
            store.write(f"{root}/f", str(number).encode(), if_absent=True)
        except PreconditionFailed:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(64))) == 1


def test_listing_is_recursive_and_ordered(store: RoutedStore, root: str) -> None:
    for name in ("b/y", "a", "b/x/z", "c"):
        store.write(f"{root}/{name}", b"")
    assert names(store, root) == ["a", "b/x/z", "b/y", "c"]
    assert names(store, f"{root}/b/") == ["x/z", "y"]


def test_listing_nothing(store: RoutedStore, root: str) -> None:
    store.write(f"{root}/f", b"")
    Path(root, "empty").mkdir()
    assert list(store.list(f"{root}/missing/deeper")) == []
    assert list(store.list(f"{root}/empty")) == []
    assert list(store.list(f"{root}/f")) == []


def test_listing_does_not_leave_the_root(store: RoutedStore, root: str, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_bytes(b"12")
    Path(root, "away").symlink_to(tmp_path / "outside")
    Path(root, "loop").symlink_to(root)
    Path(root, "one").symlink_to(tmp_path / "outside" / "f")
    Path(root, "dangling").symlink_to(tmp_path / "no")
    os.mkfifo(f"{root}/pipe")
    listed = {info.location.name: info for info in store.list(root)}
    assert sorted(listed) == ["dangling", "one"]
    assert listed["one"].size == 2
    assert listed["one"].location.real() == Location.parse(f"{tmp_path}/outside/f").real()
    store.delete([listed["one"].path])
    assert (tmp_path / "outside" / "f").exists()


def test_root_may_be_a_link_and_contain_dots(root: str, tmp_path: Path) -> None:
    Path(root, "main").mkdir()
    Path(root, "main", "f").write_bytes(b"")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "link").symlink_to(Path(root, "main"))
    store = open_store(f"{tmp_path}/deep/link/..")
    assert names(store, f"{tmp_path}/deep/link") == ["f"]
    # ".." steps up from where the link leads, as for every program that opens the path.
    (info,) = store.list(f"{tmp_path}/deep/link/..")
    assert info.path == os.path.realpath(f"{root}/main/f")


def test_a_directory_that_cannot_be_read_fails_the_listing(
    store: RoutedStore, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests may run as root, whom no mode stops.
    for name in ("a/f", "b/f"):
        store.write(f"{root}/{name}", b"")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("/b"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    listing = store.list(root)
    assert next(listing).location.name == "f"
    with pytest.raises(StorageError, match=r"cannot list .*/b: Permission denied"):
        next(listing)


def test_delete_reports_each_path_once(store: RoutedStore, root: str) -> None:
    store.write(f"{root}/f", b"")
    store.write(f"{root}/d/g", b"")
    outcome = store.delete([f"{root}/f", f"{root}/no", f"{root}/d", f"{root}/f", f"{root}/d/g/"])
    assert outcome.deleted == (f"{root}/f",)
    assert outcome.missing == (f"{root}/no",)
    assert outcome.done == (f"{root}/f", f"{root}/no")
    assert [path for path, _ in outcome.failed] == [f"{root}/d", f"{root}/d/g/"]
    assert "cannot delete" in outcome.failed[0][1]
    assert store.exists(f"{root}/d/g")


def test_a_missing_root_is_no_deletion_done(store: RoutedStore, tmp_path: Path) -> None:
    inside, outside = f"{tmp_path}/lake/f", f"{tmp_path}/other/f"
    outcome = store.delete([inside, outside])
    assert outcome.missing == (outside,)
    ((path, reason),) = outcome.failed
    assert path == inside
    assert "not mounted?" in reason


def test_copies_in_and_out(store: RoutedStore, root: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"x" * 3_000_000)
    store.upload(f"{tmp_path}/in", f"{root}/a/b")
    store.download(f"{root}/a/b", f"{tmp_path}/out")
    assert (tmp_path / "out").read_bytes() == b"x" * 3_000_000
    assert names(store, root) == ["a/b"]
    with pytest.raises(ObjectNotFound, match="cannot read"):
        store.download(f"{root}/no", f"{tmp_path}/out2")
    assert sorted(os.listdir(tmp_path)) == ["in", "lake", "out"]


def test_staging_a_local_file_copies_nothing(store: RoutedStore, root: str, tmp_path: Path) -> None:
    store.write(f"{root}/a b%20.parquet", b"1")
    assert store.stage(f"file://{root}/a b%20.parquet", str(tmp_path)) == f"{root}/a b%20.parquet"
    with pytest.raises(ObjectNotFound):
        store.stage(f"{root}/no", str(tmp_path))


def test_ensure_writable_creates_the_directory(store: RoutedStore, tmp_path: Path) -> None:
    store.ensure_writable(f"{tmp_path}/lake/deep/")
    assert os.listdir(tmp_path / "lake" / "deep") == []
    (tmp_path / "lake" / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"cannot write below .*/file/x"):
        store.ensure_writable(f"{tmp_path}/lake/file/x")


def test_a_full_disk_names_the_file(
    store: RoutedStore, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"cannot write .*/f: No space left on device"):
        store.write(f"{root}/f", b"1")
    assert os.listdir(root) == []
