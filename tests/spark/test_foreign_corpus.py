"""The files of apache/parquet-testing: registered and right ever after, or refused in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from airflow_provider_ducklake.lake.errors import LakeError
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.spark.runner import LocalRunner, SparkRunner
from tests.interop.operations import Operations
from tests.support.corpus import CORPUS, FILES, needs_corpus
from tests.support.lakes import LakeFactory
from tests.support.reference import ReferenceClient, Rows, normalise_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = needs_corpus

# What another reader fails on or does not know, and DuckDB reads.
CANNOT_READ = {
    # Levels that do not fit the page, a dictionary whose length is wrong.
    ("ARROW-RS-GH-6229-LEVELS.parquet", "pyarrow"),
    ("ARROW-RS-GH-6229-LEVELS.parquet", "spark"),
    ("nation.dict-malformed.parquet", "spark"),
    # An encoding and types that Spark has not.
    ("byte_stream_split.zstd.parquet", "spark"),
    ("float16_nonzeros_and_nans.parquet", "spark"),
    ("floating_orders_nan_count.parquet", "spark"),
    ("crs-projjson.parquet", "spark"),
    ("crs-srid.parquet", "spark"),
    ("geospatial-with-nan.parquet", "spark"),
    ("unknown-logical-type.parquet", "spark"),
}


@dataclass(slots=True)
class Trial:
    """One lake with a table for each file of the corpus.

    Attributes:
        client: An unmodified client of it.
        operations: Ours, with the files looked at in Spark tasks.
        runner: Those tasks.
        registered: Files that were taken, to their table.
        refused: Files that were not, to the message.
        empty: Files without rows, of which nothing becomes part of a table.
    """

    client: ReferenceClient
    operations: Operations
    runner: SparkRunner
    registered: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)

    def register(self, name: str, table: str) -> None:
        """Make a table of a file's columns, as far as a reader knows them, and add the file."""
        source = CORPUS / name
        try:
            self.client.sql(f"CREATE TABLE {table} AS FROM read_parquet('{source}') LIMIT 0")
        except duckdb.Error:
            self.client.forget()
            self.client.sql(f"CREATE TABLE {table} (a INTEGER)")
        # All of these are refused by the footer; a Spark task for each would take a minute.
        runner = LocalRunner() if name.startswith("shredded_variant") else self.runner
        try:
            result = self.operations.run(
                "add_data_files", f"main.{table}", sources=[str(source)], runner=runner
            )
        except LakeError as refusal:
            self.refused[name] = str(refusal)
        else:
            if result.tables[0].files_out:
                self.registered[name] = table
            else:
                self.empty.add(name)

    def upkeep(self, operation: str, **options: Any) -> set[str]:
        """Run an operation of ours over all tables; return those it changed."""
        result = self.operations.run(operation, runner=self.runner, **options)
        return {table.table.removeprefix("main.") for table in result.tables if table.is_changed}

    def rows(self, snapshot: int | None = None) -> dict[str, Rows]:
        """Return (rowid, *values) of every table at a snapshot, or at the newest."""
        at = snapshot if snapshot is not None else self.client.snapshot_ids()[-1]
        return {
            name: self.client.rows_at(table, at, as_text=True)
            for name, table in self.registered.items()
        }


@pytest.fixture(scope="module")
def trial(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """All files of the corpus, offered to one lake."""
    lake = LakeFactory("sqlite", tmp_path_factory.mktemp("corpus")).create()
    client = lake.client()
    client.set_option("data_inlining_row_limit", 0)
    trial = Trial(client, Operations(lake, client.make_way), SparkRunner(spark.sparkContext))
    for number, name in enumerate(FILES):
        trial.register(name, f"f{number}")
    yield trial
    client.close()


@pytest.mark.parametrize("name", FILES)
def test_taken_or_refused_in_one_line(trial: Trial, name: str) -> None:
    """Whoever is refused is told which file it was, and why; nothing breaks on the way."""
    if name in trial.refused:
        message = trial.refused[name]
        assert str(CORPUS / name) in message
        assert "\n" not in message
    else:
        assert (name in trial.registered) != (name in trial.empty)


def test_three_readers_agree(trial: Trial, spark: SparkSession) -> None:
    """The lake shows what DuckDB, pyarrow and Spark read in the file itself."""
    readers: dict[str, Callable[[Path], pa.Table]] = {
        "pyarrow": _read_by_pyarrow,
        "spark": lambda path: spark.read.parquet(str(path)).toArrow(),
    }
    assert trial.registered
    shown = trial.rows()
    failed = set()
    for name, table in trial.registered.items():
        expected = Counter(row[1:] for row in shown[name].elements())
        for reader, read in readers.items():
            try:
                rows = read(CORPUS / name)
            except (OSError, PySparkException, Py4JJavaError):
                failed.add((name.rpartition("/")[2], reader))
                continue
            found = _as_columns_of(trial.client, table, rows)
            assert found == expected, (name, reader, found - expected, expected - found)
    assert failed == CANNOT_READ


def _read_by_pyarrow(path: Path) -> pa.Table:
    table = pq.read_table(path)
    for place, column in enumerate(table.schema):
        if pa.types.is_float16(column.type):  # which DuckDB takes from Parquet, not from Arrow
            table = table.set_column(place, column.name, table[column.name].cast(pa.float32()))
    return table.replace_schema_metadata().cast(
        pa.schema([column.remove_metadata() for column in table.schema])
    )


def _as_columns_of(client: ReferenceClient, table: str, rows: pa.Table) -> Rows:
    parts = ", ".join(
        f"ST_GeomFromWKB({quote_identifier(str(name))})::VARCHAR"
        if str(kind).startswith("GEOMETRY")
        else f"CAST({quote_identifier(str(name))} AS {kind})::VARCHAR"
        for name, kind, *_ in client.sql(f"DESCRIBE {table}")
    )
    read = client.connection.from_arrow(rows)
    found = read.query("read", f"SELECT {parts} FROM read").fetchall()
    return Counter(normalise_row(row) for row in found)


def test_upkeep_changes_no_row(trial: Trial) -> None:
    """Merged with a later file, rewritten after a delete: every snapshot shows what it did."""
    client = trial.client
    kept = {client.snapshot_ids()[-1]: trial.rows()}
    tables = list(trial.registered.values())
    for table in tables:
        client.sql(f"INSERT INTO {table} FROM {table} LIMIT 1")
    kept[client.snapshot_ids()[-1]] = with_copies = trial.rows()
    assert {name: rows.total() for name, rows in with_copies.items()} == {
        name: rows.total() + 1 for name, rows in trial.rows(min(kept)).items()
    }
    merged = trial.upkeep("merge_adjacent_files")
    assert merged == set(tables)
    for table in tables:
        client.sql(f"DELETE FROM {table} WHERE rowid = (SELECT min(rowid) FROM {table})")
    kept[client.snapshot_ids()[-1]] = trial.rows()
    rewritten = trial.upkeep("rewrite_data_files", delete_threshold=0)
    assert rewritten == set(tables)
    kept[client.snapshot_ids()[-1]] = trial.rows()
    client.release()
    assert {number: trial.rows(number) for number in kept} == kept
    found = trial.operations.run("fsck", runner=trial.runner)
    assert found.findings == ()
