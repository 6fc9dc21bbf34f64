"""The command line of the jobs, the same for spark-submit, `python -m` and Airflow."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from airflow_provider_ducklake.kernels.connection import KernelSettings, memory_limit
from airflow_provider_ducklake.lake.catalog_lock import working_on
from airflow_provider_ducklake.lake.commit import CommitInfo
from airflow_provider_ducklake.lake.errors import (
    ConfigurationError,
    LakeError,
    NotFound,
)
from airflow_provider_ducklake.lake.interrupts import terminated_as_interrupt
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import PASSWORD_VARIABLE, CatalogLocation
from airflow_provider_ducklake.lake.options import OperationOptions
from airflow_provider_ducklake.lake.remote_catalog import LEASE_WAIT, checked_out
from airflow_provider_ducklake.lake.results import OperationResult
from airflow_provider_ducklake.spark.credentials import (
    CONF_PASSWORD,
    CONF_STORAGE,
    STORAGE_PREFIX,
    Secrets,
    collect,
)
from airflow_provider_ducklake.spark.operations import (
    OPERATIONS,
    WITHOUT_SPARK,
    check_options,
    only_reads,
    run_operation,
)
from airflow_provider_ducklake.spark.output import (
    require_writable,
    say,
    write_report,
    write_result,
)
from airflow_provider_ducklake.spark.report import render
from airflow_provider_ducklake.spark.runner import LocalRunner, Runner, SparkRunner

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

DONE: Final = 0
FAILED: Final = 1
WRONG_USAGE: Final = 2
_BRINGING: Final = frozenset({"create_table", "ingest", "add_data_files"})


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(message)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = _Parser(
        prog="python -m airflow_provider_ducklake.spark",
        description="Run one operation on a DuckLake lake. Secrets come from the environment "
        f"({PASSWORD_VARIABLE}, {STORAGE_PREFIX}<KEY>) or from Spark's configuration "
        f"({CONF_PASSWORD}, {CONF_STORAGE}<key>), never from the command line.",
    )
    made.add_argument("operation", metavar="OPERATION", help=", ".join(OPERATIONS))
    place = made.add_mutually_exclusive_group(required=True)
    place.add_argument("--attach", help="e.g. ducklake:sqlite:/lake/catalog.sqlite")
    place.add_argument("--catalog-url", help="a SQLite catalog in a bucket: s3://bucket/cat.sqlite")
    made.add_argument("--data-path", help="where the data lies; needed to create a lake")
    made.add_argument("--metadata-schema", help="schema of the metadata tables")
    made.add_argument("--table", action="append", default=[], help="schema.table; repeatable")
    made.add_argument("--option", action="extend", nargs="+", default=[], metavar="NAME=VALUE")
    made.add_argument("--source", action="append", default=[], help="path or pattern; repeatable")
    made.add_argument("--format", help="Spark format of the source, or `table`")
    made.add_argument("--sql", help="query over the source, which is called `source`")
    made.add_argument("--dry-run", action="store_true", help="plan only, change nothing")
    made.add_argument("--json", action="store_true", help="print the result as one JSON line")
    made.add_argument("--result-file", help="also write the result, or the error, to this file")
    made.add_argument("--report-file", help="write file lists and plans to this file")
    made.add_argument("--author", help="author of the commit")
    made.add_argument("--message", help="commit message")
    made.add_argument("--extra-info", help="JSON object to keep beside the commit")
    made.add_argument("--commit-key", help="identity of this work: it is done once under a key")
    made.add_argument("--master", help="Spark master, when not started by spark-submit")
    made.add_argument(
        "--lease-wait",
        type=float,
        default=LEASE_WAIT,
        metavar="SECONDS",
        help="how long to wait for another job on the catalog of --catalog-url",
    )
    made.add_argument(
        "--memory-limit",
        type=memory_limit,
        default="1GB",
        help="DuckDB memory of one task, such as 1GB or 512MiB",
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 0 done, 1 failed, 2 wrong usage."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(name)s: %(message)s")
    for noisy in ("py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    result_file: str | None = None
    try:
        given = parser().parse_args(arguments)
        options = _options(given.option)
        require_writable(given.result_file, given.report_file)
        result_file = given.result_file
        location = _location(given)
        check_options(given.operation, options)
        commit = _commit_info(given)
    except ConfigurationError as error:
        return _failed(error, result_file, WRONG_USAGE)
    try:
        result = _run(given, location, options, commit)
    except LakeError as error:
        return _failed(error, result_file)
    except KeyboardInterrupt:
        interrupted = "interrupted: what was committed stays, the rest was not begun or is undone"
        return _failed(LakeError(f"{interrupted}; run it again to do that"), result_file)
    write_result(result_file, result.to_dict())
    say(json.dumps(result.to_dict()) if given.json else render(result))
    return FAILED if result.is_failed else DONE


def _run(
    given: argparse.Namespace,
    location: CatalogLocation | None,
    options: Mapping[str, str],
    commit: CommitInfo,
) -> OperationResult:
    from airflow_provider_ducklake.spark.session import is_submitted, open_context

    # An application under spark-submit has its secrets in Spark's configuration, and a cluster
    # takes one that never starts for a failed one.
    if given.operation in WITHOUT_SPARK and not is_submitted():
        return _with_report(given, location, options, commit, LocalRunner(), {}, None)
    with open_context(f"ducklake {given.operation}", given.master) as context:
        conf = dict(context.getConf().getAll())
        runner = SparkRunner(context)
        return _with_report(given, location, options, commit, runner, conf, context)


def _with_report(
    given: argparse.Namespace,
    location: CatalogLocation | None,
    options: Mapping[str, str],
    commit: CommitInfo,
    runner: Runner,
    conf: Mapping[str, str],
    context: SparkContext | None,
) -> OperationResult:
    secrets = collect(conf)
    storage = secrets.storage
    lines: list[str] = []
    log = logging.getLogger("airflow_provider_ducklake")

    def report(line: str) -> None:
        log.info("%s", line)
        lines.append(line)

    def data(parsed: OperationOptions) -> DataFrame:
        from airflow_provider_ducklake.spark.dataframes import read_source
        from airflow_provider_ducklake.spark.session import sql_session

        assert context is not None
        return read_source(
            sql_session(context),
            given.source,
            source_format=given.format,
            options=parsed.with_prefix("reader."),
            sql=given.sql,
        )

    try:
        with working_on(given.operation), _lake(given, location, options, secrets) as lake:
            return run_operation(
                given.operation,
                lake,
                options,
                runner=runner,
                tables=given.table,
                sources=given.source,
                as_they_are=_as_they_are(given, options),
                dry_run=given.dry_run,
                commit=commit,
                settings=KernelSettings(storage, given.memory_limit),
                data=data if context is not None else None,
                report=report,
            )
    finally:
        write_report(given.report_file, lines)


@contextmanager
def _lake(
    given: argparse.Namespace,
    location: CatalogLocation | None,
    options: Mapping[str, str],
    secrets: Secrets,
) -> Iterator[Lake]:
    """Open the lake; a catalog in a bucket is fetched, and put back after."""
    storage = secrets.storage
    if location is not None:
        yield Lake.open(replace(location, password=secrets.password), storage=storage)
        return
    with (
        terminated_as_interrupt(),
        checked_out(
            given.catalog_url,
            storage,
            data_path=given.data_path,
            owner=given.commit_key or given.author or "",
            operation=given.operation,
            read_only=only_reads(given.operation, options, dry_run=given.dry_run),
            lease_wait=given.lease_wait,
        ) as checkout,
    ):
        lake = Lake.open(checkout.location, storage=storage)
        lake.before_deleting = checkout.make_current
        if checkout.is_new and given.operation != "create_lake":
            _start_fresh(given, lake)
        yield lake


def _start_fresh(given: argparse.Namespace, lake: Lake) -> None:
    """Create the lake in the first run that brings something, if it says where data shall lie."""
    if given.operation not in _BRINGING or not given.data_path or given.dry_run:
        raise NotFound(
            f"there is no catalog at {given.catalog_url}: check the URL, or create the lake first "
            f"(create_lake, or {', '.join(sorted(_BRINGING))} with a data path)"
        )
    logging.getLogger("airflow_provider_ducklake").info(
        "there is no catalog at %s: a new lake begins", given.catalog_url
    )
    Lake.create(lake.location, storage=lake.storage)


def _as_they_are(given: argparse.Namespace, options: Mapping[str, str]) -> bool:
    """Tell whether the rows to ingest are those of some Parquet files, untouched."""
    if given.sql or not given.source or any(name.startswith("reader.") for name in options):
        return False
    from airflow_provider_ducklake.spark.dataframes import format_of

    return format_of(given.source, given.format) == "parquet"


def _location(given: argparse.Namespace) -> CatalogLocation | None:
    """Return where the catalog is; None for one that has to be fetched from a bucket first."""
    if given.attach is not None:
        return CatalogLocation.of_argument(
            given.attach, metadata_schema=given.metadata_schema, data_path=given.data_path
        )
    if given.metadata_schema:
        raise ConfigurationError("--metadata-schema: a SQLite catalog in a bucket has no schemas")
    return None


def _options(given: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigurationError(f"--option {text!r}: write NAME=VALUE")
        options[name.strip()] = value
    return options


def _commit_info(given: argparse.Namespace) -> CommitInfo:
    extra: Any = {}
    if given.extra_info:
        try:
            extra = json.loads(given.extra_info)
        except ValueError:
            extra = None
        if not isinstance(extra, dict):
            raise ConfigurationError('--extra-info must be a JSON object, e.g. \'{"run": "1"}\'')
    return CommitInfo(given.author, given.message, extra, given.commit_key)


def _failed(error: LakeError, result_file: str | None, status: int = FAILED) -> int:
    name, message = type(error).__name__, " ".join(str(error).split())
    shown = "wrong usage" if status == WRONG_USAGE else f"ERROR {name}"
    print(f"ducklake: {shown}: {message}", file=sys.stderr)
    write_result(result_file, {"error": {"type": name, "message": message}})
    return status
