"""A lake whose data path is in a bucket, and the unmodified extension as its client."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import duckdb

from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.storage import StorageOptions, open_store
from tests.interop.operations import Operations
from tests.support.lakes import LakeUnderTest
from tests.support.reference import EXTENSIONS, ReferenceClient, extension_file
from tests.support.s3 import S3Server


class S3Client(ReferenceClient):
    """The reference client with its own access to a bucket, through DuckDB's `httpfs`."""

    def __init__(self, lake: LakeUnderTest, server: S3Server) -> None:
        """Prepare a client of a lake that exists; nothing is opened yet."""
        super().__init__(lake.attach_string, metadata_schema=lake.location.metadata_schema)
        self._server = server

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The session, with the lake attached."""
        if self._connection is None:
            self._connection = bucket_session(self._server)
        return super().connection

    def close(self) -> None:
        """Detach the lake and end the session, which no other lake should get."""
        self.release()
        self.forget()


def bucket_session(server: S3Server) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB session with the extensions and with access to a bucket."""
    session = duckdb.connect(":memory:", config={"threads": 1})
    for name in ("httpfs", *EXTENSIONS):
        session.load_extension(str(extension_file(name)))
    session.execute("SET TimeZone = 'UTC'")
    session.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{server.access_key_id}', SECRET "
        f"'{server.secret_access_key}', ENDPOINT '{urlsplit(server.endpoint).netloc}', "
        f"USE_SSL false, URL_STYLE 'path', REGION '{server.region}')"
    )
    return session


@dataclass(frozen=True, slots=True)
class S3Lake(LakeUnderTest):
    """A lake of a test with its files in a bucket.

    Attributes:
        server: The bucket, as the reference client reaches it.
        options: How our operations reach it.
    """

    server: S3Server
    options: StorageOptions

    @classmethod
    def of(cls, lake: LakeUnderTest, server: S3Server, options: StorageOptions) -> S3Lake:
        """Move the data path of a lake that does not exist yet into a bucket."""
        path = f"{server.url}/lakes/{lake.directory.name}/"
        location = replace(lake.location, data_path=path)
        return cls(lake.kind, lake.attach_string, path, location, lake.directory, server, options)

    def client(self, **_: str) -> ReferenceClient:
        """Return a new reference client of this lake, which our `create_lake` has made."""
        return S3Client(self, self.server)

    def stored_files(self) -> dict[str, int]:
        """Return every object below the data path (relative path -> bytes)."""
        listed = open_store(self.data_path, self.options).list(self.data_path)
        return {info.path.removeprefix(self.data_path): info.size for info in listed}


class S3Operations(Operations):
    """Our operations on a lake in a bucket."""

    __slots__ = ()

    def open(self) -> Lake:
        """Return the lake as this package sees it."""
        assert isinstance(self.lake, S3Lake)
        return Lake.open(self.lake.location, storage=self.lake.options)
