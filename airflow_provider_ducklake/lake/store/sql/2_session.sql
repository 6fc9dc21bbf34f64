-- Which catalog a session sees, and whether it may change it.
--
-- Both are asked of the session's login role: inside a SECURITY DEFINER function the current role
-- is the owner of the store, and SET ROLE must not open another tenant's catalog.

CREATE FUNCTION ducklake.is_service() RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN pg_has_role(session_user, 'ducklake_service', 'USAGE');

CREATE FUNCTION ducklake.may_read(catalog bigint) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN ducklake.is_service() OR EXISTS (
    SELECT FROM ducklake.catalog_grant g
    WHERE g.catalog_id = catalog AND g.role_name = session_user
);

CREATE FUNCTION ducklake.may_write(catalog bigint) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN ducklake.is_service() OR EXISTS (
    SELECT FROM ducklake.catalog_grant g
    WHERE g.catalog_id = catalog AND g.role_name = session_user AND g.writable
);

-- The chosen catalog: by the setting ducklake.catalog_id, or by its name in ducklake.catalog.
-- One that does not exist and one that belongs to somebody else are refused in the same words.
CREATE FUNCTION ducklake.current_catalog_id() RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    by_id text := nullif(current_setting('ducklake.catalog_id', true), '');
    by_name text := nullif(current_setting('ducklake.catalog', true), '');
    found bigint;
BEGIN
    IF by_id IS NULL AND by_name IS NULL THEN
        RAISE EXCEPTION 'no catalog is chosen: set ducklake.catalog to its name'
            USING ERRCODE = 'DL001';
    END IF;
    IF by_id ~ '^[0-9]{1,10}$' THEN
        SELECT c.catalog_id INTO found FROM ducklake.ducklake_catalog c
        WHERE c.catalog_id = by_id::bigint AND c.state = 'live'
            AND (by_name IS NULL OR lower(c.catalog_name) = lower(by_name));
    ELSIF by_id IS NULL THEN
        SELECT c.catalog_id INTO found FROM ducklake.ducklake_catalog c
        WHERE lower(c.catalog_name) = lower(by_name) AND c.state = 'live';
    END IF;
    -- The grant is asked in either case, or the time it takes would tell one from the other.
    IF NOT ducklake.may_read(coalesce(found, -1)) OR found IS NULL THEN
        RAISE EXCEPTION 'catalog "%" does not exist, or role "%" was not granted it',
            coalesce(by_name, by_id), session_user USING ERRCODE = 'DL001';
    END IF;
    RETURN found;
END
$$;

-- After each statement that changes a metadata table, whoever runs it. It asks the rows, not the
-- setting: a statement may change the setting while it runs. What the store's own functions change
-- beside it is not asked for: a fork that lets go of a file hands it back to its parent.
CREATE FUNCTION ducklake.require_write() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT ducklake.is_service() AND EXISTS (
        SELECT FROM (SELECT DISTINCT n.catalog_id FROM changed n) c
        WHERE NOT ducklake.may_write(c.catalog_id)
    ) THEN
        RAISE EXCEPTION 'role "%" was granted this catalog for reading only', session_user
            USING ERRCODE = 'DL002';
    END IF;
    RETURN NULL;
END
$$;

-- Refuse to add to a catalog that is no more: the rows and files would stay for ever. Its data path
-- goes with it and else never changes, so this lock holds up nobody but a drop, which waits for it.
-- A session that began before the drop sees the row still, and is refused by the database itself.
CREATE FUNCTION ducklake.require_live(catalog bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM ducklake.ducklake_metadata o
    WHERE o.catalog_id = catalog AND o.key = 'data_path' AND o.scope IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the catalog was dropped meanwhile' USING ERRCODE = 'DL001';
    END IF;
END
$$;

-- After each statement that makes snapshots, as every commit does.
CREATE FUNCTION ducklake.guard_snapshot() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM ducklake.require_live(c.catalog_id)
    FROM (SELECT DISTINCT n.catalog_id FROM changed n) c;
    RETURN NULL;
END
$$;
