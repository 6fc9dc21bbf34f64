"""S3, Google Cloud Storage and Azure Blob Storage as stores, through obstore."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from airflow_provider_ducklake.lake.errors import ConfigurationError, StorageError
from airflow_provider_ducklake.storage.deletion import Deleter
from airflow_provider_ducklake.storage.local import os_errors, span, temporary_beside
from airflow_provider_ducklake.storage.location import Location, split_url
from airflow_provider_ducklake.storage.objects import (
    DeleteOutcome,
    ObjectInfo,
    ObjectNotFound,
    PreconditionFailed,
    StoreUnreachable,
)
from airflow_provider_ducklake.storage.options import StorageOptions

if TYPE_CHECKING:
    from obstore import Bytes, ObjectMeta, PutResult

_LIST_CHUNK = 1000
_PART = 8 << 20
_PARALLEL = 8
_SERVER_TEXT = re.compile(r"<Code>([^<]*)</Code>\s*(?:<Message>([^<]*)</Message>)?")
# The last is how a bulk deletion tells of one key that the store keeps.
_REFUSED = re.compile(r"status code: 4(?!08|29)\d\d|DeleteObjects request failed for key")
_DENIED = re.compile(r"status code: 40[13]\b")
_THROTTLED = re.compile(r"status code: ((?:429|503)\b[ \w]*)|<Code>(?:SlowDown|ServerBusy)</Code>")
_QUERY = re.compile(r"\?\S*")

_Client = S3Store | GCSStore | AzureStore


class RemoteStore:
    """A `Backend` on one bucket or container.

    Args:
        location: Any location in it.
        options: Settings and credentials.

    Raises:
        ConfigurationError: The options do not make up a client.
    """

    __slots__ = ("_authority", "_client", "_options", "_proven", "_scheme", "_single_client")

    def __init__(self, location: Location, options: StorageOptions) -> None:
        self._scheme = location.scheme
        self._authority = location.authority
        self._options = options
        self._client = self._connect({})
        # Some S3 servers know no bulk deletion, and obstore uses it even for a single key.
        one_by_one = {"aws_disable_bulk_delete": "true"}
        self._single_client = self._connect(one_by_one) if self._scheme == "s3" else self._client
        self._proven = False

    def head(self, path: str) -> ObjectInfo:
        """Describe one object; see `Backend.head`."""
        key = self._object_key(path)
        try:
            with self._translated("look up", path):
                return self._info(obstore.head(self._client, key))
        except ObjectNotFound:
            self._require_container()
            raise

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Stream every object below a prefix; see `Backend.list`."""
        key = self._key(prefix.rstrip("/") + "/")
        with self._translated("list", prefix):
            stream = obstore.list(self._client, key or None, chunk_size=_LIST_CHUNK)
        while True:
            with self._translated("list", prefix):
                chunk = next(stream, None)
            if chunk is None:
                return
            yield from map(self._info, chunk)

    def delete(self, paths: Iterable[str], *, listed: bool = False) -> DeleteOutcome:
        """Delete objects in bulk; see `Backend.delete`."""
        good: list[str] = []
        failed: list[tuple[str, str]] = []
        for path in dict.fromkeys(paths):
            try:
                self._object_key(path)
            except StorageError as error:
                failed.append((path, str(error)))
            else:
                good.append(path)
        deleter = Deleter(self._probe, self._delete_many, self._delete_one)
        return deleter.delete(good, listed=listed) + DeleteOutcome(failed=tuple(failed))

    def read(self, path: str, *, start: int | None = None, end: int | None = None) -> bytes:
        """Read an object or a range of it; see `Backend.read`."""
        key = self._object_key(path)
        if not start and end is None:
            with self._translated("read", path):
                return bytes(obstore.get(self._client, key).bytes())
        if start is None or start < 0 or end is None or end <= start:
            start, end = span(path, self.head(path).size, start, end)
        if start == end:
            return b""
        with self._translated("read", path):
            data = bytes(obstore.get_range(self._client, key, start=start, end=end))
        if len(data) != end - start:
            raise StorageError(
                f"cannot read bytes {start} to {end} of {path}: it ends at {start + len(data)}"
            )
        return data

    def read_tagged(self, path: str) -> tuple[bytes, str | None]:
        """Read an object with its etag; see `Backend.read_tagged`."""
        key = self._object_key(path)
        try:
            with self._translated("read", path):
                # One request, so that the bytes are of the version the answer names.
                answer = obstore.get(self._client, key)
                return bytes(answer.bytes()), self._tag(answer.meta)
        except ObjectNotFound:
            self._require_container()
            raise

    def write(
        self, path: str, data: bytes, *, if_absent: bool = False, if_match: str | None = None
    ) -> str | None:
        """Write an object; see `Backend.write`."""
        key = self._object_key(path)
        mode: Any = "create" if if_absent else "overwrite"
        if if_match is not None:
            mode = {"version" if self._scheme == "gs" else "e_tag": if_match}
        with self._translated("write", path):
            return self._tag(obstore.put(self._client, key, data, mode=mode))

    def download(self, path: str, local_path: str) -> None:
        """Fetch an object in parallel ranges; see `Backend.download`."""
        key = self._object_key(path)
        size = self.head(path).size
        with (
            os_errors("write", local_path, missing=StorageError),
            temporary_beside(local_path) as temporary,
        ):
            with open(temporary, "wb") as file:
                for offset in range(0, size, _PART * _PARALLEL):
                    stop = min(size, offset + _PART * _PARALLEL)
                    file.writelines(self._read_parts(path, key, offset, stop))
                written = file.tell()
            if written != size:
                raise StorageError(f"cannot read {path}: {written} of {size} bytes arrived")
            os.replace(temporary, local_path)

    def upload(self, local_path: str, path: str) -> None:
        """Send a local file, in parts when it is large; see `Backend.upload`."""
        key = self._object_key(path)
        with (
            os_errors("read", local_path, missing=StorageError),
            open(local_path, "rb") as file,
            self._translated("write", path),
        ):
            obstore.put(self._client, key, file, chunk_size=_PART, max_concurrency=_PARALLEL)

    def ensure_writable(self, prefix: str) -> None:
        """Write and remove a probe object; see `Backend.ensure_writable`."""
        probe = f"{prefix.rstrip('/')}/.ducklake-probe-{uuid.uuid4().hex}"
        self.write(probe, b"")
        self._delete_one(probe)

    def _read_parts(self, path: str, key: str, offset: int, stop: int) -> Sequence[Bytes]:
        starts = range(offset, stop, _PART)
        ends = [min(stop, start + _PART) for start in starts]
        with self._translated("read", path):
            return obstore.get_ranges(self._client, key, starts=list(starts), ends=ends, coalesce=0)

    def _connect(self, extra: dict[str, str]) -> _Client:
        container, _, account = self._authority.partition("@")
        config: Any = {**self._options.for_scheme(self._scheme), **extra}
        client: Any = self._options.for_client()
        retry: Any = {
            "max_retries": int(self._options.number("max_retries", 10)),
            "retry_timeout": timedelta(seconds=self._options.number("retry_timeout", 180)),
        }
        try:
            if self._scheme == "s3":
                return S3Store(container, config=config, client_options=client, retry_config=retry)
            if self._scheme == "gs":
                return GCSStore(container, config=config, client_options=client, retry_config=retry)
            if account:
                config["azure_storage_account_name"] = account
            return AzureStore(container, config=config, client_options=client, retry_config=retry)
        except (BaseError, OSError, TypeError, ValueError) as error:
            reason = self._reason(error)
            raise ConfigurationError(
                f"cannot open {self._root}: {reason}; check the storage options"
            ) from None

    @property
    def _root(self) -> str:
        return Location(self._scheme, self._authority, ()).url

    def _key(self, path: str) -> str:
        """Give the object key of a path, refusing one that obstore would silently change."""
        location = Location.parse(path)
        same_container = location.authority.partition("@")[0] == self._authority.partition("@")[0]
        if location.scheme != self._scheme or not same_container:
            raise StorageError(f"{path} is not in {self._root}")
        if "" in split_url(path)[2].removesuffix("/").split("/")[:-1]:
            raise StorageError(
                f"{path}: a key with an empty segment ('//') is not supported; it names another "
                "object than the path with one slash"
            )
        return "/".join(location.segments)

    def _object_key(self, path: str) -> str:
        key = self._key(path)
        if not key or path.endswith("/"):
            raise ObjectNotFound(f"{path} names a directory, not an object")
        return key

    def _info(self, meta: ObjectMeta) -> ObjectInfo:
        location = Location(self._scheme, self._authority, tuple(meta["path"].split("/")))
        return ObjectInfo(location, meta["size"], meta["last_modified"], self._tag(meta))

    def _tag(self, meta: ObjectMeta | PutResult) -> str | None:
        # Google's conditions are on the generation of an object; its ETag is no use for them.
        return meta["version"] if self._scheme == "gs" else meta["e_tag"]

    def _probe(self, path: str) -> bool | None:
        try:
            self.head(path)
        except ObjectNotFound:
            return False
        except StoreUnreachable:
            raise
        except StorageError:
            return None
        return True

    def _require_container(self) -> None:
        """Stop when the bucket itself is missing: a HEAD request cannot tell that from a key."""
        if self._proven:
            return
        with contextlib.suppress(ObjectNotFound):
            try:
                with self._translated("list", self._root):
                    obstore.list_with_delimiter(self._client, f".ducklake-{uuid.uuid4().hex}")
            except StoreUnreachable:
                raise
            except StorageError as error:
                if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                    raise StoreUnreachable(str(error)) from None
        self._proven = True

    def _delete_many(self, paths: Sequence[str]) -> None:
        keys = [self._object_key(path) for path in paths]
        self._delete(self._client, keys, f"{len(paths)} objects of {self._root}")

    def _delete_one(self, path: str) -> None:
        self._delete(self._single_client, self._object_key(path), path)

    def _delete(self, client: _Client, keys: str | Sequence[str], what: str) -> None:
        try:
            with self._translated("delete", what):
                obstore.delete(client, keys)
        except ObjectNotFound:
            self._require_container()
            raise

    @contextlib.contextmanager
    def _translated(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            # Not chained: the library's own text can hold a signed URL.
            raise _kind(error)(f"cannot {action} {path}: {self._reason(error)}") from None

    def _reason(self, error: Exception) -> str:
        """One line of an error, as the server words it, without credentials or debug output."""
        text = str(error).split("\n\nDebug source")[0]
        throttled = _THROTTLED.search(text)
        match = _SERVER_TEXT.search(text)
        if match:
            text = ": ".join(part for part in match.groups() if part)
        elif throttled:
            text = throttled[1]
        text = _QUERY.sub("", " ".join(text.split()))
        if throttled:
            text = (
                f"the store asks for fewer requests ({text[:200]}); run the job again later, or "
                "with fewer tasks at a time. The storage options max_retries and retry_timeout "
                "say how long to go on asking"
            )
        if _is_denied(error):
            text = f"access denied ({text}); check the credentials in the storage options"
        return self._options.redact(text)[:500]


def _is_denied(error: Exception) -> bool:
    # Listings and bulk deletions report a 403 as a generic error.
    denied = isinstance(error, (PermissionDeniedError, UnauthenticatedError))
    return denied or (isinstance(error, GenericError) and bool(_DENIED.search(str(error))))


def _kind(error: Exception) -> type[StorageError]:
    if isinstance(error, FileNotFoundError):
        return ObjectNotFound
    if isinstance(error, (AlreadyExistsError, PreconditionError)):
        return PreconditionFailed
    if isinstance(error, GenericError) and not _REFUSED.search(str(error)):
        return StoreUnreachable
    return StorageError
