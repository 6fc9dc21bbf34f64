"""`--catalog-url`: operations on a lake whose catalog and data lie in a bucket."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pytest

from airflow_provider_ducklake.lake.errors import CommitConflict, LakeError
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.remote_catalog import Checkout
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.spark.cli import main
from airflow_provider_ducklake.spark.operations import run_operation
from airflow_provider_ducklake.spark.runner import LocalRunner
from airflow_provider_ducklake.storage import open_store
from tests.support import places
from tests.support.places import Place, add
from tests.support.reference import extension_file
from tests.support.s3 import S3Server, options_for

local = places.local


class Bucket(Place):
    """A lake whose data is in the bucket too."""

    @property
    def data_path(self) -> str:
        """Where the lake's files are."""
        return self.url.removesuffix("catalog.sqlite") + "data/"

    def data_files(self) -> set[str]:
        """Return the names of the objects under the data path."""
        return {info.location.name for info in self.store.list(self.data_path)}


@pytest.fixture
def bucket(s3_server: S3Server, local: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket that the command line can reach, by the environment as operators set it."""
    options = options_for(s3_server)
    for name, value in options.to_environment().items():
        monkeypatch.setenv(name, value)
    return Bucket(f"{s3_server.url}/lake/catalog.sqlite", options, local)


def command(bucket: Place, operation: str, *more: str) -> int:
    """Run the command line on the lake in the bucket."""
    return main([operation, "--catalog-url", bucket.url, *more])


def stock_rows(bucket: Bucket, server: S3Server, query: str) -> list[Any]:
    """Let the unmodified extension answer a query, with its own access to the bucket."""
    catalog = bucket.local / "downloaded.sqlite"
    catalog.write_bytes(bucket.store.read(bucket.url))
    with closing(duckdb.connect(config={"allow_unsigned_extensions": "true"})) as connection:
        for extension in ("httpfs", "sqlite_scanner", "ducklake"):
            connection.execute(f"LOAD '{extension_file(extension)}'")
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{server.access_key_id}', SECRET "
            f"'{server.secret_access_key}', ENDPOINT '{urlsplit(server.endpoint).netloc}', "
            f"USE_SSL false, URL_STYLE 'path', REGION '{server.region}')"
        )
        connection.execute(f"ATTACH 'ducklake:sqlite:{catalog}' AS lake; USE lake")
        return connection.execute(query).fetchall()


def stock_tables(bucket: Bucket, server: S3Server) -> list[str]:
    """Return the tables the unmodified extension sees."""
    query = "SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake' ORDER BY 1"
    return [name for (name,) in stock_rows(bucket, server, query)]


def run(
    checkout: Checkout,
    bucket: Bucket,
    name: str,
    *tables: str,
    sources: Sequence[str] = (),
    runner: LocalRunner | None = None,
    **options: str,
) -> OperationResult:
    """Run an operation on a copy as the command line does, without Spark."""
    lake = Lake.open(checkout.location, storage=bucket.options)
    lake.before_deleting = checkout.make_current
    return run_operation(
        name, lake, options, runner=runner or LocalRunner(), tables=tables, sources=sources
    )


def fill(bucket: Bucket, runs: int = 3) -> None:
    """Register a small Parquet file in each of some runs."""
    for number in range(runs):
        path = bucket.local / f"in{number}.parquet"
        with closing(duckdb.connect()) as connection:
            connection.execute(f"COPY (SELECT {number}::BIGINT AS id) TO '{path}' (FORMAT parquet)")
        source = f"{bucket.data_path}main/t/in{number}.parquet"
        bucket.store.upload(str(path), source)
        with bucket.out() as checkout:
            result = run(checkout, bucket, "add_data_files", "t", sources=[source])
        assert not result.is_failed


def merged(bucket: Bucket, checkout: Checkout) -> None:
    """Merge the small files and let go of the snapshots that used them."""
    assert not run(checkout, bucket, "merge_adjacent_files", "t").is_failed
    assert not run(checkout, bucket, "expire_snapshots", retain_last="1", older_than="0s").is_failed


def test_a_lake_in_a_bucket_from_the_first_run_on(
    bucket: Bucket, s3_server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(bucket, "create_lake", "--data-path", bucket.data_path) == 0
    columns = ["--option", "columns=id int64"]
    assert command(bucket, "create_table", "--table", "t", *columns) == 0
    fill(bucket)
    capsys.readouterr()
    assert command(bucket, "info", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["lake"] == f"sqlite catalog {bucket.url}"
    assert told["counts"]["snapshots"] == 5
    assert stock_rows(bucket, s3_server, "FROM t ORDER BY id") == [(0,), (1,), (2,)]
    assert bucket.objects().count("catalog.sqlite") == 1
    assert not [name for name in bucket.objects() if "lease" in name or "probe" in name]


def test_the_first_run_that_brings_something_starts_fresh(
    bucket: Bucket, s3_server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    table = ["--table", "t", "--option", "columns=id int64"]
    cases = [
        ("create_table", table),
        ("create_table", [*table, "--data-path", bucket.data_path, "--dry-run"]),
        ("info", ["--data-path", bucket.data_path]),
    ]
    for operation, more in cases:
        assert command(bucket, operation, *more) == 1
        assert f"there is no catalog at {bucket.url}" in capsys.readouterr().err
        assert list(bucket.store.list(bucket.url.rpartition("/")[0])) == []
    assert command(bucket, "create_table", *table, "--data-path", bucket.data_path) == 0
    assert stock_tables(bucket, s3_server) == ["t"]


def test_a_catalog_is_named_one_way_only(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(bucket, "info", "--attach", "ducklake:x") == 2
    assert "not allowed with" in capsys.readouterr().err
    assert main(["info"]) == 2
    shown = capsys.readouterr().err
    assert "--attach" in shown
    assert "--catalog-url" in shown
    assert command(bucket, "info", "--metadata-schema", "s") == 2
    assert "--metadata-schema" in capsys.readouterr().err
    assert command(bucket, "create_lake", "--data-path", "data/") == 1
    assert "is relative" in capsys.readouterr().err


def test_by_attach_such_a_catalog_is_only_read(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.begin()
    before = bucket.store.head(bucket.url)
    attach = ["--attach", f"ducklake:sqlite:{bucket.url}"]
    assert main(["info", "--json", *attach]) == 0
    assert json.loads(capsys.readouterr().out)["lake"] == f"sqlite catalog {bucket.url}"
    assert main(["create_table", *attach, "--table", "u", "--option", "columns=id int64"]) == 1
    assert "--catalog-url" in capsys.readouterr().err
    assert bucket.store.head(bucket.url) == before


def test_a_job_waits_for_the_lease_as_long_as_it_is_told(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.begin()
    result_file = bucket.local / "result.json"
    more = ["--table", "u", "--option", "columns=id int64", "--result-file", str(result_file)]
    with bucket.out(lease_seconds=600, owner="nightly", operation="checkpoint"):
        assert command(bucket, "create_table", *more, "--lease-wait", "0") == 1
        assert command(bucket, "info") == 0
    error = json.loads(result_file.read_text())["error"]
    assert error["type"] == "CatalogUnavailable"
    assert "nightly" in error["message"]
    assert command(bucket, "create_table", *more, "--lease-wait", "0") == 0


def test_secrets_of_the_bucket_are_not_shown(bucket: Bucket, s3_server: S3Server) -> None:
    """A whole process: what it prints on success and on failure."""
    program = [sys.executable, "-m", "airflow_provider_ducklake.spark"]
    for arguments in (
        ["create_lake", "--catalog-url", bucket.url, "--data-path", bucket.data_path],
        ["create_lake", "--catalog-url", bucket.url, "--data-path", bucket.data_path],
        ["info", "--catalog-url", "s3://no-such-bucket/catalog.sqlite"],
    ):
        done = subprocess.run([*program, *arguments], capture_output=True, text=True, check=False)
        assert s3_server.secret_access_key not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    assert "no-such-bucket" in done.stderr


@pytest.mark.spark
def test_spark_loads_into_a_lake_in_a_bucket(bucket: Bucket, s3_server: S3Server) -> None:
    """The first run of all, as `python -m` starts it: tasks write to S3, the copy is here."""
    source = bucket.local / "in.csv"
    source.write_text("id,name\n1,ann\n2,bob\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "airflow_provider_ducklake.spark", "ingest", "--table", "t"),
            *("--catalog-url", bucket.url, "--data-path", bucket.data_path),
            *("--source", str(source), "--master", "local[1]", "--commit-key", "nightly/1"),
            *("--option", "create_table=true", "reader.header=true", "reader.inferSchema=true"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(bucket.copies)},
    )
    assert done.returncode == 0, done.stderr
    assert stock_rows(bucket, s3_server, "FROM t ORDER BY id") == [(1, "ann"), (2, "bob")]
    assert not [path for path in bucket.copies.iterdir() if path.name.startswith("ducklake-")]


class Watching(LocalRunner):
    """Runs work here, and looks first what the bucket says when something is to be deleted."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look

    def run(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], description: str = ""
    ) -> list[Any | LakeError]:
        """See `Runner.run`."""
        if tasks and description.endswith("deleting"):
            self._look()
        return super().run(function, tasks, description)


def test_files_go_only_when_the_bucket_has_let_go_of_them(
    bucket: Bucket, s3_server: S3Server
) -> None:
    """A file that only the local copy has let go of is still read through the bucket's catalog."""
    bucket.begin()
    with bucket.out() as checkout:
        add(checkout, "t")
    fill(bucket)
    looks: list[list[Any]] = []

    def look() -> None:
        assert {"in0.parquet", "in1.parquet", "in2.parquet"} <= bucket.data_files()
        looks.append(stock_rows(bucket, s3_server, "FROM ducklake_list_files('lake', 't')"))

    with bucket.out() as checkout:
        merged(bucket, checkout)
        result = run(
            checkout,
            bucket,
            "cleanup_old_files",
            runner=Watching(look),
            cleanup_all="true",
            force="true",
        )
    assert result.counts["files_deleted"] == 3
    ((live,),) = looks
    assert bucket.data_files() == {str(live[0]).rpartition("/")[2]}
    assert stock_rows(bucket, s3_server, "FROM t ORDER BY id") == [(0,), (1,), (2,)]


@pytest.mark.parametrize("operation", ["cleanup_old_files", "delete_orphaned_files"])
def test_a_run_that_lost_the_race_deletes_nothing(
    bucket: Bucket, s3_server: S3Server, operation: str
) -> None:
    bucket.begin()
    with bucket.out() as checkout:
        add(checkout, "t")
    fill(bucket)
    bucket.store.write(f"{bucket.data_path}main/t/orphan.parquet", b"PAR1")
    before = bucket.data_files()

    def work(checkout: Checkout) -> None:
        merged(bucket, checkout)
        with bucket.out() as early:
            add(early, "early")
        with contextlib.suppress(CommitConflict):
            run(checkout, bucket, operation, cleanup_all="true", force="true")

    with pytest.raises(CommitConflict):
        bucket.run(work)
    assert before <= bucket.data_files()
    assert stock_tables(bucket, s3_server) == ["early", "first", "t"]
    assert stock_rows(bucket, s3_server, "FROM t ORDER BY id") == [(0,), (1,), (2,)]


def test_the_catalog_beside_the_data_is_no_orphan(bucket: Bucket) -> None:
    """Catalog and lease lie under the data path here."""
    inside = Bucket(bucket.data_path + "catalog.sqlite", bucket.options, bucket.local)
    shared = Place.out(inside, lease_seconds=600)
    with shared as checkout:
        Lake.create(checkout.location, storage=bucket.options)
    with inside.out(lease_seconds=600) as checkout:
        result = run(checkout, inside, "delete_orphaned_files", cleanup_all="true", force="true")
        assert result.counts["files_deleted"] == 0
    assert open_store(inside.url, inside.options).exists(inside.url)
