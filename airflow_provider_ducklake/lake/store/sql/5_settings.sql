-- The options of a catalog, which clients set one by one.
--
-- To set one, DuckDB counts its rows; then it updates by ctid, or copies a row in without naming
-- columns. No view can take both. This one takes rows, and puts each in the place of the one with
-- the same key and scope; and it shows none to a scan of DuckDB, COPY (SELECT …), that asks for no
-- value, so that whoever counts goes on to add.

-- What a catalog is cannot be changed from inside it: its root, its format, its encryption.
CREATE FUNCTION ducklake.guard_settings() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    fixed CONSTANT text[] := ARRAY['data_path', 'version', 'encrypted'];
BEGIN
    IF NOT ducklake.is_service() AND (
        (TG_OP <> 'INSERT' AND lower(OLD.key) = ANY (fixed))
        OR (TG_OP <> 'DELETE' AND lower(NEW.key) = ANY (fixed))
    ) THEN
        RAISE EXCEPTION 'data_path, version and encrypted are fixed by the store'
            USING ERRCODE = 'DL003';
    END IF;
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END
$$;

CREATE VIEW lake.ducklake_metadata WITH (security_barrier) AS
SELECT "key", "value", "scope", "scope_id" FROM ducklake.ducklake_metadata
WHERE catalog_id = ducklake.current_catalog_id()
    AND (current_query() !~* '^\s*copy\s*\(' OR position('value' IN lower(current_query())) > 0);

CREATE FUNCTION ducklake.set_option() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- What follows runs as the owner of the store, which require_write lets pass.
    IF NOT ducklake.may_write(ducklake.current_catalog_id()) THEN
        RAISE EXCEPTION 'role "%" was granted this catalog for reading only', session_user
            USING ERRCODE = 'DL002';
    END IF;
    PERFORM ducklake.require_live(ducklake.current_catalog_id());
    DELETE FROM ducklake.ducklake_metadata o
    WHERE o.catalog_id = ducklake.current_catalog_id() AND o.key = NEW.key
        AND o.scope IS NOT DISTINCT FROM NEW.scope AND o.scope_id IS NOT DISTINCT FROM NEW.scope_id;
    INSERT INTO ducklake.ducklake_metadata (catalog_id, key, value, scope, scope_id)
    VALUES (ducklake.current_catalog_id(), NEW.key, NEW.value, NEW.scope, NEW.scope_id);
    RETURN NEW;
END
$$;

CREATE TRIGGER set_option INSTEAD OF INSERT ON lake.ducklake_metadata
    FOR EACH ROW EXECUTE FUNCTION ducklake.set_option();
