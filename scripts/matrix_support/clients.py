"""DuckDB with its DuckLake extension, each version in an environment of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

EXTENSIONS: Final = ("ducklake", "postgres_scanner", "sqlite_scanner")
_WALK: Final = Path(__file__).with_name("walk.py")
_LONGEST: Final = 600  # seconds for one way through one lake
_FIND: Final = """
import importlib.util, json, pathlib, sys
found = {}
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for path in pathlib.Path(root).rglob(f"{name}.duckdb_extension"):
            found[name] = str(path)
print(json.dumps(found))
"""


class NotToBeHad(Exception):
    """A version, or an extension for it, cannot be installed."""


@dataclass(frozen=True, slots=True)
class Client:
    """An installed client.

    Attributes:
        version: Of DuckDB and of the extensions.
        python: Its interpreter.
        extensions: Name to file; those missing are fetched by DuckDB itself.
    """

    version: str
    python: Path
    extensions: Mapping[str, str]

    def walk(self, place: Mapping[str, Any]) -> dict[str, Any]:
        """Send the client through a lake and return its report, see walk.py.

        Args:
            place: The lake: `attach`, `options`, `data_path`, `history`, `writes`.
        """
        done = subprocess.run(
            [str(self.python), "-I", str(_WALK)],
            input=json.dumps({**place, "extensions": dict(self.extensions)}),
            capture_output=True,
            text=True,
            timeout=_LONGEST,
            check=False,
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            return {"attach": f"the client died: {last}", "steps": {}, "history": {}}
        report: dict[str, Any] = json.loads(done.stdout)
        return report


def published_versions() -> list[str]:
    """Return the versions of the DuckLake extension that pip can install, oldest first.

    Raises:
        NotToBeHad: pip does not say.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", "duckdb-extension-ducklake"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"Available versions: (.+)", done.stdout)
    if found is None:
        raise NotToBeHad(f"pip knows no version of the extension: {done.stderr.strip()[-300:]}")
    return sorted((v.strip() for v in found[1].split(",")), key=_order)


def install(version: str, directory: Path, *, download: bool) -> Client:
    """Return a client, installed into an environment below a directory unless it is there.

    Args:
        version: Of DuckDB.
        directory: Where environments are kept from one run to the next.
        download: Let DuckDB fetch its extensions where there are no wheels of them.

    Raises:
        NotToBeHad: pip does not find the version, or its extensions.
    """
    home = directory / version
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        venv.create(home, with_pip=True, clear=True)
        wheels = [f"duckdb-extension-{n.replace('_', '-')}=={version}" for n in EXTENSIONS]
        _pip(python, [f"duckdb=={version}", "pytz"])
        if not download:
            _pip(python, wheels)
        (home / "complete").touch()
    found = subprocess.run(
        [str(python), "-I", "-c", _FIND, *EXTENSIONS], capture_output=True, text=True, check=True
    )
    return Client(version, python, json.loads(found.stdout))


def _pip(python: Path, wheels: Sequence[str]) -> None:
    command = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *wheels,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise NotToBeHad(reason)


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
