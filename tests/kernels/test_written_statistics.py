"""Statistics of files just written: DuckDB's own counts below lists are not to be believed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from airflow_provider_ducklake.kernels.append import append
from airflow_provider_ducklake.kernels.connection import KernelSettings
from airflow_provider_ducklake.kernels.tasks import AppendTask, ParquetOptions
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.storage import StorageOptions


def test_counts_below_lists_are_right_or_unknown(tmp_path: Path) -> None:
    """AD-08: NULL lists, empty lists, NULL structs inside lists."""
    columns = parse_columns("d struct(k varchar, v varchar)[], n uint32, m map(varchar, int32)")
    lists = [None, [], [None], [{"k": "a", "v": None}], [{"k": None, "v": "b"}, None]] * 20
    batch = pa.RecordBatch.from_pydict(
        {
            "d": lists,
            "n": pa.array([100] * len(lists), pa.uint32()),
            "m": pa.array([None, [("x", 1)], [], [("y", None)], None] * 20, _MAP),
        }
    )
    task = AppendTask(columns, f"{tmp_path}/", ParquetOptions())
    (file,) = append([batch], task, KernelSettings(StorageOptions({})))
    by_id = {s.column_id: s for s in file.statistics}
    assert (by_id[5].value_count, by_id[5].null_count) == (100, 0)
    assert (by_id[5].min_value, by_id[5].max_value) == ("100", "100")
    for statistics in file.statistics:
        assert statistics.value_count is None or statistics.value_count >= 0
        assert statistics.null_count is None or statistics.null_count >= 0
    assert (by_id[3].null_count, by_id[4].null_count) == (None, None)


_MAP = pa.map_(pa.string(), pa.int32())
