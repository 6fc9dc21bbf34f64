"""What the catalogs of a store need, best first: found by one query over all of them.

It looks at rows only, never at files, and reads each table once. The database ranks, since to hand
a million catalogs over takes longer than to rank them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any, Final

import psycopg

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.instants import before, parse_cutoff, utc_now
from airflow_provider_ducklake.lake.options import DEFAULTS
from airflow_provider_ducklake.lake.store.fleet import FILE_COST, STEPS, CatalogWork, FleetPolicy

Connection = psycopg.Connection[tuple[Any, ...]]

# A step is a bit of a number here. What is counted is counted as float8, which is much cheaper to
# add up than numeric, exact up to 9 PB a catalog, and never out of range. Sizes are what tenants
# wrote: one below nothing counts as nothing.
_BITS: Final = {step: 1 << at for at, step in enumerate(STEPS)}
_RANKED: Final = """
    WITH own AS MATERIALIZED (
        SELECT o.catalog_id, min(k.cutoff) FILTER (WHERE o.key = 'expire_older_than') AS expire,
            min(k.cutoff) FILTER (WHERE o.key = 'delete_older_than') AS delete
        FROM ducklake.ducklake_metadata o
        JOIN unnest(%(values)s::text[], %(cutoffs)s::timestamptz[]) k (value, cutoff)
            ON k.value = o.value
        WHERE o.key IN ('expire_older_than', 'delete_older_than') AND o.scope IS NULL
        GROUP BY o.catalog_id
    )
    SELECT w.catalog_name, w.steps, w.files, w.size, count(*) OVER ()
    FROM (
        SELECT c.catalog_name, bit_or(f.step) AS steps, sum(f.files) AS files, sum(f.size) AS size
        FROM (
            SELECT m.catalog_id, %(merge_adjacent_files)s::integer AS step,
                sum(m.number - 1) AS files, sum(m.size) AS size
            FROM (
                SELECT f.catalog_id, count(*)::float8 AS number,
                    sum(greatest(f.file_size_bytes, 0)::float8) AS size
                FROM ducklake.ducklake_data_file f
                WHERE f.end_snapshot IS NULL AND f.table_id >= 0
                    AND f.file_size_bytes < %(small_file_size)s
                GROUP BY f.catalog_id, f.table_id, f.partition_id
                HAVING count(*) >= %(min_small_files)s
            ) m
            GROUP BY m.catalog_id

            UNION ALL
            SELECT d.catalog_id, %(rewrite_data_files)s::integer, 1,
                greatest(f.file_size_bytes, 0)::float8
            FROM ducklake.ducklake_delete_file d
            JOIN ducklake.ducklake_data_file f
                ON f.catalog_id = d.catalog_id AND f.data_file_id = d.data_file_id
            WHERE d.end_snapshot IS NULL AND f.end_snapshot IS NULL
                -- As a rewrite counts it.
                AND d.delete_count > 0 AND d.delete_count::float8
                    / greatest(f.record_count, 1) >= %(delete_threshold)s::float8

            UNION ALL
            SELECT s.catalog_id, %(expire_snapshots)s::integer, 1, 0
            FROM (
                SELECT s.catalog_id, count(*) AS number
                FROM ducklake.ducklake_snapshot s LEFT JOIN own USING (catalog_id)
                WHERE s.snapshot_time < least(%(expire_older_than)s::timestamptz, own.expire)
                GROUP BY s.catalog_id
            ) s
            -- The newest snapshot of a catalog stays, however old it is.
            WHERE greatest(%(min_expired)s, 1) <= s.number - CASE WHEN EXISTS (
                SELECT FROM ducklake.ducklake_snapshot n LEFT JOIN own USING (catalog_id)
                WHERE n.catalog_id = s.catalog_id AND (n.snapshot_time
                    < least(%(expire_older_than)s::timestamptz, own.expire)) IS NOT TRUE
            ) THEN 0 ELSE 1 END

            UNION ALL
            SELECT f.catalog_id, %(cleanup_old_files)s::integer, count(*), 0
            FROM ducklake.ducklake_files_scheduled_for_deletion f LEFT JOIN own USING (catalog_id)
            WHERE f.schedule_start < least(%(delete_older_than)s::timestamptz,
                coalesce(own.delete, %(grace)s::timestamptz))
            GROUP BY f.catalog_id

            UNION ALL
            SELECT i.catalog_id, %(flush_inlined_data)s::integer, 1, 0
            FROM ducklake.ducklake_inlined_data_tables i
            JOIN pg_class r ON r.relnamespace = 'lake'::regnamespace AND r.relname = i.table_name
            WHERE pg_relation_size(r.oid) > 0 GROUP BY i.catalog_id
        ) f
        JOIN ducklake.ducklake_catalog c USING (catalog_id)
        WHERE c.state = 'live' GROUP BY c.catalog_id
    ) w
    -- See CatalogWork.score.
    ORDER BY w.files * %(file_cost)s::float8
            / (%(file_cost)s::float8 * bit_count(w.steps::bit(5)) + w.size) DESC,
        w.catalog_name COLLATE "C"
    LIMIT %(limit)s OFFSET %(offset)s
"""

# Few in number, however many catalogs have one: see `_own_cutoff`.
_OWN_AGES: Final = """
    SELECT DISTINCT o.value FROM ducklake.ducklake_metadata o
    WHERE o.key IN ('expire_older_than', 'delete_older_than') AND o.scope IS NULL
        AND o.value IS NOT NULL
"""


def ranked_work(connection: Connection, policy: FleetPolicy) -> Iterator[tuple[int, CatalogWork]]:
    """Yield the work of all live catalogs that have some, the best score first, then by name.

    Args:
        connection: Of the service role, in a transaction that sees one state of the store.
        policy: What counts as work.

    Yields:
        How many catalogs have work, and that of the next.
    """
    first = policy.max_catalogs
    rows = _rows(connection, policy, first, 0)
    yield from rows
    if len(rows) == first:
        # Few budgets turn so many down that those behind have to be looked at.
        yield from _rows(connection, policy, None, first)


def _rows(
    connection: Connection, policy: FleetPolicy, limit: int | None, offset: int
) -> list[tuple[int, CatalogWork]]:
    parameters = asdict(policy) | _BITS
    now = utc_now()
    for age in ("expire_older_than", "delete_older_than"):
        parameters[age] = parse_cutoff(parameters[age], now)
    parameters["grace"] = _own_cutoff(str(DEFAULTS["delete_older_than"]), now)
    values = [value for (value,) in connection.execute(_OWN_AGES)]
    parameters |= {"values": values, "cutoffs": [_own_cutoff(value, now) for value in values]}
    parameters |= {"file_cost": FILE_COST, "limit": limit, "offset": offset}
    found = connection.execute(_RANKED, parameters)
    return [
        (total, CatalogWork(name, _steps(bits), int(files), int(size)))
        for name, bits, files, size, total in found
    ]


def _own_cutoff(age: str, now: datetime) -> datetime:
    """Return the instant a catalog's own age means, parsed as maintenance does it.

    Of one that maintenance will not take nothing is old enough.
    """
    try:
        return before(age, now)
    except ConfigurationError:
        return datetime.min.replace(tzinfo=timezone.utc)


def _steps(bits: int) -> tuple[str, ...]:
    return tuple(step for step, bit in _BITS.items() if bits & bit)
