"""Writes: what the tasks wrote is live after the commit, once, and nothing is before it."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from airflow_provider_ducklake.lake.errors import (
    BadInput,
    CommitConflict,
    ConfigurationError,
    NotFound,
)
from airflow_provider_ducklake.spark.source.data_source import DuckLakeDataSource
from tests.interop.judge import Judge
from tests.spark.source.reading import options_of, read, write
from tests.support.lakes import LakeUnderTest

ROW = StructType([StructField("id", LongType()), StructField("v", StringType())])


def batch(*ids: int) -> pa.RecordBatch:
    """Return rows with some ids."""
    return pa.RecordBatch.from_pydict(
        {"id": pa.array(ids, pa.int64()), "v": [f"v{i}" for i in ids]}
    )


def writer_of(lake: LakeUnderTest, *, batch_id: bool = False, **options: object) -> Any:
    """Return a writer of rows to the table t, as Spark makes one."""
    source = DuckLakeDataSource(options_of(lake, "t", **options))
    return source.streamWriter(ROW, False) if batch_id else source.writer(ROW, False)


def test_append_and_overwrite(judge: Judge) -> None:
    """Files of every task become live in one snapshot, under the table's partitions and order."""
    judge.create_table("main.t", {"id": "BIGINT", "v": "VARCHAR"})
    judge.alter("main.t", "SET PARTITIONED BY (bucket(2, id))")
    judge.client.make_way()
    tasks = [[batch(1, 2), batch(3)], [], [batch(*range(10, 30))]]
    write(judge.lake, "t", tasks, ROW, author="me", message="hello")
    rows = [(i, f"v{i}") for i in (1, 2, 3, *range(10, 30))]
    judge.accept({"main.t": judge.with_new_rows("main.t", rows)})
    snapshot = judge.client.snapshots()[-1]
    assert (snapshot.author, snapshot.message) == ("me", "hello")
    judge.client.make_way()
    write(judge.lake, "t", [[batch(7)], [batch(8)]], ROW, replaces=True)
    emptied = judge.table("main.t").delete(lambda _: True)
    judge.accept({"main.t": emptied.insert({-100: (7, "v7"), -101: (8, "v8")})})
    judge.check()
    judge.check_catalog()
    assert read(judge.lake, "t", columns="id", filter="id > 7").rows == [{"id": 8}]


def test_options_of_ingest(sqlite_judge: Judge) -> None:
    """Tables are created, columns added, defaults filled in and partitions replaced as asked."""
    judge = sqlite_judge
    with pytest.raises(NotFound, match="unknown table"):
        write(judge.lake, "t", [], ROW)
    write(judge.lake, "t", [[batch(1, 2)]], ROW, create_table="true", partition_by="id")
    judge.client.sql("ALTER TABLE t ADD COLUMN n INTEGER DEFAULT 9")
    with pytest.raises(BadInput, match="lacks columns of main\\.t: 'n'"):
        writer_of(judge.lake)
    write(judge.lake, "t", [[batch(3)]], ROW, allow_missing="true")
    wider = StructType([*ROW.fields, StructField("N", LongType()), StructField("w", StringType())])
    with pytest.raises(BadInput):
        write(judge.lake, "t", [], wider, schema_evolution="add_columns")
    judge.client.sql("ALTER TABLE t ALTER COLUMN n TYPE BIGINT")
    row = pa.RecordBatch.from_pydict({"id": [4], "v": ["v4"], "N": [5], "w": ["x"]})
    write(judge.lake, "t", [[row]], wider, schema_evolution="add_columns")
    rows = [(1, "v1", 9, None), (2, "v2", 9, None), (3, "v3", 9, None), (4, "v4", 5, "x")]
    assert judge.client.sql("FROM t ORDER BY id") == rows
    again = pa.RecordBatch.from_pydict({"id": [4], "v": ["new"], "N": [0], "w": [""]})
    write(judge.lake, "t", [[again]], wider, replaces=True, overwrite="partitions")
    assert judge.client.sql("FROM t ORDER BY id") == [*rows[:3], (4, "new", 0, "")]
    judge.check_catalog()


def test_once_under_a_key(judge: Judge) -> None:
    """A write that comes again under its key adds nothing, and what it wrote is removed."""
    judge.create_table("main.t", {"id": "BIGINT", "v": "VARCHAR"})
    judge.client.make_way()
    write(judge.lake, "t", [[batch(1)]], ROW, commit_key="run-1")
    before = judge.fingerprint(), judge.lake.stored_files()
    write(judge.lake, "t", [[batch(1)]], ROW, commit_key="run-1")
    assert (judge.fingerprint(), judge.lake.stored_files()) == before
    write(judge.lake, "t", [[batch(2)]], ROW, commit_key="run-2")
    assert judge.client.sql("SELECT id FROM t ORDER BY id") == [(1,), (2,)]


def test_batches_of_a_stream(judge: Judge) -> None:
    """A batch is told by its number and the stream's name: again it adds nothing."""
    judge.create_table("main.t", {"id": "BIGINT", "v": "VARCHAR"})
    judge.client.make_way()
    with pytest.raises(ConfigurationError, match="checkpointLocation"):
        writer_of(judge.lake, batch_id=True)
    for number in (0, 1, 1, 0, 2):
        tasks = [[batch(number)], [batch(100 + number)]]
        write(judge.lake, "t", tasks, ROW, batch_id=number, checkpointlocation="/x/cp")
    found = judge.client.sql("SELECT id FROM t ORDER BY id")
    assert found == [(0,), (1,), (2,), (100,), (101,), (102,)]
    judge.client.make_way()
    write(judge.lake, "t", [[batch(7)]], ROW, batch_id=0, commit_key="another stream")
    judge.client.make_way()
    assert not judge.unreferenced_files()
    assert len(judge.client.sql("FROM t")) == 7


def test_altered_meanwhile(sqlite_judge: Judge) -> None:
    """Files written for a table that was altered since are not registered but removed."""
    judge = sqlite_judge
    judge.client.sql("CREATE TABLE t (id BIGINT, v VARCHAR)")
    writer = writer_of(judge.lake)
    message = writer.write(iter([batch(1)]))
    judge.client.sql("ALTER TABLE t ADD COLUMN n INTEGER")
    before = judge.fingerprint()
    with pytest.raises(CommitConflict, match="altered or dropped"):
        writer.commit([message])
    writer.abort([message])
    assert judge.fingerprint() == before
    assert judge.lake.stored_files() == {}


def test_abort(sqlite_judge: Judge) -> None:
    """Where a task failed its fellows' files go; where the commit failed nobody touches them."""
    judge = sqlite_judge
    judge.client.sql("CREATE TABLE t (id BIGINT, v VARCHAR)")
    before = judge.fingerprint()
    writer = writer_of(judge.lake)
    messages = pickle.loads(pickle.dumps([writer.write(iter([batch(i)])) for i in range(2)]))
    writer.abort(messages)  # the commit's outcome may be unknown
    assert len(judge.lake.stored_files()) == 2
    writer.abort([*messages, None])
    assert judge.lake.stored_files() == {}
    assert judge.fingerprint() == before


def test_a_value_that_does_not_fit(sqlite_judge: Judge) -> None:
    """The task fails, naming the column, and leaves no file."""
    judge = sqlite_judge
    judge.client.sql("CREATE TABLE t (id UTINYINT, v VARCHAR NOT NULL)")
    writer = writer_of(judge.lake, target_file_size="1MB")
    with pytest.raises(BadInput, match="id"):
        writer.write(iter([batch(1), batch(256)]))
    empty = pa.RecordBatch.from_pydict({"id": [1], "v": pa.nulls(1, pa.string())})
    with pytest.raises(BadInput, match="NOT NULL"):
        writer.write(iter([empty]))
    assert judge.lake.stored_files() == {}
