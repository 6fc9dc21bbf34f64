"""Points in time as catalogs and people write them; compared as instants, always in UTC."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Final

from airflow_provider_ducklake.lake.errors import ConfigurationError, UnsupportedCatalog

_TIMESTAMP: Final = re.compile(
    r"^(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
    r"\s*(Z|[+-]\d\d(?::?\d\d)?(?::?\d\d)?)?$"
)
# The units of DuckDB's intervals, to months or to microseconds.
_MONTHS: Final = {
    "mon|mons|month|months": 1,
    "quarter|quarters": 3,
    "y|yr|yrs|year|years": 12,
    "dec|decs|decade|decades": 120,
    "c|cent|century|centuries": 1_200,
}
_MICROS: Final = {
    "us|usec|usecs|microsecond|microseconds": 1,
    "ms|msec|msecs|millisecond|milliseconds": 1_000,
    "s|sec|secs|second|seconds": 1_000_000,
    "m|min|mins|minute|minutes": 60_000_000,
    "h|hr|hrs|hour|hours": 3_600_000_000,
    "d|day|days": 86_400_000_000,
    "w|week|weeks": 604_800_000_000,
}
_DAYS_OF_A_PART_OF_A_MONTH: Final = 30  # as DuckDB counts `0.5 months`
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)(?:\s+|$|(?=\d))", re.IGNORECASE)
_CLOCK: Final = re.compile(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)$")


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


def before(text: str, now: datetime) -> datetime:
    """Return the instant so long before now: `7 days`, `24h`, `1 month`, `1 day 12:00:00`.

    Months and years count back on the calendar of UTC, the last day of a month standing for days
    the month has not.

    Args:
        text: A duration in DuckDB's words, as people write it and as a lake's options hold it.
        now: The instant to count back from.

    Raises:
        ConfigurationError: It is none, or negative, or longer ago than there are dates.
    """
    months, rest = _parse_interval(text)
    years, month = divmod(now.year * 12 + now.month - 1 - months, 12)
    try:
        last = monthrange(years, month + 1)[1]
        return now.replace(year=years, month=month + 1, day=min(now.day, last)) - rest
    except (ValueError, OverflowError):
        raise ConfigurationError(f"{text!r} is longer ago than there are dates") from None


def _parse_interval(text: str) -> tuple[int, timedelta]:
    """Return whole months and the rest of a duration."""
    rest, months, micros = text.strip(), 0, 0.0
    found = False
    while match := _PART.match(rest):
        amount, unit = Decimal(match[1]), match[2].lower()
        if length := _unit(_MONTHS, unit):
            whole, part = divmod(amount * length, 1)
            months += int(whole)
            micros += float(part) * _DAYS_OF_A_PART_OF_A_MONTH * _unit(_MICROS, "d")
        elif length := _unit(_MICROS, unit):
            micros += float(amount * length)
        else:
            break
        found, rest = True, rest[match.end() :]
    if clock := _CLOCK.match(rest):
        seconds = int(clock[1]) * 3_600 + int(clock[2]) * 60 + float(clock[3])
        found, micros, rest = True, micros + seconds * 1_000_000, ""
    if rest.strip() or not found:
        raise ConfigurationError(
            f"{text!r} is no duration: write e.g. '7 days', '36 hours', '90m' or '1 month'"
        )
    try:
        return months, timedelta(microseconds=micros)
    except OverflowError:
        raise ConfigurationError(f"{text!r} is longer than there are dates") from None


def _unit(lengths: Mapping[str, int], name: str) -> int:
    return next((length for names, length in lengths.items() if name in names.split("|")), 0)


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
    return before(text, now)
