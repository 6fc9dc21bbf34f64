-- A file lives as long as any catalog reads it, whichever client lets go of it.
--
-- Whoever expires snapshots or compacts puts the files it no longer reads into
-- ducklake_files_scheduled_for_deletion, and some time later deletes them. A file that others read
-- must not stay there. It must not be unknown to its owner either, or the owner's next sweep takes
-- it for an orphan: so the owner keeps a row for it, of a table that begins at no snapshot anybody
-- will ever see. The last reader to let go hands the file back to its owner's schedule.

CREATE INDEX shared_file_place ON ducklake.shared_file (owner_id, ducklake.place(path));

CREATE FUNCTION ducklake.keep_row_of_shared_file(owner bigint, file bigint, file_path text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    never CONSTANT bigint := 4611686018427387904;
BEGIN
    IF NOT EXISTS (
        SELECT FROM ducklake.ducklake_table t WHERE t.catalog_id = owner AND t.table_id = -1
    ) THEN
        INSERT INTO ducklake.ducklake_schema
            (catalog_id, schema_id, schema_uuid, begin_snapshot, schema_name, path, path_is_relative)
        VALUES (owner, -1, gen_random_uuid(), never, 'kept for forks', '', true);
        INSERT INTO ducklake.ducklake_table
            (catalog_id, table_id, table_uuid, begin_snapshot, schema_id, table_name, path, path_is_relative)
        VALUES (owner, -1, gen_random_uuid(), never, -1, 'kept for forks', '', true);
    END IF;
    INSERT INTO ducklake.ducklake_data_file
        (catalog_id, data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format,
         record_count, file_size_bytes)
    VALUES (owner, -file, -1, never, file_path, false, 'parquet', 0, 0);
END
$$;

-- After each statement that schedules files: those that others read are taken out again.
CREATE FUNCTION ducklake.keep_shared_files() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    released record;
    left_over integer;
BEGIN
    -- A fork changes this row first. So either it waits for what is scheduled here and does not
    -- copy it, or this statement waits, and sees the fork or fails and is tried again.
    PERFORM FROM ducklake.ducklake_catalog c
    WHERE c.catalog_id IN (SELECT n.catalog_id FROM changed n) FOR SHARE;
    FOR released IN
        -- Distinct, or a file scheduled twice by one would be let go for two.
        SELECT DISTINCT n.catalog_id, n.data_file_id AS file_id, s.owner_id, s.path
        FROM changed n
        JOIN ducklake.file_reader r ON r.catalog_id = n.catalog_id AND r.file_id = n.data_file_id
        JOIN ducklake.shared_file s ON s.file_id = n.data_file_id
        ORDER BY 2
    LOOP
        UPDATE ducklake.shared_file s SET readers = s.readers - 1
        WHERE s.file_id = released.file_id RETURNING s.readers INTO left_over;
        DELETE FROM ducklake.file_reader r
        WHERE r.catalog_id = released.catalog_id AND r.file_id = released.file_id;
        IF left_over > 0 OR released.owner_id <> released.catalog_id THEN
            DELETE FROM ducklake.ducklake_files_scheduled_for_deletion d
            WHERE d.catalog_id = released.catalog_id AND d.data_file_id = released.file_id;
        END IF;
        IF left_over > 0 AND released.owner_id = released.catalog_id THEN
            PERFORM ducklake.keep_row_of_shared_file(
                released.owner_id, released.file_id, released.path);
        ELSIF left_over = 0 THEN
            DELETE FROM ducklake.shared_file s WHERE s.file_id = released.file_id;
            IF released.owner_id <> released.catalog_id THEN
                DELETE FROM ducklake.ducklake_data_file f
                WHERE f.catalog_id = released.owner_id AND f.data_file_id = -released.file_id;
                INSERT INTO ducklake.ducklake_files_scheduled_for_deletion
                    (catalog_id, data_file_id, path, path_is_relative, schedule_start)
                VALUES (released.owner_id, released.file_id, released.path, false, now());
            END IF;
        END IF;
    END LOOP;
    -- What its owner schedules again, after having let it go for himself, or under another id.
    IF EXISTS (
        SELECT FROM ducklake.shared_file s WHERE s.owner_id IN (SELECT n.catalog_id FROM changed n)
    ) THEN
        DELETE FROM ducklake.ducklake_files_scheduled_for_deletion d
        USING ducklake.ducklake_catalog c, ducklake.shared_file s
        WHERE (d.catalog_id, d.path) IN (SELECT n.catalog_id, n.path FROM changed n)
            AND c.catalog_id = d.catalog_id AND s.owner_id = d.catalog_id
            AND ducklake.place(s.path)
                = ducklake.place(CASE WHEN d.path_is_relative THEN c.root ELSE '' END || d.path);
    END IF;
    RETURN NULL;
END
$$;

-- After each statement that removes snapshots: the files none of the others sees are scheduled.
--
-- A stock client does this itself, but through DuckDB's scanner, which copies the rows in without
-- naming columns; a view that can be deleted from has one column more. Once they are gone from the
-- file tables, the client finds nothing left to do. A client that names its columns says so with
-- the setting ducklake.schedules_files.
CREATE FUNCTION ducklake.schedule_unreached_files() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    catalog bigint;
    unreached bigint[];
BEGIN
    IF current_setting('ducklake.schedules_files', true) = 'on' THEN
        RETURN NULL;
    END IF;
    FOR catalog IN SELECT DISTINCT g.catalog_id FROM gone g LOOP
        SELECT array_agg(f.id) INTO unreached FROM (
            SELECT d.data_file_id AS id, d.begin_snapshot, d.end_snapshot
            FROM ducklake.ducklake_data_file d WHERE d.catalog_id = catalog
            UNION ALL
            SELECT d.delete_file_id, d.begin_snapshot, d.end_snapshot
            FROM ducklake.ducklake_delete_file d WHERE d.catalog_id = catalog
        ) f
        WHERE f.end_snapshot IS NOT NULL AND NOT EXISTS (
            SELECT FROM ducklake.ducklake_snapshot s WHERE s.catalog_id = catalog
                AND s.snapshot_id >= f.begin_snapshot AND s.snapshot_id < f.end_snapshot);
        CONTINUE WHEN unreached IS NULL;
        unreached := unreached || ARRAY(
            SELECT d.delete_file_id FROM ducklake.ducklake_delete_file d
            WHERE d.catalog_id = catalog AND d.data_file_id = ANY (unreached)
                AND NOT d.delete_file_id = ANY (unreached));
        INSERT INTO ducklake.ducklake_files_scheduled_for_deletion
            (catalog_id, data_file_id, path, path_is_relative, schedule_start)
        SELECT catalog, f.file_id,
            CASE WHEN starts_with(f.full_path, c.root) THEN substr(f.full_path, length(c.root) + 1)
                ELSE f.full_path END,
            starts_with(f.full_path, c.root), now()
        FROM ducklake.files_of(catalog, NULL) f
        JOIN ducklake.ducklake_catalog c ON c.catalog_id = catalog
        WHERE f.file_id = ANY (unreached);
        DELETE FROM ducklake.ducklake_data_file d
        WHERE d.catalog_id = catalog AND d.data_file_id = ANY (unreached);
        DELETE FROM ducklake.ducklake_delete_file d
        WHERE d.catalog_id = catalog AND d.delete_file_id = ANY (unreached);
        DELETE FROM ducklake.ducklake_file_column_stats d
        WHERE d.catalog_id = catalog AND d.data_file_id = ANY (unreached);
        DELETE FROM ducklake.ducklake_file_variant_stats d
        WHERE d.catalog_id = catalog AND d.data_file_id = ANY (unreached);
        DELETE FROM ducklake.ducklake_file_partition_value d
        WHERE d.catalog_id = catalog AND d.data_file_id = ANY (unreached);
    END LOOP;
    RETURN NULL;
END
$$;
