"""What went wrong in Spark, in one line for a person."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

_MOST: Final = 500  # characters
_SQL_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5}")
_TRACEBACK: Final = "Traceback (most recent call last)"


def cause_of(error: Exception) -> str:
    """Return why Spark failed, without the stacks of Java and Python around it.

    Of the errors that caused each other the first with a class of Spark's, such as
    `[PATH_NOT_FOUND]`, says where it was; the innermost says what it was.

    Args:
        error: What PySpark or Py4J raised.
    """
    messages = _messages(error)
    for message in messages:
        if _TRACEBACK in message:
            return _last_of_traceback(message)
    lines = [line for line in map(_line, messages) if line] or [type(error).__name__]
    # A bare name is that of a class that was not found: the error around it says which and why.
    innermost = next((line for line in reversed(lines) if " " in line), lines[-1])
    named = next((line for line in lines if line.startswith("[")), innermost)
    return (named if innermost in named else f"{named} ({innermost})")[:_MOST]


def hint_for(sources: Sequence[str]) -> str:
    """Return what to add about sources that are not there: some people put several into one."""
    several = any("," in source for source in sources)
    return " (a comma is part of a path: give --source once for each)" if several else ""


def _messages(error: Exception) -> list[str]:
    """Return the messages of an error and of what caused it, outermost first."""
    # An error of Java's as it is, or what PySpark has made of one.
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    messages = []
    while java is not None:
        messages.append(str(java.getMessage() or ""))
        java = java.getCause()
    return messages or [str(error)]


def _line(message: str) -> str:
    """Return the first line of a message that says something."""
    lines = (_SQL_STATE.sub("", line).strip() for line in message.splitlines())
    return next((line for line in lines if line), "")


def _last_of_traceback(message: str) -> str:
    """Return the line of a Python traceback that tells the error, as every traceback ends."""
    lines = message.rsplit(_TRACEBACK, 1)[1].splitlines()[1:]
    told = [line.strip() for line in lines if line.strip() and not line[0].isspace()]
    return _line(told[0] if told else message)[:_MOST]
