"""Reading an object with its etag, and writing over exactly that version, in every cloud."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.storage import (
    ObjectNotFound,
    PreconditionFailed,
    RoutedStore,
    StoreUnreachable,
    open_store,
)
from airflow_provider_ducklake.storage import local as local_module
from tests.support.s3 import S3Server


@dataclass
class Cloud:
    """One object behind the conditional requests of Google Cloud Storage and Azure.

    Only what the two document of conditions on reads and writes of one object; there is no server
    of either to be had here.

    Attributes:
        data: The object's bytes, None when it is not there.
        version: Its generation, also its ETag.
        conditions: The conditions that were asked, by header.
    """

    data: bytes | None = None
    version: int = 0
    conditions: list[tuple[str, str]] = field(default_factory=list)

    @property
    def etag(self) -> str:
        """The ETag, quoted as HTTP has it."""
        return f'"0x{self.version:08X}"'

    def holds(self, header: str, value: str) -> bool:
        """Tell whether a condition of a write holds."""
        self.conditions.append((header, value))
        if header == "x-goog-if-generation-match":
            return int(value) == (self.version if self.data is not None else 0)
        if header == "if-none-match":
            return self.data is None
        return self.data is not None and value == self.etag


# Writes to Google are signed even where reads need not be; this is the client's own way around.
_NO_ACCOUNT = json.dumps(
    {
        "gcs_base_url": "ENDPOINT",
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
)
_CONDITIONS = ("x-goog-if-generation-match", "if-none-match", "if-match")


@pytest.fixture
def cloud() -> Cloud:
    """An object that is not there yet."""
    return Cloud()


@pytest.fixture
def endpoint(cloud: Cloud) -> Iterator[str]:
    """The URL of a server of that object."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            for header in _CONDITIONS:
                value = self.headers.get(header)
                if value is not None and not cloud.holds(header, value):
                    self._answer(412, b"")
                    return
            cloud.data, cloud.version = body, cloud.version + 1
            self._answer(200 if "x-goog-api-version" in self.headers else 201, b"")

        def do_GET(self) -> None:
            self._answer(404 if cloud.data is None else 200, cloud.data or b"")

        def do_HEAD(self) -> None:
            self._answer(404 if cloud.data is None else 200, cloud.data or b"", body=False)

        def _answer(self, status: int, data: bytes, *, body: bool = True) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Last-Modified", formatdate(usegmt=True))
            self.send_header("ETag", cloud.etag)
            self.send_header("x-goog-generation", str(cloud.version))
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("path", "options", "headers"),
    [
        (
            "gs://bucket/lake/f",
            {"google_service_account_key": _NO_ACCOUNT},
            {"x-goog-if-generation-match"},
        ),
        (
            "az://container/lake/f",
            {
                "azure_storage_account_name": "account",
                "azure_storage_endpoint": "ENDPOINT",
                "azure_skip_signature": "true",
            },
            {"if-match", "if-none-match"},
        ),
    ],
)
def test_conditions_in_other_clouds(
    cloud: Cloud, endpoint: str, path: str, options: dict[str, str], headers: set[str]
) -> None:
    settings = {name: value.replace("ENDPOINT", endpoint) for name, value in options.items()}
    store = open_store(path, {**settings, "allow_http": "true", "max_retries": "0"})
    first = store.write(path, b"1", if_absent=True)
    assert first is not None
    with pytest.raises(PreconditionFailed):
        store.write(path, b"2", if_absent=True)
    assert store.read_tagged(path) == (b"1", first)
    second = store.write(path, b"2", if_match=first)
    assert second is not None
    assert store.head(path).etag == second != first
    with pytest.raises(PreconditionFailed):
        store.write(path, b"3", if_match=first)
    assert store.read_tagged(path) == (b"2", second)
    assert cloud.data == b"2"
    assert {header for header, _ in cloud.conditions} == headers


def test_bytes_and_etag_on_s3(s3_store: RoutedStore, s3_server: S3Server) -> None:
    path = f"{s3_server.url}/f"
    with pytest.raises(ObjectNotFound, match=f"cannot read {path}"):
        s3_store.read_tagged(path)
    with pytest.raises(StoreUnreachable):
        s3_store.read_tagged("s3://no-such-bucket/f")
    tag = s3_store.write(path, b"abc")
    assert s3_store.read_tagged(path) == (b"abc", tag)
    assert s3_store.write(path, b"abcd", if_match=tag) == s3_store.read_tagged(path)[1]
    with pytest.raises(PreconditionFailed):
        s3_store.write(path, b"x", if_match=tag)
    assert s3_store.read(path) == b"abcd"


def test_bytes_and_etag_of_a_file(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    path = f"{tmp_path}/f"
    with pytest.raises(ObjectNotFound):
        store.read_tagged(path)
    tag = store.write(path, b"abc")
    assert store.read_tagged(path) == (b"abc", tag)


def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs write into files where we replace them."""
    store = open_store(str(tmp_path))
    path = f"{tmp_path}/f"
    store.write(path, b"abc")
    etag = local_module._etag

    def changing(status: os.stat_result) -> str:
        with open(path, "ab") as file:
            file.write(b"!")
        return etag(status)

    monkeypatch.setattr(local_module, "_etag", changing)
    with pytest.raises(StorageError, match="changed meanwhile"):
        store.read_tagged(path)


def test_no_two_versions_of_a_file_have_one_etag(tmp_path: Path) -> None:
    """Not even within one tick of the clock, with inode numbers that come back."""
    store = open_store(str(tmp_path))
    path = f"{tmp_path}/f"
    tag = store.write(path, b"0")
    # A tick that does not end: every version is written before the first one's time.
    os.utime(path, ns=(1 << 62, 1 << 62))
    tag = store.head(path).etag
    seen = {tag}
    for number in range(200):
        tag = store.write(path, str(number % 10).encode(), if_match=tag)
        seen.add(tag)
    assert len(seen) == 201
