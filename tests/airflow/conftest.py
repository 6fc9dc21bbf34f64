"""What the tests of the Airflow surface share: connections, task contexts, a stand-in for Spark."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.airflow.event_loop import pauses as pauses
from tests.airflow.event_loop import supervisor as supervisor
from tests.airflow.event_loop import unblocked as unblocked
from tests.support.lakes import LakeUnderTest
from tests.support.reference import ReferenceClient

# A password that breaks whatever quotes carelessly: URL, libpq, SQL, JSON, shell, properties.
ODD_PASSWORD = r"p@ss w'or\d=x&%41"
Connect: TypeAlias = Callable[..., None]
TaskLog: TypeAlias = list[MutableMapping[str, Any]]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """A function that defines an Airflow connection, as JSON, for the length of a test."""

    def define(conn_id: str, uri: str | None = None, **fields: Any) -> None:
        variable = f"AIRFLOW_CONN_{conn_id.upper()}"
        monkeypatch.setenv(variable, json.dumps(fields) if uri is None else uri)

    return define


@pytest.fixture
def connect_lake(connect: Connect) -> Callable[..., None]:
    """A function that defines the connection of a lake under test, `ducklake_default`."""

    def define(lake: LakeUnderTest, conn_id: str = "ducklake_default", **extra: Any) -> None:
        more = {"attach": lake.attach_string, "metadata_schema": lake.location.metadata_schema}
        connect(conn_id, conn_type="ducklake", extra={**more, **extra})

    return define


@pytest.fixture
def guarded_lake(postgres_database: str, tmp_path: Path, connect: Connect) -> Iterator[str]:
    """A lake whose catalog asks for the odd password; gives the libpq string without it."""
    with psycopg.connect(postgres_database, autocommit=True) as admin:
        row = admin.execute("SHOW hba_file").fetchone()
        assert row is not None
        hba = Path(row[0])
        role = sql.SQL("CREATE ROLE guarded LOGIN SUPERUSER PASSWORD {}")
        admin.execute(role.format(sql.Literal(ODD_PASSWORD)))
        rules = hba.read_text()
        hba.write_text(f"local all guarded scram-sha-256\n{rules}")
        admin.execute("SELECT pg_reload_conf()")
    client = ReferenceClient(f"ducklake:postgres:{postgres_database}", data_path=f"{tmp_path}/d/")
    client.sql("CREATE TABLE t AS SELECT 1 AS a")
    client.close()
    target = make_conninfo(postgres_database, user="guarded")
    parts = psycopg.conninfo.conninfo_to_dict(target)
    connect(
        "ducklake_default",
        conn_type="ducklake",
        host=parts["host"],
        login="guarded",
        password=ODD_PASSWORD,
        schema=parts["dbname"],
        extra={"catalog_type": "postgres"},
    )
    yield target
    hba.write_text(rules)
    with psycopg.connect(postgres_database, autocommit=True) as admin:
        admin.execute("SELECT pg_reload_conf()")
        admin.execute("DROP OWNED BY guarded")
        admin.execute("DROP ROLE guarded")


@dataclass
class FakeTaskInstance:
    """The part of a task instance that operators and sensors look at."""

    dag_id: str = "nightly"
    run_id: str = "manual__2026-01-02"
    task_id: str = "work"
    map_index: int = -1
    try_number: int = 1
    first_reschedule: Any = None
    pushed: dict[str, Any] = field(default_factory=dict)
    stats_tags: dict[str, str] = field(default_factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        """Keep what is pushed."""
        self.pushed[key] = value

    def get_first_reschedule_date(self, context: Mapping[str, Any]) -> Any:
        """Return when the sensor first ran, None in its first run."""
        return self.first_reschedule


class FakeStateStore:
    """Airflow 3.3's task state store, in memory."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value as it comes back from the database: through JSON."""
        return json.loads(json.dumps(self.values.get(key, default)))

    def set(self, key: str, value: Any) -> None:
        """Keep a value."""
        self.values[key] = value


def task_context(more: Mapping[str, Any] | None = None, **given: Any) -> Any:
    """Return an execution context: a task instance of these attributes, and more entries."""
    ti = FakeTaskInstance(**given)
    return {"ti": ti, "run_id": ti.run_id, **(more or {})}


# Stands where spark-submit is expected. It notes how it was called, then does what the plan says as
# the real job would: the result file named on its command line, lines on stdout, exit status.
_STAND_IN = """#!{python}
import json, os, subprocess, sys, time
home = {home!r}
plan = json.load(open(home + "/plan.json"))
call = {{"argv": sys.argv[1:], "environment": dict(os.environ), "pid": os.getpid()}}
if "--properties-file" in sys.argv:
    path = sys.argv[sys.argv.index("--properties-file") + 1]
    call["properties"] = open(path).read()
    call["properties_mode"] = oct(os.stat(path).st_mode & 0o777)
children = [subprocess.Popen([sys.executable, "-c", code]) for code in plan.get("children", ())]
call["children"] = [child.pid for child in children]
with open(home + "/calls.tmp", "w") as file:
    json.dump(call, file)
os.replace(home + "/calls.tmp", home + "/call.json")
for line in plan.get("lines", ()):
    print(line, flush=True)
for argument in sys.argv:
    flag, _, path = argument.partition("=")
    if flag == "--result-file" and "outcome" in plan:
        with open(path, "w") as file:
            file.write(plan["outcome"])
time.sleep(plan.get("seconds", 0))
sys.exit(plan.get("exit", 0))
"""


@dataclass(frozen=True, slots=True)
class StandIn:
    """A stand-in for spark-submit, first on PATH."""

    home: Path

    def will(self, outcome: Any = None, **plan: Any) -> None:
        """Say what the next submission does.

        Args:
            outcome: What it writes to the result file: JSON data, or text as it is.
            **plan: `lines` it prints, `children` (Python code) it starts, `seconds` it takes,
                `exit` status.
        """
        if outcome is not None:
            plan["outcome"] = outcome if isinstance(outcome, str) else json.dumps(outcome)
        (self.home / "plan.json").write_text(json.dumps(plan))

    @property
    def call(self) -> dict[str, Any]:
        """How it was called: argv, environment, pid, children, properties."""
        call: dict[str, Any] = json.loads((self.home / "call.json").read_text())
        return call

    @property
    def started(self) -> bool:
        """Whether it was called at all."""
        return (self.home / "call.json").exists()

    @property
    def job(self) -> list[str]:
        """The job's own arguments: what follows the application file."""
        argv: list[str] = self.call["argv"]
        application = next(i for i, argument in enumerate(argv) if argument.endswith(".py"))
        return argv[application + 1 :]

    def values(self, flag: str) -> list[str]:
        """Return the values of one of the job's flags, in order."""
        start = f"--{flag}="
        return [text.removeprefix(start) for text in self.job if text.startswith(start)]

    def value(self, flag: str) -> str:
        """Return the value of a flag that is given once."""
        (value,) = self.values(flag)
        return value

    def options(self) -> dict[str, str]:
        """Return the job's `--option=name=value` pairs."""
        return dict(text.split("=", 1) for text in self.values("option"))


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connect: Connect) -> StandIn:
    """A stand-in for spark-submit that succeeds, and a Spark connection `spark_default`."""
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    binary = home / "bin" / "spark-submit"
    binary.write_text(_STAND_IN.format(python=sys.executable, home=str(home)))
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    connect("spark_default", conn_type="spark", host="local[2]")
    stand_in = StandIn(home)
    stand_in.will(result())
    return stand_in


def wait_for(condition: Callable[[], Any], what: str) -> None:
    """Wait until something another process does has happened."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


def result(**given: Any) -> dict[str, Any]:
    """Return a result as a job writes it."""
    from airflow_provider_ducklake.lake.results import OperationResult

    return OperationResult(**{"operation": "ingest", "lake": "a lake", **given}).to_dict()


@pytest.fixture
def task_log() -> Iterator[TaskLog]:
    """What operators, hooks and sensors log during a test."""
    from structlog.testing import capture_logs

    with capture_logs() as entries:
        yield entries


@pytest.fixture
def default_lake(connect: Connect) -> None:
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
