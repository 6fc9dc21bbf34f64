-- No catalog gets a root that others have named files under: it would sweep them for orphans, and
-- whoever named them would delete its own.

CREATE INDEX ducklake_data_file_place ON ducklake.ducklake_data_file
    (ducklake.place(path) text_pattern_ops) WHERE NOT path_is_relative;
CREATE INDEX ducklake_delete_file_place ON ducklake.ducklake_delete_file
    (ducklake.place(path) text_pattern_ops) WHERE NOT path_is_relative;
CREATE INDEX ducklake_scheduled_place ON ducklake.ducklake_files_scheduled_for_deletion
    (ducklake.place(path) text_pattern_ops) WHERE NOT path_is_relative;
CREATE INDEX ducklake_table_place ON ducklake.ducklake_table
    (ducklake.place(path) text_pattern_ops) WHERE NOT path_is_relative;
CREATE INDEX ducklake_schema_place ON ducklake.ducklake_schema
    (ducklake.place(path) text_pattern_ops) WHERE NOT path_is_relative;

-- Who names a file or a directory below a root-to-be, or a directory around it, to which its
-- clients append; no row where nobody does.
CREATE FUNCTION ducklake.claim_on(root text) RETURNS TABLE (catalog_id bigint, path text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT n.catalog_id, n.path
    FROM (
        SELECT f.catalog_id, f.path, false AS is_directory FROM ducklake.ducklake_data_file f
        WHERE NOT f.path_is_relative
        UNION ALL
        SELECT f.catalog_id, f.path, false FROM ducklake.ducklake_delete_file f
        WHERE NOT f.path_is_relative
        UNION ALL
        SELECT f.catalog_id, f.path, false FROM ducklake.ducklake_files_scheduled_for_deletion f
        WHERE NOT f.path_is_relative
        UNION ALL
        SELECT t.catalog_id, t.path, true FROM ducklake.ducklake_table t
        WHERE NOT t.path_is_relative
        UNION ALL
        SELECT s.catalog_id, s.path, true FROM ducklake.ducklake_schema s
        WHERE NOT s.path_is_relative
    ) n
    -- Whatever begins with it, see is_foreign_directory.
    WHERE (ducklake.place(n.path) ~>=~ ducklake.place(root)
            AND ducklake.place(n.path) ~<~ (rtrim(ducklake.place(root), '/') || '0'))
        OR (n.is_directory AND ducklake.place(n.path) = ANY (ducklake.directories(ducklake.place(root))))
    LIMIT 1;
END;
