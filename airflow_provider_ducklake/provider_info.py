"""What Airflow's provider manager asks of this package, by an entry point."""

from __future__ import annotations

from typing import Any

from airflow_provider_ducklake.hooks.connection_form import conn_fields, ui_field_behaviour

_PACKAGE = "airflow_provider_ducklake"
_INTEGRATION = "DuckLake"


def _modules(kind: str, *names: str) -> list[dict[str, Any]]:
    modules = [f"{_PACKAGE}.{kind}.{name}" for name in names]
    return [{"integration-name": _INTEGRATION, "python-modules": modules}]


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description, as `airflow/provider_info.schema.json` defines it."""
    return {
        "package-name": "airflow-provider-ducklake-spark",
        "name": _INTEGRATION,
        "description": (
            "Run a `DuckLake <https://ducklake.select/>`__ lakehouse: load, register, compact, "
            "expire and clean up with Spark, and wait for snapshots."
        ),
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://ducklake.select/docs/stable/",
                "tags": ["software"],
            }
        ],
        "hooks": _modules("hooks", "ducklake", "spark_submit"),
        "operators": _modules(
            "operators",
            "add_data_files",
            "catalog",
            "checkpoint",
            "cleanup",
            "compaction",
            "fleet",
            "fsck",
            "ingest",
            "snapshots",
            "transfer",
        ),
        "sensors": _modules("sensors", "snapshot"),
        "triggers": _modules("triggers", "snapshot", "watcher"),
        "connection-types": [
            {
                "connection-type": "ducklake",
                "hook-class-name": f"{_PACKAGE}.hooks.ducklake.DuckLakeHook",
                "hook-name": _INTEGRATION,
                "ui-field-behaviour": ui_field_behaviour(),
                "conn-fields": conn_fields(),
            }
        ],
    }
