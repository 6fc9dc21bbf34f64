"""VARIANT columns as Spark has them: read and written as what they are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, StructField, StructType, VariantType

from airflow_provider_ducklake.lake.errors import BadInput
from tests.interop.judge import Judge
from tests.interop.merges import run_merge
from tests.spark.source.reading import read, write
from tests.support.variants import Typed, decode, pairs

ROW = StructType([StructField("id", LongType()), StructField("v", VariantType())])
# Small numbers, texts and objects, a text of the length that DuckDB writes wrong, and NULL.
VALUES: list[Any] = [
    {"A": Typed("int32", 1), "b": ["x" * 65, None, Typed("double", -0.0)]},
    {"a": Typed("uuid", b"0123456789abcdef")},
    "x" * 64,
    Typed("decimal16", (10**37, 3)),
    Typed("timestamp", -1),
    True,
    b"\x00\xff",
    ...,
]


def _rows(values: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(range(len(values)), pa.int64()), pairs(values)], names=["id", "v"]
    )


def _read(judge: Judge, **options: Any) -> dict[int, Any]:
    judge.client.make_way()
    return {
        row["id"]: None if row["v"] is None else decode(**row["v"])
        for row in read(judge.lake, "t", **options).rows
    }


def test_what_is_written_is_read(sqlite_judge: Judge) -> None:
    """Of its own files and of the reference's, merged or not, at every snapshot; -0.0 as well."""
    judge = sqlite_judge
    judge.client.set_option("data_inlining_row_limit", 0)
    expected = {i: None if value is ... else value for i, value in enumerate(VALUES)}
    write(judge.lake, "t", [[_rows(VALUES)]], ROW, create_table="true")
    first = judge.client.snapshot_ids()[-1]
    assert repr(_read(judge)) == repr(expected)
    judge.client.sql("INSERT INTO t VALUES (100, {'h': DATE '1969-12-31'}::VARIANT), (101, NULL)")
    further = {100: {"h": Typed("date", -1)}, 101: None}
    assert repr(_read(judge)) == repr(expected | further)
    assert _read(judge, filter="v IS NULL") == {len(VALUES) - 1: None, 101: None}
    assert len(_read(judge, filter="v IS NOT NULL", columns="v,id")) == len(VALUES)
    judge.operations.run("merge_adjacent_files")
    assert repr(_read(judge)) == repr(expected | further)
    assert repr(_read(judge, snapshot=first)) == repr(expected)
    found = read(judge.lake, "t", changes_from=first)
    assert len(found.rows) == len(VALUES) + 2
    shown = judge.client.sql("SELECT v.A, v.b[3]::VARCHAR, v::VARCHAR FROM t WHERE id = 0")
    assert shown == [(1, "-0.0", "{'A': 1, 'b': [" + "x" * 65 + ", NULL, -0.0]}")]


def test_rows_merged_by_key(sqlite_judge: Judge) -> None:
    """The source of a merge is kept in files meanwhile; its values are the same behind them."""
    judge = sqlite_judge
    judge.client.set_option("data_inlining_row_limit", 0)
    write(judge.lake, "t", [[_rows([True, "x", False])]], ROW, create_table="true")
    changes = [..., {"A": Typed("float", -0.0)}, Typed("int8", 3), "H" * 64]
    run_merge(judge, "main.t", [_rows(changes)], {"merge_keys": "id"})
    assert repr(_read(judge)) == repr({0: None, **dict(enumerate(changes[1:], 1))})


@pytest.mark.parametrize("default", ["42", "'x'", "'{\"a\": 1}'", "NULL"])
def test_a_default_is_what_the_reference_makes_of_it(sqlite_judge: Judge, default: str) -> None:
    """It keeps any literal as text, and gives new rows a VARIANT of that text."""
    judge = sqlite_judge
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.client.sql(f"CREATE TABLE t (id BIGINT, v VARIANT DEFAULT {default})")
    judge.client.sql("INSERT INTO t (id) VALUES (1)")
    judge.client.make_way()
    ids = pa.RecordBatch.from_pydict({"id": [2]})
    write(judge.lake, "t", [[ids]], StructType(ROW.fields[:1]), allow_missing="true")
    [(_, *by_stock), (_, *by_us)] = judge.client.sql(
        "SELECT id, v::VARCHAR, variant_typeof(v) FROM t ORDER BY id"
    )
    assert by_us == by_stock


def test_a_default_that_is_computed_is_refused(sqlite_judge: Judge) -> None:
    judge = sqlite_judge
    judge.client.sql("CREATE TABLE t (id BIGINT, v VARIANT DEFAULT {'a': 1}::VARIANT)")
    ids = pa.RecordBatch.from_pydict({"id": [2]})
    with pytest.raises(BadInput, match=r"column 'v' of .* defaults to an expression"):
        write(judge.lake, "t", [[ids]], StructType(ROW.fields[:1]), allow_missing="true")


def test_inside_other_types(sqlite_judge: Judge) -> None:
    """No client can write them there: both ways are refused."""
    judge = sqlite_judge
    judge.client.sql("CREATE TABLE t (id BIGINT, l VARIANT[])")
    kind = StructType([StructField("id", LongType()), StructField("l", ArrayType(VariantType()))])
    with pytest.raises(BadInput, match="variant inside another type"):
        read(judge.lake, "t")
    batch = pa.RecordBatch.from_pydict({"id": [1], "l": pa.nulls(1, pa.list_(pairs([]).type))})
    with pytest.raises(BadInput, match="column l: a VARIANT goes into a column of type VARIANT"):
        write(judge.lake, "t", [[batch]], kind)


def test_an_infinite_date_is_refused(sqlite_judge: Judge) -> None:
    """Spark has none: it would take it for a day in the far future."""
    judge = sqlite_judge
    judge.client.set_option("data_inlining_row_limit", 0)
    judge.client.sql("CREATE TABLE t (id BIGINT, v VARIANT)")
    judge.client.sql("INSERT INTO t VALUES (1, ['infinity'::DATE]::VARIANT)")
    with pytest.raises(BadInput, match="column v holds a VARIANT with an infinite date"):
        _read(judge)
    with pytest.raises(BadInput, match="column v holds a VARIANT with an infinite date"):
        write(judge.lake, "t", [[_rows([Typed("date", 2**31 - 1)])]], ROW)
