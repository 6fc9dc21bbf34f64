"""The operator every operation shares: from arguments to spark-submit, and back to a result."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_provider_ducklake.hooks._errors import airflow_error
from airflow_provider_ducklake.hooks._values import (
    as_bool,
    as_int,
    as_number,
    as_object,
    chosen,
    given,
    given_names,
)
from airflow_provider_ducklake.lake.errors import ConfigurationError, LakeError
from airflow_provider_ducklake.operators import _options
from airflow_provider_ducklake.operators._delivery import JobSecrets, deliver
from airflow_provider_ducklake.operators._identity import TaskIdentity
from airflow_provider_ducklake.operators._outcome import (
    failure_of,
    read_outcome,
    result_of_commits,
    summary_lines,
)

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
    from airflow_provider_ducklake.hooks.spark_submit import DuckLakeSparkSubmitHook
    from airflow_provider_ducklake.lake.location import CatalogLocation

# Not imported: the file belongs to the driver, and its imports to a machine with Spark.
APPLICATION: Final = Path(__file__).parents[1] / "spark" / "entry" / "ducklake_job.py"
_WRONG_USAGE: Final = 2
# The base class keeps these privately and does not template them.
_SPARK_NUMBERS: Final = ("executor_cores", "num_executors", "total_executor_cores")
_SPARK_ARGUMENTS: Final = (
    "deploy_mode",
    "driver_memory",
    "executor_memory",
    "yarn_queue",
    *_SPARK_NUMBERS,
)


class DuckLakeSparkOperator(SparkSubmitOperator):
    """Run one operation on a lake as a Spark application, and return what it did.

    The result (`OperationResult.to_dict()`: counts, bytes, snapshots, no file lists) becomes the
    task's XCom. A task that is retried after its job had committed gets the result of that commit
    and does nothing again; so does a task that is cleared within the same DAG run, unless it is
    given another `commit_key`. All arguments are templated, and an argument that renders to nothing
    or to `None` counts as not given. Where that would widen what is done, it is refused instead:
    `catalog`, `catalog_url`, `table`, and what bounds which snapshots and files go.

    Errors that no retry can mend (a wrong option, a missing table, bad input, a safety refusal)
    fail the task for good; others follow the task's retries.

    Args:
        ducklake_conn_id: Connection of the lake.
        catalog: Catalog of the shared store, instead of the one the connection names.
        catalog_url: SQLite catalog in a bucket, instead of the one the connection names.
        lease_wait: Seconds the job waits for another one on a catalog in a bucket; 600 when not
            given.
        dry_run: Plan only: nothing is changed, and the result says what would be.
        author: Author of the commits; `airflow` when not given.
        commit_message: Message of the commits; names operation, task and run when not given.
        commit_extra_info: More entries for the commits' extra info, which always has `dag_id`,
            `run_id`, `task_id`, `map_index` and `try_number`.
        commit_key: Replaces the idempotency key made from DAG, run, task, map index, operation and
            catalog.
        memory_limit: Memory DuckDB may take in each Spark task, such as `2GB`; 1 GB when not given.
        report_file: File that receives the full list of files; it may become long.
        secrets_mode: How password and storage options reach the driver. `env`: by the environment
            of spark-submit, for local and client mode. `properties`: by a file of mode 0600 given
            to spark-submit, kept on top of spark-defaults.conf; works in every mode, but on
            Kubernetes becomes a ConfigMap. `none`: the deployment sees to it, for instance with
            `spark.kubernetes.driver.secretKeyRef.DUCKLAKE_CATALOG_PASSWORD`.
        kill_timeout: Seconds the cluster manager gets to cancel the application.
        conn_id: Connection of Spark.
        deploy_mode: `client` or `cluster`; wins over the Spark connection.
        driver_memory: As for SparkSubmitOperator, like all that follow.
        executor_cores: Cores an executor.
        executor_memory: Memory an executor.
        num_executors: Executors.
        total_executor_cores: Cores of all executors, on a standalone cluster.
        yarn_queue: Queue on YARN.
        **kwargs: All else SparkSubmitOperator takes, `conf` for instance. `application_args` are
            made from the arguments above.
    """

    operation: ClassVar[str] = ""
    # How each argument of the operation is written on the command line.
    options: ClassVar[Mapping[str, _options.Converter]] = {}
    ui_color = "#fff4b8"
    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "ducklake_conn_id",
        "catalog",
        "catalog_url",
        "lease_wait",
        "dry_run",
        "author",
        "commit_message",
        "commit_extra_info",
        "commit_key",
        "memory_limit",
        "report_file",
        "secrets_mode",
        "kill_timeout",
        "conn_id",
        *_SPARK_ARGUMENTS,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "commit_extra_info": "json",
        "conf": "json",
        "env_vars": "json",
    }

    def __init__(
        self,
        *,
        ducklake_conn_id: str = "ducklake_default",
        catalog: str | None = None,
        catalog_url: str | None = None,
        lease_wait: float | str | None = None,
        dry_run: bool | str = False,
        author: str | None = None,
        commit_message: str | None = None,
        commit_extra_info: Mapping[str, Any] | str | None = None,
        commit_key: str | None = None,
        memory_limit: str | None = None,
        report_file: str | None = None,
        secrets_mode: str = "env",
        kill_timeout: float | str = 30.0,
        conn_id: str = "spark_default",
        deploy_mode: str | None = None,
        driver_memory: str | None = None,
        executor_cores: int | str | None = None,
        executor_memory: str | None = None,
        num_executors: int | str | None = None,
        total_executor_cores: int | str | None = None,
        yarn_queue: str | None = None,
        **kwargs: Any,
    ) -> None:
        if "application_args" in kwargs:
            raise TypeError("application_args are made from the operator's own arguments")
        # A name of its own is made in execute(), from what is known only then.
        kwargs.setdefault("name", None)
        super().__init__(**kwargs)
        self.ducklake_conn_id = ducklake_conn_id
        self.catalog = catalog
        self.catalog_url = catalog_url
        self.lease_wait = lease_wait
        # BaseOperator's method of this name renders templates for a command that is gone.
        self.dry_run = dry_run  # type: ignore[assignment,method-assign]
        self.author = author
        self.commit_message = commit_message
        self.commit_extra_info = commit_extra_info
        self.commit_key = commit_key
        self.memory_limit = memory_limit
        self.report_file = report_file
        self.secrets_mode = secrets_mode
        self.kill_timeout = kill_timeout
        self.conn_id = conn_id
        self.deploy_mode = deploy_mode
        self.driver_memory = driver_memory
        self.executor_cores = executor_cores
        self.executor_memory = executor_memory
        self.num_executors = num_executors
        self.total_executor_cores = total_executor_cores
        self.yarn_queue = yarn_queue
        # Rendered to Python's None, they cannot be told from ones that were never given.
        self._places = given_names(catalog=catalog, catalog_url=catalog_url)
        self._hook: DuckLakeSparkSubmitHook | None = None
        self._submission: dict[str, Any] = {}
        self._key = ""

    def operation_arguments(self) -> list[str]:
        """Return the operation's own part of the command line.

        Raises:
            ConfigurationError: An argument is missing, wrong, or contradicts another.
        """
        return _options.arguments(vars(self), self.options)

    def only_reads(self) -> bool:
        """Return whether this task leaves the lake as it is, so that a read-only lake will do."""
        return self._is_dry_run()

    def _is_dry_run(self) -> bool:
        return given(self.dry_run) and as_bool(self.dry_run, "dry_run")

    def execute(self, context: Context) -> Any:
        """Submit the application, wait for it, and return its result.

        Args:
            context: Airflow's execution context.

        Returns:
            `OperationResult.to_dict()`.

        Raises:
            AirflowFailException: No retry can help.
            AirflowException: The job failed, or some of its tables did.
        """
        with tempfile.TemporaryDirectory(prefix="ducklake-") as directory:
            result_file = Path(directory, "result.json")
            try:
                self._prepare(context, Path(directory), result_file)
            except LakeError as error:
                raise airflow_error(error) from None
            result = self._run(context, result_file)
        for line in summary_lines(result):
            self.log.info(line)
        if failure := failure_of(result):
            if (ti := context.get("ti")) is not None:
                # A failed task returns nothing, but what it did for the other tables is done.
                ti.xcom_push(key="result", value=result)
            raise failure
        return result

    def get_job_result(self, external_id: Any, context: Context) -> Any:
        """Return the result of a job that ran on a cluster, from the commits it made.

        Args:
            external_id: The application's id; the commits are found by their key.
            context: Airflow's execution context.
        """
        lake = self._ducklake_hook().lake()
        made = lake.snapshots_of_job(self._key)
        return result_of_commits(made, self._key, self.operation, str(lake))

    def on_kill(self) -> None:
        """End the application; safe to call twice, and before anything was submitted."""
        if self._hook is not None:
            self._hook.on_kill()

    def _prepare(self, context: Context, directory: Path, result_file: Path) -> None:
        """Make command line, environment and hook of this try."""
        lake_hook = self._ducklake_hook()
        location = lake_hook.location()
        location.require_reach()
        if lake_hook.fields.read_only and not self.only_reads():
            raise ConfigurationError(
                f"connection {self.ducklake_conn_id!r} is read-only: {self.operation} would change "
                "the lake; use another connection, or dry_run"
            )
        identity = TaskIdentity.of(context, task_id=self.task_id)
        given_key = str(self.commit_key) if given(self.commit_key) else ""
        self._key = given_key or identity.commit_key(self.operation, location)
        self.application = self.application or str(APPLICATION)
        arguments = [
            self.operation,
            *self._place_arguments(location),
            *_options.flag("data-path", location.data_path),
            *_options.flag("metadata-schema", location.metadata_schema),
            *self.operation_arguments(),
            *(["--dry-run"] if self._is_dry_run() else []),
            *self._commit_arguments(identity),
            *_options.flag("memory-limit", self.memory_limit),
            *_options.flag("report-file", self.report_file),
        ]
        # Only the hook knows where the driver will run. The one that submits is made by the base
        # class's execute(), which may add to `conf` before.
        self._hook, self._submission = None, {}
        probe = self._get_hook()
        if probe.deploy_mode == "client":
            arguments += _options.flag("result-file", result_file)
        name = f"ducklake {self.operation} {identity} {self.ducklake_conn_id}"
        secrets = JobSecrets(location.password, dict(lake_hook.storage_options()))
        self._submission = {
            "application_args": arguments,
            "name": self.name or name,
            "secrets": lake_hook.fields.secrets,
            **deliver(self.secrets_mode, probe, secrets, directory, self.properties_file),
        }

    def _place_arguments(self, location: CatalogLocation) -> list[str]:
        if not location.in_bucket:
            return _options.flag("attach", location.attach_string)
        wait = _options.seconds(self.lease_wait, "lease_wait") if given(self.lease_wait) else None
        return [
            *_options.flag("catalog-url", location.target),
            *_options.flag("lease-wait", wait),
        ]

    def _commit_arguments(self, identity: TaskIdentity) -> list[str]:
        more = as_object(self.commit_extra_info or {}, "commit_extra_info")
        message = f"{self.operation} by task {identity}, run {identity.run_id}"
        return [
            *_options.flag("author", self.author if given(self.author) else "airflow"),
            *_options.flag(
                "message", self.commit_message if given(self.commit_message) else message
            ),
            *_options.flag("extra-info", identity.extra_info(more)),
            *_options.flag("commit-key", self._key),
        ]

    def _run(self, context: Context, result_file: Path) -> dict[str, Any]:
        """Run the base class and return what the job left behind, whether it failed or not."""
        value: Any = None
        try:
            value = super().execute(context)
        except Exception as error:
            outcome = read_outcome(result_file)
            if outcome is None:
                self._raise_unexplained(error)
                raise
            if failure_of(outcome) is None:
                raise
        else:
            outcome = read_outcome(result_file)
        if outcome is None and self._hook is not None and self._hook.deploy_mode == "client":
            raise AirflowException(
                "the application ended without an error and without a result: was it stopped from "
                "outside? Its output is above"
            )
        if outcome is None:
            # The base class returns nothing when it found a running application to wait for.
            outcome = value if value is not None else self.get_job_result(None, context)
        failure = failure_of(outcome)
        if failure is not None and "error" in outcome:
            # One line that names the thing; spark-submit's own says less and is in the log.
            raise failure from None
        return outcome

    def _raise_unexplained(self, error: Exception) -> None:
        """Raise what an error without a result file comes to, unless that is the error itself."""
        if isinstance(error, LakeError):
            raise airflow_error(error) from None
        if self._hook is not None and self._hook.return_code == _WRONG_USAGE:
            raise AirflowFailException(str(error)) from None

    def _ducklake_hook(self) -> DuckLakeHook:
        from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook

        places = {name: chosen(getattr(self, name), name) for name in self._places}
        return DuckLakeHook(self.ducklake_conn_id, **places)

    def _get_hook(self) -> DuckLakeSparkSubmitHook:
        """Return our hook with all that this operator knows under the names of its parameters."""
        from airflow_provider_ducklake.hooks.spark_submit import DuckLakeSparkSubmitHook

        arguments: dict[str, Any] = {}
        for name in inspect.signature(SparkSubmitHook.__init__).parameters:
            # The base class keeps half of its arguments under private names.
            for attribute in (name, f"_{name}"):
                if hasattr(self, attribute):
                    arguments[name] = getattr(self, attribute)
                    break
        for name in _SPARK_ARGUMENTS:
            value = arguments.get(name)
            number = name in _SPARK_NUMBERS and given(value)
            arguments[name] = as_int(value, name) if number else value if given(value) else None
        timeout = as_number(self.kill_timeout, "kill_timeout")
        return DuckLakeSparkSubmitHook(**{**arguments, "kill_timeout": timeout, **self._submission})
