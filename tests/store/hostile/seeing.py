"""Attacks that go for the catalogs of others through the store's own views and functions."""

from __future__ import annotations

# Each is tried as the text of the setting, alone: there is no other choice beside it.
_IDS = [
    "'@victim_id@'", "'0@victim_id@'", "'+@victim_id@'", "'-@victim_id@'", "' @victim_id@'",
    "E'@victim_id@\\n'", "'@victim_id@.0'", "'@victim_id@e0'", "'0x@victim_id@'", "'U&\\0032'",
    "'0'", "'-1'", "'99999999999'", "'18446744073709551618'", "'NULL'", "'@own_id@,@victim_id@'",
    "'@own_id@ OR catalog_id=@victim_id@'",
    "'(SELECT max(catalog_id) FROM ducklake.ducklake_catalog)'",
    "'{@own_id@,@victim_id@}'", "'@victim@'", "'٢'",
]  # fmt: skip
_NAMES = [
    "'@victim@'", "'@VICTIM@'", "' @victim@'", "'\"@victim@\"'", "'%'", "'_%'", "E'@victim@\\\\'",
    "'@own@,@victim@'", "'@own@'' OR ''1''=''1'", "'$(id)'", "'*'", "'@victim_id@'",
    "'../@victim@'", "'lake.@victim@'", "repeat('x', 100000)",
]  # fmt: skip
_LEAK = """
CREATE FUNCTION pg_temp.leak(anyelement) RETURNS boolean LANGUAGE plpgsql COST 0.0000001
AS $$ BEGIN RAISE NOTICE 'saw %', $1; RETURN true; END $$
;
"""

SEEING: dict[str, list[str]] = {
    "choice by id": [
        f"""SELECT set_config('ducklake.catalog', '', false),
            set_config('ducklake.catalog_id', {text}, false)
        ;
        SELECT * FROM lake.ducklake_table"""
        for text in _IDS
    ],
    "choice by name": [
        f"""SELECT set_config('ducklake.catalog', {text}, false)
        ;
        SELECT * FROM lake.ducklake_data_file"""
        for text in _NAMES
    ],
    "choice": [
        "SET ducklake.catalog = '@victim@'\n;\nTABLE lake.ducklake_snapshot",
        "SET ducklake.catalog_id = @victim_id@\n;\nTABLE lake.ducklake_snapshot_changes",
        """SET ducklake.catalog = '@victim@'
        ;
        SET ducklake.catalog_id = @victim_id@
        ;
        TABLE lake.ducklake_schema""",
        """SET ducklake.catalog = '@victim@'
        ;
        SET ducklake.catalog_id = @own_id@
        ;
        TABLE lake.ducklake_column""",
        """BEGIN
        ;
        SELECT count(*) FROM lake.ducklake_table
        ;
        SET LOCAL ducklake.catalog = '@victim@'
        ;
        SELECT * FROM lake.ducklake_table
        ;
        COMMIT""",
        """BEGIN
        ;
        SAVEPOINT s
        ;
        SET ducklake.catalog = '@victim@'
        ;
        ROLLBACK TO s
        ;
        SELECT * FROM lake.ducklake_table_stats
        ;
        COMMIT""",
        "RESET ALL\n;\nSET ducklake.catalog TO '@victim@'\n;\nTABLE lake.ducklake_metadata",
        "DISCARD ALL\n;\nSET ducklake.catalog TO DEFAULT\n;\nTABLE lake.ducklake_metadata",
        "UPDATE pg_settings SET setting = '@victim@' WHERE name = 'ducklake.catalog'"
        "\n;\nTABLE lake.ducklake_metadata",
        "SELECT t.* FROM (SELECT set_config('ducklake.catalog', '@victim@', false)) s, "
        "LATERAL (SELECT * FROM lake.ducklake_table) t",
        """WITH s AS MATERIALIZED (SELECT set_config('ducklake.catalog', '@victim@', false) AS v)
        SELECT * FROM lake.ducklake_data_file, s""",
        "SELECT * FROM lake.ducklake_column "
        "WHERE set_config('ducklake.catalog', '@victim@', false) IS NOT NULL",
        "SELECT *, set_config('ducklake.catalog', '@victim@', false) FROM lake.ducklake_table "
        "UNION ALL SELECT *, '' FROM lake.ducklake_table",
        """SELECT (SELECT string_agg(t::text, ',') FROM lake.ducklake_table t),
            set_config('ducklake.catalog', '@victim@', false),
            (SELECT string_agg(t::text, ',') FROM lake.ducklake_table t)
        FROM generate_series(1, 3)""",
        """CREATE FUNCTION pg_temp.f() RETURNS SETOF lake.ducklake_table LANGUAGE sql
            SET ducklake.catalog = '@victim@' AS 'SELECT * FROM lake.ducklake_table'
        ;
        SELECT * FROM pg_temp.f()""",
        """CREATE FUNCTION pg_temp.f() RETURNS SETOF lake.ducklake_table LANGUAGE sql
            SECURITY DEFINER SET role = '@victim_role@' AS 'SELECT * FROM lake.ducklake_table'
        ;
        SELECT * FROM pg_temp.f()""",
        """PREPARE p AS SELECT * FROM lake.ducklake_table
        ;
        EXECUTE p
        ;
        SET ducklake.catalog = '@victim@'
        ;
        EXECUTE p""",
        """SET plan_cache_mode = force_generic_plan
        ;
        PREPARE p(text) AS SELECT * FROM lake.ducklake_table
            WHERE set_config('ducklake.catalog', $1, false) = $1
        ;
        EXECUTE p('@own@')
        ;
        EXECUTE p('@victim@')
        ;
        EXECUTE p('@victim@')""",
        """BEGIN
        ;
        DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT * FROM lake.ducklake_table
        ;
        SET ducklake.catalog = '@victim@'
        ;
        COMMIT
        ;
        FETCH ALL FROM c
        ;
        FETCH BACKWARD ALL FROM c""",
        """BEGIN
        ;
        DECLARE c CURSOR FOR SELECT * FROM lake.ducklake_file_column_stats
        ;
        SET ducklake.catalog = '@victim@'
        ;
        FETCH ALL FROM c
        ;
        COMMIT""",
        """SET debug_parallel_query = on
        ;
        SET ducklake.catalog = '@victim@'
        ;
        SELECT count(*), max(path) FROM lake.ducklake_data_file""",
        "SET ducklake.catalog = ''\n;\nTABLE lake.ducklake_table",
        "SET ducklake.catalog = '@dropped@'\n;\nTABLE lake.ducklake_files_scheduled_for_deletion",
        "SET ducklake.catalog = ''\n;\nSET ducklake.catalog_id = @dropped_id@"
        "\n;\nTABLE lake.ducklake_files_scheduled_for_deletion",
    ],
    "leaky conditions": [
        _LEAK + "SELECT * FROM lake.ducklake_table t WHERE pg_temp.leak(t.table_name)",
        _LEAK + "SELECT * FROM lake.ducklake_data_file f WHERE pg_temp.leak(f.path) AND false",
        _LEAK + "SELECT * FROM lake.ducklake_file_column_stats s WHERE pg_temp.leak(s.min_value)",
        _LEAK + "SELECT * FROM lake.ducklake_snapshot_changes s WHERE pg_temp.leak(s)",
        _LEAK + "SELECT * FROM ducklake_api.tables t WHERE pg_temp.leak(t)",
        _LEAK + "SELECT * FROM ducklake_api.catalogs c WHERE pg_temp.leak(c.data_path)",
        _LEAK + "SELECT * FROM ducklake_api.data_files f WHERE pg_temp.leak(f.path)",
        _LEAK + "SELECT * FROM ducklake_api.columns k WHERE pg_temp.leak(k.column_name)",
        _LEAK + "SELECT * FROM ducklake_api.snapshots s WHERE pg_temp.leak(s.commit_message)",
        _LEAK + "SELECT * FROM ducklake_api.health h WHERE pg_temp.leak(h)",
        _LEAK + "SELECT * FROM ducklake_api.maintenance m WHERE pg_temp.leak(m.error)",
        _LEAK + "UPDATE lake.ducklake_table t SET table_id = 9 WHERE pg_temp.leak(t.table_name)",
        _LEAK + "DELETE FROM lake.ducklake_data_file f WHERE pg_temp.leak(f.path)",
        _LEAK + "SELECT table_name FROM lake.ducklake_table t ORDER BY pg_temp.leak(t.table_name)",
        _LEAK + "SELECT key FROM lake.ducklake_metadata GROUP BY 1 HAVING pg_temp.leak(min(value))",
        _LEAK + "SELECT * FROM lake.ducklake_schema s JOIN lake.ducklake_table t "
        "ON pg_temp.leak(s.schema_name) AND pg_temp.leak(t.table_name)",
        _LEAK + "SELECT count(*) FILTER (WHERE pg_temp.leak(t)) FROM lake.ducklake_view t",
        _LEAK + "CREATE TEMP VIEW w AS SELECT * FROM lake.ducklake_table t "
        "WHERE pg_temp.leak(t.table_name)\n;\nSELECT * FROM w",
        """CREATE FUNCTION pg_temp.eq(text, text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001
            AS $$ BEGIN RAISE NOTICE 'saw % %', $1, $2; RETURN true; END $$
        ;
        CREATE OPERATOR pg_temp.=== (LEFTARG = text, RIGHTARG = text, FUNCTION = pg_temp.eq)
        ;
        SELECT * FROM lake.ducklake_table WHERE table_name::text OPERATOR(pg_temp.===) 'x'""",
        """CREATE FUNCTION pg_temp.eq(text, text) RETURNS boolean LANGUAGE plpgsql LEAKPROOF
            AS $$ BEGIN RAISE NOTICE 'saw % %', $1, $2; RETURN true; END $$""",
        "SELECT * FROM lake.ducklake_table WHERE table_name::integer = 1",
        "SELECT * FROM lake.ducklake_data_file WHERE path::uuid IS NULL",
        "SELECT * FROM lake.ducklake_table WHERE 1 / (table_id - @table_id@) = 0",
        "SELECT * FROM lake.ducklake_column WHERE column_name::xml IS NOT NULL",
        "SELECT * FROM lake.ducklake_file_column_stats WHERE max_value::json IS NULL",
        "SELECT * FROM lake.ducklake_metadata WHERE value::point IS NULL",
        "SELECT * FROM lake.ducklake_table WHERE CASE WHEN table_name LIKE 'n%' THEN 1/0 > 0 END",
        "SELECT * FROM ducklake_api.tables WHERE table_name::integer = 1",
        "SELECT * FROM ducklake_api.catalogs WHERE data_path::integer = 1",
        "SELECT * FROM ducklake_api.data_files WHERE path::date IS NULL "
        "AND catalog_name = '@victim@'",
        "DELETE FROM lake.ducklake_table WHERE table_name::integer = 1",
    ],
    "queries over the views": [
        "SELECT catalog_id, * FROM lake.ducklake_table",
        "SELECT tableoid, xmin, cmin, * FROM lake.ducklake_table",
        "SELECT * FROM lake.ducklake_table WHERE ctid IN (SELECT format('(%s,%s)', a, b)::tid "
        "FROM generate_series(0, 9) a, generate_series(1, 99) b)",
        "SELECT * FROM lake.ducklake_data_file WHERE data_file_id = @file_id@ OR true",
        "SELECT * FROM lake.ducklake_table WHERE table_id BETWEEN @first_id@ AND @last_id@",
        "SELECT * FROM lake.ducklake_snapshot TABLESAMPLE SYSTEM (100)",
        "SELECT * FROM ONLY lake.ducklake_schema",
        "SELECT *, count(*) OVER (), lag(path) OVER (ORDER BY path) FROM lake.ducklake_data_file",
        "WITH RECURSIVE r AS (SELECT 1 AS n, t.* FROM lake.ducklake_table t UNION ALL "
        "SELECT n + 1, t.* FROM r, lake.ducklake_table t WHERE n < 3) SELECT * FROM r",
        "SELECT f.* FROM lake.ducklake_table t, LATERAL (SELECT * FROM lake.ducklake_data_file d "
        "WHERE d.table_id <> t.table_id) f",
        "SELECT * FROM lake.ducklake_table FULL JOIN lake.ducklake_data_file ON false",
        "SELECT * FROM lake.ducklake_column EXCEPT ALL SELECT * FROM lake.ducklake_column LIMIT 0",
        "SELECT row_to_json(t), t::text, to_jsonb(t) FROM lake.ducklake_table t FOR UPDATE",
        "SELECT * FROM lake.ducklake_view NATURAL JOIN lake.ducklake_macro",
        "SELECT * FROM lake.ducklake_tag, lake.ducklake_column_tag, lake.ducklake_partition_info",
        "SELECT query_to_xml('TABLE lake.ducklake_table', true, false, '')",
        "SELECT table_to_xml('lake.ducklake_data_file', true, false, '')",
        "SELECT schema_to_xml('lake', true, false, '')",
        "SELECT schema_to_xml('ducklake', true, false, '')",
        "SELECT database_to_xml(true, true, '')",
        "SELECT * FROM ts_stat('SELECT to_tsvector(table_name) FROM lake.ducklake_table')",
        "COPY (SELECT * FROM lake.ducklake_table) TO STDOUT",
        "COPY lake.ducklake_table TO STDOUT",
        "COPY (DELETE FROM lake.ducklake_tag RETURNING *) TO STDOUT",
        "EXPLAIN (VERBOSE, SETTINGS) TABLE lake.ducklake_table",
        "EXPLAIN SELECT * FROM lake.ducklake_table WHERE table_name = '@table@'",
        "EXPLAIN (ANALYZE, VERBOSE, BUFFERS, FORMAT JSON) SELECT * FROM lake.ducklake_data_file",
        "EXPLAIN (ANALYZE, VERBOSE) SELECT * FROM ducklake_api.data_files",
        "EXPLAIN (ANALYZE) DELETE FROM lake.ducklake_file_column_stats WHERE min_value > 'a'",
        "EXPLAIN (GENERIC_PLAN, VERBOSE) SELECT * FROM lake.ducklake_table WHERE table_id = $1",
        """SET client_min_messages = log
        ;
        SET debug_print_plan = on
        ;
        SET debug_print_rewritten = on
        ;
        SELECT * FROM lake.ducklake_table WHERE table_name > ''""",
        """DO $$ DECLARE r record; BEGIN
            PERFORM set_config('ducklake.catalog', '@victim@', false);
            FOR r IN SELECT * FROM lake.ducklake_table LOOP RAISE NOTICE '%', r; END LOOP;
        EXCEPTION WHEN OTHERS THEN RAISE NOTICE '% %', SQLERRM, SQLSTATE; END $$""",
    ],
    "api views": [
        *(
            f"SELECT * FROM ducklake_api.{view} WHERE catalog_name = '@victim@'"
            for view in (
                "catalogs", "snapshots", "tables", "columns", "data_files", "maintenance", "health",
            )
        ),
        "TABLE ducklake_api.maintenance",
        "TABLE ducklake_api.health",
        "SELECT * FROM ducklake_api.catalogs",
        "SELECT * FROM ducklake_api.catalogs WHERE catalog_id = @victim_id@ OR catalog_id > 0",
        "SELECT count(*), max(table_id) FROM ducklake_api.tables",
        "SELECT * FROM ducklake_api.columns c LEFT JOIN ducklake_api.data_files f ON true",
        "SET ducklake.catalog = '@victim@'\n;\nTABLE ducklake_api.tables",
        "SET ducklake.catalog = ''\n;\nTABLE ducklake_api.data_files",
        "UPDATE ducklake_api.catalogs SET catalog_name = '@victim@' WHERE catalog_name = '@own@'",
        "DELETE FROM ducklake_api.snapshots",
        "INSERT INTO ducklake_api.catalogs (catalog_name, catalog_id) VALUES ('x', 99)",
        "SELECT * FROM ducklake_api.catalogs FOR UPDATE",
        "COPY ducklake_api.tables TO STDOUT",
    ],
    "functions of the store": [
        "SELECT ducklake.is_service()",
        "SELECT ducklake.may_read(@victim_id@)",
        "SELECT ducklake.may_write(@victim_id@)",
        "SELECT ducklake.current_catalog_id()",
        "SELECT ducklake.place('/x')",
        "SELECT ducklake.canonical('/x')",
        "SELECT ducklake.directories('/x/y')",
        "SELECT ducklake.is_root('/x')",
        "SELECT ducklake.is_admitted(@victim_id@, '/x')",
        "SELECT ducklake.is_shared(@victim_id@, @file_id@, '/x')",
        "SELECT ducklake.remember_place(@own_id@, '@victim_root@')",
        "SELECT ducklake.allow_prefix('@own@', '@victim_root@', true)",
        "SELECT ducklake.require_live(@victim_id@)",
        "SELECT ducklake.guard_snapshot()",
        "SELECT ducklake.share_inlined_tables()",
        "SELECT ducklake.has_inlined_rows('ducklake_table')",
        "SELECT ducklake.is_foreign(@own_id@, '@victim_root@')",
        "SELECT ducklake.is_foreign_directory(@own_id@, '@victim_root@')",
        "SELECT ducklake.first_id(@victim_id@)",
        "SELECT ducklake.live_catalog('@victim@')",
        "SELECT ducklake.check_name('@victim@', NULL)",
        "SELECT ducklake.register_catalog('x', NULL, NULL, NULL)",
        "SELECT ducklake.create_catalog('x', NULL, false, 0)",
        "SELECT ducklake.rename_catalog('@victim@', 'mine')",
        "SELECT ducklake.drop_catalog('@victim@')",
        "SELECT ducklake.grant_catalog('@victim@', '@own_role@', true)",
        "SELECT ducklake.revoke_catalog('@victim@', '@victim_role@')",
        "SELECT ducklake.admit('@own_role@')",
        "SELECT * FROM ducklake.claim_on('@victim_root@')",
        "TABLE ducklake.readable_catalog",
        "SELECT * FROM ducklake.forked_tables(@victim_id@, @own_id@, 99)",
        "SELECT * FROM ducklake.files_of(@victim_id@, NULL)",
        "SELECT ducklake.obstacle_to_fork(@victim_id@, 1)",
        "SELECT ducklake.fork_catalog('@victim@', 'mine', NULL, NULL)",
        "SELECT ducklake.keep_row_of_shared_file(@victim_id@, @file_id@, '/x')",
        *(
            f"""CREATE TEMP TABLE t (catalog_id bigint, path text, path_is_relative boolean)
            ;
            CREATE TRIGGER t AFTER INSERT ON t REFERENCING NEW TABLE AS changed
                FOR EACH STATEMENT EXECUTE FUNCTION ducklake.{function}('path')
            ;
            INSERT INTO t VALUES (@victim_id@, '@victim_root@', false)"""
            for function in (
                "require_write", "guard_paths", "guard_file_id", "keep_shared_files",
                "schedule_unreached_files", "guard_settings", "set_option",
            )
        ),
        "SELECT 'ducklake.files_of'::regproc",
        "SELECT pg_get_function_result('ducklake.files_of'::regproc)",
        "CREATE FUNCTION pg_temp.f() RETURNS bigint LANGUAGE sql "
        "RETURN ducklake.current_catalog_id()",
    ],
}  # fmt: skip
