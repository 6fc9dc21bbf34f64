"""fsck: NaN that the statistics of a file and its table deny, which hides rows from filters."""

from __future__ import annotations

import json
import re
from math import nan

from airflow_provider_ducklake.spark.operations import run_operation
from airflow_provider_ducklake.spark.runner import LocalRunner
from tests.interop.foreign_files import write_file
from tests.interop.judge import Judge
from tests.interop.palette import pair
from tests.interop.test_fsck import look, require_clean
from tests.support.lakes import CatalogRows, on_two_kinds

_NAN = ("'nan'::DOUBLE", nan)
_ABOVE = "SELECT count(*) FROM main.t WHERE d > 5"
_BELOW_A_STRUCT = "SELECT count(*) FROM main.t WHERE s.f > 5"
_IN_A_LIST = "SELECT count(*) FROM main.t WHERE l[1] > 5"
_BELOW_A_LIST = "SELECT count(*) FROM main.t WHERE ls[1].f > 5"
_FILTERS = (_ABOVE, _BELOW_A_STRUCT, _IN_A_LIST, _BELOW_A_LIST)

# Columns of lists and a map, each with one floating-point leaf, and values with and without NaN.
_WITHIN = {"l": "DOUBLE[]", "ls": "STRUCT(f DOUBLE)[]", "m": "MAP(VARCHAR, DOUBLE[])"}
_ROW = [
    ("[1.0, NULL]", [1.0, None]),
    ("[{'f': 1.0}, NULL]", [{"f": 1.0}, None]),
    ("MAP {'a': [1.0]}", {"a": [1.0]}),
]
_NANS = [
    ("['nan'::DOUBLE]", [nan]),
    ("[{'f': 'nan'::DOUBLE}]", [{"f": nan}]),
    ("MAP {'a': NULL, 'b': ['nan'::DOUBLE]}", {"a": None, "b": [nan]}),
]


def _fill(judge: Judge) -> None:
    """Write files with and without NaN, one of them registered; the table's columns move."""
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.create_table(
        "main.t", {"id": "INTEGER", "x": "DOUBLE", "s": "STRUCT(f FLOAT)", **_WITHIN}
    )
    struct = ("{'f': 'nan'::FLOAT}", {"f": nan})
    plain = ("{'f': 1.0}", {"f": 1.0})
    judge.insert("main.t", [[pair(1), _NAN, plain, *_ROW], [pair(2), pair(1.5), struct, *_NANS]])
    judge.insert("main.t", [[pair(3), pair(2.5), plain, *_ROW]])
    judge.alter("main.t", "RENAME COLUMN x TO d", lambda t: t.rename_column("x", "d"))
    judge.create_table("main.m", {"d": "DOUBLE"})
    source = write_file(judge, "nan.parquet", {"d": "DOUBLE"}, [(nan,), (1.0,)])
    judge.add_files("main.m", [source], [(nan,), (1.0,)])


@on_two_kinds
def test_nan_that_is_denied(judge: Judge) -> None:
    _fill(judge)
    require_clean(judge)
    assert _answers(judge) == [1, 1, 1, 1]
    said = judge.catalog()
    for table in ("ducklake_file_column_stats", "ducklake_table_column_stats"):
        judge.change_catalog(
            f"UPDATE {table} SET contains_nan = false WHERE contains_nan IS NOT NULL "
            "OR (column_id = 1 AND table_id IN (SELECT table_id FROM ducklake_table "
            "WHERE table_name = 'm'))"
        )
    judge.client.forget()
    assert _answers(judge) == [0, 0, 0, 0], "the alarm is a true one"
    judge.client.release()
    assert not look(judge).findings, "no footer tells, and no catalog"
    planned = look(judge, deep=True, max_examples=1)
    [report] = planned.findings
    assert (report.damage, report.count, report.repairable) == ("file_nan", 6, 6)
    assert "has NaN, the catalog says none" in report.example
    assert planned.is_failed
    assert _columns_told(judge) == {"d", "s.f", "l.element", "ls.element.f", "m.value.element"}
    repaired = look(judge, deep=True, repair=True, max_examples=1)
    assert [(r.damage, r.repaired) for r in repaired.findings] == [("file_nan", 6)]
    assert not repaired.is_failed
    require_clean(judge)
    assert _told(judge.catalog()) == {**_told(said), "m": {True}}, "its footer left that open"
    assert _answers(judge) == [1, 1, 1, 1]
    judge.check()


def _columns_told(judge: Judge) -> set[str]:
    lines: list[str] = []
    run_operation(
        "fsck",
        judge.operations.open(),
        {"deep": "true"},
        runner=LocalRunner(),
        report=lines.append,
    )
    messages = (json.loads(line)["message"] for line in lines)
    return {name for message in messages for name in re.findall(r"column (\S+) has NaN", message)}


def _answers(judge: Judge) -> list[int]:
    return [judge.client.sql(query)[0][0] for query in _FILTERS]


def _told(catalog: CatalogRows) -> dict[str, set[object]]:
    """Return, by table, what the files say of NaN; of `t` for each file and column."""
    names = {row["table_id"]: row["table_name"] for row in catalog["ducklake_table"]}
    told: dict[str, set[object]] = {}
    for row in catalog["ducklake_file_column_stats"]:
        table, has_nan = names[row["table_id"]], row["contains_nan"]
        key = (row["data_file_id"], row["column_id"], has_nan)
        told.setdefault(table, set()).add(has_nan if table == "m" else key)
    return told
