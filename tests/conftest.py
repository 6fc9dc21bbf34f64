"""What every test runs under: its own Airflow home, loopback only, a Hypothesis profile."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import tempfile
from typing import Any

import pytest
from hypothesis import settings

from scripts.spark_classes import archive_path, with_archive

# Set before anything imports Airflow, which reads its home once; each xdist worker has its own.
_AIRFLOW_HOME = tempfile.mkdtemp(prefix="lake-airflow-")
# Also where pytest never gets as far as its own end; workers of xdist end without this one.
atexit.register(shutil.rmtree, _AIRFLOW_HOME, ignore_errors=True)
os.environ["AIRFLOW_HOME"] = _AIRFLOW_HOME
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "False"
# Spark would else listen on the address that the host's name resolves to.
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
# Tests that need no Spark run without Java too.
with contextlib.suppress(LookupError):
    os.environ.update(with_archive(os.environ, archive_path(os.environ)))

# It reports closing its connections as the interpreter ends, to streams that pytest has closed.
logging.getLogger("py4j").setLevel(logging.WARNING)

pytest_plugins = [
    "tests.support.lakes",
    "tests.support.postgres",
    "tests.support.s3",
    "tests.support.faulty_s3",
]
# Helpers that assert, and so should explain a failure as a test does.
pytest.register_assert_rewrite("tests.interop.judge", "tests.support.model")

# An example may take as long as a slow disk makes it. The blob reproduces a failure from CI's log.
# DUCKLAKE_HYPOTHESIS_EXAMPLES=5000 runs every property that often.
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile(
    "many",
    settings.get_profile("default"),
    max_examples=int(os.environ.get("DUCKLAKE_HYPOTHESIS_EXAMPLES") or 100),
)
settings.load_profile("many" if os.environ.get("DUCKLAKE_HYPOTHESIS_EXAMPLES") else "default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no worker is left alone with it in the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file together, for the Spark session they share; but not histories."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist carries no types
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if "::test_history[" in nodeid else super()._split_scope(nodeid)

    # It would begin with the files that have most tests.
    config.option.loadscopereorder = False
    return Scheduling(config, log) if config.option.dist == "loadfile" else None


def pytest_unconfigure() -> None:
    """Remove this process's Airflow home."""
    shutil.rmtree(_AIRFLOW_HOME, ignore_errors=True)
