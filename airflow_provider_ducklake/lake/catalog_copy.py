"""The local copy of a SQLite catalog: written privately, read as one whole file, verified."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Final
from urllib.parse import quote

from airflow_provider_ducklake.lake.errors import (
    CatalogUnavailable,
    ConfigurationError,
    LakeError,
    SafetyRefusal,
    UnsupportedCatalog,
)
from airflow_provider_ducklake.storage.location import split_url

_MAGIC: Final = b"SQLite format 3\0"
_LOCK_SECONDS: Final = 60.0


class CatalogCopy:
    """A SQLite file that only this job works on.

    Args:
        path: The file; its directory exists and is nobody else's.
        url: The object it is a copy of, for messages.
    """

    def __init__(self, path: str, url: str) -> None:
        self.path = path
        self._url = url

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return os.path.lexists(self.path)

    def write(self, data: bytes) -> None:
        """Make the file, readable by nobody else.

        Raises:
            UnsupportedCatalog: The bytes are no SQLite database.
        """
        if not data.startswith(_MAGIC):
            raise UnsupportedCatalog(
                f"{self._url} holds no SQLite database ({len(data):,} bytes): check the URL"
            )
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)

    def read(self) -> bytes:
        """Return the whole catalog as one file, everything in it that was committed.

        Raises:
            CatalogUnavailable: Another client still works on it.
            SafetyRefusal: It is gone or damaged.
        """
        if not self.exists:
            raise SafetyRefusal(
                f"the copy {self.path} of {self._url} is gone; the one in the bucket is as it was"
            )
        try:
            with closing(self._connect()) as connection:
                # A write-ahead log would be a second file; this also puts away what a client that
                # died left half done.
                (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
                if mode != "delete":
                    raise CatalogUnavailable(
                        f"{self.path} is in journal mode {mode!r}: another client has it open"
                    )
                connection.execute("BEGIN IMMEDIATE")
                try:
                    with open(self.path, "rb") as file:
                        return file.read()
                finally:
                    connection.rollback()
        except sqlite3.OperationalError as error:
            raise CatalogUnavailable(
                f"{self.path}, the copy of {self._url}, cannot be read ({error}): does another "
                "client have it open?"
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error

    def verify(self) -> int:
        """Prove that this is an intact DuckLake catalog; return its newest snapshot, -1 for none.

        Raises:
            SafetyRefusal: It is damaged.
            UnsupportedCatalog: It is no DuckLake catalog.
            ConfigurationError: Its data path is relative: to what, no other machine would know.
        """
        try:
            with closing(self._connect()) as connection:
                found = [text for (text,) in connection.execute("PRAGMA integrity_check(3)")]
                if found != ["ok"]:
                    raise self._damaged("; ".join(" ".join(text.split()) for text in found))
                return self._contents(connection)
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error

    def _contents(self, connection: sqlite3.Connection) -> int:
        try:
            paths = connection.execute(
                "SELECT value FROM ducklake_metadata WHERE key = 'data_path' AND scope IS NULL"
            ).fetchall()
            (head,) = connection.execute(
                "SELECT max(snapshot_id) FROM ducklake_snapshot"
            ).fetchone()
        except sqlite3.OperationalError as error:
            raise UnsupportedCatalog(
                f"{self._url} is a SQLite database, but holds no DuckLake catalog ({error})"
            ) from error
        for (path,) in paths:
            refuse_relative_data_path(path, self._url)
        return -1 if head is None else int(head)

    def _damaged(self, how: str) -> LakeError:
        return SafetyRefusal(
            f"the catalog {self._url} is damaged in {self.path} ({how}); nothing was put into the "
            "bucket. If it came so from there, restore an earlier version of the object"
        )

    def _connect(self) -> sqlite3.Connection:
        uri = f"file:{quote(self.path)}?mode=rw"
        return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_LOCK_SECONDS)


def refuse_relative_data_path(path: str | None, url: str) -> None:
    """Refuse a data path that means another place on another machine.

    Args:
        path: The data path; None is one not given.
        url: The catalog in a bucket, for the message.

    Raises:
        ConfigurationError: It is relative.
    """
    if not path:
        return
    scheme, _, rest = split_url(path)
    if scheme == "file" and not rest.startswith(("/", "~")):
        raise ConfigurationError(
            f"data path {path!r} of the catalog {url} is relative, but its copies lie in another "
            "place every time: give a URL (s3://, gs://, az://) or an absolute path"
        )
