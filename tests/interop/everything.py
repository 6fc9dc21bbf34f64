"""A lake that has something of everything, and words for its ids and paths."""

from __future__ import annotations

from typing import Final

from tests.interop.foreign_files import write_file
from tests.interop.judge import Judge

Words = dict[str, str]
_HEAD: Final = "(SELECT max(snapshot_id) FROM ducklake_snapshot)"


def fill(judge: Judge) -> Words:
    """Fill a lake with files, deletes, inlined rows, partitions, names, drops and an expiry."""
    with judge.without_checks():
        judge.create_table("main.old", {"id": "INTEGER", "v": "VARCHAR"})
        judge.rename_table("main.old", "t")
        judge.insert_values("main.t", *((i, f"v{i:02}") for i in range(50)))
        # Ten rows and fewer stay in the catalog.
        judge.delete("main.t", "id < 12", lambda row: row["id"] < 12)
        judge.delete("main.t", "id < 25", lambda row: row["id"] < 25)
        judge.insert_values("main.t", *((i, None) for i in range(70, 90)))
        judge.alter("main.t", "ADD COLUMN n INTEGER DEFAULT 5", lambda t: t.add_column("n", 5))
        judge.delete("main.t", "id = 73", lambda row: row["id"] == 73)
        judge.insert_values("main.t", (60, "inlined", 1), (61, "inlined", 2))
        judge.delete("main.t", "id = 60", lambda row: row["id"] == 60)
        judge.create_table("main.p", {"id": "INTEGER", "k": "VARCHAR"})
        judge.alter("main.p", "SET PARTITIONED BY (k)")
        judge.insert_values("main.p", *((i, "abc"[i % 3]) for i in range(30)))
        judge.create_table("main.m", {"id": "INTEGER"})
        source = write_file(judge, "foreign.parquet", {"id": "INTEGER"}, [(i,) for i in range(9)])
        judge.add_files("main.m", [source], [(i,) for i in range(9)])
        judge.create_table("main.gone", {"id": "INTEGER"})
        judge.insert_values("main.gone", (1,))
        judge.drop_table("main.gone")
        judge.create_table("main.empty", {"id": "INTEGER"})
    kept = judge.model.kept
    judge.expire([kept[1], kept[2]], versions=f"{kept[1]},{kept[2]}")
    # Room for ids that damage makes up.
    judge.change_catalog(
        f"UPDATE ducklake_snapshot SET next_file_id = next_file_id + 50 WHERE snapshot_id = {_HEAD}"
    )
    return _words(judge)


def _words(judge: Judge) -> Words:
    rows = judge.catalog()
    ids = {row["table_name"]: row["table_id"] for row in rows["ducklake_table"]}
    head = max(row["next_file_id"] for row in rows["ducklake_snapshot"])
    files = sorted(
        (row for row in rows["ducklake_data_file"] if row["table_id"] == ids["t"]),
        key=lambda row: int(row["data_file_id"]),
    )
    live = [row for row in rows["ducklake_delete_file"] if row["end_snapshot"] is None]
    (listed,) = (
        row["table_name"]
        for row in rows["ducklake_inlined_data_tables"]
        if row["table_id"] == ids["t"] and row["table_name"] in rows and rows[row["table_name"]]
    )
    return {
        "T": str(ids["t"]),
        "P": str(ids["p"]),
        "M": str(ids["m"]),
        "EMPTY": str(ids["empty"]),
        "NOTABLE": str(ids["empty"] + 1000),
        "FILE": str(files[0]["data_file_id"]),
        "FILE_BEGIN": str(files[0]["begin_snapshot"]),
        "FOOTER": str(files[0]["footer_size"]),
        "NEW": str(head - 5),
        "LOST": str(head - 6),
        "DELFILE": str(live[0]["delete_file_id"]),
        "INLINED": listed,
        "VERSION": listed.rpartition("_")[2],
        "GONE_SNAPSHOT": str(judge.model.kept[0] + 1),
        "DIRECTORY": f"{judge.lake.data_path}main/old/",
        "HEAD": str(judge.model.head),
    }
