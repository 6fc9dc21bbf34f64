"""The lease on a catalog in a bucket, and what becomes of jobs that are stopped or killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_ducklake.lake.catalog_lease import Tenure
from airflow_provider_ducklake.lake.errors import CatalogUnavailable, CommitConflict, StorageError
from airflow_provider_ducklake.lake.instants import format_instant, utc_now
from airflow_provider_ducklake.lake.interrupts import terminated_as_interrupt, undisturbed
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.remote_catalog import Checkout
from airflow_provider_ducklake.storage import RoutedStore
from tests.support import places
from tests.support.places import Place, add

local, place = places.local, places.place

# Commits to a catalog in a bucket and waits to be stopped before it is put back.
_JOB = """
import os, sys, time
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.interrupts import terminated_as_interrupt
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.remote_catalog import checked_out
from airflow_provider_ducklake.lake.tables import create_table
from airflow_provider_ducklake.storage import StorageOptions
url, copies, lease_seconds = sys.argv[1:]
with terminated_as_interrupt(), checked_out(
    url, StorageOptions.from_environment(), operation="ingest", owner="nightly",
    lease_seconds=float(lease_seconds), directory=copies,
) as checkout:
    create_table(Lake.open(checkout.location), "stopped", parse_columns("id int64"))
    print("committed", flush=True)
    time.sleep(600)
"""


@contextmanager
def stopped_job(place: Place, sign: signal.Signals, lease_seconds: float = 600) -> Iterator[int]:
    """Run a job that is sent a signal when it has committed; give its process id when it ended."""
    command = [sys.executable, "-c", _JOB, place.url, str(place.copies), str(lease_seconds)]
    environment = {**os.environ, **place.options.to_environment()}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "committed\n"
        process.send_signal(sign)
        process.wait()
        assert process.returncode != 0
        yield process.pid


def lease(place: Place) -> Tenure | None:
    """Return the lease on a catalog; None when there is none."""
    with contextlib.suppress(StorageError):
        return Tenure.parse(place.store.read(place.url + ".lease"))
    return None


def set_lease(place: Place, seconds: float) -> Tenure:
    """Write another job's lease that ends some seconds from now."""
    ends = format_instant(utc_now() + timedelta(seconds=seconds))
    tenure = Tenure("dag upkeep", "worker-7", 4711, "checkpoint", ends, "token")
    place.store.write(place.url + ".lease", tenure.to_bytes())
    return tenure


def test_a_lease_names_its_job_while_it_works(place: Place) -> None:
    with place.out(lease_seconds=600, owner="nightly", operation="ingest"):
        held = lease(place)
        assert held is not None
        assert (held.owner, held.operation, held.pid) == ("nightly", "ingest", os.getpid())
        assert utc_now() < held.until < utc_now() + timedelta(seconds=601)
        assert {"owner", "host", "pid", "operation", "expires_at"} <= set(
            json.loads(place.store.read(place.url + ".lease"))
        )
    assert place.objects() == []


def test_a_lease_is_given_up_after_a_failure_too(place: Place) -> None:
    with pytest.raises(KeyError), place.out(lease_seconds=600):
        raise KeyError
    assert place.objects() == []


def test_who_waits_in_vain_learns_for_whom(place: Place) -> None:
    place.begin()
    held = set_lease(place, 600)
    with (
        pytest.raises(CatalogUnavailable) as refused,
        place.out(lease_seconds=600, lease_wait=0),
    ):
        pytest.fail("two have the lease at once")
    for told in ("dag upkeep", "4711", "worker-7", "checkpoint", held.expires_at, ".lease"):
        assert told in str(refused.value)
    assert lease(place) == held
    assert list(place.copies.iterdir()) == []


def test_a_lease_that_is_given_up_goes_to_who_waits(place: Place) -> None:
    """Jobs one after the other see each other's commits and none is refused."""
    place.begin()
    command = [sys.executable, "-c", _JOB.replace("time.sleep(600)", "time.sleep(1)")]
    environment = {**os.environ, **place.options.to_environment()}
    with subprocess.Popen(
        [*command, place.url, str(place.copies), "600"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "committed\n"
        with place.out(lease_seconds=600, lease_wait=120) as checkout:
            add(checkout, "second")
        assert process.wait() == 0
    assert place.tables() == ["first", "second", "stopped"]


@pytest.mark.parametrize("stale", ["expired", "text", "list", "fields"])
def test_a_lease_nobody_holds_is_taken_over(place: Place, stale: str) -> None:
    place.begin()
    set_lease(place, -1)
    broken = {"text": b"lease", "list": b"[1]", "fields": b'{"owner": "x"}'}
    if stale in broken:
        place.store.write(place.url + ".lease", broken[stale])
    with place.out(lease_seconds=600, lease_wait=0, owner="me") as checkout:
        held = lease(place)
        assert held is not None
        assert held.owner == "me"
        add(checkout, "second")
    assert place.objects() == ["catalog.sqlite"]
    assert place.tables() == ["first", "second"]


def test_of_many_who_wait_one_takes_over(place: Place) -> None:
    set_lease(place, -1)
    with place.out(lease_seconds=600, lease_wait=0), pytest.raises(CatalogUnavailable):
        place.run(lambda checkout: pytest.fail("two"), lease_seconds=600, lease_wait=0)


def test_a_lease_is_renewed_while_the_work_goes_on(place: Place) -> None:
    with place.out(lease_seconds=0.3):
        first = lease(place)
        deadline = time.monotonic() + 60
        while lease(place) == first and time.monotonic() < deadline:
            time.sleep(0.02)
        renewed = lease(place)
    assert first is not None
    assert renewed is not None
    assert renewed == replace(first, expires_at=renewed.expires_at)
    assert renewed.until > first.until


def test_a_lost_lease_costs_nothing_but_is_not_taken_back(place: Place) -> None:
    """It is advisory: a run that lost it still commits when nobody else did."""
    place.begin()
    with place.out(lease_seconds=0.3) as checkout:
        theirs = set_lease(place, 600)
        add(checkout, "second")
        time.sleep(0.5)
    assert lease(place) == theirs
    assert place.tables() == ["first", "second"]


def test_a_lost_lease_does_not_overwrite_commits(place: Place) -> None:
    place.begin()

    def work(late: Checkout) -> None:
        add(late, "late")
        place.store.delete([place.url + ".lease"])
        with place.out(lease_seconds=600, lease_wait=0) as early:
            add(early, "early")

    with pytest.raises(CommitConflict):
        place.run(work, lease_seconds=600)
    assert place.tables() == ["early", "first"]


def test_a_lease_that_arrived_without_an_answer_is_held(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that asks again after a lost answer meets its own lease."""
    from airflow_provider_ducklake.storage import PreconditionFailed

    write = RoutedStore.write
    lost: list[str] = []

    def lossy(store: RoutedStore, path: str, data: bytes, **conditions: Any) -> str | None:
        tag = write(store, path, data, **conditions)
        if path.endswith(".lease") and not lost:
            lost.append(path)
            raise PreconditionFailed("it exists already")
        return tag

    monkeypatch.setattr(RoutedStore, "write", lossy)
    with place.out(lease_seconds=600, lease_wait=0):
        assert lost
    assert place.objects() == []


def test_a_job_killed_before_its_catalog_is_back_has_changed_nothing(place: Place) -> None:
    place.begin()
    before = place.store.read(place.url)
    with stopped_job(place, signal.SIGKILL, lease_seconds=2) as pid:
        assert place.store.read(place.url) == before
        held = lease(place)
        assert held is not None
        assert (held.pid, held.owner) == (pid, "nightly")
    # The next run waits for the end of the lease, and begins where the bucket is.
    with place.out(lease_seconds=600, lease_wait=120) as checkout:
        assert [table.name for table in Lake.open(checkout.location).tables()] == ["first"]
        add(checkout, "second")
    assert place.tables() == ["first", "second"]
    assert place.objects() == ["catalog.sqlite"]


def test_a_job_that_is_told_to_stop_puts_back_what_it_committed(place: Place) -> None:
    place.begin()
    with stopped_job(place, signal.SIGTERM):
        assert place.tables() == ["first", "stopped"]
    assert place.objects() == ["catalog.sqlite"]
    assert list(place.copies.iterdir()) == []


def test_only_the_first_signal_interrupts() -> None:
    before = signal.getsignal(signal.SIGTERM)
    interrupted: list[int] = []
    with terminated_as_interrupt():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            pytest.fail("nothing was interrupted")
        except KeyboardInterrupt:
            interrupted.append(1)
            os.kill(os.getpid(), signal.SIGTERM)
            interrupted.append(2)
    assert interrupted == [1, 2]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_waits_for_the_end_of_a_step() -> None:
    steps: list[int] = []

    def work() -> None:
        with undisturbed():
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            steps.append(1)
        steps.append(2)

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == [1]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
