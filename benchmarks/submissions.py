"""Spark applications submitted as Airflow does, with what they took: wall clock and CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import airflow_provider_ducklake.spark

_APPLICATION: Final = Path(airflow_provider_ducklake.spark.__path__[0], "entry", "ducklake_job.py")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SAMPLE_EVERY: Final = 0.2  # seconds


@dataclass(frozen=True, slots=True)
class Took:
    """What something took.

    Attributes:
        seconds: Wall clock.
        cpu_seconds: Of all processes of the application.
        database_seconds: CPU of the database server meanwhile.
        result: What the application said.
    """

    seconds: float
    cpu_seconds: float
    database_seconds: float
    result: dict[str, Any]


def submit(
    operation: str, attach: str, options: Mapping[str, str], *, master: str, postmaster: int
) -> Took:
    """Run one operation by spark-submit, and wait for it.

    Args:
        operation: Its name.
        attach: The ATTACH string.
        options: Of the operation.
        master: Spark's.
        postmaster: Process id of the database server.

    Raises:
        SystemExit: It failed; the end of its output is in the message.
    """
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory, "result.json")
        command = [
            f"{Path(sys.executable).parent}/spark-submit",
            *("--master", master, "--conf", "spark.log.level=ERROR"),
            *(str(_APPLICATION), operation, "--attach", attach, "--result-file", str(result)),
            *(part for name, value in options.items() for part in ("--option", f"{name}={value}")),
        ]
        began, database = time.perf_counter(), _with_children(postmaster)
        with Path(directory, "output").open("w+") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            with _Sampler(process.pid) as sampler:
                status = process.wait()
            seconds = time.perf_counter() - began
            if status:
                output.seek(0)
                raise SystemExit(f"{operation} failed:\n{output.read()[-3000:]}")
        return Took(
            seconds,
            sampler.seconds,
            _with_children(postmaster) - database,
            json.loads(result.read_text(encoding="utf-8")),
        )


class _Sampler:
    """Adds up the CPU time of a session's processes, looked at again and again while they live."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._found: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    @property
    def seconds(self) -> float:
        """What all of them had taken when they were last seen."""
        return sum(self._found.values())

    def __enter__(self) -> _Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_EVERY):
            for entry in Path("/proc").iterdir():
                fields = _stat(int(entry.name)) if entry.name.isdigit() else None
                if fields and int(fields[3]) == self._session:
                    self._found[int(entry.name)] = _cpu(fields[11:13])


def _stat(pid: int) -> Sequence[str] | None:
    """Return the fields of a process from its state on; None when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _cpu(ticks: Sequence[str]) -> float:
    return sum(map(int, ticks)) / _TICKS


def _with_children(pid: int) -> float:
    """Return the CPU time of a process, of its children, and of those it has waited for."""
    fields = _stat(pid)
    assert fields is not None
    living = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    children = (_stat(int(child)) for child in living)
    return _cpu(fields[11:15]) + sum(_cpu(found[11:13]) for found in children if found)
