"""The bookkeeping of a deletion, against stores of every temper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.storage.deletion import Deleter
from airflow_provider_ducklake.storage.objects import ObjectNotFound


@dataclass
class Bucket:
    """A store in memory that refuses some keys, hides some, and may break off a bulk deletion."""

    objects: set[str]
    refused: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)
    breaks_after: int | None = None
    reports_missing: bool = False

    def exists(self, path: str) -> bool | None:
        return None if path in self.hidden else path in self.objects

    def delete_many(self, paths: Sequence[str]) -> None:
        for number, path in enumerate(paths):
            if number == self.breaks_after or path in self.refused:
                raise StorageError("the batch failed")
            self.objects.discard(path)

    def delete_one(self, path: str) -> None:
        if path in self.refused:
            raise StorageError(f"{path} refused")
        if self.reports_missing and path not in self.objects:
            raise ObjectNotFound(path)
        self.objects.discard(path)


paths = st.lists(st.sampled_from([f"f{n}" for n in range(80)]), unique=True, max_size=80)


@given(
    asked=paths,
    present=paths.map(set),
    refused=st.sets(st.sampled_from(["f1", "f2", "f40"])),
    hidden=st.sets(st.sampled_from(["f1", "f3", "f5"])),
    breaks_after=st.none() | st.integers(0, 80),
    reports_missing=st.booleans(),
    listed=st.booleans(),
)
def test_every_path_ends_in_the_right_place(
    asked: list[str],
    present: set[str],
    refused: set[str],
    hidden: set[str],
    breaks_after: int | None,
    reports_missing: bool,
    listed: bool,
) -> None:
    if listed:
        asked = [path for path in asked if path in present]
    bucket = Bucket(set(present), refused, hidden, breaks_after, reports_missing)
    deleter = Deleter(bucket.exists, bucket.delete_many, bucket.delete_one)
    outcome = deleter.delete(asked, listed=listed)
    failed = [path for path, _ in outcome.failed]
    assert sorted([*outcome.done, *failed]) == sorted(asked)
    assert bucket.objects == present - set(outcome.done)
    assert set(failed) <= refused
    assert set(outcome.missing).isdisjoint(present - hidden)
    assert set(outcome.deleted) - hidden <= present
