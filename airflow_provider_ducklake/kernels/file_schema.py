"""The columns of one Parquet file as a tree: names, field ids, and types as DuckDB reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

import duckdb
from duckdb.sqltypes import DuckDBPyType

from airflow_provider_ducklake.kernels.connection import duckdb_errors, encryption_sql
from airflow_provider_ducklake.kernels.encrypted_footer import encrypted_schema
from airflow_provider_ducklake.lake.errors import BadInput
from airflow_provider_ducklake.lake.identifiers import quote_literal

# What is read of a row `x` of DuckDB's parquet_schema: an element, as `fields_of` takes it.
ELEMENT: Final = (
    "struct_pack(name := x.name, type := x.type, repetition := x.repetition_type, "
    'num_children := x.num_children, converted := x.converted_type, "precision" := x."precision", '
    "field_id := x.field_id, logical := x.logical_type, duckdb_type := x.duckdb_type)"
)


@dataclass(frozen=True, slots=True)
class LeafStatistics:
    """Statistics of one leaf column over all row groups; None is unknown.

    Attributes:
        size_bytes: Compressed bytes.
        value_count: Slots that hold a value.
        null_count: Slots that hold none, those of NULL and empty parents included.
        min_value: Smallest value in the catalog's text form, exact; None when any row group
            does not tell, and for floating-point columns, whose NaN no footer mentions.
        max_value: Largest value, likewise; both are known, or none.
        extra_stats: Box and types of a GEOMETRY column, as the catalog has them.
    """

    size_bytes: int
    value_count: int | None = None
    null_count: int | None = None
    min_value: str | None = None
    max_value: str | None = None
    extra_stats: str | None = None


@dataclass(frozen=True, slots=True)
class ParquetField:
    """A column of a Parquet file, or a field inside one, as DuckDB reads it.

    Two are equal that read the same, however they are written.

    Attributes:
        name: Name in the file; the element of a list goes by the name of its repeated group.
        field_id: Field id in the file.
        kind: `struct`, `list`, `map`, or `leaf`.
        duckdb_type: Type DuckDB reads it as.
        children: Fields of a struct; the element of a list; key and value of a map.
        required: The file cannot hold NULL here.
        annotation: Logical type as the footer puts it, or the older converted type.
        physical_type: Parquet's own type of a leaf, else empty.
        precision: Decimal digits, where given.
        ambiguous: An old list layout that engines read in two ways.
        statistics: For leaves, where they were asked for.
    """

    name: str
    field_id: int | None
    kind: str
    duckdb_type: str
    children: tuple[ParquetField, ...] = ()
    required: bool = field(default=False, compare=False)
    annotation: str = field(default="", compare=False)
    physical_type: str = field(default="", compare=False)
    precision: int | None = field(default=None, compare=False)
    ambiguous: bool = field(default=False, compare=False)
    statistics: LeafStatistics | None = field(default=None, compare=False)


# Number of a leaf column, its type, and whether it may have several values in one row.
Statistics = Callable[[int, str, bool], LeafStatistics]


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
) -> tuple[ParquetField, ...]:
    """Return the top-level columns of a local Parquet file, in file order, without statistics.

    Args:
        local: Local path.
        encryption_key: Base64 key of an encrypted file.
        path: What messages call the file; the local path by default.

    Raises:
        BadInput: It is no readable Parquet file.
        StorageError: It cannot be read.
    """
    elements: Iterable[Mapping[str, Any]]
    with duckdb_errors("read Parquet", path or local):
        types = connection.sql(f"FROM {scan_sql(local, encryption_key)}").types
        if encryption_key is None:
            query = f"SELECT {ELEMENT} FROM parquet_schema(?) AS x"
            rows = connection.execute(query, [_without_globs(local)]).fetchall()
            elements = (element for (element,) in rows)
        else:
            elements = encrypted_schema(local, encryption_key)
    return fields_of(elements, types, path or local)


def fields_of(
    elements: Iterable[Mapping[str, Any]],
    types: Iterable[DuckDBPyType],
    path: str,
    statistics: Statistics | None = None,
) -> tuple[ParquetField, ...]:
    """Return the top-level columns of a file, in file order.

    Args:
        elements: Elements of the footer's schema, depth first; see `ELEMENT`.
        types: What DuckDB reads the columns as.
        path: What messages call the file.
        statistics: Where the leaves' statistics come from.

    Raises:
        BadInput: DuckDB reads other columns than the footer names.
    """
    root = _tree(iter(elements), count())
    try:
        pairs = zip(root.children, types, strict=True)
        return tuple([_field(element, kind, statistics) for element, kind in pairs])
    except (ValueError, LookupError):
        raise BadInput(
            f"{path} has a layout DuckDB reads differently than its footer says"
        ) from None


def _without_globs(path: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)


@dataclass(frozen=True, slots=True)
class _Element:
    """One element of the schema as the footer has it; `leaf` counts the leaf columns from 0."""

    facts: Mapping[str, Any]
    children: tuple[_Element, ...]
    leaf: int | None

    @property
    def repeated(self) -> bool:
        return bool(self.facts["repetition"] == "REPEATED")


def _tree(remaining: Iterator[Mapping[str, Any]], leaves: Iterator[int]) -> _Element:
    facts = next(remaining)
    children = tuple(_tree(remaining, leaves) for _ in range(facts["num_children"] or 0))
    return _Element(facts, children, None if children else next(leaves))


def _field(
    element: _Element,
    kind: DuckDBPyType,
    statistics: Statistics | None,
    *,
    repeated: bool = False,
) -> ParquetField:
    """Make a field of a schema element; `repeated` where it may have several values in one row."""
    facts = element.facts
    field = ParquetField(
        name=facts["name"],
        field_id=facts["field_id"],
        kind="leaf",
        duckdb_type=str(kind),
        required=facts["repetition"] == "REQUIRED",
        annotation=facts.get("logical") or facts.get("converted") or "",
        physical_type=facts.get("type") or "",
        precision=facts.get("precision"),
    )
    if kind.id == "list":
        return _list(field, element, kind, statistics)
    if kind.id in ("map", "struct"):
        parts = element.children
        if kind.id == "map":
            [entries] = parts
            parts, repeated = entries.children, True
        pairs = zip(parts, _inner(kind), strict=True)
        children = tuple([_field(e, k, statistics, repeated=repeated) for e, k in pairs])
        return replace(field, kind=kind.id, children=children)
    if element.leaf is None:  # one value made of several leaves, such as VARIANT
        return field
    # The footer knows what a type read as INTEGER was written as; a GEOMETRY it has for a BLOB.
    written = str(kind) if kind.id == "geometry" else facts.get("duckdb_type", str(kind)) or ""
    field = replace(field, duckdb_type=written)
    if statistics is None:
        return field
    return replace(field, statistics=statistics(element.leaf, written, repeated))


def _list(
    field: ParquetField, element: _Element, kind: DuckDBPyType, statistics: Statistics | None
) -> ParquetField:
    """Make a list of any of the layouts there are; the element takes its repeated group's name.

    Source: parquet-format's LogicalTypes.md, "Lists" with its backward-compatibility rules. DuckDB
    unwraps every repeated group of one field, whatever its name (tried on 1.5.5).
    """
    group = element if element.repeated else element.children[0]
    name = group.facts["name"]
    inner, ambiguous = replace(group, facts={**group.facts, "repetition": ""}), False
    if len(group.children) == 1:
        [inner] = group.children
        # By the rules such a group is the element itself, a record of one field.
        is_record = group is element or name in ("array", f"{field.name}_tuple")
        ambiguous = is_record and not inner.repeated
    item = replace(_field(inner, _inner(kind)[0], statistics, repeated=True), name=name)
    return replace(field, kind="list", children=(item,), ambiguous=ambiguous)


def _inner(kind: DuckDBPyType) -> list[DuckDBPyType]:
    return [inner for _, inner in kind.children if isinstance(inner, DuckDBPyType)]
