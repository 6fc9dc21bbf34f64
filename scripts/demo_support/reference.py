"""Lakes as the unmodified `ducklake` extension of DuckDB sees them; no code of ours takes part."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from scripts.demo_support.catalogs import LakePlace
from scripts.demo_support.fingerprint import Fingerprint, fingerprint

_EXTENSIONS = {"sqlite": "sqlite_scanner", "postgres": "postgres_scanner"}


@dataclass(frozen=True, slots=True)
class Measure:
    """A lake in figures.

    Attributes:
        snapshot: Newest snapshot.
        snapshots: How many are kept.
        live: Data files of the newest snapshot.
        stored: Data and delete files that lie in the data path.
        size: Bytes of those.
        rows: Rows of all tables at the newest snapshot.
    """

    snapshot: int
    snapshots: int
    live: int
    stored: int
    size: int
    rows: int


def extension_file(name: str) -> Path:
    """Return the file of a DuckDB extension that was installed as a wheel.

    Raises:
        LookupError: There is none for the installed DuckDB.
    """
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place, "extensions", f"v{duckdb.__version__}", f"{name}.duckdb_extension")
        if path.is_file():
            return path
    package = f"duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__}"
    raise LookupError(f"the reference extension {name} is not installed: pip install {package}")


class ReferenceLake:
    """One lake, attached anew for each question: no lock is held and nothing is cached between."""

    def __init__(self, place: LakePlace) -> None:
        """Load the extension; nothing is opened yet."""
        self._place = place
        self._session = duckdb.connect(":memory:", config={"threads": 2})
        for name in (_EXTENSIONS.get(place.kind), "ducklake"):
            if name:
                self._session.load_extension(str(extension_file(name)))
        self._session.execute("SET TimeZone = 'UTC'")

    def measure(self) -> Measure:
        """Return the lake in figures, now."""
        data = [path for path in Path(self._place.data_path).rglob("*.parquet") if path.is_file()]
        with self._attached() as session:
            ids = [row[0] for row in session.execute("FROM lake.snapshots()").fetchall()]
            tables = session.execute(
                "SELECT table_name, file_count FROM ducklake_table_info('lake')"
            ).fetchall()
            rows = sum(_count(session, str(name)) for name, _ in tables)
        return Measure(
            snapshot=max(ids),
            snapshots=len(ids),
            live=sum(int(files) for _, files in tables),
            stored=len(data),
            size=sum(path.stat().st_size for path in data),
            rows=rows,
        )

    def snapshots(self) -> list[int]:
        """Return the ids of the kept snapshots, oldest first."""
        with self._attached() as session:
            return sorted(
                int(row[0]) for row in session.execute("FROM lake.snapshots()").fetchall()
            )

    def tables_at(self, snapshot_id: int) -> dict[str, Fingerprint]:
        """Return the fingerprint of every table at a kept snapshot."""
        with self._attached(f"SNAPSHOT_VERSION {snapshot_id}") as session:
            names = session.execute(
                "SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake'"
            ).fetchall()
            return {str(name): fingerprint(session, f'lake.main."{name}"') for (name,) in names}

    @contextmanager
    def _attached(self, *options: str) -> Iterator[duckdb.DuckDBPyConnection]:
        statement = f"ATTACH '{self._place.attach_string}' AS lake"
        if self._place.metadata_schema:
            options += (f"METADATA_SCHEMA '{self._place.metadata_schema}'",)
        if options:
            statement += f" ({', '.join(options)})"
        self._session.execute(statement)
        try:
            yield self._session
        finally:
            self._session.execute("DETACH lake")


def _count(session: duckdb.DuckDBPyConnection, table: str) -> int:
    row = session.execute(f'SELECT count(*) FROM lake.main."{table}"').fetchone()
    return int(row[0]) if row else 0
