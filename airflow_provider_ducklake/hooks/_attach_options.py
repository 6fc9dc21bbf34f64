"""The options of DuckDB's ATTACH that a connection may give: a closed, typed set."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from airflow_provider_ducklake.hooks._secrets import is_sensitive
from airflow_provider_ducklake.hooks._values import (
    as_bool,
    as_count,
    as_object,
    as_setting,
    nearest,
)
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.identifiers import quote_literal


def _flag(value: Any, name: str) -> str:
    return str(as_bool(value, name)).lower()


def _count(value: Any, name: str) -> str:
    return str(as_count(value, name))


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{name} must be text, not {value!r}")
    return quote_literal(value)


def _instant(value: Any, name: str) -> str:
    try:
        # Python knows the `Z` since 3.11 only.
        text = re.sub("Z$", "+00:00", str(value))
        instant = value if isinstance(value, datetime) else datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise ConfigurationError(
            f"{name} {value!r}: write an instant with its offset, 2026-01-31 18:00:00+00:00"
        )
    return quote_literal(instant.isoformat(sep=" "))


def _parameters(value: Any, name: str) -> str:
    entries = as_object(value, name).items()
    pairs = (f"{quote_literal(k)}: {quote_literal(as_setting(v))}" for k, v in entries)
    return f"MAP {{{', '.join(pairs)}}}"


def _parameter(value: Any, name: str) -> str:
    if isinstance(value, bool):
        return _flag(value, name)
    return str(value) if isinstance(value, int) else _text(value, name)


# Source: docs/stable/duckdb/usage/connecting.md, src/storage/ducklake_storage.cpp. The path of the
# metadata, that of the data, the metadata schema and READ_ONLY have fields of their own.
_KNOWN: Final[dict[str, Callable[[Any, str], str]]] = {
    "automatic_migration": _flag,
    "busy_timeout": _count,
    "create_if_not_exists": _flag,
    "data_inlining_row_limit": _count,
    "encrypted": _flag,
    "metadata_catalog": _text,
    "metadata_parameters": _parameters,
    "override_data_path": _flag,
    "snapshot_time": _instant,
    "snapshot_version": _count,
    "write_deletion_vectors": _flag,
}
# Parameters of the catalog's own database, such as META_SECRET or META_SCHEMA of PostgreSQL.
_META: Final = re.compile(r"meta_[a-z]\w*")
_ONE_SNAPSHOT: Final = frozenset({"snapshot_time", "snapshot_version"})


def attach_literals(given: Mapping[str, Any]) -> dict[str, str]:
    """Return options with their values as SQL literals.

    Args:
        given: Names in any case; values as a form, JSON or Python code has them.

    Raises:
        ConfigurationError: An option is unknown, of the wrong type, or contradicts another.
    """
    literals: dict[str, str] = {}
    for name, value in given.items():
        known = name.lower()
        convert = _KNOWN.get(known) or (_parameter if _META.fullmatch(known) else None)
        if convert is None:
            raise ConfigurationError(
                f"attach_options: {name!r}: {nearest(known, [*_KNOWN, 'meta_…'])}"
            )
        literals[known] = convert(value, f"attach_options: {known}")
    if literals.keys() >= _ONE_SNAPSHOT:
        raise ConfigurationError("attach_options: snapshot_time or snapshot_version, not both")
    return literals


def shows_one_snapshot(literals: Mapping[str, str]) -> bool:
    """Tell whether a session with these options shows one snapshot, and so can only read."""
    return not _ONE_SNAPSHOT.isdisjoint(literals)


def may_create(literals: Mapping[str, str]) -> bool:
    """Tell whether attaching may create or migrate a catalog: only when somebody asked for it."""
    return "true" in (literals.get("create_if_not_exists"), literals.get("automatic_migration"))


def overrides_data_path(literals: Mapping[str, str]) -> bool:
    """Tell whether a session is to look for data elsewhere than the catalog says."""
    return literals.get("override_data_path") == "true"


def sensitive_values(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parameters for the catalog's database that are secrets by their names."""
    named = {name: value for name, value in given.items() if _META.fullmatch(name.lower())}
    for name, value in given.items():
        if name.lower() == "metadata_parameters":
            named.update(as_object(value, name))
    # The secret these name is one of DuckDB's, kept under that name.
    harmless = ("secret", "meta_secret")
    return tuple(str(v) for n, v in named.items() if n.lower() not in harmless and is_sensitive(n))
