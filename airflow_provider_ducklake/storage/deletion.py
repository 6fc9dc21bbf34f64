"""Deleting many objects of a remote store: in bulk, one by one where that fails, nothing lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.storage.objects import (
    DeleteOutcome,
    ObjectNotFound,
    StoreUnreachable,
)

BATCH_SIZE = 1000  # keys that S3 takes in one request
CONCURRENCY = 32


@dataclass(frozen=True, slots=True)
class Deleter:
    """The requests a deletion is made of; they take full paths and raise StorageError.

    Attributes:
        exists: Tells whether an object is there, None when the store does not let us know; raises
            StoreUnreachable only. Bulk requests succeed for missing keys too, so it takes this to
            make `deleted` a true count.
        delete_many: Deletes a batch in one request.
        delete_one: Deletes one object.
    """

    exists: Callable[[str], bool | None]
    delete_many: Callable[[Sequence[str]], None]
    delete_one: Callable[[str], None]

    def delete(self, paths: Sequence[str], *, listed: bool = False) -> DeleteOutcome:
        """Delete objects in batches; what fails is reported, never raised.

        Args:
            paths: Full paths, each once.
            listed: A listing has just shown them all: none is looked up first.

        Returns:
            What became of each path. When the store stops answering, the paths not tried are
            among the failed ones.
        """
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="delete") as pool:
            work = _Deletion(self, pool)
            try:
                for batch in _chunks(paths, BATCH_SIZE):
                    work.batch(batch, listed)
            except StoreUnreachable as error:
                return work.outcome(paths, f"not tried: {error}")
        return work.outcome(paths)


class _Deletion:
    """One deletion under way, and what became of each path so far."""

    def __init__(self, requests: Deleter, pool: ThreadPoolExecutor) -> None:
        self._requests = requests
        self._pool = pool
        self._present: dict[str, bool | None] = {}
        self._deleted: set[str] = set()
        self._missing: set[str] = set()
        self._failed: dict[str, str] = {}

    def outcome(self, paths: Sequence[str], otherwise: str = "") -> DeleteOutcome:
        """Return what became of the paths, in their order; the reason is that of all others."""
        return DeleteOutcome(
            deleted=tuple(path for path in paths if path in self._deleted),
            missing=tuple(path for path in paths if path in self._missing),
            failed=tuple(
                (path, self._failed.get(path, otherwise))
                for path in paths
                if path not in self._deleted and path not in self._missing
            ),
        )

    def batch(self, paths: Sequence[str], listed: bool) -> None:
        """Delete some objects; raises StoreUnreachable when it is no use to go on."""
        if listed:
            self._present = dict.fromkeys(paths, True)
        else:
            found = self._pool.map(self._requests.exists, paths)
            self._present = dict(zip(paths, found, strict=True))
        self._missing.update(path for path in paths if self._present[path] is False)
        self._together([path for path in paths if self._present[path] is not False])

    def _together(self, paths: Sequence[str]) -> None:
        if not paths:
            return
        try:
            self._requests.delete_many(paths)
        except StorageError as error:
            # Some of them may be gone already; only single requests tell one from another. Halves
            # find the few refused ones without a request for each of the many others.
            if len(paths) <= CONCURRENCY or isinstance(error, StoreUnreachable):
                self._one_by_one(paths)
            else:
                middle = len(paths) // 2
                self._together(paths[:middle])
                self._together(paths[middle:])
        else:
            self._deleted.update(paths)

    def _one_by_one(self, paths: Sequence[str]) -> None:
        for chunk in _chunks(paths, CONCURRENCY):
            errors = list(self._pool.map(self._attempt, chunk))
            for path, error in zip(chunk, errors, strict=True):
                if error is None or (isinstance(error, ObjectNotFound) and self._present[path]):
                    self._deleted.add(path)
                elif isinstance(error, ObjectNotFound):
                    self._missing.add(path)
                else:
                    self._failed[path] = str(error)
            last = errors[-1]
            if last is not None and all(isinstance(error, StoreUnreachable) for error in errors):
                raise last

    def _attempt(self, path: str) -> StorageError | None:
        try:
            self._requests.delete_one(path)
        except StorageError as error:
            return error
        return None


def _chunks(paths: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (paths[start : start + size] for start in range(0, len(paths), size))
