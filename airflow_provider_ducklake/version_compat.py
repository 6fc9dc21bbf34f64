"""Which Airflow this is, and what has moved between the versions that are supported."""

from __future__ import annotations

from typing import Final

from airflow import __version__
from packaging.version import Version

try:
    from airflow.sdk.log import mask_secret
except ImportError:
    # Its place in Airflow before 3.2.
    from airflow.sdk.execution_time.secrets_masker import mask_secret  # type: ignore[no-redef]

__all__ = [
    "AIRFLOW_V_3_2_PLUS",
    "AIRFLOW_V_3_3_PLUS",
    "get_base_airflow_version_tuple",
    "mask_secret",
]


def get_base_airflow_version_tuple() -> tuple[int, int, int]:
    """Return the running Airflow's version without pre-release parts, e.g. (3, 3, 2)."""
    version = Version(__version__)
    return version.major, version.minor, version.micro


# Connection forms declared as data; before, Airflow asks the hook class for widgets.
AIRFLOW_V_3_2_PLUS: Final = get_base_airflow_version_tuple() >= (3, 2, 0)
# Task state store, resumable jobs, shared streams.
AIRFLOW_V_3_3_PLUS: Final = get_base_airflow_version_tuple() >= (3, 3, 0)
