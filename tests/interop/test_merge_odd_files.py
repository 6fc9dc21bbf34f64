"""mode=merge over files that are not plain: merged, registered, of older shapes, encrypted."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from tests.interop.judge import Judge
from tests.interop.merges import merge
from tests.interop.palette import pairs, write_parquet
from tests.support.lakes import LakeUnderTest

TYPES = {"id": "INTEGER", "v": "VARCHAR"}


@pytest.mark.parametrize("lake_factory", ["sqlite"], indirect=True)
def test_files_of_all_origins_and_shapes(judge: Judge, tmp_path: Path) -> None:
    """Files of several snapshots, without field ids, without a key column, of narrower types."""
    judge.create_table("main.t", TYPES)
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.insert_values("main.t", (1, "a"), (2, "a"))
    judge.insert_values("main.t", (3, "a"), (4, "a"))
    judge.upkeep("merge_adjacent_files", "main.t")
    registered = tmp_path / "f.parquet"
    write_parquet(registered, TYPES, pairs([(5, "f"), (6, "f")]))
    judge.add_files("main.t", [str(registered)], [(5, "f"), (6, "f")])
    merge(judge, "main.t", TYPES, pairs([(2, "u"), (3, "u"), (5, "u")]), "id")
    judge.alter("main.t", "ADD COLUMN d INTEGER DEFAULT 9", lambda t: t.add_column("d", 9))
    judge.alter("main.t", "ALTER COLUMN id TYPE BIGINT")
    moved = {"d": "INTEGER", "v": "VARCHAR", "id": "INTEGER"}
    merge(judge, "main.t", moved, pairs([(9, "w", 3), (9, "w", 6), (1, "q", 6)]), "d,id")
    judge.alter("main.t", "RENAME COLUMN v TO w", lambda t: t.rename_column("v", "w"))
    judge.alter("main.t", "DROP COLUMN d", lambda t: t.drop_column("d"))
    renamed = {"id": "BIGINT", "w": "VARCHAR"}
    merge(judge, "main.t", renamed, pairs([(4, "z"), (6, "z"), (7, "new")]), "id")
    judge.check_soundness()


def test_encrypted_files(tmp_path: Path) -> None:
    """Everything that is written is encrypted, and the stock client reads it."""
    attach, data = f"ducklake:sqlite:{tmp_path}/c.sqlite", f"{tmp_path}/data/"
    location = CatalogLocation.parse(attach, data_path=data)
    Lake.create(location, encrypted=True)
    judge = Judge(LakeUnderTest("sqlite", attach, data, location, tmp_path))
    judge.create_table("main.t", TYPES)
    judge.ingest("main.t", TYPES, pairs([(1, "a"), (2, "a"), (3, "a")]))
    merge(judge, "main.t", TYPES, pairs([(2, "u"), (5, "u")]), "id")
    merge(judge, "main.t", TYPES, pairs([(3, "uu"), (5, "uu")]), "id")
    assert not judge.unreferenced_files()
    files = list(Path(data).rglob("*.parquet"))
    assert len(files) >= 5
    assert {file.read_bytes()[:4] for file in files} == {b"PARE"}
    judge.check_soundness()
    judge.close()
