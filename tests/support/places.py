"""Where a SQLite catalog may live that is fetched and put back: a bucket, or a directory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.remote_catalog import Checkout, checked_out
from airflow_provider_ducklake.lake.tables import create_table
from airflow_provider_ducklake.storage import StorageOptions, Store, open_store
from tests.support.reference import ReferenceClient
from tests.support.s3 import S3Server, options_for


@dataclass(frozen=True, slots=True)
class Place:
    """A catalog that is to live in a bucket, or in a directory that stands for one.

    Attributes:
        url: The object.
        options: How it is reached.
        local: Scratch directory: copies, and the lake's data.
    """

    url: str
    options: StorageOptions
    local: Path

    @property
    def store(self) -> Store:
        """The storage the catalog is on."""
        return open_store(self.url, self.options)

    @property
    def data_path(self) -> str:
        """Where the lake's files are."""
        return f"{self.local}/data/"

    def out(self, **options: Any) -> AbstractContextManager[Checkout]:
        """Check the catalog out, without waiting for a lease unless the test is about that."""
        options = {"lease_seconds": 0, "directory": str(self.copies), **options}
        return checked_out(self.url, self.options, data_path=self.data_path, **options)

    def run(self, work: Callable[[Checkout], object], **options: Any) -> None:
        """Do something to the catalog while it is checked out."""
        with self.out(**options) as checkout:
            work(checkout)

    @property
    def copies(self) -> Path:
        """Where copies of the catalog are kept."""
        path = self.local / "copies"
        path.mkdir(exist_ok=True)
        return path

    def begin(self) -> None:
        """Put a lake with one table there."""
        with self.out() as checkout:
            Lake.create(checkout.location, storage=self.options)
            add(checkout, "first")

    def tables(self, path: Path | None = None) -> list[str]:
        """Return the tables of a catalog, as `client` opens it."""
        with closing(self.client(path)) as client:
            return sorted(name.removeprefix("main.") for name in client.tables())

    def client(self, path: Path | None = None) -> ReferenceClient:
        """Return a stock client of a local catalog, by default of what is in the bucket now."""
        if path is None:
            path = Path(tempfile.mkdtemp(dir=self.local), "downloaded.sqlite")
            path.write_bytes(self.store.read(self.url))
        return ReferenceClient(f"ducklake:sqlite:{path}")

    def objects(self) -> list[str]:
        """Return the names of all objects beside the catalog."""
        return [info.location.name for info in self.store.list(self.url.rpartition("/")[0])]


def add(checkout: Checkout, table: str) -> None:
    """Commit a table to a copy."""
    create_table(Lake.open(checkout.location), table, parse_columns("id int64"))


@pytest.fixture
def local(scratch_directory: Path) -> Iterator[Path]:
    """A scratch directory where small commits wait for no disk."""
    with tempfile.TemporaryDirectory(dir=scratch_directory) as directory:
        yield Path(directory)


@pytest.fixture(params=["s3", "file"])
def place(request: pytest.FixtureRequest, local: Path) -> Place:
    """An empty place on S3 and in a directory."""
    if request.param == "file":
        return Place(f"file://{local}/bucket/lake/catalog.sqlite", StorageOptions(), local)
    server: S3Server = request.getfixturevalue("s3_server")
    return Place(f"{server.url}/lake/catalog.sqlite", options_for(server), local)
