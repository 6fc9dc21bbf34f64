"""A SQLite catalog in a bucket that answers wrongly, late or not at all: no commit is lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ducklake.lake import remote_catalog
from airflow_provider_ducklake.lake.errors import (
    CommitStateUnknown,
    ConfigurationError,
    LakeError,
    SafetyRefusal,
    StorageError,
)
from airflow_provider_ducklake.lake.remote_catalog import Checkout, checked_out
from airflow_provider_ducklake.storage import (
    PreconditionFailed,
    RoutedStore,
    StoreUnreachable,
    open_store,
)
from tests.support import places
from tests.support.faulty_s3 import FaultyS3
from tests.support.places import Place, add
from tests.support.s3 import S3Server, options_for

local, place = places.local, places.place


def kept_in(error: LakeError) -> Path:
    """Return the path of the kept catalog that a message names."""
    (path,) = re.findall(r"kept in (\S+)", str(error))
    return Path(path)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again without waiting."""
    monkeypatch.setattr(remote_catalog, "_PAUSES", (0.0, 0.0))


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "s3://bucket/lake/", "ftp://h/x"])
def test_a_url_that_names_no_object_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"object|scheme"), checked_out(url):
        pytest.fail("such a catalog cannot be")


def test_a_bucket_that_is_not_there_is_no_first_run(s3_server: S3Server) -> None:
    options = options_for(s3_server)
    url = "s3://no-such-bucket/catalog.sqlite"
    for read_only in (False, True):
        with pytest.raises(StorageError), checked_out(url, options, read_only=read_only):
            pytest.fail("there is no such bucket")


def test_a_store_that_ignores_conditions_is_refused(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some S3 servers do."""
    write = RoutedStore.write
    ignored: list[str] = []

    def careless(store: RoutedStore, path: str, data: bytes, **conditions: Any) -> str | None:
        for name in ignored:
            conditions.pop(name, None)
        return write(store, path, data, **conditions)

    monkeypatch.setattr(RoutedStore, "write", careless)
    options = options_for(s3_server)
    for condition in ("if_absent", "if_match"):
        ignored[:] = [condition]
        with (
            pytest.raises(SafetyRefusal, match="ignores conditions"),
            checked_out(f"{s3_server.url}/catalog.sqlite", options),
        ):
            pytest.fail("commits would be overwritten")
    assert list(open_store(s3_server.url, options).list(s3_server.url)) == []


def s3_place(faulty: FaultyS3, local: Path) -> Place:
    """Return a lake behind a proxy that can be told to refuse requests."""
    found = Place(f"{faulty.server.url}/catalog.sqlite", faulty.store._options, local)
    found.begin()
    return found


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (503, "SlowDown", CommitStateUnknown),
        (403, "AccessDenied", StorageError),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_what_cannot_be_put_back_is_kept(
    faulty_s3: FaultyS3, local: Path, status: int, code: str, error: type[LakeError]
) -> None:
    place = s3_place(faulty_s3, local)

    def work(checkout: Checkout) -> None:
        add(checkout, "late")
        faulty_s3.refuse("PUT", "/catalog.sqlite", status, code)

    with pytest.raises(error) as refused:
        place.run(work)
    assert type(refused.value) is error
    assert place.tables(kept_in(refused.value)) == ["first", "late"]
    faulty_s3.rules.clear()
    assert place.tables() == ["first"]


@pytest.mark.usefixtures("impatient")
def test_a_store_that_comes_back_gets_the_catalog(faulty_s3: FaultyS3, local: Path) -> None:
    place = s3_place(faulty_s3, local)
    answers = [(503, "SlowDown"), (500, "InternalError")]

    def rule(method: str, path: str) -> tuple[int, str] | None:
        return answers.pop() if answers and method == "PUT" else None

    with place.out() as checkout:
        add(checkout, "late")
        faulty_s3.rules.append(rule)
    assert answers == []
    assert place.tables() == ["first", "late"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("told", [StoreUnreachable, PreconditionFailed])
def test_a_catalog_that_arrived_without_an_answer_is_there(
    place: Place, monkeypatch: pytest.MonkeyPatch, told: type[StorageError]
) -> None:
    """The connection broke after the write, or a client asked again and met its own object."""
    place.begin()
    write = RoutedStore.write

    def lossy(store: RoutedStore, path: str, data: bytes, **conditions: Any) -> str | None:
        write(store, path, data, **conditions)
        raise told("no answer")

    with place.out() as checkout:
        add(checkout, "late")
        with monkeypatch.context() as patch:
            patch.setattr(RoutedStore, "write", lossy)
            assert checkout.publish()
        add(checkout, "later")
    assert place.tables() == ["first", "late", "later"]
    assert list(place.copies.iterdir()) == []
