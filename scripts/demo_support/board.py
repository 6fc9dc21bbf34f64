"""What a person sees: progress while the tenants run, and the table at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Final

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from scripts.demo_support.check import Verdict
from scripts.demo_support.reference import Measure
from scripts.demo_support.steps import TOTAL, Course, Step

WIDTH: Final = 100
# Of the figures in a line: snapshot, files, files on disk, megabytes, rows, time.
_WIDTHS: Final = (8, 8, 8, 12, 8, 8)
_COLOURS: Final = {"EWR": "cyan", "JFK": "magenta", "LGA": "green"}


class Board:
    """Prints a line for each step, and on a terminal a bar for each tenant below them."""

    def __init__(self, console: Console) -> None:
        """Show everything on a console."""
        self._console = console
        self._began = time.monotonic()
        self._bars: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.fields[tenant]}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[doing]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Board:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print one line of what the demo itself does."""
        self._line(Text(text))

    def explain(self) -> None:
        """Print what the figures of the lines to come are."""
        names = ("snapshot", "files", "on disk", "MB on disk", "rows", "time")
        figures = "".join(f" {name:>{width}}" for name, width in zip(names, _WIDTHS, strict=True))
        self._line(Text(f"     {'step':<28}{figures}", style="dim"))

    def begin(self, course: Course) -> None:
        """Show a tenant's bar."""
        name = _name(course.tenant).markup
        self._bars[course.tenant] = self._progress.add_task(
            "", total=TOTAL, tenant=name, doing="starting Airflow"
        )

    def running(self, course: Course) -> None:
        """Say what a tenant's DAG does now."""
        self._progress.update(self._bars[course.tenant], doing=f"{course.running} …")

    def finished(self, course: Course, step: Step | None) -> None:
        """Print the line of a step that is done."""
        self._progress.update(self._bars[course.tenant], completed=course.done, doing="")
        if step is None:
            return
        line = Text.assemble(_name(course.tenant), f"  {step.label:<28}")
        for text, width in zip(_figures(step), _WIDTHS, strict=False):
            line.append(f" {text:>{width}}", style="" if _changes(text) else "dim")
        line.append(f" {step.seconds:{_WIDTHS[-1] - 2}.1f} s", style="bold")
        self._line(line)

    def failed(self, course: Course) -> None:
        """Print why a tenant's run ended."""
        self._line(Text.assemble(_name(course.tenant), ("  failed: ", "bold red"), course.error))

    def ended(self, course: Course) -> None:
        """Take a tenant's bar away."""
        self._progress.remove_task(self._bars[course.tenant])

    def _line(self, text: Text) -> None:
        elapsed = time.monotonic() - self._began
        clock = f"{int(elapsed) // 60:2}:{int(elapsed) % 60:02}"
        self._progress.console.print(Text.assemble((clock, "dim"), "  ", text), soft_wrap=True)


def show_tables(console: Console, courses: Iterable[Course], catalog: str) -> None:
    """Print a table with a section for each tenant."""
    table = Table(
        title=f"What each step did to the lakes ({catalog} catalogs)",
        title_style="bold",
        header_style="bold",
        border_style="dim",
        box=box.SIMPLE_HEAVY,
        show_edge=False,
        padding=(0, 1, 0, 0),
        width=min(WIDTH, console.width),
    )
    table.add_column("Step", no_wrap=True, ratio=1)
    for name in ("Snapshot", "Live files", "On disk", "MB on disk", "Rows", "Seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for course in courses:
        table.add_row(_name(course.tenant), *[""] * 5, style="bold")
        for step in course.steps:
            figures = [Text(text, style="" if _changes(text) else "dim") for text in _figures(step)]
            table.add_row(f"  {step.label}", *figures, f"{step.seconds:.1f}")
        total = sum(step.seconds for step in course.steps)
        table.add_row(Text("  together", style="italic"), *[""] * 5, f"{total:.1f}")
        table.add_section()
    console.print()
    console.print(table)


def show_verdicts(console: Console, verdicts: Iterable[Verdict]) -> None:
    """Print what the independent check found, a line a tenant and one for each fault."""
    console.print()
    console.print(Text("Checked by the unmodified ducklake extension of DuckDB:", style="bold"))
    for verdict in verdicts:
        mark = ("✔", "bold green") if verdict.right else ("✘", "bold red")
        found = (
            f" {verdict.snapshots} kept snapshots, {verdict.tables} tables, {verdict.rows:,} rows: "
        )
        word = "all of them right" if verdict.right else "NOT right"
        line = Text.assemble("  ", mark, " ", _name(verdict.tenant), found, word)
        console.print(line, soft_wrap=True)
        for fault in verdict.faults:
            console.print(Text(f"      {fault}", style="red"), soft_wrap=True)


def _name(tenant: str) -> Text:
    return Text(tenant, style=f"bold {_COLOURS.get(tenant, 'blue')}")


def _figures(step: Step) -> list[str]:
    before, after = step.before, step.after
    none = Measure(-1, 0, 0, 0, 0, 0)
    earlier = before or none
    snapshot = str(after.snapshot) if before is None else _arrow(earlier.snapshot, after.snapshot)
    return [
        snapshot,
        _arrow(earlier.live, after.live),
        _arrow(earlier.stored, after.stored),
        _arrow(_megabytes(earlier.size), _megabytes(after.size)),
        f"{after.rows:,}",
    ]


def _arrow(before: object, after: object) -> str:
    return f"{after}" if before == after else f"{before} → {after}"


def _changes(text: str) -> bool:
    return "→" in text


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:.2f}"
