"""A bucket of 50,000 objects: listed page by page, swept in bulk, and nothing asked one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import pytest

from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.instants import format_instant
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.lake.tables import create_table
from airflow_provider_ducklake.spark.operations import run_operation
from airflow_provider_ducklake.spark.runner import LocalRunner
from tests.support.listed_s3 import ListedS3, serving

OLD: Final = datetime(2026, 1, 1, tzinfo=timezone.utc)
LIVE, SCHEDULED, YOUNG, ORPHANS, OTHERS = 20_000, 2_000, 3_000, 24_000, 1_000


@dataclass(frozen=True, slots=True)
class Large:
    """A lake and the bucket of its files."""

    lake: Lake
    bucket: ListedS3

    def run(self, name: str, **options: str) -> OperationResult:
        """Run an operation that is to succeed."""
        result = run_operation(name, self.lake, options, runner=LocalRunner())
        assert not result.is_failed, result.failures
        return result


def names(kind: str, count: int, suffix: str = ".parquet") -> list[str]:
    """Return names as our writers give them, below some partitions."""
    return [f"k={n % 7}/ducklake-{kind}-{n:020}{suffix}" for n in range(count)]


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Large]:
    """A lake whose catalog names some of 50,000 objects, and schedules a few."""
    young = datetime.now(timezone.utc)
    objects = {
        **dict.fromkeys(names("live", LIVE), OLD),
        **dict.fromkeys(names("scheduled", SCHEDULED), OLD),
        **dict.fromkeys(names("young", YOUNG), young),
        **dict.fromkeys(names("orphan", ORPHANS), OLD),
        **dict.fromkeys(names("other", OTHERS, ".txt"), OLD),
    }
    bucket = ListedS3({f"lake/main/t/{name}": time for name, time in objects.items()})
    with serving(bucket):
        location = CatalogLocation.parse(
            f"ducklake:sqlite:{tmp_path}/catalog.sqlite", data_path="s3://bucket/lake/"
        )
        lake = Lake.create(location, storage=bucket.options)
        create_table(lake, "t", parse_columns("id int64"))
        with lake.database.write() as session:
            end = (None,) * 4
            session.insert(
                "ducklake_data_file",
                (
                    (n, 1, 1, None, None, name, 1, "parquet", 1, 100, 10, n, *end)
                    for n, name in enumerate(names("live", LIVE))
                ),
            )
            since = format_instant(OLD)
            session.insert(
                "ducklake_files_scheduled_for_deletion",
                (
                    (LIVE + n, f"main/t/{name}", 1, since)
                    for n, name in enumerate(names("scheduled", SCHEDULED))
                ),
            )
        bucket.asked.clear()
        yield Large(lake, bucket)


def test_sweeping_50_000_objects(large: Large) -> None:
    pages = (LIVE + SCHEDULED + YOUNG + ORPHANS + OTHERS) // 1_000
    result = large.run("delete_orphaned_files", max_fraction="0.9")
    assert result.counts == {
        "files_deleted": ORPHANS,
        "bytes_deleted": ORPHANS * 100,
        "files_missing": 0,
        "kept: in use": LIVE,
        "kept: not a data file": OTHERS,
        "kept: scheduled (cleanup_old_files deletes it)": SCHEDULED,
        "kept: too young": YOUNG,
    }
    assert large.bucket.asked == {"list": pages, "delete many": ORPHANS // 1_000}
    assert large.bucket.largest_deletion == 1_000
    assert not [key for key in large.bucket.objects if "orphan" in key]
    assert len(large.bucket.objects) == LIVE + SCHEDULED + YOUNG + OTHERS


def test_cleaning_2_000_scheduled_files(large: Large) -> None:
    result = large.run("cleanup_old_files")
    assert result.counts == {"files_deleted": SCHEDULED, "files_forgotten": 0, "files_missing": 0}
    assert large.bucket.asked == {"head": SCHEDULED, "delete many": SCHEDULED // 1_000}
    assert not [key for key in large.bucket.objects if "scheduled" in key]
    assert large.run("cleanup_old_files").counts["files_deleted"] == 0
