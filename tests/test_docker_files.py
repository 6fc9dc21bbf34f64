"""The Docker files, checked without Docker: what they name exists, versions agree with the pins."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
import yaml
from packaging.requirements import Requirement
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL

from airflow_provider_ducklake.lake.store.cli import main as store
from scripts.fill_landing import main as fill_landing
from tests.support.postgres import running_postgres

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT: Final = Path(__file__).resolve().parent.parent
DOCKER: Final = ROOT / "docker"
PINS: Final = ROOT / "requirements" / "dev.txt"

# ${NAME:?}, the one form the compose file uses: a missing secret stops it. $$ is an escape.
VARIABLE: Final = re.compile(r"\$\{(\w+):\?\}")


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions in order, continued lines joined, comments left out."""
    lines = (DOCKER / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", "", text)
    return [
        (name, rest)
        for name, _, rest in (line.partition(" ") for line in joined.splitlines())
        if name
    ]


def pins(python: str) -> dict[str, str]:
    """Return the pinned versions for a Python version such as `3.11`, by distribution name."""
    found = {}
    for line in PINS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            environment = {"python_version": python, "python_full_version": f"{python}.0"}
            if requirement.marker is None or requirement.marker.evaluate(environment):
                found[requirement.name] = str(requirement.specifier).removeprefix("==")
    return found


def arguments() -> dict[str, str]:
    """Return the defaults of the Dockerfile's build arguments."""
    found = (rest.partition("=") for name, rest in instructions() if name == "ARG")
    return {name: value for name, equals, value in found if equals}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """Give the compose file, anchors and merges resolved."""
    content = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def test_base_image_is_the_pinned_airflow() -> None:
    """The image has the Airflow that the tests ran on."""
    values = arguments()
    base = next(rest for name, rest in instructions() if name == "FROM")
    assert base == "apache/airflow:slim-${AIRFLOW_VERSION}-python${PYTHON_VERSION}"
    assert values["AIRFLOW_VERSION"] == pins(values["PYTHON_VERSION"])["apache-airflow"]


def test_copied_files_exist_and_reach_the_build() -> None:
    """Every COPY finds its sources, and the ignore file lets them through."""
    ignore = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    copies = [rest for name, rest in instructions() if name == "COPY"]
    sources = [word for copy in copies for word in copy.split()[:-1] if not word.startswith("--")]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert {line.removeprefix("!") for line in ignore if line.startswith("!")} == set(sources)


def installed() -> str:
    """Return the instruction that installs the dependencies."""
    return next(rest for name, rest in instructions() if name == "RUN" and "--constraint" in rest)


def test_installed_packages_are_pinned() -> None:
    """What the image installs by name is in requirements/dev.txt, which constrains it."""
    words = installed().partition("dev.txt ")[2].split()
    named = {re.split(r"[\[=]", word.strip('"'))[0] for word in words}
    assert {"duckdb", "pyspark", "pyspark-client", "psycopg"} <= named
    assert named <= pins(arguments()["PYTHON_VERSION"]).keys()


def test_image_has_every_dependency_of_the_package() -> None:
    """The package is installed without its dependencies, so the list before it has them all."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["extensions"]]
    missing = [
        name
        for name in (Requirement(text).name for text in needed)
        if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", installed())
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("pyspark", "pyspark-client"),
        ("duckdb", "duckdb-extension-ducklake"),
        ("duckdb", "duckdb-extension-httpfs"),
        ("duckdb", "duckdb-extension-postgres-scanner"),
        ("duckdb", "duckdb-extension-sqlite-scanner"),
    ],
)
@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_overlapping_packages_are_of_one_version(python: str, first: str, second: str) -> None:
    """Files of the one are files of the other, or are loaded by it for that very version only."""
    versions = pins(python)
    assert versions[first] == versions[second]


def test_pins_name_versions_only() -> None:
    """No address of an index, no path and no hash in what `make venv` installs."""
    lines = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8").splitlines()
    pin = re.compile(r"^[a-z0-9.-]+==[\w.]+( ; .+)?$")
    assert [line for line in lines[1:] if not pin.match(line)] == []
    assert lines[0].startswith("#")


def test_services(compose: dict[str, Any]) -> None:
    """Airflow's four components, a Spark cluster with two workers and PostgreSQL are there."""
    services = compose["services"]
    assert set(services) == {
        *("postgres", "airflow-init", "api-server", "scheduler", "dag-processor", "triggerer"),
        *("spark-master", "spark-worker"),
    }
    assert services["spark-worker"]["deploy"]["replicas"] == 2
    images = {service["image"] for name, service in services.items() if name != "postgres"}
    assert len(images) == 1, "driver and executors need one Python and one set of packages"


def test_services_are_watched_and_wait(compose: dict[str, Any]) -> None:
    """Every service that stays up has a health check, and waits only for services that exist."""
    for name, service in compose["services"].items():
        assert ("healthcheck" in service) is (name != "airflow-init"), name
        for other, condition in service.get("depends_on", {}).items():
            waits = (
                "service_completed_successfully" if other == "airflow-init" else "service_healthy"
            )
            assert other in compose["services"]
            assert condition == {"condition": waits}


def test_mounts_exist(compose: dict[str, Any]) -> None:
    """Every mounted path is in the repository and every named volume is declared."""
    named = set()
    for name, service in compose["services"].items():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (DOCKER / source).exists(), f"{name} mounts {source}"
            else:
                named.add(source)
    assert named == set(compose["volumes"])


def test_build_paths_exist(compose: dict[str, Any]) -> None:
    """The image is built from the repository's root by the Dockerfile beside the compose file."""
    for service in compose["services"].values():
        if "build" in service:
            context = (DOCKER / service["build"]["context"]).resolve()
            assert context == ROOT
            assert (context / service["build"]["dockerfile"]).samefile(DOCKER / "Dockerfile")


def test_ports_are_on_loopback(compose: dict[str, Any]) -> None:
    """Nothing is published beyond this machine, and no two services claim one port."""
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []
    assert len({port.split(":")[1] for port in ports}) == len(ports) == 2


def local_values() -> dict[str, str]:
    """Return the values of docker/local-development.env by name."""
    lines = (DOCKER / "local-development.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_secrets_come_from_the_environment() -> None:
    """The compose file has no secret of its own; the local ones say what they are."""
    text = (DOCKER / "compose.yaml").read_text(encoding="utf-8")
    values = local_values()
    assert set(VARIABLE.findall(text)) == set(values)
    assert VARIABLE.sub("", text).replace("$$", "").count("$") == 0
    first = (DOCKER / "local-development.env").read_text(encoding="utf-8").splitlines()[0]
    assert "LOCAL DEVELOPMENT ONLY" in first
    assert [value for value in values.values() if value in VARIABLE.sub("", text)] == []


def test_connections_are_connections(compose: dict[str, Any]) -> None:
    """The connections are JSON with the variables filled in, and lead to services that exist."""
    environment = compose["services"]["scheduler"]["environment"]
    values = local_values()
    connections = {
        name.removeprefix("AIRFLOW_CONN_").lower(): json.loads(
            VARIABLE.sub(lambda match: values[match.group(1)], text)
        )
        for name, text in environment.items()
        if name.startswith("AIRFLOW_CONN_")
    }
    assert {fields["conn_type"] for fields in connections.values()} == {"spark", "ducklake"}
    hosts = {fields["host"].removeprefix("spark://") for fields in connections.values()}
    assert hosts <= compose["services"].keys()
    mounts = compose["services"]["scheduler"]["volumes"]
    assert [mount for mount in mounts if mount.split(":")[1] == "/lakes"]
    assert compose["services"]["spark-worker"]["volumes"] == ["lakes:/lakes"]


def test_tenants_find_their_connections(compose: dict[str, Any]) -> None:
    """Every connection and pool that the example DAGs name is set up."""
    settings = yaml.safe_load((ROOT / "dags" / "tenants.yaml").read_text(encoding="utf-8"))
    tenants = [{**settings["defaults"], **tenant} for tenant in settings["tenants"].values()]
    named = {tenant[key] for tenant in tenants for key in ("ducklake_conn_id", "spark_conn_id")}
    environment = compose["services"]["scheduler"]["environment"]
    assert [name for name in named if f"AIRFLOW_CONN_{name.upper()}" not in environment] == []
    pools = json.loads((ROOT / "dags" / "pools.json").read_text(encoding="utf-8"))
    assert {tenant["pool"] for tenant in tenants} <= pools.keys()
    assert "dags/pools.json" in (DOCKER / "airflow-init.sh").read_text(encoding="utf-8")


@pytest.mark.parametrize("script", ["airflow-init.sh", "postgres-init.sh"])
def test_scripts_parse_and_may_be_run(script: str) -> None:
    """The scripts that containers run are executable Bash."""
    path = DOCKER / script
    assert path.stat().st_mode & 0o111 == 0o111
    subprocess.run(["bash", "-n", str(path)], check=True, timeout=30)


def test_the_store_is_made_by_the_role_of_the_lakes(
    compose: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """What the first script gives the role `lake` is enough for what the second does as it."""
    made = (DOCKER / "postgres-init.sh").read_text(encoding="utf-8")
    rights = re.search(r"CREATE ROLE lake ([A-Z ]+) PASSWORD", made)
    called = (DOCKER / "airflow-init.sh").read_text(encoding="utf-8")
    assert rights
    assert "lake.store init --root /lakes/store/" in called
    environment = compose["services"]["scheduler"]["environment"]
    fields = json.loads(VARIABLE.sub("", environment["AIRFLOW_CONN_DUCKLAKE_STORE"]))
    assert f"host={fields['host']} dbname={fields['schema']} user={fields['login']}" in called
    # A server of its own: the roles of a store are those of the whole server.
    with running_postgres() as server:
        with psycopg.connect(server.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(SQL("CREATE ROLE lake {}").format(SQL(rights[1])))
            connection.execute("CREATE DATABASE lakes OWNER lake")
        attach = f"ducklake:postgres:{make_conninfo(server.conninfo('lakes'), user='lake')}"
        assert store(["init", "--root", "/lakes/store/", "--attach", attach]) == 0
        assert store(["create", "acme", "--attach", attach]) == 0
    assert "/lakes/store/acme/" in capsys.readouterr().out


def test_the_landing_zone_is_filled_once(tmp_path: Path) -> None:
    """Every file that an ingest DAG asks for is there, and what is there stays."""
    settings = yaml.safe_load((ROOT / "dags" / "tenants.yaml").read_text(encoding="utf-8"))
    fill_landing(tmp_path)
    for tenant in settings["tenants"]:
        for file in settings["defaults"]["dimensions"].values():
            assert (tmp_path / tenant / file).is_file()
        for folder in ("Q1", "Q2", "Q3", "Q4", "2013-12"):
            assert list((tmp_path / tenant / "flights" / folder).glob("*.parquet"))
    assert {path.name for path in tmp_path.iterdir()} == set(settings["tenants"])
    (tmp_path / "EWR" / "planes.csv").write_text("changed")
    fill_landing(tmp_path)
    assert (tmp_path / "EWR" / "planes.csv").read_text() == "changed"
