"""The shared store at ten to a million catalogs: what each operation on one of them takes."""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import psycopg
from rich import box
from rich.console import Console
from rich.table import Table as Grid

from airflow_provider_ducklake.lake.append import append_files
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.store.store import CatalogStore
from benchmarks.common import made_directory
from benchmarks.store_filling import (
    BYTES_A_CATALOG,
    TENANT,
    WAL_BYTES,
    FilledStore,
    add_catalogs,
    attach_statement,
    catalog_name,
    fill,
    insert_statement,
    running_server,
    stock_session,
)
from benchmarks.store_writers import Clock, commits_a_second, open_lake, shares, written_file

SIZES: Final = (10, 1_000, 100_000, 1_000_000)
BASE: Final = 1_000  # ratios are against the figures of this size
WRITERS: Final = (1, 8, 32)
_WARM_UP: Final = 2  # runs of each figure that do not count


@dataclass(frozen=True, slots=True)
class Site:
    """A filled store under measurement.

    Attributes:
        store: The store.
        admin: The store as the service role administers it, its connection kept open.
        service: A session of the service role, and `tenant` one of the tenants' role.
        stock: A DuckDB session with the extension, nothing attached.
        catalogs: For each group of figures, catalogs that lie all over the range of ids.
        numbers: For names of new catalogs.
    """

    store: FilledStore
    admin: CatalogStore
    service: psycopg.Connection[Any]
    tenant: psycopg.Connection[Any]
    stock: duckdb.DuckDBPyConnection
    catalogs: dict[str, list[str]]
    numbers: Iterator[int]

    def lake(self, catalog: str) -> Lake:
        """Return a catalog as a tenant opens it."""
        return open_lake(self.store.tenant, catalog)


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that is measured.

    Attributes:
        name: As the report calls it.
        group: Whose catalogs it uses: those that change a catalog have some of their own.
        run: Does it once with a catalog and returns the seconds of what is measured.
        part: Which part of the repetitions it gets, where one takes long.
    """

    name: str
    group: str
    run: Callable[[Site, str], float]
    part: int = 1


# --- The figures: each runs once on one catalog and returns the seconds of what is measured


def _connect(site: Site, catalog: str) -> float:
    with Clock() as clock, psycopg.connect(site.store.service) as connection:
        connection.execute("SELECT 1")
    return clock.seconds


def _create(site: Site, catalog: str) -> float:
    name = f"new-{next(site.numbers)}"
    with Clock() as clock:
        site.admin.create_catalog(name)
    return clock.seconds


def _create_alone(site: Site, catalog: str) -> float:
    name = f"new-{next(site.numbers)}"
    with Clock() as clock:
        CatalogStore(site.store.service).create_catalog(name)
    return clock.seconds


def _fork(site: Site, catalog: str) -> float:
    name = f"fork-{next(site.numbers)}"
    with Clock() as clock:
        site.admin.fork_catalog(catalog, name)
    return clock.seconds


def _fork_alone(site: Site, catalog: str) -> float:
    name = f"fork-{next(site.numbers)}"
    with Clock() as clock:
        CatalogStore(site.store.service).fork_catalog(catalog, name)
    return clock.seconds


def _attach(site: Site, catalog: str) -> float:
    with Clock() as clock:
        site.stock.execute(attach_statement(site.store.tenant, catalog))
    site.stock.execute("DETACH lake")
    return clock.seconds


def _list_by_stock_client(site: Site, catalog: str) -> float:
    with _attached(site, catalog), Clock() as clock:
        _expect(len(site.stock.execute("SHOW TABLES FROM lake").fetchall()), 2)
    return clock.seconds


def _list_by_us(site: Site, catalog: str) -> float:
    with Clock() as clock:
        _expect(len(site.lake(catalog).tables()), 2)
    return clock.seconds


def _list_by_view(site: Site, catalog: str) -> float:
    query = "SELECT schema_name, table_name FROM ducklake_api.tables WHERE catalog_name = %s"
    with Clock() as clock:
        _expect(len(site.tenant.execute(query, (catalog,)).fetchall()), 2)
    return clock.seconds


def _commit_one(site: Site, catalog: str) -> float:
    return _commit(site, catalog, 1)


def _commit_thousand(site: Site, catalog: str) -> float:
    return _commit(site, catalog, 1000)


def _commit(site: Site, catalog: str, count: int) -> float:
    lake = site.lake(catalog)
    table = lake.table("events")
    files = [written_file(table.data_path) for _ in range(count)]
    with Clock() as clock:
        append_files(lake, table, files)
    return clock.seconds


def _insert(site: Site, catalog: str) -> float:
    with _attached(site, catalog), Clock() as clock:
        site.stock.execute(insert_statement("events", 1000))
    return clock.seconds


def _drop(site: Site, catalog: str) -> float:
    with Clock() as clock:
        site.admin.drop_catalog(catalog)
    return clock.seconds


def _drop_fork(site: Site, catalog: str) -> float:
    name = f"brief-{next(site.numbers)}"
    site.admin.fork_catalog(catalog, name)
    with Clock() as clock:
        site.admin.drop_catalog(name)
    return clock.seconds


def _plan_fleet(store: FilledStore) -> float:
    """Return the milliseconds of one plan over all catalogs: each of them has small files."""
    with Clock() as clock:
        CatalogStore(store.service).plan_fleet()
    return 1000 * clock.seconds


# --- Help for the figures


def _memory() -> int:
    """Return how many bytes of memory the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@contextmanager
def _attached(site: Site, catalog: str) -> Iterator[None]:
    site.stock.execute(attach_statement(site.store.tenant, catalog))
    try:
        yield
    finally:
        site.stock.execute("DETACH lake")


def _expect(found: int, wanted: int) -> None:
    if found != wanted:
        raise AssertionError(f"{wanted} tables are there, {found} were listed")


FIGURES: Final = (
    Figure("connect (for comparison)", "read", _connect),
    Figure("create", "read", _create),
    Figure("create, connection included", "read", _create_alone),
    Figure("fork", "fork", _fork),
    Figure("fork again, connection included", "fork", _fork_alone),
    Figure("attach, stock client", "read", _attach),
    Figure("list tables, stock client", "read", _list_by_stock_client),
    Figure("list tables, ours", "read", _list_by_us),
    Figure("list tables, ducklake_api", "read", _list_by_view),
    Figure("list tables, ducklake_api, again", "read", _list_by_view),
    Figure("commit of 1 file", "commit", _commit_one),
    Figure("INSERT of 1,000 rows, stock client", "insert", _insert),
    Figure("commit of 1,000 files", "thousand", _commit_thousand, part=3),
    Figure("drop", "drop", _drop),
    Figure("drop a fork just made", "fork", _drop_fork),
)


def main(arguments: Sequence[str]) -> int:
    """Fill a store of each size, measure, print medians and their ratios.

    Returns:
        0, or 1 when the disk is too small.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks store", description=__doc__)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, help="catalogs of each store"
    )
    parser.add_argument("--repeat", type=int, default=30, help="runs of each figure (30)")
    parser.add_argument("--seconds", type=float, default=3, help="for each rate of commits (3)")
    parser.add_argument(
        "--shared-buffers",
        default=f"{_memory() // 4 >> 20}MB",
        help="of the server (a quarter of the memory)",
    )
    parser.add_argument("--directory", type=made_directory, help="where everything goes meanwhile")
    given = parser.parse_args(arguments)
    sizes = sorted(set(given.sizes))
    # Whoever ends this early shall not find gigabytes and a server left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="bench-store-", dir=given.directory) as home:
        need = sum(sizes) * BYTES_A_CATALOG + WAL_BYTES
        free = shutil.disk_usage(home).free
        print(f"{need / 1e9:.1f} GB are needed in {home}, {free / 1e9:.1f} GB are free", flush=True)
        if need > free:
            print("Give another place with --directory, or smaller --sizes", file=sys.stderr)
            return 1
        settings = ["max_connections = 200", f"shared_buffers = '{given.shared_buffers}'"]
        with running_server(Path(home), settings) as server, ExitStack() as stack:
            sites = [
                _open(stack, store, given.repeat + _WARM_UP)
                for store in fill(server, Path(home), sizes)
            ]
            _describe(sites, given)
            rows = _measure(sites, given.repeat)
            rows["fleet plan"] = [_plan_fleet(site.store) for site in sites]
            _print("Milliseconds, median", sizes, rows)
            _print("Commits a second", sizes, _measure_rates(sites, given.seconds))
    return 0


def _measure(sites: Sequence[Site], repeat: int) -> dict[str, list[float | None]]:
    """Return the median milliseconds of each figure in each store.

    The stores take turns, so that whatever else the machine does falls on all of them.
    """
    medians: dict[str, list[float | None]] = {}
    for figure in FIGURES:
        print(f"measuring: {figure.name}", flush=True)
        runs: list[list[float]] = [[] for _ in sites]
        for number in range(_WARM_UP + max(3, repeat // figure.part)):
            for site, found in zip(sites, runs, strict=True):
                found.append(figure.run(site, _catalog(site, figure.group, number)))
        medians[figure.name] = [1000 * statistics.median(found[_WARM_UP:]) for found in runs]
    return medians


def _open(stack: ExitStack, store: FilledStore, wanted: int) -> Site:
    """Open a store's sessions; choose catalogs and grant them to the tenant.

    Args:
        stack: Closes the sessions.
        store: The store.
        wanted: Catalogs for each group of figures.
    """
    # Not the first, of which more copies may be made.
    names = [
        catalog_name(i) for i in random.sample(range(2, store.size + 1), min(2000, store.size - 1))
    ]
    groups = dict.fromkeys(figure.group for figure in FIGURES)
    share = min(wanted, len(names) // len(groups))
    if not share:
        raise SystemExit(f"a store of {store.size} is too small: {len(groups) + 1} at least")
    catalogs = {group: [names.pop() for _ in range(share)] for group in groups}
    # The writers come last but may use the others' too; not those that were dropped.
    catalogs["write"] = names + [n for g in groups if g != "drop" for n in catalogs[g]]
    service, tenant = (
        stack.enter_context(psycopg.connect(conninfo, autocommit=True))
        for conninfo in (store.service, store.tenant)
    )
    service.execute(
        "SELECT ducklake.grant_catalog(name, %s, true) FROM unnest(%s::text[]) name",
        (TENANT, [*catalogs["write"], *catalogs["drop"]]),
    )
    stock = stack.enter_context(stock_session())
    admin = stack.enter_context(CatalogStore(store.service))
    return Site(store, admin, service, tenant, stock, catalogs, itertools.count(1))


def _catalog(site: Site, group: str, number: int) -> str:
    names = site.catalogs[group]
    if group != "drop":
        return names[number % len(names)]
    if number < len(names):
        return names[number]
    # A small store has not as many: another takes the place of the last that was dropped.
    with psycopg.connect(site.store.superuser) as connection:
        found = connection.execute(
            "SELECT nextval(pg_get_serial_sequence('ducklake.ducklake_catalog', 'catalog_id'))"
        ).fetchone()
        assert found is not None
        add_catalogs(connection, int(found[0]), int(found[0]))
    return catalog_name(int(found[0]))


def _measure_rates(sites: Sequence[Site], seconds: float) -> dict[str, list[float | None]]:
    """Return the commits a second in each store, for each number of writers."""
    rows: dict[str, list[float | None]] = {}
    for place in ("different catalogs", "one catalog"):
        for writers in WRITERS:
            name = f"{writers} writer{'s' if writers > 1 else ''}, {place}"
            print(f"measuring: {name}", flush=True)
            rows[name] = [_rate(site, writers, place == "one catalog", seconds) for site in sites]
    return rows


def _rate(site: Site, writers: int, together: bool, seconds: float) -> float | None:
    names = site.catalogs["write"]
    chosen = shares(names, writers, together=together)
    if chosen is None:
        return None
    used = {name for share in chosen for name in share}
    # The next rate begins with others.
    site.catalogs["write"] = [n for n in names if n not in used] + sorted(used)
    return commits_a_second(site.store.tenant, chosen, seconds)


# --- The report


def _describe(sites: Sequence[Site], given: argparse.Namespace) -> None:
    for site in sites:
        store = site.store
        print(
            f"{store.size:>9,} catalogs: {store.bytes / 1e6:,.0f} MB, "
            f"filled in {store.seconds:.0f} s"
        )
    version = sites[0].service.info.server_version // 10000
    print(
        f"PostgreSQL {version}, shared_buffers {given.shared_buffers}, otherwise as it comes; "
        f"{os.cpu_count()} cores; medians of {given.repeat}, each on another catalog; tenants see "
        "what they were granted"
    )


def _print(title: str, sizes: Sequence[int], rows: dict[str, list[float | None]]) -> None:
    """Print one column of figures and one of ratios for each size."""
    grid = Grid(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    grid.add_column("catalogs")
    for size in sizes:
        grid.add_column(f"{size:,}", justify="right")
        grid.add_column("ratio", justify="right")
    for name, values in rows.items():
        base = values[sizes.index(BASE)] if BASE in sizes else None
        cells = []
        for value in values:
            cells.append("–" if value is None else f"{value:,.1f}")
            cells.append(f"{value / base:.2f}" if value is not None and base else "–")
        grid.add_row(name, *cells)
    # As wide as it gets: a log has no width, and nothing is to be cut.
    Console(width=150).print(grid)
