"""An S3 that misbehaves on demand: a proxy before the endpoint of the tests."""

from __future__ import annotations

import contextlib
import http.client
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import urlsplit

import pytest

from airflow_provider_ducklake.storage import RoutedStore, StorageOptions, open_store
from tests.support.s3 import S3Server, options_for

Rule = Callable[[str, str], "tuple[int, str] | None"]
_ASKED_FOR = re.compile(rb"<Object><Key>([^<]*)</Key></Object>")
_KINDS = (
    ("POST", r"\?delete", "delete many"),
    ("POST", r"\?uploads", "begin parts"),
    ("POST", r"uploadId=", "complete parts"),
    ("PUT", r"uploadId=", "put part"),
    ("DELETE", r"uploadId=", "abort parts"),
    ("GET", r"list-type=", "list"),
)


def kind_of(method: str, path: str) -> str:
    """Give the kind of an S3 request: `list`, `put part`, …, else its method in lower case."""
    for kind_method, pattern, name in _KINDS:
        if method == kind_method and re.search(pattern, path):
            return name
    return method.lower()


@dataclass
class FaultyS3:
    """A bucket behind a proxy that answers some requests with an error of its own.

    Attributes:
        server: The bucket, reached without the proxy.
        proxied: The bucket, reached through the proxy.
        store: A store that goes through the proxy and never asks twice.
        rules: Each gets method and path with query, and returns status and error code, or None.
        broken: How many answers to GET still break off in the middle.
        kept: Keys that a bulk deletion says it may not delete, while it deletes the others.
        requests: What was asked: method and path with query.
        signatures: The `Authorization` of each request, "" where it had none.
    """

    server: S3Server
    proxied: S3Server
    store: RoutedStore
    rules: list[Rule] = field(default_factory=list)
    broken: int = 0
    kept: set[str] = field(default_factory=set)
    requests: list[tuple[str, str]] = field(default_factory=list)
    signatures: list[str] = field(default_factory=list)

    def options(self, **more: str) -> StorageOptions:
        """Give options that go through the proxy."""
        return options_for(self.proxied, **more)

    def refuse(self, method: str, text: str, status: int, code: str) -> None:
        """Answer requests of a method whose path contains a text with an S3 error."""

        def rule(asked: str, path: str) -> tuple[int, str] | None:
            return (status, code) if asked == method and text in path else None

        self.rules.append(rule)

    def throttle(self, *kinds: str, times: int | None = None) -> Counter[str]:
        """Ask to slow down instead of answering.

        Args:
            kinds: Kinds of requests, see `kind_of`; none means all.
            times: How many of each kind; None is every one.

        Returns:
            How many requests of each kind were turned away; it grows.
        """
        turned_away: Counter[str] = Counter()
        lock = Lock()

        def rule(method: str, path: str) -> tuple[int, str] | None:
            kind = kind_of(method, path)
            if kinds and kind not in kinds:
                return None
            with lock:
                if times is not None and turned_away[kind] >= times:
                    return None
                turned_away[kind] += 1
            return 503, "SlowDown"

        self.rules.append(rule)
        return turned_away

    def asked(self) -> Counter[str]:
        """Count the requests by kind."""
        return Counter(kind_of(method, path) for method, path in self.requests)

    def refusal(self, method: str, path: str) -> tuple[int, str] | None:
        """Give the answer of the first rule that has one."""
        return next((answer for rule in self.rules if (answer := rule(method, path))), None)

    def without_kept(self, body: bytes) -> tuple[bytes, bytes]:
        """Take the kept keys out of a bulk deletion; give the rest and what is to be said of them.

        The signature of the request does not matter to moto.
        """
        keys = [key for key in _ASKED_FOR.findall(body) if key.decode() in self.kept]
        for key in keys:
            body = body.replace(b"<Object><Key>%b</Key></Object>" % key, b"")
        said = b"<Error><Key>%b</Key><Code>AccessDenied</Code><Message>locked</Message></Error>"
        return body, b"".join(said % key for key in keys)


@pytest.fixture
def faulty_s3(s3_server: S3Server) -> Iterator[FaultyS3]:
    """Give a bucket behind a proxy that can be told to refuse requests."""
    upstream = urlsplit(s3_server.endpoint).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            faulty.requests.append((self.command, self.path))
            faulty.signatures.append(self.headers.get("authorization") or "")
            if refusal := faulty.refusal(self.command, self.path):
                code = f"<Error><Code>{refusal[1]}</Code><Message>no</Message></Error>"
                self._send(refusal[0], {}, code.encode())
                return
            headers, said = dict(self.headers), b""
            if faulty.kept and kind_of(self.command, self.path) == "delete many":
                body, said = faulty.without_kept(body)
                headers = {k: v for k, v in headers.items() if k.lower() != "content-length"}
            connection = http.client.HTTPConnection(upstream, timeout=30)
            try:
                connection.request(self.command, self.path, body, headers)
                response = connection.getresponse()
                answer = response.read().replace(b"</DeleteResult>", said + b"</DeleteResult>")
                self._send(response.status, dict(response.getheaders()), answer)
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
            # A client that gave up on a request does not wait for its answer.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.end_headers()
                if self.command == "GET" and faulty.broken > 0 and status < 300:
                    faulty.broken -= 1
                    self.close_connection = True
                    body = body[: len(body) // 2]
                if self.command != "HEAD":
                    self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Stay quiet: the requests are on record."""

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    thread = Thread(target=proxy.serve_forever, args=(0.01,))
    thread.start()
    proxied = replace(s3_server, endpoint=f"http://127.0.0.1:{proxy.server_port}")
    faulty = FaultyS3(s3_server, proxied, open_store(s3_server.url, options_for(proxied)))
    try:
        yield faulty
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
