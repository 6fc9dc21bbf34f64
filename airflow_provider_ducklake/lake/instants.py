"""Points in time as catalogs and people write them; compared as instants, always in UTC."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Final

from airflow_provider_ducklake.lake.errors import ConfigurationError, UnsupportedCatalog

_TIMESTAMP: Final = re.compile(
    r"^(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
    r"\s*(Z|[+-]\d\d(?::?\d\d)?(?::?\d\d)?)?$"
)
_PART: Final = re.compile(
    r"(\d+(?:\.\d+)?)\s*(weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)"
    r"(?:\s+|$|(?=\d))",
    re.IGNORECASE,
)
_CLOCK: Final = re.compile(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)$")
_SECONDS: Final = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}


def utc_now() -> datetime:
    """Return the current instant."""
    return datetime.now(timezone.utc)


def format_instant(instant: datetime) -> str:
    """Write an instant as the reference writes it into text columns."""
    return instant.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f+00")


def parse_instant(text: str) -> datetime:
    """Parse a timestamp with time zone found in a catalog.

    Raises:
        UnsupportedCatalog: It is no timestamp, or has no offset: its instant is unknown.
    """
    instant = _parse(text)
    if instant is None:
        raise UnsupportedCatalog(f"the catalog holds {text!r} where a timestamp with zone belongs")
    return instant


def _parse(text: str) -> datetime | None:
    match = _TIMESTAMP.match(text.strip())
    if match is None or match[8] is None:
        return None
    micros = int((match[7] or "0").ljust(9, "0")[:6])
    try:
        year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
        local = datetime(year, month, day, hour, minute, second, micros)
    except ValueError:
        return None
    return (local - _offset(match[8])).replace(tzinfo=timezone.utc)


def _offset(text: str) -> timedelta:
    if text == "Z":
        return timedelta()
    digits = text[1:].replace(":", "").ljust(6, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:4]), seconds=int(digits[4:6]))
    return -offset if text[0] == "-" else offset


def parse_interval(text: str) -> timedelta:
    """Parse a duration such as `7 days`, `24h`, `1 day 12 hours` or DuckDB's `48:00:00`.

    Raises:
        ConfigurationError: It is none of these, or negative.
    """
    rest, total = text.strip(), 0.0
    while match := _PART.match(rest):
        total += float(match[1]) * _SECONDS[match[2][0].lower()]
        rest = rest[match.end() :]
    if clock := _CLOCK.match(rest):
        total += int(clock[1]) * 3_600 + int(clock[2]) * 60 + float(clock[3])
        rest = ""
    elif total == 0 and not re.search(r"\d", text):
        rest = text or "nothing"
    if rest.strip():
        raise ConfigurationError(
            f"{text!r} is no duration: write e.g. '7 days', '36 hours' or '90m' (months and years "
            "have no fixed length and are not taken)"
        )
    return timedelta(seconds=total)


def parse_cutoff(text: str, now: datetime, option: str = "older_than") -> datetime:
    """Return the instant an `older_than` means: an age before now, or a timestamp with offset.

    Args:
        text: `7 days`, or ISO 8601 with offset such as `2026-08-05 19:29:09+05:30`.
        now: The instant ages count back from.
        option: What messages call it.

    Raises:
        ConfigurationError: Neither, or a timestamp without offset, whose instant is a guess.
    """
    if re.match(r"^\s*\d{4}-\d\d-\d\d", text):
        instant = _parse(text)
        if instant is None:
            raise ConfigurationError(
                f"{option} {text!r} has no time or UTC offset: write e.g. 2026-08-05 19:29:09+00"
            )
        return instant
    return now - parse_interval(text)
