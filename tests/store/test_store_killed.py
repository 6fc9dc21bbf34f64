"""Whoever administers a store is killed around COMMIT and tries again: all is done, once."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any, Final

import pytest

from airflow_provider_ducklake.lake import fault_points
from airflow_provider_ducklake.lake.errors import ConfigurationError, LakeError, NotFound
from airflow_provider_ducklake.lake.fault_points import FaultPoint, Fuse
from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.support.killed import PROCESSES


@dataclass(frozen=True, slots=True)
class _Step:
    """A call on the store.

    Attributes:
        method: Its name.
        again: What a second call says when the first had committed; None returns the same.
        catalogs: Names of the catalogs afterwards.
    """

    method: str
    arguments: tuple[str, ...]
    options: dict[str, Any]
    catalogs: frozenset[str]
    again: tuple[type[LakeError], str] | None = None

    def run(self, conninfo: str) -> object:
        return getattr(CatalogStore(conninfo), self.method)(*self.arguments, **self.options)


_MAY: Final = {"if_not_exists": True}
STEPS: Final = (
    _Step("create_catalog", ("killed_a",), _MAY, frozenset({"killed_a"})),
    _Step(
        "create_catalog",
        ("killed_b",),
        {},
        frozenset({"killed_a", "killed_b"}),
        (ConfigurationError, "exists already"),
    ),
    _Step(
        "fork_catalog",
        ("killed_a", "killed_f"),
        _MAY,
        frozenset({"killed_a", "killed_b", "killed_f"}),
    ),
    _Step(
        "rename_catalog",
        ("killed_b", "killed_c"),
        {},
        frozenset({"killed_a", "killed_c", "killed_f"}),
        (NotFound, "killed_b"),
    ),
    _Step(
        "drop_catalog",
        ("killed_c",),
        {"if_exists": True},
        frozenset({"killed_a", "killed_f"}),
    ),
    _Step("drop_catalog", ("killed_f",), {}, frozenset({"killed_a"}), (NotFound, "killed_f")),
    _Step("drop_catalog", ("killed_a",), {}, frozenset(), (NotFound, "killed_a")),
)


def _run_armed(step: _Step, conninfo: str, fuse: str) -> None:
    fault_points.on_reach = Fuse(fuse)
    step.run(conninfo)


def _kill(step: _Step, conninfo: str, point: FaultPoint) -> None:
    process = PROCESSES.Process(target=_run_armed, args=(step, conninfo, point.value))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def test_killed_around_commit_and_run_again(shared_store: str) -> None:
    """Before COMMIT nothing is done; after it everything, and a retry ends there or says so."""
    store = CatalogStore(shared_store)

    def names() -> frozenset[str]:
        return frozenset(entry.name for entry in store.list_catalogs("killed\\_%"))

    before = names()
    for step in STEPS:
        _kill(step, shared_store, FaultPoint.UNCOMMITTED)
        assert names() == before, step
        _kill(step, shared_store, FaultPoint.COMMITTED)
        assert names() == step.catalogs, step
        _again(step, shared_store)
        assert names() == step.catalogs, step
        before = step.catalogs


def _again(step: _Step, conninfo: str) -> None:
    if step.again is None:
        step.run(conninfo)
        return
    kind, words = step.again
    with pytest.raises(kind, match=words):
        step.run(conninfo)


def test_purge_killed_and_run_again(shared_store: str) -> None:
    """What was deleted and not yet forgotten is forgotten by the next run."""
    store = CatalogStore(shared_store)
    entry = store.create_catalog("killed_p")
    store.drop_catalog("killed_p")
    purge = _Step("purge", (), {"older_than": "0 days", "force": True}, frozenset())
    _kill(purge, shared_store, FaultPoint.UNCOMMITTED)
    _kill(purge, shared_store, FaultPoint.COMMITTED)
    purge.run(shared_store)
    assert store.create_catalog("killed_p").root == entry.root
    store.drop_catalog("killed_p")
