"""A SQLite catalog in a bucket: fetched before the work, put back after it, never over another's.

What keeps commits safe is one conditional write: the catalog goes back only over the very version
it was made from. A run that finds another version there loses nothing and overwrites nothing: its
copy is kept and the error says where. The lease (see `catalog_lease`) merely spares that.

A commit counts once the catalog is back in the bucket. A job killed before that has changed
nothing; the data files it wrote are known to no catalog, and swept as orphans later.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final
from uuid import uuid4

from airflow_provider_ducklake.lake.catalog_copy import CatalogCopy, refuse_relative_data_path
from airflow_provider_ducklake.lake.catalog_lease import leased
from airflow_provider_ducklake.lake.errors import (
    CommitConflict,
    CommitStateUnknown,
    ConfigurationError,
    LakeError,
    SafetyRefusal,
    StorageError,
)
from airflow_provider_ducklake.lake.fault_points import FaultPoint, reach
from airflow_provider_ducklake.lake.interrupts import undisturbed
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.storage import (
    ObjectNotFound,
    PreconditionFailed,
    StorageOptions,
    Store,
    StoreUnreachable,
    open_store,
)

LEASE_SECONDS: Final = 60.0
LEASE_WAIT: Final = 600.0
_PAUSES: Final = (0.5, 1.0, 2.0, 4.0)  # seconds before each further attempt to put a catalog back
_log: Final = logging.getLogger("airflow_provider_ducklake")


@contextmanager
def checked_out(
    url: str,
    storage: StorageOptions | None = None,
    *,
    data_path: str | None = None,
    owner: str = "",
    operation: str = "",
    read_only: bool = False,
    lease_seconds: float = LEASE_SECONDS,
    lease_wait: float = LEASE_WAIT,
    directory: str | None = None,
) -> Iterator[Checkout]:
    """Work on a private copy of a SQLite catalog in a bucket; what was committed is put back.

    It is put back at the end, also when the work ends in an error or is interrupted, unless nothing
    was committed. With no object at the URL yet there is no copy either: whoever creates a lake at
    the location makes the first one.

    Args:
        url: Object that holds the catalog: `s3://`, `gs://`, `az://` or `file:///`.
        storage: How it is reached; None is the default credential chain.
        data_path: Where the caller says the data lies.
        owner: Who works, as others are told that wait.
        operation: What is done, likewise.
        read_only: Nothing is to be changed: no lease is taken and nothing put back.
        lease_seconds: How long a lease holds without being renewed; 0 takes none.
        lease_wait: Seconds to wait for the lease of another job.
        directory: Where the private directory of the copy is made; None is the system's place for
            temporary files.

    Yields:
        The copy: `location` for `Lake.open`, `publish` to put it back at once.

    Raises:
        CatalogUnavailable: Another job kept the lease.
        CommitConflict: Another run was first; nothing of it was overwritten, and the message says
            where this run's catalog is kept.
        CommitStateUnknown: The bucket went away while the catalog was put back.
        SafetyRefusal: The catalog, there or here, is not intact, or the store ignores conditions.
        UnsupportedCatalog: The object is no DuckLake catalog in SQLite.
        ConfigurationError: A data path is relative, or the URL names no object.
        StorageError: The store refused.
    """
    store = open_store(url, storage)
    where = store.locate(url)
    if not where.segments or url.endswith("/"):
        raise ConfigurationError(
            f"{url} names no object: write e.g. s3://bucket/lake/catalog.sqlite"
        )
    refuse_relative_data_path(data_path, url)
    lease: AbstractContextManager[None] = nullcontext()
    if not read_only:
        prove_conditions(url, storage)
        if lease_seconds > 0:
            lease = leased(
                store,
                url,
                owner=owner or f"user {os.getuid()}",
                operation=operation,
                seconds=lease_seconds,
                wait=lease_wait,
            )
    # Only its owner may look into it: a catalog holds the keys of encrypted files.
    home = tempfile.mkdtemp(prefix="ducklake-catalog-", dir=directory)
    checkout = None
    try:
        with lease:
            checkout = Checkout(url, store, home, data_path, read_only)
            try:
                yield checkout
            except BaseException as error:
                checkout._publish_after(error)
                raise
            checkout.publish()
    finally:
        if checkout is None or not checkout.is_kept:
            shutil.rmtree(home, ignore_errors=True)


class Checkout:
    """A private copy of a catalog in a bucket; made by `checked_out`.

    Attributes:
        url: The object.
        location: The copy, as a catalog like any other.
        is_new: Whether there was no object yet.
        is_kept: Whether the copy holds commits that are not in the bucket, so that it must stay.
    """

    def __init__(
        self, url: str, store: Store, home: str, data_path: str | None, read_only: bool
    ) -> None:
        self.url = url
        self.is_kept = False
        self._store = store
        self._copy = CatalogCopy(os.path.join(home, "catalog.sqlite"), url)
        self._read_only = read_only
        self._tag: str | None = None
        self._digest = ""
        self._head = -1
        try:
            data, self._tag = store.read_tagged(url)
        except ObjectNotFound:
            self.is_new = True
        else:
            self.is_new = False
            if self._tag is None and not read_only:
                raise ConfigurationError(
                    f"the store gives {url} no ETag, so that concurrent runs could not be told "
                    "apart: keep the catalog in S3, Google Cloud Storage, Azure or PostgreSQL"
                )
            self._copy.write(data)
            self._head = self._copy.verify()
            self._digest = _digest(self._copy.read())
        self.location = CatalogLocation(
            "sqlite", self._copy.path, data_path=data_path or None, shown_as=url
        )

    def publish(self) -> bool:
        """Put the catalog back if anything was committed since it was fetched or put back last.

        Returns:
            Whether there was anything to put back.

        Raises:
            LakeError: As `checked_out` says.
        """
        if self._read_only:
            return False
        with undisturbed():
            kept_before, self.is_kept = self.is_kept, True
            data = self._copy.read() if not self.is_new or self._copy.exists else b""
            digest = _digest(data) if data else self._digest
            if digest == self._digest:
                self.is_kept = kept_before
                return False
            head = self._copy.verify()
            reach(FaultPoint.NOT_PUT_BACK)
            self._put(data, head)
            reach(FaultPoint.PUT_BACK)
            self._digest, self._head, self.is_new, self.is_kept = digest, head, False, False
        _log.info("catalog %s is at snapshot %s", self.url, self._head)
        return True

    def make_current(self) -> None:
        """Put the catalog back and make sure nobody else's is there: before objects are deleted.

        A file that only this copy has let go of may be in use by the catalog in the bucket.

        Raises:
            CommitConflict: Another run was first; nothing may be deleted by this copy.
            LakeError: As `checked_out` says.
        """
        if self._read_only or self.publish():
            return
        try:
            tag = self._store.read_tagged(self.url)[1]
        except ObjectNotFound:
            tag = None
        if tag != self._tag:
            raise CommitConflict(
                f"the catalog {self.url} was changed by another run meanwhile: nothing was "
                "deleted by what this run knows. Run the job again"
            )

    def _publish_after(self, error: BaseException) -> None:
        """Put back what a job committed before it failed."""
        try:
            self.publish()
        except LakeError as refused:
            told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise type(refused)(f"{refused}. Before that, the job ended with {told}") from error

    def _put(self, data: bytes, head: int) -> None:
        for pause in (*_PAUSES, None):
            try:
                self._tag = self._store.write(
                    self.url, data, if_absent=self._tag is None, if_match=self._tag
                )
            except StorageError as refused:
                if self._is_there(data, head, refused):
                    return
                if not isinstance(refused, StoreUnreachable):
                    raise type(refused)(f"{refused}; {self._fate(head)}") from None
                if pause is None:
                    raise CommitStateUnknown(
                        f"{refused}. It may have been written all the same: look before anything "
                        f"else whether {self.url} has it. If not, {self._fate(head)}"
                    ) from None
                _log.warning("%s; trying again in %g s", refused, pause)
                time.sleep(pause)
            else:
                return

    def _is_there(self, data: bytes, head: int, refused: StorageError) -> bool:
        """Find out what a failed write came to; raise when another run's catalog is there.

        A client that asks again after a lost answer meets its own object and is told of a
        conflict: only the bytes tell.
        """
        try:
            there, tag = self._store.read_tagged(self.url)
        except ObjectNotFound:
            if self._tag is None:
                return False
            raise SafetyRefusal(
                f"{self.url} was removed while this job worked, and is not made anew: nobody knows "
                f"why it went. {self._fate(head)}"
            ) from None
        except StorageError:
            return False
        if there == data:
            self._tag = tag
            return True
        if tag == self._tag and not isinstance(refused, PreconditionFailed):
            return False
        raise CommitConflict(
            f"the catalog {self.url} was changed by another run while this one worked; nothing of "
            f"that run was overwritten. {self._fate(head)}"
        ) from None

    def _fate(self, head: int) -> str:
        news = f"snapshots {self._head + 1} to {head}" if head > self._head else "changes"
        return (
            f"this run's {news} are not in the bucket; the catalog that has them is kept in "
            f"{self._copy.path} on this machine. Run the job again: it begins with the catalog in "
            "the bucket. Data files only the kept catalog names are swept by delete_orphaned_files"
        )


def prove_conditions(url: str, storage: StorageOptions | None = None) -> None:
    """Make sure that the store honours conditions of writes: some servers silently ignore them.

    Args:
        url: A catalog in a bucket; probe objects are written beside it and removed.
        storage: How it is reached.

    Raises:
        SafetyRefusal: Concurrent runs would overwrite each other's commits there.
        StorageError: The store refused, for instance to let anything be written.
    """
    store = open_store(url, storage)
    if store.locate(url).scheme == "file":
        return
    probe = f"{url}.probe-{uuid4().hex}"
    tag = store.write(probe, b"1", if_absent=True)
    try:
        for condition in ({"if_absent": True}, {"if_match": _other(tag)}):
            with contextlib.suppress(PreconditionFailed):
                store.write(probe, b"2", **condition)
                raise SafetyRefusal(
                    f"the store of {url} ignores conditions of writes, so that concurrent runs "
                    "would overwrite each other's commits: use one that honours If-Match and "
                    "If-None-Match, or keep the catalog in PostgreSQL"
                )
    finally:
        store.delete([probe])


def _other(tag: str | None) -> str:
    """Return a tag of the same form that is of no version of an object just made."""
    if tag is not None and tag.isdigit():
        return "1" if tag != "1" else "2"
    return '"00000000000000000000000000000000"'


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
