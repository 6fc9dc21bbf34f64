"""Every operation on a lake whose files are in a bucket, judged by the stock client after each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.spark.cli import main
from airflow_provider_ducklake.spark.operations import run_operation
from airflow_provider_ducklake.spark.runner import LocalRunner, Runner, SparkRunner
from airflow_provider_ducklake.storage import open_store
from tests.interop.aftermath import life_goes_on
from tests.interop.catalog import referenced_files
from tests.interop.judge import Judge
from tests.interop.palette import arrow_table, pairs
from tests.support.faulty_s3 import FaultyS3
from tests.support.lakes import LakeFactory, LakeKind, catalog_fingerprint, catalog_rows
from tests.support.model import ModelTable
from tests.support.s3 import S3Server, options_for
from tests.support.s3_lake import S3Lake, S3Operations, bucket_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.interop
TYPES = {"id": "BIGINT", "name": "VARCHAR"}
AT_ONCE: dict[str, Any] = {"cleanup_all": True, "force": True}
LakeMaker = Callable[..., S3Lake]


@pytest.fixture
def lakes(request: pytest.FixtureRequest, scratch_directory: Path) -> Iterator[LakeMaker]:
    """Makes lakes that do not exist yet: the catalog here, the files in a bucket."""
    made: list[tuple[LakeFactory, S3Lake]] = []

    def make(kind: LakeKind, server: S3Server, **options: str) -> S3Lake:
        conninfo = request.getfixturevalue("shared_store") if kind == "store" else None
        factory = LakeFactory(kind, scratch_directory, conninfo)
        lake = S3Lake.of(factory.create(), server, options_for(server, **options))
        made.append((factory, lake))
        return lake

    yield make
    for factory, lake in made:
        factory.remove(lake)


class Work:
    """Our operations on one lake, and the judge of what they leave."""

    def __init__(self, lake: S3Lake, spark: SparkSession | None = None) -> None:
        self.lake = lake
        self._spark = spark
        self._runner: Runner = SparkRunner(spark.sparkContext) if spark else LocalRunner()
        self.operations = S3Operations(lake, lambda: None)
        self.operations.run("create_lake", runner=self._runner)
        self.judge = Judge(lake)
        self.judge.operations = self.operations
        self.judge.client.set_option("data_inlining_row_limit", 10)

    def create_table(self, name: str, **options: Any) -> None:
        """Create a table with the columns of `TYPES`."""
        self.operations.run("create_table", name, columns="id int64, name varchar", **options)
        self.judge.accept({name: ModelTable(tuple(TYPES))})

    def ingest(self, table: str, rows: Sequence[tuple[Any, ...]], mode: str = "append") -> None:
        """Append rows to a table, or replace its rows, as a DataFrame where there is Spark."""
        if self._spark is None:
            assert mode == "append"
            self.judge.ingest(table, TYPES, pairs(rows))
            return
        frame = self._spark.createDataFrame(rows, "id BIGINT, name STRING").repartition(2)
        result = run_operation(
            "ingest",
            self.operations.open(),
            {"mode": mode},
            runner=self._runner,
            tables=[table],
            data=lambda _: frame,
        )
        assert not result.is_failed, result
        changed = self.judge.with_new_rows(table, rows)
        if mode == "overwrite":
            new = {row_id: row for row_id, row in changed.rows.items() if row_id < 0}
            changed = replace(changed, rows=new)
        self.judge.accept({table: changed})
        self.judge.check(table)

    def add_files(self, count: int) -> None:
        """Let other software write files into the bucket, and register them by a pattern."""
        folder = f"{self.lake.server.url}/incoming/2024 ü%/k=1"
        with bucket_session(self.lake.server) as session:
            for n in range(count):
                session.execute(
                    f"COPY (SELECT {n}::BIGINT AS id, 'n' AS name) TO '{folder}/in+{n}.parquet'"
                )
        source, rows = f"{folder.replace('ü%', '*')}/in*.parquet", [(n, "n") for n in range(count)]
        self.judge.add_files("main.t", [source], rows, runner=self._runner, hive_partitioning=False)

    def upkeep(self, name: str, *tables: str, **options: Any) -> OperationResult:
        """Run an operation that no snapshot may show anything of."""
        result = self.judge.upkeep(name, *tables, runner=self._runner, **options)
        if not any(table.is_changed for table in result.tables):
            self.judge.check()
        return result

    def delete_rows(self) -> None:
        """Let the stock client leave delete files, and deletes and rows in the catalog."""
        self.judge.insert_values("main.t", *awkward(200, 220))
        self.judge.insert_values("main.t", (300, "inlined"))
        self.judge.delete("main.t", "id % 3 = 0", lambda row: row["id"] % 3 == 0)
        self.judge.delete("main.p", "id < 30", lambda row: row["id"] < 30)

    def expire(self) -> None:
        """Keep the newest snapshot alone."""
        self.judge.expire(self.judge.model.kept[:-1], retain_last=1, runner=self._runner)

    def leave_orphans(self) -> None:
        """Leave two objects that nobody refers to."""
        store = open_store(self.lake.data_path, self.lake.options)
        store.write(f"{self.lake.data_path}main/p/name=a b/lost.parquet", b"PAR1")
        store.write(f"{self.lake.data_path}main/t/50%+ü.puffin", b"x")

    def checkpoint(self) -> None:
        """Do all upkeep in one operation."""
        self.judge.checkpoint(retain_last=2, runner=self._runner)


def awkward(first: int, last: int) -> list[tuple[int, str]]:
    """Return rows whose names are awkward in a path."""
    return [(n, ("a b", "50%", "x+y", "ü=é/~")[n % 4]) for n in range(first, last)]


def all_operations(work: Work) -> None:
    """Take a lake through every operation but overwriting."""
    judge = work.judge
    work.create_table("main.t")
    work.create_table("main.p", partition_by="name")
    work.ingest("main.t", awkward(1000, 1100))
    work.ingest("main.p", awkward(0, 40))
    judge.insert_values("main.p", *awkward(40, 80))
    work.add_files(3)
    work.delete_rows()
    assert work.upkeep("info").counts["tables"] == 2
    assert not work.upkeep("fsck", deep=True).findings
    assert sum(table.rows for table in work.upkeep("flush_inlined_data").tables) > 0
    rewritten = work.upkeep("rewrite_data_files", delete_threshold=0)
    assert sum(table.files_after for table in rewritten.tables) >= 2
    merged = work.upkeep("merge_adjacent_files")
    assert sum(table.files_before for table in merged.tables) > 4
    work.expire()
    cleaned = work.upkeep("cleanup_old_files", **AT_ONCE)
    assert cleaned.counts["files_deleted"] > 6
    assert cleaned.counts["files_forgotten"] == 3
    work.leave_orphans()
    assert work.upkeep("delete_orphaned_files", **AT_ONCE).counts["files_deleted"] == 2
    stored = {work.lake.data_path + name for name in work.lake.stored_files()}
    assert stored == referenced_files(work.lake)
    judge.insert_values("main.t", *awkward(400, 430))
    judge.delete("main.t", "id = 401", lambda row: row["id"] == 401)
    work.checkpoint()
    assert not work.upkeep("fsck", deep=True).findings


@pytest.mark.spark
def test_every_operation_in_spark(
    lakes: LakeMaker, s3_server: S3Server, spark: SparkSession
) -> None:
    work = Work(lakes("sqlite", s3_server), spark)
    all_operations(work)
    work.ingest("main.t", awkward(5000, 5010), mode="overwrite")
    work.judge.close()


def test_every_operation_on_a_catalog_of_the_store(lakes: LakeMaker, s3_server: S3Server) -> None:
    work = Work(lakes("store", s3_server))
    all_operations(work)
    life_goes_on(work.judge, "main.t")
    work.judge.close()


def test_every_operation_gets_through_a_throttled_store(
    lakes: LakeMaker, faulty_s3: FaultyS3
) -> None:
    """The first requests of each kind are turned away; only we are, the stock client is not."""
    lake = lakes("sqlite", faulty_s3.server)
    work = Work(replace(lake, options=faulty_s3.options(max_retries="5")))
    turned_away = faulty_s3.throttle(times=3)
    all_operations(work)
    large = os.urandom(9 << 19).hex()  # more than fits in one part, and nothing to compress
    work.ingest("main.t", [(6000, large)])
    work.judge.close()
    kinds = ("put", "get", "head", "list", "delete many", "begin parts", "put part")
    assert turned_away == dict.fromkeys((*kinds, "complete parts"), 3)


@pytest.fixture
def ready(lakes: LakeMaker, faulty_s3: FaultyS3) -> Work:
    """A lake with work for every operation, behind a proxy that can be told to throttle."""
    lake = lakes("sqlite", faulty_s3.server)
    work = Work(replace(lake, options=faulty_s3.options()))
    with work.judge.without_checks():
        work.create_table("main.t")
        work.create_table("main.p", partition_by="name")
        work.judge.insert_values("main.t", *awkward(0, 30))
        work.judge.insert_values("main.t", *awkward(30, 60))
        work.upkeep("merge_adjacent_files")
        work.judge.insert_values("main.t", *awkward(60, 80))
        work.judge.insert_values("main.p", *awkward(0, 40))
        work.delete_rows()
        work.judge.insert_values("main.t", *awkward(400, 420))
        work.judge.insert_values("main.t", *awkward(420, 440))
        work.leave_orphans()
    return work


def test_a_store_that_stays_throttled_changes_nothing(ready: Work, faulty_s3: FaultyS3) -> None:
    """Each operation, with each kind of request it needs turned away for good."""
    source = f"{faulty_s3.server.url}/incoming/*.parquet"
    before = catalog_fingerprint(ready.lake), ready.lake.stored_files()
    for kinds, name, tables, options in (
        (("list",), "add_data_files", ("main.t",), {"sources": [source]}),
        (("get",), "merge_adjacent_files", (), {}),
        (("put",), "merge_adjacent_files", (), {}),
        (("put",), "rewrite_data_files", (), {"delete_threshold": 0}),
        (("put",), "flush_inlined_data", (), {}),
        (("head",), "cleanup_old_files", (), AT_ONCE),
        (("delete many", "delete"), "cleanup_old_files", (), AT_ONCE),
        (("list",), "delete_orphaned_files", (), AT_ONCE),
        (("delete many", "delete"), "delete_orphaned_files", (), AT_ONCE),
        (("list",), "fsck", (), {"repair": True}),
        (("get",), "fsck", (), {"deep": True, "repair": True}),
        ((), "checkpoint", (), {}),
    ):
        faulty_s3.throttle(*kinds)
        try:
            result = ready.operations.run(name, *tables, may_fail=True, **options)
        except StorageError as error:
            told = [str(error)]
        else:
            told = [table.error for table in result.failed_tables if table.error]
            told += [failure.message for failure in result.failures]
            assert result.is_failed, (kinds, name)
        assert told
        for line in told:
            assert "\n" not in line
            assert f"{faulty_s3.server.url}/" in line, (kinds, name, line)
            assert "the store asks for fewer requests" in line, (kinds, name, line)
        faulty_s3.rules.clear()
        assert (catalog_fingerprint(ready.lake), ready.lake.stored_files()) == before, (kinds, name)
    ready.judge.check()
    faulty_s3.throttle("put")
    with pytest.raises(StorageError, match="fewer requests"):
        ready.operations.ingest("main.t", arrow_table(TYPES, pairs([(1, "x")])).to_batches())
    assert catalog_fingerprint(ready.lake) == before[0]
    ready.judge.close()


def test_some_objects_that_stay_are_told_beside_what_was_done(
    ready: Work, faulty_s3: FaultyS3
) -> None:
    """S3 refuses single keys in its answer to a bulk deletion: they stay scheduled."""
    judge = ready.judge
    for n in range(60):
        judge.client.sql(f"INSERT INTO t SELECT i, 'x' FROM range({n}, {n + 20}) r(i)")
    ready.operations.run("merge_adjacent_files", "main.t")
    ready.operations.run("expire_snapshots", retain_last=1)
    scheduled = catalog_rows(ready.lake)["ducklake_files_scheduled_for_deletion"]
    kept = [row["path"] for row in scheduled[:2]]
    assert len(scheduled) > 60
    directory = ready.lake.data_path.removeprefix(f"{ready.lake.server.url}/")
    faulty_s3.kept.update(directory + path for path in kept)
    for path in kept:
        faulty_s3.refuse("DELETE", path, 403, "AccessDenied")
    faulty_s3.requests.clear()
    result = ready.operations.run("cleanup_old_files", may_fail=True, **AT_ONCE)
    assert result.counts["files_deleted"] == len(scheduled) - 2
    assert result.counts["files_failed"] == 2
    assert "access denied" in result.failures[0].message
    left = catalog_rows(ready.lake)["ducklake_files_scheduled_for_deletion"]
    assert sorted(row["path"] for row in left) == sorted(kept)
    assert faulty_s3.asked()["delete"] < len(scheduled)
    faulty_s3.rules.clear()
    faulty_s3.kept.clear()
    assert ready.operations.run("cleanup_old_files", **AT_ONCE).counts["files_deleted"] == 2
    judge.close()


def test_a_throttled_command_ends_with_one_line(
    lakes: LakeMaker,
    faulty_s3: FaultyS3,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake = lakes("sqlite", faulty_s3.server)
    for name, value in faulty_s3.options(max_retries="1").to_environment().items():
        monkeypatch.setenv(name, value)
    faulty_s3.throttle()
    command = ["create_lake", "--attach", lake.attach_string, "--data-path", lake.data_path]
    assert main(command) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ducklake: ERROR StoreUnreachable: cannot write {lake.data_path}")
    assert "run the job again later" in line
    assert not Path(lake.location.target).exists()
