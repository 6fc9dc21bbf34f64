"""Provider info: valid by Airflow's own schemas, and true of what is in the package."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import airflow
import jsonschema
import pytest
from airflow.providers.common.compat.sdk import BaseOperator, BaseSensorOperator
from airflow.providers_manager import ProvidersManager
from airflow.sdk import Connection
from airflow.triggers.base import BaseTrigger

from airflow_provider_ducklake import hooks, operators, sensors, triggers
from airflow_provider_ducklake.hooks._fields import _OURS
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.provider_info import get_provider_info
from airflow_provider_ducklake.version_compat import (
    AIRFLOW_V_3_2_PLUS,
    AIRFLOW_V_3_3_PLUS,
    get_base_airflow_version_tuple,
)

pytestmark = pytest.mark.airflow
INFO = get_provider_info()
CONNECTION = INFO["connection-types"][0]


def schema(name: str) -> Any:
    """Return one of Airflow's own schemas."""
    return json.loads((Path(airflow.__file__).parent / name).read_text())


def test_the_runtime_schema_accepts_it() -> None:
    jsonschema.validate(INFO, schema("provider_info.schema.json"))


def test_the_full_schema_accepts_it() -> None:
    """The schema of provider.yaml knows more, and asks for what a release adds."""
    release = {"state": "ready", "source-date-epoch": 1, "versions": ["0.1.0"]}
    jsonschema.validate({**INFO, **release}, schema("provider.yaml.schema.json"))


def test_the_form_of_older_airflows_is_accepted() -> None:
    behaviour = DuckLakeHook.get_ui_field_behaviour()
    jsonschema.validate(behaviour, schema("customized_form_field_behaviours.schema.json"))


def modules_of(package: ModuleType) -> set[str]:
    """Return the public modules of a package."""
    files = Path(str(package.__file__)).parent.glob("[a-z]*.py")
    return {f"{package.__name__}.{file.stem}" for file in files}


@pytest.mark.parametrize(
    ("kind", "package", "internal"),
    [
        ("hooks", hooks, {"connection_form"}),
        ("operators", operators, {"base", "params"}),
        ("sensors", sensors, set()),
        ("triggers", triggers, set()),
    ],
)
def test_every_public_module_is_listed(kind: str, package: ModuleType, internal: set[str]) -> None:
    hidden = {f"{package.__name__}.{name}" for name in internal}
    assert set(INFO[kind][0]["python-modules"]) == modules_of(package) - hidden


@pytest.mark.parametrize("kind", ["operators", "sensors", "triggers"])
def test_listed_modules_hold_what_they_say(kind: str) -> None:
    bases = {"operators": BaseOperator, "sensors": BaseSensorOperator, "triggers": BaseTrigger}
    base = bases[kind]
    for name in INFO[kind][0]["python-modules"]:
        module = importlib.import_module(name)
        own = [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == name]
        assert own
        assert all(issubclass(found, base) and found.__doc__ for found in own)


def test_the_form_has_exactly_the_fields_the_hook_reads() -> None:
    assert set(CONNECTION["conn-fields"]) == set(_OURS)


def test_no_form_field_is_mandatory() -> None:
    """Airflow stars a field whose type does not admit null."""
    for field in CONNECTION["conn-fields"].values():
        assert "null" in field["schema"]["type"]


def test_airflow_finds_the_provider() -> None:
    """By its entry point, with hook and connection form."""
    manager: Any = ProvidersManager()  # type: ignore[no-untyped-call]
    assert "airflow-provider-ducklake-spark" in manager.providers
    connection: Any = Connection(conn_id="here", conn_type="ducklake")
    hook = connection.get_hook()
    assert isinstance(hook, DuckLakeHook)
    assert hook.get_conn_id() == "here"
    if not AIRFLOW_V_3_2_PLUS:
        pytest.importorskip("flask_appbuilder", reason="it draws the forms of Airflow before 3.2")
    widgets = manager.connection_form_widgets
    assert {f"extra__ducklake__{name}" for name in CONNECTION["conn-fields"]} <= set(widgets)
    assert manager.field_behaviours["ducklake"]["relabeling"]["schema"] == "Catalog database"


def test_versions_are_compared_as_numbers() -> None:
    version = get_base_airflow_version_tuple()
    assert version >= (3, 1, 0)
    assert (version >= (3, 2, 0)) == AIRFLOW_V_3_2_PLUS
    assert (version >= (3, 3, 0)) == AIRFLOW_V_3_3_PLUS
