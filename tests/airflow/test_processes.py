"""Ending a process with all it started: real processes, also such that do not want to go."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from airflow_provider_ducklake.hooks._processes import end_session, session_members
from tests.airflow.conftest import wait_for

# Starts a child in a process group of its own, as PySpark's worker daemon is, which starts another.
_FAMILY = """
import os, signal, subprocess, sys, time
{parent}
code = '''
import os, signal, subprocess, sys, time
os.setpgid(0, 0)
{child}
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({ready!r}, "w").close()
time.sleep(600)
'''
subprocess.Popen([sys.executable, "-c", code])
time.sleep(600)
"""
_STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def start(ready: Path, *, parent: str = "", child: str = "") -> subprocess.Popen[bytes]:
    """Start a family of three processes in a session of its own and wait until all are there."""
    code = _FAMILY.format(parent=parent, child=child, ready=str(ready))
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    wait_for(ready.exists, "the start of the processes")
    assert len(session_members(process.pid)) == 3
    return process


def test_all_go_on_request(tmp_path: Path) -> None:
    process = start(tmp_path / "ready")
    started = time.monotonic()
    assert end_session(process.pid, grace=20, limit=20)
    assert time.monotonic() - started < 15
    assert session_members(process.pid) == []
    assert process.wait() == -15


def test_who_does_not_want_to_go_is_made_to(tmp_path: Path) -> None:
    process = start(tmp_path / "ready", parent=_STUBBORN, child=_STUBBORN)
    assert end_session(process.pid, grace=0.3, limit=20)
    assert session_members(process.pid) == []
    assert process.wait() == -9


def test_a_session_that_is_gone_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    process.wait()
    assert end_session(process.pid, grace=1, limit=1)


def test_nobody_else_is_touched() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert end_session(process.pid, grace=0, limit=0)  # leads no session: has no members
        assert process.poll() is None
        assert os.getpid() in session_members(os.getsid(0))
    finally:
        process.communicate(b"\n")
