"""Credentials of the data's storage from the Airflow connection of its cloud."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from airflow_provider_ducklake.hooks._attach import configure
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.lake import Lake
from tests.airflow.conftest import Connect
from tests.support.faulty_s3 import FaultyS3

pytestmark = pytest.mark.airflow
LAKE = {"catalog_type": "sqlite", "path": "/lake/catalog.sqlite", "storage_conn_id": "cloud"}


def options(connect: Connect, cloud: dict[str, Any], **more: Any) -> dict[str, str]:
    """Return the storage options of a lake whose storage connection is this."""
    connect("cloud", **cloud)
    connect("ducklake_default", conn_type="ducklake", extra={**LAKE, **more})
    return dict(DuckLakeHook().storage_options())


@pytest.mark.parametrize(
    ("cloud", "expected"),
    [
        (
            {
                "conn_type": "aws",
                "login": "AK",
                "password": "s/+ cret",
                "extra": {"region_name": "eu-west-1", "endpoint_url": "http://minio:9000"},
            },
            {
                "aws_access_key_id": "AK",
                "aws_secret_access_key": "s/+ cret",
                "aws_region": "eu-west-1",
                "aws_endpoint": "http://minio:9000",
                "allow_http": "true",
            },
        ),
        (
            {
                "conn_type": "aws",
                "extra": {
                    "aws_access_key_id": "AK",
                    "aws_secret_access_key": "geheim",
                    "aws_session_token": "token",
                    "service_config": {"s3": {"endpoint_url": "https://s3.example.com"}},
                    "endpoint_url": "https://sts.example.com",
                    "config_kwargs": {"retries": 3},
                },
            },
            {
                "aws_access_key_id": "AK",
                "aws_secret_access_key": "geheim",
                "aws_session_token": "token",
                "aws_endpoint": "https://s3.example.com",
            },
        ),
        ({"conn_type": "aws"}, {}),
        (
            {
                "conn_type": "google_cloud_platform",
                "extra": {"key_path": "/k.json", "project": "p"},
            },
            {"google_service_account_path": "/k.json"},
        ),
        (
            {
                "conn_type": "google_cloud_platform",
                "extra": {"extra__google_cloud_platform__keyfile_dict": '{"type": "x"}'},
            },
            {"google_service_account_key": '{"type": "x"}'},
        ),
        (
            {"conn_type": "google_cloud_platform", "extra": {"keyfile_dict": {"type": "x"}}},
            {"google_service_account_key": '{"type": "x"}'},
        ),
        (
            {"conn_type": "wasb", "login": "acc", "password": "a2V5"},
            {"azure_storage_account_name": "acc", "azure_storage_account_key": "a2V5"},
        ),
        (
            {
                "conn_type": "wasb",
                "host": "https://acc.blob.core.windows.net/",
                "login": "client",
                "password": "geheim",
                "extra": {"tenant_id": "tenant"},
            },
            {
                "azure_storage_account_name": "acc",
                "azure_storage_tenant_id": "tenant",
                "azure_storage_client_id": "client",
                "azure_storage_client_secret": "geheim",
            },
        ),
        (
            {
                "conn_type": "wasb",
                "host": "http://127.0.0.1:10000/acc",
                "login": "acc",
                "password": "a2V5",
            },
            {
                "azure_storage_account_name": "acc",
                "azure_storage_account_key": "a2V5",
                "azure_storage_endpoint": "http://127.0.0.1:10000/acc",
            },
        ),
        (
            {"conn_type": "wasb", "login": "acc", "extra": {"sas_token": "sv=1&sig=x"}},
            {"azure_storage_account_name": "acc", "azure_storage_sas_token": "sv=1&sig=x"},
        ),
    ],
)
def test_connections_of_the_clouds(
    connect: Connect, cloud: dict[str, Any], expected: dict[str, str]
) -> None:
    assert options(connect, cloud) == expected


def test_storage_options_add_to_the_connection_and_win(connect: Connect) -> None:
    cloud = {"conn_type": "aws", "login": "AK", "extra": {"region_name": "eu-west-1"}}
    found = options(connect, cloud, storage_options={"aws_region": "us-east-1", "max_retries": 3})
    assert found == {"aws_access_key_id": "AK", "aws_region": "us-east-1", "max_retries": "3"}


@pytest.mark.parametrize(
    ("cloud", "message"),
    [
        ({"conn_type": "http", "password": "geheim"}, "its type is 'http'; there is aws, "),
        # Airflow 3.1 passes such a connection over, and goes on looking for one.
        ({"conn_type": "aws", "extra": "geheim{"}, "its extra field is not valid JSON|not defined"),
        ({"conn_type": "aws", "extra": {"role_arn": "geheim"}}, "its role_arn is not supported"),
        ({"conn_type": "aws", "extra": {"service_config": "geheim"}}, "its service_config"),
        (
            {"conn_type": "google_cloud_platform", "extra": {"impersonation_chain": ["geheim"]}},
            "its impersonation_chain",
        ),
        ({"conn_type": "wasb", "login": "x", "extra": {"tenant_id": "t"}}, "its host must name"),
        ({"conn_type": "wasb", "extra": {"connection_string": "geheim"}}, "its connection_string"),
    ],
)
def test_what_obstore_cannot_follow_is_refused(
    connect: Connect, cloud: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        options(connect, cloud)
    assert "connection 'ducklake_default': storage_conn_id 'cloud'" in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_a_connection_that_is_not_there(connect: Connect) -> None:
    connect("ducklake_default", conn_type="ducklake", extra={**LAKE, "storage_conn_id": "nowhere"})
    with pytest.raises(ConfigurationError, match="storage_conn_id 'nowhere' is not"):
        DuckLakeHook().storage_options()


def test_its_secrets_are_masked(connect: Connect) -> None:
    cloud = {"conn_type": "aws", "login": "AK", "password": "s/+ cret"}
    options(connect, cloud)
    hook = DuckLakeHook()
    assert "s/+ cret" in hook.fields.secrets
    assert "cret" not in hook.redact("s/+ cret or s%2F%2B%20cret")
    assert "s/+" not in repr(hook.fields)


def test_the_data_is_reached_with_it(connect: Connect, faulty_s3: FaultyS3, tmp_path: Path) -> None:
    """Our own access and the session of DuckDB sign with its key, at its endpoint."""
    server = faulty_s3.proxied
    connect(
        "cloud",
        conn_type="aws",
        login=server.access_key_id,
        password=server.secret_access_key,
        extra=json.dumps({"region_name": server.region, "endpoint_url": server.endpoint}),
    )
    extra = {**LAKE, "path": f"{tmp_path}/catalog.sqlite", "data_path": f"{server.url}/lake/"}
    connect("ducklake_default", conn_type="ducklake", extra=extra)
    hook = DuckLakeHook()
    Lake.create(hook.location(), storage=hook.storage_options())
    with hook.get_conn() as session:
        session.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
        faulty_s3.throttle("put", "head", "get", times=4)
        session.execute("CREATE TABLE t AS SELECT 42 AS a")
        assert session.execute("FROM t").fetchall() == [(42,)]
    (file,) = hook.lake().store().list(f"{server.url}/lake/")
    assert file.path.endswith(".parquet")
    assert all(f"Credential={server.access_key_id}/" in text for text in faulty_s3.signatures)


def test_duckdb_gets_a_virtual_hosted_endpoint_without_the_bucket(connect: Connect) -> None:
    storage = {
        "aws_endpoint": "https://bucket.s3.example.com",
        "aws_virtual_hosted_style_request": True,
    }
    options(connect, {"conn_type": "aws", "login": "AK"}, storage_options=storage)
    with duckdb.connect() as session:
        configure(session, DuckLakeHook().fields, alias="lake", data_path="s3://bucket/lake/")
        ((secret,),) = session.execute("SELECT secret_string FROM duckdb_secrets()").fetchall()
        retries = session.execute("SELECT current_setting('http_retries')").fetchone()
    assert "endpoint=s3.example.com;" in secret
    assert "url_style=vhost" in secret
    assert retries == (8,)
