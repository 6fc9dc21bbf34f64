"""The identity of an object or directory: one value for all spellings of its path."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from airflow_provider_ducklake.lake.errors import BadInput, ConfigurationError

SCHEME_ALIASES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    "wasb": "az",
    "wasbs": "az",
    "abfs": "az",
    "abfss": "az",
    "file": "file",
}
_SUPPORTED = (
    "local paths, file:///, s3:// (also s3a, s3n), gs:// (gcs) and az:// (azure, abfs(s), wasb(s))"
)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_ONE_SLASH = re.compile(r"(s3|s3a|s3n|gs|gcs|az|azure|wasbs?|abfss?):/(?!/)", re.IGNORECASE)
_AZURE_HOST = re.compile(r"([a-z0-9-]+)\.(?:blob|dfs)\.core\.windows\.net", re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """The identity of an object or directory, equal for every spelling of it.

    Attributes:
        scheme: "file", "s3", "gs" or "az".
        authority: Bucket, or `container` / `container@account` on Azure; "" for files.
        segments: Path segments below the authority, literal (never percent-encoded).
    """

    scheme: str
    authority: str
    segments: tuple[str, ...]
    # The absolute text of a local path that contains "..": only the file system can tell what that
    # means behind a symbolic link (see `real`).
    _spelled: str | None = field(default=None, compare=False, repr=False)

    @classmethod
    def parse(cls, path: str, *, base: str | None = None, account: str | None = None) -> Location:
        """Find out which object a path names, without touching the storage.

        Text is literal, also behind `file:`: DuckDB opens `file:///a%20b` as a directory really
        named `a%20b`, so decoding would name another object than the lake's readers see. For a URI
        reported by Spark or Java use `from_uri`.

        Args:
            path: A path or URL as stored in a catalog or given by a user.
            base: What a relative local path is relative to; the working directory by default.
            account: Azure storage account of an `az://container/…` path that names none.

        Returns:
            The location, with scheme aliases, repeated slashes and `.`/`..` resolved.

        Raises:
            BadInput: The path is empty, malformed, or climbs above its root.
            ConfigurationError: The scheme or Azure endpoint is not supported.
        """
        if not path or "\0" in path:
            raise BadInput(f"not a path: {path!r}")
        if _ONE_SLASH.match(path):
            raise BadInput(f"{_shown(path)!r} has one slash after its scheme: write '://'")
        scheme, authority, key = split_url(path)
        if scheme == "file":
            text = _absolute(key, base)
            if text is None:  # a relative path under a remote base
                return cls.parse(f"{base}/{key}", account=account)
            climbs = ".." in text.split("/")
            return cls("file", "", _segments(text, path), text if climbs else None)
        if scheme == "az" and account and "@" not in authority:
            authority = f"{authority}@{account.lower()}"
        return cls(scheme, authority, _segments(key, path))

    @classmethod
    def from_uri(cls, uri: str) -> Location:
        """Find out which object a percent-encoded URI names, such as Spark's `input_file_name()`.

        Args:
            uri: An absolute URI, percent-encoded by RFC 3986.

        Returns:
            The location.

        Raises:
            BadInput: The URI is malformed.
            ConfigurationError: The scheme is not supported.
        """
        try:
            return cls.parse(unquote(uri, errors="strict"))
        except UnicodeDecodeError:
            raise BadInput(f"{_shown(uri)!r} is not a percent-encoded UTF-8 URI") from None

    def is_under(self, other: Location) -> bool:
        """Tell whether this is `other` itself or lies below it, by whole segments."""
        return (self.scheme, self.authority) == (other.scheme, other.authority) and (
            self.segments[: len(other.segments)] == other.segments
        )

    def ambiguous_with(self, other: Location) -> bool:
        """Tell whether only the storage account is unknown on one side, so no comparison is safe.

        `az://c/x` and `abfss://c@acc.dfs.core.windows.net/x` may or may not be one object; a sweep
        must stop on it. `Store.locate` fills in the account of the storage options.
        """
        mine, theirs = self.authority.split("@"), other.authority.split("@")
        return (
            self.scheme == other.scheme == "az"
            and mine[0] == theirs[0]
            and len(mine) != len(theirs)
        )

    def real(self) -> Location:
        """Follow the symbolic links of a local location; a remote one is returned as it is.

        Returns:
            The location of the same file without links (`os.path.realpath`; no error when it is
            not there).
        """
        if self.scheme != "file":
            return self
        return Location("file", "", _split(os.path.realpath(self._spelled or self._text())))

    @property
    def url(self) -> str:
        """The canonical path as a URL, with literal segments; parses back to this location."""
        key = "/".join(self.segments)
        container, _, account = self.authority.partition("@")
        if account:
            return f"abfss://{container}@{account}.dfs.core.windows.net/{key}"
        return f"{self.scheme}://{self.authority}/{key}"

    @property
    def local_path(self) -> str | None:
        """The absolute path of a local location, None for a remote one."""
        return self._text() if self.scheme == "file" else None

    @property
    def path(self) -> str:
        """The form to show and to hand to a `Store`: a plain path if local, else the URL."""
        return self.local_path or self.url

    @property
    def name(self) -> str:
        """The last segment, "" for a root."""
        return self.segments[-1] if self.segments else ""

    @property
    def parent(self) -> Location:
        """The directory that holds this; a root is its own parent."""
        return Location(self.scheme, self.authority, self.segments[:-1])

    def __str__(self) -> str:
        return self.path

    def _text(self) -> str:
        return "/" + "/".join(self.segments)


def os_path(path: str) -> str:
    """Give the absolute text by which the operating system knows a local path.

    Unlike `Location.local_path` it keeps `..` as spelled, since that may follow a symbolic link.

    Args:
        path: A local path or `file:` URL; relative to the working directory if not absolute.

    Returns:
        The absolute path, literal.

    Raises:
        BadInput: The path is malformed.
        ConfigurationError: The path is not local.
    """
    if not path or "\0" in path:
        raise BadInput(f"not a path: {path!r}")
    scheme, _, text = split_url(path)
    absolute = _absolute(text, None) if scheme == "file" else None
    if absolute is None:
        raise ConfigurationError(f"{_shown(path)!r} is not a path on a local disk")
    return absolute


def split_url(path: str) -> tuple[str, str, str]:
    """Split a path into canonical scheme, canonical authority and the literal rest.

    Args:
        path: A path or URL.

    Returns:
        Scheme ("file", "s3", "gs", "az"), authority ("" for files), and the text behind it: the
        object key without its leading slash, or the file path.

    Raises:
        BadInput: No bucket or container is named, or a `file:` URL is relative.
        ConfigurationError: The scheme or Azure endpoint is not supported, or the URL carries
            credentials.
    """
    if path.startswith("file:/"):
        return "file", "", _file_url_path(path)
    match = _SCHEME.match(path)
    if match is None:
        return "file", "", path
    scheme = SCHEME_ALIASES.get(match[1])
    if scheme is None:
        hint = " in lower case" if match[1].lower() in SCHEME_ALIASES else ""
        raise ConfigurationError(
            f"{_shown(path)!r}: scheme {match[1]!r} is not supported; use {_SUPPORTED}{hint}"
        )
    authority, _, key = path[match.end() :].partition("/")
    if _holds_secret(scheme, path):
        raise ConfigurationError(
            f"{_shown(path)!r} carries credentials: remove them, they belong to the storage options"
        )
    if scheme == "az":
        authority, key = _azure_authority(path, authority, key)
    if not authority:
        raise BadInput(f"{_shown(path)!r} names no bucket or container")
    return scheme, authority, key


def _azure_authority(path: str, authority: str, key: str) -> tuple[str, str]:
    """Canonicalise the three ways to name an Azure container (DuckDB's two and Hadoop's)."""
    container, at, host = authority.partition("@")
    if not at and "." in authority:  # az://account.blob.core.windows.net/container/key
        host = authority
        container, _, key = key.partition("/")
    if not host:
        return container.lower(), key
    match = _AZURE_HOST.fullmatch(host)
    if match is None:
        raise ConfigurationError(
            f"{_shown(path)!r}: Azure host {host!r} is not supported; write az://container/path "
            "and set the storage options azure_storage_account_name and azure_storage_endpoint"
        )
    if not container:
        raise BadInput(f"{_shown(path)!r} names no container")
    return f"{container.lower()}@{match[1].lower()}", key


def _file_url_path(path: str) -> str:
    """Strip the `file:` prefixes that DuckDB knows: file:/x, file:///x, file://localhost/x."""
    rest = path[len("file:") :]
    if rest.startswith("//localhost/"):
        return rest[len("//localhost") :]
    if rest.startswith("//") and not rest.startswith("///"):
        raise BadInput(f"{path!r} is a relative file URL: write file:///dir/file or a plain path")
    return rest[2:] if rest.startswith("//") else rest


def _absolute(path: str, base: str | None) -> str | None:
    """Make a local path absolute; None when it is relative to a remote base."""
    if path.startswith("~"):
        if path[1:2] not in ("", "/"):
            raise BadInput(f"{path!r}: only '~/' is understood, write the path in full")
        path = os.path.expanduser("~") + path[1:]
    if path.startswith("/"):
        return path
    if base is None:
        return f"{os.getcwd()}/{path}"
    scheme, _, base_path = split_url(base)
    if scheme != "file":
        return None
    return f"{_absolute(base_path, None)}/{path}"


def _split(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split("/") if part)


def _segments(text: str, path: str) -> tuple[str, ...]:
    resolved: list[str] = []
    for part in text.split("/"):
        if part == "..":
            if not resolved:
                raise BadInput(f"{_shown(path)!r} climbs above its root with '..'")
            resolved.pop()
        elif part not in ("", "."):
            resolved.append(part)
    return tuple(resolved)


def _holds_secret(scheme: str | None, path: str) -> bool:
    """Tell whether a URL has a user part (Hadoop's way) or a query of `s3_` settings (DuckDB's)."""
    authority, _, key = path.partition("://")[2].partition("/")
    return ":" in authority or (scheme != "az" and "@" in authority) or "?s3_" in key


def _shown(path: str) -> str:
    """The path for a message, without credentials someone put into it."""
    match = _SCHEME.match(path)
    if match and _holds_secret(SCHEME_ALIASES.get(match[1]), path):
        return f"{match[0]}***"
    return path
