"""Views, macros, comments, options and the shapes of tables: no operation of ours touches them."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.interop.conflicts import OURS, Ours, prepare
from tests.interop.judge import Judge

# What describes a lake, and is no matter of rows and files.
DEFINITIONS: Final = (
    "column",
    "column_tag",
    "macro",
    "macro_impl",
    "macro_parameters",
    "metadata",
    "partition_column",
    "partition_info",
    "schema",
    "schema_versions",
    "sort_expression",
    "sort_info",
    "table",
    "tag",
    "view",
)
# These make, or bring back, what is looked at here.
CREATING: Final = {"new", "restore", "lake"}
# After these there is nothing left to work on.
EMPTYING: Final = ("over", "empty")
ANSWERS: Final = (
    "SELECT table_name, comment FROM duckdb_tables() WHERE database_name = 'lake'",
    "SELECT view_name, comment, sql FROM duckdb_views() WHERE database_name = 'lake'",
    "SELECT column_name, comment, column_default, is_nullable FROM duckdb_columns() "
    "WHERE database_name = 'lake' AND schema_name = 's'",
    "SELECT option_name, value, scope, scope_entry FROM ducklake_options('lake')",
    "SELECT s.twice(20), s.twice(1, plus := 5), (SELECT count(*) FROM s.fixed(4))",
    "FROM s.constant",
)


@pytest.fixture
def described(judge: Judge) -> Judge:
    """A lake in which every operation finds something to do, and everything is described."""
    prepare(judge)
    for statement in (
        "CREATE VIEW s.constant AS SELECT 7 AS seven",
        "COMMENT ON VIEW s.constant IS 'seven'",
        "CREATE MACRO s.twice(x, plus := 1) AS x * 2 + plus",
        "CREATE MACRO s.fixed(n) AS TABLE SELECT * FROM range(n)",
        "COMMENT ON TABLE s.t IS 'of a table'",
        "COMMENT ON COLUMN s.t.v IS 'of a column'",
        "ALTER TABLE s.o SET PARTITIONED BY (v)",
        "ALTER TABLE s.t SET SORTED BY (lower(v), id DESC)",
        "ALTER TABLE s.t ALTER v SET DEFAULT 'new'",
    ):
        judge.execute(statement, {})
    judge.client.set_option("parquet_row_group_size", 1000, table="s.t")
    judge.client.sql("CALL lake.set_option('parquet_compression', 'zstd', schema => 's')")
    return judge


def _described(judge: Judge) -> dict[str, list[tuple[Any, ...]]]:
    """Return what the catalog and a stock client that has just attached say of all that."""
    catalog = judge.catalog()
    found = {
        name: sorted(
            (tuple(row.values()) for row in catalog[f"ducklake_{name}"] if not _is_over(row)),
            key=repr,
        )
        for name in DEFINITIONS
    }
    assert all(found.values()), "there is nothing to look at"
    return found | {question: sorted(judge.client.sql(question), key=repr) for question in ANSWERS}


def _is_over(row: dict[str, Any]) -> bool:
    return row.get("end_snapshot") is not None


def _run(judge: Judge, ours: Ours) -> None:
    ours.run(judge)
    judge.model.expire(ours.expires)
    now = judge.model.tables
    judge.accept({n: table for n, table in ours.effect(judge).items() if table != now.get(n)})


def test_no_operation_touches_definitions(described: Judge) -> None:
    """Whatever is done to the rows and files, even to all snapshots but one."""
    before = _described(described)
    for name in (*(n for n in OURS if n not in CREATING and n not in EMPTYING), *EMPTYING):
        _run(described, OURS[name])
        assert _described(described) == before, name
    described.expire(described.model.kept[:-1], retain_last=1)
    described.upkeep("cleanup_old_files", cleanup_all=True, force=True)
    assert _described(described) == before
