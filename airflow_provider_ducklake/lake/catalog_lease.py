"""A lease on a catalog in a bucket: jobs wait for each other instead of doing work in vain.

The lease is an object beside the catalog that says who works on it and until when. It is advisory:
what keeps one run from overwriting another's commits is the conditional write of the catalog
itself. So a lease that is lost, expired too early by a wrong clock or removed by hand costs at most
a run that has to be done again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from airflow_provider_ducklake.lake.errors import (
    CatalogUnavailable,
    StorageError,
    UnsupportedCatalog,
)
from airflow_provider_ducklake.lake.instants import format_instant, parse_instant, utc_now
from airflow_provider_ducklake.storage import ObjectNotFound, PreconditionFailed, Store

SUFFIX: Final = ".lease"
_LONGEST_PAUSE: Final = 2.0  # seconds between two looks at somebody else's lease
_log: Final = logging.getLogger("airflow_provider_ducklake")


@dataclass(frozen=True, slots=True)
class Tenure:
    """What a lease object says.

    Attributes:
        owner: Who works, in words that mean something to people.
        host: Machine of the job.
        pid: Process id of the job on it.
        operation: What the job does.
        expires_at: When the lease ends unless it is renewed, by the clock of that machine.
        token: Tells this lease from any other of the same owner.
    """

    owner: str
    host: str
    pid: int
    operation: str
    expires_at: str
    token: str

    @classmethod
    def parse(cls, data: bytes) -> Tenure | None:
        """Read a lease object; None when it is none, which nobody can hold."""
        try:
            found = cls(**json.loads(data))
            parse_instant(found.expires_at)
        except (ValueError, TypeError, AttributeError, UnsupportedCatalog):
            return None
        return found

    @property
    def until(self) -> datetime:
        """When it ends."""
        return parse_instant(self.expires_at)

    def extended(self, seconds: float) -> Tenure:
        """Return the same lease that ends some seconds from now."""
        return replace(self, expires_at=format_instant(utc_now() + timedelta(seconds=seconds)))

    def to_bytes(self) -> bytes:
        """Return what is stored."""
        return json.dumps(asdict(self), indent=1).encode()

    def __str__(self) -> str:
        doing = f" ({self.operation})" if self.operation else ""
        return f"{self.owner}, process {self.pid} on {self.host}{doing}"


@contextmanager
def leased(
    store: Store, url: str, *, owner: str, operation: str, seconds: float, wait: float
) -> Iterator[None]:
    """Hold the lease of a catalog; it is renewed while the work goes on and given up at the end.

    Args:
        store: Storage of the catalog.
        url: The catalog; the lease is the object of that name with `.lease` behind it.
        owner: Who works, for the messages of those who wait.
        operation: What is done.
        seconds: How long the lease holds without being renewed: others wait that long for a job
            that was killed.
        wait: Seconds to wait for somebody else's lease.

    Raises:
        CatalogUnavailable: Somebody else kept it all that time; the message names them.
        StorageError: The store refused.
    """
    lease = _Lease(store, url, owner, operation, seconds)
    lease.acquire(wait)
    stop = threading.Event()
    renewal = threading.Thread(target=lease.keep, args=(stop,), name="catalog-lease", daemon=True)
    renewal.start()
    try:
        yield
    finally:
        stop.set()
        renewal.join()
        lease.release()


class _Lease:
    def __init__(self, store: Store, url: str, owner: str, operation: str, seconds: float) -> None:
        self._store = store
        self._url = url
        self._path = url + SUFFIX
        self._seconds = seconds
        self._tag: str | None = None
        self._own = Tenure(owner, socket.gethostname(), os.getpid(), operation, "", uuid4().hex)

    def acquire(self, wait: float) -> None:
        deadline = time.monotonic() + wait
        told = False
        while True:
            found = self._look()
            if found is None:
                if self._write(if_absent=True):
                    return
                continue
            tenure, tag = found
            if tenure is not None and tenure.token == self._own.token:
                self._tag = tag  # written after all: only the answer was lost
                return
            if tenure is None or tenure.until < utc_now():
                # Over the very version that was seen: of several who wait only one gets it.
                if self._write(if_match=tag):
                    _log.info("took over the lease on %s from %s", self._url, tenure)
                    return
                continue
            if time.monotonic() >= deadline:
                raise CatalogUnavailable(
                    f"the catalog {self._url} is leased by {tenure}, and was for the {wait:g} s "
                    f"this job waited. Unless renewed, the lease ends at {tenure.expires_at}. Let "
                    "jobs queue in an Airflow pool of one slot, or, if that job is surely gone, "
                    f"delete {self._path}"
                )
            if not told:
                _log.info("waiting for the lease on %s, held by %s", self._url, tenure)
                told = True
            time.sleep(random.uniform(0.5, 1) * min(_LONGEST_PAUSE, self._seconds / 2))

    def keep(self, stop: threading.Event) -> None:
        while not stop.wait(self._seconds / 3):
            try:
                if self._write(if_match=self._tag):
                    continue
            except StorageError as error:
                _log.warning("the lease on %s could not be renewed: %s", self._url, error)
                continue
            if self._holds():  # a renewal that arrived although its answer did not
                continue
            _log.warning("the lease on %s was taken over by another job", self._url)
            return

    def release(self) -> None:
        # It may be gone, or somebody else's; whoever waits waits for its end at most.
        with contextlib.suppress(StorageError):
            if self._holds():
                self._store.delete([self._path])

    def _holds(self) -> bool:
        found = self._look()
        if found is None or found[0] is None or found[0].token != self._own.token:
            return False
        self._tag = found[1]
        return True

    def _look(self) -> tuple[Tenure | None, str | None] | None:
        try:
            data, tag = self._store.read_tagged(self._path)
        except ObjectNotFound:
            return None
        return Tenure.parse(data), tag

    def _write(self, *, if_absent: bool = False, if_match: str | None = None) -> bool:
        own = self._own.extended(self._seconds)
        try:
            self._tag = self._store.write(
                self._path, own.to_bytes(), if_absent=if_absent, if_match=if_match
            )
        except PreconditionFailed:
            return False
        return True
