"""What an operation did, small enough for XCom: counts, bytes and snapshots, never file lists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from airflow_provider_ducklake.lake.fsck.findings import ClassReport

# Of a lake with thousands of tables only these go into a result: XCom is no place for more.
MOST_TABLES: Final = 100


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something an operation left alone, and why, with how many items that is."""

    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class TableResult:
    """What happened to one table.

    Attributes:
        table: `schema.table`.
        files_before: Live data files before the operation.
        files_after: Live data files after it.
        files_in: Data files read, retired or looked at by the operation.
        files_out: Data files written or registered.
        bytes_in: Bytes of `files_in`.
        bytes_out: Bytes of `files_out` (predicted, in a dry run).
        rows: Rows written, registered or flushed.
        updated_rows: Those of `rows` that replaced a row (`ingest` with `mode=merge`).
        deleted_rows: Rows of live files that deletes hide (`info`), or rows that went.
        inlined_rows: Live rows kept in the catalog itself (`info`).
        delete_ratio: Share of the rows in data files that deletes hide, 0 to 1 (`info`).
        snapshot_id: Snapshot the operation made for this table; None when it made none.
        skipped: What was left alone.
        remaining: Work still to do that a limit kept for the next run (files).
        error: One line, when this table failed; the others went on.
    """

    table: str
    files_before: int = 0
    files_after: int = 0
    files_in: int = 0
    files_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    rows: int = 0
    updated_rows: int = 0
    deleted_rows: int = 0
    inlined_rows: int = 0
    delete_ratio: float = 0.0
    snapshot_id: int | None = None
    skipped: tuple[Skipped, ...] = ()
    remaining: int = 0
    error: str | None = None

    @property
    def is_changed(self) -> bool:
        """Whether anything was, or in a dry run would be, done to the table."""
        return bool(self.files_in or self.files_out or self.rows)


def worth_telling(
    tables: Iterable[TableResult], limit: int
) -> tuple[list[TableResult], list[TableResult]]:
    """Part the tables a result tells of from those only the log does.

    Args:
        tables: All of them, in order.
        limit: Most to tell of: first those that failed, then those that changed.

    Returns:
        The told ones and the others, both in order.
    """
    tables = list(tables)
    places = sorted(
        range(len(tables)),
        key=lambda place: (tables[place].error is None, not tables[place].is_changed),
    )
    told = set(places[:limit])
    parts: tuple[list[TableResult], list[TableResult]] = ([], [])
    for place, table in enumerate(tables):
        parts[place not in told].append(table)
    return parts


@dataclass(frozen=True, slots=True)
class Failure:
    """A part of an operation that failed while the rest of it was done.

    Attributes:
        kind: The class of the error, as in `lake.errors`.
        message: What is wrong, where, and what to do.
    """

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class OperationResult:
    """What one operation did to one lake.

    Attributes:
        operation: The operation's name on the command line, e.g. `merge_adjacent_files`.
        lake: Catalog without secrets.
        dry_run: True when nothing was changed and the counts say what would be.
        already_done: True when an earlier try had committed and its result is returned.
        snapshot_before: Newest snapshot when the operation began.
        snapshot_after: Newest snapshot this operation made, else `snapshot_before`.
        tables: One entry a table the operation looked at; of very many only the most telling.
        counts: Figures that belong to no table: snapshots expired, files deleted, …
        failures: Parts that failed and belong to no table; the rest is done.
        messages: Notes a person should read.
        findings: Classes of damage that `fsck` found.
        seconds: Duration.
    """

    operation: str
    lake: str
    dry_run: bool = False
    already_done: bool = False
    snapshot_before: int | None = None
    snapshot_after: int | None = None
    tables: tuple[TableResult, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    messages: tuple[str, ...] = ()
    findings: tuple[ClassReport, ...] = ()
    seconds: float = 0.0

    @property
    def failed_tables(self) -> tuple[TableResult, ...]:
        """The tables that ended with an error."""
        return tuple(table for table in self.tables if table.error is not None)

    @property
    def is_failed(self) -> bool:
        """Whether anything ended with an error."""
        return bool(self.failures or self.failed_tables)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON, XCom)."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> OperationResult:
        """Rebuild a result from `to_dict()`'s output, lists standing for tuples."""
        tables = tuple(
            TableResult(**{**table, "skipped": tuple(Skipped(**s) for s in table["skipped"])})
            for table in data["tables"]
        )
        failures = tuple(Failure(**failure) for failure in data["failures"])
        messages = tuple(data["messages"])
        findings = tuple(ClassReport(**report) for report in data["findings"])
        return cls(
            **{
                **data,
                "tables": tables,
                "failures": failures,
                "messages": messages,
                "findings": findings,
            }
        )
