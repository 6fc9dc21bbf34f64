-- A fork is a new catalog that begins where another one stands: rows are copied, files are shared.
--
-- Tables get new ids, since a client that inlines names tables in the catalog after them. All other
-- ids stay, and the next ones come from the fork's own range.

CREATE FUNCTION ducklake.forked_tables(source bigint, target bigint, at_snapshot bigint)
RETURNS TABLE (table_id bigint, new_id bigint)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT t.table_id, ducklake.first_id(target) + row_number() OVER (ORDER BY t.table_id)
    FROM ducklake.ducklake_table t
    WHERE t.catalog_id = source AND t.begin_snapshot <= at_snapshot
        AND (t.end_snapshot IS NULL OR t.end_snapshot > at_snapshot);
END;

-- The full path of every data and delete file of a catalog that is live at a snapshot, or at all.
CREATE FUNCTION ducklake.files_of(source bigint, at_snapshot bigint)
RETURNS TABLE (file_id bigint, full_path text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT f.file_id,
        CASE WHEN f.path_is_relative THEN
            CASE WHEN t.path_is_relative THEN
                CASE WHEN s.path_is_relative THEN c.root ELSE '' END || s.path
            ELSE '' END || t.path
        ELSE '' END || f.path
    FROM (
        SELECT d.data_file_id AS file_id, d.table_id, d.path, d.path_is_relative
        FROM ducklake.ducklake_data_file d
        WHERE d.catalog_id = source AND d.data_file_id >= 0
            AND (at_snapshot IS NULL OR (d.begin_snapshot <= at_snapshot
                AND (d.end_snapshot IS NULL OR d.end_snapshot > at_snapshot)))
        UNION ALL
        SELECT d.delete_file_id, d.table_id, d.path, d.path_is_relative
        FROM ducklake.ducklake_delete_file d
        WHERE d.catalog_id = source
            AND (at_snapshot IS NULL OR (d.begin_snapshot <= at_snapshot
                AND (d.end_snapshot IS NULL OR d.end_snapshot > at_snapshot)))
    ) f
    JOIN ducklake.ducklake_catalog c ON c.catalog_id = source
    CROSS JOIN LATERAL (
        SELECT x.path, x.path_is_relative, x.schema_id FROM ducklake.ducklake_table x
        WHERE x.catalog_id = source AND x.table_id = f.table_id LIMIT 1
    ) t
    CROSS JOIN LATERAL (
        SELECT x.path, x.path_is_relative FROM ducklake.ducklake_schema x
        WHERE x.catalog_id = source AND x.schema_id = t.schema_id LIMIT 1
    ) s;
END;

-- What stands against a fork at a snapshot; NULL when nothing does.
CREATE FUNCTION ducklake.obstacle_to_fork(source bigint, at_snapshot bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET row_security = off -- whoever made a table for inlined rows runs no code of his in this session
AS $$
DECLARE
    found record;
    rows_inline boolean;
BEGIN
    FOR found IN
        SELECT t.table_name AS in_lake, r.relname AS stored_in
        FROM ducklake.ducklake_table t
        JOIN pg_class r ON r.relnamespace = 'lake'::regnamespace AND r.relkind = 'r' AND (
            r.relname = 'ducklake_inlined_delete_' || t.table_id
            OR r.relname IN (
                SELECT i.table_name FROM ducklake.ducklake_inlined_data_tables i
                WHERE i.catalog_id = source AND i.table_id = t.table_id))
        WHERE t.catalog_id = source AND t.begin_snapshot <= at_snapshot
            AND (t.end_snapshot IS NULL OR t.end_snapshot > at_snapshot)
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM lake.%I)', found.stored_in) INTO rows_inline;
        IF rows_inline THEN
            RETURN format('rows of table "%s" are inlined in the catalog: run flush_inlined_data first', found.in_lake);
        END IF;
    END LOOP;
    -- Later rows of such a file are hidden by their snapshot's id, which the fork will give again.
    SELECT max(f.partial_max) AS newest INTO found FROM (
        SELECT d.partial_max FROM ducklake.ducklake_data_file d
        WHERE d.catalog_id = source AND d.begin_snapshot <= at_snapshot AND d.partial_max > at_snapshot
            AND (d.end_snapshot IS NULL OR d.end_snapshot > at_snapshot)
        UNION ALL
        SELECT d.partial_max FROM ducklake.ducklake_delete_file d
        WHERE d.catalog_id = source AND d.begin_snapshot <= at_snapshot AND d.partial_max > at_snapshot
            AND (d.end_snapshot IS NULL OR d.end_snapshot > at_snapshot)
    ) f;
    IF found.newest IS NOT NULL THEN
        RETURN format('files were merged since with rows up to snapshot %s: fork at that one or a later one', found.newest);
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION ducklake.fork_catalog(source_name text, new_name text, wanted_snapshot bigint, wanted_root text)
RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    source bigint := ducklake.live_catalog(source_name);
    target bigint;
    snapshot record;
    obstacle text;
BEGIN
    -- See keep_shared_files: from here on, nobody schedules a file of the source.
    UPDATE ducklake.ducklake_catalog c SET forks = c.forks + 1 WHERE c.catalog_id = source;
    SELECT s.* INTO snapshot FROM ducklake.ducklake_snapshot s
    WHERE s.catalog_id = source AND (wanted_snapshot IS NULL OR s.snapshot_id = wanted_snapshot)
    ORDER BY s.snapshot_id DESC LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'catalog "%" keeps no snapshot %', source_name, wanted_snapshot
            USING ERRCODE = 'DL001';
    END IF;
    obstacle := ducklake.obstacle_to_fork(source, snapshot.snapshot_id);
    IF obstacle IS NOT NULL THEN
        RAISE EXCEPTION 'catalog "%" cannot be forked at snapshot %: %',
            source_name, snapshot.snapshot_id, obstacle USING ERRCODE = 'DL006';
    END IF;
    target := ducklake.register_catalog(new_name, wanted_root, source, snapshot.snapshot_id);
    INSERT INTO ducklake.shared_file (file_id, owner_id, path, readers)
    SELECT f.file_id, source, f.full_path, 2 FROM ducklake.files_of(source, snapshot.snapshot_id) f
    ON CONFLICT (file_id) DO UPDATE SET readers = shared_file.readers + 1;
    INSERT INTO ducklake.file_reader (file_id, catalog_id)
    SELECT f.file_id, r.catalog_id
    FROM ducklake.files_of(source, snapshot.snapshot_id) f, (VALUES (source), (target)) AS r (catalog_id)
    ON CONFLICT DO NOTHING;
    -- First, see require_live.
    INSERT INTO ducklake.ducklake_metadata (catalog_id, key, value, scope, scope_id)
    SELECT target, o.key, CASE WHEN o.key = 'data_path' THEN c.root ELSE o.value END, o.scope,
        CASE WHEN o.scope = 'table' THEN m.new_id ELSE o.scope_id END
    FROM ducklake.ducklake_metadata o
    JOIN ducklake.ducklake_catalog c ON c.catalog_id = target
    LEFT JOIN ducklake.forked_tables(source, target, snapshot.snapshot_id) m ON m.table_id = o.scope_id
    WHERE o.catalog_id = source AND (o.scope IS DISTINCT FROM 'table' OR m.new_id IS NOT NULL);
    INSERT INTO ducklake.ducklake_snapshot
        (catalog_id, snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id)
    SELECT target, snapshot.snapshot_id, snapshot.snapshot_time, snapshot.schema_version,
        ducklake.first_id(target) + 1 + count(*), ducklake.first_id(target)
    FROM ducklake.forked_tables(source, target, snapshot.snapshot_id);
    INSERT INTO ducklake.ducklake_snapshot_changes
        (catalog_id, snapshot_id, changes_made, commit_message)
    VALUES (target, snapshot.snapshot_id, '',
        format('fork of catalog %s at snapshot %s', source_name, snapshot.snapshot_id));
    -- {copies}
    RETURN target;
END
$$;
