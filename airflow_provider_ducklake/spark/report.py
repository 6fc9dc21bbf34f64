"""A result as text a person reads."""

from __future__ import annotations

from airflow_provider_ducklake.lake.fsck.findings import ClassReport
from airflow_provider_ducklake.lake.results import OperationResult, TableResult


def render(result: OperationResult) -> str:
    """Return a result as a short report."""
    lines = [f"{result.operation} on {result.lake}{_note(result)}", f"  {_snapshots(result)}"]
    lines += [f"  {message}" for message in result.messages]
    describe = _described if result.operation == "info" else _table
    # What create_table made, its message tells: a new table has no files to count.
    for table in result.tables if result.operation != "create_table" else ():
        lines += describe(table)
    for report in result.findings:
        lines += _finding(report)
    lines += [f"  FAILED: {failure.message}" for failure in result.failures]
    lines += [f"  {name}: {value:,}" for name, value in result.counts.items() if value]
    lines.append(f"  {result.seconds:.1f} s")
    return "\n".join(lines)


def _note(result: OperationResult) -> str:
    if result.dry_run:
        return " (dry run: nothing was changed)"
    return " (done by an earlier try)" if result.already_done else ""


def _snapshots(result: OperationResult) -> str:
    if result.snapshot_after == result.snapshot_before:
        return f"snapshot {result.snapshot_before}"
    return f"snapshot {result.snapshot_before} -> {result.snapshot_after}"


def _table(table: TableResult) -> list[str]:
    if table.error is not None:
        return [f"  {table.table}: FAILED: {table.error}"]
    parts = [f"files {table.files_before:,} -> {table.files_after:,}"]
    if not table.is_changed and table.files_before == table.files_after:
        parts = [f"nothing to do, {table.files_after:,} files"]
    if table.files_in or table.files_out:
        parts.append(f"{table.files_in:,} in, {table.files_out:,} out")
    if table.bytes_in or table.bytes_out:
        parts.append(f"{size_text(table.bytes_in)} -> {size_text(table.bytes_out)}")
    if table.rows:
        parts.append(f"{table.rows:,} rows")
    if table.updated_rows:
        parts.append(f"{table.updated_rows:,} of them updated")
    if table.deleted_rows:
        parts.append(f"{table.deleted_rows:,} deleted")
    if table.inlined_rows:
        parts.append(f"{table.inlined_rows:,} inlined")
    if table.remaining:
        parts.append(f"{table.remaining:,} files remain")
    lines = [f"  {table.table}: {', '.join(parts)}"]
    lines += [f"    {entry.count:,} left alone: {entry.reason}" for entry in table.skipped]
    return lines


def _finding(report: ClassReport) -> list[str]:
    head = f"  {report.severity.upper()} {report.damage}: {report.count:,}"
    if report.repaired:
        head += f", {report.repaired:,} rows repaired"
    elif report.repairable:
        head += f", {report.repairable:,} rows can be repaired"
    return [head, f"    {report.example}", f"    do: {report.advice}"]


def _described(table: TableResult) -> list[str]:
    """Return a table as it is: nothing became of it, so there is no before and after."""
    if table.error is not None:
        return _table(table)
    parts = [
        f"{table.rows:,} rows",
        f"{table.files_after:,} files of {size_text(table.bytes_out)}",
        f"{table.deleted_rows:,} deleted rows ({table.delete_ratio:.1%} of those in files)",
        f"{table.inlined_rows:,} inlined rows",
    ]
    return [f"  {table.table}: {', '.join(parts)}"]


def size_text(size: int) -> str:
    """Return a number of bytes in the unit that reads best: `1.5 MB`."""
    value, units = float(size), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1_000 and len(units) > 1:
        value /= 1_000
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"
