"""Work in a process of its own, whose memory is nobody else's."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What some work took.

    Attributes:
        answer: What it returned; None when the process died.
        seconds: Without the start of the process.
        before: Resident bytes before it began, libraries loaded.
        peak: Most resident bytes there ever were.
    """

    answer: Any
    seconds: float
    before: int
    peak: int

    def __str__(self) -> str:
        """Return time and memory for a table."""
        memory = f"{self.before / MEGABYTE:.0f} -> {self.peak / MEGABYTE:.0f} MB"
        return f"{self.seconds:8.1f} s  {memory:>16}"


def in_child(work: Callable[..., Any], *arguments: Any) -> Cost:
    """Run a module-level function in a fresh process; one that kills itself gives no answer."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_measured, args=(theirs, work, arguments))
    began = time.perf_counter()
    process.start()
    theirs.close()
    try:
        cost: Cost = ours.recv()
    except EOFError:
        cost = Cost(None, time.perf_counter() - began, 0, 0)
    process.join()
    return cost


def _measured(answer: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    before, began = _memory("VmRSS"), time.perf_counter()
    result = work(*arguments)
    answer.send(Cost(result, time.perf_counter() - began, before, _memory("VmHWM")))


def _memory(name: str) -> int:
    # Not getrusage: its peak is that of the parent where that was larger.
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)
