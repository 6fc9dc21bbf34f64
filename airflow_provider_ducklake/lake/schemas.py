"""Creating and dropping schemas."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import uuid4

from airflow_provider_ducklake.lake.changes import created_schema, dropped_schema
from airflow_provider_ducklake.lake.commit import CommitInfo, Committed, SnapshotWriter
from airflow_provider_ducklake.lake.errors import CommitConflict, ConfigurationError, NotFound
from airflow_provider_ducklake.lake.lake import Lake, LakeView
from airflow_provider_ducklake.lake.model import Schema
from airflow_provider_ducklake.lake.reader import read_schemas

NO_ID: Final = -1  # of a schema or table that is planned only
_PLAIN_NAME: Final = re.compile(r"^[A-Za-z0-9_-]+$")


def create_schema(lake: Lake, name: str, *, info: CommitInfo | None = None) -> Committed[int]:
    """Create a schema; the commit's value is its id.

    Raises:
        ConfigurationError: It exists already.
    """

    with lake.view() as view:
        base = view.head.snapshot_id
        planned, known = plan_schema(view, name), live_schemas(view)
        if any(schema.name.lower() == name.lower() for schema in known):
            raise ConfigurationError(f"{lake}: schema {name!r} exists already")

    def write(writer: SnapshotWriter) -> int:
        writer.schema_changed()
        return add_schema(writer, planned).schema_id

    return lake.commit(base=base, changes=[created_schema(name)], write=write, info=info)


def drop_schema(lake: Lake, name: str, *, info: CommitInfo | None = None) -> Committed[None]:
    """Drop an empty schema.

    Raises:
        NotFound: There is none of that name.
        ConfigurationError: It still has tables, views or macros.
    """
    with lake.view() as view:
        base = view.head.snapshot_id
        schema = find_schema(read_schemas(view.session, base, view.data_path), name)

    def write(writer: SnapshotWriter) -> None:
        for table in ("ducklake_table", "ducklake_view", "ducklake_macro"):
            count = writer.session.value(
                "SELECT count(*) FROM {entries} WHERE schema_id = ? AND end_snapshot IS NULL",
                (schema.schema_id,),
                entries=table,
            )
            if count:
                raise ConfigurationError(
                    f"{lake}: schema {name!r} is not empty: drop what it holds"
                )
        writer.session.execute(
            "UPDATE {ducklake_schema} SET end_snapshot = ? "
            "WHERE schema_id = ? AND end_snapshot IS NULL",
            (writer.snapshot_id, schema.schema_id),
        )
        writer.schema_changed()

    changes = [dropped_schema(schema.schema_id)]
    return lake.commit(base=base, changes=changes, write=write, info=info)


def directory_for(name: str, uuid: str) -> str:
    """Return the directory of a schema or table, below that of what it is in."""
    # As the reference: a name with other characters than these could not be a directory's.
    return f"{name if _PLAIN_NAME.match(name) else uuid}/"


def live_schemas(view: LakeView) -> list[Schema]:
    """Return the schemas of the newest snapshot."""
    return read_schemas(view.session, view.head.snapshot_id, view.data_path)


def plan_schema(view: LakeView, name: str) -> Schema:
    """Return a schema as it will be once `add_schema` has given it an id."""
    return Schema(NO_ID, name, view.data_path + directory_for(name, str(uuid4())))


def add_schema(writer: SnapshotWriter, planned: Schema) -> Schema:
    """Create a planned schema inside a commit; return it with its id.

    The commit must also say `created_schema` and that the schema changed.

    Raises:
        CommitConflict: The name was taken since it was planned.
    """
    names = writer.session.rows(
        "SELECT schema_name FROM {ducklake_schema} WHERE end_snapshot IS NULL"
    )
    if any(name.lower() == planned.name.lower() for (name,) in names):
        raise CommitConflict(f"schema {planned.name!r} was created by somebody else; plan again")
    schema_id, path = writer.new_catalog_id(), planned.data_path.rstrip("/").rpartition("/")[2]
    row = (schema_id, str(uuid4()), writer.snapshot_id, None, planned.name, f"{path}/", True)
    writer.session.insert("ducklake_schema", [row])
    return replace(planned, schema_id=schema_id)


def find_schema(schemas: Sequence[Schema], name: str) -> Schema:
    """Return the schema of a name, which compares without case.

    Raises:
        NotFound: There is none.
    """
    for schema in schemas:
        if schema.name.lower() == name.lower():
            return schema
    known = ", ".join(schema.name for schema in schemas)
    raise NotFound(f"there is no schema {name!r}; this lake has: {known}")
