"""An S3 that has only names: tens of thousands of objects cost it nothing to hold and to list."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit

from airflow_provider_ducklake.storage import StorageOptions
from tests.support.faulty_s3 import kind_of

_PAGE = 1000
_KEY = re.compile(rb"<Key>([^<]*)</Key>")


class ListedS3:
    """One bucket, whose objects have a name and a time.

    Attributes:
        objects: Key to time of the last write.
        asked: Requests by kind.
        largest_deletion: Keys of the largest bulk deletion.
    """

    def __init__(self, objects: Mapping[str, datetime]) -> None:
        self.objects = dict(objects)
        self.asked: Counter[str] = Counter()
        self.largest_deletion = 0
        self.endpoint = ""

    @property
    def options(self) -> StorageOptions:
        """How the bucket is reached."""
        return StorageOptions(
            {
                "aws_access_key_id": "k",
                "aws_secret_access_key": "s",
                "aws_region": "us-east-1",
                "aws_endpoint": self.endpoint,
                "allow_http": "true",
            }
        )

    def page(self, prefix: str, after: str) -> str:
        """Answer a listing: up to a thousand keys in order, and where the next page begins."""
        ordered = sorted(key for key in self.objects if key.startswith(prefix))
        start = bisect_right(ordered, after)
        keys = ordered[start : start + _PAGE]
        entries = "".join(
            f"<Contents><Key>{key}</Key><Size>100</Size><ETag>1</ETag>"
            f"<LastModified>{self.objects[key]:%Y-%m-%dT%H:%M:%S.000Z}</LastModified></Contents>"
            for key in keys
        )
        more = start + _PAGE < len(ordered)
        token = f"<NextContinuationToken>{keys[-1]}</NextContinuationToken>" if more else ""
        return (
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{entries}"
            "</ListBucketResult>"
        )

    def delete(self, body: bytes) -> str:
        """Answer a bulk deletion."""
        keys = [key.decode() for key in _KEY.findall(body)]
        self.largest_deletion = max(self.largest_deletion, len(keys))
        for key in keys:
            self.objects.pop(key, None)
        done = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        return f"<DeleteResult>{done}</DeleteResult>"


@contextmanager
def serving(bucket: ListedS3) -> Iterator[ListedS3]:
    """Serve a bucket on the loopback address, under any bucket name."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            url = urlsplit(self.path)
            kind, query = kind_of(self.command, self.path), parse_qs(url.query)
            bucket.asked[kind] += 1
            status, text, key = 200, "", unquote(url.path).split("/", 2)[-1]
            if kind == "head" and key not in bucket.objects:
                status = 404
            if kind == "list":
                after = query.get("continuation-token", [""])[0]
                text = bucket.page(query.get("prefix", [""])[0], after)
            elif kind == "delete many":
                text = bucket.delete(body)
            elif kind == "delete":
                bucket.objects.pop(key, None)
            self.send_response(status)
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

        def log_message(self, format: str, *args: object) -> None:
            """Stay quiet: the requests are counted."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    bucket.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield bucket
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
