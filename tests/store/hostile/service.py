"""What a hostile login of the service tries: to be more than that, by what others run later."""

from __future__ import annotations

_EVIL = (
    "CREATE FUNCTION lake.{0}() RETURNS {1} LANGUAGE plpgsql AS $$ BEGIN "
    "BEGIN ALTER ROLE a_service SUPERUSER; EXCEPTION WHEN OTHERS THEN NULL; END; "
    "BEGIN GRANT ducklake_tenant TO a_service WITH ADMIN OPTION; "
    "EXCEPTION WHEN OTHERS THEN NULL; END; "
    "BEGIN GRANT ducklake_owner TO a_service; EXCEPTION WHEN OTHERS THEN NULL; END; "
    "{2} END $$"
)
# It may make functions and tables beside the views. Nobody is to run them unasked.
PREPARED = [
    _EVIL.format("evil", "trigger", "RETURN NULL;"),
    _EVIL.format("evil_value", "boolean", "RETURN true;"),
    "CREATE TYPE lake.bait AS (catalog_id bigint, data_file_id bigint)",
    "CREATE FUNCTION lake.evil_cast(lake.bait) RETURNS json LANGUAGE sql "
    "AS $$ SELECT to_json(lake.evil_value()) $$",
    "CREATE CAST (lake.bait AS json) WITH FUNCTION lake.evil_cast(lake.bait)",
    "CREATE TABLE lake.trap (catalog_id bigint, data_file_id bigint, path text, "
    "path_is_relative boolean, bait lake.bait)",
]
# All of these have to fail.
SERVICE = [
    "CREATE TRIGGER evil AFTER INSERT OR UPDATE ON ducklake.ducklake_catalog "
    "FOR EACH ROW EXECUTE FUNCTION lake.evil()",
    "CREATE TRIGGER evil AFTER INSERT ON ducklake.ducklake_snapshot "
    "FOR EACH STATEMENT EXECUTE FUNCTION lake.evil()",
    "CREATE TRIGGER evil INSTEAD OF INSERT ON lake.ducklake_snapshot "
    "FOR EACH ROW EXECUTE FUNCTION lake.evil()",
    "CREATE TRIGGER evil BEFORE INSERT ON lake.trap "
    "FOR EACH ROW EXECUTE FUNCTION ducklake.guard_file_id('data_file_id')",
    "CREATE TRIGGER evil AFTER INSERT ON lake.trap REFERENCING NEW TABLE AS changed "
    "EXECUTE FUNCTION ducklake.guard_paths('bait')",
    "CREATE TRIGGER evil AFTER INSERT ON lake.trap REFERENCING NEW TABLE AS changed "
    "EXECUTE FUNCTION ducklake.keep_shared_files()",
    "CREATE TRIGGER evil AFTER DELETE ON lake.trap REFERENCING OLD TABLE AS gone "
    "EXECUTE FUNCTION ducklake.schedule_unreached_files()",
    "CREATE TABLE lake.holder (i bigint REFERENCES ducklake.ducklake_catalog (catalog_id))",
    "TRUNCATE ducklake.ducklake_snapshot",
    "CREATE RULE evil AS ON INSERT TO ducklake.ducklake_catalog DO ALSO SELECT lake.evil_value()",
    "CREATE POLICY evil ON ducklake.ducklake_catalog USING (lake.evil_value())",
    "ALTER TABLE ducklake.ducklake_catalog ADD CHECK (lake.evil_value())",
    "ALTER TABLE ducklake.ducklake_catalog ALTER root SET DEFAULT lake.evil_value()",
    "ALTER TABLE ducklake.ducklake_catalog DISABLE TRIGGER ALL",
    "CREATE INDEX ON ducklake.ducklake_catalog (lake.evil_value())",
    "CREATE OR REPLACE VIEW lake.ducklake_table AS SELECT lake.evil_value()",
    "CREATE OR REPLACE FUNCTION ducklake.place(path text) RETURNS text RETURN 'x'",
    "ALTER FUNCTION ducklake.admit(text) OWNER TO a_service",
    "ALTER FUNCTION ducklake.admit(text) SET search_path = lake",
    "CREATE FUNCTION ducklake.evil() RETURNS text RETURN 'x'",
    "CREATE TABLE ducklake.evil (i integer)",
    "CREATE VIEW ducklake_api.evil AS SELECT 1",
    "DROP SCHEMA lake CASCADE",
    "ALTER SCHEMA lake OWNER TO a_service",
    "SELECT setval('ducklake.ducklake_catalog_catalog_id_seq', 1)",
    "CREATE EVENT TRIGGER evil ON ddl_command_end EXECUTE FUNCTION lake.evil()",
    "ALTER DEFAULT PRIVILEGES FOR ROLE ducklake_owner GRANT ALL ON TABLES TO a_service",
    "SET ROLE ducklake_owner",
    "SET ROLE ducklake_tenant",
    "GRANT ducklake_tenant TO a_bystander",
    "SELECT ducklake.grant_catalog('mine', 'ducklake_owner', true)",
    "SELECT ducklake.grant_catalog('mine', 'ducklake_tenant', true)",
    """SELECT ducklake.admit('x"; ALTER ROLE a_service SUPERUSER; --')""",
    "ALTER ROLE a_service SUPERUSER",
    "COPY ducklake.store TO PROGRAM 'true'",
]
# Tables for inlined rows of `mine`, which a fork looks into.
INLINED = [
    "CREATE TABLE lake.ducklake_inlined_delete_{table} (file_id bigint)",
    "ALTER TABLE lake.ducklake_inlined_delete_{table} ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE lake.ducklake_inlined_delete_{table} FORCE ROW LEVEL SECURITY",
    "CREATE POLICY evil ON lake.ducklake_inlined_delete_{table} USING (lake.evil_value())",
    "CREATE TRIGGER evil AFTER INSERT OR DELETE ON lake.ducklake_inlined_delete_{table} "
    "FOR EACH STATEMENT EXECUTE FUNCTION lake.evil()",
]
