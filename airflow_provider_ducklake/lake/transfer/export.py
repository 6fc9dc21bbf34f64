"""Exporting a catalog to a DuckDB or SQLite file of its own; the data files stay where they are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from airflow_provider_ducklake.lake.database import Session, Value, open_database
from airflow_provider_ducklake.lake.database.base import BATCH, batches
from airflow_provider_ducklake.lake.errors import (
    CatalogUnavailable,
    ConfigurationError,
    LakeError,
)
from airflow_provider_ducklake.lake.fault_points import FaultPoint, reach
from airflow_provider_ducklake.lake.files import inlined_delete_table
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation, Kind
from airflow_provider_ducklake.lake.transfer.freeze import frozen
from airflow_provider_ducklake.lake.transfer.inlined_rows import (
    DELETE_COLUMNS,
    data_columns,
    stored_values,
)
from airflow_provider_ducklake.lake.transfer.read_source import read_catalog, read_contents
from airflow_provider_ducklake.lake.transfer.renumber import inlined_data_table
from airflow_provider_ducklake.lake.transfer.rows import CatalogContents, Rows

_COLUMN_BATCH: Final = 20_000
_SAME: Final = (
    ("ducklake_snapshot", "snapshot_id"),
    ("ducklake_table", "table_id"),
    ("ducklake_data_file", "data_file_id"),
    ("ducklake_delete_file", "delete_file_id"),
)
_SCHEDULED: Final = "ducklake_files_scheduled_for_deletion"


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export wrote.

    Attributes:
        target: The new catalog.
        snapshots: How many snapshots it has.
        newest_snapshot: Id of the newest, or only, one.
        tables: How many tables that one shows.
        data_files: How many data files it names.
        delete_files: How many delete files it names.
        inlined_rows: How many versions of inlined rows it holds.
    """

    target: str
    snapshots: int
    newest_snapshot: int
    tables: int
    data_files: int
    delete_files: int
    inlined_rows: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


def export_catalog(
    lake: Lake,
    target: CatalogLocation,
    *,
    snapshot_id: int | None = None,
    replace_older: bool = False,
) -> ExportResult:
    """Write a catalog into a file that any client attaches, for reading, without the store.

    The file is a second catalog of the same files: attach it READ_ONLY. It reads as long as the
    lake keeps those files, so of a snapshot that is expired only until the next clean-up.

    Args:
        lake: The catalog, of a store or not.
        target: A DuckDB or SQLite file. One that holds the same export already is left as it is.
        snapshot_id: Freeze the export at this snapshot; all kept snapshots by default.
        replace_older: Replace a target that is an older export of the catalog.

    Raises:
        ConfigurationError: The target is no such file, or something else is there; or files that
            the snapshot sees were merged since with rows of later ones.
        NotFound: The catalog does not keep the snapshot.
        CatalogUnavailable: The disk does not take the file.
        UnsupportedCatalog: The catalog has content that cannot move.
    """
    if target.kind not in ("duckdb", "sqlite") or target.in_bucket:
        raise ConfigurationError(f"{target}: an export goes to a DuckDB or SQLite file on a disk")
    with lake.view() as view:
        contents = read_contents(view.session, lake.location)
        contents = replace(contents, data_path=view.data_path, root=view.data_path)
    if snapshot_id is not None:
        contents = frozen(contents, snapshot_id)
    contents = _with_data_path(contents)
    path = Path(target.target)
    if path.exists() and _is_done(target, contents, replace_older):
        return _result(target, contents)
    # A file that is there is complete.
    partial = path.with_name(f"{path.name}.part")
    _remove(partial)
    try:
        with open_database(replace(target, target=str(partial))).create() as session:
            _write(session, target.kind, contents)
        _require_whole(partial, target)
        reach(FaultPoint.WORK_DONE)
        os.replace(partial, path)
    finally:
        _remove(partial)
    return _result(target, contents)


def _beside(path: Path) -> list[Path]:
    """Return the logs of a database file that is in use, or was when its process was killed."""
    return [path.with_name(f"{path.name}{suffix}") for suffix in (".wal", "-journal", "-wal")]


def _remove(partial: Path) -> None:
    # A log that is left would be taken for that of the next file of the name.
    for path in (partial, *_beside(partial)):
        path.unlink(missing_ok=True)


def _require_whole(partial: Path, target: CatalogLocation) -> None:
    """Refuse a file whose last rows are in a log beside it: the disk did not take them."""
    if any(path.exists() for path in _beside(partial)):
        raise CatalogUnavailable(
            f"{target}: not all of the export could be written into its file; make room on the "
            "disk and try again"
        )


def _is_done(target: CatalogLocation, contents: CatalogContents, replace_older: bool) -> bool:
    """Tell whether a file that is there is this export; refuse to write over anything else."""
    try:
        there = read_catalog(target)
    except LakeError as error:
        raise ConfigurationError(
            f"{target} exists already and is no export: choose another name ({error})"
        ) from error
    is_copy = there.identity == contents.identity and there.data_path == contents.data_path
    if is_copy and all(_ids(there, *key) == _ids(contents, *key) for key in _SAME):
        return True
    is_older = is_copy and there.newest_snapshot <= contents.newest_snapshot
    if not (is_older and replace_older):
        what = "an older export of it" if is_older else "something else"
        raise ConfigurationError(
            f"{target} exists already and is {what}: remove it, or choose another name"
        )
    return False


def _ids(contents: CatalogContents, table: str, column: str) -> set[Any]:
    return set(contents.tables[table].values(column))


def _with_data_path(contents: CatalogContents) -> CatalogContents:
    """Return a catalog that says in full where its files are, and has none to delete."""
    options = contents.tables["ducklake_metadata"].filtered(
        lambda option: option["scope"] is not None or option["key"] != "data_path"
    )
    rows = [("data_path", contents.data_path, None, None), *options.rows]
    tables = {**contents.tables, "ducklake_metadata": Rows(options.columns, rows)}
    tables[_SCHEDULED] = Rows(tables[_SCHEDULED].columns)
    return replace(contents, tables=tables)


def _write(session: Session, kind: Kind, contents: CatalogContents) -> None:
    session.create_metadata_tables()
    for name, rows in contents.tables.items():
        if kind == "duckdb":
            _insert_columns(session, name, rows)
        else:
            session.insert(name, rows.rows)
    for data in contents.inlined_data:
        name = inlined_data_table(data.table_id, data.schema_version)
        values = [stored_values(row, data.columns, kind) for row in data.rows]
        _create(session, name, data_columns(data.columns, kind), values)
    for deletes in contents.inlined_deletes:
        _create(session, inlined_delete_table(deletes.table_id), DELETE_COLUMNS, deletes.rows)


def _insert_columns(session: Session, name: str, rows: Rows) -> None:
    """Insert rows column by column: DuckDB takes a minute for 100,000 rows of parameters."""
    values = ", ".join("unnest(?)" for _ in rows.columns)
    for batch in batches(rows.rows, _COLUMN_BATCH):
        columns: list[Any] = [list(column) for column in zip(*batch, strict=True)]
        session.execute("INSERT INTO {rows} SELECT " + values, columns, rows=name)


def _create(
    session: Session,
    name: str,
    columns: Sequence[tuple[str, str]],
    rows: Iterable[Sequence[Value]],
) -> None:
    listed = ", ".join(f"{quote_identifier(column)} {kind}" for column, kind in columns)
    session.execute("CREATE TABLE {inlined} (" + listed + ")", inlined=name)
    one = f"({', '.join('?' * len(columns))})"
    for batch in batches(list(rows), max(1, BATCH // len(columns))):
        statement = f"INSERT INTO {{inlined}} VALUES {', '.join([one] * len(batch))}"
        session.execute(statement, [value for row in batch for value in row], inlined=name)


def _result(target: CatalogLocation, contents: CatalogContents) -> ExportResult:
    tables = contents.tables
    live = tables["ducklake_table"].where("end_snapshot", {None})
    return ExportResult(
        target=str(target),
        snapshots=len(tables["ducklake_snapshot"]),
        newest_snapshot=contents.newest_snapshot,
        tables=len(live),
        data_files=len(tables["ducklake_data_file"]),
        delete_files=len(tables["ducklake_delete_file"]),
        inlined_rows=sum(len(data.rows) for data in contents.inlined_data),
    )
