"""All checks of the catalog's own rows, in one short read transaction."""

from __future__ import annotations

from airflow_provider_ducklake.lake.fsck.check import run_checks
from airflow_provider_ducklake.lake.fsck.counters import COUNTER_CHECKS
from airflow_provider_ducklake.lake.fsck.deletes import DELETE_CHECKS
from airflow_provider_ducklake.lake.fsck.findings import Findings
from airflow_provider_ducklake.lake.fsck.inlined import check_inlined
from airflow_provider_ducklake.lake.fsck.names import NAME_CHECKS
from airflow_provider_ducklake.lake.fsck.rows import ROW_CHECKS
from airflow_provider_ducklake.lake.fsck.stored import check_schedule
from airflow_provider_ducklake.lake.lake import LakeView

CHECKS = (*ROW_CHECKS, *COUNTER_CHECKS, *DELETE_CHECKS, *NAME_CHECKS)


def check_catalog(view: LakeView, findings: Findings) -> None:
    """Run every check that needs nothing but the catalog.

    Args:
        view: The lake, in one transaction.
        findings: Takes what is found; of each class only so many instances are held.
    """
    run_checks(view.session, CHECKS, findings)
    findings.add(check_inlined(view.session))
    findings.add(check_schedule(view.session, view.data_path))


def table_names(view: LakeView) -> dict[int, str]:
    """Return `schema.table` of every table by id, its newest name."""
    rows = view.session.rows(
        "SELECT t.table_id, s.schema_name, t.table_name FROM {ducklake_table} t "
        "LEFT JOIN {ducklake_schema} s ON s.schema_id = t.schema_id ORDER BY t.begin_snapshot"
    )
    return {int(table_id): f"{schema}.{name}" for table_id, schema, name in rows}
