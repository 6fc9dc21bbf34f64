"""Many small tenants maintained in one application, against a submission for each of them."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo

from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.store.fleet_policy import FleetBatch, FleetPolicy
from airflow_provider_ducklake.lake.store.store import CatalogStore
from benchmarks.common import made_directory, one
from benchmarks.store_filling import (
    add_catalogs,
    attach_statement,
    catalog_name,
    running_server,
    stock_session,
)
from benchmarks.submissions import Took, submit

SMALL_FILES: Final = 8
_ROWS: Final = 200  # a file
_POLICY: Final = FleetPolicy(max_catalogs=100_000, batch_catalogs=100_000)
# Nobody waits sixty days for a benchmark.
_AGE: Final = (
    "UPDATE ducklake.ducklake_snapshot SET snapshot_time = snapshot_time - interval '60 days' "
    "WHERE snapshot_id < (SELECT max(snapshot_id) FROM ducklake.ducklake_snapshot)",
    "UPDATE ducklake.ducklake_files_scheduled_for_deletion "
    "SET schedule_start = schedule_start - interval '60 days'",
)


def main(arguments: Sequence[str]) -> int:
    """Fill a store, submit some catalogs one by one, all others together; print the ratios.

    Returns:
        0, or 1 when a catalog was not maintained, or its rows changed.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks fleet", description=__doc__)
    parser.add_argument("--catalogs", type=int, default=500, help="in one application (500)")
    parser.add_argument("--sample", type=int, default=5, help="submitted one by one (5)")
    parser.add_argument("--master", default="local[2]", help="of Spark (local[2])")
    parser.add_argument("--directory", type=made_directory, help="where everything goes meanwhile")
    given = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="bench-fleet-", dir=given.directory) as home,
        running_server(Path(home), []) as server,
    ):
        conninfo = make_conninfo(server, dbname="postgres")
        _fill(conninfo, Path(home), given.catalogs + given.sample)
        (batch,) = CatalogStore(conninfo).plan_fleet(_POLICY).batches
        names = [catalog_name(i + 1) for i in range(given.catalogs + given.sample)]
        steps = batch.catalogs[names[0]]
        print(f"{len(batch.catalogs)} catalogs need {', '.join(steps)}", flush=True)
        postmaster = int(Path(home, "pg", "postmaster.pid").read_text().split()[0])

        def run(chosen: Sequence[str]) -> Took:
            part = FleetBatch({name: batch.catalogs[name] for name in chosen}, batch.policy)
            options = {"work": json.dumps(part.to_dict())}
            attach = f"ducklake:postgres:{conninfo}"
            return submit(
                "fleet_maintenance", attach, options, master=given.master, postmaster=postmaster
            )

        singles = [run([name]) for name in names[given.catalogs :]]
        together = run(names[: given.catalogs])
        _report(singles, together, given.catalogs)
        return _check(conninfo, names)


def _fill(conninfo: str, home: Path, size: int) -> None:
    """Make catalogs with small files to merge, snapshots to expire and files to delete."""
    store, root = CatalogStore(conninfo), f"{home}/lakes/"
    store.init(root)
    template = catalog_name(1)
    store.create_catalog(template)
    with stock_session() as session:
        session.execute(attach_statement(conninfo, template))
        session.execute("CREATE TABLE lake.events (id bigint, amount double, note varchar)")
        session.execute("CREATE TABLE lake.gone AS SELECT * FROM range(1000)")
        session.execute("DROP TABLE lake.gone")
        session.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
        for at in range(SMALL_FILES):
            session.execute(
                f"INSERT INTO lake.events SELECT i, i / 7, 'note ' || i "
                f"FROM range({at * _ROWS}, {(at + 1) * _ROWS}) t(i)"
            )
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for statement in _AGE:
            connection.execute(statement)
        add_catalogs(connection, 2, size)
        connection.execute("VACUUM (ANALYZE)")

    def copy(number: int) -> None:
        shutil.copytree(f"{root}{template}", f"{root}{catalog_name(number)}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(copy, range(2, size + 1)))


def _report(singles: Sequence[Took], together: Took, catalogs: int) -> None:
    print(f"{'seconds':>40}{'wall':>10}{'CPU':>10}{'database':>10}")
    rows = {
        "one submission": _medians(singles),
        f"{catalogs} submissions would take": [catalogs * t for t in _medians(singles)],
        f"{catalogs} catalogs in one application": _figures(together),
    }
    for name, figures in rows.items():
        print(f"{name:>40}" + "".join(f"{figure:10.2f}" for figure in figures))
    wall, cpu, database = (
        catalogs * before / after
        for before, after in zip(_medians(singles), _figures(together), strict=True)
    )
    print(f"{'times as much':>40}{wall:10.1f}{cpu:10.1f}{database:10.1f}")
    alone = statistics.median(single.result["seconds"] for single in singles)
    share = together.result["seconds"] / catalogs
    print(
        f"without starting and stopping Spark: {alone:.2f} s a catalog alone, "
        f"{share:.3f} s together"
    )


def _figures(took: Took) -> tuple[float, float, float]:
    return took.seconds, took.cpu_seconds, took.database_seconds


def _medians(taken: Sequence[Took]) -> list[float]:
    return [statistics.median(column) for column in zip(*map(_figures, taken), strict=True)]


def _check(conninfo: str, names: Sequence[str]) -> int:
    """Return 1 if a catalog has not the one file, or the rows it should have, else 0."""
    left = CatalogStore(conninfo).plan_fleet(_POLICY)
    wrong = [work.catalog for work in left.work]
    expected = (SMALL_FILES * _ROWS, sum(range(SMALL_FILES * _ROWS)))
    with stock_session() as session:
        for name in names[:: max(1, len(names) // 20)]:
            session.execute(attach_statement(conninfo, name))
            found = one(session, "SELECT count(*), sum(id)::BIGINT FROM lake.events")
            session.execute("DETACH lake")
            files = list(Path(_root(conninfo, name)).rglob("*.parquet"))
            if found != expected or len(files) != SMALL_FILES + 1:
                wrong.append(f"{name} ({found}, {len(files)} files)")
    if wrong:
        print(f"not as they should be: {', '.join(wrong[:10])}", file=sys.stderr)
    return 1 if wrong else 0


def _root(conninfo: str, name: str) -> str:
    location = CatalogLocation.parse(f"ducklake:postgres:{conninfo}", catalog=name)
    return CatalogStore.at(location).catalog(name).root
