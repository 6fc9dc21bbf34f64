-- Tables for inlined rows, which clients of the service make in the schema `lake`, are of all its
-- logins: whichever made one, any of them reads, flushes, forks and drops it.

-- At the end of a transaction that may have made such tables, as whoever made them.
CREATE FUNCTION ducklake.share_inlined_tables() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    own record;
BEGIN
    FOR own IN
        SELECT r.relname FROM pg_class r
        WHERE r.relname LIKE 'ducklake\_inlined\_%' AND r.relnamespace = 'lake'::regnamespace
            AND r.relkind = 'r' AND r.relowner = quote_ident(current_user)::regrole
    LOOP
        EXECUTE format('ALTER TABLE lake.%I OWNER TO ducklake_service', own.relname);
    END LOOP;
    RETURN NULL;
END
$$;

-- Whether such a table has rows, for a fleet plan: its size says only that it had some since the
-- last vacuum. No table of one catalog is to stop the plan of all, and none is to run code of
-- whoever made it: only tables can be sampled, no views, and policies are not asked.
CREATE FUNCTION ducklake.has_inlined_rows(inlined_table text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s'
SET row_security = off
AS $$
DECLARE
    found boolean;
BEGIN
    EXECUTE format(
        'SELECT EXISTS (SELECT FROM ONLY lake.%I TABLESAMPLE SYSTEM (100))', inlined_table
    ) INTO found;
    RETURN found;
EXCEPTION
    WHEN undefined_table THEN RETURN false;  -- dropped meanwhile
    WHEN OTHERS THEN RETURN true;  -- maintenance will tell
END
$$;
