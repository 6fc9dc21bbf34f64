"""Running triggers as Airflow's triggerer does, without its waits; nothing may block the loop."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias

import duckdb
import psycopg
import pytest
from airflow.providers.common.compat.sdk import BaseHook
from airflow.sdk import Connection
from airflow.triggers.base import BaseTrigger

from airflow_provider_ducklake.triggers import _poll

Step: TypeAlias = Callable[[], Any]
# How many steps were taken, and what an event said.
Told: TypeAlias = list[tuple[int, Any]]


class Stopped(Exception):
    """There is no step left: the triggerer is stopped."""


class Pauses:
    """Stands where triggers sleep: each pause takes the next step, in a thread, and no time."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.taken = 0
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        """Take the next step, or stop."""
        self.seconds.append(seconds)
        if not self.steps:
            raise Stopped
        await asyncio.to_thread(self.steps.pop(0))
        self.taken += 1

    def run(self, trigger: BaseTrigger, *steps: Step) -> Told:
        """Run a trigger from its start, in a loop of its own, until no step is left.

        Args:
            trigger: What to run.
            *steps: What happens in each pause.
        """
        self.steps, self.taken, self.seconds = list(steps), 0, []
        told: Told = []

        async def run() -> None:
            with contextlib.suppress(Stopped):
                async for event in trigger.run():
                    told.append((self.taken, event.payload))

        asyncio.run(run())
        return told


def nothing() -> None:
    """Let a pause go by."""


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    """The pauses of triggers, which take no time."""
    made = Pauses()
    monkeypatch.setattr(_poll, "sleep", made)
    return made


def require_no_loop(what: str) -> None:
    """Fail on the thread of an event loop."""
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        pytest.fail(f"{what} on the thread of the event loop")


@pytest.fixture
def unblocked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fail where a connection is looked up or a catalog opened on the loop's thread.

    Gives the names of such calls in other threads, as they come.
    """
    calls: list[str] = []

    def guard(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        @wraps(original)
        def guarded(*arguments: Any, **named: Any) -> Any:
            require_no_loop(f"{name} was called")
            calls.append(f"{getattr(owner, '__name__', owner)}.{name}")
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, staticmethod(guarded))

    for module in (sqlite3, duckdb, psycopg):
        guard(module, "connect")
    guard(BaseHook, "get_connection")
    parsed: Any = Connection.extra_dejson

    def extra_dejson(connection: Connection) -> Any:
        require_no_loop("extra_dejson, which asks the supervisor, was read")
        return parsed.fget(connection)

    monkeypatch.setattr(Connection, "extra_dejson", property(extra_dejson))
    return calls


class Supervisor:
    """The other end of the triggerer's pipe: it knows connections, and masks what it is told to.

    It can be asked as the one of `dag.test()` can: by callers who wait for the answer.
    """

    def __init__(self) -> None:
        self.connections: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.masked: list[Any] = []

    def knows(self, conn_id: str, **fields: Any) -> None:
        """Define a connection."""
        parts = ("host", "schema", "login", "password", "port", "extra")
        self.connections[conn_id] = {**dict.fromkeys(parts), **fields}

    def send(self, message: Any) -> Any:
        """Answer a caller who waits for it."""
        require_no_loop(f"{type(message).__name__} was sent")
        return self._answer(message)

    def _answer(self, message: Any) -> Any:
        from airflow.sdk.exceptions import ErrorType
        from airflow.sdk.execution_time.comms import ConnectionResult, ErrorResponse

        if hasattr(message, "value"):
            self.masked.append(message.value)
            return None
        self.asked.append(message.conn_id)
        if message.conn_id not in self.connections:
            return ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND)
        return ConnectionResult(conn_id=message.conn_id, **self.connections[message.conn_id])


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """A supervisor for this process, as for a triggerer."""
    from airflow.sdk.execution_time import task_runner

    made = Supervisor()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", made, raising=False)
    return made
