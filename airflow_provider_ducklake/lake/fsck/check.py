"""A check that is one query: it yields a row for each instance of damage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_provider_ducklake.lake.database import Session
from airflow_provider_ducklake.lake.fsck.findings import Finding, Findings


@dataclass(frozen=True, slots=True)
class Check:
    """A query for damage.

    Attributes:
        damage: Name of the class.
        query: Its first column is the table's id or NULL, then come ids of rows.
        message: Text for one row; `{0}`, `{1}`, … are its columns.
        ids: How many columns after the first are ids.
    """

    damage: str
    query: str
    message: str
    ids: int = 1


def run_checks(session: Session, checks: Iterable[Check], findings: Findings) -> None:
    """Run some checks; of each no more rows leave the database than are told one by one."""
    for check in checks:
        rows = session.rows(check.query + " ORDER BY 1, 2 LIMIT ?", (findings.limit + 1,))
        count = len(rows)
        if count > findings.limit:
            count = int(session.value("SELECT count(*) FROM (" + check.query + ") AS found"))
        shown = rows[: findings.limit]
        findings.add(
            Finding(
                check.damage,
                check.message.format(*row),
                None if row[0] is None else int(row[0]),
                tuple(int(value) for value in row[1 : 1 + check.ids] if value is not None),
            )
            for row in shown
        )
        findings.add_count(check.damage, count - len(shown))
