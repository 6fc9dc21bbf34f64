"""The documentation names every option, argument, field and class there is, and no other."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, Final

import pytest

from airflow_provider_ducklake.hooks.connection_form import conn_fields
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.fsck.classes import CLASSES
from airflow_provider_ducklake.operators.add_data_files import DuckLakeAddDataFilesOperator
from airflow_provider_ducklake.operators.base import DuckLakeSparkOperator
from airflow_provider_ducklake.operators.catalog import (
    DuckLakeCreateCatalogOperator,
    DuckLakeDropCatalogOperator,
    DuckLakeForkCatalogOperator,
    DuckLakeGrantCatalogOperator,
    DuckLakePurgeCatalogsOperator,
    DuckLakeRenameCatalogOperator,
    DuckLakeRevokeCatalogOperator,
    DuckLakeStoreOperator,
)
from airflow_provider_ducklake.operators.checkpoint import DuckLakeCheckpointOperator
from airflow_provider_ducklake.operators.cleanup import (
    DuckLakeCleanupOldFilesOperator,
    DuckLakeDeleteOrphanedFilesOperator,
)
from airflow_provider_ducklake.operators.compaction import (
    DuckLakeFlushInlinedDataOperator,
    DuckLakeMergeAdjacentFilesOperator,
    DuckLakeRewriteDataFilesOperator,
)
from airflow_provider_ducklake.operators.fleet import (
    DuckLakeFleetMaintenanceOperator,
    DuckLakeFleetPlanOperator,
)
from airflow_provider_ducklake.operators.fsck import DuckLakeFsckOperator
from airflow_provider_ducklake.operators.ingest import DuckLakeIngestOperator
from airflow_provider_ducklake.operators.snapshots import (
    DuckLakeExpireSnapshotsOperator,
    DuckLakeRestoreOperator,
)
from airflow_provider_ducklake.operators.transfer import (
    DuckLakeExportCatalogOperator,
    DuckLakeImportCatalogOperator,
)
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from airflow_provider_ducklake.spark.cli import parser
from airflow_provider_ducklake.spark.operations import OPERATIONS
from airflow_provider_ducklake.spark.source.options import READ_OPTIONS, WRITE_OPTIONS
from airflow_provider_ducklake.triggers.watcher import DuckLakeSnapshotEventTrigger

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs"
OPERATORS: Final[tuple[type[DuckLakeSparkOperator], ...]] = (
    DuckLakeIngestOperator,
    DuckLakeAddDataFilesOperator,
    DuckLakeMergeAdjacentFilesOperator,
    DuckLakeRewriteDataFilesOperator,
    DuckLakeFlushInlinedDataOperator,
    DuckLakeExpireSnapshotsOperator,
    DuckLakeRestoreOperator,
    DuckLakeCleanupOldFilesOperator,
    DuckLakeDeleteOrphanedFilesOperator,
    DuckLakeCheckpointOperator,
    DuckLakeFleetMaintenanceOperator,
    DuckLakeFsckOperator,
)
CATALOG_OPERATORS: Final[tuple[type[DuckLakeStoreOperator], ...]] = (
    DuckLakeCreateCatalogOperator,
    DuckLakeForkCatalogOperator,
    DuckLakeRenameCatalogOperator,
    DuckLakeDropCatalogOperator,
    DuckLakeGrantCatalogOperator,
    DuckLakeRevokeCatalogOperator,
    DuckLakePurgeCatalogsOperator,
    DuckLakeImportCatalogOperator,
    DuckLakeExportCatalogOperator,
)
# Those that run without Spark.
OTHER_OPERATORS: Final[tuple[type[Any], ...]] = (DuckLakeFleetPlanOperator, *CATALOG_OPERATORS)
# Documented once for all operators that have them.
TABLES: Final = {"table", "tables"}


def section(heading: str) -> str:
    """Return the text below the one heading of that name in the documentation."""
    found = []
    for page in sorted(DOCS.glob("*.md")):
        parts = re.split(r"^(#+ .*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        found += [parts[i + 1] for i in range(1, len(parts), 2) if parts[i].lstrip("# ") == heading]
    assert len(found) == 1, f"{len(found)} headings {heading!r} in docs/"
    return found[0]


def tables(text: str) -> dict[str, list[list[str]]]:
    """Return the tables of a text, rows as lists of cells, by the name of their first column."""
    found: dict[str, list[list[str]]] = {}
    for block in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        rows = [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            for line in block.splitlines()
        ]
        assert all(len(row) == len(rows[0]) for row in rows), rows
        found[rows[0][0]] = rows[2:]
    return found


def names(rows: list[list[str]]) -> list[str]:
    """Return the names in the first column, several in one cell counted each."""
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]


def own_arguments(operator: type[Any]) -> set[str]:
    """Return the arguments of an operator that its base does not have."""
    parameters = inspect.signature(operator.__init__).parameters
    return set(parameters) - {"self", "kwargs"}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_option_is_documented(operation: str) -> None:
    """Each operation's section has a table of exactly the options the operation reads."""
    documented = tables(section(f"`{operation}`")).get("Option", [])
    assert sorted(names(documented)) == sorted(OPERATIONS[operation][1])
    assert all(len(row) == 3 and row[2] for row in documented), "name, default and meaning"


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_argument_is_documented(operator: type[DuckLakeSparkOperator]) -> None:
    """What an operator takes is an option of its operation or stands in a table of its section."""
    text = section(f"`{operator.operation}`")
    documented = {name for rows in tables(text).values() for name in names(rows)}
    arguments = own_arguments(operator) - TABLES
    assert arguments - documented == set()
    assert operator.__name__ in text
    assert set(operator.options) <= set(OPERATIONS[operator.operation][1])


@pytest.mark.parametrize("operator", CATALOG_OPERATORS)
def test_every_argument_of_a_catalog_operator_is_documented(
    operator: type[DuckLakeStoreOperator],
) -> None:
    """The table in an operator's section is its signature, with the defaults it has."""
    documented = tables(section(f"`{operator.__name__}`"))["Argument"]
    assert sorted(names(documented)) == sorted(own_arguments(operator))
    parameters = inspect.signature(operator.__init__).parameters
    for name, default, _ in documented:
        actual = parameters[name.strip("`")].default
        assert actual in (None, inspect.Parameter.empty) or default == f"`{actual}`"


def test_every_class_of_damage_is_documented() -> None:
    """The table of fsck's classes is the list in the code."""
    documented = tables(section("Classes"))["Class"]
    assert [(names([row])[0], row[1]) for row in documented] == [
        (damage.name, damage.severity) for damage in CLASSES.values()
    ]


def test_common_arguments_are_documented() -> None:
    """The table of common arguments is the base operator's signature."""
    documented = tables(section("Arguments of every operator"))["Argument"]
    assert sorted(names(documented)) == sorted(own_arguments(DuckLakeSparkOperator))
    parameters = inspect.signature(DuckLakeSparkOperator.__init__).parameters
    for name, default, _ in documented:
        actual = parameters[name.strip("`")].default
        written = re.fullmatch(r"`(.+)`", default)
        # Words tell where a default comes from that the signature does not have.
        assert actual is None or (written and written[1] == re.sub(r"\.0$", "", str(actual)))


def test_sensor_is_documented() -> None:
    """The sensor's table is its signature."""
    documented = tables(section("`DuckLakeSnapshotSensor`"))["Argument"]
    assert sorted(names(documented)) == sorted(own_arguments(DuckLakeSnapshotSensor))


def test_watcher_is_documented() -> None:
    """The asset watcher's table is its signature, with the defaults it has."""
    documented = tables(section("`DuckLakeSnapshotEventTrigger`"))["Argument"]
    assert sorted(names(documented)) == sorted(own_arguments(DuckLakeSnapshotEventTrigger))
    parameters = inspect.signature(DuckLakeSnapshotEventTrigger.__init__).parameters
    for name, default, _ in documented:
        actual = parameters[name.strip("`")].default
        assert actual is None or default == f"`{actual}`"


def test_connection_fields_are_documented() -> None:
    """The table of fields is the connection form."""
    documented = tables(section("Fields"))["Field"]
    assert sorted(names(documented)) == sorted(conn_fields())


def test_command_line_is_documented() -> None:
    """The table of arguments is the parser's."""
    documented = tables(section("Command line"))["Argument"]
    flags = {flag for action in parser()._actions for flag in action.option_strings}
    assert sorted(names(documented)) == sorted(flags - {"-h", "--help"})


def test_options_of_the_data_source_are_documented() -> None:
    """The tables of the page are the closed sets of options."""
    place, read, write = (
        sorted(names(tables(section(heading))["Option"]))
        for heading in ("Where the table is", "Read", "Write")
    )
    assert sorted(place + read) == sorted(READ_OPTIONS)
    assert sorted(place + write) == sorted(WRITE_OPTIONS)


@pytest.mark.parametrize("page", ["README.md", "docs/operators.md"])
def test_every_operator_is_in_the_tables(page: str) -> None:
    """README and the operators' page list every operator."""
    text = (ROOT / page).read_text(encoding="utf-8")
    listed = set(re.findall(r"^\|.*`(DuckLake\w+Operator)`", text, flags=re.MULTILINE))
    assert listed == {operator.__name__ for operator in (*OPERATORS, *OTHER_OPERATORS)}


def connections(page: Path) -> list[str]:
    """Return the lake connections a page sets, as JSON or URI."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"AIRFLOW_CONN_DUCKLAKE_DEFAULT='([^']+)'", text)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", DOCS / "connections.md"], ids=lambda p: p.name
)
def test_connections_are_understood(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example is a connection the hook reads, and each kind of catalog is among them."""
    kinds = set()
    for example in connections(page):
        monkeypatch.setenv("AIRFLOW_CONN_DUCKLAKE_DEFAULT", example)
        location = DuckLakeHook().location()
        kinds.add(location.kind)
        assert location.password == ("…" if location.kind in ("postgres", "md") else None)
    assert kinds == {"postgres", "sqlite", "duckdb", "md"}


def test_json_and_uri_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """README shows each connection in two spellings of one thing."""
    places = []
    for example in connections(ROOT / "README.md"):
        monkeypatch.setenv("AIRFLOW_CONN_DUCKLAKE_DEFAULT", example)
        places.append(DuckLakeHook().location())
    assert len(places) == 12
    assert places[::2] == places[1::2]


def test_smallest_dag_is_one() -> None:
    """README's DAG can be built as it stands."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["upkeep"].upstream_task_ids == {"load"}
    assert names["load"].operation_arguments()
