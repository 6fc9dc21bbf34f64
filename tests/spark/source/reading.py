"""The data source used as Spark uses it, without Spark: every object goes by pickle."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from airflow_provider_ducklake.spark.source.data_source import DuckLakeDataSource
from airflow_provider_ducklake.spark.source.reader import ReadPartition
from tests.support.lakes import LakeUnderTest
from tests.support.reference import Row, normalise_row


@dataclass(frozen=True, slots=True)
class Found:
    """What a read gave.

    Attributes:
        files: How many data files each task opens.
    """

    schema: StructType
    files: list[int]
    rows: list[dict[str, Any]]

    def counter(self, *first: str) -> Counter[Row]:
        """Return the rows as a multiset, some columns before the others."""
        return Counter(
            normalise_row(
                [*(row[n] for n in first), *(v for n, v in row.items() if n not in first)]
            )
            for row in self.rows
        )


def options_of(lake: LakeUnderTest, table: str, **options: object) -> dict[str, str]:
    """Return the options that name a table of a lake, and some more."""
    place = {"attach": lake.attach_string, "table": table}
    if lake.location.metadata_schema is not None:
        place["metadata_schema"] = lake.location.metadata_schema
    return place | {name: str(value) for name, value in options.items()}


def read(
    lake: LakeUnderTest, table: str, schema: StructType | None = None, **options: object
) -> Found:
    """Read a table through the data source; with a schema, only what that names."""
    source = DuckLakeDataSource(options_of(lake, table, **options))
    offered = schema or source.schema()
    reader = pickle.loads(pickle.dumps(source)).reader(offered)
    partitions = reader.partitions()
    there = pickle.loads(pickle.dumps(reader))
    rows = []
    for partition in pickle.loads(pickle.dumps(partitions)):
        for batch in there.read(partition):
            rows += batch.to_pylist()
    shares = [p.task.files for p in partitions if isinstance(p, ReadPartition)]
    return Found(offered, [len(share) for share in shares], rows)


def write(
    lake: LakeUnderTest,
    table: str,
    tasks: Sequence[Any],
    schema: StructType,
    *,
    replaces: bool = False,
    batch_id: int | None = None,
    **options: object,
) -> None:
    """Write Arrow batches, one list a task, and commit them."""
    source = DuckLakeDataSource(options_of(lake, table, **options))
    make = source.writer if batch_id is None else source.streamWriter
    writer: Any = make(schema, replaces)
    there = pickle.loads(pickle.dumps(writer))
    messages: list[WriterCommitMessage] = [there.write(iter(task)) for task in tasks]
    arguments = () if batch_id is None else (batch_id,)
    pickle.loads(pickle.dumps(writer)).commit(pickle.loads(pickle.dumps(messages)), *arguments)
