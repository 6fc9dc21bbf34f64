"""The committer: ids, conflicts, retries, idempotency, unknown outcomes; on every database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from airflow_provider_ducklake.lake.changes import table_change
from airflow_provider_ducklake.lake.columns import parse_columns
from airflow_provider_ducklake.lake.commit import CommitInfo, SnapshotWriter
from airflow_provider_ducklake.lake.database import Database, Session
from airflow_provider_ducklake.lake.database.base import Row, Value
from airflow_provider_ducklake.lake.errors import (
    CatalogUnavailable,
    CommitConflict,
    CommitStateUnknown,
    ConfigurationError,
    UnsupportedCatalog,
)
from airflow_provider_ducklake.lake.lake import Lake
from airflow_provider_ducklake.lake.schemas import create_schema
from airflow_provider_ducklake.lake.tables import create_table, drop_table
from tests.support.lakes import LakeUnderTest, catalog_fingerprint


def nothing(writer: SnapshotWriter) -> None:
    """Write no rows."""


def test_a_new_lake_is_one_the_reference_reads(
    new_lake: Lake, lake_under_test: LakeUnderTest
) -> None:
    create_table(new_lake, "t", parse_columns("id int64, tags varchar[]"))
    client = lake_under_test.client()
    client.sql("INSERT INTO t VALUES (1, ['a'])")
    assert client.sql("SELECT * FROM t") == [(1, ("a",))]
    client.close()
    assert [s.snapshot_id for s in new_lake.snapshots()] == [0, 1, 2]


def test_a_snapshot_says_who_made_it(new_lake: Lake) -> None:
    info = CommitInfo("ann", "why", {"dag_id": "d"}, key="k1")
    commit = new_lake.commit(base=0, changes=[], write=nothing, info=info)
    made = new_lake.snapshots()[-1]
    assert made.snapshot_id == commit.snapshot_id
    assert (made.author, made.message) == ("ann", "why")
    assert '"dag_id": "d"' in (made.extra_info or "")
    found = new_lake.find_job("k1")
    assert found is not None
    assert found.snapshot_id == commit.snapshot_id


@pytest.mark.parametrize("key", ["dag/run 1%/t_[2]", "'; drop", 'quo"te', "a_b"])
def test_the_same_work_is_committed_once(new_lake: Lake, key: str) -> None:
    runs = []

    def write(writer: SnapshotWriter) -> str:
        runs.append(writer.snapshot_id)
        writer.result = {"rows": 3}
        return "written"

    first = new_lake.commit(base=0, changes=[], write=write, info=CommitInfo(key=key))
    again = new_lake.commit(base=0, changes=[], write=write, info=CommitInfo(key=key))
    assert (first.value, first.already_done) == ("written", False)
    assert (again.value, again.already_done, again.result) == (None, True, {"rows": 3})
    assert again.snapshot_id == first.snapshot_id
    assert runs == [1]


def test_a_key_that_only_looks_alike_is_another(new_lake: Lake) -> None:
    new_lake.commit(base=0, changes=[], write=nothing, info=CommitInfo(key="a_b"))
    assert new_lake.find_job("aXb") is None


def test_a_conflict_leaves_nothing_behind(new_lake: Lake, lake_under_test: LakeUnderTest) -> None:
    created = create_table(new_lake, "t", parse_columns("id int64"))
    assert created is not None
    assert created.value is not None
    base = new_lake.head().snapshot_id
    drop_table(new_lake, "t")
    before = catalog_fingerprint(lake_under_test)
    with pytest.raises(CommitConflict, match="dropped_table"):
        new_lake.commit(
            base=base,
            changes=[table_change("inserted_into_table", created.value)],
            write=nothing,
        )
    assert catalog_fingerprint(lake_under_test) == before


def test_an_error_while_writing_leaves_nothing_behind(
    new_lake: Lake, lake_under_test: LakeUnderTest
) -> None:
    before = catalog_fingerprint(lake_under_test)

    def write(writer: SnapshotWriter) -> None:
        writer.session.insert("ducklake_table_stats", [(1, 2, 3, 4)])
        raise ConfigurationError("no")

    with pytest.raises(ConfigurationError):
        new_lake.commit(base=0, changes=[], write=write)
    assert catalog_fingerprint(lake_under_test) == before


def test_history_that_was_expired_is_not_trusted(new_lake: Lake) -> None:
    for _ in range(3):
        new_lake.commit(base=0, changes=[], write=nothing)
    with new_lake.database.write() as session:
        for table in ("ducklake_snapshot", "ducklake_snapshot_changes"):
            session.execute(f"DELETE FROM {{{table}}} WHERE snapshot_id = 2")
    with pytest.raises(CommitConflict, match="expired meanwhile"):
        new_lake.commit(base=1, changes=[], write=nothing)
    assert new_lake.commit(base=3, changes=[], write=nothing).snapshot_id == 4


def test_ids_in_use_are_passed_over(new_lake: Lake) -> None:
    """FL-03: a foreign writer left counters that point at ids already taken."""
    head = new_lake.head()
    file, schema = head.next_file_id, head.next_catalog_id
    with new_lake.database.write() as session:
        row = (file + 7, 1, 0, None, None, "x.parquet", True, "parquet", 1, 1, 1, 0, *[None] * 4)
        session.insert("ducklake_data_file", [row])
        session.insert("ducklake_column_mapping", [(file + 9, 1, "map_by_name")])
        session.insert("ducklake_schema", [(schema + 4, _UUID, 0, None, "s", "s/", True)])
    ids = []

    def write(writer: SnapshotWriter) -> None:
        ids.extend([writer.new_file_id(), writer.new_file_id(), writer.new_catalog_id()])

    commit = new_lake.commit(base=0, changes=[], write=write)
    assert ids == [file + 10, file + 11, schema + 5]
    assert commit.snapshot_id == new_lake.head().snapshot_id
    assert new_lake.head().next_file_id == file + 12
    assert new_lake.head().next_catalog_id == schema + 6


_UUID = "550e8400-e29b-41d4-a716-446655440000"


def test_a_commit_message_can_be_required(new_lake: Lake) -> None:
    with new_lake.database.write() as session:
        session.insert("ducklake_metadata", [("require_commit_message", "true", None, None)])
    with pytest.raises(ConfigurationError, match="commit message"):
        new_lake.commit(base=0, changes=[], write=nothing)
    new_lake.commit(base=0, changes=[], write=nothing, info=CommitInfo(message="because"))


@pytest.mark.parametrize("versions", [["0.3"], ["1.1"], ["2.0"], [], ["1.0", "1.0"]])
def test_another_format_version_is_left_alone(
    new_lake: Lake, lake_under_test: LakeUnderTest, versions: list[str]
) -> None:
    """CT-01."""
    if lake_under_test.kind == "store" and len(versions) > 1:
        pytest.skip("a store keeps one row for each option")
    with new_lake.database.write() as session:
        session.execute("DELETE FROM {ducklake_metadata} WHERE \"key\" = 'version'")
        session.insert("ducklake_metadata", [("version", v, None, None) for v in versions])
    before = catalog_fingerprint(lake_under_test)
    with pytest.raises(UnsupportedCatalog, match="never migrates"):
        new_lake.check()
    with pytest.raises(UnsupportedCatalog, match="never migrates"):
        new_lake.commit(base=0, changes=[], write=nothing)
    assert catalog_fingerprint(lake_under_test) == before


def test_many_writers_at_once_all_commit(new_lake: Lake) -> None:
    """CC-04: ten threads, three commits each, no id given twice, none lost."""

    def commits(number: int) -> list[int]:
        info = CommitInfo(key=f"writer {number}")
        made = []
        for turn in range(3):
            own = CommitInfo(key=f"{info.key} turn {turn}")
            base = new_lake.head().snapshot_id
            made.append(new_lake.commit(base=base, changes=[], write=nothing, info=own).snapshot_id)
        return made

    with ThreadPoolExecutor(10) as pool:
        made = [i for ids in pool.map(commits, range(10)) for i in ids]
    assert sorted(made) == list(range(1, 31))
    times = [snapshot.time for snapshot in new_lake.snapshots()]
    assert times == sorted(times)


class _Unsteady:
    """A database whose first COMMIT loses its answer, before or after it happened."""

    def __init__(self, database: Database, happened: bool) -> None:
        self._database = database
        self._happened = happened
        self._failed = False

    def read(self) -> object:
        return self._database.read()

    def create(self) -> object:
        return self._database.create()

    @contextmanager
    def write(self) -> Iterator[Session]:
        if self._failed:
            with self._database.write() as session:
                yield session
            return
        self._failed = True
        if self._happened:
            with self._database.write() as session:
                yield session
            raise CommitStateUnknown("the line went dead")
        try:
            with self._database.write() as session:
                yield session
                raise CommitStateUnknown("the line went dead")
        finally:
            pass


@pytest.mark.parametrize("happened", [True, False])
def test_an_unanswered_commit_is_looked_up(new_lake: Lake, happened: bool) -> None:
    """What is found is this very commit, not one of an earlier try whose files are others."""
    unsteady = Lake(new_lake.location, _Unsteady(new_lake.database, happened), new_lake.storage)  # type: ignore[arg-type]
    commit = unsteady.commit(base=0, changes=[], write=lambda writer: "written")
    assert (commit.value, commit.already_done, commit.snapshot_id) == ("written", False, 1)
    assert [s.snapshot_id for s in new_lake.snapshots()] == [0, 1]


class _Beaten:
    """A database in which another try of the same job commits right after the key is looked for."""

    def __init__(self, database: Database, act: Callable[[], object]) -> None:
        self._database = database
        self._act: Callable[[], object] | None = act

    def read(self) -> object:
        return self._database.read()

    @contextmanager
    def write(self) -> Iterator[Session]:
        with self._database.write() as session:
            look = session.rows

            def beaten(query: str, parameters: Sequence[Value] = (), **tables: str) -> list[Row]:
                found = look(query, parameters, **tables)
                if "LIKE" in query and self._act is not None:
                    act, self._act = self._act, None
                    act()
                return found

            session.rows = beaten  # type: ignore[method-assign]
            yield session


# In the file databases nobody else can commit while a write transaction is open.
@pytest.mark.parametrize("lake_factory", ["postgres", "store"], indirect=True)
def test_two_tries_of_one_job_at_once_commit_once(new_lake: Lake) -> None:
    """IN-02: a job that was given up for dead and runs on beats its own retry by a hair."""
    info = CommitInfo(key="run-1")

    def other() -> None:
        new_lake.commit(base=0, changes=[], write=nothing, info=info)

    beaten = Lake(new_lake.location, _Beaten(new_lake.database, other), new_lake.storage)  # type: ignore[arg-type]
    commit = beaten.commit(base=0, changes=[], write=lambda writer: "written", info=info)
    assert (commit.value, commit.already_done, commit.snapshot_id) == (None, True, 1)
    assert [s.snapshot_id for s in new_lake.snapshots()] == [0, 1]


class _Lost:
    """A database that goes away for good during its first COMMIT."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_lost = False

    def read(self) -> object:
        return self._database.read()

    @contextmanager
    def write(self) -> Iterator[Session]:
        if self._is_lost:
            raise CatalogUnavailable("nobody answers")
        self._is_lost = True
        with self._database.write() as session:
            yield session
            raise CommitStateUnknown("the line went dead")


@pytest.mark.parametrize("lake_factory", ["sqlite"], indirect=True)
def test_an_outcome_nobody_can_tell_stays_unknown(new_lake: Lake) -> None:
    """Other errors make callers delete their files, which may be in use by then."""
    lost = Lake(new_lake.location, _Lost(new_lake.database), new_lake.storage)  # type: ignore[arg-type]
    with pytest.raises(CommitStateUnknown, match="look for key run-1"):
        lost.commit(base=0, changes=[], write=nothing, info=CommitInfo(key="run-1"))


def test_creating_twice_is_refused(new_lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match="already"):
        Lake.create(new_lake.location)
    Lake.create(new_lake.location, if_not_exists=True)
    create_schema(new_lake, "s")
    with pytest.raises(ConfigurationError, match="exists already"):
        create_schema(new_lake, "S")
    create_table(new_lake, "s.t", parse_columns("a int32"))
    with pytest.raises(ConfigurationError, match="exists already"):
        create_table(new_lake, "S.T", parse_columns("a int32"))
    assert create_table(new_lake, "s.t", parse_columns("a int32"), if_not_exists=True) is None
