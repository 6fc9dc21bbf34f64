"""The columns of one Parquet file as a tree with field ids and DuckDB's types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
from duckdb.sqltypes import DuckDBPyType

from airflow_provider_ducklake.kernels.connection import duckdb_errors
from airflow_provider_ducklake.kernels.encrypted_footer import encrypted_schema
from airflow_provider_ducklake.kernels.parquet import encryption_sql
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.identifiers import quote_literal


@dataclass(frozen=True, slots=True)
class FileField:
    """One column of a file, or a field inside a nested one.

    Attributes:
        name: As the file spells it.
        field_id: None where the file has none.
        kind: `struct`, `list`, `map`, or `scalar` for everything else.
        type: DuckDB's type, for messages.
        children: Struct fields; the element of a list; key and value of a map.
    """

    name: str
    field_id: int | None
    kind: str
    type: str
    children: tuple[FileField, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaElement:
    """One element of a Parquet footer's schema, with what stands below it."""

    name: str
    field_id: int | None
    repeated: bool
    children: tuple[SchemaElement, ...] = ()


def scan_sql(
    local: str | Sequence[str], encryption_key: str | None = None, further: str = ""
) -> str:
    """Return the call that reads local Parquet files: no globs, no values from directories.

    Args:
        local: One path or several, read in this order.
        encryption_key: Base64 key of an encrypted file.
        further: Another argument of `read_parquet`.
    """
    paths = [local] if isinstance(local, str) else local
    literals = ", ".join(quote_literal(_without_globs(path)) for path in paths)
    arguments = [f"[{literals}]", "hive_partitioning = false", further]
    if encryption_key:
        arguments.append(f"encryption_config = {encryption_sql(encryption_key)}")
    return f"read_parquet({', '.join(filter(None, arguments))})"


def read_file_schema(
    connection: duckdb.DuckDBPyConnection,
    local: str,
    encryption_key: str | None = None,
    *,
    path: str | None = None,
) -> tuple[FileField, ...]:
    """Return the top-level columns of a local Parquet file, in file order.

    Args:
        local: Local path.
        encryption_key: Base64 key of an encrypted file.
        path: What messages call the file; the local path by default.

    Raises:
        BadInput: It is no readable Parquet file.
        StorageError: It cannot be read.
    """
    with duckdb_errors("read Parquet", path or local):
        types = connection.sql(f"FROM {scan_sql(local, encryption_key)}").types
        if encryption_key is None:
            rows = connection.execute(
                "SELECT name, field_id, repetition_type = 'REPEATED', num_children "
                "FROM parquet_schema(?)",
                [_without_globs(local)],
            ).fetchall()
        else:
            rows = encrypted_schema(local, encryption_key)
    root = _tree(iter(rows))
    if len(root.children) != len(types):
        raise BadInput(f"{path or local}: DuckDB reads other columns than its footer names")
    return tuple(_field(e, t, path or local) for e, t in zip(root.children, types, strict=True))


def _without_globs(path: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)


def _tree(rows: Iterator[tuple[str, int | None, bool | None, int | None]]) -> SchemaElement:
    """Build the tree from its elements in depth-first order."""
    name, field_id, repeated, count = next(rows)
    children = tuple(_tree(rows) for _ in range(count or 0))
    return SchemaElement(name, field_id, bool(repeated), children)


def _field(element: SchemaElement, kind: DuckDBPyType, path: str) -> FileField:
    if kind.id == "struct":
        parts = list(element.children)
    elif kind.id == "list":
        parts = [_element_of_list(element, _child_types(kind)[0])]
    elif kind.id == "map":
        # A group marked MAP, one repeated group inside it, key and value inside that.
        parts = list(element.children[0].children)
    else:
        return FileField(element.name, element.field_id, "scalar", str(kind))
    types = _child_types(kind)
    if len(parts) != len(types):
        raise BadInput(
            f"{path}: column {element.name} ({kind}) has a layout DuckDB reads otherwise"
        )
    children = tuple(_field(part, t, path) for part, t in zip(parts, types, strict=True))
    return FileField(element.name, element.field_id, kind.id, str(kind), children)


def _child_types(kind: DuckDBPyType) -> list[DuckDBPyType]:
    return [child for _, child in kind.children if isinstance(child, DuckDBPyType)]


def _element_of_list(element: SchemaElement, kind: DuckDBPyType) -> SchemaElement:
    """Return what a list holds, in the three-level layout of today and the older ones.

    Source: parquet-format, LogicalTypes.md, backward compatibility rules of LIST.
    """
    if element.repeated and not (len(element.children) == 1 and element.children[0].repeated):
        # A bare repeated field is a list of itself.
        return SchemaElement(element.name, element.field_id, False, element.children)
    inner = element.children[0]
    two_levels = (
        len(inner.children) != 1
        or inner.name in ("array", f"{element.name}_tuple")
        or (inner.children[0].repeated and kind.id == "list")
    )
    if two_levels:
        return inner
    return inner.children[0]
