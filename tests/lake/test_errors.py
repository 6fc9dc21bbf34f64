"""What errors say to who has to act on them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import airflow_provider_ducklake

PACKAGE = Path(airflow_provider_ducklake.__file__).parent


def _raised(name: str) -> Iterator[tuple[str, str]]:
    """Yield where an error is raised by its name, and the fixed parts of what it says."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
                continue
            if isinstance(node.exc.func, ast.Name) and node.exc.func.id == name:
                parts = [p.value for p in ast.walk(node.exc) if isinstance(p, ast.Constant)]
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", "".join(map(str, parts))


def test_who_was_beaten_is_told_to_go_again() -> None:
    told = dict(_raised("CommitConflict"))
    silent = [where for where, text in told.items() if "again" not in text]
    # What became of a catalog in a bucket, and what to do, is worked out where it is raised.
    assert [where.partition(":")[0] for where in silent] == ["lake/remote_catalog.py"]
    assert len(told) > 15
