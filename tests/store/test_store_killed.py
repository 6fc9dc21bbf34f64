"""Whoever administers a store is killed around COMMIT and tries again: all is done, once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from airflow_provider_ducklake.lake.errors import ConfigurationError, LakeError, NotFound
from airflow_provider_ducklake.lake.fault_points import FaultPoint
from airflow_provider_ducklake.lake.store.cli import VERBS
from airflow_provider_ducklake.lake.store.store import CatalogStore
from tests.support.killed import kill_in


@dataclass(frozen=True, slots=True)
class _Step:
    """A call on the store.

    Attributes:
        method: Its name.
        again: What a second call says when the first had committed; None returns the same.
        catalogs: Names of the catalogs afterwards.
    """

    method: str
    arguments: tuple[Any, ...]
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
        "allow",
        ("killed_a", "/killed/elsewhere"),
        {},
        frozenset({"killed_a", "killed_b", "killed_f"}),
    ),
    _Step(
        "grant",
        ("killed_a", "store_service"),
        {},
        frozenset({"killed_a", "killed_b", "killed_f"}),
    ),
    _Step(
        "revoke",
        ("killed_a", "store_service"),
        {},
        frozenset({"killed_a", "killed_b", "killed_f"}),
    ),
    _Step("write_ledger", ((),), {}, frozenset({"killed_a", "killed_b", "killed_f"})),
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


# They change nothing; `transaction` is what the others are made of.
_OTHERS: Final = {"at", "status", "catalog", "list_catalogs", "plan_fleet", "transaction"}
# Of the database, of many transactions, or of more than a store: they have tests of their own.
_APART: Final = {"init", "upgrade", "purge"}
_OF_TWO_CATALOGS: Final = {"import", "export"}  # tests/store/transfer/test_transfers_killed.py


def test_everything_a_store_can_do_has_its_turn() -> None:
    methods = {name for name in vars(CatalogStore) if not name.startswith("_")}
    assert {step.method for step in STEPS} | _OTHERS | _APART == methods
    verbs = {next((m for m in methods if m.split("_")[0] == verb), verb) for verb in VERBS}
    assert verbs - methods == _OF_TWO_CATALOGS


def test_killed_around_commit_and_run_again(shared_store: str) -> None:
    """Before COMMIT nothing is done; after it everything, and a retry ends there or says so."""
    store = CatalogStore(shared_store)

    def names() -> frozenset[str]:
        return frozenset(entry.name for entry in store.list_catalogs("killed\\_%"))

    before = names()
    for step in STEPS:
        kill_in(partial(step.run, shared_store), FaultPoint.UNCOMMITTED)
        assert names() == before, step
        kill_in(partial(step.run, shared_store), FaultPoint.COMMITTED)
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
    kill_in(partial(purge.run, shared_store), FaultPoint.UNCOMMITTED)
    kill_in(partial(purge.run, shared_store), FaultPoint.COMMITTED)
    purge.run(shared_store)
    assert store.create_catalog("killed_p").root == entry.root
    store.drop_catalog("killed_p")


def test_a_store_is_made_or_not(postgres_database: str, tmp_path: Path) -> None:
    store, root = CatalogStore(postgres_database), f"{tmp_path}/lakes/"
    init = _Step("init", (root,), {}, frozenset())
    kill_in(partial(init.run, postgres_database), FaultPoint.UNCOMMITTED)
    with pytest.raises(NotFound, match="no store"):
        store.status()
    kill_in(partial(init.run, postgres_database), FaultPoint.COMMITTED)
    made = store.status()
    upgrade = _Step("upgrade", (), {}, frozenset())
    for point in (FaultPoint.UNCOMMITTED, FaultPoint.COMMITTED):
        kill_in(partial(upgrade.run, postgres_database), point)
    assert store.init(root) == made
    assert store.create_catalog("first").root == f"{root}first/"
