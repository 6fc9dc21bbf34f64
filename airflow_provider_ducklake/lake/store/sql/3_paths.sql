-- No catalog names a file under the root of another, except one it shares since a fork.

-- An absolute path in one spelling; NULL where it has `.` or `..` in it.
CREATE FUNCTION ducklake.canonical(path text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
RETURN CASE
    WHEN path ~ '(^|[/\\])\.{1,2}([/\\]|$)' THEN NULL
    WHEN path ~* '^file:' THEN '/' || regexp_replace(regexp_replace(path, '^[^:]*:/*', ''), '/{2,}', '/', 'g')
    WHEN path ~ '^[A-Za-z][A-Za-z0-9+.-]*://' THEN
        regexp_replace(lower(split_part(path, '://', 1)), '^s3[an]$', 's3') || '://'
        || regexp_replace(ltrim(substr(path, strpos(path, '://') + 3), '/'), '/{2,}', '/', 'g')
    ELSE regexp_replace(path, '/{2,}', '/', 'g')
END;

-- Every directory above a path, the ones a root could be.
CREATE FUNCTION ducklake.directories(path text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
RETURN ARRAY(
    SELECT substr(path, 1, i) FROM generate_series(1, length(path)) AS i WHERE substr(path, i, 1) = '/'
);

CREATE FUNCTION ducklake.is_foreign(catalog bigint, path text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN ducklake.canonical(path) IS NULL OR EXISTS (
    SELECT FROM ducklake.ducklake_catalog c
    WHERE c.root = ANY (ducklake.directories(ducklake.canonical(path))) AND c.catalog_id <> catalog
);

-- After each statement on a table with paths; its argument is the column with the id of the row.
CREATE FUNCTION ducklake.guard_paths() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    bad text;
BEGIN
    SELECT n.path INTO bad FROM changed n
    WHERE CASE
        WHEN n.path_is_relative THEN
            n.path ~ '(^|[/\\])\.{1,2}([/\\]|$)' OR n.path ~ '^(/|[A-Za-z][A-Za-z0-9+.-]*:)'
        ELSE ducklake.is_foreign(n.catalog_id, n.path) AND NOT EXISTS (
            SELECT FROM ducklake.file_reader r JOIN ducklake.shared_file s USING (file_id)
            WHERE r.catalog_id = n.catalog_id
                AND r.file_id = (to_jsonb(n) ->> TG_ARGV[0])::bigint
                AND ducklake.canonical(s.path) = ducklake.canonical(n.path)
        )
    END
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the path "%" leaves the root of its catalog, or lies under that of another', bad
            USING ERRCODE = 'DL003';
    END IF;
    RETURN NULL;
END
$$;
