"""Partition directories, partition filters and sort orders, as the kernels understand them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import duckdb

from airflow_provider_ducklake.kernels.partitioning import partition_keys
from airflow_provider_ducklake.kernels.sorting import order_error
from airflow_provider_ducklake.lake.columns import Column
from airflow_provider_ducklake.lake.errors import ConfigurationError, NotFound
from airflow_provider_ducklake.lake.lake import LakeView
from airflow_provider_ducklake.lake.model import DataFile, PartitionSpec, SortKey, Table
from airflow_provider_ducklake.lake.reader import read_partition_spec

log = logging.getLogger(__name__)

Values = tuple[str | None, ...]


def partition_specs(view: LakeView, files: Iterable[DataFile]) -> dict[int, PartitionSpec]:
    """Return the specs some files were written under, by id, old ones too."""
    ids = {file.partition_id for file in files if file.partition_id is not None}
    specs = ((i, read_partition_spec(view.session, i)) for i in sorted(ids))
    return {partition_id: spec for partition_id, spec in specs if spec is not None}


def key_names(spec: PartitionSpec, columns: Sequence[Column]) -> list[str]:
    """Return the names of a spec's keys as its directories spell them."""
    with duckdb.connect(":memory:") as connection:
        return [key.name for key in partition_keys(connection, spec, columns)]


def usable_order(
    connection: duckdb.DuckDBPyConnection, table: Table, columns: tuple[Column, ...]
) -> tuple[SortKey, ...]:
    """Return a table's sort order; none, with a warning, where rows have no such columns.

    Files written before a column existed cannot be sorted by it.
    """
    error = order_error(connection, table.sort_keys, columns)
    if error is None:
        return table.sort_keys
    log.warning("%s: rows keep the order they have: %s", table.full_name, error)
    return ()


def parse_partition_filter(text: str | None) -> Mapping[str, str] | None:
    """Parse `year=2024,region=eu` to keys in lower case and values; None selects everything.

    Raises:
        ConfigurationError: It is not written as above.
    """
    if not text:
        return None
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise ConfigurationError(f"partition {text!r}: write key=value, separated by commas")
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def matching_partitions(
    wanted: Mapping[str, str] | None,
    table: Table,
    specs: dict[int, PartitionSpec],
    files: Iterable[DataFile],
) -> frozenset[Values] | None:
    """Return the partition values that a filter selects.

    Args:
        wanted: Values by key, as directories spell the keys; None is everything.
        table: For messages, and for its columns.
        specs: Specs of the files.
        files: Candidates.

    Raises:
        NotFound: A key is none of the table's partition keys.
    """
    if wanted is None:
        return None
    names = {i: [n.lower() for n in key_names(s, table.columns)] for i, s in specs.items()}
    known = {name for of_spec in names.values() for name in of_spec}
    if not set(wanted) <= known:
        has = ", ".join(sorted(known)) or "no partition keys"
        raise NotFound(f"{table.full_name} has {has}, not all of {', '.join(wanted)}")
    selected = set()
    for file in files:
        keys = [] if file.partition_id is None else names.get(file.partition_id, [])
        values = dict(zip(keys, file.partition_values, strict=False))
        if all(values.get(key) == value for key, value in wanted.items()):
            selected.add(file.partition_values)
    return frozenset(selected)
