"""New ids for a catalog that moves into a store, where no two catalogs give the same one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from airflow_provider_ducklake.lake.changes import Change, format_changes, parse_changes
from airflow_provider_ducklake.lake.errors import UnsupportedCatalog
from airflow_provider_ducklake.lake.transfer.rows import CatalogContents, Rows, Tables

# Which columns hold ids, in whatever table: those counted by next_catalog_id, by next_file_id.
_OBJECTS: Final = frozenset(
    {
        "schema_id",
        "table_id",
        "view_id",
        "macro_id",
        "partition_id",
        "sort_id",
        "object_id",
        "scope_id",
        "next_catalog_id",
    }
)
_FILES: Final = frozenset({"data_file_id", "delete_file_id", "mapping_id", "next_file_id"})
RANGE: Final = 1 << 32  # how many ids a catalog of a store has, see ducklake.first_id


@dataclass(frozen=True, slots=True)
class Numbering:
    """How the ids of one kind change; their order stays.

    Attributes:
        first: The first id of the catalog in the store.
        known: All ids, sorted, if they come from ranges of another store and are to be counted
            anew; without them `first` is added to each.
        shared: Ids that files keep which another catalog of the store has.
    """

    first: int
    known: tuple[int, ...] = ()
    shared: Mapping[int, int] = field(default_factory=dict)

    def __call__(self, old: Any) -> int | None:
        """Return the new id of an old one; None stays None."""
        if old is None:
            return None
        number = int(old)
        if number in self.shared:
            return self.shared[number]
        return self.first + (bisect_left(self.known, number) if self.known else number)


@dataclass(frozen=True, slots=True)
class Numberings:
    """How a catalog's ids change: those of schemas, tables and so on, and those of files."""

    objects: Numbering
    files: Numbering


def plan_numbering(tables: Tables, first: int, shared: Mapping[int, int]) -> Numberings:
    """Plan the new ids of a catalog.

    Args:
        tables: Its metadata.
        first: The first id it may use in the store.
        shared: Old file id -> id of the same file in the store.

    Raises:
        UnsupportedCatalog: It has more ids than fit.
    """
    return Numberings(
        _plan(tables, _OBJECTS, first, {}),
        _plan(tables, _FILES, first, shared),
    )


def _plan(
    tables: Tables, columns: Iterable[str], first: int, shared: Mapping[int, int]
) -> Numbering:
    known = {
        int(value)
        for rows in tables.values()
        for column in set(rows.columns) & set(columns)
        for value in rows.values(column)
        if value is not None
    }
    if max(known, default=0) < RANGE:
        return Numbering(first, (), shared)
    if len(known) >= RANGE:
        raise UnsupportedCatalog(f"the catalog has {len(known)} ids, a store has room for {RANGE}")
    return Numbering(first, tuple(sorted(known)), shared)


def renumbered(contents: CatalogContents, numberings: Numberings) -> CatalogContents:
    """Return a catalog with new ids everywhere they occur; snapshot, row and column ids stay.

    Raises:
        UnsupportedCatalog: A snapshot says it did something that is not known, ids and all.
    """
    objects, files = numberings.objects, numberings.files
    changes: dict[str, Callable[[Any], Any]] = dict.fromkeys(_OBJECTS, objects)
    changes |= dict.fromkeys(_FILES, files)
    changes["changes_made"] = lambda text: text and _changes_made(text, objects)
    tables = {name: rows.mapped(changes) for name, rows in contents.tables.items()}
    tables["ducklake_inlined_data_tables"] = _inlined_names(tables["ducklake_inlined_data_tables"])
    return replace(
        contents,
        tables=tables,
        inlined_data=tuple(
            replace(data, table_id=objects(data.table_id) or 0) for data in contents.inlined_data
        ),
        inlined_deletes=tuple(
            replace(
                deletes,
                table_id=objects(deletes.table_id) or 0,
                rows=tuple((files(f) or 0, row, snapshot) for f, row, snapshot in deletes.rows),
            )
            for deletes in contents.inlined_deletes
        ),
    )


def _changes_made(text: str, objects: Numbering) -> str:
    # What is not named in quotes is named by its id.
    return format_changes(
        Change(change.word, str(objects(change.about)) if change.about.isdigit() else change.about)
        for change in parse_changes(text)
    )


def inlined_data_table(table_id: int, schema_version: int) -> str:
    """Return the name of the table that holds the inlined rows of a table's schema version."""
    return f"ducklake_inlined_data_{table_id}_{schema_version}"


def _inlined_names(rows: Rows) -> Rows:
    named = [
        inlined_data_table(int(record["table_id"]), int(record["schema_version"]))
        for record in rows.records()
    ]
    at = rows.columns.index("table_name")
    return Rows(
        rows.columns,
        [(*row[:at], name, *row[at + 1 :]) for row, name in zip(rows.rows, named, strict=True)],
    )
