"""Options: the closed set a lake knows, their scopes, and the closed sets of each operation."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from airflow_provider_ducklake.lake.errors import ConfigurationError

MEGABYTE: Final = 1_000_000
_UNITS: Final = {
    "": 1,
    "b": 1,
    "bytes": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}

# Defaults of DuckLake 1.0, each in this one place (docs/stable/duckdb/usage/configuration.md).
DEFAULTS: Final[dict[str, str | None]] = {
    "auto_compact": "true",
    "data_inlining_row_limit": "10",
    "delete_older_than": "2 days",
    "encrypted": "false",
    "expire_older_than": None,
    "hive_file_pattern": "true",
    "parquet_compression": None,
    "parquet_compression_level": None,
    "parquet_row_group_size": None,
    "parquet_row_group_size_bytes": None,
    "parquet_version": None,
    "per_thread_output": "false",
    "require_commit_message": "false",
    "rewrite_delete_threshold": "0.95",
    "sort_on_insert": "true",
    "target_file_size": str(512 * MEGABYTE),
    "write_deletion_vectors": "false",
}


@dataclass(frozen=True, slots=True)
class ScopedOption:
    """One row of `ducklake_metadata`; scope is None (global), `schema` or `table`."""

    key: str
    value: str
    scope: str | None = None
    scope_id: int | None = None


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """All options stored in a catalog."""

    rows: tuple[ScopedOption, ...]

    def get(
        self, key: str, *, schema_id: int | None = None, table_id: int | None = None
    ) -> str | None:
        """Return an option's value: the table's, else the schema's, else global, else default."""
        wanted = [("table", table_id), ("schema", schema_id), (None, None)]
        for scope, scope_id in wanted:
            if scope is not None and scope_id is None:
                continue
            for row in self.rows:
                if (row.key, row.scope) == (key, scope) and scope_id in (None, row.scope_id):
                    return row.value
        return DEFAULTS.get(key)

    def all_of(self, key: str) -> list[str]:
        """Return every global value of a key: the format version must have exactly one."""
        return [row.value for row in self.rows if row.key == key and row.scope is None]


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ConfigurationError:
    """Return the error for a name outside a closed set, with the nearest known one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(names) or 'none'}"
    return ConfigurationError(f"unknown {kind} {name!r}; {hint}")


class OperationOptions:
    """The options given to one operation, read by type; what is not in the set is an error."""

    def __init__(self, operation: str, given: Mapping[str, str], known: Collection[str]) -> None:
        """Take the options as text.

        Args:
            operation: For messages.
            given: Names and values; an empty value is the same as not given.
            known: Every name this operation reads; `prefix.` entries admit `prefix.anything`.

        Raises:
            ConfigurationError: A name is not known; the message names the nearest one.
        """
        prefixes = tuple(name for name in known if name.endswith("."))
        for name in given:
            if name not in known and not (prefixes and name.startswith(prefixes)):
                raise unknown_name(f"option of {operation}", name, known)
        self._operation = operation
        self._given = {name: value for name, value in given.items() if value.strip()}

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return an option as text."""
        return self._given.get(name, default)

    def choice(self, name: str, allowed: Collection[str], default: str) -> str:
        """Return an option that must be one of some words."""
        value = self._given.get(name, default).strip().lower()
        if value not in allowed:
            raise self._wrong(name, f"one of {', '.join(allowed)}")
        return value

    def flag(self, name: str, default: bool | None = False) -> bool | None:
        """Return a boolean option; None only when that is the default."""
        if name not in self._given:
            return default
        return parse_flag(self._given[name], f"option {name} of {self._operation}")

    def integer(self, name: str, *, at_least: int) -> int | None:
        """Return a whole number, None when not given."""
        if name not in self._given:
            return None
        try:
            value = int(self._given[name])
        except ValueError:
            raise self._wrong(name, "a whole number") from None
        if value < at_least:
            raise self._wrong(name, f"a whole number of at least {at_least}")
        return value

    def fraction(self, name: str) -> float | None:
        """Return a number from 0 to 1, None when not given."""
        if name not in self._given:
            return None
        return parse_fraction(self._given[name], f"option {name} of {self._operation}")

    def seconds(self, name: str) -> float | None:
        """Return a length of time in seconds, more than none; None when not given."""
        if name not in self._given:
            return None
        try:
            value = float(self._given[name])
        except ValueError:
            value = 0.0
        if not 0 < value < math.inf:
            raise self._wrong(name, "a number of seconds")
        return value

    def size(self, name: str) -> int | None:
        """Return a size in bytes, None when not given: `1048576`, `128MB`, `1GiB`."""
        if name not in self._given:
            return None
        return parse_size(self._given[name], f"option {name} of {self._operation}")

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Return the options `prefix.name` as a mapping of name to value."""
        return {
            name[len(prefix) :]: value
            for name, value in self._given.items()
            if name.startswith(prefix)
        }

    def _wrong(self, name: str, expected: str) -> ConfigurationError:
        value = self._given.get(name)
        return ConfigurationError(
            f"option {name} of {self._operation} must be {expected}, not {value!r}"
        )


def parse_flag(text: str, what: str) -> bool:
    """Parse a boolean as people and templates write it."""
    value = text.strip().lower()
    if value in ("true", "t", "1", "yes", "on"):
        return True
    if value in ("false", "f", "0", "no", "off"):
        return False
    raise ConfigurationError(f"{what} must be true or false, not {text!r}")


def parse_fraction(text: str, what: str) -> float:
    """Parse a number from 0 to 1; NaN is refused like any other value outside."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise ConfigurationError(f"{what} must be a number from 0 to 1, not {text!r}")
    return value


def parse_size(text: str, what: str) -> int:
    """Parse a number of bytes with an optional unit (kB = 1000, KiB = 1024)."""
    value = text.strip().lower().replace(" ", "")
    digits = value.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = value[len(digits) :]
    try:
        size = int(float(digits) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        size = -1
    if size <= 0:
        raise ConfigurationError(f"{what} must be a size such as 1048576, 128MB or 1GiB: {text!r}")
    return size
