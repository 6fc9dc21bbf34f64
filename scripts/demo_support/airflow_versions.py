"""What Airflow keeps at another place in each version and the package itself does not need."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def dag_bag(folder: str) -> Any:
    """Return the DAGs of a folder, parsed."""
    return _first("airflow.dag_processing.dagbag:DagBag", "airflow.models.dagbag:DagBag")(folder)


def listener_manager() -> Any:
    """Return what tells listeners of a running task's states."""
    name = "get_listener_manager"
    return _first(f"airflow.sdk.listener:{name}", f"airflow.listeners.listener:{name}")()


def serialization() -> Any:
    """Return the class whose `to_dict` and `from_dict` carry a DAG to the database and back."""
    module = "airflow.serialization.serialized_objects"
    return _first(f"{module}:DagSerialization", f"{module}:SerializedDAG")


def _first(*places: str) -> Any:
    """Return the first of `module:name` that this Airflow has; newer places stand first."""
    for place in places[:-1]:
        module, _, name = place.partition(":")
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    module, _, name = places[-1].partition(":")
    return getattr(import_module(module), name)
