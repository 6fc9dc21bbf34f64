"""ingest with mode=merge on Spark: the source matched and written by tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.spark.operations import run_operation
from airflow_provider_ducklake.spark.runner import SparkRunner
from tests.support.lakes import LakeUnderTest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class _Interrupted(SparkRunner):
    """Lets somebody act after the first work was done, once."""

    def __init__(self, runner: SparkRunner, act: Callable[[], object]) -> None:
        super().__init__(runner._context)
        self._act: Callable[[], object] | None = act

    def run(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], description: str = ""
    ) -> list[Any]:
        """See `Runner.run`."""
        found = super().run(function, tasks, description)
        if self._act is not None:
            act, self._act = self._act, None
            act()
        return found


def test_changes_are_applied(
    spark: SparkSession, runner: SparkRunner, sqlite_lake: tuple[Lake, LakeUnderTest]
) -> None:
    """Into a partitioned table, by two keys; somebody inserts a key of the source meanwhile."""
    lake, judge = sqlite_lake
    client = judge.client()
    client.sql("CREATE TABLE t (id BIGINT, day DATE, u UUID)")
    client.sql("ALTER TABLE t SET PARTITIONED BY (day)")
    client.sql("CALL lake.set_option('data_inlining_row_limit', 0)")
    for day in ("2024-01-01", "2024-01-02"):
        client.sql(f"INSERT INTO t SELECT i, '{day}', uuid() FROM range(50) r(i)")
    before = client.sql("SELECT rowid, id, day FROM t")
    one = "00000000-0000-0000-0000-000000000001"
    changes = spark.sql(
        "SELECT CAST(id % 60 AS INT) id, DATE '2024-01-02' day, "
        f"'{one}' U, IF(id = 3, 'D', 'U') op FROM range(0, 60, 1, 4)"
    )

    def run(key: str, runner: SparkRunner, **options: str) -> Any:
        return run_operation(
            "ingest",
            lake,
            {"mode": "merge", **options},
            runner=runner,
            tables=["t"],
            data=lambda _: changes,
            commit=CommitInfo(key=key),
        )

    options = {"merge_keys": "id, day", "delete_when": "op = 'D'"}
    interrupted = _Interrupted(
        runner, lambda: client.sql("INSERT INTO t VALUES (55, '2024-01-02', NULL)")
    )
    result = run("a", interrupted, **options)
    (table,) = result.tables
    assert (table.rows, table.updated_rows, table.deleted_rows) == (59, 50, 1)
    assert run("a", runner, **options).tables[0].snapshot_id == table.snapshot_id
    found = client.sql(f"SELECT id FROM t WHERE u = '{one}' AND day = '2024-01-02' ORDER BY 1")
    assert found == [(i,) for i in range(60) if i != 3]
    after = client.sql("SELECT rowid, id, day FROM t")
    assert {row for row in before if row[1] != 3} < set(after)
    assert len(after) == 50 + 59
    stored = [path for path in judge.stored_files() if not path.endswith("-delete.parquet")]
    counted = client.sql("SELECT count(*) FROM __ducklake_metadata_lake.main.ducklake_data_file")
    assert counted == [(len(stored),)]
    with pytest.raises(ConfigurationError, match="merge_keys of ingest is for mode=merge"):
        run("b", runner, mode="append", merge_keys="id")
    client.close()
