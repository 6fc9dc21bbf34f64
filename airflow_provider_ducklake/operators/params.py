"""A form for maintenance DAGs: what a person may choose, and what it refuses at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from airflow.sdk import Param

ALL_TABLES: Final = "all tables"
EVERY_STEP: Final = "every step"
CHECKPOINT: Final = "checkpoint"
# The order matters: rows first become files, files are compacted before snapshots let go of the old
# ones, and only what no snapshot needs is deleted.
STEPS: Final = (
    "flush_inlined_data",
    "merge_adjacent_files",
    "rewrite_data_files",
    "expire_snapshots",
    "cleanup_old_files",
    "delete_orphaned_files",
)
OPERATION_LABELS: Final = {
    EVERY_STEP: "Every step, one task each",
    CHECKPOINT: "Every step in one Spark application (checkpoint)",
    "flush_inlined_data": "Only write inlined rows to files",
    "merge_adjacent_files": "Only merge small files",
    "rewrite_data_files": "Only rewrite files with many deleted rows",
    "expire_snapshots": "Only expire snapshots",
    "cleanup_old_files": "Only delete files no snapshot needs",
    "delete_orphaned_files": "Only delete orphaned files",
}

_UNITS: Final = "(seconds?|minutes?|hours?|days?|weeks?)"
AGE: Final = rf"^\d+ {_UNITS}( \d+ {_UNITS})*$"
AGE_OR_INSTANT: Final = rf"{AGE}|^\d{{4}}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(Z|[+-]\d\d(:?\d\d)?)$"
SIZE: Final = r"^\d+(\.\d+)? ?([kMGT]i?B)?$"


def maintenance_params(
    tables: Sequence[str],
    *,
    older_than: str = "30 days",
    retain_last: int = 10,
    grace: str = "7 days",
    delete_threshold: float = 0.1,
) -> dict[str, Param]:
    """Return the params of a DAG that maintains one lake, for `DAG(params=…)`.

    Args:
        tables: What can be chosen beside all tables, `schema.table` or `table`.
        older_than: Age from which snapshots are expired, if nobody says otherwise.
        retain_last: How many of the newest snapshots stay, however old.
        grace: How long files stay that no snapshot needs any more.
        delete_threshold: Share of deleted rows, 0 to 1, from which a file is rewritten.
    """
    return {
        "operation": Param(
            EVERY_STEP,
            type="string",
            title="Operation",
            description="Steps that are not chosen are skipped.",
            enum=list(OPERATION_LABELS),
            values_display=OPERATION_LABELS,
            section="What to do",
        ),
        "table": Param(
            ALL_TABLES,
            type="string",
            title="Table",
            description="For compaction. Snapshots and files are those of the whole lake.",
            enum=[ALL_TABLES, *tables],
            section="What to do",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Change nothing; the task's result says what would be done.",
            section="What to do",
        ),
        "target_file_size": Param(
            None,
            type=["string", "null"],
            title="Size of merged files",
            description="Such as 128MB. Empty: the table's own setting.",
            pattern=SIZE,
            section="Compaction",
        ),
        "max_compacted_files": Param(
            None,
            type=["integer", "null"],
            title="At most so many new files",
            description="Bounds the work of one run. Empty: no bound.",
            minimum=1,
            section="Compaction",
        ),
        "delete_threshold": Param(
            delete_threshold,
            type="number",
            title="Share of deleted rows",
            description="From 0 to 1. Files with at least this share are rewritten without them.",
            minimum=0,
            maximum=1,
            section="Compaction",
        ),
        "older_than": Param(
            older_than,
            type="string",
            title="Expire snapshots older than",
            description="An age such as 30 days, or an instant: 2026-01-31 18:00:00+00.",
            pattern=AGE_OR_INSTANT,
            section="Snapshots",
        ),
        "retain_last": Param(
            retain_last,
            type="integer",
            title="But keep the newest",
            description="So many snapshots stay, however old.",
            minimum=1,
            section="Snapshots",
        ),
        "grace": Param(
            grace,
            type="string",
            title="Delete files unused for",
            description="Running readers and jobs still need younger ones.",
            pattern=AGE,
            section="Files",
        ),
        "force": Param(
            False,
            type="boolean",
            title="Allow a shorter wait than the lake's own",
            description="Only when nobody reads or writes this lake: it can break them.",
            section="Files",
        ),
    }
