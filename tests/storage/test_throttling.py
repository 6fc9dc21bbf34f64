"""S3 that asks to slow down, keeps single keys, or breaks off in the middle of a large object."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import obstore
import pytest
from moto.s3.models import s3_backends
from packaging.version import Version

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.storage import (
    ObjectNotFound,
    RoutedStore,
    StoreUnreachable,
    open_store,
)
from tests.support.faulty_s3 import FaultyS3
from tests.support.s3 import S3Server, options_for

EVERY_KIND = (
    *("put", "get", "head", "list", "delete", "delete many"),
    *("begin parts", "put part", "complete parts"),
)
PARTS = 20 << 20  # bytes of an object that is sent in three parts
# Whether a failed upload takes its parts back: docs/storage.md tells of the versions that do not.
ABORTS = Version(obstore.__version__) >= Version("0.12")


def put_keys(server: S3Server, count: int) -> list[str]:
    """Put small objects without a request for each; return their paths."""
    backend = s3_backends["123456789012"]["aws"]
    for number in range(count):
        backend.put_object(server.bucket, f"f{number:04}", b"x")
    return [f"{server.url}/f{number:04}" for number in range(count)]


def unfinished_uploads(server: S3Server) -> list[str]:
    """Return the keys of uploads in parts that were neither completed nor aborted."""
    bucket = s3_backends["123456789012"]["aws"].buckets[server.bucket]
    return [upload.key_name for upload in bucket.multiparts.values()]


def do_everything(store: RoutedStore, url: str, directory: Path) -> None:
    """Ask a store for one thing of every kind."""
    (directory / "large").write_bytes(os.urandom(PARTS))
    store.upload(f"{directory}/large", f"{url}/large")
    store.download(f"{url}/large", f"{directory}/copy")
    assert (directory / "copy").read_bytes() == (directory / "large").read_bytes()
    store.write(f"{url}/small", b"x")
    assert len(list(store.list(url))) == 2
    assert len(store.delete([f"{url}/large", f"{url}/small", f"{url}/none"]).deleted) == 2
    store.ensure_writable(url)
    assert list(store.list(url)) == []


def test_every_kind_of_request_is_repeated(faulty_s3: FaultyS3, tmp_path: Path) -> None:
    store = open_store(faulty_s3.server.url, faulty_s3.options(max_retries="4"))
    turned_away = faulty_s3.throttle(times=2)
    do_everything(store, faulty_s3.server.url, tmp_path)
    assert turned_away == dict.fromkeys(EVERY_KIND, 2)
    assert unfinished_uploads(faulty_s3.server) == []


@pytest.mark.parametrize(
    ("what", "ask"),
    [
        ("write {}/f", lambda store, url: store.write(f"{url}/f", b"x")),
        ("read {}/f", lambda store, url: store.read(f"{url}/f")),
        ("look up {}/f", lambda store, url: store.exists(f"{url}/f")),
        ("list {}/lake", lambda store, url: list(store.list(f"{url}/lake"))),
    ],
)
def test_one_clear_line_when_it_never_ends(
    faulty_s3: FaultyS3, what: str, ask: Callable[[RoutedStore, str], object]
) -> None:
    url = faulty_s3.server.url
    faulty_s3.throttle()
    store = open_store(url, faulty_s3.options(max_retries="1"))
    with pytest.raises(StoreUnreachable) as caught:
        ask(store, url)
    assert re.fullmatch(
        rf"cannot {what.format(url)}: the store asks for fewer requests "
        r"\((SlowDown: no|503 Service Unavailable)\); run the job again later, .*",
        str(caught.value),
    )
    assert len(faulty_s3.requests) == 2


def test_a_deletion_that_is_throttled_for_good_ends_soon(faulty_s3: FaultyS3) -> None:
    paths = put_keys(faulty_s3.server, 1500)
    faulty_s3.throttle("delete", "delete many")
    outcome = faulty_s3.store.delete(paths, listed=True)
    assert [path for path, _ in outcome.failed] == paths
    assert all("fewer requests" in reason for _, reason in outcome.failed)
    assert faulty_s3.asked() == {"delete many": 1, "delete": 32}


def test_keys_the_store_keeps_are_found_without_asking_for_each(faulty_s3: FaultyS3) -> None:
    """S3 answers a bulk deletion with 200, and in it says which keys are still there."""
    paths = put_keys(faulty_s3.server, 1200)
    kept = ["f0003", "f0700", "f1100"]
    faulty_s3.kept.update(kept)
    for key in kept:
        faulty_s3.refuse("DELETE", key, 403, "AccessDenied")
    outcome = faulty_s3.store.delete(paths, listed=True)
    assert [path.rpartition("/")[2] for path, _ in outcome.failed] == kept
    assert all(": access denied (AccessDenied" in reason for _, reason in outcome.failed)
    assert outcome.deleted == tuple(path for path in paths if path[-5:] not in kept)
    assert [info.location.name for info in faulty_s3.store.list(faulty_s3.server.url)] == kept
    asked = faulty_s3.asked()
    assert asked["head"] == 0
    assert asked["delete"] + asked["delete many"] < 200


def test_a_part_that_fails_leaves_no_object_and_no_parts(
    faulty_s3: FaultyS3, tmp_path: Path
) -> None:
    url = faulty_s3.server.url
    (tmp_path / "large").write_bytes(bytes(PARTS))
    for refused in ("partNumber=2", "uploadId="):
        faulty_s3.rules.clear()
        faulty_s3.refuse("PUT" if "part" in refused else "POST", refused, 500, "InternalError")
        with pytest.raises(StorageError, match=f"cannot write {url}/large: InternalError"):
            faulty_s3.store.upload(f"{tmp_path}/large", f"{url}/large")
        if ABORTS:
            assert unfinished_uploads(faulty_s3.server) == []
        assert not faulty_s3.store.exists(f"{url}/large")


def test_an_answer_that_breaks_off_is_asked_for_again(faulty_s3: FaultyS3, tmp_path: Path) -> None:
    url, data = faulty_s3.server.url, os.urandom(PARTS)
    faulty_s3.store.write(f"{url}/f", data)
    patient = open_store(url, faulty_s3.options(max_retries="4"))
    for read in (patient.read, lambda path: patient.read_tagged(path)[0]):
        faulty_s3.broken = 2
        assert read(f"{url}/f") == data
    faulty_s3.broken = 3
    patient.download(f"{url}/f", f"{tmp_path}/f")
    assert (tmp_path / "f").read_bytes() == data
    faulty_s3.broken = 1_000
    with pytest.raises(StorageError, match=f"cannot read {url}/f"):
        patient.download(f"{url}/f", f"{tmp_path}/g")
    assert os.listdir(tmp_path) == ["f"]


def test_a_bucket_that_goes_away_has_nothing_deleted(s3_server: S3Server) -> None:
    store = open_store("s3://no-such-bucket", options_for(s3_server))
    outcome = store.delete([f"s3://no-such-bucket/f{n}" for n in range(100)], listed=True)
    assert outcome.done == ()
    assert "NoSuchBucket" in outcome.failed[0][1]


def test_the_default_chain_signs_where_no_options_are_given(
    faulty_s3: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-the-machine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-machine")
    monkeypatch.setenv("AWS_ENDPOINT_URL", faulty_s3.proxied.endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    url = faulty_s3.server.url
    open_store(url).write(f"{url}/f", b"x")
    assert "Credential=key-of-the-machine/" in faulty_s3.signatures[-1]
    open_store(url, faulty_s3.options()).read(f"{url}/f")
    assert f"Credential={faulty_s3.server.access_key_id}/" in faulty_s3.signatures[-1]
    with pytest.raises(StorageError, match="access denied"):
        open_store(url, {"aws_skip_signature": "true"}).read(f"{url}/f")
    assert faulty_s3.signatures[-1] == ""


def test_where_the_bucket_stands_in_a_request(faulty_s3: FaultyS3) -> None:
    """A virtual-hosted endpoint names the bucket itself."""
    url = faulty_s3.server.url
    faulty_s3.refuse("GET", "/", 404, "NoSuchKey")
    for style, path in (("false", f"/{faulty_s3.server.bucket}/f"), ("true", "/f")):
        options = faulty_s3.options(aws_virtual_hosted_style_request=style)
        with pytest.raises(ObjectNotFound):
            open_store(url, options).read(f"{url}/f")
        assert faulty_s3.requests[-1] == ("GET", path)
