"""The Spark application of a job: UTC, quiet, and gone when its parent is."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_provider_ducklake.lake.errors import LakeError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.ui.showConsoleProgress": "false",
    # Jobs of several tenants share the slots; a single job has them all as before.
    "spark.scheduler.mode": "FAIR",
}
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
# These print stacks for what ends the job anyway, and is then said in one line.
_SAID_BY_THE_JOB: Final = (
    "org.apache.spark.api.python",
    "org.apache.spark.executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution",
    "org.apache.spark.util.Utils",
)
_CHECK_EVERY: Final = 1.0  # seconds


@contextmanager
def open_context(name: str, master: str | None = None) -> Iterator[SparkContext]:
    """Start a Spark application and stop it at the end; one that runs here already is left running.

    Work on files needs nothing but tasks: Spark SQL, which takes its time to load, is left to
    `sql_session`.

    Args:
        name: Application name, unless spark-submit gives one.
        master: Spark master when not started by spark-submit; None is `local[*]`.

    Raises:
        LakeError: Spark does not start; the message says what it needs.
    """
    # Executors started by this process must run this very interpreter: the machine's own
    # `python3` need not have the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException

    _log_quietly()
    conf = SparkConf()
    if not is_submitted():
        # spark-submit has said both already, in a place this object does not read.
        conf.setMaster(master or "local[*]").setAppName(name)
    for key, value in _SETTINGS.items():
        conf.set(key, value)
    is_ours = SparkContext._active_spark_context is None
    try:
        context = SparkContext.getOrCreate(conf)
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise LakeError(
            f"Spark does not start ({str(error).splitlines()[0]}): it needs a JDK of version 17 or "
            "newer (JAVA_HOME) and, for a cluster, a reachable master"
        ) from error
    _leave_with_parent()
    _silence(context)
    try:
        yield context
    finally:
        if is_ours:
            context.stop()


def sql_session(context: SparkContext) -> SparkSession:
    """Return the session of a running application, for DataFrames and SQL."""
    from pyspark.sql import SparkSession

    return SparkSession(context)


def _log_quietly() -> None:
    """Give a JVM started from here our log settings, unless this machine has its own."""
    import pyspark

    options = os.environ.get("SPARK_SUBMIT_OPTS", "")
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    own = Path(os.environ.get("SPARK_CONF_DIR") or Path(home, "conf"), _LOG_SETTINGS.name)
    if "log4j" not in options and not own.is_file():
        setting = f'"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"'
        os.environ["SPARK_SUBMIT_OPTS"] = f"{options} {setting}".strip()


def _silence(context: SparkContext) -> None:
    """Keep the stacks of failing tasks and queries away from stderr."""
    from pyspark.logger import PySparkLogger

    java = context._jvm
    assert java is not None
    log4j = java.org.apache.logging.log4j
    for name in _SAID_BY_THE_JOB:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True


def is_submitted() -> bool:
    """Tell whether spark-submit started this process, so that a JVM is waiting for it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _leave_with_parent() -> None:
    """End this driver when the process that started it goes away.

    spark-submit in client mode is a JVM with this process as its child. Killing the JVM alone
    would leave a driver behind that goes on to commit.
    """
    parent = os.getppid()
    if not is_submitted():
        return

    def watch() -> None:
        while os.getppid() == parent:
            pause.wait(_CHECK_EVERY)
        os._exit(1)

    pause = threading.Event()
    threading.Thread(target=watch, name="parent-watchdog", daemon=True).start()
