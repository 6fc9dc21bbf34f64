"""An S3 endpoint for the tests: one moto server a process, an empty bucket for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.request import Request, urlopen

import pytest

from airflow_provider_ducklake.storage import StorageOptions


@dataclass(frozen=True, slots=True)
class S3Server:
    """A bucket on a running S3 endpoint, with the credentials that open it.

    Attributes:
        endpoint: The URL of the endpoint, plain HTTP on the loopback address.
        bucket: The name of an existing, empty bucket.
        access_key_id: Any key will do for moto; this is the one to use.
        secret_access_key: Likewise.
        region: The region of the bucket.
    """

    endpoint: str
    bucket: str
    access_key_id: str = "testing-access-key"
    secret_access_key: str = "testing-secret-key"
    region: str = "us-east-1"

    @property
    def url(self) -> str:
        """The bucket as an `s3://` URL without a trailing slash."""
        return f"s3://{self.bucket}"


def options_for(server: S3Server, **more: str) -> StorageOptions:
    """Give the options that open a bucket of the tests."""
    settings = {
        "aws_access_key_id": server.access_key_id,
        "aws_secret_access_key": server.secret_access_key,
        "aws_region": server.region,
        "aws_endpoint": server.endpoint,
        "aws_allow_http": "true",
        "max_retries": "0",
    }
    return StorageOptions({**settings, **more})


def _send(method: str, url: str) -> None:
    with urlopen(Request(url, method=method), timeout=30) as response:
        response.read()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Give the URL of the process's S3 endpoint."""
    # Loaded here, since it takes a second that most runs need not spend.
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    try:
        yield endpoint
    finally:
        # moto keeps objects in temporary files and warns when they are collected unclosed.
        _send("POST", f"{endpoint}/moto-api/reset")
        server.stop()
        if server._server is not None:
            server._server.server_close()


_bucket_number = itertools.count(1)


@pytest.fixture
def s3_server(s3_endpoint: str) -> S3Server:
    """Give an empty bucket on the process's S3 endpoint."""
    bucket = f"lake-{next(_bucket_number)}"
    _send("PUT", f"{s3_endpoint}/{bucket}")
    return S3Server(endpoint=s3_endpoint, bucket=bucket)
