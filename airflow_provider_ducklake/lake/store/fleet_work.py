"""What the catalogs of a store need, best first: found by one query over all of them.

It looks at rows only, never at files, and follows the rules of maintenance itself: what that would
leave alone is no work. What cannot be told so, maintenance tells: a step that found nothing to do
is not proposed again for a day, unless its catalog has a new snapshot. The database ranks, since to
hand a million catalogs over takes longer than to rank them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg

from airflow_provider_ducklake.lake.errors import ConfigurationError
from airflow_provider_ducklake.lake.instants import before, parse_cutoff, utc_now
from airflow_provider_ducklake.lake.options import (
    DEFAULTS,
    parse_flag,
    parse_fraction,
    parse_size,
)
from airflow_provider_ducklake.lake.store.fleet import FILE_COST, CatalogWork
from airflow_provider_ducklake.lake.store.fleet_policy import STEPS, FleetPolicy

Connection = psycopg.Connection[tuple[Any, ...]]

HELD_BACK: Final = timedelta(days=1)
# The options of catalogs, schemas and tables that decide what is work.
_OPTIONS: Final = (
    "auto_compact",
    "delete_older_than",
    "expire_older_than",
    "rewrite_delete_threshold",
    "target_file_size",
)
# A step is a bit of a number here. What is counted is counted as float8, which is much cheaper to
# add up than numeric, exact up to 9 PB a catalog, and never out of range. Sizes are what tenants
# wrote: one below nothing counts as nothing.
_BITS: Final = {step: 1 << at for at, step in enumerate(STEPS)}
_RANKED: Final = """
    WITH said AS MATERIALIZED (
        SELECT o.catalog_id, o.key, o.scope, o.scope_id, k.number
        FROM ducklake.ducklake_metadata o
        JOIN unnest(%(keys)s::text[], %(values)s::text[], %(numbers)s::float8[])
            k (key, value, number) ON k.key = o.key AND k.value = o.value
    ),
    own AS MATERIALIZED (
        SELECT s.catalog_id,
            to_timestamp(min(s.number) FILTER (WHERE s.key = 'expire_older_than')) AS expire,
            to_timestamp(min(s.number) FILTER (WHERE s.key = 'delete_older_than')) AS delete
        FROM said s WHERE s.scope IS NULL GROUP BY s.catalog_id
    ),
    -- Tables for which something is said; what is said of a table comes before what is said of its
    -- schema, and that before what is said of the catalog, as the scopes' names happen to sort.
    chosen AS MATERIALIZED (
        SELECT t.catalog_id, t.table_id,
            (array_agg(s.number ORDER BY s.scope DESC NULLS LAST)
                FILTER (WHERE s.key = 'auto_compact'))[1] AS compacted,
            (array_agg(s.number ORDER BY s.scope DESC NULLS LAST)
                FILTER (WHERE s.key = 'target_file_size'))[1] AS target,
            (array_agg(s.number ORDER BY s.scope DESC NULLS LAST)
                FILTER (WHERE s.key = 'rewrite_delete_threshold'))[1] AS threshold
        FROM said s JOIN ducklake.ducklake_table t ON t.catalog_id = s.catalog_id AND (
            s.scope IS NULL OR (s.scope = 'table' AND s.scope_id = t.table_id)
            OR (s.scope = 'schema' AND s.scope_id = t.schema_id)
        )
        WHERE t.end_snapshot IS NULL
            AND s.key IN ('auto_compact', 'target_file_size', 'rewrite_delete_threshold')
        GROUP BY t.catalog_id, t.table_id
    ),
    -- Tables of which not all small files of a partition specification may be merged: with the
    -- snapshots at which their columns changed, and whether files of theirs have deletes.
    mixed AS MATERIALIZED (
        SELECT y.catalog_id, y.table_id, min(y.begins) AS begins, bool_or(y.deletes) AS deletes
        FROM (
            SELECT v.catalog_id, v.table_id, array_agg(v.begin_snapshot ORDER BY v.begin_snapshot)
                AS begins, false AS deletes
            FROM ducklake.ducklake_schema_versions v
            GROUP BY v.catalog_id, v.table_id HAVING count(*) > 1
            UNION ALL
            SELECT d.catalog_id, d.table_id, NULL, true FROM ducklake.ducklake_delete_file d
            UNION ALL
            SELECT o.catalog_id, o.table_id, NULL, false FROM chosen o
            WHERE coalesce(%(target_file_size)s::float8, o.target) < %(small_file_size)s
        ) y
        GROUP BY y.catalog_id, y.table_id
    ),
    held AS MATERIALIZED (
        SELECT DISTINCT l.catalog_id, k.step
        FROM ducklake.maintenance_ledger l
        JOIN unnest(%(steps)s::text[], %(bits)s::integer[]) k (operation, step)
            ON k.operation = l.operation
        WHERE NOT l.changed AND l.error IS NULL AND l.started_at > %(held_since)s
            AND NOT EXISTS (
                SELECT FROM ducklake.maintenance_ledger n
                WHERE n.catalog_id = l.catalog_id AND n.operation = l.operation
                    AND n.started_at > l.started_at
            ) AND NOT EXISTS (
                SELECT FROM ducklake.ducklake_snapshot n
                WHERE n.catalog_id = l.catalog_id AND n.snapshot_id > l.snapshot_id
            )
    ),
    merging AS (
        SELECT g.catalog_id, %(merge_adjacent_files)s::integer AS step,
            sum(m.number - 1) AS files, sum(m.size) AS size
        FROM (
            SELECT f.catalog_id, f.table_id, f.partition_id, count(*)::float8 AS number,
                sum(greatest(f.file_size_bytes, 0)::float8) AS size
            FROM ducklake.ducklake_data_file f
            WHERE f.end_snapshot IS NULL AND f.table_id >= 0
                AND f.file_size_bytes < %(largest_taken)s
            GROUP BY f.catalog_id, f.table_id, f.partition_id
            HAVING count(*) >= greatest(%(min_small_files)s, 2)
        ) g
        LEFT JOIN chosen o USING (catalog_id, table_id)
        LEFT JOIN mixed x USING (catalog_id, table_id)
        CROSS JOIN LATERAL (
            SELECT g.number, g.size WHERE g.partition_id IS NULL AND x.table_id IS NULL

            UNION ALL
            -- Looked at one by one: neither partition values nor versions are in the index.
            SELECT e.number, e.size FROM (
                SELECT count(*)::float8 AS number,
                    sum(greatest(f.file_size_bytes, 0)::float8) AS size
                FROM ducklake.ducklake_data_file f
                WHERE f.catalog_id = g.catalog_id AND f.table_id = g.table_id
                    AND f.partition_id IS NOT DISTINCT FROM g.partition_id
                    AND f.end_snapshot IS NULL AND f.file_size_bytes < least(%(small_file_size)s,
                        coalesce(%(target_file_size)s::float8, o.target, %(target)s))
                    AND NOT (coalesce(x.deletes, false) AND EXISTS (
                        SELECT FROM ducklake.ducklake_delete_file d
                        WHERE d.catalog_id = f.catalog_id AND d.data_file_id = f.data_file_id
                    ))
                GROUP BY width_bucket(f.begin_snapshot, x.begins),
                    CASE WHEN f.partition_id IS NOT NULL THEN (
                        SELECT array_agg(p.partition_value ORDER BY p.partition_key_index)
                        FROM ducklake.ducklake_file_partition_value p
                        WHERE p.catalog_id = f.catalog_id AND p.data_file_id = f.data_file_id
                    ) END
                HAVING count(*) >= greatest(%(min_small_files)s, 2)
            ) e
            WHERE g.partition_id IS NOT NULL OR x.table_id IS NOT NULL
        ) m
        WHERE coalesce(o.compacted, 1) > 0
        GROUP BY g.catalog_id
    ),
    rewriting AS (
        SELECT d.catalog_id, %(rewrite_data_files)s::integer, 1,
            greatest(f.file_size_bytes, 0)::float8
        FROM ducklake.ducklake_delete_file d
        JOIN ducklake.ducklake_data_file f
            ON f.catalog_id = d.catalog_id AND f.data_file_id = d.data_file_id
        LEFT JOIN chosen o ON o.catalog_id = f.catalog_id AND o.table_id = f.table_id
        WHERE d.end_snapshot IS NULL AND f.end_snapshot IS NULL
            -- As a rewrite counts it.
            AND d.delete_count > 0 AND d.delete_count::float8 / greatest(f.record_count, 1)
                >= coalesce(%(delete_threshold)s::float8, o.threshold, %(threshold)s)
            AND coalesce(o.compacted, 1) > 0
    ),
    expiring AS (
        SELECT s.catalog_id, %(expire_snapshots)s::integer, 1, 0
        FROM (
            SELECT s.catalog_id, min(own.expire) AS expire, count(*) AS number,
                count(*) FILTER (WHERE s.snapshot_time
                    < least(%(expire_older_than)s::timestamptz, own.expire)) AS old
            FROM ducklake.ducklake_snapshot s LEFT JOIN own USING (catalog_id)
            GROUP BY s.catalog_id
        ) s
        WHERE least(s.old, s.number - %(retain_last)s) >= %(min_expired)s
            -- Clocks may go back: the newest, which stay, need not be the youngest.
            AND s.old - (
                SELECT count(*) FROM (
                    SELECT n.snapshot_time FROM ducklake.ducklake_snapshot n
                    WHERE n.catalog_id = s.catalog_id
                    ORDER BY n.snapshot_id DESC LIMIT %(retain_last)s
                ) n
                WHERE n.snapshot_time < least(%(expire_older_than)s::timestamptz, s.expire)
            ) >= %(min_expired)s
    ),
    cleaning AS (
        SELECT f.catalog_id, %(cleanup_old_files)s::integer, count(*), 0
        FROM ducklake.ducklake_files_scheduled_for_deletion f LEFT JOIN own USING (catalog_id)
        WHERE f.schedule_start < least(%(delete_older_than)s::timestamptz,
            coalesce(own.delete, to_timestamp(%(grace)s::float8)))
        GROUP BY f.catalog_id
    ),
    flushing AS (
        SELECT t.catalog_id, %(flush_inlined_data)s::integer, 1, 0
        FROM (
            SELECT r.oid, r.relname, CASE WHEN n.id < 2::numeric ^ 63
                THEN n.id::bigint END AS table_id
            FROM pg_class r CROSS JOIN LATERAL (
                SELECT substring(r.relname FROM
                    '^ducklake_inlined_(?:data|delete)_([0-9]+)(?:_[0-9]+)?$')::numeric AS id
            ) n
            WHERE r.relnamespace = 'lake'::regnamespace AND r.relkind = 'r'
        ) i
        JOIN ducklake.ducklake_table t
            ON t.catalog_id = i.table_id >> 32 AND t.table_id = i.table_id
        LEFT JOIN chosen o ON o.catalog_id = t.catalog_id AND o.table_id = t.table_id
        WHERE t.end_snapshot IS NULL AND coalesce(o.compacted, 1) > 0
            AND CASE WHEN pg_relation_size(i.oid) > 0
                THEN ducklake.has_inlined_rows(i.relname) END
        GROUP BY t.catalog_id
    )
    SELECT w.catalog_name, w.steps, w.files, w.size, count(*) OVER ()
    FROM (
        SELECT c.catalog_name, bit_or(f.step) AS steps, sum(f.files) AS files, sum(f.size) AS size
        FROM (
            TABLE merging UNION ALL TABLE rewriting UNION ALL TABLE expiring
            UNION ALL TABLE cleaning UNION ALL TABLE flushing
        ) f
        JOIN ducklake.ducklake_catalog c USING (catalog_id)
        WHERE c.state = 'live' AND NOT EXISTS (
            SELECT FROM held h WHERE h.catalog_id = f.catalog_id AND h.step = f.step
        )
        GROUP BY c.catalog_id
    ) w
    -- See CatalogWork.score.
    ORDER BY w.files * %(file_cost)s::float8
            / (%(file_cost)s::float8 * bit_count(w.steps::bit(5)) + w.size) DESC,
        w.catalog_name COLLATE "C"
    LIMIT %(limit)s OFFSET %(offset)s
"""

# Few in number, however many catalogs have one: see `_number`.
_SAID: Final = """
    SELECT DISTINCT o.key, o.value FROM ducklake.ducklake_metadata o
    WHERE o.key = ANY (%s) AND o.value IS NOT NULL
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
    said = connection.execute(_SAID, (list(_OPTIONS),)).fetchall()
    parameters |= {
        "largest_taken": min(
            policy.small_file_size, policy.target_file_size or policy.small_file_size
        ),
        "keys": [key for key, _ in said],
        "values": [value for _, value in said],
        "numbers": [_number(key, value, now) for key, value in said],
        "target": _number("target_file_size", None, now),
        "threshold": _number("rewrite_delete_threshold", None, now),
        "grace": _number("delete_older_than", None, now),
        "steps": list(_BITS),
        "bits": list(_BITS.values()),
        "held_since": now - HELD_BACK,
    }
    parameters |= {"file_cost": FILE_COST, "limit": limit, "offset": offset}
    found = connection.execute(_RANKED, parameters)
    return [
        (total, CatalogWork(name, _steps(bits), int(files), int(size)))
        for name, bits, files, size, total in found
    ]


def _number(key: str, value: str | None, now: datetime) -> float:
    """Return what an option says as a number, read as maintenance reads it.

    Of one that maintenance will not take nothing is work. An age is the instant it means, in
    seconds of the epoch.
    """
    text = value or DEFAULTS[key]
    if text is None:
        return math.inf
    try:
        if key == "auto_compact":
            return float(parse_flag(text, key))
        if key == "target_file_size":
            return float(parse_size(text, key))
        if key == "rewrite_delete_threshold":
            return parse_fraction(text, key)
        cutoff = parse_cutoff if key == "expire_older_than" else before
        return cutoff(text, now).timestamp()
    except ConfigurationError:
        return {"rewrite_delete_threshold": math.inf, "target_file_size": 0.0}.get(key, -math.inf)


def _steps(bits: int) -> tuple[str, ...]:
    return tuple(step for step, bit in _BITS.items() if bits & bit)
