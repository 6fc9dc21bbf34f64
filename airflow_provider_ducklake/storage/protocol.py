"""What the rest of the package may ask of object storage."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from typing import Protocol

from airflow_provider_ducklake.storage.location import Location
from airflow_provider_ducklake.storage.objects import DeleteOutcome, ObjectInfo


class Backend(Protocol):
    """The operations one kind of storage implements; `path` is always a full path or URL."""

    def head(self, path: str) -> ObjectInfo:
        """Describe one object.

        Args:
            path: Full path of the object.

        Returns:
            Its description.

        Raises:
            ObjectNotFound: Nothing is there, or a directory.
            StorageError: The store refused.
        """
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Stream every object below a directory.

        Args:
            prefix: Full path of the directory. One that is not there counts as empty.

        Yields:
            The objects, below `locate(prefix)`; below its `real()` location when the prefix is
            local and contains "..". Directory symlinks below the prefix are not followed.

        Raises:
            StorageError: Any part of the listing failed: what came before is not the whole.
        """
        ...

    def delete(self, paths: Iterable[str], *, listed: bool = False) -> DeleteOutcome:
        """Delete objects, as many as possible; a failure of one does not stop the others.

        Args:
            paths: Full paths of objects.
            listed: A listing has just shown them all, so none need be looked up to tell deleted
                from missing: a request less for each where the store deletes in bulk.

        Returns:
            What became of each; a path given twice is reported once.
        """
        ...

    def read(self, path: str, *, start: int | None = None, end: int | None = None) -> bytes:
        """Read an object, or exactly the given range of it.

        Args:
            path: Full path of the object.
            start: First byte; negative counts from the end; the beginning by default.
            end: Byte after the last one; the end of the object by default.

        Returns:
            The bytes.

        Raises:
            ObjectNotFound: Nothing is there.
            StorageError: The store refused, or the object ends before the range does.
        """
        ...

    def read_tagged(self, path: str) -> tuple[bytes, str | None]:
        """Read a whole object together with the etag of exactly these bytes.

        Args:
            path: Full path of the object.

        Returns:
            The bytes, and the etag to give to `write` as `if_match`; None where the store has none.

        Raises:
            ObjectNotFound: Nothing is there.
            StorageError: The store refused, or the object changed while it was read.
        """
        ...

    def write(
        self, path: str, data: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        """Write an object atomically: readers see the old one or the whole new one.

        Args:
            path: Full path of the object.
            data: All of its bytes.
            if_absent: Write only where no object is.
            if_match: Write only over the version with this etag.

        Returns:
            The etag of what was written, None where the store gives none.

        Raises:
            PreconditionFailed: `if_absent` or `if_match` does not hold; nothing was written.
            StorageError: The store refused.
        """
        ...

    def download(self, path: str, local_path: str) -> None:
        """Copy an object to a local file, which appears only when it is complete.

        Args:
            path: Full path of the object.
            local_path: File to create or replace; its directory exists.

        Raises:
            ObjectNotFound: Nothing is there.
            StorageError: The store refused, or the local disk did.
        """
        ...

    def upload(self, local_path: str, path: str) -> None:
        """Copy a local file to an object, which appears only when it is complete.

        Args:
            local_path: File to read.
            path: Full path of the object to create or replace.

        Raises:
            StorageError: The store refused, or the local file cannot be read.
        """
        ...

    def ensure_writable(self, prefix: str) -> None:
        """Prove that objects can be created and removed below a directory.

        Args:
            prefix: Full path of the directory; created when local and missing.

        Raises:
            StorageError: Writing or removing a probe object failed.
        """
        ...


class Store(Backend, Protocol):
    """Object storage as callers see it: any local path or URL, whatever its bucket."""

    def locate(self, path: str) -> Location:
        """Give the identity of an object; on Azure with the account of the storage options.

        Args:
            path: Full path.

        Returns:
            The location.

        Raises:
            BadInput: The path is malformed.
            ConfigurationError: The scheme is not supported.
        """
        ...

    def exists(self, path: str) -> bool:
        """Tell whether an object is there; a directory is not an object.

        Args:
            path: Full path of the object.

        Returns:
            Whether it is there.

        Raises:
            StorageError: The store refused to tell.
        """
        ...

    def size(self, path: str) -> int:
        """Give the size of an object.

        Args:
            path: Full path of the object.

        Returns:
            Bytes.

        Raises:
            ObjectNotFound: Nothing is there.
            StorageError: The store refused.
        """
        ...

    def glob(self, pattern: str) -> builtins.list[str]:
        """Find the objects a path, directory or pattern names.

        Args:
            pattern: Full path of an object; or of a directory, for every `*.parquet` below it; or
                with `*`, `?`, `[…]` inside a segment and `**` for any number of directories.

        Returns:
            Full paths in order, spelled like the pattern; empty when nothing matches.

        Raises:
            BadInput: The pattern is malformed.
            StorageError: The store refused.
        """
        ...

    def stage(self, path: str, directory: str) -> str:
        """Make an object readable as a local file.

        Args:
            path: Full path of the object.
            directory: Local directory that receives a copy of a remote object.

        Returns:
            Path of the copy, or of the object itself when it is local. Copies of different objects
            have different names.

        Raises:
            ObjectNotFound: Nothing is there.
            StorageError: The store refused, or the local disk did.
        """
        ...
