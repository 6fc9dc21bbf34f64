"""Looking, batch after batch, whether scheduled files came into use again."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ducklake.lake.cleanup import CleanupPlan, Watch, plan_cleanup
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.database.sqlite import SqliteSession
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.location import CatalogLocation
from airflow_provider_ducklake.lake.tables import create_table

_LONG_AGO = "2020-01-01 00:00:00+00"


def _add_file(session: Session, file_id: int, name: str, begin: int = 1) -> None:
    row = [file_id, 1, begin, None, None, name, True, "parquet", 1, 9, 9, 0, None, None, None, None]
    session.insert("ducklake_data_file", [row])


def _set_next(session: Session, file_id: int) -> None:
    session.execute("UPDATE {ducklake_snapshot} SET next_file_id = ?", (file_id,))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake of 3,000 data files, and six others that are scheduled for deletion."""
    location = CatalogLocation.parse(
        f"ducklake:sqlite:{tmp_path}/catalog.sqlite", data_path=f"{tmp_path}/data/"
    )
    made = Lake.create(location)
    create_table(made, "t", parse_columns("id int64"))
    with made.database.write() as session:
        for number in range(10, 3010):
            _add_file(session, number, f"{number}.parquet")
        scheduled = [(n, f"main/t/gone-{n}.parquet", True, _LONG_AGO) for n in range(6)]
        session.insert("ducklake_files_scheduled_for_deletion", scheduled)
        _set_next(session, 3010)
    return made


def _plan(lake: Lake) -> CleanupPlan:
    with lake.view() as view:
        return plan_cleanup(view, datetime.now(timezone.utc))


def test_what_comes_into_use_meanwhile_stays(lake: Lake) -> None:
    """Whichever look sees it, and in whichever spelling of its path."""
    plan = _plan(lake)
    assert [file.file_id for file in plan.delete] == list(range(6))
    watch, unused = Watch(lake, plan), []
    for number, batch in enumerate((plan.delete[:2], plan.delete[2:4], plan.delete[4:])):
        with lake.database.write() as session:
            if number == 0:
                _add_file(session, 3010, "gone-1.parquet")
                _add_file(session, 3011, "x/../gone-2.parquet")
                _add_file(session, -7, "gone-5.parquet")  # as a store keeps a row for a fork
                _set_next(session, 3012)
            if number == 1:
                # As a writer does who takes the greatest id there is for the last given out.
                _add_file(session, 9, "gone-4.parquet", begin=2)
                _set_next(session, 3013)
        unused += [file.file_id for file in watch.still_unused(batch)]
    assert unused == [0, 3]


def test_a_catalog_that_is_put_back_is_read_as_a_whole(lake: Lake) -> None:
    watch = Watch(lake, plan := _plan(lake))
    with lake.database.write() as session:
        session.execute("DELETE FROM {ducklake_data_file} WHERE data_file_id > 2000")
        _add_file(session, 2001, "gone-1.parquet")
        _set_next(session, 2002)
    assert [file.file_id for file in watch.still_unused(plan.delete)] == [0, 2, 3, 4, 5]


def test_all_looks_together_read_the_catalog_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    stream = SqliteSession._stream

    def counting(session: SqliteSession, *given: Any) -> Any:
        nonlocal read
        for row in stream(session, *given):
            read += 1
            yield row

    monkeypatch.setattr(SqliteSession, "_stream", counting)
    plan = _plan(lake)
    watch = Watch(lake, plan)
    for file in plan.delete:
        assert watch.still_unused([file]) == [file]
    assert read == 3000
