"""Attacks that go for the rows of others through the views, and for their names and ids."""

from __future__ import annotations

_SWITCH = "WITH s AS MATERIALIZED (SELECT set_config('ducklake.catalog', '{}', false) AS v) "
_INTO_TAG = (
    "INSERT INTO lake.ducklake_tag (object_id, begin_snapshot, key, value) "
    "SELECT g, 0, v, 'evil' FROM s, generate_series(1, 3) g"
)

CHANGING: dict[str, list[str]] = {
    "inserts": [
        "INSERT INTO lake.ducklake_tag (catalog_id, object_id) VALUES (@victim_id@, 1)",
        "INSERT INTO lake.ducklake_tag (ctid, object_id) VALUES ('(0,1)', 1)",
        "INSERT INTO lake.ducklake_table (table_id, table_name) VALUES (@table_id@, 'mine')",
        "INSERT INTO lake.ducklake_table (table_id, table_name) VALUES (NULL, 'mine')",
        "INSERT INTO lake.ducklake_table (table_id, table_name) VALUES (-1, 'mine')",
        "INSERT INTO lake.ducklake_schema (schema_id, schema_name, path, path_is_relative) "
        "VALUES (@first_id@, 'mine', 'main/', true)",
        "INSERT INTO lake.ducklake_snapshot VALUES (1000, now(), 1, @last_id@, @file_id@)",
        "INSERT INTO lake.ducklake_snapshot_changes VALUES (1, 'dropped_table:@table_id@')",
        "INSERT INTO lake.ducklake_data_file (data_file_id, path, path_is_relative) "
        "VALUES (@file_id@, 'mine.parquet', true)",
        "INSERT INTO lake.ducklake_data_file (data_file_id, path, path_is_relative) "
        "VALUES (-@file_id@, 'mine.parquet', true)",
        "INSERT INTO lake.ducklake_delete_file (delete_file_id, path, path_is_relative) "
        "VALUES (@file_id@, 'mine.parquet', true)",
        "INSERT INTO lake.ducklake_delete_file (delete_file_id, data_file_id, path, "
        "path_is_relative) VALUES (@own_first_id@ + 500, @file_id@, 'mine.parquet', true)",
        "INSERT INTO lake.ducklake_files_scheduled_for_deletion "
        "VALUES (@file_id@, 'mine.parquet', true, now())",
        "INSERT INTO lake.ducklake_file_column_stats (data_file_id, table_id, column_id, "
        "min_value) VALUES (@file_id@, @table_id@, 1, '0')",
        "INSERT INTO lake.ducklake_table_stats VALUES (@table_id@, 0, 0, 0)",
        "INSERT INTO lake.ducklake_inlined_data_tables "
        "VALUES (@table_id@, 'ducklake_inlined_data_@table_id@_1', 1)",
        "INSERT INTO lake.ducklake_inlined_data_tables "
        "VALUES (@own_first_id@, 'ducklake_inlined_data_@table_id@_1', 1)",
        "INSERT INTO lake.ducklake_inlined_data_tables "
        "VALUES (@own_first_id@, 'ducklake_data_file', 1)",
        "INSERT INTO lake.ducklake_inlined_data_tables "
        "VALUES (@own_first_id@, 'x; DROP SCHEMA lake CASCADE; --', 1)",
        "INSERT INTO lake.ducklake_tag SELECT * FROM lake.ducklake_tag",
        "INSERT INTO lake.ducklake_schema SELECT * FROM ducklake.ducklake_schema",
        "INSERT INTO lake.ducklake_tag (object_id) OVERRIDING SYSTEM VALUE VALUES (1)",
    ],
    "unique violations": [
        # One names what only the victim has, the other what the attacker has too.
        "INSERT INTO lake.ducklake_snapshot (snapshot_id) VALUES (@victim_snapshot@)",
        "INSERT INTO lake.ducklake_snapshot (snapshot_id) VALUES (1)",
        "INSERT INTO lake.ducklake_schema (schema_id, schema_name, path, path_is_relative) "
        "SELECT g, 'x', 'x/', true FROM generate_series(@first_id@, @first_id@ + 50) g",
        "INSERT INTO lake.ducklake_data_file (data_file_id) "
        "SELECT g FROM generate_series(@first_id@, @first_id@ + 50) g ON CONFLICT DO NOTHING",
        "INSERT INTO lake.ducklake_snapshot_changes (snapshot_id, author) VALUES (1, 'x') "
        "ON CONFLICT (snapshot_id) DO UPDATE SET author = 'mine' RETURNING *",
        "INSERT INTO lake.ducklake_snapshot_changes AS c (snapshot_id, author) VALUES (1, 'x') "
        "ON CONFLICT (catalog_id, snapshot_id) DO UPDATE SET author = c.author || 'x' RETURNING *",
        "INSERT INTO lake.ducklake_snapshot (snapshot_id) SELECT generate_series(0, 9) "
        "ON CONFLICT DO NOTHING RETURNING *",
        "UPDATE lake.ducklake_snapshot SET snapshot_id = @victim_snapshot@ WHERE snapshot_id = 0",
        "UPDATE lake.ducklake_schema SET schema_id = @first_id@",
    ],
    "updates and deletes": [
        "UPDATE lake.ducklake_table SET table_name = 'mine', ctid = '(0,1)'",
        "UPDATE lake.ducklake_table SET catalog_id = @victim_id@",
        "UPDATE lake.ducklake_table SET table_name = 'mine' RETURNING *",
        "UPDATE lake.ducklake_table SET table_id = @table_id@",
        "UPDATE lake.ducklake_data_file SET data_file_id = @file_id@ WHERE data_file_id > 0",
        "UPDATE lake.ducklake_snapshot SET next_file_id = @file_id@, next_catalog_id = @table_id@",
        "UPDATE lake.ducklake_tag SET value = 'x' WHERE ctid IN (SELECT format('(%s,%s)', a, b)"
        "::tid FROM generate_series(0, 9) a, generate_series(1, 99) b) RETURNING *",
        "UPDATE lake.ducklake_data_file SET record_count = 0 WHERE data_file_id = @file_id@",
        "UPDATE lake.ducklake_column c SET column_name = t.table_name "
        "FROM lake.ducklake_table t WHERE true RETURNING c.*, t.*",
        "DELETE FROM lake.ducklake_data_file RETURNING *",
        "DELETE FROM lake.ducklake_table WHERE ctid < '(999,1)' RETURNING *",
        "DELETE FROM lake.ducklake_file_column_stats USING ducklake_api.tables RETURNING *",
        "DELETE FROM lake.ducklake_snapshot RETURNING *",
        "SET ducklake.schedules_files = on\n;\nDELETE FROM lake.ducklake_snapshot",
        "DELETE FROM lake.ducklake_snapshot WHERE snapshot_id < @victim_snapshot@",
        "DELETE FROM lake.ducklake_schema WHERE schema_id BETWEEN @first_id@ AND @last_id@",
        "WITH d AS (DELETE FROM lake.ducklake_table RETURNING *), "
        "e AS (DELETE FROM lake.ducklake_data_file RETURNING *) SELECT * FROM d, e",
        "MERGE INTO lake.ducklake_table t USING (SELECT @table_id@ AS id) s ON t.table_id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (table_id) VALUES (s.id)",
        "MERGE INTO lake.ducklake_table t USING lake.ducklake_schema s ON true "
        "WHEN MATCHED THEN UPDATE SET table_name = s.schema_name RETURNING *",
        "MERGE INTO lake.ducklake_tag t USING (SELECT 1) s ON false "
        "WHEN NOT MATCHED THEN INSERT (object_id, value) VALUES (@table_id@, 'x')",
        "TRUNCATE lake.ducklake_table",
        "TRUNCATE ducklake.ducklake_table CASCADE",
    ],
    "another catalog while a statement runs": [
        *(
            _SWITCH.format(name) + change
            for name in ("@victim@", "@library@")
            for change in (
                _INTO_TAG,
                "DELETE FROM lake.ducklake_data_file f USING s WHERE f.path <> s.v",
                "UPDATE lake.ducklake_table SET table_name = 'mine' FROM s WHERE table_name <> s.v",
                "DELETE FROM lake.ducklake_snapshot USING s WHERE snapshot_id >= length(s.v) * 0",
                "MERGE INTO lake.ducklake_schema t USING s ON t.schema_name <> s.v "
                "WHEN MATCHED THEN UPDATE SET schema_name = 'mine'",
                "INSERT INTO lake.ducklake_metadata SELECT 'k', v, NULL, NULL FROM s",
                "DELETE FROM lake.ducklake_metadata m USING s WHERE m.value <> s.v",
            )
        ),
        "UPDATE lake.ducklake_column "
        "SET column_name = set_config('ducklake.catalog', '@library@', true)",
        "INSERT INTO lake.ducklake_snapshot_changes (snapshot_id, author) "
        "SELECT 1000 + g, set_config('ducklake.catalog', '@library@', false) "
        "FROM generate_series(1, 3) g",
        """CREATE FUNCTION pg_temp.switch() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
            PERFORM set_config('ducklake.catalog', '@library@', false); RETURN 1; END $$
        ;
        INSERT INTO lake.ducklake_tag (object_id) VALUES (pg_temp.switch()), (pg_temp.switch())""",
        """DO $$ BEGIN
            UPDATE lake.ducklake_tag SET value = 'x';
            PERFORM set_config('ducklake.catalog', '@library@', true);
            UPDATE lake.ducklake_table SET table_name = 'mine';
        END $$""",
    ],
    "settings of the catalog": [
        "INSERT INTO lake.ducklake_metadata VALUES ('data_path', '@victim_root@', NULL, NULL)",
        "INSERT INTO lake.ducklake_metadata VALUES ('DATA_PATH', '@victim_root@', NULL, NULL)",
        "INSERT INTO lake.ducklake_metadata VALUES ('data_path', '@victim_root@', 'table', 1)",
        "INSERT INTO lake.ducklake_metadata VALUES ('version', '0.1', NULL, NULL)",
        "INSERT INTO lake.ducklake_metadata VALUES ('encrypted', 'true', NULL, NULL)",
        "UPDATE lake.ducklake_metadata SET value = '@victim_root@' WHERE key = 'data_path'",
        "UPDATE lake.ducklake_metadata SET key = 'data_path', value = '@victim_root@'",
        "UPDATE lake.ducklake_metadata SET key = 'x' WHERE key = 'data_path'",
        "DELETE FROM lake.ducklake_metadata WHERE key = 'data_path'",
        "DELETE FROM lake.ducklake_metadata",
        "MERGE INTO lake.ducklake_metadata m USING (SELECT 1) s ON m.key = 'data_path' "
        "WHEN MATCHED THEN UPDATE SET value = '@victim_root@'",
        "COPY lake.ducklake_metadata FROM STDIN\ndata_path\t@victim_root@\t\\N\t\\N\n",
        "COPY lake.ducklake_metadata FROM STDIN\nquota\t1\t\\N\t\\N\n",
        "COPY lake.ducklake_table FROM STDIN\n1\n",
        "SELECT count(*) FROM lake.ducklake_metadata WHERE value LIKE '%@victim@%'",
        "COPY (SELECT key FROM lake.ducklake_metadata) TO STDOUT",
    ],
    "tables below the views": [
        *(
            f"SELECT * FROM ducklake.{table}"
            for table in (
                "ducklake_catalog", "catalog_grant", "store", "shared_file", "file_reader",
                "maintenance_ledger", "ducklake_table", "ducklake_data_file", "ducklake_metadata",
            )
        ),
        "SET search_path = ducklake\n;\nSELECT * FROM ducklake_catalog",
        "COPY ducklake.ducklake_catalog TO STDOUT",
        "COPY ducklake.catalog_grant FROM STDIN\n@victim_id@\t@own_role@\tt\n",
        "INSERT INTO ducklake.catalog_grant VALUES (@victim_id@, '@own_role@', true)",
        "UPDATE ducklake.catalog_grant SET writable = true",
        "UPDATE ducklake.catalog_grant SET role_name = '@own_role@' WHERE catalog_id = @victim_id@",
        "DELETE FROM ducklake.ducklake_catalog WHERE catalog_id = @victim_id@",
        "UPDATE ducklake.ducklake_catalog SET root = '/' WHERE catalog_name = '@own@'",
        "INSERT INTO ducklake.file_reader VALUES (@file_id@, @own_id@)",
        "SELECT nextval('ducklake.ducklake_catalog_catalog_id_seq')",
        "SELECT last_value FROM ducklake.ducklake_catalog_catalog_id_seq",
        "LOCK TABLE ducklake.ducklake_catalog IN ACCESS EXCLUSIVE MODE NOWAIT",
        "CREATE TEMP TABLE t (LIKE ducklake.ducklake_table INCLUDING ALL)",
        "CREATE TEMP TABLE t () INHERITS (ducklake.ducklake_table)",
        "CREATE TEMP TABLE t (id bigint REFERENCES ducklake.ducklake_catalog)",
        "CREATE TEMP VIEW v AS SELECT * FROM ducklake.ducklake_catalog",
        "CREATE TEMP TABLE t AS SELECT * FROM ducklake.ducklake_catalog",
        "DO $$ BEGIN EXECUTE 'UPDATE ducklake.catalog_grant SET writable = true'; END $$",
        "SELECT * FROM ONLY ducklake.ducklake_snapshot WHERE catalog_id = @own_id@",
    ],
    "objects that hide others": [
        """CREATE TEMP TABLE catalog_grant AS
            SELECT @victim_id@::bigint AS catalog_id, session_user AS role_name, true AS writable
        ;
        SET search_path = pg_temp, ducklake, pg_catalog
        ;
        SET ducklake.catalog = '@victim@'
        ;
        TABLE lake.ducklake_table""",
        """CREATE TEMP TABLE ducklake_catalog AS SELECT @victim_id@::bigint AS catalog_id,
            '@own@'::text AS catalog_name, 'live'::text AS state
        ;
        SET search_path = pg_temp
        ;
        SELECT * FROM lake.ducklake_data_file""",
        """CREATE FUNCTION pg_temp.current_catalog_id() RETURNS bigint LANGUAGE sql
            RETURN @victim_id@
        ;
        SET search_path = pg_temp, lake
        ;
        SELECT * FROM ducklake_table""",
        """CREATE FUNCTION pg_temp.pg_has_role(name, text, text) RETURNS boolean LANGUAGE sql
            RETURN true
        ;
        SET search_path = pg_temp, pg_catalog
        ;
        SET ducklake.catalog = '@victim@'
        ;
        TABLE lake.ducklake_table""",
        """CREATE FUNCTION pg_temp.lower(text) RETURNS text LANGUAGE sql RETURN '@victim@'
        ;
        SET search_path = pg_temp, pg_catalog
        ;
        TABLE lake.ducklake_table""",
        """CREATE FUNCTION pg_temp.always(bigint, bigint) RETURNS boolean LANGUAGE sql RETURN true
        ;
        CREATE OPERATOR pg_temp.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = pg_temp.always)
        ;
        SET search_path = pg_temp, pg_catalog
        ;
        SELECT * FROM lake.ducklake_table""",
        """CREATE TEMP TABLE changed (catalog_id bigint, path text, path_is_relative boolean)
        ;
        SET search_path = pg_temp, pg_catalog
        ;
        INSERT INTO lake.ducklake_data_file (data_file_id, path, path_is_relative)
            VALUES (@own_first_id@ + 700, '@victim_root@x.parquet', false)""",
        """CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (VALUE = 'x')
        ;
        SET search_path = pg_temp, pg_catalog
        ;
        SELECT * FROM lake.ducklake_table""",
        """CREATE TEMP VIEW ducklake_table AS SELECT * FROM lake.ducklake_table
        ;
        SET ducklake.catalog = '@victim@'
        ;
        SELECT * FROM pg_temp.ducklake_table""",
        """CREATE TEMP TABLE pg_class AS SELECT 'x'::name AS relname
        ;
        SET search_path = pg_temp, pg_catalog
        ;
        DELETE FROM lake.ducklake_snapshot""",
        "SET transform_null_equals = on\n;\nSET ducklake.catalog = '@victim@'"
        "\n;\nTABLE lake.ducklake_table",
        "SET search_path = ''\n;\nSELECT * FROM lake.ducklake_table",
        "CREATE FUNCTION lake.current_catalog_id() RETURNS bigint LANGUAGE sql RETURN 1",
        "CREATE FUNCTION public.lower(text) RETURNS text LANGUAGE sql RETURN '@victim@'",
    ],
}  # fmt: skip
