"""Arguments that came to nothing: none of them may make a task do more than it was asked for."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowFailException

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.store.fleet_policy import FleetPolicy
from airflow_provider_ducklake.operators._options import BOUNDS
from airflow_provider_ducklake.operators.base import DuckLakeSparkOperator
from airflow_provider_ducklake.operators.fleet import DuckLakeFleetPlanOperator
from airflow_provider_ducklake.operators.transfer import DuckLakeExportCatalogOperator
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from tests.airflow.conftest import Connect, StandIn, task_context
from tests.airflow.test_operator_arguments import OPERATORS, required

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("default_lake")]
PLACES = ("catalog", "catalog_url")
EMPTY = ("", " ", "None", "null")
NARROWING: list[tuple[type[DuckLakeSparkOperator], str]] = [
    (kind, name)
    for kind in OPERATORS
    for name in (*PLACES, "table", *sorted(BOUNDS))
    if name in kind.template_fields
]


@pytest.mark.parametrize(
    ("kind", "name"), NARROWING, ids=lambda value: getattr(value, "operation", value)
)
def test_what_narrows_the_work_must_not_render_to_nothing(
    kind: type[DuckLakeSparkOperator], name: str, spark: StandIn
) -> None:
    """Without it, another tenant's catalog, more tables, snapshots or files would be meant."""
    for nothing in (None, *EMPTY):
        with DAG("nightly"):
            operator = kind(task_id="x", **{**required(kind), name: "{{ nothing }}"})
        operator.render_template_fields(task_context({"nothing": nothing}))
        with pytest.raises(AirflowFailException, match=f"{name} is given and comes to"):
            operator.execute(task_context())
    assert not spark.started


@pytest.mark.parametrize("name", PLACES)
def test_native_rendering_makes_no_difference(name: str, spark: StandIn) -> None:
    """There a template comes to Python's own None, which elsewhere is "not given"."""
    arguments: dict[str, Any] = {name: "{{ nothing }}"}
    context = task_context({"nothing": None})
    with DAG("native", render_template_as_native_obj=True):
        operator = OPERATORS[0](task_id="x", **{**required(OPERATORS[0]), **arguments})
        sensor = DuckLakeSnapshotSensor(task_id="y", **arguments)
    operator.render_template_fields(context)
    sensor.render_template_fields(context)
    assert getattr(operator, name) is getattr(sensor, name) is None
    with pytest.raises(AirflowFailException, match=f"{name} is given and comes to None"):
        operator.execute(task_context())
    with pytest.raises(AirflowFailException, match=f"{name} is given and comes to None"):
        sensor.poke(task_context())
    assert not spark.started


@pytest.mark.parametrize("nothing", EMPTY)
def test_the_sensor_does_not_wait_for_something_else(nothing: str) -> None:
    for name in PLACES:
        place: dict[str, Any] = {name: nothing}
        waiting = DuckLakeSnapshotSensor(task_id="x", **place)
        with pytest.raises(AirflowFailException, match=f"{name} is given and comes to"):
            waiting.poke(task_context())
    waiting = DuckLakeSnapshotSensor(task_id="x", tables=nothing)
    with pytest.raises(AirflowFailException, match="tables is given and comes to"):
        waiting.poke(task_context())


@pytest.mark.parametrize("nothing", EMPTY)
def test_a_hook_does_not_fall_back_on_the_catalog_of_its_connection(
    nothing: str, shared_store: str, connect: Connect, tmp_path: Path
) -> None:
    extra = {"attach": f"ducklake:postgres:{shared_store}", "catalog": "ours"}
    connect("chosen", conn_type="ducklake", extra=extra)
    for name in PLACES:
        hook = DuckLakeHook("chosen", **{name: nothing})
        for look in (hook.location, hook.lake, hook.store):
            with pytest.raises(ConfigurationError, match=f"{name} is given and comes to"):
                look()
    export = DuckLakeExportCatalogOperator(
        task_id="x",
        catalog=nothing,
        ducklake_conn_id="chosen",
        target=f"ducklake:duckdb:{tmp_path}/out.ducklake",
    )
    with pytest.raises(AirflowFailException, match="catalog is given and comes to"):
        export.execute(task_context())
    assert DuckLakeHook("chosen").location().catalog == "ours"
    # What common-sql hands over is the connection's own, where a form leaves fields blank.
    connect("blank", conn_type="ducklake", extra={**extra, "catalog": "", "catalog_url": ""})
    assert DuckLakeHook("blank", catalog="", catalog_url="").location().catalog is None


def test_no_tables_are_all_tables_where_no_row_changes(spark: StandIn) -> None:
    """A form offers "all tables" by an empty value; compaction changes no row of any."""
    merge = next(k for k in OPERATORS if k.operation == "merge_adjacent_files")
    merge(task_id="x", tables="").execute(task_context())
    assert not spark.values("table")


def test_a_fleet_plan_lets_nothing_go_that_was_meant_to_stay() -> None:
    """Sizes and budgets may be left empty in a form, and have their defaults then."""
    for name in ("expire_older_than", "delete_older_than", "retain_last"):
        for nothing in (None, *EMPTY):
            with DAG("nightly"):
                plan = DuckLakeFleetPlanOperator(task_id="x", **{name: "{{ nothing }}"})
            plan.render_template_fields(task_context({"nothing": nothing}))
            with pytest.raises(AirflowFailException, match=f"{name} is given and comes to"):
                plan.execute(task_context())
    sizes: dict[str, Any] = {"small_file_size": "8MiB", "max_bytes": " ", "min_small_files": "None"}
    plan = DuckLakeFleetPlanOperator(task_id="x", expire_older_than=timedelta(days=90), **sizes)
    policy = FleetPolicy(small_file_size=8 * 1024**2, expire_older_than="7776000.000000 seconds")
    assert plan._policy() == policy
