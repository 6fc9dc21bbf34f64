-- Dropping: the rows go at once, the files when their grace has passed and no fork reads them.

CREATE FUNCTION ducklake.drop_catalog(name text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    id bigint := ducklake.live_catalog(name);
    inlined record;
BEGIN
    -- See require_live: whoever commits just now is waited for, so that what he wrote goes as well.
    PERFORM FROM ducklake.ducklake_metadata o
    WHERE o.catalog_id = id AND o.key = 'data_path' AND o.scope IS NULL FOR UPDATE;
    UPDATE ducklake.ducklake_catalog c SET state = 'dropped', dropped_at = now()
    WHERE c.catalog_id = id;
    FOR inlined IN
        SELECT r.relname
        FROM (SELECT DISTINCT t.table_id FROM ducklake.ducklake_table t WHERE t.catalog_id = id) t
        JOIN pg_class r ON r.relnamespace = 'lake'::regnamespace AND r.relkind = 'r' AND (
            r.relname = 'ducklake_inlined_delete_' || t.table_id
            OR r.relname LIKE 'ducklake\_inlined\_data\_' || t.table_id || '\_%')
    LOOP
        EXECUTE format('DROP TABLE lake.%I', inlined.relname);
    END LOOP;
    PERFORM set_config('ducklake.schedules_files', 'on', true);
    INSERT INTO ducklake.ducklake_files_scheduled_for_deletion
        (catalog_id, data_file_id, path, path_is_relative, schedule_start)
    SELECT id, f.file_id, f.full_path, false, now() FROM ducklake.files_of(id, NULL) f;
    DELETE FROM ducklake.catalog_prefix p WHERE p.catalog_id = id;
    DELETE FROM ducklake.catalog_grant g WHERE g.catalog_id = id;
    -- {deletes}
    RETURN id;
END
$$;
