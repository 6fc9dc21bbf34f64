"""What a store says about objects, and the answers a caller reacts to differently."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.storage.location import Location


class ObjectNotFound(StorageError):
    """The object asked for is not there."""


class PreconditionFailed(StorageError):
    """A conditional write lost: the object exists already, or is not the version expected."""


class StoreUnreachable(StorageError):
    """The store gives no sensible answer (network, server, bucket): asking on is pointless."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as a store reports it.

    Attributes:
        location: Which object it is.
        size: Bytes.
        last_modified: Time of the last write, by the store's clock, in UTC.
        etag: Version tag for conditional writes, None where a store gives none.
    """

    location: Location
    size: int
    last_modified: datetime
    etag: str | None

    @property
    def path(self) -> str:
        """The full path, to hand back to the store."""
        return self.location.path


@dataclass(frozen=True, slots=True)
class DeleteOutcome:
    """What became of the objects a deletion was asked for; each path is in exactly one place.

    Attributes:
        deleted: Paths whose object was there and is gone now.
        missing: Paths whose object was not there before: done as well.
        failed: Paths whose object may still be there, each with the reason.
    """

    deleted: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()

    @property
    def done(self) -> tuple[str, ...]:
        """Paths whose object is certainly gone."""
        return self.deleted + self.missing

    def __add__(self, other: DeleteOutcome) -> DeleteOutcome:
        return DeleteOutcome(
            self.deleted + other.deleted,
            self.missing + other.missing,
            self.failed + other.failed,
        )
