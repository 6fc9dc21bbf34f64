"""S3 as a store, over HTTP on the loopback address."""

from __future__ import annotations

import http.client
import os
import pickle
import socket
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import pytest
from moto.s3.models import s3_backends

from airflow_provider_ducklake.lake.errors import ConfigurationError, StorageError
from airflow_provider_ducklake.storage import (
    Location,
    ObjectInfo,
    ObjectNotFound,
    PreconditionFailed,
    RoutedStore,
    StoreUnreachable,
    open_store,
)
from tests.support.faulty_s3 import FaultyS3
from tests.support.reference import extension_file
from tests.support.s3 import S3Server, options_for

ODD_NAMES = ["a b.txt", "dir%20x/f", "k=1/ü~.x", "h#?&+", "[1]*", "ts=2024-01-01 00:00:00/f"]


def put_all(store: RoutedStore, paths: list[str]) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda path: store.write(path, b"x"), paths))


@pytest.mark.parametrize("name", ODD_NAMES)
def test_every_name_is_taken_literally(
    s3_store: RoutedStore, s3_server: S3Server, name: str
) -> None:
    path = f"s3a://{s3_server.bucket}/top/{name}"
    s3_store.write(path, b"0123")
    assert s3_store.exists(path)
    assert s3_store.read(path) == b"0123"
    (info,) = s3_store.list(f"{s3_server.url}/top")
    assert info.location == Location.parse(path)
    assert info.path == f"{s3_server.url}/top/{name}"
    assert s3_store.delete([path]).deleted == (path,)
    assert not s3_store.exists(path)


@pytest.mark.interop
@pytest.mark.parametrize("key", ["dir%20x/a b", "ü=~+&#", "k=1/./f", "k=1/../f"])
def test_a_path_is_as_literal_as_duckdb_takes_it(
    s3_store: RoutedStore, s3_server: S3Server, key: str
) -> None:
    path = f"{s3_server.url}/top/{key}.parquet"
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{extension_file('httpfs')}'")
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{s3_server.access_key_id}', SECRET "
            f"'{s3_server.secret_access_key}', ENDPOINT '{urlsplit(s3_server.endpoint).netloc}', "
            f"USE_SSL false, URL_STYLE 'path', REGION '{s3_server.region}')"
        )
        connection.execute(f"COPY (SELECT 1) TO '{path}' (FORMAT parquet)")
    (info,) = s3_store.list(s3_server.url)
    assert info.location == Location.parse(path)
    assert s3_store.read(path, end=4) == b"PAR1"


def test_head_reports_size_and_utc_time(s3_store: RoutedStore, s3_server: S3Server) -> None:
    path = f"{s3_server.url}/f"
    etag = s3_store.write(path, b"abc")
    info = s3_store.head(path)
    assert info.size == s3_store.size(path) == 3
    assert info.etag == etag
    assert info.last_modified.utcoffset() == timedelta(0)
    assert abs(info.last_modified - datetime.now(timezone.utc)) < timedelta(minutes=5)


def test_conditional_writes(s3_store: RoutedStore, s3_server: S3Server) -> None:
    path = f"{s3_server.url}/f"
    first = s3_store.write(path, b"1", if_absent=True)
    with pytest.raises(PreconditionFailed, match=f"cannot write {path}"):
        s3_store.write(path, b"2", if_absent=True)
    s3_store.write(path, b"2", if_match=first)
    with pytest.raises(PreconditionFailed):
        s3_store.write(path, b"3", if_match=first)
    with pytest.raises(PreconditionFailed):
        s3_store.write(f"{path}2", b"3", if_match=first)
    assert s3_store.read(path) == b"2"


def test_ranges(s3_store: RoutedStore, s3_server: S3Server) -> None:
    path = f"{s3_server.url}/f"
    s3_store.write(path, b"0123456789")
    assert s3_store.read(path, start=2, end=5) == b"234"
    assert s3_store.read(path, start=-4) == b"6789"
    assert s3_store.read(path, start=4) == b"456789"
    assert s3_store.read(path, end=2) == b"01"
    assert s3_store.read(path, start=10) == b""
    assert s3_store.read(path, start=3, end=3) == b""
    for start, end in ((8, 11), (11, None), (-11, None), (5, 4), (20, 30)):
        with pytest.raises(StorageError, match="cannot read"):
            s3_store.read(path, start=start, end=end)


def test_listing_and_deleting_1200_objects(
    s3_store: RoutedStore, s3_server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "werkzeug")
    paths = [f"{s3_server.url}/lake/k={n % 7}/{n:05}.parquet" for n in range(1200)]
    # The server runs in this process; over a thousand requests to it would take long.
    backend = s3_backends["123456789012"]["aws"]
    for path in [*paths, f"{s3_server.url}/lake2/other"]:
        backend.put_object(s3_server.bucket, path.removeprefix(f"{s3_server.url}/"), b"x")
    listed = {info.path for info in s3_store.list(f"{s3_server.url}/lake")}
    assert listed == set(paths)
    missing = [f"{s3_server.url}/lake/none-{n}" for n in range(3)]
    outcome = s3_store.delete([*paths[:1100], *missing])
    assert outcome.deleted == tuple(paths[:1100])
    assert outcome.missing == tuple(missing)
    assert outcome.failed == ()
    assert {info.path for info in s3_store.list(f"{s3_server.url}/lake/")} == set(paths[1100:])


def test_listing_nothing(s3_store: RoutedStore, s3_server: S3Server) -> None:
    assert list(s3_store.list(f"{s3_server.url}/none")) == []
    assert list(s3_store.list(s3_server.url)) == []


def test_a_listing_that_breaks_half_way_raises(
    faulty_s3: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    url = faulty_s3.server.url
    put_all(faulty_s3.store, [f"{url}/lake/{n:02}" for n in range(25)])
    faulty_s3.refuse("GET", "continuation-token", 403, "AccessDenied")
    seen: list[ObjectInfo] = []
    with pytest.raises(StorageError, match=f"cannot list {url}/lake: access denied"):
        seen.extend(faulty_s3.store.list(f"{url}/lake"))
    faulty_s3.rules.clear()
    assert len(list(faulty_s3.store.list(f"{url}/lake"))) == 25


def test_keys_with_empty_segments_fail_the_listing(
    s3_store: RoutedStore, s3_server: S3Server
) -> None:
    connection = http.client.HTTPConnection(s3_server.endpoint.removeprefix("http://"), timeout=30)
    connection.request("PUT", f"/{s3_server.bucket}/lake//f", b"")
    assert connection.getresponse().read() == b""
    connection.close()
    with pytest.raises(StorageError, match="cannot list"):
        list(s3_store.list(f"{s3_server.url}/lake"))


@pytest.mark.parametrize("key", ["lake//f", "//f", "/f", "lake/..//f"])
def test_keys_with_empty_segments_are_refused(
    s3_store: RoutedStore, s3_server: S3Server, key: str
) -> None:
    path = f"{s3_server.url}/{key}"
    s3_store.write(f"{s3_server.url}/f", b"")
    s3_store.write(f"{s3_server.url}/lake/f", b"")
    with pytest.raises(StorageError, match="empty segment"):
        s3_store.read(path)
    ((failed, reason),) = s3_store.delete([path]).failed
    assert failed == path
    assert "empty segment" in reason
    assert s3_store.exists(f"{s3_server.url}/f")
    assert s3_store.exists(f"{s3_server.url}/lake/f")


def test_a_directory_is_not_an_object(s3_store: RoutedStore, s3_server: S3Server) -> None:
    s3_store.write(f"{s3_server.url}/d/f", b"")
    for path in (s3_server.url, f"{s3_server.url}/", f"{s3_server.url}/d", f"{s3_server.url}/d/f/"):
        assert not s3_store.exists(path)
    assert len(s3_store.delete([f"{s3_server.url}/d/f/"]).failed) == 1
    assert s3_store.exists(f"{s3_server.url}/d/f")


def test_one_refused_key_does_not_stop_the_others(faulty_s3: FaultyS3) -> None:
    url = faulty_s3.server.url
    paths = [f"{url}/f{n}" for n in range(70)]
    put_all(faulty_s3.store, paths[:-1])
    faulty_s3.refuse("POST", "?delete", 403, "AccessDenied")
    faulty_s3.refuse("DELETE", "/f33", 403, "AccessDenied")
    outcome = faulty_s3.store.delete(paths)
    ((failed, reason),) = outcome.failed
    assert failed == paths[33]
    assert reason.startswith(f"cannot delete {paths[33]}: access denied")
    assert outcome.missing == (paths[69],)
    assert set(outcome.deleted) == {*paths[:69]} - {paths[33]}
    assert [info.path for info in faulty_s3.store.list(url)] == [paths[33]]
    faulty_s3.rules.clear()
    assert faulty_s3.store.delete(paths).deleted == (paths[33],)


def test_a_store_without_bulk_deletion_is_served_singly(faulty_s3: FaultyS3) -> None:
    url = faulty_s3.server.url
    paths = [f"{url}/f{n}" for n in range(5)]
    put_all(faulty_s3.store, paths)
    faulty_s3.refuse("POST", "?delete", 501, "NotImplemented")
    assert faulty_s3.store.delete(paths).deleted == tuple(paths)
    assert [method for method, _ in faulty_s3.requests].count("DELETE") == 5
    assert list(faulty_s3.store.list(url)) == []


def test_deletion_without_the_right_to_look(faulty_s3: FaultyS3) -> None:
    path = f"{faulty_s3.server.url}/f"
    faulty_s3.store.write(path, b"")
    faulty_s3.refuse("HEAD", "/", 403, "AccessDenied")
    assert faulty_s3.store.delete([path]).deleted == (path,)
    faulty_s3.rules.clear()
    assert not faulty_s3.store.exists(path)


def test_a_failing_server_is_not_asked_for_every_key(faulty_s3: FaultyS3) -> None:
    url = faulty_s3.server.url
    paths = [f"{url}/f{n}" for n in range(1500)]
    faulty_s3.refuse("HEAD", "/", 500, "InternalError")
    outcome = faulty_s3.store.delete(paths)
    assert [path for path, _ in outcome.failed] == paths
    assert outcome.failed[-1][1].startswith("not tried: ")
    assert len(faulty_s3.requests) <= 1000


def test_a_server_failing_at_deletion_is_left_alone(faulty_s3: FaultyS3) -> None:
    url = faulty_s3.server.url
    paths = [f"{url}/f{n}" for n in range(100)]
    put_all(faulty_s3.store, paths)
    faulty_s3.refuse("POST", "?delete", 500, "InternalError")
    faulty_s3.refuse("DELETE", "/", 500, "InternalError")
    outcome = faulty_s3.store.delete(paths)
    assert [path for path, _ in outcome.failed] == paths
    assert [method for method, _ in faulty_s3.requests].count("DELETE") == 32


def test_a_missing_bucket_is_no_deletion_done(s3_store: RoutedStore) -> None:
    outcome = s3_store.delete(["s3://no-such-bucket/f", "s3://no-such-bucket/g"])
    assert outcome.done == ()
    assert len(outcome.failed) == 2
    assert "NoSuchBucket" in outcome.failed[0][1]
    with pytest.raises(StorageError, match="NoSuchBucket"):
        s3_store.exists("s3://no-such-bucket/f")
    with pytest.raises(StorageError, match="NoSuchBucket"):
        list(s3_store.list("s3://no-such-bucket/lake"))


def test_copies_in_and_out(s3_store: RoutedStore, s3_server: S3Server, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 20
    (tmp_path / "in").write_bytes(data)
    s3_store.upload(f"{tmp_path}/in", f"{s3_server.url}/a/b c.parquet")
    s3_store.download(f"{s3_server.url}/a/b c.parquet", f"{tmp_path}/out")
    assert (tmp_path / "out").read_bytes() == data
    with pytest.raises(ObjectNotFound, match=f"cannot look up {s3_server.url}/no"):
        s3_store.download(f"{s3_server.url}/no", f"{tmp_path}/out2")
    with pytest.raises(StorageError, match=r"cannot write .*/no/out") as caught:
        s3_store.download(f"{s3_server.url}/a/b c.parquet", f"{tmp_path}/no/out")
    assert not isinstance(caught.value, ObjectNotFound)
    with pytest.raises(StorageError, match=r"cannot read .*/none"):
        s3_store.upload(f"{tmp_path}/none", f"{s3_server.url}/x")
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


def test_empty_objects_travel_too(
    s3_store: RoutedStore, s3_server: S3Server, tmp_path: Path
) -> None:
    (tmp_path / "in").write_bytes(b"")
    s3_store.upload(f"{tmp_path}/in", f"{s3_server.url}/e")
    assert s3_store.read(f"{s3_server.url}/e") == b""
    assert s3_store.read(f"{s3_server.url}/e", start=0, end=0) == b""
    s3_store.download(f"{s3_server.url}/e", f"{tmp_path}/out")
    assert (tmp_path / "out").read_bytes() == b""


def test_staged_copies_have_different_names(
    s3_store: RoutedStore, s3_server: S3Server, tmp_path: Path
) -> None:
    paths = [f"{s3_server.url}/{part}/{'n' * 200}.parquet" for part in ("k=1", "k=2")]
    for number, path in enumerate(paths):
        s3_store.write(path, str(number).encode())
    staged = [s3_store.stage(path, str(tmp_path)) for path in paths]
    assert [Path(copy).read_bytes() for copy in staged] == [b"0", b"1"]
    assert all(copy.endswith(".parquet") for copy in staged)


def test_ensure_writable_leaves_nothing(faulty_s3: FaultyS3) -> None:
    url = faulty_s3.server.url
    faulty_s3.store.ensure_writable(f"{url}/lake/")
    assert list(faulty_s3.store.list(url)) == []
    faulty_s3.refuse("DELETE", "/", 403, "AccessDenied")
    with pytest.raises(StorageError, match="cannot delete"):
        faulty_s3.store.ensure_writable(f"{url}/lake/")
    faulty_s3.refuse("PUT", "/", 403, "AccessDenied")
    with pytest.raises(StorageError, match="cannot write"):
        faulty_s3.store.ensure_writable(f"{url}/lake/")


def test_an_unreachable_endpoint_says_so(s3_server: S3Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    store = open_store(
        s3_server.url, options_for(s3_server, aws_endpoint=f"http://127.0.0.1:{port}")
    )
    with pytest.raises(StoreUnreachable, match=f"cannot look up {s3_server.url}/f: "):
        store.exists(f"{s3_server.url}/f")


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("gs://b/f", {"google_base_url": "{}", "google_skip_signature": "true"}),
        ("az://c/f", {"azure_storage_account_name": "acc", "azure_storage_endpoint": "{}"}),
        ("abfss://c@acc.dfs.core.windows.net/f", {"azure_storage_endpoint": "{}"}),
    ],
)
def test_other_clouds_are_asked_at_their_endpoint(
    monkeypatch: pytest.MonkeyPatch, path: str, options: dict[str, str]
) -> None:
    key = "c2VjcmV0LWtleQ=="
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
    options = {name: value.format(endpoint) for name, value in options.items()}
    store = open_store(path, {**options, "allow_http": "true", "max_retries": "0"})
    with pytest.raises(StoreUnreachable, match=endpoint) as caught:
        store.read(path)
    assert key not in str(caught.value)


def test_no_credential_in_any_error(faulty_s3: FaultyS3) -> None:
    secrets = (faulty_s3.server.secret_access_key, "Debug source")
    url = faulty_s3.server.url
    for status, code in ((403, "AccessDenied"), (500, "InternalError"), (400, "Strange")):
        faulty_s3.rules.clear()
        for method in ("GET", "PUT", "POST", "DELETE", "HEAD"):
            faulty_s3.refuse(method, "/", status, code + faulty_s3.server.secret_access_key)
        for action in (
            lambda: faulty_s3.store.read(f"{url}/f"),
            lambda: faulty_s3.store.write(f"{url}/f", b""),
            lambda: list(faulty_s3.store.list(url)),
            lambda: faulty_s3.store.head(f"{url}/f"),
        ):
            with pytest.raises(StorageError) as caught:
                action()
            text = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
            assert not [secret for secret in secrets if secret in text]
        reason = faulty_s3.store.delete([f"{url}/f"]).failed[0][1]
        assert not [secret for secret in secrets if secret in reason]


def test_wrong_options_are_a_configuration_error(s3_server: S3Server) -> None:
    options = options_for(s3_server, aws_allow_http="perhaps")
    with pytest.raises(ConfigurationError, match=f"cannot open {s3_server.url}/: .*boolean"):
        open_store(s3_server.url, options).exists(f"{s3_server.url}/f")


def test_a_store_travels_to_another_process(s3_store: RoutedStore, s3_server: S3Server) -> None:
    s3_store.write(f"{s3_server.url}/f", b"1")
    copy = pickle.loads(pickle.dumps(s3_store))
    assert copy.read(f"{s3_server.url}/f") == b"1"
    assert s3_server.secret_access_key not in repr(copy)
