"""Being told to stop: as an exception where that is safe, and later where it is not."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """Turn the first SIGTERM into KeyboardInterrupt, so that what must be put away is put away.

    Later ones are ignored: who means it sends SIGKILL. Outside the main thread, where Python
    handles no signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold back SIGTERM and SIGINT until the end of a step that must not be torn apart.

    Raises (at the end):
        KeyboardInterrupt: There was one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = [
        signal.signal(number, lambda number, frame: received.append(number)) for number in _SIGNALS
    ]
    try:
        yield
    finally:
        for number, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt
