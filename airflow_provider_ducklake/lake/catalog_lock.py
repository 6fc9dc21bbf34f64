"""The queue before a catalog that is one file, and the name of whoever is at its head.

SQLite and DuckDB keep writers apart by locks of their own, which tell little or nothing about who
holds them. Our writers queue on a lock file beside the catalog first. Whoever holds that says so in
it: process, machine, operation. The file is there only while somebody writes. Nothing depends on
it: where it cannot be made, the database's own lock still keeps writers apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Final

from airflow_provider_ducklake.lake.errors import CatalogUnavailable
from airflow_provider_ducklake.lake.instants import format_instant, utc_now
from airflow_provider_ducklake.lake.location import CatalogLocation

SUFFIX: Final = ".lock"
PAUSE: Final = (0.01, 0.1)  # seconds between two looks at a lock, at random so that none starves
_PURPOSE: ContextVar[str] = ContextVar("purpose", default="")


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a catalog file.

    Attributes:
        pid: Process id on its machine.
        host: Name of the machine.
        operation: What it is doing; empty when it does not say.
        since: When it began, as text.
    """

    pid: int
    host: str
    operation: str = ""
    since: str = ""

    @classmethod
    def here(cls) -> Holder:
        """Return this process."""
        return cls(os.getpid(), socket.gethostname(), _PURPOSE.get(), format_instant(utc_now()))

    @property
    def is_this_process(self) -> bool:
        """Whether this process is meant."""
        return (self.pid, self.host) == (os.getpid(), socket.gethostname())

    def __str__(self) -> str:
        told = ", ".join(
            part for part in (self.operation, self.since and f"since {self.since}") if part
        )
        who = "this very process, pid" if self.is_this_process else "process"
        return f"{who} {self.pid} on {self.host}" + (f" ({told})" if told else "")


@contextmanager
def working_on(operation: str) -> Iterator[None]:
    """Say what this process does, for those who wait for it."""
    token = _PURPOSE.set(operation)
    try:
        yield
    finally:
        _PURPOSE.reset(token)


class Turn:
    """Waits for a catalog file, within one limit of time for all it waits for.

    Args:
        location: A catalog in a file.
        timeout: Seconds to wait, for the queue and the database's own lock together.
    """

    def __init__(self, location: CatalogLocation, timeout: float) -> None:
        self._location = location
        self._path = os.path.realpath(location.target)
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout

    @property
    def seconds_left(self) -> float:
        """Seconds that may still be waited, never below zero."""
        return max(0.0, self._deadline - time.monotonic())

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait until no other writer of this package is at work, and be the one.

        Raises:
            CatalogUnavailable: It took too long; the message names the one at work.
        """
        descriptor = self._acquire()
        try:
            yield
        finally:
            if descriptor is not None:
                # Removed while it is still locked: see _current.
                with contextlib.suppress(OSError):
                    os.unlink(self._path + SUFFIX)
                os.close(descriptor)

    def refusal(self, told: str = "") -> CatalogUnavailable:
        """Return the error of one who waited in vain.

        Args:
            told: What the database said about the holder, if nothing better is known.
        """
        held = holder_of(self._path) or told or "another client"
        return CatalogUnavailable(
            f"{self._location} stayed locked by {held} for {self._timeout:g} s; nothing was "
            "changed. Wait for that client or close it; jobs can queue in an Airflow pool of one "
            "slot"
        )

    def pause(self) -> None:
        """Wait a little before the next look."""
        time.sleep(random.uniform(*PAUSE))

    def _acquire(self) -> int | None:
        while True:
            try:
                descriptor = os.open(self._path + SUFFIX, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            except OSError:
                return None
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                if not self.seconds_left:
                    raise self.refusal() from None
                self.pause()
                continue
            except OSError:  # a file system without such locks
                os.close(descriptor)
                return None
            if _current(descriptor, self._path + SUFFIX):
                os.ftruncate(descriptor, 0)
                with contextlib.suppress(OSError):
                    os.pwrite(descriptor, json.dumps(asdict(Holder.here())).encode(), 0)
                return descriptor
            os.close(descriptor)


def holder_of(path: str) -> Holder | None:
    """Return who holds a catalog file, None when that cannot be found out.

    Args:
        path: Path of the catalog file.
    """
    path = os.path.realpath(path)
    noted = _noted(path + SUFFIX)
    pids = _locking_pids([path, f"{path}-wal", f"{path}-shm", f"{path}.wal"])
    # Who waits in vain may hold a part of the lock itself.
    others = [pid for pid in pids if pid != os.getpid()] or pids
    if not others:
        return noted
    host = socket.gethostname()
    if noted is not None and noted.host == host and noted.pid in others:
        return noted
    return Holder(others[0], host, _program(others[0]))


def _current(descriptor: int, path: str) -> bool:
    """Tell whether a locked file is still the one of that name: its last holder removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _noted(path: str) -> Holder | None:
    """Read the note of whoever holds a lock file; that of a dead process counts for nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        with contextlib.suppress(ValueError, TypeError):
            return Holder(**json.loads(os.pread(descriptor, 10_000, 0)))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def _locking_pids(paths: list[str]) -> list[int]:
    """Return the processes of this machine that have locks on files, writers first."""
    inodes = set()
    for path in paths:
        with contextlib.suppress(OSError):
            status = os.stat(path)
            device = status.st_dev
            inodes.add(f"{os.major(device):02x}:{os.minor(device):02x}:{status.st_ino}")
    found: dict[int, bool] = {}
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError:  # not Linux
        return []
    for fields in lines:
        # `1: POSIX  ADVISORY  WRITE 26291 fe:00:3493628 0 EOF`; one who waits has `->` after `1:`.
        if len(fields) >= 6 and fields[1] in ("POSIX", "OFDLCK") and fields[5] in inodes:
            pid = int(fields[4])
            if pid > 0:
                found[pid] = found.get(pid, False) or fields[3] == "WRITE"
    return sorted(found, key=lambda pid: not found[pid])


def _program(pid: int) -> str:
    """Return the name of a process's program, without its arguments: they may hold secrets."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
