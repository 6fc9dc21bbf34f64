"""Damaged Parquet files are refused, or carried over as they read; none crashes or hangs."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.errors import LakeError
from tests.kernels.broken_files import COLUMNS, IN_PLACE, KINDS, Damage, sound_files, try_file
from tests.kernels.data_files import Directory, numbers

NAMES: Final = (
    *("duckdb snappy", "duckdb zstd", "duckdb uncompressed"),
    *("pyarrow dictionaries", "pyarrow plain", "pyarrow pages"),
)
HANG: Final = 60  # seconds; a file takes a few hundredths of one

damages: Final = st.lists(
    st.builds(
        Damage,
        kind=st.sampled_from((*KINDS, *IN_PLACE, *IN_PLACE)),
        place=st.floats(0, 1),
        in_footer=st.booleans(),
        amount=st.integers(0, 1 << 20),
    ),
    max_size=2,
)


class Child:
    """A process that reads files, for one can end the process that reads it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = sound_files(directory)
        self.outcomes: Counter[str] = Counter()
        self._pool = self._new_pool()

    def try_bytes(self, data: bytes) -> str:
        """Have the process register and rewrite a file of these bytes; return what it came to."""
        with tempfile.TemporaryDirectory(dir=self.directory) as scratch:
            path = f"{scratch}/f.parquet"
            Path(path).write_bytes(data)
            try:
                outcome = self._pool.submit(try_file, path, COLUMNS, scratch).result(HANG)
            except (BrokenProcessPool, TimeoutError):
                self.close()
                self._pool = self._new_pool()
                raise
        self.outcomes[outcome] += 1
        return outcome

    def close(self) -> None:
        """End the process, whatever it does."""
        for process in list((self._pool._processes or {}).values()):
            process.kill()
        self._pool.shutdown(cancel_futures=True)

    @staticmethod
    def _new_pool() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """One for all of the module."""
    child = Child(tmp_path_factory.mktemp("broken"))
    yield child
    child.close()


@pytest.mark.parametrize("name", NAMES)
def test_sound_files_are_carried_over(child: Child, name: str) -> None:
    assert child.try_bytes(child.files[name].read_bytes()) == "written"


@given(name=st.sampled_from(NAMES), changes=damages)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files(child: Child, name: str, changes: list[Damage]) -> None:
    """At any place, most of all in the footer: sizes, counts and offsets that lie."""
    data = child.files[name].read_bytes()
    for change in changes:
        data = change.apply(data)
    child.try_bytes(data)


def test_the_broken_one_of_many_is_named(tmp_path: Path) -> None:
    """DuckDB itself tells of the output that it could not write."""
    directory = Directory(tmp_path)
    sources = [directory.file(numbers(start, 10)) for start in (0, 10, 20)]
    with Path(sources[1].path).open("r+b") as file:
        file.seek(4)
        file.write(b"\xff" * 20)
    with pytest.raises(LakeError) as failure:
        directory.rewrite(*sources)
    message = str(failure.value)
    assert message.startswith(f"cannot read data file ({sources[1].path}): ")
    assert sources[0].path not in message
    assert directory.outputs() == []
