"""Catalogs that several make at once, that are there already, or that nobody named."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.store.registry import CatalogEntry
from airflow_provider_ducklake.lake.store.store import CatalogStore

_AT_ONCE = 6


@pytest.fixture
def store(postgres_database: str, tmp_path: Path) -> CatalogStore:
    """A fresh store."""
    store = CatalogStore(postgres_database)
    store.init(f"{tmp_path}/lakes")
    return store


def at_once(make: Callable[[], CatalogEntry]) -> list[CatalogEntry]:
    """Return what several get who do the same at the same time."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [future.result() for future in [pool.submit(make) for _ in range(_AT_ONCE)]]


def test_of_several_at_once_one_makes_it_and_all_have_it(store: CatalogStore) -> None:
    for round_ in range(3):
        name = f"acme{round_}"
        made = at_once(lambda name=name: store.create_catalog(name, if_not_exists=True))  # type: ignore[misc]
        assert len({entry.uuid for entry in made}) == 1
        forks = at_once(
            lambda name=name: store.fork_catalog(name, f"{name}.fork", if_not_exists=True)  # type: ignore[misc]
        )
        assert len({entry.uuid for entry in forks}) == 1
        assert {entry.parent for entry in forks} == {name}
    assert store.status().catalogs == 6


def test_without_if_not_exists_the_others_are_told(store: CatalogStore) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        tries = [pool.submit(store.create_catalog, "acme") for _ in range(_AT_ONCE)]
        refusals = [str(error) for error in (one.exception() for one in tries) if error]
    assert refusals == ['catalog "acme" exists already'] * (_AT_ONCE - 1)


def test_what_is_there_has_to_be_what_was_asked_for(store: CatalogStore, tmp_path: Path) -> None:
    plain = store.create_catalog("plain", root=f"{tmp_path}/plain")
    hidden = store.create_catalog("hidden", encrypted=True)
    fork = store.fork_catalog("plain", "fork", root=f"{tmp_path}/fork")

    def again(name: str, **asked: Any) -> CatalogEntry:
        return store.create_catalog(name, if_not_exists=True, **asked)

    assert again("PLAIN") == again("plain", root=f"file://{tmp_path}//plain/") == plain
    assert again("hidden", encrypted=True) == hidden
    for name, asked, message in (
        (
            "plain",
            {"root": f"{tmp_path}/other"},
            "at the root .*/plain/, not at .*/oth",
        ),
        ("plain", {"encrypted": True}, "is without encryption, not encrypted"),
        ("hidden", {}, "is encrypted, not without encryption"),
        ("fork", {}, "is a fork of 'plain', not no fork"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            again(name, **asked)

    def fork_again(**asked: Any) -> CatalogEntry:
        return store.fork_catalog("plain", "fork", if_not_exists=True, **asked)

    assert fork_again() == fork_again(root=f"{tmp_path}/fork", snapshot_id=0) == fork
    with pytest.raises(ConfigurationError, match="a fork at snapshot 0, not one at snapshot 7"):
        fork_again(snapshot_id=7)
    with pytest.raises(
        ConfigurationError, match=r"at the root .*/fork/, not at .*/x: take another"
    ):
        fork_again(root=f"{tmp_path}/x")


def test_a_store_is_no_place_for_whoever_names_no_catalog(
    store: CatalogStore, postgres_database: str, tmp_path: Path
) -> None:
    """Neither an old lake in `public` nor a new one there is ever taken for a catalog."""
    store.create_catalog("acme")
    nameless = CatalogLocation.parse(
        f"ducklake:postgres:{postgres_database}", data_path=f"{tmp_path}/plain/"
    )
    with pytest.raises(ConfigurationError, match="names no catalog, and the database holds a sto"):
        Lake.open(nameless).head()
    with pytest.raises(ConfigurationError, match="names no catalog"):
        Lake.create(nameless)
    plain = CatalogLocation.parse(
        f"ducklake:postgres:{postgres_database}",
        metadata_schema="public",
        data_path=f"{tmp_path}/plain/",
    )
    Lake.create(plain)
    assert Lake.open(plain).head().snapshot_id == 0
    with pytest.raises(ConfigurationError, match="names no catalog"):
        Lake.open(nameless).head()
    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE ROLE made_once_stranger LOGIN")
    try:
        stranger = CatalogLocation.parse(
            f"ducklake:postgres:{postgres_database} user=made_once_stranger"
        )
        with pytest.raises(ConfigurationError, match="names no catalog"):
            Lake.open(stranger).head()
    finally:
        with psycopg.connect(postgres_database) as connection:
            connection.execute("DROP ROLE made_once_stranger")


@pytest.mark.parametrize("name", ["", " ", "None of them"])
def test_a_name_that_is_none_is_not_no_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match="a name has letters"):
        CatalogLocation.parse("ducklake:postgres:dbname=x", catalog=name)
