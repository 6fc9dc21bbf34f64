"""The walls between the floors: what each may import, how long a module may be, how SQL is built.

Ruff holds the same walls statement by statement; here each floor is also really imported while what
it must not need is out of reach.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = "airflow_provider_ducklake"
ROOT: Final = Path(__file__).resolve().parent.parent
MAX_LINES: Final = 450


@dataclass(frozen=True, slots=True)
class Floor:
    """What one floor may import.

    Attributes:
        name: The folder of the floor in the package.
        blocked: Other people's packages it must run without.
        allowed: Modules of this package that it may import besides its own.
    """

    name: str
    blocked: tuple[str, ...]
    allowed: tuple[str, ...]


FLOORS: Final = (
    Floor("storage", ("airflow", "pyspark"), ("lake.errors",)),
    Floor("lake", ("airflow", "pyspark"), ("storage",)),
    Floor("kernels", ("airflow", "pyspark"), ("lake", "storage")),
    Floor("spark", ("airflow",), ("kernels", "lake", "storage")),
)
FLOOR_NAMES: Final = tuple(floor.name for floor in FLOORS)

# What a DAG file must not pull in while it is parsed. PySpark comes in two wheels, one module name.
HEAVY: Final = ("duckdb", "obstore", "pandas", "psycopg", "pyarrow", "pyspark")

# Arguments: the package, the floor (empty: the Airflow surface), the names of the floors, the
# blocked packages. Prints what it imported, so that success can be told from finding nothing.
_IMPORT_ALL: Final = '''
import importlib
import importlib.abc
import pkgutil
import sys

PACKAGE, floor, below, blocked = sys.argv[1:]
below, blocked = below.split(), blocked.split()


class Wall(importlib.abc.MetaPathFinder):
    """Refuse the blocked packages, and say who asked by the traceback."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ImportError(f"the wall of {floor or 'the surface'} is broken by {name}")
        return None


sys.meta_path.insert(0, Wall())


def import_below(package):
    """Import everything below a package and print its name."""
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        last = found.name.rpartition(".")[2]
        if last == "__main__" or (package.__name__ == PACKAGE and last in below):
            continue
        module = importlib.import_module(found.name)
        print(found.name)
        if found.ispkg:
            import_below(module)


import_below(importlib.import_module(f"{PACKAGE}.{floor}" if floor else PACKAGE))
'''


def modules(*folders: str) -> list[Path]:
    """Return the package's modules below some of its folders, or all of them."""
    starts = [ROOT / PACKAGE / folder for folder in folders] or [ROOT / PACKAGE]
    return sorted(path for start in starts for path in start.rglob("*.py"))


def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def where(path: Path, node: ast.AST) -> str:
    """Return the place of a node as an editor understands it."""
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def import_all(floor: str, blocked: tuple[str, ...]) -> list[str]:
    """Import every module of a floor in a new interpreter that lacks some packages.

    Args:
        floor: The folder of the floor; empty for everything above the floors.
        blocked: Packages whose import fails there.

    Returns:
        The names of the modules that were imported.
    """
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            _IMPORT_ALL,
            PACKAGE,
            floor,
            " ".join(FLOOR_NAMES),
            " ".join(blocked),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.mark.parametrize("floor", FLOORS, ids=lambda floor: floor.name)
def test_floor_imports_without_the_floors_above(floor: Floor) -> None:
    """Each floor runs where the packages of the floors above are not installed."""
    imported = import_all(floor.name, floor.blocked) if modules(floor.name) else []
    expected = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in modules(floor.name)
        # A script in a folder that is no package is run by its path, never imported.
        if path.name not in {"__init__.py", "__main__.py"}
        and path.with_name("__init__.py").exists()
    }
    assert expected <= set(imported)


def test_surface_imports_nothing_heavy() -> None:
    """Parsing a DAG file that uses the operators loads no database driver, Arrow or Spark."""
    assert all(name.startswith(f"{PACKAGE}.") for name in import_all("", HEAVY))


@pytest.mark.parametrize("blocked", ["airflow", "pyspark"])
def test_wall_holds(blocked: str) -> None:
    """The wall of the tests above is one: a blocked package cannot be imported behind it."""
    wall, _, _ = _IMPORT_ALL.partition("def import_below")
    result = subprocess.run(
        [sys.executable, "-c", f"{wall}\nimport {blocked}", PACKAGE, "lake", "", blocked],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert f"the wall of lake is broken by {blocked}" in result.stderr


def imported_names(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield every import of a module, wherever it stands, by its full name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


def is_within(name: str, packages: tuple[str, ...]) -> bool:
    """Tell whether a dotted name is one of some packages or lies below one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def crossing_imports(floor: Floor, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield the imports of a module that its floor may not have, late and typing-only ones too."""
    own = (PACKAGE, f"{PACKAGE}.__version__")
    allowed = tuple(f"{PACKAGE}.{name}" for name in (floor.name, *floor.allowed))
    for node, name in imported_names(tree):
        inside = is_within(name, (PACKAGE,))
        if is_within(name, floor.blocked) or (
            inside and name not in own and not is_within(name, allowed)
        ):
            yield node, name


@pytest.mark.parametrize("floor", FLOORS, ids=lambda floor: floor.name)
def test_imports_only_go_down(floor: Floor) -> None:
    """No module imports a floor above its own, not even inside a function."""
    crossing = [
        f"{where(path, node)} imports {name}"
        for path in modules(floor.name)
        for node, name in crossing_imports(floor, parse(path))
    ]
    assert crossing == []


@pytest.mark.parametrize(
    ("statement", "crosses"),
    [
        ("import airflow.sdk", True),
        ("def late():\n    from pyspark.sql import SparkSession", True),
        (f"from {PACKAGE}.hooks.ducklake import DuckLakeHook", True),
        (f"from {PACKAGE} import spark", True),
        (f"import {PACKAGE}.kernels", True),
        (f"from {PACKAGE}.lake.errors import LakeError", False),
        (f"from {PACKAGE} import storage, __version__", False),
        ("import airflowish", False),
    ],
)
def test_crossing_import_is_seen(statement: str, crosses: bool) -> None:
    """What counts as crossing a wall, for a module of lake/."""
    lake = next(floor for floor in FLOORS if floor.name == "lake")
    assert bool(list(crossing_imports(lake, ast.parse(statement)))) is crosses


@pytest.mark.parametrize("floor", FLOORS, ids=lambda floor: floor.name)
def test_ruff_holds_the_wall(floor: Floor) -> None:
    """Ruff reports the same crossings while the code is being written."""
    statements = [f"import {name}" for name in floor.blocked]
    statements += [f"import {PACKAGE}.hooks.ducklake", f"import {PACKAGE}.operators.ingest"]
    result = subprocess.run(
        [
            *(sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise"),
            *("--select", "TID251", "--stdin-filename", f"{PACKAGE}/{floor.name}/example.py", "-"),
        ],
        input="\n".join(statements),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.stdout.count("TID251") == len(statements), result.stdout + result.stderr


def strings(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the string constants of a module that are not docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_string = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_string and id(node) not in docstrings:
            yield node


LOADS_EXTENSION: Final = re.compile(
    r"\b(?:load|install)\s+[\"'\w/.-]*ducklake|duckdb_extension_ducklake|ducklake\.duckdb_extension",
    re.IGNORECASE,
)


def extension_loads(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the places of a module that load the DuckLake extension, as SQL, file or method."""
    yield from (node for node in strings(tree) if LOADS_EXTENSION.search(ast.unparse(node)))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"load_extension", "install_extension"}
            and "ducklake" in ast.unparse(node)
        ):
            yield node


def test_only_the_hook_loads_the_extension() -> None:
    """The package speaks DuckLake by itself; the hook loads the reference client for its users."""
    hooks = ROOT / PACKAGE / "hooks"
    loads = [
        where(path, node)
        for path in modules()
        if not path.is_relative_to(hooks)
        for node in extension_loads(parse(path))
    ]
    assert loads == []


@pytest.mark.parametrize(
    ("statement", "loads"),
    [
        ("connection.execute('LOAD ducklake')", True),
        ("connection.execute(\"install 'ducklake'\")", True),
        ("sql = 'LOAD /x/extensions/v1.5.5/ducklake.duckdb_extension'", True),
        ("connection.load_extension('ducklake')", True),
        ("'LOAD ducklake is what we never say'", False),
        ("attach = 'ducklake:sqlite:catalog.sqlite'", False),
        ("connection.load_extension('httpfs')", False),
    ],
)
def test_extension_load_is_seen(statement: str, loads: bool) -> None:
    """What counts as loading the extension."""
    assert bool(list(extension_loads(ast.parse(statement)))) is loads


def test_modules_are_short() -> None:
    """One idea a module: none is longer than 450 lines."""
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    too_long = {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MAX_LINES}
    assert too_long == {}


def is_interpolated(sql: ast.expr) -> bool:
    """Tell whether an expression is SQL text with something formatted into it.

    Looks through concatenation, conditions and what merely wraps a text, such as `psycopg.sql.SQL`
    or a method of the text itself. An f-string further down, in `Identifier(f"…")` say, is a name
    that gets quoted.
    """
    if isinstance(sql, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in sql.values)
    parts: list[ast.expr] = []
    if isinstance(sql, ast.BinOp):
        parts = [sql.left, sql.right]
    elif isinstance(sql, ast.IfExp):
        parts = [sql.body, sql.orelse]
    elif isinstance(sql, ast.NamedExpr):
        parts = [sql.value]
    elif isinstance(sql, ast.Call):
        name = ast.unparse(sql.func).rpartition(".")[2]
        parts = sql.args if name in {"SQL", "dedent"} else []
        if isinstance(sql.func, ast.Attribute):
            parts = [*parts, sql.func.value]
    return any(is_interpolated(part) for part in parts)


def interpolated_statements(tree: ast.Module) -> Iterator[ast.Call]:
    """Yield the calls of `execute` and `executemany` whose statement is an f-string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in {"execute", "executemany"} and is_interpolated(node.args[0]):
                yield node


def test_no_statement_is_an_f_string() -> None:
    """Values are bound and identifiers quoted; no f-string is executed on a catalog.

    The kernels are let off: they run on a private DuckDB in memory, whose COPY and read_parquet
    take no parameters, and quote what goes in by `lake.identifiers`.
    """
    statements = [
        where(path, node)
        for path in modules()
        if "kernels" not in path.parts
        for node in interpolated_statements(parse(path))
    ]
    assert statements == []


@pytest.mark.parametrize(
    ("statement", "interpolated"),
    [
        ("c.execute(f'SELECT {x}')", True),
        ("execute(f'SELECT {x}')", True),
        ("c.executemany('DELETE FROM t ' + f'WHERE a = {x}', rows)", True),
        ("c.execute(sql.SQL(f'SELECT {x}').format(t))", True),
        ("c.execute(f'SELECT {x}'.strip())", True),
        ("c.execute('a' if y else f'{x}')", True),
        ("c.execute('SELECT ?', [f'{x}%'])", False),
        ("c.execute(SQL('SELECT {}').format(Identifier(f'ducklake_{x}')))", False),
        ("c.execute(f'SELECT 1')", False),
        ("operator.execute(context)", False),
    ],
)
def test_interpolated_statement_is_seen(statement: str, interpolated: bool) -> None:
    """What counts as executing an f-string."""
    assert bool(list(interpolated_statements(ast.parse(statement)))) is interpolated
