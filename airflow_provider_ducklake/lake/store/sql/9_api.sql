-- For applications without a DuckLake client: what a catalog holds, by its name. Each role sees
-- the catalogs it was granted. These views are stable: columns are added, never taken away.

-- The live catalogs of the session's role. Found from its grants: to ask may_read of every catalog
-- takes seconds where there are a million.
CREATE VIEW ducklake.readable_catalog AS
SELECT c.* FROM ducklake.catalog_grant g
JOIN ducklake.ducklake_catalog c ON c.catalog_id = g.catalog_id
WHERE g.role_name = session_user AND c.state = 'live' AND NOT (SELECT ducklake.is_service())
UNION ALL
SELECT c.* FROM ducklake.ducklake_catalog c
WHERE c.state = 'live' AND (SELECT ducklake.is_service());

CREATE VIEW ducklake_api.catalogs WITH (security_barrier) AS
SELECT c.catalog_name, c.catalog_id, c.catalog_uuid, p.catalog_name AS parent_name,
    c.parent_snapshot, l.catalog_name AS lineage_name, c.root AS data_path, c.created_at
FROM ducklake.readable_catalog c
LEFT JOIN ducklake.ducklake_catalog p ON p.catalog_id = c.parent_id
    AND p.state = 'live' AND ducklake.may_read(p.catalog_id)
LEFT JOIN ducklake.ducklake_catalog l ON l.catalog_id = c.lineage_id
    AND l.state = 'live' AND ducklake.may_read(l.catalog_id);

CREATE VIEW ducklake_api.snapshots WITH (security_barrier) AS
SELECT c.catalog_name, s.snapshot_id, s.snapshot_time, s.schema_version, h.changes_made, h.author,
    h.commit_message, h.commit_extra_info
FROM ducklake.readable_catalog c
JOIN ducklake.ducklake_snapshot s ON s.catalog_id = c.catalog_id
LEFT JOIN ducklake.ducklake_snapshot_changes h
    ON h.catalog_id = s.catalog_id AND h.snapshot_id = s.snapshot_id;

-- At the newest snapshot, like those below. Rows and bytes are counted from the files, and only when
-- asked for: what a client keeps of a table counts deleted rows too, and a fork has that of its
-- parent, of whatever snapshot. Sums of what tenants wrote stay within a bigint: one absurd number is
-- not to break what is read of all.
CREATE VIEW ducklake_api.tables WITH (security_barrier) AS
SELECT c.catalog_name, s.schema_name, t.table_name, t.table_id, t.table_uuid, t.begin_snapshot,
    (
        SELECT least(greatest(coalesce(sum(
            x.record_count - coalesce((
                SELECT sum(d.delete_count) FROM ducklake.ducklake_delete_file d
                WHERE d.catalog_id = x.catalog_id AND d.data_file_id = x.data_file_id
                    AND d.end_snapshot IS NULL
            ), 0)
        ), 0), 0), 9223372036854775807)::bigint
        FROM ducklake.ducklake_data_file x
        WHERE x.catalog_id = c.catalog_id AND x.table_id = t.table_id AND x.end_snapshot IS NULL
    ) AS record_count,
    (
        SELECT least(greatest(coalesce(sum(x.file_size_bytes), 0), 0), 9223372036854775807)::bigint
        FROM ducklake.ducklake_data_file x
        WHERE x.catalog_id = c.catalog_id AND x.table_id = t.table_id AND x.end_snapshot IS NULL
    ) AS file_size_bytes
FROM ducklake.readable_catalog c
JOIN ducklake.ducklake_table t ON t.catalog_id = c.catalog_id AND t.end_snapshot IS NULL AND t.table_id >= 0
JOIN ducklake.ducklake_schema s
    ON s.catalog_id = c.catalog_id AND s.schema_id = t.schema_id AND s.end_snapshot IS NULL;

CREATE VIEW ducklake_api.columns WITH (security_barrier) AS
SELECT c.catalog_name, s.schema_name, t.table_name, k.column_name, k.column_type, k.column_order,
    k.column_id, k.parent_column, k.nulls_allowed, k.default_value
FROM ducklake.readable_catalog c
JOIN ducklake.ducklake_table t ON t.catalog_id = c.catalog_id AND t.end_snapshot IS NULL AND t.table_id >= 0
JOIN ducklake.ducklake_schema s
    ON s.catalog_id = c.catalog_id AND s.schema_id = t.schema_id AND s.end_snapshot IS NULL
JOIN ducklake.ducklake_column k
    ON k.catalog_id = c.catalog_id AND k.table_id = t.table_id AND k.end_snapshot IS NULL;

CREATE VIEW ducklake_api.data_files WITH (security_barrier) AS
SELECT c.catalog_name, s.schema_name, t.table_name, f.data_file_id,
    CASE WHEN f.path_is_relative THEN
        CASE WHEN t.path_is_relative THEN
            CASE WHEN s.path_is_relative THEN c.root ELSE '' END || s.path
        ELSE '' END || t.path
    ELSE '' END || f.path AS path,
    f.file_format, f.record_count, f.file_size_bytes, f.begin_snapshot,
    coalesce(d.delete_count, 0) AS delete_count
FROM ducklake.readable_catalog c
JOIN ducklake.ducklake_table t ON t.catalog_id = c.catalog_id AND t.end_snapshot IS NULL AND t.table_id >= 0
JOIN ducklake.ducklake_schema s
    ON s.catalog_id = c.catalog_id AND s.schema_id = t.schema_id AND s.end_snapshot IS NULL
JOIN ducklake.ducklake_data_file f
    ON f.catalog_id = c.catalog_id AND f.table_id = t.table_id AND f.end_snapshot IS NULL
LEFT JOIN ducklake.ducklake_delete_file d
    ON d.catalog_id = c.catalog_id AND d.data_file_id = f.data_file_id AND d.end_snapshot IS NULL;
