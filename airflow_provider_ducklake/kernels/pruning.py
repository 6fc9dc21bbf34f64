"""Which data files a filter can find rows in, told by statistics and partition values alone.

The filter becomes a question about bounds, with the same operators over the same types: "may a row
of this file satisfy it?". What cannot be told is answered with yes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import duckdb
import pyarrow as pa

from airflow_provider_ducklake.kernels.connection import detail, duckdb_errors
from airflow_provider_ducklake.kernels.expressions import walk
from airflow_provider_ducklake.kernels.partitioning import partition_keys
from airflow_provider_ducklake.lake.columns import Column, find_column
from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.identifiers import quote_identifier
from airflow_provider_ducklake.lake.model import DataFile, PartitionSpec
from airflow_provider_ducklake.lake.statistics import ColumnStatistics
from airflow_provider_ducklake.lake.types import FLOATING, UNCOUNTED, WITHOUT_BOUNDS

# Types whose partition values a wider type of the column still spells the same.
_STABLE: Final = frozenset(
    {"boolean", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "varchar", "uuid"}
)
# A filter may see these as text, inside structs too.
_SEEN_AS_TEXT: Final = frozenset({"uuid", "time", "time_ns", "timestamp_ns"})
_FLIPPED: Final = {
    "COMPARE_EQUAL": "COMPARE_EQUAL",
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
}
_UNKNOWN: Final = "true"
Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Condition:
    """A filter that was parsed and fits its columns.

    Attributes:
        sql: As it was given.
        columns: Names of the columns it looks at, in lower case.
        node: Its syntax tree, as DuckDB's `json_serialize_sql` gives it.
    """

    sql: str
    columns: frozenset[str]
    node: Node


def parse_condition(sql: str, types: Mapping[str, str]) -> Condition:
    """Parse a filter and check that it fits the columns.

    Args:
        sql: A predicate in DuckDB's SQL, e.g. `day >= DATE '2024-01-01' AND id IN (1, 2)`.
        types: DuckDB type of each column it may look at, by name.

    Raises:
        ConfigurationError: It is no predicate over these columns, or has a subquery.
    """
    node = _parse(sql)
    if any(part.get("class") in ("SUBQUERY", "WINDOW") for part in walk(node)):
        raise ConfigurationError(f"filter {sql!r}: subqueries and window functions are not taken")
    nulls = ", ".join(f"CAST(NULL AS {kind}) AS {quote_identifier(n)}" for n, kind in types.items())
    with duckdb.connect(":memory:") as connection:
        try:
            connection.execute(f"SELECT 1 FROM (SELECT {nulls}) WHERE ({sql}\n) LIMIT 0")
        except duckdb.Error as error:
            raise ConfigurationError(f"filter {sql!r}: {detail(error)}") from None
    names = {path[0].lower() for path in map(_path, walk(node)) if path}
    return Condition(sql, frozenset(names), node)


def prune(
    condition: Condition,
    files: Sequence[DataFile],
    statistics: Mapping[int, Sequence[ColumnStatistics]],
    columns: Sequence[Column],
    types: Mapping[str, str],
    specs: Mapping[int, PartitionSpec],
) -> list[DataFile]:
    """Return the files in which a row may satisfy a filter.

    Args:
        condition: The filter.
        files: Candidates.
        statistics: Column statistics by file id; a file without any is kept.
        columns: Top-level columns of the table.
        types: DuckDB type in which the filter sees each column, by name.
        specs: Partition specs of the files, by id.
    """
    if not files:
        return []
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        question = _Question(connection, files, statistics, columns, types, specs)
        may = question.ask(condition.node)
        if may == _UNKNOWN:
            return list(files)
        connection.register("facts", question.facts())
        with duckdb_errors("prune files by the filter"):
            found = connection.execute(f"SELECT place FROM facts WHERE coalesce({may}, true)")
            return [files[place] for (place,) in sorted(found.fetchall())]


class _Question:
    """Turns a syntax tree into SQL over the facts known of each file."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        files: Sequence[DataFile],
        statistics: Mapping[int, Sequence[ColumnStatistics]],
        columns: Sequence[Column],
        types: Mapping[str, str],
        specs: Mapping[int, PartitionSpec],
    ) -> None:
        self._connection = connection
        self._template = _one_text(connection, "SELECT json_serialize_sql('SELECT 1')", [])
        self._files = files
        self._by_file = {
            file_id: {s.column_id: s for s in of_file} for file_id, of_file in statistics.items()
        }
        self._columns = columns
        self._types = {name.lower(): kind for name, kind in types.items()}
        self._specs = specs
        self._names = count()
        self._facts: dict[str, pa.Array] = {
            "place": pa.array(range(len(files)), pa.int64()),
            "records": pa.array([file.record_count for file in files], pa.int64()),
        }

    def facts(self) -> pa.Table:
        """Return one row a file with all that the question needs."""
        return pa.table(self._facts)

    def ask(self, node: Node) -> str:
        """Return the SQL that is false only for files in which no row satisfies a node."""
        kind: str = node["type"]
        children: Sequence[Node] = node.get("children") or ()
        if node["class"] == "CONJUNCTION":
            joined = " AND " if kind == "CONJUNCTION_AND" else " OR "
            return f"({joined.join(self.ask(child) for child in children)})"
        if kind in _FLIPPED:
            left, right = node["left"], node["right"]
            found = self._compare(left, kind, right) or self._compare(right, _FLIPPED[kind], left)
            return found or _UNKNOWN
        if kind == "COMPARE_IN":
            subject, *values = children
            equal = [self._compare(subject, "COMPARE_EQUAL", value) for value in values]
            return f"({' OR '.join(equal)})" if all(equal) else _UNKNOWN
        if kind == "COMPARE_BETWEEN":
            ends = (("GREATER", node["lower"]), ("LESS", node["upper"]))
            parts = [self._compare(node["input"], f"COMPARE_{w}THANOREQUALTO", v) for w, v in ends]
            return " AND ".join(part or _UNKNOWN for part in parts)
        if kind in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
            return self._null(children[0], wanted=kind == "OPERATOR_IS_NULL")
        return self._prefix(node) or _UNKNOWN

    def _compare(self, subject: Node, kind: str, value: Node) -> str:
        """Return the SQL for a comparison of a column with a constant; empty where it is none."""
        constant = self._constant(value)
        bounds = self._bounds(subject)
        if bounds is None or constant is None or (bounds.is_text and not _is_text(value)):
            return ""  # to compare texts with a number DuckDB makes numbers of them, in that order
        tests = [f"coalesce({bounds.nulls} < records, true)"]
        operator = "<=" if kind.endswith(("EQUAL", "EQUALTO")) else "<"
        if "LESS" in kind or kind == "COMPARE_EQUAL":
            tests.append(f"coalesce({bounds.lower} {operator} {constant}, true)")
        if "GREATER" in kind or kind == "COMPARE_EQUAL":
            tests.append(f"coalesce({constant} {operator} {bounds.upper}, true)")
        if kind == "COMPARE_EQUAL":
            tests += self._partition_tests(bounds.column, constant)
        return f"({' AND '.join(tests)})"

    def _null(self, subject: Node, *, wanted: bool) -> str:
        column = self._column(subject)
        if column is None or column not in self._columns or column.is_nested:
            return _UNKNOWN
        if column.type in UNCOUNTED:
            return _UNKNOWN
        nulls = self._fact(column, "null_count", pa.int64())
        return f"coalesce({nulls} {'> 0' if wanted else '< records'}, true)"

    def _prefix(self, node: Node) -> str:
        """Return the SQL for `starts_with(x, 'a')`, `x ^@ 'a'` and `x LIKE 'a%'`; else empty."""
        children: Sequence[Node] = node.get("children") or ()
        name = node.get("function_name")
        if name not in ("starts_with", "prefix", "^@", "~~") or len(children) != 2:
            return ""
        bounds, constant = self._bounds(children[0]), self._constant(children[1])
        if bounds is None or not constant or not (bounds.is_text and _is_text(children[1])):
            return ""
        if name == "~~":
            constant = f"regexp_extract({constant}, '^[^%_]*')"
        return (
            f"(coalesce({bounds.upper} >= {constant}, true) AND coalesce({bounds.lower} <= "
            f"{constant} OR starts_with({bounds.lower}, {constant}), true))"
        )

    def _bounds(self, subject: Node) -> _Bounds | None:
        """Return what is known of the values of a column; None where a node is no such column."""
        column = self._column(subject)
        if column is None or column.is_nested or column.type in WITHOUT_BOUNDS:
            return None
        kind = self._types.get(column.name.lower()) if column in self._columns else None
        if kind is None and column.type not in _SEEN_AS_TEXT:
            kind = "VARCHAR" if column.type == "json" else column.sql_type
        if kind is None or (kind == "VARCHAR" and column.type not in ("varchar", "json", "uuid")):
            return None  # a text of such a value is in another order than the values
        texts = [self._fact(column, f"{end}_value", pa.string()) for end in ("min", "max")]
        lower, upper = (f"TRY_CAST({text} AS {kind})" for text in texts)
        if column.type == "float64":
            # Bounds of files written when the column was FLOAT are texts of a FLOAT.
            lower, upper = (
                f"{pick}({end}, TRY_CAST(TRY_CAST({text} AS FLOAT) AS DOUBLE))"
                for pick, end, text in zip(
                    ("least", "greatest"), (lower, upper), texts, strict=True
                )
            )
        if column.type in FLOATING:
            # NaN is no bound, and larger than any.
            nan = self._fact(column, "contains_nan", pa.bool_())
            upper = f"CASE WHEN {nan} IS FALSE THEN {upper} END"
        nulls = "CAST(NULL AS BIGINT)"
        if column in self._columns:
            nulls = self._fact(column, "null_count", pa.int64())
        return _Bounds(column, lower, upper, nulls, is_text=kind == "VARCHAR")

    def _column(self, subject: Node) -> Column | None:
        """Return the column a node names, or the field inside structs."""
        path = _path(subject)
        found = find_column(self._columns, path[0]) if path else None
        for name in path[1:]:
            if found is None or found.type != "struct":
                return None
            found = find_column(found.children, name)
        return found

    def _constant(self, node: Node) -> str | None:
        """Return the SQL of a constant, a cast one too; None for any other node."""
        inner = node
        while inner.get("class") == "CAST":
            inner = inner["child"]
        if inner.get("class") != "CONSTANT":
            return None
        tree = json.loads(self._template)
        tree["statements"][0]["node"]["select_list"] = [node]
        query = "SELECT json_deserialize_sql(?)"
        text = _one_text(self._connection, query, [json.dumps(tree)])
        return f"({text.removeprefix('SELECT ')})"

    def _fact(self, column: Column, attribute: str, kind: pa.DataType) -> str:
        """Add one statistic of each file as a column of the facts; return its name."""
        name = f"{attribute}_{column.column_id}"
        if name not in self._facts:
            of_files = [
                self._by_file.get(file.data_file_id, {}).get(column.column_id)
                for file in self._files
            ]
            values = [None if s is None else getattr(s, attribute) for s in of_files]
            self._facts[name] = pa.array(values, kind)
        return name

    def _partition_tests(self, column: Column, constant: str) -> Iterator[str]:
        """Yield, for each key of the column, that a file's value is the one the constant has."""
        if column.type not in _STABLE or column not in self._columns:
            return
        for partition_id, spec in self._specs.items():
            known = {column.column_id for column in self._columns}
            if not known.issuperset(field.column_id for field in spec.fields):
                continue
            fields = sorted(spec.fields, key=lambda field: field.key_index)
            keys = partition_keys(self._connection, spec, self._columns)
            for index, (field, key) in enumerate(zip(fields, keys, strict=True)):
                if field.column_id != column.column_id:
                    continue
                own = [file.partition_id == partition_id for file in self._files]
                values = [
                    file.partition_values[index]
                    if is_own and index < len(file.partition_values)
                    else None
                    for file, is_own in zip(self._files, own, strict=True)
                ]
                name = f"key_{next(self._names)}"
                self._facts[name] = pa.array(values, pa.string())
                self._facts[f"{name}_own"] = pa.array(own, pa.bool_())
                value = f"TRY_CAST({constant} AS {column.sql_type})"
                wanted = (
                    f"(SELECT {key.text} FROM (SELECT {value} AS {quote_identifier(column.name)}))"
                )
                yield f"(NOT {name}_own OR coalesce({name} = {wanted}, {wanted} IS NULL))"


@dataclass(frozen=True, slots=True)
class _Bounds:
    """SQL for what is known of the values of a column in a file; NULL is unknown."""

    column: Column
    lower: str
    upper: str
    nulls: str
    is_text: bool


def _is_text(node: Node) -> bool:
    """Tell whether a constant is a text."""
    is_cast = node.get("class") == "CAST"
    kind = node["cast_type"] if is_cast else node["value"]["type"]
    return bool(kind["id"] == "VARCHAR")


def _parse(sql: str) -> Node:
    with duckdb.connect(":memory:") as connection:
        query = "SELECT json_serialize_sql(?)"
        tree = json.loads(_one_text(connection, query, [f"SELECT 1 WHERE ({sql}\n)"]))
    statements: Sequence[Any] = tree.get("statements") or ()
    if tree.get("error") or len(statements) != 1:
        reason = tree.get("error_message") or "it is more than one predicate"
        raise ConfigurationError(f"filter {sql!r}: {reason}")
    node: Node = statements[0]["node"]
    if node.get("type") != "SELECT_NODE" or node.get("modifiers") or not node.get("where_clause"):
        raise ConfigurationError(f"filter {sql!r}: it is more than a predicate")
    return dict(node["where_clause"])


def _path(node: Node) -> tuple[str, ...]:
    """Return the names a column reference is made of; empty for any other node."""
    return tuple(node["column_names"]) if node.get("class") == "COLUMN_REF" else ()


def _one_text(connection: duckdb.DuckDBPyConnection, query: str, values: list[str]) -> str:
    row = connection.execute(query, values).fetchone()
    return str(row[0]) if row else ""
