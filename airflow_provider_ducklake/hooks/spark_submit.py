"""Submitting our Spark applications: safely killed, secrets out of sight, no silent defaults."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from airflow.providers.apache.spark.hooks.spark_submit import (
    ALLOWED_SPARK_BINARIES,
    SparkSubmitHook,
)
from airflow.providers.common.compat.sdk import AirflowException, AirflowNotFoundException

from airflow_provider_ducklake.hooks._processes import end_session
from airflow_provider_ducklake.hooks._secrets import Redactor, is_sensitive
from airflow_provider_ducklake.lake.errors import ConfigurationError

_MASTER: Final = re.compile(r"^(local(\[.*\]|-cluster\[.*\])?|yarn|(spark|k8s|mesos)://.+)$")
# Airflow sends SIGKILL five seconds after SIGTERM: in that time everything has to be gone.
_GRACE_SECONDS: Final = 2.5
_KILL_SECONDS: Final = 1.5
_KUBERNETES_PROVIDER: Final = "airflow.providers.cncf"


class DuckLakeSparkSubmitHook(SparkSubmitHook):
    """`SparkSubmitHook`, made safe for applications that commit to a lake.

    * A Spark connection that is not defined is an error, not the master `yarn`.
    * spark-submit and all it starts run in a session of their own, and end together: when the
      task is killed, and when spark-submit ends for whatever reason. Else a Python driver outlives
      its JVM and goes on committing.
    * Secrets are masked in the logged command, in the application's output and in errors.
    * Where the driver runs on the worker, Python workers use the worker's interpreter.
    """

    def __init__(
        self,
        *args: Any,
        job_environment: Mapping[str, str] | None = None,
        secrets: Iterable[str] = (),
        kill_timeout: float = 30.0,
        **kwargs: Any,
    ) -> None:
        """Resolve the Spark connection.

        Args:
            *args: As for `SparkSubmitHook`.
            job_environment: Variables of the spark-submit process; unlike `env_vars` they never
                become part of the command line, on no cluster manager.
            secrets: Values to mask besides those whose names give them away.
            kill_timeout: Seconds the cluster manager gets to answer when the task is killed.
            **kwargs: As for `SparkSubmitHook`.

        Raises:
            ConfigurationError: The Spark connection is missing or names no master, or the binary
                is none of Spark's.
        """
        self._job_environment = dict(job_environment or {})
        self._kill_timeout = kill_timeout
        self._ended_session: int | None = None
        super().__init__(*args, **kwargs)
        named = {**(self._conf or {}), **(self._env_vars or {})}
        values = [str(value) for name, value in named.items() if is_sensitive(str(name))]
        self._redact = Redactor([*secrets, *values])

    @property
    def deploy_mode(self) -> str:
        """`client` (the driver is a child of this process) or `cluster`."""
        return "cluster" if self._connection["deploy_mode"] == "cluster" else "client"

    @property
    def master(self) -> str:
        """The master URL."""
        return str(self._connection["master"])

    @property
    def process_environment(self) -> dict[str, str]:
        """The environment spark-submit runs with."""
        given = {str(name): str(value) for name, value in (self._env_vars or {}).items()}
        return {**os.environ, **self._interpreter(given), **given, **self._job_environment}

    @property
    def return_code(self) -> int | None:
        """Exit status of spark-submit once it has ended."""
        return None if self._submit_sp is None else self._submit_sp.returncode

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run spark-submit to its end.

        Args:
            application: Path of the Python file.
            **kwargs: For `subprocess.Popen`.

        Returns:
            The driver's id on a standalone cluster in cluster mode, else None.

        Raises:
            AirflowException: It failed; the message holds the end of its masked output.
        """
        kwargs.setdefault("start_new_session", True)
        try:
            return super().submit(application, **kwargs)
        finally:
            self._end_session()
            self._reap()

    def on_kill(self) -> None:
        """End the application, within a limited time; safe to call again."""
        if self.deploy_mode == "cluster":
            self._cancel_on_cluster()
        self._end_session()
        self._run_post_submit_commands()

    def _cancel_on_cluster(self) -> None:
        """Ask the cluster manager to end the driver, but do not depend on its tools."""

        def cancel() -> None:
            try:
                super(DuckLakeSparkSubmitHook, self).on_kill()
            except Exception as error:
                # Whatever it is, the local processes still have to go.
                self.log.error("The application may still run on the cluster: %s", error)

        thread = threading.Thread(target=cancel, name="cancel-spark-application", daemon=True)
        thread.start()
        thread.join(self._kill_timeout)
        if thread.is_alive():
            self.log.error(
                "The cluster manager did not answer in %s seconds: the application may still run; "
                "look it up at %s and end it there",
                self._kill_timeout,
                self.master,
            )

    def _end_session(self) -> None:
        process = self._submit_sp
        if process is None or self._ended_session == process.pid:
            return
        if end_session(process.pid, grace=_GRACE_SECONDS, limit=_KILL_SECONDS):
            # From now on the id may be given to a process that is none of ours.
            self._ended_session = process.pid
        else:
            self.log.error("Processes of session %s are still there after SIGKILL", process.pid)

    def _reap(self) -> None:
        """Let go of a process that has ended, also where an exception kept others from it."""
        if (process := self._submit_sp) is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_SECONDS)
            process.stdout.close()

    def _resolve_connection(self) -> dict[str, Any]:
        try:
            self.get_connection(self._conn_id)
        except AirflowNotFoundException:
            raise ConfigurationError(
                f"the Spark connection {self._conn_id!r} is not defined: create it (type spark, "
                "host e.g. spark://master:7077 or local[*]) or set conn_id"
            ) from None
        try:
            resolved = super()._resolve_connection()
        except ValueError as error:
            raise ConfigurationError(f"Spark connection {self._conn_id!r}: {error}") from None
        if not _MASTER.match(resolved["master"]):
            raise ConfigurationError(
                f"Spark connection {self._conn_id!r} gives the master {resolved['master']!r}: "
                "write spark://host:7077, k8s://https://host:443, yarn or local[*]"
            )
        if resolved["master"].startswith("k8s://") and not find_spec(_KUBERNETES_PROVIDER):
            raise ConfigurationError(
                f"Spark connection {self._conn_id!r} names a Kubernetes master: install "
                "apache-airflow-providers-cncf-kubernetes on the workers"
            )
        if Path(resolved["spark_binary"]).name not in ALLOWED_SPARK_BINARIES:
            raise ConfigurationError(
                f"{resolved['spark_binary']!r} is none of Spark's: spark_binary may be "
                f"{', '.join(ALLOWED_SPARK_BINARIES)}, or a path to one of them"
            )
        return resolved

    def _get_spark_binary_path(self) -> list[str]:
        binary = self._connection["spark_binary"]
        if shutil.which(binary, path=self.process_environment.get("PATH")):
            return [binary]
        # pip puts spark-submit beside the interpreter, which PATH need not know.
        beside = Path(sys.executable).parent / binary
        if os.access(beside, os.X_OK):
            return [str(beside)]
        raise AirflowException(
            f"{binary} is not on this worker's PATH: install Spark or pyspark there"
        )

    def _interpreter(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return PYSPARK_PYTHON, unless somebody chose an interpreter already."""
        chosen = "PYSPARK_PYTHON" in given or "PYSPARK_PYTHON" in os.environ
        if self.deploy_mode == "cluster" or chosen or "spark.pyspark.python" in self._conf:
            return {}
        return {"PYSPARK_PYTHON": sys.executable}

    def _build_spark_common_args(self) -> list[str]:
        arguments = super()._build_spark_common_args()
        # What the base class made of `env_vars` is part of this; submit() hands it to Popen.
        self._env = self.process_environment
        return arguments

    def _mask_cmd(self, connection_cmd: str | list[str]) -> str:
        command = [connection_cmd] if isinstance(connection_cmd, str) else connection_cmd
        return self._redact.command(command)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._redact(line) for line in itr)
