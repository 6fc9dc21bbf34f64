-- How the catalogs are kept: what maintenance did, and what state they are in.

CREATE VIEW ducklake_api.maintenance WITH (security_barrier) AS
SELECT c.catalog_name, l.operation, l.started_at, l.seconds, l.author, l.changed, l.snapshot_id,
    l.files_in, l.files_out, l.bytes_in, l.bytes_out, l.files_left, l.error
FROM ducklake.maintenance_ledger l
JOIN ducklake.readable_catalog c ON c.catalog_id = l.catalog_id;

CREATE VIEW ducklake_api.health WITH (security_barrier) AS
SELECT c.catalog_name, f.data_files, f.bytes, f.average_file_bytes, d.deleted_rows, s.snapshots,
    s.oldest_snapshot, w.files_scheduled, m.last_maintained, m.last_failed
FROM ducklake.readable_catalog c
CROSS JOIN LATERAL (
    -- Within a bigint whatever one tenant wrote, see ducklake_api.tables.
    SELECT count(*) AS data_files,
        least(greatest(coalesce(sum(x.file_size_bytes), 0), 0), 9223372036854775807)::bigint AS bytes,
        avg(x.file_size_bytes)::bigint AS average_file_bytes
    FROM ducklake.ducklake_data_file x
    WHERE x.catalog_id = c.catalog_id AND x.end_snapshot IS NULL AND x.table_id >= 0
) f
CROSS JOIN LATERAL (
    SELECT least(greatest(coalesce(sum(x.delete_count), 0), 0), 9223372036854775807)::bigint
        AS deleted_rows
    FROM ducklake.ducklake_delete_file x
    WHERE x.catalog_id = c.catalog_id AND x.end_snapshot IS NULL
) d
CROSS JOIN LATERAL (
    SELECT count(*) AS snapshots, min(x.snapshot_time) AS oldest_snapshot
    FROM ducklake.ducklake_snapshot x WHERE x.catalog_id = c.catalog_id
) s
CROSS JOIN LATERAL (
    SELECT count(*) AS files_scheduled
    FROM ducklake.ducklake_files_scheduled_for_deletion x WHERE x.catalog_id = c.catalog_id
) w
CROSS JOIN LATERAL (
    SELECT max(x.started_at) FILTER (WHERE x.error IS NULL) AS last_maintained,
        max(x.started_at) FILTER (WHERE x.error IS NOT NULL) AS last_failed
    FROM ducklake.maintenance_ledger x WHERE x.catalog_id = c.catalog_id
) m;
