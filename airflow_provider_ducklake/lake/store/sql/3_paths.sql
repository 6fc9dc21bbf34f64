-- No catalog names a file under the root of another, except one it shares since a fork.

-- Where a full path leads, in one spelling for all that lead there: to be compared, not opened. NULL
-- where that cannot be told: with `.` or `..` in it, and where a client would put its working or
-- home directory in front; nor of what the kernel shows as files, where one file has many paths.
-- The account of an Azure container may be left out, so it is here.
CREATE FUNCTION ducklake.place(path text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
RETURN (
    SELECT CASE
        WHEN length(path) > 4096 THEN NULL
        WHEN path ~ '(^|[/\\])\.{1,2}([/\\]|$)' OR path ~* '^file://(?!localhost/|/)' THEN NULL
        WHEN single ~* '^(file:(/localhost)?)?/(proc|sys|dev(?!/shm/))(/|$)' THEN NULL
        WHEN path ~* '^(file:)?/' THEN regexp_replace(single, '^file:(/localhost(?=/))?', '', 'i')
        WHEN path ~ '^[A-Za-z][A-Za-z0-9+.-]*://' THEN
            lower(substring(aliased, '^[^/]*/[^/]*')) || substring(aliased, '^[^/]*/[^/]*(.*)$')
    END
    FROM regexp_replace(path, '/{2,}', '/', 'g') AS single,
        LATERAL regexp_replace(single, '^(s3[an]?|r2):/([^/]*@)?', 's3:/', 'i') AS s3,
        LATERAL regexp_replace(s3, '^gcs:/', 'gs:/', 'i') AS gs,
        LATERAL regexp_replace(
            gs, '^(az|azure|wasbs?|abfss?):/([^/@]*\.[^/@]*/)?([^/@]*)(@[^/]*)?', 'az:/\3', 'i'
        ) AS aliased
);

CREATE UNIQUE INDEX ducklake_catalog_root
    ON ducklake.ducklake_catalog (ducklake.place(root) text_pattern_ops);

-- A root as it is stored and given to clients; NULL for what is no full path.
CREATE FUNCTION ducklake.canonical(path text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
RETURN CASE
    WHEN ducklake.place(path) IS NULL OR path ~* '^(file:)?/' THEN ducklake.place(path)
    ELSE
        regexp_replace(lower(split_part(path, '://', 1)), '^s3[an]$', 's3') || '://'
        || regexp_replace(ltrim(substr(path, strpos(path, '://') + 3), '/'), '/{2,}', '/', 'g')
END;

-- Whether files can be written below it: clients take "*" and "?" for patterns.
CREATE FUNCTION ducklake.is_root(canonical_path text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
RETURN canonical_path ~ '^(/|(s3|gs|gcs|az|azure|wasbs?|abfss?)://[^/])' AND canonical_path !~ '[[:cntrl:]*?]';

-- Every directory above a path, the ones a root could be.
CREATE FUNCTION ducklake.directories(path text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
RETURN ARRAY(
    SELECT substr(path, 1, i) FROM generate_series(1, length(path)) AS i WHERE substr(path, i, 1) = '/'
);

CREATE FUNCTION ducklake.is_foreign(catalog bigint, path text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN ducklake.place(path) IS NULL OR EXISTS (
    SELECT FROM ducklake.ducklake_catalog c
    WHERE ducklake.place(c.root) = ANY (ducklake.directories(ducklake.place(path) || '/'))
        AND c.catalog_id <> catalog
);

-- The same of a directory, to which clients append: it may not lie around the root of another, or
-- of the whole store, or be the beginning of its name.
CREATE FUNCTION ducklake.is_foreign_directory(catalog bigint, path text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN path !~ '/$' OR ducklake.is_foreign(catalog, path) OR EXISTS (
    SELECT FROM ducklake.ducklake_catalog c
    -- Whatever begins with it: "0" is the character behind "/".
    WHERE ducklake.place(c.root) ~>=~ ducklake.place(path)
        AND ducklake.place(c.root) ~<~ (rtrim(ducklake.place(path), '/') || '0')
        AND c.catalog_id <> catalog
) OR EXISTS (
    SELECT FROM ducklake.store s WHERE starts_with(ducklake.place(s.root), ducklake.place(path))
);

-- Whether a catalog may name a full path at all, so that no job opens for it what its tenants could
-- not. Below the store's root it is asked first, and whoever owns what is there, or is to own it,
-- gets the same answer: else the refusal would tell which catalogs there are.
CREATE FUNCTION ducklake.is_admitted(catalog bigint, path text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN EXISTS (
    SELECT FROM ducklake.ducklake_catalog c
    WHERE c.catalog_id = catalog AND starts_with(ducklake.place(path) || '/', ducklake.place(c.root))
) OR (
    NOT EXISTS (
        SELECT FROM ducklake.store s
        WHERE starts_with(ducklake.place(path) || '/', ducklake.place(s.root))
    ) AND (ducklake.is_service() OR EXISTS (
        SELECT FROM ducklake.catalog_prefix p
        WHERE p.catalog_id = catalog
            AND p.prefix = ANY (ducklake.directories(ducklake.place(path) || '/'))
    ))
);

-- What a login of the service names outside a catalog's root, its tenants may name as well: they
-- expire and compact the files that are there.
CREATE FUNCTION ducklake.remember_place(catalog bigint, path text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    INSERT INTO ducklake.catalog_prefix (catalog_id, prefix)
    SELECT catalog, rtrim(ducklake.place(path), '/') || '/'
    FROM ducklake.ducklake_catalog c
    WHERE c.catalog_id = catalog
        AND NOT starts_with(ducklake.place(path) || '/', ducklake.place(c.root))
    ON CONFLICT DO NOTHING;
END;

-- A file that a catalog reads since a fork, by its id: it may lie anywhere.
CREATE FUNCTION ducklake.is_shared(catalog bigint, file bigint, path text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN EXISTS (
    SELECT FROM ducklake.file_reader r JOIN ducklake.shared_file s USING (file_id)
    WHERE r.catalog_id = catalog AND r.file_id = file
        AND ducklake.place(s.path) = ducklake.place(is_shared.path)
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
        WHEN length(n.path) > 4096 THEN true
        WHEN n.path_is_relative THEN
            n.path ~ '(^|[/\\])\.{1,2}([/\\]|$)' OR n.path ~ '^(/|[A-Za-z][A-Za-z0-9+.-]*:)'
        WHEN TG_ARGV[0] IN ('schema_id', 'table_id') THEN
            NOT ducklake.is_admitted(n.catalog_id, n.path)
            OR ducklake.is_foreign_directory(n.catalog_id, n.path)
        ELSE (
            NOT ducklake.is_admitted(n.catalog_id, n.path)
            OR ducklake.is_foreign(n.catalog_id, n.path)
        ) AND NOT ducklake.is_shared(n.catalog_id, (to_jsonb(n) ->> TG_ARGV[0])::bigint, n.path)
    END
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the path "%" leaves the root of its catalog, or lies under that of another, or is none that the catalog was allowed', left(bad, 4096)
            USING ERRCODE = 'DL003',
            HINT = 'A login of the service allows a place outside with: store allow';
    END IF;
    IF ducklake.is_service() THEN
        PERFORM ducklake.remember_place(n.catalog_id, n.path) FROM changed n
        WHERE NOT n.path_is_relative AND (
            TG_ARGV[0] IN ('schema_id', 'table_id')
            OR NOT ducklake.is_shared(n.catalog_id, (to_jsonb(n) ->> TG_ARGV[0])::bigint, n.path));
    END IF;
    RETURN NULL;
END
$$;

-- Before each row of a file whose id is not in the range of its catalog. A fork knows the files it
-- shares by their ids, so nobody may give his own file the id of another's.
CREATE FUNCTION ducklake.guard_file_id() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    id CONSTANT bigint := to_jsonb(NEW) ->> TG_ARGV[0];
BEGIN
    IF NOT EXISTS (
        SELECT FROM ducklake.file_reader r WHERE r.catalog_id = NEW.catalog_id AND r.file_id = id
    ) AND NOT EXISTS (
        -- See keep_row_of_shared_file.
        SELECT FROM ducklake.shared_file s WHERE s.owner_id = NEW.catalog_id AND s.file_id = -id
    ) THEN
        RAISE EXCEPTION 'the file id % is not one of this catalog: take the next from next_file_id of the newest snapshot', id
            USING ERRCODE = 'DL003';
    END IF;
    RETURN NEW;
END
$$;
