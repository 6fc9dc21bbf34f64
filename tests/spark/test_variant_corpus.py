"""VARIANT in the files of apache/parquet-testing: values as that repository says, or refused."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime, time, timezone
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest

from airflow_provider_ducklake.kernels.variant import as_pairs, to_parts_sql
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.tables import create_table
from airflow_provider_ducklake.spark.dataframes import read_source
from airflow_provider_ducklake.spark.operations import run_operation
from airflow_provider_ducklake.spark.runner import SparkRunner
from tests.support.corpus import CORPUS, FILES, needs_corpus
from tests.support.lakes import LakeUnderTest, catalog_fingerprint
from tests.support.variants import PAIR, Typed, decode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [needs_corpus, pytest.mark.spark]

FOLDER: Final = "shredded_variant"
HERE: Final = [name for name in FILES if name.startswith(FOLDER)]
# Spark has no columns of such parts: times, nanoseconds, UUID, unsigned numbers; or the file is
# wrong. And DuckDB cuts instants of nanoseconds off, wherever they are.
REFUSED: Final = {
    f"{FOLDER}/case-{number}.parquet"
    for number in (
        "032", "033", "034", "035", "036", "037", "043-INVALID", "077", "078", "087", "120", "121",
        "125-INVALID", "127", "128", "129", "137",
    )
}  # fmt: skip
# One of each kind: to refuse all takes half a minute.
REFUSED_IN_FULL: Final = ("033", "037", "043-INVALID", "078", "087", "127")
# Wrong by the specification, which lets readers take the column of a value for all of it.
WITHOUT_EXPECTATION: Final = {f"{FOLDER}/case-{number}.parquet" for number in ("040", "042")}
READ: Final = [name for name in HERE if name not in REFUSED | WITHOUT_EXPECTATION]
_PARTS: Final = re.compile(
    r"VariantArray\(\[|VariantObject\(fields=\{|Variant\(type=(\w+), value=([^)]*)\)|(\w+): "
    r"|[\])},]+"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def ingest(spark: SparkSession, sqlite_lake: tuple[Lake, LakeUnderTest]) -> Callable[..., object]:
    """Load files of the folder into the table `t`."""
    create_table(sqlite_lake[0], "t", parse_columns("id int32, var variant"))

    def run(*names: str) -> object:
        sources = [str(CORPUS / name) for name in names]
        return run_operation(
            "ingest",
            sqlite_lake[0],
            {},
            runner=SparkRunner(spark.sparkContext),
            tables=["t"],
            sources=sources,
            as_they_are=True,
            data=lambda _: read_source(spark, sources),
        )

    return run


def test_values_are_those_expected(
    ingest: Callable[..., object], sqlite_lake: tuple[Lake, LakeUnderTest]
) -> None:
    """They are written shredded or not, in whatever order of parts: the lake shows the values."""
    ingest(*READ)
    query = f"SELECT {to_parts_sql('var')} AS p FROM t"
    client = sqlite_lake[1].client()
    client.sql("SELECT 1")
    found = client.connection.execute(query).to_arrow_table()["p"].combine_chunks()
    shown = [None if pair is None else decode(**pair) for pair in as_pairs(found, PAIR).to_pylist()]
    client.close()
    cases = {
        f"{FOLDER}/{case['parquet_file']}": case
        for case in json.loads((CORPUS / FOLDER / "cases.json").read_text())
        if "parquet_file" in case
    }
    expected = [value for name in READ for value in _expected(cases[name])]
    difference = Counter(map(_shown, shown)), Counter(map(_shown, expected))
    assert difference[0] == difference[1], (
        difference[0] - difference[1],
        difference[1] - difference[0],
    )


def test_the_others_are_refused_in_one_line(
    ingest: Callable[..., object], sqlite_lake: tuple[Lake, LakeUnderTest]
) -> None:
    before = catalog_fingerprint(sqlite_lake[1])
    for number in REFUSED_IN_FULL:
        name = f"{FOLDER}/case-{number}.parquet"
        assert name in REFUSED & set(HERE)
        with pytest.raises(BadInput) as refusal:
            ingest(name)
        assert "\n" not in str(refusal.value), name
        assert "Exception" not in str(refusal.value), (name, str(refusal.value))
    assert catalog_fingerprint(sqlite_lake[1]) == before
    assert sqlite_lake[1].stored_files() == {}


def _shown(value: Any) -> str:
    """Return a value in a form that compares: Spark gives whole numbers the fewest bytes."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_shown(value[name])}' for name in sorted(value))}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, Typed) and value.kind.startswith(("decimal", "int")):
        return f"{value.kind.rstrip('0123456789')} {value.value}"
    return repr(value)


def _expected(case: dict[str, Any]) -> list[Any]:
    texts = (
        case["variants"][1:-1].split(", Variant(meta") if "variants" in case else [case["variant"]]
    )
    return [
        _value(text.partition("}), value=")[2][:-1]) if text != "null" else None for text in texts
    ]


def _value(text: str) -> Any:
    """Return the value that a text such as `VariantArray([Variant(type=INT8, value=1)])` means."""
    stack: list[Any] = [[]]
    name = ""
    for part in _PARTS.finditer(text):
        if part[3]:
            name = part[3]
            continue
        if part[1]:
            item: Any = _scalar(part[1], part[2])
        elif part[0].startswith("Variant"):
            item = [] if part[0].startswith("VariantArray") else {}
        else:
            for _ in range(len(re.findall(r"[\]}]", part[0]))):
                stack.pop()
            continue
        if isinstance(stack[-1], dict):
            stack[-1][name] = item
        else:
            stack[-1].append(item)
        if isinstance(item, dict | list):
            stack.append(item)
    return stack[0][0]


def _scalar(kind: str, text: str) -> Any:
    simple = {"NULL": None, "BOOLEAN_TRUE": True, "BOOLEAN_FALSE": False}
    if kind in simple:
        return simple[kind]
    if kind == "STRING":
        return text
    if kind == "BINARY":
        return bytes.fromhex(text)
    name = {"TIMESTAMPTZ": "timestamp", "TIMESTAMPNTZ": "timestamp_ntz"}.get(kind, kind.lower())
    if kind.startswith("INT"):
        return Typed(name, int(text))
    if kind == "DOUBLE":
        return Typed(name, float(text))
    if kind == "FLOAT":
        return Typed(name, struct.unpack("<f", struct.pack("<f", float(text)))[0])
    if kind.startswith("DECIMAL"):
        return Typed(name, (int(text.replace(".", "")), len(text.partition(".")[2])))
    if kind == "DATE":
        return Typed(name, (date.fromisoformat(text) - date(1970, 1, 1)).days)
    if kind == "UUID":
        return Typed(name, UUID(text).bytes)
    if kind == "TIME":
        at = time.fromisoformat(text)
        return Typed(name, ((at.hour * 60 + at.minute) * 60 + at.second) * 10**6 + at.microsecond)
    nanoseconds = kind.endswith("_NANOS")
    cut = text[:26] + "+00:00"
    since = datetime.fromisoformat(cut) - _EPOCH
    micros = (since.days * 86400 + since.seconds) * 10**6 + since.microseconds
    if nanoseconds:
        return Typed("timestamp_ntz_ns", micros * 1000 + int(text[26:29]))
    return Typed(name, micros)
