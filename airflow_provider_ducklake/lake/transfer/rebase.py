"""The paths of a catalog that gets another root: the files stay, what names them changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from airflow_provider_ducklake.lake.paths import Location, join, relative_to
from airflow_provider_ducklake.lake.transfer.rows import CatalogContents, Rows

_Place = tuple[str, bool]


def rebased(contents: CatalogContents, root: str) -> CatalogContents:
    """Return a catalog whose relative paths begin at another directory, naming the same files.

    A schema or table whose directory lies outside gets a new one below the root, for the files to
    come; those it has are then named by their full paths.

    Args:
        contents: The catalog.
        root: Full path of the new directory, ending in `/`.

    Raises:
        BadInput: A stored path is malformed.
    """
    if Location.parse(contents.data_path) == Location.parse(root):
        return replace(contents, data_path=root, root=root)
    tables = dict(contents.tables)
    schemas = _Directories({None: contents.data_path}, {None: root})
    tables["ducklake_schema"] = schemas.of(tables["ducklake_schema"], "schema_id", None)
    directories = _Directories(schemas.old, schemas.new)
    tables["ducklake_table"] = directories.of(tables["ducklake_table"], "table_id", "schema_id")
    for name in ("ducklake_data_file", "ducklake_delete_file"):

        def below_table(record: dict[str, Any]) -> _Place:
            table_id = record["table_id"]
            return _moved(record, directories.old[table_id], directories.new[table_id])

        tables[name] = _with_places(tables[name], below_table)
    tables["ducklake_files_scheduled_for_deletion"] = _with_places(
        tables["ducklake_files_scheduled_for_deletion"],
        lambda record: _moved(record, contents.data_path, root),
    )
    return replace(contents, tables=tables, data_path=root, root=root)


class _Directories:
    """Where schemas, or tables, had their directories and where they have them now."""

    def __init__(self, old_parents: dict[Any, str], new_parents: dict[Any, str]) -> None:
        self._old_parents, self._new_parents = old_parents, new_parents
        self.old: dict[Any, str] = {}
        self.new: dict[Any, str] = {}

    def of(self, rows: Rows, key: str, parent_key: str | None) -> Rows:
        """Return the rows of schemas or tables with their new places."""
        uuid = key.removesuffix("_id") + "_uuid"

        def place(record: dict[str, Any]) -> _Place:
            parent = record[parent_key] if parent_key else None
            old = self._old_parents[parent]
            if record["path"] is not None:
                old = join(old, record["path"]) if record["path_is_relative"] else record["path"]
            self.old.setdefault(record[key], old)
            path, relative = relative_to(old, self._new_parents[parent])
            if not relative or not path:
                path = f"{record[uuid]}/"
            # All versions of a table have one directory: a file does not say which one it is of.
            self.new.setdefault(record[key], join(self._new_parents[parent], path))
            return path, True

        return _with_places(rows, place)


def _moved(record: dict[str, Any], old: str, new: str) -> _Place:
    path = record["path"]
    return relative_to(join(old, path) if record["path_is_relative"] else path, new)


def _with_places(rows: Rows, place: Callable[[dict[str, Any]], _Place]) -> Rows:
    at, flag_at = rows.columns.index("path"), rows.columns.index("path_is_relative")
    changed = []
    for record, row in zip(rows.records(), rows.rows, strict=True):
        values = list(row)
        values[at], values[flag_at] = place(record)
        changed.append(tuple(values))
    return Rows(rows.columns, changed)
