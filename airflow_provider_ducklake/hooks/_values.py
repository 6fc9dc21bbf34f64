"""Values as forms, URIs and templates hand them over, turned into Python values."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from airflow_provider_ducklake.lake.errors import ConfigurationError

_TRUE: Final = frozenset({"true", "1", "yes", "on", "t", "y"})
_FALSE: Final = frozenset({"false", "0", "no", "off", "f", "n"})
# What a template makes of a value that is not there.
_ABSENT: Final = frozenset({"", "none", "null"})


def given(value: Any) -> bool:
    """Tell whether a value was given at all: None, "" and a rendered None mean it was not."""
    if isinstance(value, str):
        return value.strip().lower() not in _ABSENT
    return value is not None


def given_names(**values: Any) -> tuple[str, ...]:
    """Return the names of the arguments that were given, as anything but None."""
    return tuple(name for name, value in values.items() if value is not None)


def chosen(value: Any, name: str) -> str:
    """Return the text of an argument that says what is worked on; it cannot be left empty.

    Raises:
        ConfigurationError: It rendered to nothing, which would be another place, or all of it.
    """
    if not given(value):
        raise ConfigurationError(
            f"{name} is given and comes to {value!r}: a template or variable behind it is empty. "
            "Nothing is done, since without it something else or more would be meant; leave the "
            "argument out if that is what you want"
        )
    return str(value).strip()


def as_bool(value: Any, name: str) -> bool:
    """Return a boolean given as such, or as a word from a URI or template.

    Raises:
        ConfigurationError: It is neither.
    """
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ConfigurationError(f"{name} must be true or false, not {value!r}")


def as_int(value: Any, name: str) -> int:
    """Return a whole number given as such or as text.

    Raises:
        ConfigurationError: It is neither.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(str(value).strip())
    except ValueError:
        raise ConfigurationError(f"{name} must be a whole number, not {value!r}") from None


def as_count(value: Any, name: str) -> int:
    """Return a whole number that is not negative, given as such or as text.

    Raises:
        ConfigurationError: It is neither.
    """
    number = as_int(value, name)
    if number < 0:
        raise ConfigurationError(f"{name} must not be negative, and it is {number}")
    return number


def as_number(value: Any, name: str) -> float:
    """Return a finite number given as such or as text.

    Raises:
        ConfigurationError: It is neither.
    """
    try:
        number = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ConfigurationError(f"{name} must be a number, not {value!r}")
    return number


def as_object(value: Any, name: str) -> dict[str, Any]:
    """Return a JSON object given as such or as JSON text, entries that are null left out.

    Raises:
        ConfigurationError: It is neither; the message never shows the value, which may be secret.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ConfigurationError(f"{name} is not valid JSON: write an object") from None
    if not isinstance(value, dict):
        raise ConfigurationError(f'{name} must be a JSON object such as {{"name": "value"}}')
    return {str(key): item for key, item in value.items() if item is not None}


def strings(value: Any, name: str) -> list[str]:
    """Return one or several names or paths, given alone, as a list, or as a JSON list in text.

    Raises:
        ConfigurationError: It is something else.
    """
    if not given(value):
        return []
    if isinstance(value, str) and value.lstrip().startswith("["):
        # A list that went through a template came out as its text.
        try:
            value = json.loads(value)
        except ValueError:
            try:
                value = json.loads(value.replace("'", '"'))
            except ValueError:
                raise ConfigurationError(f"{name} is neither a name nor a list") from None
    if isinstance(value, str):
        return [value.strip()]
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return [str(item).strip() for item in value if given(item)]
    raise ConfigurationError(f"{name} must be a name or a list of names, not {value!r}")


def as_setting(value: Any) -> str:
    """Return a scalar from JSON in the text form that settings take."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint naming the known name closest to one that is unknown, or listing all."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"there is {', '.join(names)}"
