"""The deletes a restore writes for one data file: which rows come and go, and since when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from airflow_provider_ducklake.kernels.connection import KernelSettings, open_connection
from airflow_provider_ducklake.kernels.deletes import read_delete_file, write_delete_file
from airflow_provider_ducklake.kernels.restore import restore_file
from airflow_provider_ducklake.kernels.tasks import RestoreTask
from airflow_provider_ducklake.lake.errors import LakeError, StorageError
from airflow_provider_ducklake.lake.model import DataFile, DeleteFile, WrittenDeleteFile
from airflow_provider_ducklake.storage import StorageOptions

SETTINGS = KernelSettings(StorageOptions({}))


@pytest.fixture
def data_file(tmp_path: Path) -> DataFile:
    """A data file of six rows that says nothing of snapshots."""
    path = tmp_path / "data.parquet"
    with duckdb.connect(":memory:") as connection:
        connection.execute(
            f"COPY (SELECT range AS id FROM range(6)) TO '{path}' (FIELD_IDS {{id: 1}})"
        )
    return DataFile(1, 1, str(path), 6, path.stat().st_size, None, 2, row_id_start=0)


def _deletes(data_file: DataFile, *deletes: tuple[int, int]) -> DataFile:
    """Return the file with a delete file of (position, snapshot)."""
    directory = str(Path(data_file.path).parent)
    with open_connection(SETTINGS) as connection:
        written = write_delete_file(connection, data_file.path, deletes, directory, SETTINGS, False)
    assert written.first_snapshot is not None
    count, first, last = written.delete_count, written.first_snapshot, written.last_snapshot
    file = DeleteFile(9, 1, written.path, "parquet", count, first, partial_max=last)
    return replace(data_file, delete_files=(file,))


def _content(written: WrittenDeleteFile | None) -> tuple[list[int], list[int] | None]:
    assert written is not None
    file = DeleteFile(1, 1, written.path, "parquet", written.delete_count, 0)
    with open_connection(SETTINGS) as connection:
        positions, snapshots = read_delete_file(connection, file, SETTINGS)
    assert len(positions) == written.delete_count
    return positions.to_pylist(), None if snapshots is None else snapshots.to_pylist()


def _task(then: DataFile, last: DataFile, **changes: object) -> RestoreTask:
    task = RestoreTask(then, last, 5, (), None, False, f"{Path(then.path).parent}/out/")
    return replace(task, **changes)  # type: ignore[arg-type]


def test_deletes_since_are_undone(data_file: DataFile) -> None:
    """Only what was deleted at the snapshot is deleted again, from a snapshot nobody knows yet."""
    file = _deletes(data_file, (0, 3), (4, 7), (5, 8))
    found = restore_file(_task(file, file), SETTINGS)
    assert (found.back, found.gone, found.history) == (2, 0, None)
    assert _content(found.now) == ([0], None)


def test_inlined_deletes_move_into_a_file(data_file: DataFile) -> None:
    """They keep their snapshots, beside those of the delete file they join."""
    last = replace(_deletes(data_file, (0, 3)), inlined_deletes=(2, 3))
    then = replace(last, inlined_deletes=(2,))
    task = _task(then, last, inlined=((2, 4), (3, 6)), rewrite_history=True)
    found = restore_file(task, SETTINGS)
    assert (found.back, found.gone) == (1, 0)
    assert _content(found.now) == ([0, 2], None)
    assert _content(found.history) == ([0, 2, 3], [3, 4, 6])


def test_a_file_that_was_out_is_hidden(data_file: DataFile) -> None:
    """Every row is deleted since the file went, those deleted before since then."""
    then = _deletes(data_file, (1, 3))
    last = replace(then, end_snapshot=8)
    found = restore_file(_task(then, last, hidden_since=8, rewrite_history=True), SETTINGS)
    assert (found.back, found.gone) == (5, 0)
    assert _content(found.now) == ([1], None)
    assert _content(found.history) == ([0, 1, 2, 3, 4, 5], [8, 3, 8, 8, 8, 8])
    assert found.history is not None
    assert (found.history.first_snapshot, found.history.last_snapshot) == (3, 8)


def test_nothing_is_written_for_nothing(data_file: DataFile) -> None:
    """Equal deletes, and a dry run, leave no file."""
    file = _deletes(data_file, (0, 3))
    assert restore_file(_task(file, file), SETTINGS).paths == []
    later = _deletes(data_file, (0, 3), (1, 9))
    counted = restore_file(_task(later, later, directory=None), SETTINGS)
    assert (counted.back, counted.paths) == (1, [])
    assert not (Path(data_file.path).parent / "out").exists()


def test_rows_of_unknown_snapshots(data_file: DataFile) -> None:
    """A file that should say which snapshot its rows are of, and does not, is an error."""
    file = replace(data_file, partial_max=9)
    with pytest.raises(LakeError, match="does not say which"):
        restore_file(_task(file, file), SETTINGS)


def test_an_unreadable_delete_file(data_file: DataFile, tmp_path: Path) -> None:
    """A delete file that cannot be read leaves nothing behind."""
    then = _deletes(data_file, (1, 3))
    lost = replace(then.delete_files[0], path=str(tmp_path / "lost.parquet"))
    last = replace(then, end_snapshot=8, delete_files=(lost,))
    with pytest.raises((StorageError, LakeError)):
        restore_file(_task(then, last, hidden_since=8, rewrite_history=True), SETTINGS)
    out = tmp_path / "out"
    assert not out.exists() or not list(out.iterdir())
