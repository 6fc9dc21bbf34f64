"""Operators: their arguments, what is templated, and the command line they make."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowFailException

from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.operators._options import BOUNDS
from airflow_provider_ducklake.operators.add_data_files import DuckLakeAddDataFilesOperator
from airflow_provider_ducklake.operators.base import APPLICATION, DuckLakeSparkOperator
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
from airflow_provider_ducklake.operators.fleet import DuckLakeFleetMaintenanceOperator
from airflow_provider_ducklake.operators.fsck import DuckLakeFsckOperator
from airflow_provider_ducklake.operators.ingest import DuckLakeIngestOperator
from airflow_provider_ducklake.operators.snapshots import (
    DuckLakeExpireSnapshotsOperator,
    DuckLakeRestoreOperator,
)
from airflow_provider_ducklake.spark.cli import parser
from airflow_provider_ducklake.spark.operations import OPERATIONS, check_options
from scripts.demo_support.airflow_versions import serialization
from tests.airflow.conftest import (
    Connect,
    StandIn,
    task_context,
)

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("default_lake")]
OPERATORS: list[type[DuckLakeSparkOperator]] = [
    DuckLakeAddDataFilesOperator,
    DuckLakeCheckpointOperator,
    DuckLakeCleanupOldFilesOperator,
    DuckLakeDeleteOrphanedFilesOperator,
    DuckLakeExpireSnapshotsOperator,
    DuckLakeFleetMaintenanceOperator,
    DuckLakeFlushInlinedDataOperator,
    DuckLakeFsckOperator,
    DuckLakeIngestOperator,
    DuckLakeMergeAdjacentFilesOperator,
    DuckLakeRestoreOperator,
    DuckLakeRewriteDataFilesOperator,
]
Merge = DuckLakeMergeAdjacentFilesOperator


def options_of(operator: DuckLakeSparkOperator, spark: StandIn) -> dict[str, str]:
    """Execute an operator and return the options its job was given."""
    operator.execute(task_context())
    return spark.options()


def test_the_command_line(spark: StandIn) -> None:
    operator = Merge(
        task_id="merge",
        tables=["main.a", "b"],
        max_file_size="10MB",
        max_compacted_files=5,
        partition={"year": 2024, "region": "eu"},
        conf={"spark.executor.memory": "1g"},
        executor_memory="2g",
        num_executors=3,
        memory_limit="2GB",
        report_file="/tmp/report",
    )
    operator.execute(task_context(task_id="merge"))
    assert spark.job[:7] == [
        "merge_adjacent_files",
        "--attach=ducklake:postgres:user=etl dbname=lakes host=db",
        "--data-path=s3://b/l/",
        "--metadata-schema=ewr",
        "--table=main.a",
        "--table=b",
        "--option=max_file_size=10MB",
    ]
    assert spark.options() == {
        "max_file_size": "10MB",
        "max_compacted_files": "5",
        "partition": "year=2024,region=eu",
    }
    assert (spark.value("memory-limit"), spark.value("report-file")) == ("2GB", "/tmp/report")
    assert "--dry-run" not in spark.job
    argv = spark.call["argv"]
    assert str(APPLICATION) in argv
    assert argv[:4] == ["--master", "local[2]", "--conf", "spark.executor.memory=1g"]
    assert argv[argv.index("--executor-memory") + 1] == "2g"
    assert argv[argv.index("--num-executors") + 1] == "3"
    name = argv[argv.index("--name") + 1]
    assert name == "ducklake merge_adjacent_files nightly.merge ducklake_default"


def test_the_application_is_there() -> None:
    assert APPLICATION.is_file()


def required(kind: type[DuckLakeSparkOperator]) -> dict[str, Any]:
    """Return arguments without which an operator is not complete."""
    needs = {
        DuckLakeIngestOperator: {"table": "t", "source": "s"},
        DuckLakeAddDataFilesOperator: {"table": "t", "source": "s"},
        DuckLakeFleetMaintenanceOperator: {"work": SAMPLES["work"]},
    }
    return needs.get(kind, {})


def test_the_operators_offer_exactly_the_options_of_the_jobs() -> None:
    offered = {kind.operation: set(kind.options) for kind in OPERATORS}
    known = {
        name: {option for option in options if not option.endswith(".")}
        for name, (_, options) in OPERATIONS.items()
        if name not in ("create_lake", "create_table", "info")
    }
    assert offered == known


SAMPLES: dict[str, Any] = {
    "allow_missing": True,
    "cleanup_all": False,
    "create_table": True,
    "delete_older_than": timedelta(hours=36),
    "deep": True,
    "delete_threshold": 0.25,
    "expire_older_than": "7 days",
    "force": True,
    "hive_partitioning": False,
    "ignore_extra_columns": True,
    "max_compacted_bytes": "100GB",
    "max_compacted_files": 7,
    "max_seconds": timedelta(hours=1),
    "max_commits": 4,
    "max_file_size": 1_000_000,
    "max_examples": 7,
    "max_fraction": 0.5,
    "quarantine": "s3://lost/",
    "objects": False,
    "repair": True,
    "min_file_size": "1MB",
    "min_files": 3,
    "mode": "overwrite",
    "merge_keys": ["region", "id"],
    "delete_when": "op = 'D'",
    "older_than": datetime(2026, 1, 2, 3, tzinfo=timezone.utc),
    "on_duplicate": "error",
    "outside_data_path": True,
    "partition": {"year": 2024},
    "partition_by": ["year(ts)", "region"],
    "retain_last": 3,
    "schema_evolution": "add_columns",
    "snapshot": 12,
    "at": datetime(2026, 1, 2, 3, tzinfo=timezone.utc),
    "sorted_by": "ts",
    "target_file_size": "64MB",
    "threads": 5,
    "versions": [3, 4, 9],
    "work": {"catalogs": {"acme": ["merge_adjacent_files"]}, "policy": {"retain_last": 5}},
}
WRITTEN = {
    **{name: str(value).lower() for name, value in SAMPLES.items() if isinstance(value, bool)},
    "delete_older_than": "129600.000000 seconds",
    "deep": "true",
    "delete_threshold": "0.25",
    "expire_older_than": "7 days",
    "max_compacted_bytes": "100GB",
    "max_compacted_files": "7",
    "max_seconds": "3600",
    "max_commits": "4",
    "max_file_size": "1000000",
    "max_examples": "7",
    "max_fraction": "0.5",
    "quarantine": "s3://lost/",
    "objects": "false",
    "repair": "true",
    "min_file_size": "1MB",
    "min_files": "3",
    "mode": "overwrite",
    "merge_keys": "region,id",
    "delete_when": "op = 'D'",
    "older_than": "2026-01-02T03:00:00+00:00",
    "on_duplicate": "error",
    "partition": "year=2024",
    "partition_by": "year(ts),region",
    "retain_last": "3",
    "schema_evolution": "add_columns",
    "snapshot": "12",
    "at": "2026-01-02T03:00:00+00:00",
    "sorted_by": "ts",
    "target_file_size": "64MB",
    "threads": "5",
    "versions": "3,4,9",
    "work": '{"catalogs":{"acme":["merge_adjacent_files"]},"policy":{"retain_last":5}}',
}


@pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.operation)
def test_every_option_is_written(kind: type[DuckLakeSparkOperator], spark: StandIn) -> None:
    arguments = {name: SAMPLES[name] for name in kind.options}
    operator = kind(task_id="x", **{**required(kind), **arguments})
    assert options_of(operator, spark) == {name: WRITTEN[name] for name in kind.options}


@pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.operation)
def test_the_job_understands_the_command_line(
    kind: type[DuckLakeSparkOperator], spark: StandIn
) -> None:
    arguments = {name: SAMPLES[name] for name in kind.options}
    given = {**required(kind), **arguments}
    operator = kind(task_id="x", **given, author="-me", commit_message="-- x")
    options = options_of(operator, spark)
    understood = parser().parse_args(spark.job)
    check_options(understood.operation, options)
    assert understood.option == [f"{name}={value}" for name, value in options.items()]
    assert (understood.author, understood.message) == ("-me", "-- x")
    assert CatalogLocation.parse(understood.attach).target == "user=etl dbname=lakes host=db"
    assert understood.commit_key == spark.value("commit-key")


@pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.operation)
def test_every_option_can_be_a_template(kind: type[DuckLakeSparkOperator], spark: StandIn) -> None:
    """What the jobs get from templates is what they get from the values themselves."""
    with DAG("nightly"):
        arguments = {name: f"{{{{ written.{name} }}}}" for name in kind.options}
        operator = kind(task_id="x", **{**required(kind), **arguments})
    operator.render_template_fields(task_context({"written": WRITTEN}))
    assert options_of(operator, spark) == {name: WRITTEN[name] for name in kind.options}


@pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.operation)
def test_templates_that_render_to_nothing_are_not_given(
    kind: type[DuckLakeSparkOperator], spark: StandIn
) -> None:
    with DAG("nightly"):
        arguments: dict[str, Any] = dict.fromkeys(kind.options.keys() - BOUNDS, "{{ nothing }}")
        arguments |= {"author": "{{ nothing }}", "commit_key": "{{ nothing }}"}
        arguments |= {"num_executors": "{{ nothing }}", "deploy_mode": "{{ nothing }}"}
        arguments |= {"dry_run": "{{ nothing }}", "commit_message": "{{ nothing }}"}
        operator = kind(task_id="x", **{**required(kind), **arguments})
    operator.render_template_fields(task_context({"nothing": None}))
    assert options_of(operator, spark) == {}
    assert spark.value("author") == "airflow"
    assert len(spark.value("commit-key")) == 64
    assert "--deploy-mode" not in spark.call["argv"]
    assert "--dry-run" not in spark.job


@pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.operation)
def test_every_argument_of_an_operator_is_templated(kind: type[DuckLakeSparkOperator]) -> None:
    own = {
        name
        for base in kind.__mro__
        if issubclass(base, DuckLakeSparkOperator)
        for name in base.__init__.__kwdefaults__ or {}
    }
    assert own | set(required(kind)) <= set(kind.template_fields)
    operator = kind(task_id="x", **required(kind))
    assert all(hasattr(operator, name) for name in kind.template_fields)


def test_the_rest_can_be_templates_too(spark: StandIn, connect: Connect) -> None:
    connect("l2", conn_type="ducklake", extra={"attach": "ducklake:sqlite:/c.db"})
    connect("s2", conn_type="spark", host="local[7]")
    with DAG("nightly"):
        operator = DuckLakeIngestOperator(
            task_id="x",
            table="{{ p.table }}",
            source="{{ p.sources }}",
            format="{{ p.format }}",
            reader_options='{"header": "{{ p.header }}"}',
            ducklake_conn_id="{{ p.lake }}",
            conn_id="{{ p.spark }}",
            dry_run="{{ p.dry }}",
            executor_cores="{{ p.cores }}",
            kill_timeout="{{ p.cores }}",
            commit_extra_info='{"n": {{ p.cores }}}',
        )
    given = {
        "table": "main.t",
        "sources": ["a", "b c"],
        "format": "csv",
        "header": True,
        "lake": "l2",
        "spark": "s2",
        "dry": True,
        "cores": 2,
    }
    operator.render_template_fields(task_context({"p": given}))
    operator.execute(task_context())
    assert spark.value("attach") == "ducklake:sqlite:/c.db"
    assert spark.values("source") == ["a", "b c"]
    assert (spark.value("table"), spark.value("format")) == ("main.t", "csv")
    assert spark.options() == {"reader.header": "True"}
    assert "--dry-run" in spark.job
    assert json.loads(spark.value("extra-info"))["n"] == 2
    argv = spark.call["argv"]
    assert argv[argv.index("--master") + 1] == "local[7]"
    assert argv[argv.index("--executor-cores") + 1] == "2"


def test_a_query_may_lie_in_a_file(spark: StandIn, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("-- daily\nSELECT * FROM source WHERE day = '{{ day }}'")
    with DAG("nightly", template_searchpath=str(tmp_path)):
        operator = DuckLakeIngestOperator(task_id="x", table="t", source="s", sql="q.sql")
    operator.resolve_template_files()
    operator.render_template_fields(task_context({"day": "2026-01-01"}))
    operator.execute(task_context())
    assert spark.value("sql") == "-- daily\nSELECT * FROM source WHERE day = '2026-01-01'"


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (Merge, {"max_compacted_files": "many"}, "max_compacted_files must be a whole number"),
        (Merge, {"max_compacted_files": -1}, "must not be negative"),
        (Merge, {"max_compacted_files": True}, "must be a whole number"),
        (Merge, {"partition": 7}, "partition must be like"),
        (Merge, {"table": "a", "tables": ["b"]}, "table and tables are both given"),
        (Merge, {"dry_run": "maybe"}, "dry_run must be true or false"),
        (Merge, {"commit_extra_info": "[]"}, "commit_extra_info must be a JSON object"),
        (Merge, {"secrets_mode": "argv"}, "env, properties, none"),
        (Merge, {"num_executors": "two"}, "num_executors must be a whole number"),
        (Merge, {"kill_timeout": "soon"}, "kill_timeout must be a number"),
        (Merge, {"conn_id": "nowhere"}, "'nowhere' is not defined"),
        (Merge, {"deploy_mode": "cluster", "conn_id": "standalone"}, "no Python application"),
        (Merge, {"deploy_mode": "cluster", "conn_id": "yarn"}, "secrets_mode='properties'"),
        (DuckLakeRewriteDataFilesOperator, {"delete_threshold": 1.5}, "a number from 0 to 1"),
        (DuckLakeRewriteDataFilesOperator, {"delete_threshold": "nan"}, "must be a number"),
        (DuckLakeExpireSnapshotsOperator, {"older_than": datetime(2026, 1, 1)}, "no time zone"),
        (DuckLakeExpireSnapshotsOperator, {"older_than": 7}, "older_than must be text"),
        (DuckLakeCleanupOldFilesOperator, {"force": "often"}, "force must be true or false"),
        (DuckLakeIngestOperator, {"table": "", "source": "s"}, "table is given and comes to"),
        (DuckLakeIngestOperator, {"table": "t"}, "needs a source, or sql"),
        (DuckLakeIngestOperator, {"table": "t", "source": "[1"}, "neither a name nor a list"),
        (DuckLakeAddDataFilesOperator, {"table": "t", "source": []}, "needs a table, and a source"),
    ],
)
def test_wrong_arguments_fail_for_good_before_anything_is_submitted(
    spark: StandIn,
    connect: Connect,
    kind: type[DuckLakeSparkOperator],
    arguments: dict[str, Any],
    message: str,
) -> None:
    connect("standalone", conn_type="spark", host="spark://h", port=7077)
    connect("yarn", conn_type="spark", host="yarn")
    operator = kind(task_id="x", **arguments)
    with pytest.raises(AirflowFailException, match=message):
        operator.execute(task_context())
    assert not spark.started


def test_what_is_made_internally_cannot_be_given() -> None:
    with pytest.raises(TypeError, match="application_args"):
        Merge(task_id="x", application_args=["x"])


def test_a_read_only_connection_plans_only(spark: StandIn, connect: Connect) -> None:
    extra = {"attach": "ducklake:sqlite:/c.db", "read_only": True}
    connect("ducklake_default", conn_type="ducklake", extra=extra)
    with pytest.raises(AirflowFailException, match="is read-only"):
        Merge(task_id="x").execute(task_context())
    Merge(task_id="x", dry_run=True).execute(task_context())
    assert "--dry-run" in spark.job
    DuckLakeFsckOperator(task_id="x", deep=True).execute(task_context())
    assert "--dry-run" not in spark.job
    with pytest.raises(AirflowFailException, match="is read-only"):
        DuckLakeFsckOperator(task_id="x", repair=True).execute(task_context())
    DuckLakeFsckOperator(task_id="x", repair=True, dry_run=True).execute(task_context())


def test_operators_serialize(spark: StandIn) -> None:
    """A DAG of all operators goes into Airflow's database and back."""
    stored_as = serialization()
    with DAG("nightly", schedule=None) as dag:
        for kind in OPERATORS:
            kind(task_id=kind.operation, **required(kind), dry_run="{{ params.dry_run }}")
        Merge.partial(task_id="mapped").expand(table=["a", "b"])
    stored = json.loads(json.dumps(stored_as.to_dict(dag)))
    back = stored_as.from_dict(stored)
    assert set(back.task_ids) == {*(kind.operation for kind in OPERATORS), "mapped"}
    assert str(APPLICATION) not in json.dumps(stored)
