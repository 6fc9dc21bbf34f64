"""Operator arguments, typed or rendered from a template, as options of the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from airflow_provider_ducklake.hooks._values import (
    as_bool,
    as_count,
    as_number,
    as_object,
    chosen,
    given,
    strings,
)
from airflow_provider_ducklake.lake.errors import ConfigurationError

# Arguments that bound what is worked on or what goes. One that is given and renders to nothing is
# refused: without it another catalog, more snapshots, younger files or other tables would be meant.
BOUNDS: Final = frozenset(
    {
        "older_than",
        "versions",
        "retain_last",
        "expire_older_than",
        "delete_older_than",
        "max_fraction",
        "partition",
        "quarantine",
    }
)
# Turns an argument's value into the option's text; the second parameter is the argument's name.
Converter: TypeAlias = Callable[[Any, str], str]


def text(value: Any, name: str) -> str:
    """Return text as it is."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be text, not {value!r}")
    return value.strip()


def boolean(value: Any, name: str) -> str:
    """Return `true` or `false` for a boolean or a word for one."""
    return str(as_bool(value, name)).lower()


def integer(value: Any, name: str) -> str:
    """Return a whole number that is not negative."""
    return str(as_count(value, name))


def size(value: Any, name: str) -> str:
    """Return a number of bytes, or text such as `512MB`, which the job understands."""
    return value.strip() if isinstance(value, str) else integer(value, name)


def fraction(value: Any, name: str) -> str:
    """Return a number from 0 to 1."""
    if not 0 <= as_number(value, name) <= 1:
        raise ConfigurationError(f"{name} must be a number from 0 to 1, not {value!r}")
    return str(value).strip()


def seconds(value: Any, name: str) -> str:
    """Return a length of time in seconds, not negative."""
    number = value.total_seconds() if isinstance(value, timedelta) else as_number(value, name)
    if number < 0:
        raise ConfigurationError(f"{name} must not be negative, and it is {number:g}")
    return f"{number:.15g}"


def instant(value: Any, name: str) -> str:
    """Return a point in time (with offset) or an age, given as such or as text."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds():f} seconds"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ConfigurationError(f"{name} {value} has no time zone: which instant is meant?")
        return value.isoformat()
    return text(value, name)


def listing(value: Any, name: str) -> str:
    """Return a list as comma-separated text; text is taken as it is."""
    if isinstance(value, str):
        return value.strip()
    return ",".join(str(item) for item in strings(value, name))


def pairs(value: Any, name: str) -> str:
    """Return a mapping as `key=value,key=value`; text is taken as it is."""
    if isinstance(value, str):
        return value.strip()
    if not isinstance(value, Mapping):
        raise ConfigurationError(f'{name} must be like {{"year": 2024, "region": "eu"}}')
    return ",".join(f"{key}={item}" for key, item in value.items())


def json_object(value: Any, name: str) -> str:
    """Return an object as JSON in as few characters as it takes."""
    return json.dumps(as_object(value, name), separators=(",", ":"))


def flag(name: str, value: Any) -> list[str]:
    """Return `--name=value` where a value was given; it may begin with a dash, as SQL may."""
    return [f"--{name}={value}"] if given(value) else []


def arguments(values: Mapping[str, Any], converters: Mapping[str, Converter]) -> list[str]:
    """Return `--option=name=value` for every argument that was given.

    Args:
        values: The operator's arguments by name; None, "" and a rendered None are not given.
            Those of `BOUNDS` may be None only.
        converters: How each is written; the names are the command line's.

    Raises:
        ConfigurationError: A value is not of its type, or a bound is empty.
    """
    options: list[str] = []
    for name, convert in converters.items():
        if name in BOUNDS and isinstance(values[name], str):
            chosen(values[name], name)
        if given(values[name]):
            options += flag("option", f"{name}={convert(values[name], name)}")
    return options
