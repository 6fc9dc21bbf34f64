"""The demo's judgement: a lake that is right passes, and every kind of wrong is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

from scripts.demo_support.catalogs import LakePlace, lake_places
from scripts.demo_support.check import judge
from scripts.demo_support.fingerprint import fingerprint
from scripts.demo_support.reference import ReferenceLake
from scripts.demo_support.truth import Truth
from tests.support.reference import ReferenceClient

FLIGHTS = """
SELECT 'EWR' AS origin, 'UA' AS carrier, month, day, hour,
       if(hour = 6, NULL, hour * 100) AS dep_time
FROM range(1, 4) m(month), range(7, 10) d(day), range(5, 8) h(hour)
"""


@dataclass(frozen=True, slots=True)
class Demo:
    """A small source, the truth about it, and a lake that is loaded by the stock extension."""

    source: duckdb.DuckDBPyConnection
    truth: Truth
    place: LakePlace
    client: ReferenceClient

    def do(self, statement: str, step: str = "") -> None:
        """Run a statement on the lake, and tell the truth about it if it is a step."""
        self.client.sql(statement)
        if step:
            self.truth.record(step, self.client.snapshot_ids()[-1])
        self.client.release()

    def faults(self, kept: int) -> tuple[str, ...]:
        """Return what the judgement finds."""
        return judge(self.place, self.truth, kept=kept).faults


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    """A lake with one dimension table and the first quarter of flights."""
    with lake_places("sqlite", tmp_path / "lakes") as places, duckdb.connect() as source:
        source.execute(f"CREATE TABLE flights AS {FLIGHTS}")
        source.execute("CREATE TABLE airlines AS VALUES ('UA', 'United'), ('B6', 'JetBlue')")
        source.execute("ALTER TABLE airlines RENAME col0 TO carrier")
        place = places["EWR"]
        client = ReferenceClient(place.attach_string, data_path=place.data_path)
        made = Demo(source, Truth(source, "EWR"), place, client)
        made.do("CREATE TABLE airlines AS SELECT 'UA' AS carrier, 'United' AS col1")
        made.truth.record("dimensions.airlines", client.snapshot_ids()[-1])
        made.do(f"CREATE TABLE flights AS {FLIGHTS}", "flights.Q1")
        yield made
        client.close()


def test_what_is_right_passes(demo: Demo) -> None:
    """Every snapshot is compared with the state of its time, corrections included."""
    demo.do("DELETE FROM flights WHERE month = 2 AND day IN (8, 9)", "correction")
    for hour in (5, 6, 7):
        rows = f"({FLIGHTS}) WHERE month = 2 AND day IN (8, 9) AND dep_time IS NOT NULL"
        demo.do(f"INSERT INTO flights FROM {rows} AND hour = {hour}", f"trickle.{hour}")
    verdict = judge(demo.place, demo.truth, kept=len(demo.client.snapshot_ids()))
    assert verdict.faults == ()
    assert verdict.right
    assert verdict.tables == 2 * verdict.snapshots - 3


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        (
            "DELETE FROM flights WHERE month = 1 AND day = 7 AND hour = 5",
            "26 rows, where it should",
        ),
        ("UPDATE flights SET day = day + 1 WHERE month = 1", "but not the right ones"),
        ("ALTER TABLE flights RENAME hour TO hours", "but not the right ones"),
        ("DROP TABLE airlines", "table airlines: it is not there"),
        ("CREATE TABLE more AS SELECT 1 AS one", "table more: 1 rows, where it should be 0"),
    ],
)
def test_what_is_wrong_is_found(demo: Demo, statement: str, fault: str) -> None:
    """Rows lost, changed or added, columns and tables gone: each is named with its snapshot."""
    demo.do(statement)
    ids = demo.client.snapshot_ids()
    (found,) = demo.faults(len(ids))
    assert found.startswith(f"snapshot {ids[-1]}, ")
    assert fault in found


def test_a_missing_snapshot_is_found(demo: Demo) -> None:
    """As many snapshots must be kept as the retention says."""
    kept = len(demo.client.snapshot_ids())
    assert demo.faults(kept) == ()
    assert demo.faults(kept + 1) == (f"{kept} snapshots are kept, where it should be {kept + 1}",)


def test_figures_are_those_of_the_lake(demo: Demo) -> None:
    """Files in the catalog and on disk, bytes and rows."""
    Path(demo.place.data_path, "main", "flights", "stray.parquet").write_bytes(b"12345")
    measure = ReferenceLake(demo.place).measure()
    assert (measure.snapshot, measure.snapshots) == (2, 3)
    assert measure.rows == 28
    assert measure.stored == measure.live + 1
    assert measure.size > 5


def test_fingerprints_ignore_order_and_width_of_integers() -> None:
    """Equal rows have equal fingerprints, whatever wrote them."""
    with duckdb.connect() as session:
        rows = (
            "(VALUES (1, 'a', TIMESTAMPTZ '2026-01-01 00:00:00+00'), (2, NULL, NULL)) t(i, s, ts)"
        )
        other = "(SELECT ts, s, i::TINYINT AS i FROM " + rows + " ORDER BY i DESC)"
        assert fingerprint(session, rows) == fingerprint(session, other)
        assert fingerprint(session, rows) != fingerprint(session, f"(FROM {rows} LIMIT 1)")
