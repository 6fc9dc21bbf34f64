"""The `changes_made` grammar of a snapshot: parsing, writing, and which changes conflict.

Source: docs/stable/specification/tables/ducklake_snapshot_changes.md and
docs/stable/duckdb/advanced_features/conflict_resolution.md; the words the reference adds to
them (`inlined_insert`, `inline_flush`, `merge_adjacent`, …) from ducklake_transaction_changes.cpp.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from airflow_provider_ducklake.lake.errors import UnsupportedCatalog
from airflow_provider_ducklake.lake.identifiers import quote_identifier

# Words about one table id that change its rows or its shape; the rest is upkeep.
_DATA: Final = frozenset(
    {
        "inserted_into_table",
        "deleted_from_table",
        "inlined_insert",
        "inlined_delete",
        "dropped_table",
        "altered_table",
    }
)
_UPKEEP: Final = frozenset(
    {"compacted_table", "merge_adjacent", "rewrite_delete", "inline_flush", "flushed_inlined"}
)
_BY_ID: Final = _DATA | _UPKEEP
_OTHER: Final = frozenset(
    {
        "created_schema",
        "created_table",
        "created_view",
        "created_scalar_macro",
        "created_table_macro",
        "dropped_schema",
        "dropped_view",
        "dropped_scalar_macro",
        "dropped_table_macro",
        "altered_view",
    }
)
_COMPACTIONS: Final = frozenset({"compacted_table", "merge_adjacent", "rewrite_delete"})
_DELETES: Final = frozenset({"deleted_from_table", "inlined_delete"})
_FLUSHES: Final = frozenset({"inline_flush", "flushed_inlined"})

# For each of our changes to a table: what somebody else may not have done to it meanwhile.
# Compaction and flush name no deletes here: their commits compare the very files and rows they
# were planned on with what the catalog holds now, which is finer than a word about the table.
_CONFLICTS: Final[dict[str, frozenset[str]]] = {
    "inserted_into_table": frozenset({"dropped_table", "altered_table", *_DELETES}),
    "deleted_from_table": frozenset(
        {"dropped_table", "altered_table", "inserted_into_table", "inlined_insert", *_COMPACTIONS}
    ),
    "inlined_delete": frozenset({"dropped_table", "altered_table", *_FLUSHES}),
    "merge_adjacent": frozenset({"dropped_table", "altered_table"}),
    "rewrite_delete": frozenset({"dropped_table", "altered_table"}),
    "inline_flush": frozenset({"dropped_table"}),
    "altered_table": frozenset({"dropped_table", "altered_table"}),
    "dropped_table": frozenset({"dropped_table"}),
}


def compaction_changes(word: str, table_id: int) -> list[Change]:
    """Return what a commit that replaces data files says of itself.

    Beside its own word it says `inline_flush`: a reference client that is deleting rows of a
    replaced file *inline* checks its commit against that word alone (`tables_deleted_inlined` in
    ducklake_transaction_state.cpp), and without it its delete would be lost.

    Args:
        word: `merge_adjacent` or `rewrite_delete`.
        table_id: The table.
    """
    return [table_change(word, table_id), table_change("inline_flush", table_id)]


def told_without_files(text: str) -> str:
    """Return what the changes of a snapshot say once the files it deleted from may be unknown.

    A reference client that deletes rows too looks into `ducklake_data_file` for which files were
    deleted from (GetFilesDeletedOrDroppedAfterSnapshot in ducklake_transaction_state.cpp). Where a
    file is not there any more it has to take the table's word: that of a merge, which did away
    with files. A text this version cannot read stays as it is.

    Args:
        text: The `changes_made` of the snapshot.
    """
    try:
        changes = parse_changes(text)
    except UnsupportedCatalog:
        return text
    gone = [Change("merge_adjacent", c.about) for c in changes if c.word == "deleted_from_table"]
    return format_changes((*changes, *gone)) if gone else text


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of `changes_made`: a word and what it is about (a table id, or a quoted name)."""

    word: str
    about: str

    @property
    def table_id(self) -> int | None:
        """The table the change is about; None for schemas, views, macros and created tables."""
        return int(self.about) if self.word in _BY_ID else None

    @property
    def is_upkeep(self) -> bool:
        """True for changes that leave every row as it was: compaction and flush."""
        return self.word in _UPKEEP

    def __str__(self) -> str:
        return f"{self.word}:{self.about}"


def table_change(word: str, table_id: int) -> Change:
    """Return a change about a table id; the word must be one of the grammar's."""
    if word not in _BY_ID:
        raise ValueError(f"{word!r} is no change of a table")
    return Change(word, str(table_id))


def created_table(schema: str, table: str) -> Change:
    """Return the change that says a table was created."""
    return Change("created_table", f"{quote_identifier(schema)}.{quote_identifier(table)}")


def created_schema(schema: str) -> Change:
    """Return the change that says a schema was created."""
    return Change("created_schema", quote_identifier(schema))


def dropped_schema(schema_id: int) -> Change:
    """Return the change that says a schema was dropped."""
    return Change("dropped_schema", str(schema_id))


def format_changes(changes: Iterable[Change]) -> str:
    """Write changes as `changes_made` holds them, each once, in the order given."""
    return ",".join(dict.fromkeys(str(change) for change in changes))


def parse_changes(text: str | None) -> tuple[Change, ...]:
    """Parse a `changes_made` value.

    Raises:
        UnsupportedCatalog: A word this version does not know, so its effect is unknown too.
    """
    changes = []
    for entry in _split(text or ""):
        word, colon, about = entry.partition(":")
        word = word.strip().lower()
        known = word in _OTHER or (word in _BY_ID and about.isdigit())
        if not colon or not known:
            raise UnsupportedCatalog(
                f"a snapshot of this lake says it did {entry!r}, which this version does not know; "
                "update airflow-provider-ducklake-spark before it writes to this lake"
            )
        changes.append(Change(word, about))
    return tuple(changes)


def _split(text: str) -> list[str]:
    """Split at commas outside double quotes."""
    parts, quoted, start = [], False, 0
    for position, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif character == "," and not quoted:
            parts.append(text[start:position])
            start = position + 1
    return [part for part in (*parts, text[start:]) if part]


def find_conflict(ours: Iterable[Change], theirs: Iterable[Change]) -> str | None:
    """Return why our changes may not be committed on top of theirs, None when they may.

    Args:
        ours: What we are about to commit.
        theirs: What others committed since the snapshot ours was planned on.
    """
    theirs = tuple(theirs)
    for our in ours:
        for their in theirs:
            if _conflicts(our, their):
                return f"we want to commit {our}, but meanwhile somebody committed {their}"
    return None


def _conflicts(our: Change, their: Change) -> bool:
    if our.table_id is not None:
        return our.about == their.about and their.word in _CONFLICTS[our.word]
    if our.word in ("created_table", "created_view"):
        return (
            their.word in ("created_table", "created_view")
            and our.about.lower() == their.about.lower()
        )
    return (our.word, our.about.lower()) == (their.word, their.about.lower())
