"""Reading a connection's fields: from a form, from JSON, from a URI, right and wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import Connection
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.hooks._fields import LakeFields, parse_fields
from airflow_provider_ducklake.hooks.connection_form import conn_fields
from airflow_provider_ducklake.lake.errors import ConfigurationError, UnsupportedCatalog
from tests.airflow.conftest import ODD_PASSWORD


def parsed(**fields: Any) -> LakeFields:
    """Return the fields of a connection given by its attributes; `extra` as an object."""
    extra = fields.pop("extra", None)
    text = extra if extra is None or isinstance(extra, str) else json.dumps(extra)
    return parse_fields(Connection(conn_id="lake", conn_type="ducklake", extra=text, **fields))


def test_postgres_by_fields() -> None:
    fields = parsed(
        host="db.example.com",
        port=5433,
        login="etl",
        password=ODD_PASSWORD,
        schema="lakes",
        extra={"catalog_type": "postgres", "metadata_schema": "ewr", "data_path": "s3://b/l/"},
    )
    assert fields.location.kind == "postgres"
    assert fields.location.target == "user=etl dbname=lakes host=db.example.com port=5433"
    assert fields.location.password == ODD_PASSWORD
    assert (fields.location.metadata_schema, fields.location.data_path) == ("ewr", "s3://b/l/")
    assert ODD_PASSWORD not in repr(fields)


def test_a_host_alone_means_postgres() -> None:
    assert parsed(host="db").location.target == "host=db"


@pytest.mark.parametrize(
    "options", [{"sslmode": "require"}, "sslmode=require", '{"sslmode":"require"}']
)
def test_libpq_options(options: Any) -> None:
    assert "sslmode=require" in parsed(host="db", extra={"libpq_options": options}).location.target


def test_a_password_among_the_libpq_options_is_kept_apart() -> None:
    fields = parsed(host="db", extra={"libpq_options": {"password": ODD_PASSWORD}})
    assert fields.location.password == ODD_PASSWORD
    assert "password" not in fields.location.target


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_file_by_path_or_host(kind: str) -> None:
    by_path = parsed(extra={"catalog_type": kind, "path": "/lake/c.db"})
    by_host = parsed(host="/lake/c.db", extra={"catalog_type": kind})
    assert by_path == by_host
    assert (by_path.location.kind, by_path.location.target) == (kind, "/lake/c.db")


def test_a_whole_attach_string() -> None:
    fields = parsed(
        password="geheim",
        extra={"attach": "ducklake:postgres:dbname=l host=h", "catalog_type": "postgres"},
    )
    assert fields.location.target == "dbname=l host=h"
    assert fields.location.password == "geheim"


def test_a_uri_gives_text_for_everything() -> None:
    options = json.dumps({"aws_region": "eu-west-1"})
    given_parts = Connection(
        conn_id="lake",
        conn_type="ducklake",
        host="/lake/c.sqlite",
        extra=json.dumps(
            {"catalog_type": "sqlite", "read_only": "true", "storage_options": options}
        ),
    )
    fields = parse_fields(Connection.from_uri(given_parts.get_uri(), conn_id="lake"))
    assert fields.location.target == "/lake/c.sqlite"
    assert fields.read_only is True
    assert fields.storage == {"aws_region": "eu-west-1"}


@given(password=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1))
def test_any_password_survives_a_uri_and_libpq(password: str) -> None:
    from psycopg.conninfo import conninfo_to_dict

    connection = Connection(conn_id="lake", conn_type="ducklake", host="h", password=password)
    fields = parse_fields(Connection.from_uri(connection.get_uri(), conn_id="lake"))
    assert fields.location.password == password
    assert conninfo_to_dict(fields.location.conninfo)["password"] == password


def test_an_untouched_form_is_full_of_nulls() -> None:
    """Airflow saves every field of the form, null where nothing was filled in."""
    untouched = {name: field["schema"].get("default") for name, field in conn_fields().items()}
    fields = parsed(host="db", schema="lake", extra=untouched)
    assert fields == LakeFields(fields.location)
    assert (fields.location.metadata_schema, fields.location.data_path) == (None, None)


def test_old_forms_prefix_their_fields() -> None:
    extra = {"extra__ducklake__catalog_type": "sqlite", "extra__ducklake__path": "/c.db"}
    assert parsed(extra=extra).location.target == "/c.db"


def test_values_of_objects_become_text() -> None:
    extra = {
        "storage_options": {"allow_http": True, "max_retries": 3, "aws_region": None},
        "duckdb_settings": {"threads": 2},
    }
    fields = parsed(host="db", extra=extra)
    assert fields.storage == {"allow_http": "true", "max_retries": "3"}
    assert fields.duckdb_settings == {"threads": "2"}


def test_secrets_are_known() -> None:
    extra = {"storage_options": {"aws_secret_access_key": "s3cr3t", "aws_region": "eu"}}
    assert set(parsed(host="h", password="pw1", extra=extra).secrets) == {"pw1", "s3cr3t"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "says nowhere where the catalog is"),
        ({"extra": {"path": "/c.db"}}, "a path needs its catalog_type"),
        ({"extra": {"catalog_type": "sqlite"}}, "needs the path of its file"),
        ({"extra": {"catalog_type": "sqlit"}}, "did you mean 'sqlite'"),
        ({"host": "h", "extra": {"catalog_type": "postgres", "path": "/c"}}, "path is for sqlite"),
        ({"host": "/b", "extra": {"catalog_type": "sqlite", "path": "/c"}}, "path and host both"),
        ({"host": "h", "extra": {"attach": "ducklake:c"}}, "leave host empty"),
        ({"host": "h", "extra": {"metadata_shema": "m"}}, "did you mean 'metadata_schema'"),
        ({"host": "h", "extra": {"read_only": "perhaps"}}, "must be true or false"),
        ({"host": "h", "extra": "{not json"}, "extra field is not valid JSON"),
        ({"host": "h", "extra": "[1]"}, "must be a JSON object"),
        ({"host": "h", "extra": {"storage_options": "geheim=1"}}, "storage_options is not valid"),
        ({"host": "h", "extra": {"storage_options": [1]}}, "storage_options must be a JSON object"),
        ({"host": "h", "extra": {"libpq_options": {"pasword": "geheim"}}}, "no libpq option"),
        (
            {"host": "h", "extra": {"libpq_options": {"sslpassword": "geheim"}}},
            "sslpassword cannot",
        ),
        ({"extra": {"attach": "ducklake:postgres:sslpassword=geheim"}}, "sslpassword cannot"),
        ({"extra": {"attach": "ducklake:postgres:geheim geheim"}}, "not a libpq connection string"),
        ({"extra": {"catalog_url": "lake/c.sqlite"}}, "is no URL: write s3://"),
        ({"extra": {"catalog_url": "s3://k:geheim@b/c.sqlite"}}, "carries credentials"),
        ({"host": "h", "extra": {"catalog_url": "s3://b/c"}}, "leave host empty"),
        ({"extra": {"catalog_url": "s3://b/c", "attach": "x"}}, "leave attach empty"),
        ({"extra": {"catalog_url": "s3://b/c", "catalog": "a"}}, "only a store in PostgreSQL"),
        ({"extra": {"catalog_url": "s3://b/c", "metadata_schema": "m"}}, "no schemas"),
        (
            {"extra": {"catalog_url": "s3://b/c", "attach_options": {"create_if_not_exists": 1}}},
            "nothing can be created or migrated",
        ),
    ],
)
def test_wrong_connections_are_told_apart(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        parsed(**fields)
    assert str(raised.value).startswith("connection 'lake': ")
    assert "geheim" not in str(raised.value)


def test_a_catalog_of_another_type_stays_unsupported() -> None:
    with pytest.raises(UnsupportedCatalog, match="mysql"):
        parsed(extra={"attach": "ducklake:mysql:db=x"})
