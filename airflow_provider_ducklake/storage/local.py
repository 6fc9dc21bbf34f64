"""Local directories as a store: plain `os` calls, so that every file name is taken literally."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.storage.location import Location, os_path
from airflow_provider_ducklake.storage.objects import (
    DeleteOutcome,
    ObjectInfo,
    ObjectNotFound,
    PreconditionFailed,
)

_GONE = (FileNotFoundError, NotADirectoryError)


class LocalStore:
    """A `Backend` on the local file system.

    Args:
        root: Directory of the lake, if known. While it is missing (an unmounted disk, say) a file
            below it that is not there is a failure to delete, not a deletion done.
    """

    __slots__ = ("_root",)

    def __init__(self, root: str | None = None) -> None:
        self._root = root

    def head(self, path: str) -> ObjectInfo:
        """Describe one regular file; see `Backend.head`."""
        with os_errors("look up", path):
            status = os.stat(os_path(path))
        if not stat.S_ISREG(status.st_mode):
            raise ObjectNotFound(f"cannot look up {path}: it is not a regular file")
        return _info(Location.parse(path), status)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Stream every file below a directory in order of names; see `Backend.list`."""
        top = os_path(prefix)
        if ".." in top.split("/"):
            top = os.path.realpath(top)
        yield from _walk(top, Location.parse(top))

    def delete(self, paths: Iterable[str], *, listed: bool = False) -> DeleteOutcome:
        """Remove files; see `Backend.delete`."""
        outcome = DeleteOutcome()
        for path in dict.fromkeys(paths):
            outcome += self._delete(path)
        return outcome

    def read(self, path: str, *, start: int | None = None, end: int | None = None) -> bytes:
        """Read a file or a range of it; see `Backend.read`."""
        with os_errors("read", path), open(os_path(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            first, last = span(path, size, start, end)
            file.seek(first)
            return file.read(last - first)

    def read_tagged(self, path: str) -> tuple[bytes, str | None]:
        """Read a file with its etag; see `Backend.read_tagged`."""
        with os_errors("read", path), open(os_path(path), "rb") as file:
            before = _etag(os.fstat(file.fileno()))
            data = file.read()
            after = _etag(os.fstat(file.fileno()))
        # `write` replaces files as a whole; other programs may write into them.
        if before != after:
            raise StorageError(f"cannot read {path}: it changed meanwhile")
        return data, after

    def write(
        self, path: str, data: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        """Write a file by renaming a complete temporary one; see `Backend.write`.

        Conditions hold among writers of this class on one machine, by a lock on the directory.
        """
        with os_errors("write", path, missing=StorageError):
            target = os_path(path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with temporary_beside(target) as temporary:
                with open(temporary, "wb") as file:
                    file.write(data)
                    os.fsync(file.fileno())
                with _locked(os.path.dirname(target)):
                    if if_match is not None and _etag_or_none(target) != if_match:
                        raise PreconditionFailed(f"cannot write {path}: it changed meanwhile")
                    if if_absent and os.path.lexists(target):
                        raise PreconditionFailed(f"cannot write {path}: it exists already")
                    _date_after(temporary, target)
                    os.replace(temporary, target)
                    return _etag(os.stat(target))

    def download(self, path: str, local_path: str) -> None:
        """Copy a file to another place; see `Backend.download`."""
        with os_errors("read", path):
            _copy(os_path(path), local_path)

    def upload(self, local_path: str, path: str) -> None:
        """Copy a file into the store; see `Backend.upload`."""
        with os_errors("write", path, missing=StorageError):
            target = os_path(path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            _copy(local_path, target)

    def ensure_writable(self, prefix: str) -> None:
        """Create the directory if need be, and a file in it; see `Backend.ensure_writable`."""
        with os_errors("write below", prefix, missing=StorageError):
            top = os_path(prefix)
            os.makedirs(top, exist_ok=True)
            probe = os.path.join(top, f".ducklake-probe-{uuid.uuid4().hex}")
            with open(probe, "xb"):
                pass
            os.unlink(probe)

    def _delete(self, path: str) -> DeleteOutcome:
        try:
            with os_errors("delete", path):
                if path.endswith("/"):
                    raise StorageError(f"cannot delete {path}: it names a directory")
                os.unlink(os_path(path))
        except ObjectNotFound:
            reason = self._why_missing(path)
            if reason:
                return DeleteOutcome(failed=((path, reason),))
            return DeleteOutcome(missing=(path,))
        except StorageError as error:
            return DeleteOutcome(failed=((path, str(error)),))
        return DeleteOutcome(deleted=(path,))

    def _why_missing(self, path: str) -> str | None:
        if self._root is None or os.path.isdir(os_path(self._root)):
            return None
        if not Location.parse(path).is_under(Location.parse(self._root)):
            return None
        return (
            f"cannot delete {path}: the lake's directory {self._root} is not there (not mounted?)"
        )


def span(path: str, size: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Turn a requested byte range into absolute offsets inside an object.

    Args:
        path: Path of the object, for the message.
        size: Its size in bytes.
        start: First byte, negative from the end, None for the beginning.
        end: Byte after the last one, None for the end of the object.

    Returns:
        Offsets of the first byte and of the byte after the last.

    Raises:
        StorageError: The range does not lie inside the object.
    """
    first = 0 if start is None else start if start >= 0 else size + start
    last = size if end is None else end
    if not 0 <= first <= last <= size:
        raise StorageError(
            f"cannot read bytes {start} to {end} of {path}: the object has only {size} bytes"
        )
    return first, last


@contextlib.contextmanager
def temporary_beside(target: str) -> Iterator[str]:
    """Name a hidden file in the directory of a file to be, and remove it if it is left over.

    Args:
        target: Path of the file to be.

    Yields:
        A path that does not exist yet.
    """
    temporary = os.path.join(os.path.dirname(target), f".{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


@contextlib.contextmanager
def os_errors(
    action: str, path: str, *, missing: type[StorageError] = ObjectNotFound
) -> Iterator[None]:
    """Turn errors of the operating system into those of this package.

    Args:
        action: What is being done, for "cannot … PATH".
        path: What it is done to.
        missing: Error to raise when a file or directory is not there.

    Raises:
        ObjectNotFound: Something is missing.
        StorageError: Anything else.
    """
    try:
        yield
    except _GONE:
        raise missing(f"cannot {action} {path}: no such file or directory") from None
    except OSError as error:
        raise StorageError(f"cannot {action} {path}: {error.strerror or error}") from None


def _walk(directory: str, location: Location) -> Iterator[ObjectInfo]:
    for entry in _entries(directory):
        child = Location("file", "", (*location.segments, entry.name))
        with os_errors("list", entry.path):
            is_directory = entry.is_dir(follow_symlinks=False)
        if is_directory:
            yield from _walk(entry.path, child)
            continue
        status = _status(entry)
        if status is not None and (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            yield _info(child, status)


def _entries(directory: str) -> list[os.DirEntry[str]]:
    """Read one directory; a missing one (it may vanish while we walk) holds nothing."""
    try:
        with os_errors("list", directory), os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except ObjectNotFound:
        return []


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Follow a file symlink, take a dangling one as it is; None if the entry just vanished."""
    with os_errors("list", entry.path):
        for follow in (True, False):
            with contextlib.suppress(FileNotFoundError):
                return entry.stat(follow_symlinks=follow)
    return None


def _info(location: Location, status: os.stat_result) -> ObjectInfo:
    modified = datetime.fromtimestamp(status.st_mtime, tz=timezone.utc)
    return ObjectInfo(location, status.st_size, modified, _etag(status))


def _etag(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _etag_or_none(path: str) -> str | None:
    try:
        return _etag(os.stat(path))
    except FileNotFoundError:
        return None


def _date_after(successor: str, target: str) -> None:
    """Make a file younger than the one it replaces, whatever the ticks of the clock.

    Inode numbers come back: without this, the third version of a file could have the etag of the
    first.
    """
    with contextlib.suppress(FileNotFoundError):
        old, new = os.stat(target).st_mtime_ns, os.stat(successor).st_mtime_ns
        if new <= old:
            os.utime(successor, ns=(old + 1, old + 1))


def _copy(source: str, target: str) -> None:
    with temporary_beside(target) as temporary:
        with open(source, "rb") as reading, open(temporary, "wb") as writing:
            shutil.copyfileobj(reading, writing, 1 << 20)
            os.fsync(writing.fileno())
        os.replace(temporary, target)


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
