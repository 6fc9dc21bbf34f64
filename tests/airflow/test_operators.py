"""Operators: the command line they make, what they return, how they fail, how they are killed."""

from __future__ import annotations

import json
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import DAG, AirflowException, AirflowFailException

from airflow_provider_ducklake.hooks._processes import session_members
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.model import Snapshot
from airflow_provider_ducklake.operators._outcome import result_of_commits
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
from airflow_provider_ducklake.operators.ingest import DuckLakeIngestOperator
from airflow_provider_ducklake.operators.snapshots import DuckLakeExpireSnapshotsOperator
from airflow_provider_ducklake.spark.cli import parser
from airflow_provider_ducklake.spark.operations import OPERATIONS, check_options
from tests.airflow.conftest import (
    ODD_PASSWORD,
    Connect,
    FakeStateStore,
    StandIn,
    TaskLog,
    result,
    task_context,
    wait_for,
)

pytestmark = pytest.mark.airflow
OPERATORS: list[type[DuckLakeSparkOperator]] = [
    DuckLakeAddDataFilesOperator,
    DuckLakeCheckpointOperator,
    DuckLakeCleanupOldFilesOperator,
    DuckLakeDeleteOrphanedFilesOperator,
    DuckLakeExpireSnapshotsOperator,
    DuckLakeFlushInlinedDataOperator,
    DuckLakeIngestOperator,
    DuckLakeMergeAdjacentFilesOperator,
    DuckLakeRewriteDataFilesOperator,
]
Merge = DuckLakeMergeAdjacentFilesOperator


@pytest.fixture(autouse=True)
def lake(connect: Connect) -> None:
    """A connection `ducklake_default`; nothing here opens its catalog."""
    connect(
        "ducklake_default",
        conn_type="ducklake",
        host="db",
        login="etl",
        password=ODD_PASSWORD,
        schema="lakes",
        extra={
            "catalog_type": "postgres",
            "metadata_schema": "ewr",
            "data_path": "s3://b/l/",
            "storage_options": {"aws_secret_access_key": "qu1et", "aws_region": "eu-west-1"},
        },
    )


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


def test_what_a_commit_says_of_itself(spark: StandIn) -> None:
    context = task_context(map_index=4, try_number=2)
    Merge(task_id="x", commit_extra_info={"ticket": "T-1"}).execute(context)
    assert spark.value("author") == "airflow"
    assert spark.value("message") == (
        "merge_adjacent_files by task nightly.work[4], run manual__2026-01-02"
    )
    assert json.loads(spark.value("extra-info")) == {
        "dag_id": "nightly",
        "run_id": "manual__2026-01-02",
        "task_id": "work",
        "map_index": 4,
        "try_number": 2,
        "ticket": "T-1",
    }
    Merge(task_id="x", author="me", commit_message="why").execute(context)
    assert (spark.value("author"), spark.value("message")) == ("me", "why")


def key_of(spark: StandIn, operator: DuckLakeSparkOperator | None = None, **given: Any) -> str:
    """Return the idempotency key a task of these attributes gives its job."""
    (operator or Merge(task_id="x")).execute(task_context(**given))
    return spark.value("commit-key")


def test_the_key_is_the_same_for_every_try_and_another_for_every_other_task(
    spark: StandIn, connect: Connect
) -> None:
    """Design rule 13."""
    first = key_of(spark)
    assert len(first) == 64
    assert key_of(spark, try_number=2) == first
    connect("moved", conn_type="ducklake", extra={"attach": "ducklake:sqlite:/other.db"})
    others = {
        key_of(spark, map_index=0),
        key_of(spark, map_index=1),
        key_of(spark, run_id="other"),
        key_of(spark, dag_id="other"),
        key_of(spark, task_id="other"),
        key_of(spark, DuckLakeRewriteDataFilesOperator(task_id="x")),
        key_of(spark, Merge(task_id="x", ducklake_conn_id="moved")),
    }
    assert len(others | {first}) == 8
    assert key_of(spark, Merge(task_id="x", commit_key="mine")) == "mine"


def test_the_password_takes_no_part_in_the_key(spark: StandIn, connect: Connect) -> None:
    fields: dict[str, Any] = {"conn_type": "ducklake", "host": "db", "schema": "l"}
    keys = set()
    for password in ("one", "two"):
        connect("ducklake_default", password=password, **fields)
        keys.add(key_of(spark))
    assert len(keys) == 1


def test_without_a_run_every_execution_is_one_of_its_own(spark: StandIn) -> None:
    keys = set()
    for _ in range(2):
        Merge(task_id="x").execute({})
        keys.add(spark.value("commit-key"))
    assert len(keys) == 2


def required(kind: type[DuckLakeSparkOperator]) -> dict[str, Any]:
    """Return arguments without which an operator is not complete."""
    needs = {
        DuckLakeIngestOperator: {"table": "t", "source": "s"},
        DuckLakeAddDataFilesOperator: {"table": "t", "source": "s"},
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
    "delete_threshold": 0.25,
    "expire_older_than": "7 days",
    "force": True,
    "hive_partitioning": False,
    "ignore_extra_columns": True,
    "max_compacted_files": 7,
    "max_file_size": 1_000_000,
    "max_fraction": 0.5,
    "min_file_size": "1MB",
    "mode": "overwrite",
    "older_than": datetime(2026, 1, 2, 3, tzinfo=timezone.utc),
    "on_duplicate": "error",
    "outside_data_path": True,
    "partition": {"year": 2024},
    "partition_by": ["year(ts)", "region"],
    "retain_last": 3,
    "schema_evolution": "add_columns",
    "sorted_by": "ts",
    "target_file_size": "64MB",
    "versions": [3, 4, 9],
}
WRITTEN = {
    **{name: str(value).lower() for name, value in SAMPLES.items() if isinstance(value, bool)},
    "delete_older_than": "129600.000000 seconds",
    "delete_threshold": "0.25",
    "expire_older_than": "7 days",
    "max_compacted_files": "7",
    "max_file_size": "1000000",
    "max_fraction": "0.5",
    "min_file_size": "1MB",
    "mode": "overwrite",
    "older_than": "2026-01-02T03:00:00+00:00",
    "on_duplicate": "error",
    "partition": "year=2024",
    "partition_by": "year(ts),region",
    "retain_last": "3",
    "schema_evolution": "add_columns",
    "sorted_by": "ts",
    "target_file_size": "64MB",
    "versions": "3,4,9",
}


@pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.operation)
def test_every_option_is_written(kind: type[DuckLakeSparkOperator], spark: StandIn) -> None:
    arguments = {name: SAMPLES[name] for name in kind.options}
    operator = kind(task_id="x", **required(kind), **arguments)
    assert options_of(operator, spark) == {name: WRITTEN[name] for name in kind.options}


@pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.operation)
def test_the_job_understands_the_command_line(
    kind: type[DuckLakeSparkOperator], spark: StandIn
) -> None:
    arguments = {name: SAMPLES[name] for name in kind.options}
    operator = kind(task_id="x", **required(kind), **arguments, author="-me", commit_message="-- x")
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
        operator = kind(task_id="x", **required(kind), **arguments)
    operator.render_template_fields(task_context({"written": WRITTEN}))
    assert options_of(operator, spark) == {name: WRITTEN[name] for name in kind.options}


@pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.operation)
def test_templates_that_render_to_nothing_are_not_given(
    kind: type[DuckLakeSparkOperator], spark: StandIn
) -> None:
    with DAG("nightly"):
        arguments: dict[str, Any] = dict.fromkeys(kind.options, "{{ nothing }}")
        arguments |= {"author": "{{ nothing }}", "commit_key": "{{ nothing }}"}
        arguments |= {"num_executors": "{{ nothing }}", "deploy_mode": "{{ nothing }}"}
        arguments |= {"dry_run": "{{ nothing }}", "commit_message": "{{ nothing }}"}
        operator = kind(task_id="x", **required(kind), **arguments)
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
        (DuckLakeIngestOperator, {"table": "", "source": "s"}, "needs the table"),
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


def test_the_result_is_returned(spark: StandIn, task_log: TaskLog) -> None:
    table = {"table": "main.t", "files_before": 9, "files_after": 1, "files_in": 9, "files_out": 1}
    from airflow_provider_ducklake.lake.results import TableResult

    made = result(
        operation="merge_adjacent_files",
        snapshot_before=3,
        snapshot_after=4,
        tables=(TableResult(**table),),  # type: ignore[arg-type]
        messages=("all merged",),
    )
    spark.will(made)
    assert Merge(task_id="x").execute(task_context()) == json.loads(json.dumps(made))
    lines = [entry["event"] for entry in task_log]
    assert "merge_adjacent_files on a lake: snapshot 3 -> 4" in lines
    assert any(line.startswith("main.t: 9 files in, 1 out") for line in lines)
    assert "all merged" in lines
    assert not Path(spark.value("result-file")).exists()


def error(name: str, message: str = "what is wrong") -> dict[str, Any]:
    """Return what a job writes when it fails."""
    return {"error": {"type": name, "message": message}}


@pytest.mark.parametrize(
    "name", ["ConfigurationError", "UnsupportedCatalog", "NotFound", "BadInput", "SafetyRefusal"]
)
def test_errors_no_retry_can_mend(spark: StandIn, name: str) -> None:
    spark.will(error(name), exit=1)
    with pytest.raises(AirflowFailException) as raised:
        Merge(task_id="x").execute(task_context())
    assert str(raised.value) == f"{name}: what is wrong"
    assert raised.value.__suppress_context__


@pytest.mark.parametrize(
    "name", ["CommitConflict", "CommitStateUnknown", "CatalogUnavailable", "StorageError", "Odd"]
)
def test_errors_worth_a_retry(spark: StandIn, name: str) -> None:
    spark.will(error(name), exit=1)
    with pytest.raises(AirflowException) as raised:
        Merge(task_id="x").execute(task_context())
    assert not isinstance(raised.value, AirflowFailException)
    assert str(raised.value) == f"{name}: what is wrong"


def test_tables_that_failed_fail_the_task_after_the_others_are_done(spark: StandIn) -> None:
    from airflow_provider_ducklake.lake.results import TableResult

    made = result(
        operation="merge_adjacent_files",
        tables=(TableResult("main.good", files_in=2), TableResult("main.bad", error="odd file")),
    )
    spark.will(made, exit=1)
    context = task_context()
    with pytest.raises(AirflowException, match=r"failed for 1 of 2 tables: main\.bad: odd file"):
        Merge(task_id="x").execute(context)
    assert context["ti"].pushed["result"]["tables"][0]["files_in"] == 2


def test_parts_that_failed_fail_the_task_after_the_rest_is_done(spark: StandIn) -> None:
    from airflow_provider_ducklake.lake.results import Failure

    failures = (Failure("StorageError", "2 files stay"), Failure("BadInput", "a corrupt footer"))
    spark.will(result(counts={"files_deleted": 7}, failures=failures), exit=1)
    context = task_context()
    with pytest.raises(AirflowException, match=r"StorageError: 2 files stay; a corrupt footer"):
        Merge(task_id="x").execute(context)
    assert context["ti"].pushed["result"]["counts"] == {"files_deleted": 7}


def test_a_job_that_dies_without_a_word(spark: StandIn) -> None:
    spark.will(lines=["java.lang.OutOfMemoryError: Java heap space"], exit=137)
    with pytest.raises(AirflowException, match="OutOfMemoryError") as raised:
        Merge(task_id="x").execute(task_context())
    assert not isinstance(raised.value, AirflowFailException)


def test_wrong_usage_is_no_reason_to_try_again(spark: StandIn) -> None:
    spark.will(lines=["ducklake: wrong usage: --table needs a value"], exit=2)
    with pytest.raises(AirflowFailException, match="wrong usage"):
        Merge(task_id="x").execute(task_context())


@pytest.mark.parametrize(("outcome", "message"), [(None, "without a result"), ("[", "no JSON")])
def test_a_job_that_ends_well_without_a_result_has_not(
    spark: StandIn, outcome: str | None, message: str
) -> None:
    spark.will(outcome)
    with pytest.raises(AirflowException, match=message):
        Merge(task_id="x").execute(task_context())


def all_that_can_be_seen(operator: DuckLakeSparkOperator, spark: StandIn, task_log: TaskLog) -> str:
    """Return command line, log and rendered fields as one text."""
    fields = [str(getattr(operator, name)) for name in operator.template_fields]
    return f"{spark.call['argv']} {task_log} {fields} {vars(operator)['application_args']}"


def shown(text: str) -> bool:
    """Tell whether a piece of one of the secrets stands in a text."""
    return any(piece in text for piece in ("p@ss", "p%40ss", "or\\d", "x&%", "qu1et"))


def test_secrets_by_environment(spark: StandIn, task_log: TaskLog) -> None:
    """Cases CT-03: not in argv, logs, rendered fields; the job gets them all the same."""
    operator = Merge(task_id="x")
    operator.execute(task_context())
    environment = spark.call["environment"]
    assert environment["DUCKLAKE_CATALOG_PASSWORD"] == ODD_PASSWORD
    assert environment["DUCKLAKE_STORAGE_AWS_SECRET_ACCESS_KEY"] == "qu1et"
    assert environment["DUCKLAKE_STORAGE_AWS_REGION"] == "eu-west-1"
    assert "properties" not in spark.call
    assert not shown(all_that_can_be_seen(operator, spark, task_log))


def test_secrets_by_a_properties_file(
    spark: StandIn,
    task_log: TaskLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.eventLog.enabled true\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    operator = Merge(task_id="x", secrets_mode="properties")
    operator.execute(task_context())
    call = spark.call
    assert call["properties_mode"] == "0o600"
    lines = call["properties"].splitlines()
    assert lines[0] == "spark.eventLog.enabled true"
    escaped = ODD_PASSWORD.replace("\\", "\\\\")
    assert f"spark.ducklake.catalog.password {escaped}" in lines
    assert "spark.ducklake.storage.aws_secret_access_key qu1et" in lines
    assert not any(name.startswith("DUCKLAKE_") for name in call["environment"])
    assert not Path(call["argv"][call["argv"].index("--properties-file") + 1]).exists()
    assert not shown(all_that_can_be_seen(operator, spark, task_log))


def test_the_authors_own_properties_file_is_kept(spark: StandIn, tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("spark.mine 1")
    Merge(task_id="x", secrets_mode="properties", properties_file=str(own)).execute(task_context())
    assert spark.call["properties"].startswith("spark.mine 1\n")
    Merge(task_id="x", properties_file=str(own)).execute(task_context())
    assert spark.call["properties"] == "spark.mine 1"


def test_secrets_left_to_the_deployment(spark: StandIn) -> None:
    Merge(task_id="x", secrets_mode="none").execute(task_context())
    assert not any(name.startswith("DUCKLAKE_") for name in spark.call["environment"])


def test_secrets_a_job_prints_are_masked(spark: StandIn, task_log: TaskLog) -> None:
    spark.will(lines=[f"I know {ODD_PASSWORD} and qu1et"], exit=1)
    with pytest.raises(AirflowException) as raised:
        Merge(task_id="x").execute(task_context())
    assert not shown(f"{raised.value} {task_log}")
    assert "I know *** and ***" in str(task_log)


def test_on_kill_ends_the_application(spark: StandIn) -> None:
    sleep = "import time; time.sleep(600)"
    spark.will(children=[sleep, sleep], seconds=600)
    operator = Merge(task_id="x")
    raised: list[BaseException] = []

    def execute() -> None:
        try:
            operator.execute(task_context())
        except AirflowException as failure:
            raised.append(failure)

    task = threading.Thread(target=execute, daemon=True)
    task.start()
    wait_for(lambda: spark.started, "the submission")
    operator.on_kill()
    task.join(30)
    assert not task.is_alive()
    assert session_members(spark.call["pid"]) == []
    assert len(raised) == 1
    operator.on_kill()


def test_on_kill_before_anything_was_submitted(spark: StandIn) -> None:
    Merge(task_id="x").on_kill()
    assert not spark.started


def test_our_hook_gets_all_the_base_class_would_give_its_own(spark: StandIn) -> None:
    """Whatever arguments the installed provider knows are handed on."""
    import inspect

    operator = Merge(task_id="x", verbose=True, java_class=None, files="f", keytab="k")
    operator.execute(task_context())
    assert {"--verbose", "--files", "--keytab"} <= set(spark.call["argv"])
    names = set(inspect.signature(SparkSubmitHook.__init__).parameters) - {"self"}
    missing = {n for n in names if not (hasattr(operator, n) or hasattr(operator, f"_{n}"))}
    assert missing == set()


def test_parent_job_information_reaches_the_application(
    spark: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenLineage: the base class adds to `conf` in execute(), before it makes its hook."""
    from airflow.providers.apache.spark.operators import spark_submit

    def inject(conf: dict[str, str], context: Any) -> dict[str, str]:
        return {**conf, "spark.openlineage.parentRunId": "r"}

    monkeypatch.setattr(spark_submit, "inject_parent_job_information_into_spark_properties", inject)
    Merge(task_id="x", openlineage_inject_parent_job_info=True).execute(task_context())
    assert "spark.openlineage.parentRunId=r" in spark.call["argv"]


def test_executing_twice_is_like_executing_two_operators(spark: StandIn) -> None:
    operator = Merge(task_id="x")
    operator.execute(task_context())
    first = spark.call["argv"]
    operator.execute(task_context(run_id="other"))
    second = spark.call["argv"]
    assert len(first) == len(second)
    assert "--message=merge_adjacent_files by task nightly.work, run other" in second


def commit(snapshot_id: int, key: str, tables: list[dict[str, Any]]) -> Snapshot:
    """Return a snapshot as a job with a key leaves it."""
    info = {"ducklake_job": {"key": key, "result": {"tables": tables}}}
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return Snapshot(snapshot_id, at, 1, 1, 1, extra_info=json.dumps(info))


def test_the_result_of_a_job_on_a_cluster_is_in_its_commits() -> None:
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    skipped = [{"reason": "too large", "count": 2}]
    snapshots = [
        Snapshot(6, at, 1, 1, 1, extra_info="not ours"),
        commit(7, "k/main.a", [{"table": "main.a", "files_in": 3, "skipped": skipped}]),
        commit(8, "kk/main.a", [{"table": "main.a", "files_in": 99}]),
        commit(9, "k/main.b", []),
        Snapshot(10, at, 1, 1, 1),
    ]
    found = result_of_commits(snapshots, "k", "merge_adjacent_files", "a lake")
    assert (found["snapshot_before"], found["snapshot_after"]) == (6, 9)
    assert [(t["table"], t["files_in"], t["snapshot_id"]) for t in found["tables"]] == [
        ("main.a", 3, 7),
        ("main.b", 0, 9),
    ]
    assert list(found["tables"][0]["skipped"]) == skipped
    nothing = result_of_commits(snapshots, "other", "merge_adjacent_files", "a lake")
    assert nothing["snapshot_after"] is None
    assert "committed nothing" in nothing["messages"][0]


def test_cluster_mode_asks_the_catalog_for_the_result(
    spark: StandIn, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook

    class FakeLake:
        """A lake with one commit of ours."""

        def snapshots(self) -> list[Snapshot]:
            """Return the kept snapshots."""
            return [commit(7, "k/main.a", [{"table": "main.a", "files_in": 3}])]

        def __str__(self) -> str:
            return "a lake"

    monkeypatch.setattr(DuckLakeHook, "lake", lambda self: FakeLake())
    connect("yarn", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    operator = Merge(
        task_id="x", conn_id="yarn", secrets_mode="properties", commit_key="k", durable=False
    )
    found = operator.execute(task_context())
    assert spark.values("result-file") == []
    assert found["snapshot_after"] == 7
    assert found["tables"][0]["files_in"] == 3


@pytest.mark.parametrize("state", ["RUNNING", "FINISHED"])
def test_a_retry_finds_the_application_of_the_try_before(
    spark: StandIn, connect: Connect, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Airflow 3.3: a durable operator waits for it, and asks the catalog what it did (SP-04)."""
    from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
    from airflow_provider_ducklake.hooks.spark_submit import DuckLakeSparkSubmitHook

    class FakeLake:
        """A lake with one commit of ours."""

        def snapshots(self) -> list[Snapshot]:
            """Return the kept snapshots."""
            return [commit(7, "k", [{"table": "main.a", "files_in": 3}])]

    answers = [(state, "UNDEFINED" if state == "RUNNING" else "SUCCEEDED", "")]
    answers.append(("FINISHED", "SUCCEEDED", ""))
    monkeypatch.setattr(
        DuckLakeSparkSubmitHook, "_query_yarn_application_status", lambda *_: answers.pop(0)
    )
    monkeypatch.setattr(DuckLakeHook, "lake", lambda self: FakeLake())
    address = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": "http://rm:8088"}
    connect("yarn", conn_type="spark", host="yarn", extra=address)
    operator = Merge(
        task_id="x",
        conn_id="yarn",
        secrets_mode="properties",
        commit_key="k",
        yarn_track_via_rm_api=True,
    )
    store = FakeStateStore()
    store.set(operator.external_id_key, "application_1_2")
    found = operator.execute(task_context({"task_state_store": store}, try_number=2))
    assert found["snapshot_after"] == 7
    assert not spark.started


def test_operators_serialize(spark: StandIn) -> None:
    """A DAG of all operators goes into Airflow's database and back."""
    from airflow.serialization.serialized_objects import DagSerialization

    with DAG("nightly", schedule=None) as dag:
        for kind in OPERATORS:
            kind(task_id=kind.operation, **required(kind), dry_run="{{ params.dry_run }}")
        Merge.partial(task_id="mapped").expand(table=["a", "b"])
    stored = json.loads(json.dumps(DagSerialization.to_dict(dag)))
    back = DagSerialization.from_dict(stored)
    assert set(back.task_ids) == {*(kind.operation for kind in OPERATORS), "mapped"}
    assert str(APPLICATION) not in json.dumps(stored)
