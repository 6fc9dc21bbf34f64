"""What the driver and each task of a read do, in the form Spark asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from airflow_provider_ducklake.kernels.change_feed import scan_changes
from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.scan import scan
from airflow_provider_ducklake.kernels.tasks import ChangesTask, ScanTask
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.spark.source.options import ReadOptions
from airflow_provider_ducklake.spark.source.planning import Span, plan, resolve
from airflow_provider_ducklake.spark.source.schema import fitted

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


class ReadPartition(InputPartition):
    """The share of one Spark task."""

    def __init__(self, task: ScanTask | ChangesTask, settings: KernelSettings) -> None:
        super().__init__(None)
        self.task = task
        self.settings = settings


class DuckLakeReader(DataSourceReader):
    """Reads a table at one snapshot, or what changed between two."""

    def __init__(
        self,
        options: ReadOptions,
        lake: Lake,
        span: Span | None,
        schema: StructType,
        memory_limit: str,
    ) -> None:
        """Take what was asked for; nothing is opened.

        Args:
            options: What was asked for.
            lake: The lake, for the driver alone.
            span: The snapshots, where they were fixed when the schema was asked for.
            schema: What Spark expects.
            memory_limit: DuckDB memory of one task.
        """
        self._options = options
        self._lake: Lake | None = lake
        self._span = span
        self._schema = schema
        self._memory_limit = memory_limit
        self._pushed: list[Filter] = []

    def partitions(self) -> Sequence[InputPartition]:
        """Return the shares of the tasks: as many as the bytes of the files ask for."""
        lake = self._lake
        assert lake is not None, "a read is planned in the driver"
        settings = KernelSettings(lake.storage, self._memory_limit)
        with lake.view() as view:
            span = self._span or resolve(view, self._options)
            tasks = plan(view, self._options, span, self._schema, self._pushed)
        return [ReadPartition(task, settings) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one share."""
        from pyspark.sql.pandas.types import to_arrow_schema

        if not isinstance(partition, ReadPartition):
            return  # Spark's own, where there is nothing to read
        schema = to_arrow_schema(self._schema, timezone="UTC")
        task, settings = partition.task, partition.settings
        if isinstance(task, ChangesTask):
            rows = scan_changes(task, settings)
        else:
            rows = scan(task, settings)
        for batch in rows:
            yield fitted(batch, schema)

    def __getstate__(self) -> dict[str, object]:
        """Leave the lake, with its password, behind: tasks need no catalog."""
        return self.__dict__ | {"_lake": None}


class PushdownReader(DuckLakeReader):
    """A reader that takes the filters of Spark's plan too."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters for planning; Spark evaluates every one of them again all the same."""
        self._pushed = list(filters)
        return filters
