"""Stores for the tests: on S3, and on an S3 that misbehaves on demand."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest

from airflow_provider_ducklake.storage import RoutedStore, StorageOptions, open_store
from tests.support.s3 import S3Server

Rule = Callable[[str, str], "tuple[int, str] | None"]


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


@pytest.fixture
def s3_store(s3_server: S3Server) -> RoutedStore:
    """Give a store whose root is an empty bucket."""
    return open_store(s3_server.url, options_for(s3_server))


@dataclass
class FaultyS3:
    """A proxy before the S3 endpoint that answers some requests with an error of its own.

    Attributes:
        server: The bucket, reached through the proxy.
        store: A store that goes through the proxy.
        rules: Each gets method and path with query, and returns status and error code, or None.
        requests: What was asked: method and path with query.
    """

    server: S3Server
    store: RoutedStore
    rules: list[Rule] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def refuse(self, method: str, text: str, status: int, code: str) -> None:
        """Answer requests of a method whose path contains a text with an S3 error."""

        def rule(asked: str, path: str) -> tuple[int, str] | None:
            return (status, code) if asked == method and text in path else None

        self.rules.append(rule)


@pytest.fixture
def faulty_s3(s3_server: S3Server) -> Iterator[FaultyS3]:
    """Give a bucket behind a proxy that can be told to refuse requests."""
    upstream = urlsplit(s3_server.endpoint).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            faulty.requests.append((self.command, self.path))
            for rule in faulty.rules:
                refusal = rule(self.command, self.path)
                if refusal is not None:
                    code = f"<Error><Code>{refusal[1]}</Code><Message>no</Message></Error>"
                    self._send(refusal[0], {}, code.encode())
                    return
            connection = http.client.HTTPConnection(upstream, timeout=30)
            try:
                connection.request(self.command, self.path, body, dict(self.headers))
                response = connection.getresponse()
                self._send(response.status, dict(response.getheaders()), response.read())
            finally:
                connection.close()

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            dropped = ("transfer-encoding", "connection", "date", "server")
            for name, value in headers.items():
                if name.lower() not in dropped and (
                    name.lower() != "content-length" or self.command == "HEAD"
                ):
                    self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Stay quiet: the requests are on record."""

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    thread = Thread(target=proxy.serve_forever, args=(0.01,))
    thread.start()
    endpoint = f"http://127.0.0.1:{proxy.server_port}"
    faulty = FaultyS3(
        s3_server, open_store(s3_server.url, options_for(s3_server, aws_endpoint=endpoint))
    )
    try:
        yield faulty
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
