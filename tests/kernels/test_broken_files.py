"""Damaged Parquet files are refused, or carried over as they read; none crashes or hangs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.errors import LakeError
from tests.kernels.broken_files import (
    COLUMNS,
    Child,
    Damage,
    damaged,
    damages,
    sound_files,
)
from tests.kernels.data_files import Directory, numbers
from tests.support.corpus import CORPUS, FILES, needs_corpus

NAMES: Final = (
    *("duckdb snappy", "duckdb zstd", "duckdb uncompressed"),
    *("pyarrow dictionaries", "pyarrow plain", "pyarrow pages"),
)


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """One for all of the module."""
    child = Child(tmp_path_factory.mktemp("broken"))
    yield child
    child.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Sound files."""
    found = sound_files(tmp_path_factory.mktemp("sound"))
    return {name: path.read_bytes() for name, path in found.items()}


@pytest.mark.parametrize("name", NAMES)
def test_sound_files_are_carried_over(child: Child, files: dict[str, bytes], name: str) -> None:
    assert child.try_bytes(files[name], COLUMNS) == "written"


@given(name=st.sampled_from(NAMES), changes=damages)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files(
    child: Child, files: dict[str, bytes], name: str, changes: list[Damage]
) -> None:
    """At any place, most of all in the footer: sizes, counts and offsets that lie."""
    child.try_bytes(damaged(files[name], changes), COLUMNS)


@needs_corpus
@given(name=st.sampled_from(FILES or [""]), changes=damages)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_of_others(child: Child, name: str, changes: list[Damage]) -> None:
    """Writers, encodings and types of all kinds; a file that is odd by itself may be refused."""
    data = (CORPUS / name).read_bytes()
    child.try_bytes(damaged(data, changes), child.columns_of(CORPUS / name))


@needs_corpus
def test_a_geometry_that_is_none(child: Child) -> None:
    """Found by the above: only the writer, which wants its bounding box, looks inside."""
    path = CORPUS / "data" / "geospatial" / "geospatial-with-nan.parquet"
    damage = Damage("zero", 0.375, in_footer=False, amount=19)
    outcome = child.try_bytes(damage.apply(path.read_bytes()), child.columns_of(path))
    assert outcome == "unreadable"


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
