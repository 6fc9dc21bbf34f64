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

BATCH_SIZE = 1000
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

    def delete(self, paths: Sequence[str]) -> DeleteOutcome:
        """Delete objects in batches; what fails is reported, never raised.

        Args:
            paths: Full paths, each once.

        Returns:
            What became of each path. When the store stops answering, the paths not tried are
            among the failed ones.
        """
        outcome = DeleteOutcome()
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="delete") as pool:
            for number, batch in enumerate(_chunks(paths, BATCH_SIZE)):
                try:
                    outcome += self._delete_batch(batch, pool)
                except StoreUnreachable as error:
                    rest = paths[number * BATCH_SIZE :]
                    return outcome + _not_tried(rest, error)
        return outcome

    def _delete_batch(self, batch: Sequence[str], pool: ThreadPoolExecutor) -> DeleteOutcome:
        presence = dict(zip(batch, pool.map(self.exists, batch), strict=True))
        missing = tuple(path for path in batch if presence[path] is False)
        present = tuple(path for path in batch if presence[path] is not False)
        if not present:
            return DeleteOutcome(missing=missing)
        try:
            self.delete_many(present)
        except StorageError:
            # Some of the batch may be gone already; only single requests tell one from another.
            return DeleteOutcome(missing=missing) + self._delete_singly(present, presence, pool)
        return DeleteOutcome(deleted=present, missing=missing)

    def _delete_singly(
        self,
        paths: Sequence[str],
        presence: dict[str, bool | None],
        pool: ThreadPoolExecutor,
    ) -> DeleteOutcome:
        outcome = DeleteOutcome()
        for number, chunk in enumerate(_chunks(paths, CONCURRENCY)):
            errors = list(pool.map(self._attempt, chunk))
            for path, error in zip(chunk, errors, strict=True):
                if error is None or (isinstance(error, ObjectNotFound) and presence[path]):
                    outcome += DeleteOutcome(deleted=(path,))
                elif isinstance(error, ObjectNotFound):
                    outcome += DeleteOutcome(missing=(path,))
                else:
                    outcome += DeleteOutcome(failed=((path, str(error)),))
            last = errors[-1]
            if last is not None and all(isinstance(error, StoreUnreachable) for error in errors):
                return outcome + _not_tried(paths[(number + 1) * CONCURRENCY :], last)
        return outcome

    def _attempt(self, path: str) -> StorageError | None:
        try:
            self.delete_one(path)
        except StorageError as error:
            return error
        return None


def _not_tried(paths: Sequence[str], error: StorageError) -> DeleteOutcome:
    return DeleteOutcome(failed=tuple((path, f"not tried: {error}") for path in paths))


def _chunks(paths: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (paths[start : start + size] for start in range(0, len(paths), size))
