"""Until when a call begins work: what the option `max_seconds` means, for every operation."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from airflow_provider_ducklake.lake.options import OperationOptions


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment after which a call begins nothing more; what is done by then is committed.

    Attributes:
        end: On the clock of `time.monotonic()`; infinity is never.
    """

    end: float = math.inf

    @classmethod
    def of(cls, options: OperationOptions) -> Deadline:
        """Return the deadline of a call that begins now.

        Raises:
            ConfigurationError: `max_seconds` is no number of seconds.
        """
        seconds = options.seconds("max_seconds")
        return cls() if seconds is None else cls(time.monotonic() + seconds)

    @property
    def is_set(self) -> bool:
        """Whether there is one."""
        return self.end < math.inf

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be begun."""
        return time.monotonic() >= self.end
