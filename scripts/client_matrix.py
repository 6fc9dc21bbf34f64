"""Sends every version of the DuckLake extension through lakes of this package: see --help."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

# Started as a file, so the repository's root is not where Python looks.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.store_filling import running_server
from scripts.matrix_support.clients import Client, NotToBeHad, install, published_versions
from scripts.matrix_support.lakes import KINDS, MatrixLake, matrix_lake
from scripts.matrix_support.walk import ABSENT

# What versions of the extension say of a format that they do not know.
_REFUSED: Final = re.compile(r"version mismatch|Only DuckLake versions .+ are supported")


@dataclass(slots=True)
class Cell:
    """How one client fared with one kind of lake.

    Attributes:
        steps: How many went well.
        refused: It said that it does not know the format, and changed nothing.
        absent: What this version does not have.
        failed: Step and reason.
        own_faults: The same, of what the client cannot do in a lake of its own either.
    """

    steps: int = 0
    refused: bool = False
    absent: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    own_faults: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.refused and not self.failed:
            return "refused"
        parts = {"passed": self.steps, "failed": len(self.failed), "own": len(self.own_faults)}
        return ", ".join(f"{count} {name}" for name, count in parts.items() if count)


def go_through(client: Client, lake: MatrixLake) -> Cell:
    """Send a client through a lake, do our upkeep, send it again."""
    cell = Cell()
    before, others = lake.fingerprint(), lake.neighbours()
    report = client.walk(lake.place(lake.history, writes=True))
    if report["attach"]:
        cell.refused = _REFUSED.search(report["attach"]) is not None
        if not cell.refused:
            cell.failed["attach"] = report["attach"]
        if lake.fingerprint() != before:
            cell.failed["leave alone"] = "the catalog was changed"
    else:
        _note(cell, report["steps"])
        if wrong := lake.maintain():
            cell.failed["our upkeep"] = wrong
        again = client.walk(lake.place(report["history"], writes=False))
        _note(cell, {"attach after us": again["attach"], **again["steps"]})
    if lake.neighbours() != others:
        cell.failed["neighbours"] = "rows or files of other catalogs of the store were changed"
    return cell


def set_apart_own_faults(client: Client, cell: Cell, directory: Path) -> None:
    """Let the client do the same in a lake that it makes itself; what fails there is its own."""
    if not cell.failed:
        return
    directory.mkdir()
    report = client.walk(
        {
            "attach": f"ducklake:sqlite:{directory}/catalog.sqlite",
            "options": {"DATA_PATH": f"'{directory}/data/'"},
            "data_path": f"{directory}/data/",
            "history": {},
            "writes": True,
        }
    )
    for name, reason in report["steps"].items():
        if reason and reason != ABSENT and name in cell.failed:
            cell.own_faults[name] = cell.failed.pop(name)


def _note(cell: Cell, steps: dict[str, str | None]) -> None:
    for name, reason in steps.items():
        if reason == ABSENT:
            cell.absent.append(name)
        elif reason:
            cell.failed[name] = reason
        else:
            cell.steps += 1


def _reasons(where: str, cell: Cell) -> Iterator[str]:
    for name, reason in cell.failed.items():
        yield f"{where}: {name}: {reason[:300]}"
    for name, reason in cell.own_faults.items():
        yield f"{where}: {name}, a fault of the client in any lake: {reason[:300]}"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        yield f"| {' | '.join(cells)} |"
        if number == 0:
            yield f"| {' | '.join('-' * width for width in widths)} |"


def main() -> int:
    """Print a table, a row for each version; return 1 when a step failed, else 0."""
    parser = argparse.ArgumentParser(
        description="Install each version of DuckDB and its DuckLake extension into an environment "
        "of its own, and let it read, write, alter and maintain lakes of this package: in a shared "
        "store as a tenant and as the service, in a PostgreSQL schema, in SQLite and in DuckDB. "
        "Rows of every snapshot are compared with a model; other catalogs of the store must not "
        "change. A step is the client's `own` fault when it fails in a lake of its making, too."
    )
    parser.add_argument("versions", nargs="*", help="of DuckDB; all that have a wheel by default")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="kinds of lake")
    parser.add_argument(
        "--environments",
        type=Path,
        default=Path(tempfile.gettempdir(), "ducklake-clients"),
        help="where the clients are installed, and found the next time (%(default)s)",
    )
    parser.add_argument(
        "--download",
        action="store_true",
        help="let DuckDB fetch its extensions, for versions of which no wheel exists",
    )
    given = parser.parse_args()
    try:
        versions = given.versions or published_versions()
    except NotToBeHad as error:
        print(error, file=sys.stderr)
        return 1
    rows, told, failed = [["DuckDB", *given.kinds]], [], False
    with (
        tempfile.TemporaryDirectory(prefix="matrix-") as home,
        running_server(Path(home), ["fsync = off"]) as server,
    ):
        for number, version in enumerate(versions):
            print(f"{version} …", file=sys.stderr, flush=True)
            try:
                client = install(version, given.environments, download=given.download)
            except NotToBeHad as error:
                told.append(f"{version}: not to be had: {error}")
                continue
            cells = []
            for at, kind in enumerate(given.kinds):
                name = f"lake_{number}_{at}"
                with matrix_lake(kind, Path(home, name), server, name) as lake:
                    cells.append(go_through(client, lake))
                set_apart_own_faults(client, cells[-1], Path(home, f"{name}_own"))
                failed = failed or bool(cells[-1].failed)
                told += list(_reasons(f"{version}, {kind}", cells[-1]))
            rows.append([version, *map(str, cells)])
            absent = sorted({name for cell in cells for name in cell.absent})
            if absent:
                told.append(f"{version} has no {', '.join(absent)}")
    print("\n".join(_table(rows)))
    print("\n".join(told))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
