"""The forms of the example DAGs: what they offer, what they refuse, and what reaches the jobs."""

from __future__ import annotations

import copy
import itertools
import json
import re
from argparse import Namespace
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from airflow.providers.common.compat.sdk import AirflowSkipException, ParamValidationError

from airflow_provider_ducklake.lake.instants import parse_cutoff
from airflow_provider_ducklake.lake.store.fleet_policy import FleetPolicy
from airflow_provider_ducklake.spark.cli import parser
from airflow_provider_ducklake.spark.operations import OPERATIONS, check_options

ROOT: Final = Path(__file__).resolve().parents[2]
NOW: Final = datetime(2026, 6, 1, tzinfo=timezone.utc)
_AGES: Final = {"older_than": "7 days", "force": "false"}
# What the maintenance form is filled in with, and the options that reach each job that runs.
FILLED_IN: Final[tuple[tuple[dict[str, Any], dict[str, dict[str, str]]], ...]] = (
    (
        {},
        {
            "flush_inlined_data": {},
            "merge_adjacent_files": {},
            "rewrite_data_files": {"delete_threshold": "0.1"},
            "expire_snapshots": {"older_than": "30 days", "retain_last": "10"},
            "cleanup_old_files": _AGES,
            "delete_orphaned_files": _AGES,
        },
    ),
    (
        {"operation": "merge_adjacent_files", "target_file_size": "128MB"},
        {"merge_adjacent_files": {"target_file_size": "128MB"}},
    ),
    (
        {"operation": "rewrite_data_files", "delete_threshold": 0, "max_compacted_files": 3},
        {"rewrite_data_files": {"delete_threshold": "0", "max_compacted_files": "3"}},
    ),
    (
        {"operation": "expire_snapshots", "older_than": "2026-01-31 18:00:00+00"},
        {"expire_snapshots": {"older_than": "2026-01-31 18:00:00+00", "retain_last": "10"}},
    ),
    (
        {"operation": "cleanup_old_files", "grace": "0 seconds", "force": True},
        {"cleanup_old_files": {"older_than": "0 seconds", "force": "true"}},
    ),
    (
        {"operation": "checkpoint", "retain_last": 1},
        {
            "checkpoint": {
                "expire_older_than": "30 days",
                "retain_last": "1",
                "delete_older_than": "7 days",
                "delete_threshold": "0.1",
            }
        },
    ),
)


def fill_in(dag: Any, name: str, *value: Any) -> Any:
    """Return a field's value as a run gets it: the one given, or the default."""
    # A parameter keeps what it resolves, and the DAG is every test's.
    return copy.copy(dag.params.get_param(name)).resolve(*value)


def params_of(dag: Any, **given: Any) -> dict[str, Any]:
    """Return a run's parameters: the form's defaults with some values filled in."""
    values = {name: fill_in(dag, name) for name in dag.params}
    return values | {name: fill_in(dag, name, value) for name, value in given.items()}


def command_of(task: Any, params: dict[str, Any]) -> Namespace:
    """Return an operator's command line as the job reads it, rendered with some parameters."""
    rendered = task.prepare_for_execution()
    rendered.render_template_fields({"params": params, "var": {"value": {}}, "ti": None})
    attach = ["--attach", "ducklake:sqlite:catalog"]
    return parser().parse_args([task.operation, *attach, *rendered.operation_arguments()])


def rendered_policy(task: Any, params: dict[str, Any]) -> FleetPolicy:
    """Return the policy of a fleet plan, rendered with some parameters."""
    rendered = task.prepare_for_execution()
    rendered.render_template_fields({"params": params})
    policy: FleetPolicy = rendered._policy()
    return policy


def options_of(task: Any, params: dict[str, Any]) -> dict[str, str]:
    """Return the options an operator gives its job."""
    return dict(option.split("=", 1) for option in command_of(task, params).option)


@pytest.mark.parametrize("dag_id", ["ewr_ingest", "ewr_maintenance"])
def test_forms_explain_themselves(example_dags: dict[str, Any], dag_id: str) -> None:
    """Every field has a title, help, a section, and a default that it accepts itself."""
    dag = example_dags[dag_id]
    for name in dag.params:
        param = dag.params.get_param(name)
        assert {"title", "section"} <= set(param.schema), name
        assert param.description, name
        fill_in(dag, name)


@pytest.mark.parametrize(
    ("dag_id", "name", "value"),
    [
        ("ewr_maintenance", "operation", "drop"),
        ("ewr_maintenance", "table", "of_another_tenant"),
        ("ewr_maintenance", "older_than", "30"),
        ("ewr_maintenance", "older_than", "1 month"),
        ("ewr_maintenance", "older_than", "2026-01-31 18:00:00"),
        ("ewr_maintenance", "retain_last", 0),
        ("ewr_maintenance", "grace", "-1 days"),
        ("ewr_maintenance", "grace", ""),
        ("ewr_maintenance", "delete_threshold", 1.5),
        ("ewr_maintenance", "target_file_size", "big"),
        ("ewr_maintenance", "max_compacted_files", 0),
        ("ewr_ingest", "quarters", ["Q5"]),
        ("ewr_ingest", "dimensions", ["flights"]),
        ("ewr_ingest", "mode", "overwrite"),
        ("ewr_ingest", "month", "../../2013-12"),
        ("ewr_ingest", "month", "2013-13"),
    ],
)
def test_forms_refuse(example_dags: dict[str, Any], dag_id: str, name: str, value: Any) -> None:
    """What makes no sense, or reaches beyond the tenant, is refused before anything starts."""
    with pytest.raises(ParamValidationError):
        fill_in(example_dags[dag_id], name, value)


@pytest.mark.parametrize(
    "text",
    ["0 seconds", "1 day", "36 hours", "1 week 2 days", "90 minutes", "2026-01-31T18:00:00Z"],
)
def test_ages_of_the_form_are_those_of_the_job(example_dags: dict[str, Any], text: str) -> None:
    """An age or instant the form takes is one the job understands."""
    fill_in(example_dags["ewr_maintenance"], "older_than", text)
    assert parse_cutoff(text, NOW) <= NOW


@pytest.mark.parametrize(("filled_in", "expected"), FILLED_IN)
def test_the_form_reaches_the_jobs(
    example_dags: dict[str, Any],
    filled_in: dict[str, Any],
    expected: dict[str, dict[str, str]],
) -> None:
    """Just the chosen steps run, with the values of the form, which their jobs understand."""
    dag = example_dags["jfk_maintenance"]
    params = params_of(dag, **filled_in)
    options = {}
    for task in dag.tasks:
        try:
            task._pre_execute_hook({"params": params})
        except AirflowSkipException:
            continue
        options[task.operation] = options_of(task, params)
        check_options(task.operation, options[task.operation])
    assert options == expected


def test_only_compaction_is_about_a_table(example_dags: dict[str, Any]) -> None:
    """The table chosen is named to the operations that work on tables, and only to those."""
    dag = example_dags["ewr_maintenance"]
    params = params_of(dag, table="weather")
    named = {task.task_id for task in dag.tasks if command_of(task, params).table}
    assert named == {
        "flush_inlined_data",
        "merge_adjacent_files",
        "rewrite_data_files",
        "checkpoint",
    }
    everything = params_of(dag)
    assert not any(command_of(task, everything).table for task in dag.tasks)


def test_every_step_goes_on_after_a_skipped_one(example_dags: dict[str, Any]) -> None:
    """Steps follow one another in the order that loses nothing, and skipping does not spread."""
    dag = example_dags["ewr_maintenance"]
    order = [
        "flush_inlined_data",
        "merge_adjacent_files",
        "rewrite_data_files",
        "expire_snapshots",
        "cleanup_old_files",
        "delete_orphaned_files",
    ]
    for earlier, later in itertools.pairwise(order):
        assert dag.task_dict[later].upstream_task_ids == {earlier}
        assert dag.task_dict[later].trigger_rule == "none_failed"
    assert set(order) | {"checkpoint"} == set(dag.task_dict)
    assert all(task.operation in OPERATIONS for task in dag.tasks)


def test_no_default_deletes_at_once(example_dags: dict[str, Any]) -> None:
    """What the schedule runs never goes below the lake's own grace period."""
    for dag_id, dag in example_dags.items():
        if dag_id.endswith("_maintenance"):
            params = params_of(dag)
            assert not params.get("force")
            assert NOW - parse_cutoff(params["grace"], NOW) >= NOW - parse_cutoff("2 days", NOW)


def test_runs_of_one_tenant_do_not_overlap(example_dags: dict[str, Any]) -> None:
    """One run at a time, and one pool of one slot for all Spark applications of a tenant."""
    pools = json.loads((ROOT / "dags" / "pools.json").read_text(encoding="utf-8"))
    for dag_id, dag in example_dags.items():
        tenant = dag_id.partition("_")[0]
        assert dag.max_active_runs == 1
        used = {
            task.pool
            for task in dag.tasks
            if "SparkSubmitOperator" in {kind.__name__ for kind in kinds_of(task)}
        }
        # What only reads needs no turn.
        assert used == (set() if dag_id == "ewr_new_flights" else {f"ducklake_{tenant}"})
        assert pools[f"ducklake_{tenant}"]["slots"] == 1


def kinds_of(task: Any) -> tuple[type, ...]:
    """Return the classes of a task, or of what a mapped task is made of."""
    made: type = getattr(task, "operator_class", None) or type(task)
    return made.__mro__


def test_the_fleet_form_reaches_plan_and_jobs(example_dags: dict[str, Any]) -> None:
    """Each batch of the plan is one application, and what the form says reaches it by the plan."""
    dag = example_dags["fleet_maintenance"]
    plan, maintain = dag.task_dict["plan"], dag.task_dict["maintain"]
    assert maintain.upstream_task_ids == {"plan"}
    assert maintain.is_mapped
    assert not set(FleetPolicy.__annotations__) & set(maintain.partial_kwargs)
    policy = rendered_policy(plan, params_of(dag, retain_last=7, older_than="90 days"))
    assert policy == FleetPolicy(
        expire_older_than="90 days",
        retain_last=7,
        delete_older_than="7 days",
        delete_threshold=0.1,
        max_bytes=500 * 10**9,
    )
    texts = [str(getattr(plan, name)) for name in plan.template_fields]
    texts += [str(value) for value in maintain.partial_kwargs.values()]
    for name in params_of(dag):
        assert any(f"params.{name}" in text for text in texts), name


def test_connections_are_those_of_the_compose_file() -> None:
    """The tenants' connections are the ones the Docker stack defines."""
    tenants = yaml.safe_load((ROOT / "dags" / "tenants.yaml").read_text(encoding="utf-8"))
    compose = (ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8")
    defined = {name.lower() for name in re.findall(r"AIRFLOW_CONN_(\w+):", compose)}
    used = {entry["ducklake_conn_id"] for entry in tenants["tenants"].values()}
    assert used | {tenants["defaults"]["spark_conn_id"]} <= defined


@pytest.mark.parametrize(
    ("filled_in", "loaded"),
    [
        ({"dimensions": None, "quarters": ["Q2"]}, {"flights.Q2"}),
        ({"dimensions": ["planes"], "quarters": None}, {"dimensions.planes"}),
    ],
)
def test_only_what_is_chosen_is_loaded(
    example_dags: dict[str, Any], filled_in: dict[str, Any], loaded: set[str]
) -> None:
    """Lists that are emptied in the form come as null; without a month nobody waits for one."""
    dag = example_dags["lga_ingest"]
    params = params_of(dag, month=None, **filled_in)
    chosen = set()
    for task in dag.tasks:
        # The sensor is skipped with the registration it waits for.
        if task._pre_execute_hook is not None and task.task_id != "wait_for_month":
            try:
                task._pre_execute_hook({"params": params})
            except AirflowSkipException:
                continue
            chosen.add(task.task_id)
    assert chosen == loaded


@pytest.mark.parametrize(("registered", "is_skipped"), [(7, True), (8, False)])
def test_nobody_waits_for_a_month_that_is_registered_already(
    example_dags: dict[str, Any], registered: int, is_skipped: bool
) -> None:
    """A second run of the same form has nothing to wait for, and ends well."""

    class TaskInstance:
        def xcom_pull(self, task_ids: str) -> object:
            return {"newest_snapshot": 7, "register_month": {"snapshot_after": registered}}[
                task_ids
            ]

    waiting = example_dags["ewr_ingest"].get_task("wait_for_month")
    assert waiting.upstream_task_ids == {"register_month"}
    with pytest.raises(AirflowSkipException) if is_skipped else nullcontext():
        waiting._pre_execute_hook({"ti": TaskInstance()})
