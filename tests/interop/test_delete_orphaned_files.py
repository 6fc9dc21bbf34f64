"""delete_orphaned_files: only data files nobody refers to go, and only old enough ones."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ducklake.lake.errors import ConfigurationError, SafetyRefusal, StorageError
from airflow_provider_ducklake.lake.orphans import Listing
from airflow_provider_ducklake.storage import ObjectInfo, RoutedStore
from tests.interop.aftermath import life_goes_on
from tests.interop.judge import Judge
from tests.interop.palette import pairs, write_parquet
from tests.support.lakes import LakeFactory, LakeUnderTest, on_every_kind

SWEEP = "delete_orphaned_files"
EVERYTHING: dict[str, Any] = {"cleanup_all": True, "force": True, "max_fraction": 1}


def _fill(judge: Judge) -> None:
    judge.create_table("main.t", {"id": "INTEGER", "k": "VARCHAR", "seen": "TIMESTAMP"})
    judge.alter("main.t", "SET PARTITIONED BY (k, seen)")
    judge.insert_values(
        "main.t",
        *(
            (i, ("a~b", "x y", "50%", "ü/é")[i % 4], datetime(2024, 1, 1, 12, 30))
            for i in range(200)
        ),
    )
    judge.delete("main.t", "id < 100", lambda row: row["id"] < 100)


def _orphan(lake: LakeUnderTest, name: str = "main/t/lost.parquet", *, days: float = 30) -> Path:
    path = Path(lake.data_path) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"PAR1 nobody knows me")
    past = time.time() - days * 86_400
    os.utime(path, (past, past))
    return path


def _plain(directory: Path) -> str:
    return f"{directory}/data/"


def _doubled(directory: Path) -> str:
    return f"{directory}//data//lake//"


def _unclosed(directory: Path) -> str:
    return f"{directory}/data"


def _dotted(directory: Path) -> str:
    (directory / "x").mkdir()
    return f"{directory}/./x/../data/"


def _strange(directory: Path) -> str:
    return f"{directory}/a b%20c/key=value/"


def _linked(directory: Path) -> str:
    (directory / "real").mkdir()
    (directory / "link").symlink_to(directory / "real")
    return f"{directory}/link/data/"


@on_every_kind(
    ("spelling",),
    [(_plain,), (_doubled,), (_unclosed,), (_dotted,), (_strange,), (_linked,)],
    everywhere=(_strange,),
)
def test_live_files_are_recognised(
    lake_factory: LakeFactory, spelling: Callable[[Path], str]
) -> None:
    """OR-01: whatever the data path looks like, exactly the true orphan goes."""
    lake = lake_factory.create()
    lake = replace(lake, data_path=spelling(lake.directory))
    judge = Judge(lake)
    _fill(judge)
    stored = lake.stored_files()
    orphan = _orphan(lake)
    planned = judge.dry_run(SWEEP, **EVERYTHING)
    result = judge.upkeep(SWEEP, **EVERYTHING)
    assert planned.counts["files_deleted"] == result.counts["files_deleted"] == 1
    assert not orphan.exists()
    assert lake.stored_files() == stored
    judge.check()
    judge.close()
    lake_factory.remove(lake)


def test_relative_data_path(lake_factory: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """OR-01: a relative data path means the directory the lake was made in."""
    if lake_factory.kind == "store":
        pytest.skip("a store takes no relative root")
    lake = lake_factory.create()
    monkeypatch.chdir(lake.directory)
    lake = replace(lake, data_path="data/")
    judge = Judge(lake)
    _fill(judge)
    orphan = _orphan(lake)
    judge.upkeep(SWEEP, **EVERYTHING)
    assert not orphan.exists()
    judge.check()
    judge.close()
    lake_factory.remove(lake)


def test_partition_of_an_orphan_with_strange_values(judge: Judge) -> None:
    """OR-01: reported equals removed, in directories with escapes too."""
    _fill(judge)
    some = next(name for name in judge.lake.stored_files() if "%25" in name or "%" in name)
    orphan = _orphan(judge.lake, f"{Path(some).parent}/lost.parquet")
    result = judge.upkeep(SWEEP, **EVERYTHING)
    assert result.counts["files_deleted"] == 1
    assert not orphan.exists()
    life_goes_on(judge, "main.t")


def test_young_files_need_force(judge: Judge) -> None:
    """OR-04: a bound younger than a day is refused, also one in the future."""
    _fill(judge)
    young = _orphan(judge.lake, days=0.003)
    for older_than in ("1 hour", "0 seconds", "2999-01-01 00:00:00+00"):
        with pytest.raises(SafetyRefusal, match="force"):
            judge.operations.run(SWEEP, older_than=older_than)
    with pytest.raises(SafetyRefusal, match="force"):
        judge.operations.run(SWEEP, cleanup_all=True)
    judge.upkeep(SWEEP)
    judge.upkeep(SWEEP, older_than="25 hours")
    assert young.is_file()


def test_default_age(judge: Judge) -> None:
    """OR-04: without options, what is older than the lake's grace goes and the rest stays."""
    _fill(judge)
    old, young = _orphan(judge.lake, "old.parquet", days=3), _orphan(judge.lake, days=1.5)
    result = judge.upkeep(SWEEP, max_fraction=1)
    assert result.counts["files_deleted"] == 1
    assert young.is_file()
    assert not old.exists()
    instant = datetime.now(timezone.utc) - timedelta(days=1)
    judge.upkeep(SWEEP, older_than=instant.isoformat(), force=True, max_fraction=1)
    assert not young.exists()


@pytest.mark.parametrize("step", ["add", "require_share"])
def test_file_committed_while_sweeping(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """OR-04: references are read after the listing, and again before anything is deleted."""
    _fill(judge)
    judge.create_table("main.u", {"id": "INTEGER"})
    late = Path(judge.lake.data_path) / "main" / "u" / "late.parquet"
    write_parquet(late, {"id": "INTEGER"}, pairs([(7,)]))
    done = getattr(Listing, step)

    def interfere(listing: Listing, *given: Any) -> None:
        done(listing, *given)
        judge.add_files("main.u", [str(late)], [(7,)])
        judge.client.release()

    orphan = _orphan(judge.lake)
    monkeypatch.setattr(Listing, step, interfere)
    assert judge.upkeep(SWEEP, **EVERYTHING).counts["files_deleted"] == 1
    assert late.exists()
    assert not orphan.exists()
    judge.check()


def test_listing_that_fails(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """OR-04: when the listing fails, nothing is deleted."""
    _fill(judge)
    orphan = _orphan(judge.lake)

    def break_off(store: RoutedStore, prefix: str) -> Iterator[ObjectInfo]:
        yield store.head(str(orphan))
        raise StorageError("the connection broke on page 2")

    monkeypatch.setattr(RoutedStore, "list", break_off)
    with pytest.raises(StorageError, match="page 2"):
        judge.operations.run(SWEEP, **EVERYTHING)
    assert orphan.is_file()


def test_guard_on_the_share(judge: Judge) -> None:
    """OR-04: when an unusual share of the files would go, a person has to say so."""
    _fill(judge)
    for number in range(50):
        _orphan(judge.lake, f"main/t/lost{number}.parquet")
    with pytest.raises(SafetyRefusal, match="max_fraction"):
        judge.operations.run(SWEEP)
    result = judge.upkeep(SWEEP, max_fraction=1)
    assert result.counts["files_deleted"] == 50


def test_what_is_no_data_file_stays(judge: Judge) -> None:
    """OR-05: only Parquet and puffin files nobody refers to go; the rest is not ours."""
    judge.client.set_option("write_deletion_vectors", True)
    judge.client.set_option("data_inlining_row_limit", 0)
    _fill(judge)
    judge.create_table("main.m", {"id": "INTEGER"})
    judge.insert_values("main.m", (1,))
    judge.insert_values("main.m", (2,))
    judge.upkeep("merge_adjacent_files", "main.m")
    stored = judge.lake.stored_files()
    keep = [
        _orphan(judge.lake, name)
        for name in (
            "catalog.sqlite",
            "catalog.duckdb",
            "catalog.duckdb.wal",
            "_SUCCESS",
            "main/t/.x.parquet.crc",
            "README",
        )
    ]
    gone = [
        _orphan(judge.lake, name)
        for name in ("foreign.parquet", "main/t/lost-delete.parquet", "main/t/lost.puffin")
    ]
    result = judge.upkeep(SWEEP, **EVERYTHING)
    assert result.counts["files_deleted"] == len(gone)
    assert all(path.is_file() for path in keep)
    assert not any(path.exists() for path in gone)
    assert stored.items() <= judge.lake.stored_files().items(), "live or scheduled files are gone"
    assert len(judge.catalog()["ducklake_files_scheduled_for_deletion"]) == 2
    # The reference loses the history of a file's second deletion vector: no more of them.
    judge.client.set_option("write_deletion_vectors", False)


def test_empty_lake(judge: Judge) -> None:
    """OR-05: a lake without a single file is swept without complaint."""
    assert judge.upkeep(SWEEP, **EVERYTHING).counts["files_deleted"] == 0


def test_orphans_move_to_a_quarantine(judge: Judge) -> None:
    """They are there whole, by the time of the run; a place among the data is refused."""
    _fill(judge)
    stored = judge.lake.stored_files()
    orphan = _orphan(judge.lake, "k=1/lost.parquet")
    content = orphan.read_bytes()
    root = judge.lake.data_path
    for shared in (root, f"{root}lost", str(judge.lake.directory)):
        with pytest.raises(ConfigurationError, match="share a root"):
            judge.operations.run(SWEEP, quarantine=shared, **EVERYTHING)
    place = judge.lake.directory / "lost"
    planned = judge.dry_run(SWEEP, quarantine=str(place), **EVERYTHING)
    assert not place.exists()
    for _ in range(2):
        result = judge.upkeep(SWEEP, quarantine=str(place), **EVERYTHING)
        assert planned.counts["files_quarantined"] == result.counts["files_quarantined"] == 1
        assert result.counts["bytes_quarantined"] == len(content)
        assert judge.lake.stored_files() == stored
        (folder,) = re.findall(r"orphans go to (\S+)", " ".join(result.messages))
        assert Path(folder, "k=1", "lost.parquet").read_bytes() == content
        _orphan(judge.lake, "k=1/lost.parquet")
    assert len(list(place.iterdir())) == 2


def test_what_cannot_be_moved_stays(judge: Judge) -> None:
    """An orphan is deleted only when its copy has arrived."""
    _fill(judge)
    orphan = _orphan(judge.lake)
    place = judge.lake.directory / "lost"
    place.write_text("a file is in the way")
    with pytest.raises(StorageError, match="lost"):
        judge.operations.run(SWEEP, quarantine=str(place), **EVERYTHING)
    assert orphan.exists()
    judge.check()
