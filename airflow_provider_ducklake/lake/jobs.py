"""Finding what a job has committed, by the key that stands beside its snapshots."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.model import Snapshot
from airflow_provider_ducklake.lake.reader import read_chosen_snapshots

JOB_KEY: Final = "ducklake_job"


def read_job_snapshots(session: Session, key: str) -> list[Snapshot]:
    """Return the kept snapshots of a job that may have committed more than once, oldest first.

    Args:
        session: A transaction on the catalog.
        key: Its key, to which such a job adds `/` and what each commit is about.
    """
    own = [i for i, job in _jobs(session, json.dumps(key)[:-1]) if _is_of(str(job.get("key")), key)]
    return read_chosen_snapshots(session, own)


def _is_of(own: str, key: str) -> bool:
    return own == key or own.startswith(f"{key}/")


def find_job(session: Session, key: str) -> tuple[int, Mapping[str, Any]] | None:
    """Return the snapshot made under a key, and what it says of the job."""
    found = _jobs(session, json.dumps(key))
    return next(((i, job) for i, job in found if job.get("key") == key), None)


def _jobs(session: Session, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the newest snapshots first whose key may be, or begin with, some JSON text."""
    wanted = f'"key": {text}'
    for special in ("\\", "%", "_"):
        wanted = wanted.replace(special, f"\\{special}")
    query = (
        "SELECT snapshot_id, commit_extra_info FROM {ducklake_snapshot_changes} "
        "WHERE commit_extra_info LIKE ? ESCAPE '\\' ORDER BY snapshot_id DESC"
    )
    for snapshot_id, told in session.rows(query, (f"%{wanted}%",)):
        yield int(snapshot_id), _job_of(told)


def _job_of(text: str) -> Mapping[str, Any]:
    try:
        job = json.loads(text)[JOB_KEY]
    except (ValueError, KeyError, TypeError):
        return {}
    return job if isinstance(job, dict) else {}
