"""Timestamps and durations as catalogs and people write them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.errors import ConfigurationError, UnsupportedCatalog
from airflow_provider_ducklake.lake.instants import (
    before,
    format_instant,
    parse_cutoff,
    parse_instant,
)

UTC = timezone.utc
NOW = datetime(2026, 8, 5, 14, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-08-05 19:29:09+05:30",
        "2026-08-05 13:59:09+00",
        "2026-08-05T13:59:09Z",
        "2026-08-05 13:59:09.000000+00:00",
        "2026-08-05 05:59:09-08",
        "2026-08-05 19:31:09.5+05:31:59.5"[:19] + "+05:32",
    ],
)
def test_every_spelling_of_one_instant_is_that_instant(text: str) -> None:
    assert abs(parse_instant(text) - datetime(2026, 8, 5, 13, 59, 9, tzinfo=UTC)) < timedelta(
        minutes=1
    )


@given(st.datetimes(datetime(1900, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC)))
def test_what_is_written_is_read_back(instant: datetime) -> None:
    assert parse_instant(format_instant(instant)) == instant


@pytest.mark.parametrize("text", ["2026-08-05 13:59:09", "yesterday", "", "2026-13-01 00:00:00+00"])
def test_a_time_without_offset_is_no_instant(text: str) -> None:
    with pytest.raises(UnsupportedCatalog, match="timestamp with zone"):
        parse_instant(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 days", timedelta(days=7)),
        ("7d", timedelta(days=7)),
        ("1 day 12 hours", timedelta(hours=36)),
        ("36h", timedelta(hours=36)),
        ("90m", timedelta(minutes=90)),
        ("48:00:00", timedelta(days=2)),
        ("1 day 02:30:00", timedelta(hours=26, minutes=30)),
        ("0 days", timedelta()),
        ("2w", timedelta(days=14)),
    ],
)
def test_durations(text: str, expected: timedelta) -> None:
    assert before(text, NOW) == NOW - expected


@pytest.mark.parametrize("now", ["2026-03-31 14:00:00", "2024-02-29 00:00:01", "2026-01-01 05:00"])
@pytest.mark.parametrize(
    "text",
    [
        "1 month",
        "13 mons",
        "2 years",
        "1 year 2 months 3 days 04:05:06",
        "0.5 months",
        "1.5 years",
        "2 quarters",
        "1 decade",
        "1 century",
        "1500 milliseconds",
        "90 us",
    ],
)
def test_durations_as_duckdb_counts_them(text: str, now: str) -> None:
    """What a stock client takes for an option counts back to the same instant here."""
    query = "SELECT CAST(? AS TIMESTAMP), CAST(? AS TIMESTAMP) - CAST(? AS INTERVAL)"
    with duckdb.connect(":memory:") as connection:
        row = connection.execute(query, [now, now, text]).fetchone()
    assert row is not None
    assert before(text, row[0].replace(tzinfo=UTC)) == row[1].replace(tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "soon", "7", "-3 days", "7 days ago", "2 moons", "-1 month"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="duration"):
        before(text, NOW)


@pytest.mark.parametrize("text", ["9999 years", "999999999999 days", "99999999 months"])
def test_longer_than_there_are_dates(text: str) -> None:
    with pytest.raises(ConfigurationError, match="there are dates"):
        before(text, NOW)


def test_a_cutoff_is_an_age_or_an_instant() -> None:
    assert parse_cutoff("2 hours", NOW) == NOW - timedelta(hours=2)
    assert parse_cutoff("2026-08-05T19:29:09+05:30", NOW) == datetime(
        2026, 8, 5, 13, 59, 9, tzinfo=UTC
    )


@pytest.mark.parametrize("text", ["2026-08-05", "2026-08-05 19:29:09"])
def test_a_cutoff_without_offset_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="offset"):
        parse_cutoff(text, NOW)
