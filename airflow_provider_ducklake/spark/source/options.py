"""The options of the data source: a closed set, read once, the same for reading and writing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.instants import parse_cutoff, utc_now
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.options import OperationOptions
from airflow_provider_ducklake.spark.credentials import Secrets
from airflow_provider_ducklake.spark.operations._write_plan import INGEST_OPTIONS

PLACE: Final = ("attach", "catalog", "data_path", "metadata_schema", "table", "memory_limit")
READ_OPTIONS: Final = (
    *PLACE,
    "snapshot",
    "at",
    "changes_from",
    "changes_to",
    "columns",
    "filter",
    "metadata_columns",
    "partition_size",
    "pushdown",
    "types",
)
_NOT_HERE: Final = ("mode", "reader.", "merge_keys", "delete_when")
TARGET: Final = tuple(n for n in INGEST_OPTIONS if n not in _NOT_HERE)
WRITE_OPTIONS: Final = (
    *PLACE,
    *TARGET,
    "author",
    "commit_key",
    "message",
    "overwrite",
    "target_file_size",
)
# Spark's own, given to the sink of a stream.
STREAM_OPTIONS: Final = (*WRITE_OPTIONS, "checkpointlocation", "queryname")
METADATA: Final = ("rowid", "snapshot_id")
_SECRET_WORDS: Final = ("password", "secret", "token", "access_key")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a read was asked for.

    Attributes:
        changes: First and last snapshot of a change feed, None where rows are wanted; a last one
            that is None is the newest.
        columns: Names of the columns wanted, None for all.
        metadata_columns: Of `METADATA`.
        partition_size: Bytes of data files that one task should read.
        as_text: Columns of types Spark lacks are text.
    """

    table: str
    snapshot: int | None
    at: datetime | None
    changes: tuple[int, int | None] | None
    columns: tuple[str, ...] | None
    condition: str | None
    metadata_columns: tuple[str, ...]
    partition_size: int
    pushdown: bool
    as_text: bool

    @classmethod
    def of(cls, given: OperationOptions) -> ReadOptions:
        """Read the options.

        Raises:
            ConfigurationError: One is missing or wrong, or two exclude each other.
        """
        snapshot, at = given.integer("snapshot", at_least=0), given.text("at")
        first = given.integer("changes_from", at_least=0)
        last = given.integer("changes_to", at_least=0)
        metadata = tuple(_names(given.text("metadata_columns")))
        if snapshot is not None and at is not None:
            raise ConfigurationError("give snapshot or at, not both")
        if first is None and last is not None:
            raise ConfigurationError(
                "changes_to needs changes_from, the first snapshot of the feed"
            )
        if first is not None and (snapshot is not None or at is not None or metadata):
            raise ConfigurationError(
                "a change feed (changes_from) has its own snapshots and metadata: leave out "
                "snapshot, at and metadata_columns"
            )
        if first is not None and last is not None and last < first:
            raise ConfigurationError(f"changes_to {last} lies before changes_from {first}")
        unknown = [name for name in metadata if name not in METADATA]
        if unknown:
            raise ConfigurationError(
                f"metadata_columns {unknown[0]!r}: there are {' and '.join(METADATA)}"
            )
        columns = given.text("columns")
        return cls(
            table=required(given, "table"),
            snapshot=snapshot,
            at=None if at is None else parse_cutoff(at, utc_now(), "at"),
            changes=None if first is None else (first, last),
            columns=None if columns is None else tuple(_names(columns)),
            condition=given.text("filter"),
            metadata_columns=metadata,
            partition_size=given.size("partition_size") or 128 * 1024 * 1024,
            pushdown=bool(given.flag("pushdown")),
            as_text=given.choice("types", ("exact", "text"), "exact") == "text",
        )


def checked(given: Mapping[str, str], known: tuple[str, ...]) -> OperationOptions:
    """Return options of a closed set.

    Raises:
        ConfigurationError: One is unknown, or looks like a secret, which options cannot keep.
    """
    for name in given:
        if name not in known and any(word in name.lower() for word in _SECRET_WORDS):
            raise ConfigurationError(
                f"option {name!r}: Spark shows options to everyone; give secrets in the "
                "environment (DUCKLAKE_CATALOG_PASSWORD, DUCKLAKE_STORAGE_<KEY>)"
            )
        if name == "path":
            raise ConfigurationError("load() and save() take no path: give attach and table")
    return OperationOptions("the ducklake source", given, known)


def required(given: OperationOptions, name: str) -> str:
    """Return an option that must be given.

    Raises:
        ConfigurationError: It is not.
    """
    value = given.text(name)
    if value is None:
        examples = {"attach": "ducklake:sqlite:/lake/catalog.sqlite", "table": "main.orders"}
        raise ConfigurationError(f"option {name} is missing, e.g. {examples[name]}")
    return value


def open_lake(given: OperationOptions, secrets: Secrets) -> Lake:
    """Return the lake the options name; nothing is connected yet.

    Raises:
        ConfigurationError: They name none, or hold a password.
    """
    attach = required(given, "attach")
    location = CatalogLocation.parse(
        attach,
        metadata_schema=given.text("metadata_schema"),
        data_path=given.text("data_path"),
        catalog=given.text("catalog"),
    )
    if location.password is not None:
        raise ConfigurationError(
            "option attach holds a password, and Spark shows options to everyone: give it in the "
            "environment (DUCKLAKE_CATALOG_PASSWORD)"
        )
    location = CatalogLocation.parse(
        attach,
        metadata_schema=given.text("metadata_schema"),
        data_path=given.text("data_path"),
        catalog=given.text("catalog"),
        password=secrets.password,
    )
    return Lake.open(location, storage=secrets.storage)


def _names(text: str | None) -> list[str]:
    """Split names at commas; one with a comma stands in double quotes."""
    names, quoted, current = [], False, ""
    for character in text or "":
        if character == '"':
            quoted = not quoted
        elif character == "," and not quoted:
            names.append(current)
            current = ""
            continue
        current += character
    names.append(current)
    stripped = (name.strip() for name in names)
    return [n[1:-1] if n.startswith('"') and n.endswith('"') else n for n in stripped if n]
