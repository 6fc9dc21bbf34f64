"""merge_adjacent_files: small files become fewer, and no snapshot, row id or feed notices."""

from __future__ import annotations

import hashlib
from datetime import datetime, timezone
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.interop.aftermath import life_goes_on
from tests.interop.catalog import live_files
from tests.interop.judge import Judge
from tests.interop.palette import pairs, write_parquet

MERGE = "merge_adjacent_files"


@pytest.fixture
def files_only(judge: Judge) -> Judge:
    """A lake in which every insert, however small, makes a data file."""
    judge.client.set_option("data_inlining_row_limit", 0)
    return judge


def test_deleted_and_updated_rows_stay_so(files_only: Judge) -> None:
    """MG-01: rows deleted or updated earlier do not come back, at no version."""
    judge = files_only
    judge.create_table("main.t", {"id": "INTEGER", "v": "VARCHAR"})
    for start in (1, 3, 5):
        judge.insert_values("main.t", (start, "a"), (start + 1, "b"))
    judge.delete("main.t", "id = 3", lambda row: row["id"] == 3)
    judge.create_table("main.gone", {"id": "INTEGER"})
    judge.insert_values("main.gone", (1,), (2,))
    judge.insert_values("main.gone", (3,))
    judge.insert_values("main.gone", (4,))
    judge.delete("main.gone", "id < 3", lambda row: row["id"] < 3)
    judge.create_table("main.changed", {"id": "INTEGER", "n": "INTEGER"})
    judge.insert_values("main.changed", (1, 0), (2, 0))
    for _ in range(4):
        judge.update(
            "main.changed",
            {"n": "n + 1"},
            "id = 1",
            lambda row: row["id"] == 1,
            lambda row: {"n": row["n"] + 1},
        )
    feeds = {name: judge.changes(name) for name in judge.model.tables}
    planned = judge.dry_run(MERGE)
    result = judge.upkeep(MERGE)
    assert [t.files_in for t in planned.tables] == [t.files_in for t in result.tables]
    assert sum(table.files_in for table in result.tables) > 0
    assert {name: judge.changes(name) for name in judge.model.tables} == feeds
    life_goes_on(judge, "main.changed")


def test_partitions_stay_apart(files_only: Judge) -> None:
    """MG-02: outputs hold one partition of one spec, lie in its directory, and say so."""
    judge = files_only
    judge.client.sql("SET TimeZone = 'UTC'")
    judge.create_table("main.t", {"id": "INTEGER", "ts": "TIMESTAMPTZ", "region": "VARCHAR"})
    judge.alter("main.t", "SET PARTITIONED BY (year(ts), region)")
    places = ((2023, "eu"), (2024, "eu"), (2024, None), (2023, "a b/c"))
    for start in (0, 10, 20):
        rows = [
            [
                (str(start + at), start + at),
                _instant(year),
                ("NULL" if region is None else f"'{region}'", region),
            ]
            for at, (year, region) in enumerate(places)
        ]
        judge.insert("main.t", rows)
    before = live_files(judge.catalog(), "t")
    result = judge.upkeep(MERGE)
    catalog = judge.catalog()
    after = live_files(catalog, "t")
    assert (len(before), len(after)) == (12, 4)
    assert result.tables[0].files_in == 12
    assert result.tables[0].files_out == 4
    assert {row["partition_id"] for row in after} == {before[0]["partition_id"]}
    directories = {Path(row["path"]).parent for row in after}
    assert directories == {Path(row["path"]).parent for row in before}
    values: dict[int, dict[int, str | None]] = {row["data_file_id"]: {} for row in after}
    for row in catalog["ducklake_file_partition_value"]:
        values.get(row["data_file_id"], {})[row["partition_key_index"]] = row["partition_value"]
    found = {(of_file[0], of_file[1]) for of_file in values.values()}
    assert found == {(str(year), region) for year, region in places}
    judge.alter("main.t", "RESET PARTITIONED BY")
    for number in (100, 101):
        judge.insert("main.t", [[(str(number), number), _instant(2023), ("'eu'", "eu")]])
    judge.upkeep(MERGE)
    specs = [row["partition_id"] for row in live_files(judge.catalog(), "t")]
    assert len(specs) == 5
    assert specs.count(None) == 1
    life_goes_on(judge, "main.t")


def _instant(year: int) -> tuple[str, object]:
    value = datetime(year, 12, 31, 23, 30, tzinfo=timezone.utc)
    return f"'{value.isoformat()}'", value


def test_files_from_two_staging_directories(files_only: Judge) -> None:
    """MG-03: the catalog's partition value groups files, not the directory they came in."""
    judge = files_only
    judge.create_table("main.t", {"year": "INTEGER", "v": "DOUBLE"})
    judge.alter("main.t", "SET PARTITIONED BY (year)")
    sources = []
    for stage, value in (("stg1", 1.0), ("stg2", 2.0)):
        path = judge.lake.directory / stage / "year=2026" / "f.parquet"
        write_parquet(path, {"v": "DOUBLE"}, pairs([(value,)]))
        sources.append(str(path))
    judge.add_files("main.t", sources, [(2026, 1.0), (2026, 2.0)], hive_partitioning=True)
    judge.insert_values("main.t", (2026, 3.0))
    judge.upkeep(MERGE)
    catalog = judge.catalog()
    (merged,) = live_files(catalog, "t")
    assert merged["path_is_relative"]
    assert merged["record_count"] == 3
    assert merged["partition_id"] is not None
    scheduled = {row["path"] for row in catalog["ducklake_files_scheduled_for_deletion"]}
    assert set(sources) <= scheduled


def test_schema_changes_between_the_files(files_only: Judge) -> None:
    """MG-06: values go by column id across RENAME, DROP and re-ADD, and changes of type."""
    judge = files_only
    judge.create_table("main.t", {"a": "INTEGER"})
    judge.insert_values("main.t", (1,))
    _register(judge, "one", {"a": "INTEGER"}, [(2,)])
    judge.alter("main.t", "ADD COLUMN b INTEGER DEFAULT 7", lambda t: t.add_column("b", 7))
    judge.insert_values("main.t", (3, 30))
    _register(judge, "two", {"b": "INTEGER", "a": "INTEGER"}, [(40, 4)], [(4, 40)])
    judge.alter("main.t", "RENAME COLUMN a TO aa", lambda t: t.rename_column("a", "aa"))
    judge.insert_values("main.t", (5, 50))
    judge.alter("main.t", "DROP COLUMN b", lambda t: t.drop_column("b"))
    judge.alter("main.t", "ADD COLUMN b INTEGER", lambda t: t.add_column("b"))
    judge.insert_values("main.t", (6, 60))
    judge.alter("main.t", "ALTER COLUMN aa TYPE BIGINT")
    for number in (7, 8):
        judge.insert_values("main.t", (number + 2**40, number * 10))
    feed = judge.changes("main.t")
    result = judge.upkeep(MERGE)
    (table,) = result.tables
    assert table.files_in >= 2
    assert {skipped.reason[:14] for skipped in table.skipped} == {"schema changed"}
    assert judge.changes("main.t") == feed
    judge.expire(judge.model.kept[:-3], retain_last=3)
    judge.upkeep(MERGE)
    assert len(live_files(judge.catalog(), "t")) == 1
    life_goes_on(judge, "main.t")


def _register(
    judge: Judge,
    name: str,
    types: dict[str, str],
    rows: list[tuple[object, ...]],
    expected: list[tuple[object, ...]] | None = None,
) -> None:
    path = judge.lake.directory / "raw" / f"{name}.parquet"
    write_parquet(path, types, pairs(rows))
    judge.add_files("main.t", [str(path)], expected or rows)


def test_bounded_work_drains(files_only: Judge) -> None:
    """MG-07: the limit holds for the whole call, what is left is told, and the drain ends."""
    judge = files_only
    judge.create_table("main.t", {"id": "INTEGER", "k": "INTEGER"})
    judge.alter("main.t", "SET PARTITIONED BY (k)")
    partitions, inserts = 12, 5
    for start in range(inserts):
        judge.insert_values("main.t", *((start * 100 + k, k) for k in range(partitions)))
    size = sum(row["file_size_bytes"] for row in live_files(judge.catalog(), "t"))
    moved, left = 0, partitions * inserts
    for _ in range(-(-partitions // 5)):
        (table,) = judge.upkeep(MERGE, "main.t", max_compacted_files=5).tables
        assert 0 < table.files_out <= 5
        assert table.remaining == left - table.files_in
        left, moved = table.remaining, moved + table.bytes_in
    assert left == 0
    assert moved <= 2 * size
    assert len(live_files(judge.catalog(), "t")) == partitions
    head = judge.model.head
    (idle,) = judge.upkeep(MERGE, "main.t", max_compacted_files=5).tables
    assert (idle.files_in, idle.files_out, idle.remaining, idle.snapshot_id) == (0, 0, 0, None)
    assert judge.model.head == head


def test_size_tiers(files_only: Judge) -> None:
    """MG-07: only files within the bounds are merged, and outputs respect the target size."""
    judge = files_only
    judge.create_table("main.t", {"id": "INTEGER", "v": "VARCHAR"})
    for number in range(4):
        judge.insert_values("main.t", (number, "small"))
    judge.insert_by(
        "INSERT INTO main.t SELECT 10 + i, md5(i::VARCHAR) FROM range(300) r(i)",
        "main.t",
        [(10 + i, _md5(i)) for i in range(300)],
    )
    small, *_, large = sorted(f["file_size_bytes"] for f in live_files(judge.catalog(), "t"))
    (table,) = judge.upkeep(MERGE, "main.t", max_file_size=large).tables
    assert (table.files_in, table.files_out, table.files_after) == (4, 1, 2)
    judge.insert_values("main.t", (5, "small"))
    (table,) = judge.upkeep(MERGE, "main.t", min_file_size=small * 100).tables
    assert table.files_in == 0
    (table,) = judge.upkeep(MERGE, "main.t", target_file_size=large).tables
    assert (table.files_in, table.files_out) == (2, 1)


def _md5(number: int) -> str:
    return hashlib.md5(str(number).encode()).hexdigest()


def test_files_of_expired_snapshots(files_only: Judge) -> None:
    """MG-08: files merge although the snapshots they came with are expired."""
    judge = files_only
    judge.create_table("main.t", {"id": "INTEGER"})
    for number in range(4):
        judge.insert_values("main.t", (number,))
    judge.create_table("main.dropped", {"id": "INTEGER"})
    judge.insert_values("main.dropped", (1,))
    judge.insert_values("main.dropped", (2,))
    judge.drop_table("main.dropped")
    judge.expire((1, 2, 3), versions="1..3")
    result = judge.upkeep(MERGE)
    assert [table.table for table in result.tables] == ["main.t"]
    assert result.tables[0].files_out == 1
    judge.check()  # the dropped table too, at the versions that had it
    head = judge.model.head
    judge.upkeep(MERGE)
    assert judge.model.head == head


def test_output_obeys_the_options(files_only: Judge) -> None:
    """MG-08: compression, row groups and sort order of the table hold for merged files."""
    judge = files_only
    judge.create_table("main.t", {"id": "INTEGER", "v": "INTEGER"})
    judge.alter("main.t", "SET SORTED BY (v DESC)")
    judge.client.set_option("parquet_compression", "zstd", table="main.t")
    judge.client.set_option("parquet_row_group_size", 2048, table="main.t")
    for start in (0, 3000):
        judge.insert_by(
            "INSERT INTO main.t SELECT i, (i * 7919) % 6007 "
            f"FROM range({start}, {start + 3000}) r(i)",
            "main.t",
            [(i, (i * 7919) % 6007) for i in range(start, start + 3000)],
        )
    judge.upkeep(MERGE)
    (merged,) = live_files(judge.catalog(), "t")
    path = Path(judge.lake.data_path) / "main" / "t" / merged["path"]
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        values = file.read(columns=["v"]).column("v").to_pylist()
    assert values == sorted(values, reverse=True)
    assert max(group.num_rows for group in groups) <= 2048
    assert {group.column(0).compression for group in groups} == {"ZSTD"}


def test_only_the_partition_asked_for(files_only: Judge) -> None:
    """A partition filter restricts the merge to matching files."""
    judge = files_only
    judge.create_table("main.t", {"id": "INTEGER", "region": "VARCHAR"})
    judge.alter("main.t", "SET PARTITIONED BY (region)")
    for number in range(3):
        judge.insert_values("main.t", (number, "eu"), (number + 10, "us"))
    (table,) = judge.upkeep(MERGE, "main.t", partition="region=eu").tables
    assert (table.files_in, table.files_out, table.files_after) == (3, 1, 4)
