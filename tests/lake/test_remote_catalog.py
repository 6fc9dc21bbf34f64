"""A SQLite catalog in a bucket: commits arrive, and never over those of another run."""

from __future__ import annotations

import re
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.errors import (
    BadInput,
    CommitConflict,
    ConfigurationError,
    LakeError,
    SafetyRefusal,
    UnsupportedCatalog,
)
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.remote_catalog import Checkout, checked_out
from tests.support import places
from tests.support.places import Place, add

local, place = places.local, places.place


def kept_in(error: LakeError) -> Path:
    """Return the path of the kept catalog that a message names."""
    (path,) = re.findall(r"kept in (\S+)", str(error))
    return Path(path)


def test_the_first_run_starts_fresh(place: Place) -> None:
    with place.out() as checkout:
        assert checkout.is_new
        assert not Path(checkout.location.target).exists()
        Lake.create(checkout.location)
        assert place.objects() == []
        add(checkout, "first")
    assert place.objects() == ["catalog.sqlite"]
    assert place.tables() == ["first"]
    assert list(place.copies.iterdir()) == []


def test_a_first_run_that_creates_nothing_leaves_nothing(place: Place) -> None:
    with place.out(lease_seconds=60):
        assert place.objects() == ["catalog.sqlite.lease"]
    assert place.objects() == []
    with (
        pytest.raises(ConfigurationError, match="data path"),
        place.out() as checkout,
    ):
        Lake.create(replace(checkout.location, data_path=None))
    assert place.objects() == []


def test_the_stock_extension_reads_what_was_put_back(place: Place) -> None:
    """Rows of the stock client and commits of ours, over several runs, at every snapshot."""
    with place.out() as checkout:
        Lake.create(checkout.location)
    rows: list[tuple[int, str]] = []
    for run in range(3):
        with place.out() as checkout:
            add(checkout, f"t{run}")
            with closing(place.client(Path(checkout.location.target))) as client:
                if run == 0:
                    client.sql("CREATE TABLE kept (id INTEGER, name VARCHAR)")
                for _ in range(2):
                    rows.append((len(rows), f"run {run}"))
                    client.sql("INSERT INTO kept VALUES (?, ?)", rows[-1])
    with closing(place.client()) as client:
        assert client.sql("SELECT * FROM kept ORDER BY id") == rows
        assert client.snapshot_ids() == list(range(1 + 1 + 3 + 6))
        assert client.sql("SELECT id FROM kept AT (VERSION => 4) ORDER BY id") == [(0,), (1,)]
    assert place.tables() == ["kept", "t0", "t1", "t2"]


def test_what_is_not_changed_is_not_put_back(place: Place) -> None:
    place.begin()
    before = place.store.head(place.url)
    with place.out(lease_seconds=60) as checkout:
        assert not checkout.is_new
        assert Lake.open(checkout.location).tables()[0].name == "first"
        with closing(place.client(Path(checkout.location.target))) as client:
            assert client.sql("SELECT * FROM first") == []
        assert not checkout.publish()
    assert place.store.head(place.url) == before


def test_a_read_only_copy_writes_nothing_anywhere(place: Place) -> None:
    place.begin()
    before = place.store.head(place.url)
    with place.out(read_only=True, lease_seconds=60) as checkout:
        assert place.objects() == ["catalog.sqlite"]
        add(checkout, "for_nothing")
        assert not checkout.publish()
        checkout.make_current()
    assert place.store.head(place.url) == before


def test_of_two_racing_runs_the_second_is_refused_and_loses_nothing(place: Place) -> None:
    place.begin()

    def work(late: Checkout) -> None:
        add(late, "late")
        with place.out() as early:
            add(early, "early")
        add(late, "later")

    with pytest.raises(CommitConflict) as refused:
        place.run(work)
    assert place.tables() == ["early", "first"]
    message = str(refused.value)
    assert place.url in message
    assert "snapshots 2 to 3" in message
    assert "Run the job again" in message
    kept = kept_in(refused.value)
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert place.tables(kept) == ["first", "late", "later"]
    with place.out() as again:
        add(again, "late")
    assert place.tables() == ["early", "first", "late"]


def test_of_two_first_runs_one_is_first(place: Place) -> None:

    def work(late: Checkout) -> None:
        Lake.create(late.location)
        add(late, "late")
        place.begin()

    with pytest.raises(CommitConflict) as refused:
        place.run(work)
    assert place.tables() == ["first"]
    assert place.tables(kept_in(refused.value)) == ["late"]


def test_what_was_committed_before_a_failure_is_put_back(place: Place) -> None:
    place.begin()
    failures = [BadInput("file f, column c"), KeyboardInterrupt(), RuntimeError("a bug")]

    def work(checkout: Checkout) -> None:
        add(checkout, type(failures[-1]).__name__)
        raise failures[-1]

    while failures:
        with pytest.raises(type(failures[-1])) as raised:
            place.run(work)
        assert raised.value is failures.pop()
    assert place.tables() == ["BadInput", "KeyboardInterrupt", "RuntimeError", "first"]
    before = place.store.head(place.url)
    with pytest.raises(BadInput), place.out():
        raise BadInput("before anything was committed")
    assert place.store.head(place.url) == before
    assert list(place.copies.iterdir()) == []


def test_a_failure_and_a_lost_race_are_both_told(place: Place) -> None:
    place.begin()

    def work(checkout: Checkout) -> None:
        add(checkout, "late")
        with place.out() as early:
            add(early, "early")
        raise BadInput("file f, column c")

    with pytest.raises(CommitConflict) as refused:
        place.run(work)
    assert "the job ended with BadInput: file f, column c" in str(refused.value)
    assert place.tables(kept_in(refused.value)) == ["first", "late"]


def test_a_catalog_may_be_put_back_several_times(place: Place) -> None:
    with place.out() as checkout:
        Lake.create(checkout.location)
        for number in range(3):
            add(checkout, f"t{number}")
            assert checkout.publish()
            assert len(place.tables()) == number + 1
        assert not checkout.publish()
    assert len(place.tables()) == 3


def test_nothing_is_deleted_by_what_an_old_copy_knows(place: Place) -> None:
    place.begin()
    with place.out() as old:
        old.make_current()
        with place.out() as early:
            add(early, "early")
        with pytest.raises(CommitConflict, match="nothing was deleted"):
            old.make_current()
    assert place.tables() == ["early", "first"]


def test_copies_are_nobody_elses(place: Place) -> None:
    with place.out() as checkout:
        directory = Path(checkout.location.target).parent
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        Lake.create(checkout.location)
    with place.out() as checkout:
        copy = Path(checkout.location.target)
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700
    assert not copy.parent.exists()


def damaged(data: bytes) -> bytes:
    """Return a SQLite file with its inner pages overwritten: it opens, and is not intact."""
    return data[:4096] + b"\x0d" * 8192 + data[12288:]


def other_database(tmp_path: Path) -> bytes:
    """Return a SQLite database that is no DuckLake catalog."""
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a)")
    return path.read_bytes()


@pytest.mark.parametrize("how", ["damaged", "cut", "empty", "text", "other"])
def test_what_is_no_intact_catalog_is_not_worked_on(place: Place, tmp_path: Path, how: str) -> None:
    place.begin()
    data = place.store.read(place.url)
    kinds: dict[str, tuple[bytes, type[LakeError]]] = {
        "damaged": (damaged(data), SafetyRefusal),
        "cut": (data[: len(data) // 2], SafetyRefusal),
        "empty": (b"", UnsupportedCatalog),
        "text": (b"no database", UnsupportedCatalog),
        "other": (other_database(tmp_path), UnsupportedCatalog),
    }
    broken, error = kinds[how]
    place.store.write(place.url, broken)
    with pytest.raises(error, match=re.escape(place.url)), place.out(lease_seconds=60):
        pytest.fail("a broken catalog was handed out")
    assert place.store.read(place.url) == broken
    assert place.objects() == ["catalog.sqlite"]
    assert list(place.copies.iterdir()) == []


@pytest.mark.parametrize("how", ["damaged", "truncated", "gone"])
def test_a_copy_that_is_not_intact_is_not_put_back(place: Place, how: str) -> None:
    place.begin()
    before = place.store.read(place.url)

    def work(checkout: Checkout) -> None:
        add(checkout, "t")
        copy = Path(checkout.location.target)
        data = copy.read_bytes()
        copy.write_bytes(damaged(data) if how == "damaged" else data[:10_000])
        if how == "gone":
            copy.unlink()

    with pytest.raises(SafetyRefusal) as refused:
        place.run(work)
    (directory,) = place.copies.iterdir()
    assert str(directory / "catalog.sqlite") in str(refused.value)
    assert place.store.read(place.url) == before


def test_a_catalog_removed_meanwhile_is_not_made_anew(place: Place) -> None:
    place.begin()

    def work(checkout: Checkout) -> None:
        add(checkout, "t")
        assert place.store.delete([place.url]).deleted

    with pytest.raises(SafetyRefusal, match="was removed") as refused:
        place.run(work)
    assert place.objects() == []
    assert place.tables(kept_in(refused.value)) == ["first", "t"]


def test_a_write_ahead_log_travels_with_its_catalog(place: Place) -> None:
    """What a client committed into the log is in the one file that is put back."""
    place.begin()
    with place.out() as checkout:
        with closing(sqlite3.connect(checkout.location.target)) as connection:
            assert connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
        add(checkout, "logged")
    assert place.tables() == ["first", "logged"]
    downloaded = place.local / "downloaded.sqlite"
    downloaded.write_bytes(place.store.read(place.url))
    with closing(sqlite3.connect(downloaded)) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
    place.store.write(place.url, downloaded.read_bytes())
    before = place.store.head(place.url)
    with place.out() as checkout:
        assert len(Lake.open(checkout.location).tables()) == 2
    assert place.store.head(place.url) == before


@pytest.mark.parametrize("relative", ["data/", "./data", "../data"])
def test_a_relative_data_path_is_refused(place: Place, relative: str) -> None:
    with (
        pytest.raises(ConfigurationError, match="is relative"),
        checked_out(place.url, place.options, data_path=relative),
    ):
        pytest.fail("a relative data path was taken")
    place.begin()
    downloaded = place.local / "downloaded.sqlite"
    downloaded.write_bytes(place.store.read(place.url))
    with closing(sqlite3.connect(downloaded)) as connection, connection:
        connection.execute(
            "UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", (relative,)
        )
    place.store.write(place.url, downloaded.read_bytes())
    with pytest.raises(ConfigurationError, match="is relative"), place.out():
        pytest.fail("a relative data path was taken")


def test_many_runs_at_once_lose_no_commit(place: Place) -> None:
    """Without a lease: who is refused does its work again, and all of it arrives in the end."""
    place.begin()

    def job(number: int) -> int:
        for attempt in range(100):
            try:
                place.run(lambda checkout: add(checkout, f"t{number}"))
            except CommitConflict:
                continue
            return attempt
        raise AssertionError(f"job {number} never came through")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(job, range(8)))
    assert place.tables() == ["first", *(f"t{number}" for number in range(8))]
    with closing(place.client()) as client:
        assert client.snapshot_ids() == list(range(10))
