"""What a command leaves behind: its result on stdout, and the files it was asked to write."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_provider_ducklake.lake.errors import ConfigurationError


def require_writable(result_file: str | None, report_file: str | None) -> None:
    """Refuse files that cannot be written, before any work is done that they should tell of.

    Args:
        result_file: Will be put in place whole, by a file beside it.
        report_file: Will be written where it is.

    Raises:
        ConfigurationError: One cannot be written; the message says which and why.
    """
    name = "--result-file"
    try:
        if result_file:
            if os.path.isdir(result_file):
                raise IsADirectoryError(None, "it is a directory")
            tempfile.TemporaryFile(dir=_directory(result_file)).close()
        if report_file:
            name = "--report-file"
            with open(report_file, "a"):
                pass
    except OSError as error:
        path = result_file if name == "--result-file" else report_file
        raise ConfigurationError(
            f"{name} {path} cannot be written ({error.strerror}): name a file in a directory that "
            "is there and may be written"
        ) from None


def write_result(path: str | None, data: Mapping[str, Any]) -> None:
    """Put a result into its file, whole or not at all; only warn if that cannot be done."""
    if not path:
        return
    try:
        handle, temporary = tempfile.mkstemp(dir=_directory(path), prefix=".result-")
        with os.fdopen(handle, "w") as file:
            json.dump(data, file)
        os.replace(temporary, path)
    except OSError as error:
        _warn(f"the result cannot be written to {path}", error)


def write_report(path: str | None, lines: Sequence[str]) -> None:
    """Write file lists and plans to their file; only warn if that cannot be done."""
    if not path:
        return
    try:
        Path(path).write_text("".join(f"{line}\n" for line in lines))
    except OSError as error:
        _warn(f"the report cannot be written to {path}", error)


def say(text: str) -> None:
    """Print the result; a reader that has gone away changes nothing about it."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        _warn("the result cannot be printed", error)
        # What is left in the buffer would fail once more as the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _directory(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))


def _warn(what: str, error: OSError) -> None:
    print(f"ducklake: WARNING: {what} ({error.strerror})", file=sys.stderr)
