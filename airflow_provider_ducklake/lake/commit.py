"""The one committer: a short write transaction that re-validates, then adds a snapshot.

The new snapshot's row is inserted before anything is checked. Its primary key makes every other
writer of the lake, the reference included, wait or lose from that moment on, so what is read
afterwards in the same transaction cannot change under the commit.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from uuid import uuid4

from airflow_provider_ducklake.lake.changes import (
    Change,
    find_conflict,
    format_changes,
    parse_changes,
)
from airflow_provider_ducklake.lake.database import Database, Session
from airflow_provider_ducklake.lake.errors import (
    CatalogUnavailable,
    CommitConflict,
    CommitStateUnknown,
    ConfigurationError,
    LakeError,
    LostRace,
)
from airflow_provider_ducklake.lake.fault_points import FaultPoint, reach
from airflow_provider_ducklake.lake.instants import format_instant, utc_now
from airflow_provider_ducklake.lake.jobs import JOB_KEY, find_job
from airflow_provider_ducklake.lake.model import Snapshot
from airflow_provider_ducklake.lake.options import LakeOptions
from airflow_provider_ducklake.lake.reader import (
    check_format,
    read_head,
    read_options,
)

T = TypeVar("T")
ATTEMPTS: Final = 50
_FIRST_WAIT: Final = 0.05  # seconds, doubled each time up to the cap, with full jitter
_LONGEST_WAIT: Final = 2.0
_OUTAGES: Final = 5  # attempts that find no server, after a COMMIT without an answer


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """Who commits and why; stored beside the snapshot.

    Attributes:
        key: Identity of the job's work: a second commit under the same key is not made.
        extra_info: Further JSON for `commit_extra_info`.
    """

    author: str | None = None
    message: str | None = None
    extra_info: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None

    def text(self, key: str, attempt: str, result: Mapping[str, Any] | None) -> str:
        """Return the JSON for `commit_extra_info`."""
        job: dict[str, Any] = {"key": key, "attempt": attempt}
        if result:
            job["result"] = dict(result)
        return json.dumps({**self.extra_info, JOB_KEY: job}, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Committed(Generic[T]):
    """A commit that happened: the snapshot it made, and what the change's own code returned.

    `value` is None when an earlier try had committed already; `result` is what that try stored.
    """

    snapshot_id: int
    value: T | None
    already_done: bool = False
    result: Mapping[str, Any] | None = None


class SnapshotWriter:
    """What a change sees inside the commit transaction."""

    def __init__(self, session: Session, head: Snapshot, options: LakeOptions, key: str) -> None:
        self.session = session
        self.head = head
        self.options = options
        self.key = key
        self.snapshot_id = head.snapshot_id + 1
        self.now = max(utc_now(), head.time)
        self.schema_version = head.schema_version
        self.result: dict[str, Any] | None = None
        self._next_file_id: int | None = None
        self._next_catalog_id: int | None = None

    def new_file_id(self) -> int:
        """Return an id no data file, delete file or name mapping of this lake has ever had.

        A foreign writer can leave a `next_file_id` that is already taken (cases FL-03): the ids
        in use count too. Name mappings share these ids, whatever the specification says of
        `next_catalog_id`: the reference numbers them so, and a client that is attached looks
        for new ones only from the `next_file_id` it last saw
        (src/storage/ducklake_catalog.cpp, LoadNameMaps).
        """
        if self._next_file_id is None:
            self._next_file_id = max(
                self.head.next_file_id,
                1 + self._largest("data_file_id", "ducklake_data_file"),
                1 + self._largest("delete_file_id", "ducklake_delete_file"),
                1 + self._largest("data_file_id", "ducklake_files_scheduled_for_deletion"),
                1 + self._largest("mapping_id", "ducklake_column_mapping"),
            )
        self._next_file_id += 1
        return self._next_file_id - 1

    def new_catalog_id(self) -> int:
        """Return an id no schema, table, view, macro, partition or sort order has ever had."""
        if self._next_catalog_id is None:
            used = (
                ("schema_id", "ducklake_schema"),
                ("table_id", "ducklake_table"),
                ("view_id", "ducklake_view"),
                ("macro_id", "ducklake_macro"),
                ("partition_id", "ducklake_partition_info"),
                ("sort_id", "ducklake_sort_info"),
            )
            taken = max(self._largest(column, table) for column, table in used)
            self._next_catalog_id = max(self.head.next_catalog_id, 1 + taken)
        self._next_catalog_id += 1
        return self._next_catalog_id - 1

    def schema_changed(self, table_ids: Iterable[int] = ()) -> None:
        """Raise the schema version once, and note it for the tables that changed shape."""
        self.schema_version = self.head.schema_version + 1
        self.session.insert(
            "ducklake_schema_versions",
            [(self.snapshot_id, self.schema_version, table_id) for table_id in table_ids],
        )

    def _largest(self, column: str, table: str) -> int:
        # Both names are words of this module.
        found = self.session.value(f"SELECT max({column}) FROM {{{table}}}")
        return -1 if found is None else int(found)

    def begin(self) -> None:
        """Claim the snapshot id; from here on no other writer can commit before this one."""
        self.session.insert(
            "ducklake_snapshot",
            [
                (
                    self.snapshot_id,
                    format_instant(self.now),
                    self.schema_version,
                    self.head.next_catalog_id,
                    self.head.next_file_id,
                )
            ],
        )

    def finish(self, changes: Iterable[Change], info: CommitInfo, attempt: str) -> None:
        """Write the final counters of the snapshot, what it changed and which attempt made it."""
        self.session.execute(
            "UPDATE {ducklake_snapshot} SET schema_version = ?, next_catalog_id = ?, "
            "next_file_id = ? WHERE snapshot_id = ?",
            (
                self.schema_version,
                self._next_catalog_id or self.head.next_catalog_id,
                self._next_file_id or self.head.next_file_id,
                self.snapshot_id,
            ),
        )
        text = info.text(self.key, attempt, self.result)
        row = (self.snapshot_id, format_changes(changes), info.author, info.message, text)
        self.session.insert("ducklake_snapshot_changes", [row])


def commit(
    database: Database,
    *,
    base: int | None,
    changes: Iterable[Change] | Callable[[SnapshotWriter], Iterable[Change]],
    write: Callable[[SnapshotWriter], T],
    info: CommitInfo | None = None,
    where: object = "the lake",
) -> Committed[T]:
    """Commit a change as a new snapshot, retrying while other writers take the id first.

    Args:
        database: The catalog database.
        base: Snapshot the change was planned on. None where `write` looks at all that matters by
            itself, so that whatever others did is no conflict.
        changes: What to say in `changes_made`, or a function that knows once ids are given.
        write: Re-validates what the change depends on and writes its rows; it runs again on
            every attempt and must have no effect outside the session. It may set
            `writer.result` to what a later retry of the same job should be told.
        info: Author, message, extra info and idempotency key.
        where: What to call the lake in messages.

    Returns:
        The commit, or the earlier one under the same key.

    Raises:
        CommitConflict: Somebody changed what this builds on; plan again.
        CommitStateUnknown: The outcome could not be found out; nothing may be cleaned up.
        UnsupportedCatalog: The format version is not ours (checked in this transaction again).
        ConfigurationError: The lake requires a commit message and there is none.
    """
    info = info or CommitInfo()
    reach(FaultPoint.WORK_DONE)
    work = _Work(database, base, changes, write, info, info.key or f"once-{uuid4()}", where)
    wait = _FIRST_WAIT
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return work.attempt()
        except (CommitStateUnknown, CatalogUnavailable) as error:
            if (done := work.find_out(error)) is not None:
                return done
        except LostRace as error:
            if attempt == ATTEMPTS:
                raise (work.unknown() if work.is_unanswered else error) from error
        except CommitConflict:
            raise  # with the snapshot id in hand: no attempt before this one can still succeed
        except LakeError as error:
            if work.is_unanswered:
                raise work.unknown() from error
            raise
        time.sleep(random.uniform(0, wait))
        wait = min(wait * 2, _LONGEST_WAIT)
    raise work.unknown()


class _Work(Generic[T]):
    """One commit with all its attempts, each of which knows its own traces in the catalog.

    The key alone does not tell whose commit it is: a job that was given up for dead and runs on
    has the same. What that one committed is not made of the files of this one.
    """

    def __init__(
        self,
        database: Database,
        base: int | None,
        changes: Iterable[Change] | Callable[[SnapshotWriter], Iterable[Change]],
        write: Callable[[SnapshotWriter], T],
        info: CommitInfo,
        key: str,
        where: object,
    ) -> None:
        self._database = database
        self._base = base
        self._changes = changes
        self._write = write
        self._info = info
        self._key = key
        self._where = where
        self.is_unanswered = False  # an attempt was, and nobody knows of it yet
        self._outages = 0
        self._made: dict[str, Committed[T]] = {}  # what each attempt has done if its COMMIT counts

    def attempt(self) -> Committed[T]:
        """Try once to commit."""
        name = uuid4().hex
        with self._database.write() as session:
            options = read_options(session)
            check_format(options, self._where)
            # Before the key is looked for: who commits in between takes the id that follows.
            head = read_head(session)
            done = self._find(session)
            if done is not None:
                return done
            if options.get("require_commit_message") == "true" and not self._info.message:
                raise ConfigurationError(
                    f"{self._where} requires a commit message (option require_commit_message): "
                    "give one"
                )
            writer = SnapshotWriter(session, head, options, self._key)
            writer.begin()
            theirs = _changes_since(session, self._base, head.snapshot_id)
            changes = self._changes
            if not callable(changes):
                _refuse_conflict(changes, theirs)
            value = self._write(writer)
            if callable(changes):
                changes = tuple(changes(writer))
                _refuse_conflict(changes, theirs)
            writer.finish(changes, self._info, name)
            self._made[name] = Committed(writer.snapshot_id, value)
        return self._made[name]

    def find_out(self, error: LakeError) -> Committed[T] | None:
        """Look up what became of this work when an attempt lost its server; None: nothing so far.

        One that crashed in COMMIT may answer once more before it goes away, and then comes back.

        Raises:
            LakeError: The error, as no attempt so far was without an answer; or nobody can tell.
        """
        if isinstance(error, CommitStateUnknown):
            self.is_unanswered = True
        elif not self.is_unanswered:
            raise error
        else:
            self._outages += 1
            if self._outages == _OUTAGES:
                raise self.unknown() from error
        return self._look_up()

    def _look_up(self) -> Committed[T] | None:
        """Find out what became of a COMMIT whose answer never came; None: nothing so far.

        The server may still be at it. That does no harm: the next attempt waits for it, as both
        want the same snapshot id.
        """
        for _ in range(10):
            try:
                with self._database.read() as session:
                    return self._find(session)
            except CatalogUnavailable:
                time.sleep(1)
        raise self.unknown()

    def unknown(self) -> CommitStateUnknown:
        """Return what to say when nobody can tell whether the commit has happened."""
        return CommitStateUnknown(
            f"{self._where} did not come back after a COMMIT without an answer. The commit may "
            f"have happened: look for key {self._key} in "
            "ducklake_snapshot_changes.commit_extra_info, and do not delete the job's files"
        )

    def _find(self, session: Session) -> Committed[T] | None:
        found = find_job(session, self._key)
        if found is None:
            return None
        return self._made.get(str(found[1].get("attempt"))) or _earlier(found)


def _refuse_conflict(ours: Iterable[Change], theirs: Iterable[Change]) -> None:
    reason = find_conflict(ours, theirs)
    if reason is not None:
        raise CommitConflict(f"{reason}; plan again on the newest snapshot")


def _changes_since(session: Session, base: int | None, head: int) -> list[Change]:
    if base is None:
        return []
    if base > head:
        raise CommitConflict(
            f"the plan was made on snapshot {base}, but the newest is {head}: the catalog was "
            "put back; plan again"
        )
    rows = session.rows(
        "SELECT snapshot_id, changes_made FROM {ducklake_snapshot_changes} "
        "WHERE snapshot_id > ? AND snapshot_id <= ?",
        (base, head),
    )
    if len(rows) != head - base:
        raise CommitConflict(
            f"snapshots between {base} and {head} were expired meanwhile, so what they changed "
            "cannot be told; plan again"
        )
    return [change for _, text in rows for change in parse_changes(text)]


def find_commit(session: Session, key: str) -> Committed[Any] | None:
    """Return the commit made under an idempotency key, as long as the catalog tells of it.

    It does so for a while after the snapshot has expired (`LOOK_BACK` in expiry.py).
    """
    found = find_job(session, key)
    return None if found is None else _earlier(found)


def _earlier(found: tuple[int, Mapping[str, Any]]) -> Committed[Any]:
    snapshot_id, job = found
    return Committed(snapshot_id, None, already_done=True, result=job.get("result"))
