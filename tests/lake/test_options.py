"""Scoped options of a lake and the closed option sets of operations."""

from __future__ import annotations

import pytest

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.options import (
    LakeOptions,
    OperationOptions,
    ScopedOption,
    parse_fraction,
    parse_size,
)


def test_the_most_specific_scope_wins() -> None:
    options = LakeOptions(
        (
            ScopedOption("parquet_compression", "snappy"),
            ScopedOption("parquet_compression", "zstd", "schema", 1),
            ScopedOption("parquet_compression", "gzip", "table", 7),
        )
    )
    assert options.get("parquet_compression", schema_id=1, table_id=7) == "gzip"
    assert options.get("parquet_compression", schema_id=1, table_id=8) == "zstd"
    assert options.get("parquet_compression", schema_id=2, table_id=8) == "snappy"
    assert options.get("auto_compact", schema_id=2, table_id=8) == "true"
    assert options.get("expire_older_than") is None


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'max_compacted_files'"):
        OperationOptions("merge", {"max_compacted_file": "1"}, ["max_compacted_files"])


def test_prefixed_options_are_open_behind_their_prefix() -> None:
    given = {"reader.header": "true", "mode": "append"}
    options = OperationOptions("ingest", given, ["mode", "reader."])
    assert options.with_prefix("reader.") == {"header": "true"}
    with pytest.raises(ConfigurationError, match="unknown option"):
        OperationOptions("ingest", {"read.header": "1"}, ["mode", "reader."])


def test_an_empty_value_is_not_given() -> None:
    options = OperationOptions("x", {"a": "  "}, ["a"])
    assert options.text("a", "default") == "default"
    assert options.integer("a", at_least=1) is None


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many"])
def test_whole_numbers_have_a_floor(value: str) -> None:
    with pytest.raises(ConfigurationError, match="option n of x"):
        OperationOptions("x", {"n": value}, ["n"]).integer("n", at_least=1)


@pytest.mark.parametrize("value", ["-1", "1.5", "nan", "", "half"])
def test_fractions_outside_zero_to_one_are_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match="from 0 to 1"):
        parse_fraction(value, "threshold")


@pytest.mark.parametrize(
    ("text", "size"),
    [("1048576", 1 << 20), ("128MB", 128_000_000), ("1 GiB", 1 << 30), ("0.5kB", 500)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text, "size") == size


@pytest.mark.parametrize("text", ["0", "-5", "MB", "12 parsecs", "1e400", "nan"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="size"):
        parse_size(text, "size")


def test_flags_are_read_as_people_write_them() -> None:
    options = OperationOptions("x", {"a": "True", "b": "no", "c": "perhaps"}, ["a", "b", "c", "d"])
    assert (options.flag("a"), options.flag("b"), options.flag("d", None)) == (True, False, None)
    with pytest.raises(ConfigurationError, match="true or false"):
        options.flag("c")
