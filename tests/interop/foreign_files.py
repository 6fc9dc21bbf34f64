"""Files somebody else wrote, and how a test sees them refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.errors import BadInput
from tests.interop.judge import Judge
from tests.interop.palette import pairs, write_parquet

ADD = "add_data_files"


def write_file(
    judge: Judge, name: str, types: dict[str, str], rows: Sequence[Sequence[Any]]
) -> str:
    path = judge.lake.directory / "raw" / name
    write_parquet(path, types, pairs(rows))
    return str(path)


def write_arrow(judge: Judge, name: str, table: pa.Table, **options: Any) -> str:
    path = judge.lake.directory / "raw" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return str(path)


def require_refusal(judge: Judge, sources: Sequence[str], *words: str, **options: Any) -> None:
    """Expect the files to be refused with these words, and nothing to be changed."""
    before = judge.fingerprint()
    with pytest.raises(BadInput) as refusal:
        judge.operations.run(ADD, "main.t", sources=sources, **options)
    for word in words:
        assert word in str(refusal.value)
    assert judge.fingerprint() == before
