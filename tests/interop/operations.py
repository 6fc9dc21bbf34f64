"""Our operations, called in this process without the cost of starting Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.results import OperationResult, TableResult
from airflow_provider_ducklake.spark.operations import ingest_batches, run_operation
from airflow_provider_ducklake.spark.runner import LocalRunner, Runner
from tests.support.lakes import LakeUnderTest

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of this package on one lake, opened anew for each call as a job does.

    Attributes:
        lake: The lake.
        make_way: Called before each; lets go of a catalog that only one client can have open.
    """

    lake: LakeUnderTest
    make_way: Callable[[], None]

    def open(self) -> Lake:
        """Return the lake as this package sees it."""
        return Lake.open(self.lake.location)

    def run(
        self,
        name: str,
        *tables: str,
        sources: Sequence[str] = (),
        dry_run: bool = False,
        commit: CommitInfo | None = None,
        runner: Runner | None = None,
        may_fail: bool = False,
        **options: object,
    ) -> OperationResult:
        """Run an operation as the command line would.

        Args:
            name: The operation.
            *tables: `schema.table` names; none means all.
            sources: Files to bring in.
            dry_run: Only plan.
            commit: Author, message and key.
            runner: Where the work on files is done; by default here, one after the other.
            may_fail: Return a result that tells of failures too.
            **options: The operation's options; values become text.

        Raises:
            AssertionError: A table or a part failed.
        """
        self.make_way()
        result = run_operation(
            name,
            self.open(),
            {option: _text(value) for option, value in options.items()},
            runner=runner or LocalRunner(),
            tables=tables,
            sources=sources,
            dry_run=dry_run,
            commit=commit,
        )
        failed = [(table.table, table.error) for table in result.failed_tables]
        assert may_fail or not result.is_failed, f"{name} failed: {failed} {result.failures}"
        return result

    def ingest(
        self, table: str, batches: Iterable[pa.RecordBatch], mode: str = "append"
    ) -> TableResult:
        """Append Arrow batches to a table, or replace its rows by them."""
        self.make_way()
        return ingest_batches(self.open(), table, batches, mode=mode)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
