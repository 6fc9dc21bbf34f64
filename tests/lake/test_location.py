"""ATTACH strings and the catalogs they name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from airflow_provider_ducklake.lake.errors import ConfigurationError, UnsupportedCatalog
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
    ],
)
def test_attach_strings(attach: str, kind: str, target: str) -> None:
    location = CatalogLocation.parse(attach)
    assert (location.kind, location.target) == (kind, target)


@pytest.mark.parametrize("attach", ["ducklake:", "ducklake:sqlite:", "  "])
def test_a_catalog_has_to_be_named(attach: str) -> None:
    with pytest.raises(ConfigurationError, match="names no catalog"):
        CatalogLocation.parse(attach)


def test_other_databases_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedCatalog, match="'mysql'"):
        CatalogLocation.parse("ducklake:mysql:host=db")


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
