"""Reports say what became of a lake, in words that are true."""

from __future__ import annotations

from airflow_provider_ducklake.lake.results import OperationResult, Skipped, TableResult
from airflow_provider_ducklake.spark.report import render


def _shown(operation: str, table: TableResult, *messages: str) -> list[str]:
    return render(OperationResult(operation, "a lake", tables=(table,), messages=messages)).split(
        "\n"
    )[2:-1]


def test_nothing_to_do() -> None:
    """A table nothing became of has no before and after."""
    assert _shown("flush_inlined_data", TableResult("main.t", 3, 3)) == [
        "  main.t: nothing to do, 3 files"
    ]
    skipped = (Skipped("registered already", 2),)
    assert _shown("add_data_files", TableResult("main.t", 3, 3, skipped=skipped)) == [
        "  main.t: nothing to do, 3 files",
        "    2 left alone: registered already",
    ]


def test_something_done() -> None:
    done = TableResult("main.t", 3, 4, files_out=1, bytes_out=1_500, rows=7)
    assert _shown("flush_inlined_data", done) == [
        "  main.t: files 3 -> 4, 0 in, 1 out, 0 B -> 1.5 kB, 7 rows"
    ]
    deletes_only = TableResult("main.t", 3, 3, rows=7)
    assert _shown("flush_inlined_data", deletes_only) == ["  main.t: files 3 -> 3, 7 rows"]


def test_a_new_table_is_told_of_once() -> None:
    made = TableResult("main.t", snapshot_id=1)
    assert _shown("create_table", made, "created main.t (id BIGINT)") == [
        "  created main.t (id BIGINT)"
    ]
