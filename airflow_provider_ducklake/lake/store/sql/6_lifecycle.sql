-- Creating, renaming and dropping catalogs, and who may use them: for the service role alone.

-- The first of the ids a catalog gives: no other catalog of the store ever gives one of them.
CREATE FUNCTION ducklake.first_id(catalog bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
RETURN catalog << 32;

CREATE FUNCTION ducklake.live_catalog(name text) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found bigint;
BEGIN
    SELECT c.catalog_id INTO found FROM ducklake.ducklake_catalog c
    WHERE lower(c.catalog_name) = lower(name) AND c.state = 'live';
    IF found IS NULL THEN
        RAISE EXCEPTION 'there is no catalog "%" in the store', name USING ERRCODE = 'DL001';
    END IF;
    RETURN found;
END
$$;

-- Refuse a name that is none, or that another catalog has; a renamed one may keep its own.
CREATE FUNCTION ducklake.check_name(name text, renamed bigint) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF name IS NULL OR name !~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$' OR name ~ '\.\.' THEN
        RAISE EXCEPTION 'a catalog cannot be called "%": letters, digits, "_", "-" and "." only, up to 63', name
            USING ERRCODE = 'DL004';
    END IF;
    IF EXISTS (
        SELECT FROM ducklake.ducklake_catalog c
        WHERE lower(c.catalog_name) = lower(name) AND c.state = 'live'
            AND c.catalog_id IS DISTINCT FROM renamed
    ) THEN
        RAISE EXCEPTION 'catalog "%" exists already', name USING ERRCODE = 'DL005';
    END IF;
END
$$;

-- Enter a catalog into the registry under a root of its own.
CREATE FUNCTION ducklake.register_catalog(
    name text, wanted_root text, parent bigint, snapshot bigint
) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    id bigint;
    lineage bigint;
    new_root text;
    claim record;
BEGIN
    PERFORM ducklake.check_name(name, NULL);
    id := nextval(pg_get_serial_sequence('ducklake.ducklake_catalog', 'catalog_id'));
    new_root := ducklake.canonical(rtrim(wanted_root, '/') || '/');
    IF wanted_root IS NULL THEN
        SELECT s.root || name || '/' INTO new_root FROM ducklake.store s;
        -- Files of a dropped catalog of that name may still wait there, or somebody was quick to
        -- name some of his own, who is not to keep others from their names.
        IF EXISTS (
            SELECT FROM ducklake.ducklake_catalog c WHERE ducklake.place(c.root) = ducklake.place(new_root)
        ) OR EXISTS (SELECT FROM ducklake.claim_on(new_root)) THEN
            SELECT s.root || name || '~' || id || '/' INTO new_root FROM ducklake.store s;
        END IF;
    ELSIF NOT coalesce(ducklake.is_root(new_root), false) THEN
        RAISE EXCEPTION 'the root "%" is no full path or URL that can be written to: take a local path, s3://, gs:// or az:// (also abfss), without control characters, * and ?', wanted_root
            USING ERRCODE = 'DL004';
    END IF;
    IF ducklake.is_foreign_directory(id, new_root) THEN
        RAISE EXCEPTION 'the root "%" lies in that of another catalog, or around it, or around the whole store', new_root
            USING ERRCODE = 'DL003';
    END IF;
    SELECT c.catalog_name, n.path INTO claim
    FROM ducklake.claim_on(new_root) n JOIN ducklake.ducklake_catalog c USING (catalog_id);
    IF FOUND THEN
        RAISE EXCEPTION 'catalog "%" names %, which lies in the root "%" or around it: take another root, or import the catalog that owns the directory first, then those that share its files',
            claim.catalog_name, claim.path, new_root USING ERRCODE = 'DL003';
    END IF;
    SELECT c.lineage_id INTO lineage FROM ducklake.ducklake_catalog c WHERE c.catalog_id = parent;
    INSERT INTO ducklake.ducklake_catalog
        (catalog_id, catalog_name, parent_id, parent_snapshot, lineage_id, root)
    OVERRIDING SYSTEM VALUE
    VALUES (id, name, parent, snapshot, coalesce(lineage, id), new_root);
    RETURN id;
END
$$;

CREATE FUNCTION ducklake.create_catalog(
    name text, wanted_root text, encrypted boolean, inlining_row_limit integer
) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    id bigint := ducklake.register_catalog(name, wanted_root, NULL, NULL);
    base bigint := ducklake.first_id(id);
BEGIN
    -- First, see require_live.
    INSERT INTO ducklake.ducklake_metadata (catalog_id, key, value)
    SELECT id, o.key, o.value
    FROM ducklake.ducklake_catalog c, LATERAL (VALUES
        ('version', '{format}'),
        ('created_by', 'airflow-provider-ducklake-spark'),
        ('data_path', c.root),
        ('encrypted', encrypted::text),
        -- A table for each table's inlined rows does not scale to millions of catalogs.
        ('data_inlining_row_limit', inlining_row_limit::text)
    ) AS o (key, value)
    WHERE c.catalog_id = id AND o.value IS NOT NULL;
    INSERT INTO ducklake.ducklake_snapshot
        (catalog_id, snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id)
    VALUES (id, 0, now(), 0, base + 1, base);
    INSERT INTO ducklake.ducklake_snapshot_changes (catalog_id, snapshot_id, changes_made)
    VALUES (id, 0, 'created_schema:"main"');
    INSERT INTO ducklake.ducklake_schema
        (catalog_id, schema_id, schema_uuid, begin_snapshot, schema_name, path, path_is_relative)
    VALUES (id, base, gen_random_uuid(), 0, 'main', 'main/', true);
    RETURN id;
END
$$;

CREATE FUNCTION ducklake.rename_catalog(name text, new_name text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    id bigint := ducklake.live_catalog(name);
BEGIN
    PERFORM ducklake.check_name(new_name, id);
    UPDATE ducklake.ducklake_catalog c SET catalog_name = new_name WHERE c.catalog_id = id;
    RETURN id;
END
$$;

CREATE FUNCTION ducklake.grant_catalog(name text, role_name text, writable boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF to_regrole(quote_ident(role_name)) IS NULL THEN
        RAISE EXCEPTION 'there is no role "%" in this database server', role_name
            USING ERRCODE = 'DL001';
    END IF;
    -- Who may use a catalog is asked of the login: what its groups were granted would not count.
    IF NOT (SELECT r.rolcanlogin FROM pg_roles r WHERE r.rolname = role_name)
        OR role_name IN ({roles})
    THEN
        RAISE EXCEPTION 'role "%" does not log in: grant the catalog to each of the roles that do', role_name
            USING ERRCODE = 'DL004';
    END IF;
    INSERT INTO ducklake.catalog_grant
    VALUES (ducklake.live_catalog(name), role_name, writable)
    ON CONFLICT ON CONSTRAINT catalog_grant_pkey DO UPDATE SET writable = EXCLUDED.writable;
    PERFORM ducklake.admit(role_name);
END
$$;

-- Let a catalog name what lies below a place outside its root, or one file, or no longer.
CREATE FUNCTION ducklake.allow_prefix(name text, prefix text, allowed boolean) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    id bigint := ducklake.live_catalog(name);
    place text := ducklake.place(rtrim(prefix, '/') || '/');
BEGIN
    IF NOT allowed THEN
        DELETE FROM ducklake.catalog_prefix p WHERE p.catalog_id = id AND p.prefix = place;
        RETURN FOUND;
    END IF;
    IF place IS NULL THEN
        RAISE EXCEPTION '"%" is no full path or URL', prefix USING ERRCODE = 'DL004';
    END IF;
    IF ducklake.is_foreign_directory(id, rtrim(prefix, '/') || '/')
        OR NOT ducklake.is_admitted(id, prefix) THEN
        RAISE EXCEPTION '"%" lies in the root of another catalog or of the store, or around it', prefix
            USING ERRCODE = 'DL003';
    END IF;
    INSERT INTO ducklake.catalog_prefix (catalog_id, prefix) VALUES (id, place)
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$$;

-- Make a role a tenant, who sees the catalogs it was granted. Logins of the service do it through
-- this alone: who administers a role by right could hand that right on, or lock all tenants out.
CREATE FUNCTION ducklake.admit(role_name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT pg_has_role(role_name, 'ducklake_tenant', 'USAGE') THEN
        -- A member can neither become that role nor act in its name.
        EXECUTE format('GRANT ducklake_tenant TO %I', role_name)
            || CASE WHEN current_setting('server_version_num')::integer >= 160000
                THEN ' WITH SET FALSE' ELSE '' END;
    END IF;
END
$$;

CREATE FUNCTION ducklake.revoke_catalog(name text, role text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM ducklake.catalog_grant g
    WHERE g.catalog_id = ducklake.live_catalog(name) AND g.role_name = role;
    RETURN FOUND;
END
$$;
