"""How far a watcher has got, kept in the state store of its assets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from airflow_provider_ducklake.lake.errors import CatalogUnavailable

_PREFIX: Final = "ducklake_snapshot_"


class Watermark:
    """The newest snapshot that was dealt with, in Airflow 3.3's asset state store.

    Several assets with equal watchers share one trigger: all keep the same, and the one that is
    furthest behind counts.
    """

    def __init__(self, store: Any, watcher: Mapping[str, Any]) -> None:
        """Name it.

        Args:
            store: The trigger's `asset_state_store`; None before Airflow 3.3.
            watcher: What tells this watcher from others of the same asset.
        """
        identity = json.dumps(dict(watcher), sort_keys=True).encode()
        self._key = _PREFIX + hashlib.sha256(identity).hexdigest()[:16]
        # The store has a method for one asset only, and does not list those it is for.
        places = ("_by_name", "_by_uri")
        self._assets = [one for name in places for one in getattr(store, name, {}).values()]
        self._kept: int | None = None

    @property
    def lasts(self) -> bool:
        """Whether it outlives the trigger."""
        return bool(self._assets)

    async def read(self) -> int | None:
        """Return what is kept, None when nothing is.

        Raises:
            CatalogUnavailable: Airflow does not answer.
        """
        with _errors_named():
            kept = [await asset.aget(self._key, None) for asset in self._assets]
        self._kept = min((int(value) for value in kept if value is not None), default=None)
        return self._kept

    async def keep(self, snapshot_id: int | None) -> None:
        """Keep a snapshot, unless it is what is kept already.

        Raises:
            CatalogUnavailable: Airflow does not answer.
        """
        if snapshot_id is None or snapshot_id == self._kept:
            return
        with _errors_named():
            for asset in self._assets:
                await asset.aset(self._key, snapshot_id)
        self._kept = snapshot_id


@contextmanager
def _errors_named() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise CatalogUnavailable(
            "Airflow's asset state store, where a watcher keeps how far it has got, does not "
            f"answer ({type(error).__name__})"
        ) from error
