"""What the functions and triggers of a store refuse, as this package's errors."""

from __future__ import annotations

from typing import Final

import psycopg

from airflow_provider_ducklake.lake.errors import (
    BadInput,
    ConfigurationError,
    LakeError,
    NotFound,
    SafetyRefusal,
)

# The SQLSTATEs of sql/.
_KINDS: Final[dict[str, type[LakeError]]] = {
    "DL001": NotFound,
    "DL002": ConfigurationError,
    "DL003": SafetyRefusal,
    "DL004": ConfigurationError,
    "DL005": ConfigurationError,
    "DL006": ConfigurationError,
    # A row that lacks what it needs, or whose counts are beyond all reason.
    "23502": BadInput,
    "23514": BadInput,
}


def refusal_of_store(error: psycopg.Error, where: object = None) -> LakeError | None:
    """Return the error a store raised on purpose; None when it is of another kind.

    Args:
        error: What the driver raised.
        where: What to name in front of the message.
    """
    kind = _KINDS.get(error.sqlstate or "")
    if kind is None:
        return None
    message = str(error.diag.message_primary)
    return kind(f"{where}: {message}" if where else message)
