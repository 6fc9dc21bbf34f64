"""A table's rows in a few numbers that do not depend on their order or on who wrote them."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Equal for equal multisets of rows with equal column names.

    Attributes:
        rows: How many rows there are.
        checksum: Sum of a hash of each row.
        columns: Names of the columns, sorted.
    """

    rows: int = 0
    checksum: int = 0
    columns: tuple[str, ...] = ()


def fingerprint(session: duckdb.DuckDBPyConnection, relation: str) -> Fingerprint:
    """Compute the fingerprint of a relation.

    Args:
        session: A DuckDB session.
        relation: What stands after FROM, a condition included.
    """
    described = session.execute(f"DESCRIBE FROM {relation}").fetchall()
    columns = sorted((str(name), str(kind)) for name, kind, *_ in described)
    # Integers of any width have one text; instants have one number, whatever their zone.
    values = [
        f'epoch_us("{name}")' if kind.startswith("TIMESTAMP") else f'"{name}"::VARCHAR'
        for name, kind in columns
    ]
    found = session.execute(
        f"SELECT count(*), coalesce(sum(hash({', '.join(values)})), 0) FROM {relation}"
    ).fetchone()
    assert found is not None
    return Fingerprint(int(found[0]), int(found[1]), tuple(name for name, _ in columns))
