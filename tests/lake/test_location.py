"""ATTACH strings and the catalogs they name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from airflow_provider_ducklake.lake.database import open_database
from airflow_provider_ducklake.lake.errors import (
    ConfigurationError,
    LakeError,
    UnsupportedCatalog,
)
from airflow_provider_ducklake.lake.location import CatalogLocation

PASSWORD = "p@ss w'or\\d=x&%41"


@pytest.mark.parametrize(
    ("attach", "kind", "target"),
    [
        ("ducklake:lake.ducklake", "duckdb", "lake.ducklake"),
        ("ducklake:duckdb:dir/lake.db", "duckdb", "dir/lake.db"),
        ("ducklake:sqlite:/lake/catalog.sqlite", "sqlite", "/lake/catalog.sqlite"),
        ("sqlite:catalog.sqlite", "sqlite", "catalog.sqlite"),
        ("ducklake:postgres:dbname=lake host=db", "postgres", "dbname=lake host=db"),
        ("postgresql://ann@db:5433/lake", "postgres", "user=ann dbname=lake host=db port=5433"),
        ("DuckLake:/abs/lake.db", "duckdb", "/abs/lake.db"),
        ("ducklake:sqlite:s3://b/l/c.sqlite", "sqlite", "s3://b/l/c.sqlite"),
        ("ducklake:my_lake1", "secret", "my_lake1"),
        ("ducklake:duckdb:my_lake1", "duckdb", "my_lake1"),
        ("ducklake:md:flights", "md", "flights"),
        ("motherduck:flights", "md", "flights"),
    ],
)
def test_attach_strings(attach: str, kind: str, target: str) -> None:
    location = CatalogLocation.parse(attach)
    assert (location.kind, location.target) == (kind, target)


@pytest.mark.parametrize("attach", ["ducklake:", "ducklake:sqlite:", "ducklake:md:", "  "])
def test_a_catalog_has_to_be_named(attach: str) -> None:
    with pytest.raises(ConfigurationError, match="names no catalog"):
        CatalogLocation.parse(attach)


def test_other_databases_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedCatalog, match="'mysql'"):
        CatalogLocation.parse("ducklake:mysql:host=db")


@pytest.mark.parametrize(
    ("attach", "shown"),
    [
        ("ducklake:md:flights?motherduck_token=geheim", "MotherDuck catalog flights"),
        ("ducklake:mine", "catalog of the DuckLake secret mine"),
    ],
)
def test_what_only_duckdb_reaches_cannot_be_opened(attach: str, shown: str) -> None:
    location = CatalogLocation.parse(attach)
    with pytest.raises(UnsupportedCatalog, match=f"^{shown}: only DuckDB") as caught:
        open_database(location)
    assert "\n" not in str(caught.value)
    assert "geheim" not in f"{caught.value} {location!r} {location.attach_string}"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/c.sqlite", "scheme 'ftp' is not supported"),
        ("s3://key:geheim@bucket/c.sqlite", "carries credentials"),
        ("s3:///c.sqlite", "names no bucket"),
    ],
)
def test_a_bucket_has_to_be_one(url: str, message: str) -> None:
    with pytest.raises(LakeError, match=message) as caught:
        CatalogLocation.parse(f"ducklake:sqlite:{url}")
    assert "geheim" not in str(caught.value)


def test_a_catalog_in_a_bucket_is_one_of_a_kind() -> None:
    location = CatalogLocation.parse("ducklake:sqlite:s3://b/l/c.sqlite")
    assert location.in_bucket
    assert CatalogLocation.parse(location.attach_string) == location
    assert not CatalogLocation.parse("ducklake:sqlite:/l/c.sqlite").in_bucket
    with pytest.raises(ConfigurationError, match="SQLite has no schemas"):
        CatalogLocation.parse(location.attach_string, metadata_schema="s")
    copy = CatalogLocation("sqlite", "/tmp/x/c.sqlite", shown_as="s3://b/l/c.sqlite")
    assert str(copy) == str(location) == "sqlite catalog s3://b/l/c.sqlite"


@pytest.mark.parametrize("how", ["inside", "beside", "uri"])
def test_the_password_is_kept_out_of_sight(how: str) -> None:
    quoted = PASSWORD.replace("\\", "\\\\").replace("'", "\\'")
    attach = {
        "inside": f"ducklake:postgres:host=db dbname=lake password='{quoted}'",
        "beside": "ducklake:postgres:host=db dbname=lake",
        "uri": "ducklake:postgres://ann:p%40ss%20w%27or%5Cd%3Dx%26%2541@db/lake",
    }[how]
    given_password = PASSWORD if how == "beside" else None
    location = CatalogLocation.parse(attach, password=given_password)
    assert conninfo_to_dict(location.conninfo)["password"] == PASSWORD
    for shown in (repr(location), str(location), location.attach_string, location.target):
        assert "p@ss" not in shown
        assert "p%40ss" not in shown


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1))
def test_any_password_reaches_the_driver_whole(password: str) -> None:
    location = CatalogLocation.parse("ducklake:postgres:dbname=lake", password=password)
    assert conninfo_to_dict(location.conninfo)["password"] == password
    assert CatalogLocation.parse(location.attach_string, password=password) == location


def test_a_broken_connection_string_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="libpq") as caught:
        CatalogLocation.parse("ducklake:postgres:host=db password=geheim broken")
    assert "geheim" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "text", ["host=h sslpassword=geheim", "postgresql://h/d?sslpassword=geheim"]
)
def test_other_secrets_of_libpq_are_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigurationError, match="option sslpassword cannot") as refused:
        CatalogLocation.parse(f"ducklake:postgres:{text}")
    assert "geheim" not in str(refused.value)
