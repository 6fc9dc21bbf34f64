"""One store for every path of a lake, whatever file system or bucket each lies in."""

from __future__ import annotations

import builtins
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping

from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.storage.local import LocalStore
from airflow_provider_ducklake.storage.location import Location, os_path
from airflow_provider_ducklake.storage.objects import DeleteOutcome, ObjectInfo, ObjectNotFound
from airflow_provider_ducklake.storage.options import StorageOptions
from airflow_provider_ducklake.storage.patterns import expand
from airflow_provider_ducklake.storage.protocol import Backend, Store

_LONGEST_NAME = 120


def open_store(root: Location | str, options: Mapping[str, str] | None = None) -> RoutedStore:
    """Open the storage of a lake.

    Nothing is contacted yet. Files may lie outside the root: registered ones often do.

    Args:
        root: Data path of the lake.
        options: Settings and credentials, see `StorageOptions`.

    Returns:
        The store; it can be pickled and sent to another process.

    Raises:
        BadInput: The root is malformed.
        ConfigurationError: Its scheme or an option is not supported.
    """
    if not isinstance(options, StorageOptions):
        options = StorageOptions(options or {})
    return RoutedStore(root.path if isinstance(root, Location) else root, options)


class RoutedStore(Store):
    """A `Store` that hands each path to the backend of its file system or bucket.

    Args:
        root: Data path of the lake.
        options: Settings and credentials for all buckets.
    """

    __slots__ = ("_account", "_backends", "_options", "root")

    def __init__(self, root: str, options: StorageOptions) -> None:
        self.root = root
        self._options = options
        self._account = options.get("azure_storage_account_name") or os.environ.get(
            "AZURE_STORAGE_ACCOUNT_NAME"
        )
        self._backends: dict[tuple[str, str], Backend] = {}
        self.locate(root)

    def __reduce__(self) -> tuple[type[RoutedStore], tuple[str, StorageOptions]]:
        return RoutedStore, (self.root, self._options)

    def __repr__(self) -> str:
        return f"RoutedStore({self.root!r}, {self._options!r})"

    def locate(self, path: str) -> Location:
        """Give the identity of an object; see `Store.locate`."""
        return Location.parse(path, account=self._account)

    def exists(self, path: str) -> bool:
        """Tell whether an object is there; see `Store.exists`."""
        try:
            self.head(path)
        except ObjectNotFound:
            return False
        return True

    def size(self, path: str) -> int:
        """Give the size of an object in bytes; see `Store.size`."""
        return self.head(path).size

    def head(self, path: str) -> ObjectInfo:
        """Describe one object; see `Backend.head`."""
        return self._backend(path).head(path)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Stream every object below a directory; see `Backend.list`."""
        return self._backend(prefix).list(prefix)

    def delete(self, paths: Iterable[str], *, listed: bool = False) -> DeleteOutcome:
        """Delete objects wherever they lie; see `Backend.delete`."""
        routes: dict[int, tuple[Backend, list[str]]] = {}
        failed: builtins.list[tuple[str, str]] = []
        for path in dict.fromkeys(paths):
            try:
                backend = self._backend(path)
            except LakeError as error:
                failed.append((path, str(error)))
            else:
                routes.setdefault(id(backend), (backend, []))[1].append(path)
        outcome = DeleteOutcome(failed=tuple(failed))
        for backend, group in routes.values():
            outcome += backend.delete(group, listed=listed)
        return outcome

    def read(self, path: str, *, start: int | None = None, end: int | None = None) -> bytes:
        """Read an object or a range of it; see `Backend.read`."""
        return self._backend(path).read(path, start=start, end=end)

    def read_tagged(self, path: str) -> tuple[bytes, str | None]:
        """Read an object with its etag; see `Backend.read_tagged`."""
        return self._backend(path).read_tagged(path)

    def write(
        self, path: str, data: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        """Write an object atomically; see `Backend.write`."""
        return self._backend(path).write(path, data, if_absent=if_absent, if_match=if_match)

    def download(self, path: str, local_path: str) -> None:
        """Copy an object to a local file; see `Backend.download`."""
        self._backend(path).download(path, local_path)

    def upload(self, local_path: str, path: str) -> None:
        """Copy a local file to an object; see `Backend.upload`."""
        self._backend(path).upload(local_path, path)

    def ensure_writable(self, prefix: str) -> None:
        """Prove that objects can be created and removed; see `Backend.ensure_writable`."""
        self._backend(prefix).ensure_writable(prefix)

    def glob(self, pattern: str) -> builtins.list[str]:
        """Find the objects a path, directory or pattern names; see `Store.glob`."""
        return expand(self, pattern)

    def stage(self, path: str, directory: str) -> str:
        """Make an object readable as a local file; see `Store.stage`."""
        location = self.locate(path)
        if location.scheme == "file":
            self.head(path)
            return os_path(path)
        digest = hashlib.sha256(location.url.encode()).hexdigest()[:16]
        target = os.path.join(directory, f"{digest}-{location.name[-_LONGEST_NAME:]}")
        self.download(path, target)
        return target

    def _backend(self, path: str) -> Backend:
        location = self.locate(path)
        place = (location.scheme, location.authority)
        backend = self._backends.get(place)
        if backend is None:
            backend = self._backends.setdefault(place, self._open(location))
        return backend

    def _open(self, location: Location) -> Backend:
        if location.scheme == "file":
            local = self.locate(self.root).scheme == "file"
            return LocalStore(self.root if local else None)
        # obstore is a large library, and lakes on a local disk never need it.
        from airflow_provider_ducklake.storage.remote import RemoteStore

        return RemoteStore(location, self._options)
