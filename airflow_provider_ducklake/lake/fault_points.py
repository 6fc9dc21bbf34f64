"""The moments at which a job that is killed leaves a state of its own, by name, for the tests.

Each is passed by the code with one call of `reach`, which does nothing unless the environment
variable `DUCKLAKE_FAULT_POINT` named that point when the process began: then the process sends
itself SIGKILL, as a machine that runs out of memory would. `committed:2` means the second time the
point is reached. No option, connection or catalog can do that: whoever sets a job's environment can
end the job anyway.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from enum import Enum
from typing import Final

VARIABLE: Final = "DUCKLAKE_FAULT_POINT"


class FaultPoint(Enum):
    """Where a job can be killed; every operation that changes anything passes some of them."""

    # One task of several is done: a file written, registered or restored, a batch of objects
    # deleted. All that use a runner; on Spark for each answer, when all of them are there.
    TASK_DONE = "task_done"
    # All files are written and none is in the catalog. All that make a snapshot; an export of a
    # catalog, when its file is whole and not in its place.
    WORK_DONE = "work_done"
    # All rows of a transaction are written and COMMIT is not sent. All that change the catalog, or
    # the store around it.
    UNCOMMITTED = "uncommitted"
    # The database has committed and the job does not know yet; also between two transactions of
    # one operation, as of two tables, of two batches of an expiry, or two steps of a checkpoint.
    COMMITTED = "committed"
    # Objects are gone that the catalog still has on its schedule, or that were orphans.
    # cleanup_old_files, delete_orphaned_files, checkpoint.
    OBJECTS_DELETED = "objects_deleted"
    # The copy of a catalog in a bucket has commits that the bucket has not. All, with catalog_url.
    NOT_PUT_BACK = "not_put_back"
    # The bucket has them, and the lease is still held. All, with catalog_url.
    PUT_BACK = "put_back"


class Fuse:
    """Ends the process when a point is reached for the n-th time."""

    def __init__(self, text: str) -> None:
        """Arm it.

        Args:
            text: A point's name, with `:N` for another time than the first.

        Raises:
            ValueError: No point has that name.
        """
        name, _, time = text.partition(":")
        self._point = FaultPoint(name)
        self._left = int(time or 1)

    def __call__(self, point: FaultPoint) -> None:
        """Count one time a point is reached."""
        if point is self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


_armed: str = os.environ.get(VARIABLE, "")
on_reach: Callable[[FaultPoint], None] | None = Fuse(_armed) if _armed else None


def reach(point: FaultPoint) -> None:
    """Pass a point."""
    if on_reach is not None:
        on_reach(point)
