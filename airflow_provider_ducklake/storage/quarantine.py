"""Putting objects out of the way: copied elsewhere whole, and only then deleted."""

from __future__ import annotations

import os
from collections.abc import Mapping

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.storage.objects import DeleteOutcome, ObjectNotFound
from airflow_provider_ducklake.storage.protocol import Store


def move(places: Mapping[str, str], source: Store, target: Store, scratch: str) -> DeleteOutcome:
    """Copy objects elsewhere, and delete those that have arrived.

    Args:
        places: Full path of each object, and of the place that takes it.
        source: Where they are.
        target: Where they go; it may be another store.
        scratch: Local directory that holds one object at a time.

    Returns:
        What became of each: `deleted` ones have arrived; of one that could not be copied or deleted
        `failed` says why, and it is where it was.
    """
    arrived, missing, failed = [], [], []
    for path, place in places.items():
        try:
            copy = source.stage(path, scratch)
            target.upload(copy, place)
        except ObjectNotFound:
            missing.append(path)
        except StorageError as error:
            failed.append((path, str(error)))
        else:
            arrived.append(path)
            if os.path.dirname(copy) == scratch:
                os.unlink(copy)
    told = DeleteOutcome(missing=tuple(missing), failed=tuple(failed))
    return source.delete(arrived, listed=True) + told
