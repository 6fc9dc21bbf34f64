"""Looking at a lake from an event loop: in a thread, for a limited time, again and again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from asyncio import sleep
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

from airflow.providers.common.compat.sdk import AirflowNotFoundException
from asgiref.sync import sync_to_async

from airflow_provider_ducklake.hooks._errors import is_final
from airflow_provider_ducklake.lake.errors import (
    CatalogUnavailable,
    ConfigurationError,
    LakeError,
)

if TYPE_CHECKING:
    from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
    from airflow_provider_ducklake.lake.lake import LakeView

T = TypeVar("T")
# Seconds. Waiting for a lock ends before the look does, so that its thread ends too.
LOOK: Final = 60.0
LOCK: Final = 5.0
LONGEST_PAUSE: Final = 300.0
# Times in a row that a connection must be missing or wrong for that to be believed.
BELIEVED: Final = 3
# Looks of one triggerer at the same time: each may be a connection to the same server.
AT_ONCE: Final = 16
_SLOTS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]] = WeakKeyDictionary()
_log = logging.getLogger(__name__)


class PolledLake:
    """A lake that is looked at from an event loop, which never waits for connection or catalog.

    Each look reads the connection anew, opens the catalog and lets go of it again.
    """

    def __init__(
        self, conn_id: str, catalog: str | None = None, catalog_url: str | None = None
    ) -> None:
        """Name a lake.

        Args:
            conn_id: Its Airflow connection.
            catalog: A catalog of the shared store, instead of the one the connection names.
            catalog_url: A SQLite catalog in a bucket, likewise.
        """
        self._conn_id = conn_id
        self._named = {"catalog": catalog, "catalog_url": catalog_url}
        self._hanging: threading.Thread | None = None
        self._times_unreadable = 0

    async def look(self, question: Callable[[LakeView], T]) -> T:
        """Ask something of the lake, in one read transaction.

        Args:
            question: Called in another thread.

        Raises:
            CatalogUnavailable: It cannot be reached now, or takes too long.
            ConfigurationError: The connection is missing or wrong, or there is no such lake.
        """
        if self._hanging is not None and self._hanging.is_alive():
            # One is enough.
            raise CatalogUnavailable(
                f"the catalog of connection {self._conn_id!r} has not answered an earlier look yet"
            )
        async with _slots():
            hook = await self._hook()

            def work() -> T:
                with hook.lake(LOCK).view() as view:
                    return question(view)

            return await self._in_thread(work)

    async def _hook(self) -> DuckLakeHook:
        # Airflow before 3.3 lets only threads of this make ask its supervisor, and `dag.test()` in
        # all versions only those who wait for the answer.
        read = sync_to_async(self._read, thread_sensitive=False)
        try:
            hook = await asyncio.wait_for(read(), LOOK)
        except AirflowNotFoundException:
            raise self._unreadable(
                f"connection {self._conn_id!r} is not defined in Airflow"
            ) from None
        except ConfigurationError as error:
            raise self._unreadable(str(error)) from None
        except Exception as error:
            # Its message is not ours, and may quote the connection.
            raise CatalogUnavailable(
                f"connection {self._conn_id!r} cannot be looked up now ({type(error).__name__})"
            ) from error
        self._times_unreadable = 0
        return hook

    def _unreadable(self, message: str) -> LakeError:
        """Return the error of a connection that is missing or wrong, if that is so again and again.

        Airflow says that one is missing also where its API server is away for a moment.
        """
        self._times_unreadable += 1
        if self._times_unreadable < BELIEVED:
            return CatalogUnavailable(message)
        return ConfigurationError(message)

    def _read(self) -> DuckLakeHook:
        from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook

        hook = DuckLakeHook(self._conn_id, **self._named)
        _ = hook.fields
        return hook

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Call something in a thread that nobody waits for when the process ends."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def deliver(setter: Callable[[Any], None], value: Any) -> None:
            def unless_given_up() -> None:
                if not future.done():
                    setter(value)

            # The loop may be closed by now.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(unless_given_up)

        def run() -> None:
            try:
                result = work()
            except BaseException as error:
                deliver(future.set_exception, error)
            else:
                deliver(future.set_result, result)

        thread = threading.Thread(target=run, name=f"look-{self._conn_id}", daemon=True)
        thread.start()
        try:
            done, _ = await asyncio.wait([future], timeout=LOOK)
        finally:
            # Does nothing to a result that is there; of others nobody wants to hear any more.
            future.cancel()
        if not done:
            self._hanging = thread
            raise CatalogUnavailable(
                f"the catalog of connection {self._conn_id!r} did not answer within {LOOK:g} s"
            )
        return future.result()


def _slots() -> asyncio.Semaphore:
    return _SLOTS.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))


async def answers(
    ask: Callable[[], Awaitable[T]], interval: float, *, endure: bool = False
) -> AsyncGenerator[T, None]:
    """Ask again and again, and yield each answer; an error is told once, then waited out.

    Args:
        ask: What to ask.
        interval: Seconds between an answer and the next question; after errors more and more.
        endure: Wait out errors too that a second try would meet again: a person may mend them.

    Raises:
        LakeError: A second try would meet it again.
    """
    failures, complaints = 0, Complaints()
    while True:
        try:
            answer = await ask()
        except LakeError as error:
            if is_final(error) and not endure:
                raise
            failures += 1
            complaints.tell(error)
        else:
            failures = 0
            complaints.settle()
            yield answer
        await sleep(pause_after(failures, interval))


class Complaints:
    """Writes an error to the log when it is another one than the last time."""

    def __init__(self) -> None:
        """Begin with nothing to complain about."""
        self._told = ""

    def tell(self, error: LakeError) -> None:
        """Write it, as an error if a person has to act and as a warning if it may pass."""
        complaint = f"{type(error).__name__}: {error}"
        if complaint != self._told:
            _log.log(logging.ERROR if is_final(error) else logging.WARNING, "%s", complaint)
        self._told = complaint

    def settle(self) -> None:
        """Forget it: all is well again."""
        if self._told:
            _log.info("It works again, after %s", self._told)
        self._told = ""


def pause_after(failures: int, interval: float) -> float:
    """Return the seconds until the next question.

    Args:
        failures: How often in a row there was no answer.
        interval: Seconds between an answer and the next question.
    """
    if not failures:
        return interval
    return min(max(interval, 1.0) * 2.0 ** min(failures, 30), max(interval, LONGEST_PAUSE))
