"""Ending a process together with everything it started."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Final

_POLL_SECONDS: Final = 0.05


def session_members(session_id: int) -> list[int]:
    """Return the living processes of a session; those that only wait to be reaped do not count."""
    import psutil

    members = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
            if os.getsid(pid) == session_id and (
                psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
            ):
                members.append(pid)
    return members


def end_session(session_id: int, *, grace: float, limit: float) -> bool:
    """End all processes of a session: SIGTERM, some time to obey, then SIGKILL.

    By session, not by process group: PySpark's worker daemon makes a group of its own.

    Args:
        session_id: Id of the session, which is the process id of the one that leads it.
        grace: Seconds between the two signals, at most.
        limit: Seconds after SIGKILL to see the last one go.

    Returns:
        Whether all of them are gone.
    """
    for sign, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, limit)):
        deadline = time.monotonic() + seconds
        # Again each time: a process may have started another before the signal reached it.
        signalled: set[int] = set()
        while members := session_members(session_id):
            for pid in members:
                if pid not in signalled or sign == signal.SIGKILL:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, sign)
            signalled.update(members)
            if time.monotonic() >= deadline:
                break
            time.sleep(_POLL_SECONDS)
        else:
            return True
    return not session_members(session_id)
