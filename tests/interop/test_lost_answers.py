"""A COMMIT without an answer is looked up, not guessed: the line to PostgreSQL goes dead in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.location import CatalogLocation
from tests.interop.judge import Judge
from tests.interop.operations import Operations
from tests.support.postgres_proxy import Loss, LossyLine, lossy_line

TYPES = {"id": "INTEGER"}
pytestmark = pytest.mark.parametrize("lake_factory", ["postgres"], indirect=True)


@pytest.fixture
def line(judge: Judge) -> Iterator[LossyLine]:
    """A line to the judge's lake, which our operations take from now on."""
    location = judge.lake.location
    with (
        TemporaryDirectory(prefix="line-") as directory,
        lossy_line(Path(directory), location.conninfo) as line,
    ):
        behind = CatalogLocation.parse(
            f"ducklake:postgres:{line.conninfo}", metadata_schema=location.metadata_schema
        )
        judge.operations = Operations(
            replace(judge.lake, location=behind), judge.operations.make_way
        )
        yield line


@dataclass(slots=True)
class _Losing:
    """Lets the answer to one COMMIT of each operation get lost, and counts what came of it."""

    judge: Judge
    line: LossyLine
    loss: Loss
    before: int = 0

    def __enter__(self) -> None:
        self.line.lose(self.loss)
        self.before = self.judge.client.recorded_snapshot_ids()[-1]

    def __exit__(self, *_: object) -> None:
        assert self.line.lost == 1
        self.line.lost = 0
        made = self.judge.client.recorded_snapshot_ids()[-1] - self.before
        assert made == 1, f"{made} snapshots"
        assert not self.judge.unreferenced_files()
        self.judge.check_catalog()


@pytest.mark.parametrize("loss", ["unsent", "unanswered", "late"])
def test_an_answer_that_gets_lost(judge: Judge, line: LossyLine, loss: Loss) -> None:
    """The work is in the lake once, its files are kept, and its own result is returned."""
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.create_table("main.t", TYPES)
    judge.insert_values("main.t", (1,), (2,), (3,), (4,))
    judge.delete("main.t", "id = 1", lambda row: row["id"] == 1)
    target = judge.model.head
    judge.delete("main.t", "id = 2", lambda row: row["id"] == 2)
    losing = _Losing(judge, line, loss)
    with losing:
        # Its files would be removed if its own commit were taken for that of an earlier try.
        restored = judge.restore(target, "main.t")
    assert (restored.tables[0].rows, restored.tables[0].snapshot_id) == (1, judge.model.head)
    with losing:
        appended = judge.ingest("main.t", TYPES, [[("5", 5)], [("6", 6)]])
    assert (appended.rows, appended.snapshot_id) == (2, judge.model.head)
    judge.insert_values("main.t", (7,))
    with losing:
        merged = judge.upkeep("merge_adjacent_files", commit=CommitInfo(key="run-1"))
    assert (merged.tables[0].files_in, merged.tables[0].snapshot_id) == (2, judge.model.head)
    with losing:
        rewritten = judge.upkeep("rewrite_data_files", delete_threshold=0)
    assert (rewritten.tables[0].rows, rewritten.tables[0].snapshot_id) == (3, judge.model.head)
    judge.client.set_option("data_inlining_row_limit", 5)
    judge.insert_values("main.t", (8,), (9,))
    with losing:
        flushed = judge.upkeep("flush_inlined_data")
    assert (flushed.tables[0].rows, flushed.tables[0].snapshot_id) == (2, judge.model.head)
    judge.check_soundness()
