"""Whatever is done to one catalog of a store, the others stand as they did, byte for byte."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import pytest

from airflow_provider_ducklake.spark.operations import OPERATIONS
from tests.interop.judge import Judge
from tests.interop.palette import arrow_table, pairs, write_parquet
from tests.support.lakes import LakeFactory, LakeUnderTest, catalog_fingerprint

pytestmark = pytest.mark.parametrize("lake_factory", ["store"], indirect=True)

TYPES: Final = {"id": "INTEGER", "v": "VARCHAR"}
_FORCED: Final = {"cleanup_all": True, "force": True}
# With the widest scope there is: all tables, everything but the newest snapshot, no grace.
UPKEEP: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("merge_adjacent_files", {}),
    ("rewrite_data_files", {"delete_threshold": 0}),
    ("flush_inlined_data", {}),
    ("restore", {"snapshot": 3}),
    ("expire_snapshots", {"retain_last": 1}),
    ("cleanup_old_files", _FORCED),
    ("delete_orphaned_files", {**_FORCED, "max_fraction": 1}),
    ("checkpoint", {"retain_last": 1}),
    ("fsck", {"repair": True, "deep": True}),
    ("info", {}),
)
# The first makes the catalogs; rows come by name below; a fleet is of many catalogs by its nature.
_OTHERS: Final = {"create_lake", "ingest", "add_data_files", "create_table", "fleet_maintenance"}


def _fingerprint(lake: LakeUnderTest) -> tuple[str, dict[str, str]]:
    """Return a digest of all rows of a catalog, and one of each of its files."""
    files = {
        name: hashlib.sha256(Path(lake.data_path, name).read_bytes()).hexdigest()
        for name in lake.stored_files()
    }
    return catalog_fingerprint(lake), files


def test_other_catalogs_stand_as_they_did(lake_factory: LakeFactory) -> None:
    """MT-01: tables, ids and snapshots of the same names and numbers are those of one catalog."""
    assert {name for name, _ in UPKEEP} | _OTHERS == OPERATIONS.keys()
    judges = [Judge(lake_factory.create()) for _ in range(3)]
    for judge in judges:
        judge.client.set_option("data_inlining_row_limit", 3)
        judge.create_table("main.t", TYPES)
    for first in range(0, 40, 10):  # their commits take turns
        for judge in judges:
            judge.insert_values("main.t", *((i, "x") for i in range(first, first + 10)))
    for judge in judges:
        judge.delete("main.t", "id % 4 = 0", lambda row: row["id"] % 4 == 0)
        judge.insert_values("main.t", (90, "inlined"))
        judge.client.release()
    mine, *others = judges
    heads = {judge.model.head for judge in judges}
    assert len(heads) == 1, "each catalog counts its own snapshots"
    before = [_fingerprint(judge.lake) for judge in others]
    for name, options in UPKEEP:
        source = mine.lake.directory / f"{name}.parquet"
        write_parquet(source, TYPES, pairs([(200, "raw")]))
        mine.operations.run("create_table", f"main.{name}", columns="id int32")
        mine.operations.run("add_data_files", "main.t", sources=[str(source)])
        mine.operations.ingest("main.t", arrow_table(TYPES, pairs([(201, "new")])).to_batches())
        mine.operations.run(name, **options)
        assert [_fingerprint(judge.lake) for judge in others] == before, name
    assert mine.client.snapshot_ids() != others[0].client.snapshot_ids()
    for judge in others:
        judge.check()
        judge.check_soundness()
    for judge in judges:
        judge.close()
        lake_factory.remove(judge.lake)
