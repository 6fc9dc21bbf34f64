"""Statistics of VARIANT and GEOMETRY columns go with a catalog and leave with its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.transfer.export import export_catalog
from airflow_provider_ducklake.lake.transfer.into_store import import_catalog
from tests.store.test_forks import NOW, Family
from tests.support.lakes import LakeUnderTest, catalog_rows

# Begins of paths and of values in two files.
_TOLD: Final = [('"a"', "0"), ('"a"', "10"), ('"b"."c"', "x0"), ('"b"."c"', "x10")]


@pytest.fixture
def family(shared_store: str, tmp_path: Path) -> Iterator[Family]:
    """A family in the shared store whose parent has two files of VARIANTs and geometries."""
    family = Family(shared_store, tmp_path)
    parent = family.create("parent")
    parent.sql("CREATE TABLE t (v VARIANT, g GEOMETRY)")
    for start in (0, 10):
        parent.sql(
            "INSERT INTO t SELECT {'a': i, 'b': {'c': 'x' || i}}::VARIANT, "
            f"('POINT (' || i || ' 1)')::GEOMETRY FROM range({start}, {start + 9}) r(i)"
        )
    yield family
    family.close()


def _told(lake: LakeUnderTest) -> list[tuple[Any, ...]]:
    rows = catalog_rows(lake)["ducklake_file_variant_stats"]
    return sorted((row["variant_path"], row["min_value"]) for row in rows)


def _found(family: Family, name: str) -> list[tuple[Any, ...]]:
    return family.client(name).sql(
        "SELECT count(*) FILTER (v.a::BIGINT = 17), count(*) FILTER (g && 'POINT (3 1)'::GEOMETRY) "
        "FROM t"
    )


def test_a_fork_has_its_own(family: Family) -> None:
    family.fork("parent", "fork")
    assert _told(family.lake("fork")) == _told(family.lake("parent")) == _TOLD
    fork = family.operations("fork")
    fork.run("merge_adjacent_files", "main.t")
    assert _told(family.lake("fork")) == [_TOLD[0], _TOLD[2]]
    assert _told(family.lake("parent")) == _TOLD
    assert _found(family, "fork") == _found(family, "parent") == [(1, 1)]
    family.client("fork").sql("DROP TABLE t")
    fork.run("expire_snapshots", retain_last=1)
    fork.run("cleanup_old_files", **NOW)
    assert _told(family.lake("fork")) == []
    assert _told(family.lake("parent")) == _TOLD
    assert _found(family, "parent") == [(1, 1)]


def test_they_go_out_of_a_store_and_into_it(family: Family, tmp_path: Path) -> None:
    parent = family.lake("parent")
    target = CatalogLocation.parse(f"ducklake:sqlite:{tmp_path}/away.sqlite")
    export_catalog(Lake.open(parent.location), target)
    assert _told(replace(parent, kind="sqlite", location=target)) == _TOLD
    import_catalog(family.store, target, f"{family.prefix}.back", root=f"{tmp_path}/back/")
    assert _told(family.lake("back")) == _TOLD
    assert _found(family, "back") == [(1, 1)]
